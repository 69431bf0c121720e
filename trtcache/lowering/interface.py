"""What goes into an engine and what comes out: leaves of the arguments, outputs, slots and constants, as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trtcache.values import Json
    from trtcache.weights import EngineWeight, Slot


@dataclass(frozen=True, slots=True)
class TensorInput:
    """A leaf of the arguments that is a tensor. Sizes and strides are numbers or expressions (see ``symbols.py``)."""

    leaf: int
    dtype: str
    shape: tuple[Json, ...]
    stride: tuple[Json, ...]
    device: str

    def document(self) -> dict[str, Json]:
        """Return the input as it stands in the key and in the artifact."""
        return {
            "leaf": self.leaf,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "stride": list(self.stride),
            "device": self.device,
        }


@dataclass(frozen=True, slots=True)
class ValueInput:
    """A leaf of the arguments that is not a tensor; the program was made for this value."""

    leaf: int
    value: object


@dataclass(frozen=True, slots=True)
class Result:
    """One output of the engine or of the model.

    ``kind`` is ``result``, ``value``, ``weight`` or ``input`` as in ``capture.Role``; of the engine's outputs only
    results and new contents of inputs are left, since an engine changes its own weights itself. ``layout`` is the order
    of a result's dimensions in memory, from the outermost, as the model makes it; None where that is not to be kept.
    """

    kind: str
    target: int | None = None
    value: object = None
    layout: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TensorOutput:
    """A tensor that the engine gives. Sizes are numbers or expressions over the symbols of the inputs."""

    dtype: str
    shape: tuple[Json, ...]
    device: str

    def document(self) -> dict[str, Json]:
        """Return the output as it stands in the artifact."""
        return {"dtype": self.dtype, "shape": list(self.shape), "device": self.device}


@dataclass(frozen=True, slots=True)
class Interface:
    """The border of a lowered program.

    Attributes:
        inputs: tensors, in the order in which the engine takes them.
        values: leaves that are not tensors.
        results: the leaves of the model's output, in order, and new contents of inputs before them.
        slots: weights of the model, in the order of first use.
        weights: weights of the engine, which are made from slots, in the order of first use.
        constants: digests of the constants, by the engine's names for them (``c0``, ``c1``, ...).
        ranges: ``[least, most]`` of each symbol.
        outputs: what the engine gives: results and new contents of inputs, in order; empty where an entry was made
            before they were noted. No part of the key, which has them in its graph.
    """

    inputs: tuple[TensorInput, ...]
    values: tuple[ValueInput, ...]
    results: tuple[Result, ...]
    slots: tuple[Slot, ...]
    weights: tuple[EngineWeight, ...]
    constants: tuple[str, ...]
    ranges: tuple[tuple[int | None, int | None], ...]
    outputs: tuple[TensorOutput, ...] = ()
