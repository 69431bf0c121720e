"""Reader of programs that ``torch_tensorrt.save`` writes after cross-compiling.

Such a program calls ``tensorrt::no_op_placeholder_for_execute_engine`` for each engine, with the engine and a dozen
strings as arguments. One of these, the metadata, is a pickle in base64: only its length is read, not the pickle. The
engine's inputs and outputs are taken from the graph around the call.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from trtcache.bundle.archive import MODEL, content_of, directory
from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import NotAProgramError, ProgramContentError, ProgramSizesError
from trtcache.weights.files import TORCH_DTYPES

OPERATOR = "torch.ops.tensorrt.no_op_placeholder_for_execute_engine.default"

_MOST_BYTES = 4 << 30
_BETWEEN = "%"
_BROKEN = (LookupError, TypeError, ValueError, AttributeError, RecursionError)


@frozen_dataclass
class TensorSpec:
    """An input or output of an engine: its name, dtype, and sizes, strings if dynamic."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@frozen_dataclass
class ForeignEngine:
    """An engine of a program written by torch_tensorrt.

    Attributes:
        name: its name in the program.
        plan: the TensorRT plan.
        abi: the version of torch_tensorrt's format.
        inputs, outputs: its inputs and outputs.
        device: index, capability and name of the GPU that it was built on.
        platform: its target platform, ``windows_x86_64``.
        hardware_compatible: whether it runs on Ampere and later.
        metadata_bytes: the length of its metadata, a pickle in base64 that is not read.
        other: arguments of later versions, by name.
    """

    name: str
    plan: bytes | memoryview = field(repr=False)
    abi: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    device: Mapping[str, str]
    platform: str
    hardware_compatible: bool
    metadata_bytes: int
    other: Mapping[str, str]


def engines_in(path: Path) -> tuple[ForeignEngine, ...]:
    """Return the engines of a program cross-compiled by torch_tensorrt. Nothing is unpickled, loaded or run.

    Raises:
        NotAProgramError: it is not such a program.
        ProgramContentError: a call of an engine has an unknown form.
        DamagedProgramError: the file is damaged.
        ProgramFileError: it cannot be read.
    """
    reading = _ProgramFile(path)
    try:
        graph = json.loads(bytes(reading.member(MODEL)).decode())["graph_module"]
        found = tuple(_engine(node, graph, reading) for node in graph["graph"]["nodes"] if node["target"] == OPERATOR)
    except _BROKEN as error:
        raise ProgramContentError(str(path), f"its graph has an unknown form: {error!r:.200}") from error
    if not found:
        raise NotAProgramError(str(path), f"it calls no {OPERATOR.removeprefix('torch.ops.').removesuffix('.default')}")
    return found


class _ProgramFile:
    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._members = directory(content_of(path), self._path)
        if MODEL not in self._members:
            raise NotAProgramError(self._path, "it is not an exported program")

    def member(self, name: str) -> memoryview:
        content = self._members[name].content
        if len(content) > _MOST_BYTES:
            raise ProgramSizesError(self._path, f"its member {name} has {len(content)} bytes")
        return content

    def constant(self, name: str) -> memoryview:
        """Return the bytes of a constant or weight by its name in the program."""
        for folder in ("constants", "weights"):
            config = json.loads(bytes(self.member(f"data/{folder}/model_{folder}_config.json")))["config"]
            if name in config and config[name]["use_pickle"] is False:
                return self.member(f"data/{folder}/{config[name]['path_name']}")
        raise ValueError(f"the program has no constant {name!r:.60} that is stored as bytes")


def _engine(node: Any, graph: Any, reading: _ProgramFile) -> ForeignEngine:
    given = {one["name"]: one["arg"] for one in node["inputs"]}
    texts = {name: str(arg["as_string"]) for name, arg in given.items() if "as_string" in arg}
    taken = [one["name"] for one in given["inputs"]["as_tensors"]]
    made = [one["name"] for output in node["outputs"] for one in output.get("as_tensors", [output.get("as_tensor")])]
    values = graph["graph"]["tensor_values"]
    inputs, outputs = (
        _tensor_specs(texts.pop(f"serialized_{side}_binding_names", ""), places, values)
        for side, places in (("in", taken), ("out", made))
    )
    plan: bytes | memoryview
    if "serialized_engine" in texts:
        try:
            plan = base64.b64decode(texts.pop("serialized_engine"), validate=True)
        except binascii.Error as error:
            raise ValueError(f"an engine is not valid base64: {error}") from error
    else:
        plan = reading.constant(_constant_name(given["serialized_engine"], graph))
    written = texts.pop("serialized_device_info", "")
    device = written.split(_BETWEEN)
    return ForeignEngine(
        name=texts.pop("name", ""),
        plan=plan,
        abi=texts.pop("abi_version", ""),
        inputs=inputs,
        outputs=outputs,
        device={"index": device[0], "capability": f"{device[1]}.{device[2]}", "name": device[4]}
        if len(device) == 5
        else ({"said": written} if written else {}),
        platform=texts.pop("serialized_target_platform", ""),
        hardware_compatible=texts.pop("serialized_hardware_compatible", "0") == "1",
        metadata_bytes=len(texts.pop("serialized_metadata", "")),
        other=texts,
    )


def _tensor_specs(written: str, places: list[str], values: Any) -> tuple[TensorSpec, ...]:
    """Return the specs of a call's values from the graph, with the engine's own names in order."""
    names, made = written.split(_BETWEEN) if written else places, []
    if len(names) != len(places):
        raise ValueError(f"an engine has {len(places)} inputs or outputs, and names for {len(names)}")
    for name, place in zip(names, places, strict=True):
        meta = values[place]
        shape = tuple(
            size["as_int"] if "as_int" in size else str(size["as_expr"]["expr_str"]) for size in meta["sizes"]
        )
        made.append(TensorSpec(name, TORCH_DTYPES[meta["dtype"]], shape))
    return tuple(made)


def _constant_name(argument: Any, graph: Any) -> str:
    """Return the name of an argument's constant: later versions store the engine as a tensor of bytes."""
    name = argument["as_tensor"]["name"]
    for spec in graph["signature"]["input_specs"]:
        for kind, key in (("tensor_constant", "tensor_constant_name"), ("buffer", "buffer_name")):
            if kind in spec and spec[kind]["arg"]["name"] == name:
                return str(spec[kind][key])
    raise ValueError(f"the argument of an engine is not a constant: {name!r:.60}")
