"""From another ONNX file of the same graph to weights by the names of the file that was compiled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trtcache.errors import RefitError
from trtcache.frontends.onnx.canonical import canonical_graph
from trtcache.frontends.onnx.elements import TYPES
from trtcache.frontends.onnx.file import OnnxFile, is_onnx
from trtcache.frontends.onnx.ports import ports
from trtcache.frontends.onnx.tensors import tensor_of
from trtcache.keys.graph_diff import graph_differences
from trtcache.keys.stored_graph import StoredGraph

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from trtcache.frontends.onnx.canonical import CanonicalGraph
    from trtcache.weights.slots import Slot


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the graph that a plan was built from.

    Attributes:
        digest: of its canonical form, as a key has it.
        opsets: versions of its operators' domains.
        slots: its weights, with the compiled file's names for them.
        graph: returns the graph as its entry keeps it.
    """

    digest: str
    opsets: Mapping[str, int]
    slots: Sequence[Slot]
    graph: Callable[[], StoredGraph]


class OnnxWeights:
    """Weights of an ONNX file for refits: those that are in a plan now, and those of other files of the same graph."""

    def __init__(self, file: OnnxFile, known: Known) -> None:
        """Keep a file that was compiled, and what is known of its graph."""
        self._file, self._known = file, known

    def current(self) -> dict[str, torch.Tensor]:
        """Return the plan's weights by its names for them; the file is parsed for it."""
        initializers = self._file.initializers
        return {f"w{slot.index}": tensor_of(self._file, initializers[slot.names[0]]) for slot in self._known.slots}

    def reads(self, weights: object) -> bool:
        """Return whether weights are the path of an ONNX file."""
        return is_onnx(weights)

    def read(self, path: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
        """Return the weights of another file of the same graph, by the names of the file that was compiled.

        Raises:
            OnnxFileError: the file cannot be read.
            RefitError: its graph is another; the message names what differs.
        """
        return weights_in(Path(path), self._known)


def weights_in(path: Path, known: Known) -> dict[str, torch.Tensor]:
    """Return the weights of a file by the names of the file that was compiled, by their places in the graph.

    Raises:
        OnnxFileError: the file cannot be read.
        RefitError: its graph is another; the message names what differs.
    """
    file = OnnxFile(path)
    graph = canonical_graph(file, ports(file)[0])
    if str(graph.digest) != known.digest or dict(graph.opsets) != dict(known.opsets):
        raise _difference(file, graph, known)
    pairs = zip(known.slots, graph.slots, strict=True)
    return {ours.names[0]: tensor_of(file, file.initializers[theirs.names[0]]) for ours, theirs in pairs}


def _difference(file: OnnxFile, graph: CanonicalGraph, known: Known) -> RefitError:
    """Return what differs: weights by name where the files have the same names, else by place; else the graph."""
    ours = {slot.names[0]: slot for slot in known.slots}
    theirs = {slot.names[0]: slot for slot in graph.slots}
    missing = tuple(name for name in ours if name not in file.initializers)
    extra = tuple(name for name in theirs if name not in ours)
    if missing and extra and len(missing) == len(extra):
        missing, extra = (), ()  # renamed, and another graph for another reason
        mismatched = [_unlike(one, other) for one, other in zip(known.slots, graph.slots, strict=False)]
    else:
        mismatched = [_unlike(ours[name], theirs[name]) for name in ours if name in theirs]
        mismatched += [_unlike_tensor(file, ours[name]) for name in ours if name not in theirs and name not in missing]
    found = tuple(one for one in mismatched if one)
    if missing or extra or found:
        return RefitError(missing, extra, found)
    return RefitError(mismatched=_words(graph, known))


def _unlike(ours: Slot, theirs: Slot) -> str:
    if ours.shape != theirs.shape:
        return f"{ours.names[0]} (shape {theirs.shape}, the engine has {ours.shape})"
    if ours.dtype != theirs.dtype:
        return f"{ours.names[0]} (dtype {theirs.dtype}, the engine has {ours.dtype})"
    return ""


def _unlike_tensor(file: OnnxFile, ours: Slot) -> str:
    """Return how a tensor that is a constant in the other file differs."""
    tensor = file.initializers[ours.names[0]]
    shape, dtype = tuple(tensor.dims), TYPES[tensor.data_type].name
    if (shape, dtype) != (ours.shape, ours.dtype):
        return f"{ours.names[0]} (shape {shape} of {dtype}, the engine has {ours.shape} of {ours.dtype})"
    return ""


def _words(graph: CanonicalGraph, known: Known) -> tuple[str, ...]:
    """Return how two graphs of the same weights differ."""
    opsets = {name: (known.opsets.get(name), version) for name, version in graph.opsets.items()}
    told = [f"opset {name}: {one} -> {other}" for name, (one, other) in opsets.items() if one != other]
    try:
        told += [str(one) for one in graph_differences(known.graph(), StoredGraph.of(graph.document()))]
    except (LookupError, ValueError, TypeError):
        told = told or ["the graph"]
    return (f"the file is of another graph ({'; '.join(told[:4])}): compile it",)
