"""The inputs and outputs of an engine: names, dtypes, and where their memory is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from trtcache.errors import IncompatibleEngineError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Binding:
    """One input or output of an engine: TensorRT's name for it, and what its memory holds.

    One that is ``on_host`` is read or written on the CPU, as the sizes of a reshape are; one with a ``source`` is an
    output that has to lie in the memory of the input of that name.
    """

    name: str
    dtype: torch.dtype
    on_host: bool
    source: str | None = None


def dtypes_of(trt: Any) -> dict[Any, torch.dtype]:
    """Return torch's dtype for each of TensorRT's that an input or output can have."""
    kinds = trt.DataType
    return {
        kinds.FLOAT: torch.float32,
        kinds.HALF: torch.float16,
        kinds.BF16: torch.bfloat16,
        kinds.INT8: torch.int8,
        kinds.INT32: torch.int32,
        kinds.INT64: torch.int64,
        kinds.UINT8: torch.uint8,
        kinds.BOOL: torch.bool,
        kinds.FP8: torch.float8_e4m3fn,
    }


def binding_of(engine: Any, name: str, dtypes: Mapping[Any, torch.dtype], host: Any) -> Binding:
    """Return what an engine says of one of its inputs or outputs.

    Raises:
        IncompatibleEngineError: it has a dtype that torch has not.
    """
    dtype = dtypes.get(engine.get_tensor_dtype(name))
    if dtype is None:
        raise IncompatibleEngineError("plan", f"{name} is {engine.get_tensor_dtype(name)}, which torch has not")
    return Binding(name, dtype, engine.get_tensor_location(name) == host, engine.get_aliased_input_tensor(name))
