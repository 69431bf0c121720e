"""Reads the programs that ``torch_tensorrt.save`` writes after cross-compiling: their engines, and what those take.

Such a program has a call of ``tensorrt::no_op_placeholder_for_execute_engine`` for each engine, whose arguments are the
engine and a dozen texts. One of these, the metadata, is a pickle in base64: it is counted and never opened. What an
engine takes and gives is told by the graph around the call.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trtcache.bundle.archive import content_of
from trtcache.bundle.zip_directory import directory
from trtcache.errors import NotAProgramError, ProgramContentError, ProgramSizesError
from trtcache.frontends.pt2 import DTYPES
from trtcache.weights.slots import dtype_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trtcache.bundle.zip_directory import Place

OPERATOR = "torch.ops.tensorrt.no_op_placeholder_for_execute_engine.default"

_MODEL = "models/model.json"
_MOST_BYTES = 4 << 30
_BETWEEN = "%"
_BROKEN = (LookupError, TypeError, ValueError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Border:
    """A tensor that an engine takes or gives: what the engine calls it, dtype, and sizes, words where they vary."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class ForeignEngine:
    """An engine of a program that torch_tensorrt wrote.

    Attributes:
        name: what the program calls it.
        plan: the plan of TensorRT.
        abi: the version of torch_tensorrt's layout.
        inputs, outputs: what it takes and gives.
        device: of the GPU it was built on: index, capability, name.
        platform: what it is for, ``windows_x86_64``.
        hardware_compatible: whether it runs on Ampere and later.
        metadata_bytes: how long its pickled metadata is, which is not read.
        other: the arguments of later versions, by name.
    """

    name: str
    plan: bytes | memoryview = field(repr=False)
    abi: str
    inputs: tuple[Border, ...]
    outputs: tuple[Border, ...]
    device: Mapping[str, str]
    platform: str
    hardware_compatible: bool
    metadata_bytes: int
    other: Mapping[str, str]


def engines_in(path: Path) -> tuple[ForeignEngine, ...]:
    """Return the engines of a program that torch_tensorrt cross-compiled. Nothing is unpickled, loaded or run.

    Raises:
        NotAProgramError: it is no such program.
        ProgramContentError: a call of an engine is not as torch_tensorrt writes it.
        DamagedProgramError: the file is damaged.
        ProgramFileError: it cannot be read.
    """
    reading = _Reading(path)
    try:
        graph = json.loads(bytes(reading.member(_MODEL)).decode())["graph_module"]
        found = tuple(_engine(node, graph, reading) for node in graph["graph"]["nodes"] if node["target"] == OPERATOR)
    except _BROKEN as error:
        raise ProgramContentError(str(path), f"its graph is not as torch_tensorrt writes it: {error!r:.200}") from error
    if not found:
        raise NotAProgramError(str(path), f"it calls no {OPERATOR.removeprefix('torch.ops.').removesuffix('.default')}")
    return found


class _Reading:
    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._data = content_of(path)
        self._places: dict[str, Place] = directory(self._data, self._path)
        if _MODEL not in self._places:
            raise NotAProgramError(self._path, "it is no exported program")

    def member(self, name: str) -> memoryview:
        place = self._places[name]
        if place.size_bytes > _MOST_BYTES:
            raise ProgramSizesError(self._path, f"its member {name} has {place.size_bytes} bytes")
        return self._data[place.start : place.start + place.size_bytes]

    def constant(self, name: str) -> memoryview:
        """Return the bytes of a constant or weight, by the program's name for it."""
        for folder in ("constants", "weights"):
            config = json.loads(bytes(self.member(f"data/{folder}/model_{folder}_config.json")))["config"]
            if name in config and config[name]["use_pickle"] is False:
                return self.member(f"data/{folder}/{config[name]['path_name']}")
        raise ValueError(f"no constant of bytes is called {name!r:.60}")


def _engine(node: Any, graph: Any, reading: _Reading) -> ForeignEngine:
    given = {one["name"]: one["arg"] for one in node["inputs"]}
    texts = {name: str(arg["as_string"]) for name, arg in given.items() if "as_string" in arg}
    taken = [one["name"] for one in given["inputs"]["as_tensors"]]
    made = [one["name"] for output in node["outputs"] for one in output.get("as_tensors", [output.get("as_tensor")])]
    names = (_names(texts.pop(f"serialized_{side}_binding_names", "")) for side in ("in", "out"))
    values = graph["graph"]["tensor_values"]
    inputs, outputs = (_borders(called, places, values) for called, places in zip(names, (taken, made), strict=True))
    engine = texts.pop("serialized_engine", None)
    return ForeignEngine(
        name=texts.pop("name", ""),
        plan=_decoded(engine) if engine is not None else reading.constant(_fqn(given["serialized_engine"], graph)),
        abi=texts.pop("abi_version", ""),
        inputs=inputs,
        outputs=outputs,
        device=_device(texts.pop("serialized_device_info", "")),
        platform=texts.pop("serialized_target_platform", ""),
        hardware_compatible=texts.pop("serialized_hardware_compatible", "0") == "1",
        metadata_bytes=len(texts.pop("serialized_metadata", "")),
        other=texts,
    )


def _names(written: str) -> list[str]:
    return written.split(_BETWEEN) if written else []


def _borders(names: list[str], places: list[str], values: Any) -> tuple[Border, ...]:
    """Return what the graph says of the values of a call; an engine's own names go with them in order."""
    made = []
    for at, place in enumerate(places):
        meta = values[place]
        shape = tuple(
            size["as_int"] if "as_int" in size else str(size["as_expr"]["expr_str"]) for size in meta["sizes"]
        )
        name = names[at] if at < len(names) else place
        made.append(Border(name, dtype_name(DTYPES[meta["dtype"]]), shape))
    return tuple(made)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"an engine that is no base64: {error}") from error


def _fqn(argument: Any, graph: Any) -> str:
    """Return the name of the constant that an argument is: later versions have the engine as a tensor of bytes."""
    name = argument["as_tensor"]["name"]
    for spec in graph["signature"]["input_specs"]:
        for kind, key in (("tensor_constant", "tensor_constant_name"), ("buffer", "buffer_name")):
            if kind in spec and spec[kind]["arg"]["name"] == name:
                return str(spec[kind][key])
    raise ValueError(f"an engine that is no constant: {name!r:.60}")


def _device(written: str) -> dict[str, str]:
    parts = written.split(_BETWEEN)
    if len(parts) != 5:
        return {"said": written} if written else {}
    return {"index": parts[0], "capability": f"{parts[1]}.{parts[2]}", "name": parts[4]}
