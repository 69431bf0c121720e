"""An ONNX file read and with its key: everything that is known before the cache is asked."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trtcache.backends.members import CONSTANTS, ENGINE, GRAPH, INTERFACE, WEIGHT_MAP, interface_document
from trtcache.digests import CacheKey, json_bytes
from trtcache.errors import CanonicalizationError
from trtcache.frontends.onnx.canonical import FORMAT, canonical_graph
from trtcache.frontends.onnx.handover import hand_over
from trtcache.frontends.onnx.ports import Border, ports, sizes_of
from trtcache.weights.slots import weight_map

if TYPE_CHECKING:
    from pathlib import Path

    from trtcache.backends.protocol import Artifact
    from trtcache.digests import Json
    from trtcache.frontends.onnx.asked import Asked
    from trtcache.frontends.onnx.canonical import CanonicalGraph
    from trtcache.frontends.onnx.file import OnnxFile
    from trtcache.lowering.interface import Interface


@dataclass(frozen=True, slots=True)
class OnnxRequest:
    """A file, what was asked of it, and its key, which may be why there is none."""

    name: str
    file: OnnxFile
    asked: Asked
    border: Border
    graph: CanonicalGraph
    interface: Interface
    key: CacheKey | CanonicalizationError
    read_s: float
    key_s: float

    @classmethod
    def of(cls, file: OnnxFile, asked: Asked, name: str) -> OnnxRequest:
        """Read a file and make its key.

        Raises:
            OnnxFileError: the file is none, or is damaged.
            InputError: the sizes that were given are not the file's.
            ProfileError: the file leaves a size open, and the caller too.
        """
        start = time.perf_counter()
        inputs, outputs = ports(file)
        border = Border(inputs, outputs, sizes_of(inputs, asked.args, asked.kwargs, asked.backend.name))
        graph = canonical_graph(file, inputs)
        interface = border.interface(graph.slots)
        _ = file.locations  # a build takes the parsed model apart, and the memo needs them
        read_s = time.perf_counter() - start
        key = _key(file, asked, border, graph, interface)
        return cls(name, file, asked, border, graph, interface, key, read_s, time.perf_counter() - start - read_s)

    def build(self, folder: Path) -> Artifact:
        """Build the plan. The file's parsed model is taken apart for it, and the file is parsed anew if asked again.

        Raises:
            BuildError: the parser or the builder failed.
            NoDeviceError: the plan is to take other weights, and there is no GPU to build it on.
        """
        from trtcache.backends.tensorrt.onnx import OnnxModel  # a hit does not need it

        handed = hand_over(self.file, self.graph.slots)
        model = OnnxModel(
            content=handed.content,
            weights=handed.tensors,
            inputs=tuple(port.name for port in self.border.inputs),
            outputs=tuple(port.name for port in self.border.outputs),
            places={},
        )
        made = self.asked.backend.build_onnx(
            model, self.interface, self.border.ranges(), self.asked.settings, self.asked.target, folder
        )
        self.file.check_unchanged()
        return made

    def members(self, made: Artifact) -> dict[str, bytes | Path]:
        """Return what is stored of a build."""
        return {
            ENGINE: made.engine,
            CONSTANTS: _NO_TENSORS,
            WEIGHT_MAP: json_bytes(weight_map(self.interface.weights)),
            INTERFACE: json_bytes(interface_document(self.interface, {})),
            GRAPH: json_bytes(self.graph.document()),
            **made.members,
        }


_NO_TENSORS = (2).to_bytes(8, "little") + b"{}"
"""A file of safetensors without any."""


def _key(
    file: OnnxFile, asked: Asked, border: Border, graph: CanonicalGraph, interface: Interface
) -> CacheKey | CanonicalizationError:
    declared = asked.settings.operator_versions
    unknown = [one for one in graph.foreign if not {one, one.partition("::")[0]} & set(declared)]
    if unknown:
        return CanonicalizationError(
            f"operator {unknown[0]}",
            f"neither ONNX nor the file says what it computes; declare its version: "
            f"settings={{'operator_versions': {{{unknown[0]!r}: '1'}}}}",
        )
    try:
        return CacheKey.of(
            asked.backend.name, {**_parts(asked, border, graph, interface), **_frozen(file, asked, graph)}
        )
    except CanonicalizationError as error:
        return error


def _parts(asked: Asked, border: Border, graph: CanonicalGraph, interface: Interface) -> dict[str, object]:
    """Return what a plan depends on but for the values in it.

    Names of inputs and outputs are among it: it is by these that whoever has the plan finds them. So is what the file
    says of its outputs' sizes, which is stored and which a parser cannot tell of all of them.
    """
    return {
        "onnx": FORMAT,
        "graph": graph.digest,
        "opsets": dict(graph.opsets),
        "names": {
            "inputs": [port.name for port in border.inputs],
            "outputs": [port.name for port in border.outputs],
        },
        "inputs": [one.document() for one in interface.inputs],
        "outputs": [one.document() for one in interface.outputs],
        "values": [],
        "layouts": [one.layout for one in interface.results],
        "sizes": list(interface.ranges),
        "usual": [list(one.usual) for one in border.sizes],
        **asked.parts(),
    }


def _frozen(file: OnnxFile, asked: Asked, graph: CanonicalGraph) -> dict[str, object]:
    """Return the values of weights, where the plan takes no others."""
    if asked.backend.takes_weights(asked.settings) or not graph.slots:
        return {}
    found = [[slot.index, file.elements.digest(file.initializers[slot.names[0]])] for slot in graph.slots]
    return {"frozen": found}


def names_in(key: CacheKey) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of inputs and outputs that a key says.

    Raises:
        ValueError: it says none.
    """
    parts: Any = key.document["parts"]
    try:
        return tuple(parts["names"]["inputs"]), tuple(parts["names"]["outputs"])
    except (LookupError, TypeError) as error:
        raise ValueError("its key is of no ONNX file") from error


def slots_frozen(key: CacheKey) -> bool:
    """Say whether a key has the values of weights in it."""
    parts: Json = key.document["parts"]
    return isinstance(parts, dict) and "frozen" in parts
