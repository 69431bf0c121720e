"""An ONNX model as a parser reads it: weights under the names that the weight map has, large tensors by reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trtcache.frontends.onnx.canonical import needed_nodes
from trtcache.frontends.onnx.elements import EXTERNAL, TYPES
from trtcache.frontends.onnx.file import tensors_in
from trtcache.frontends.onnx.roles import graphs_in
from trtcache.frontends.onnx.tensors import flat_of, size_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import torch

    from trtcache.frontends.onnx.file import OnnxFile
    from trtcache.weights.slots import Slot

_BY_REFERENCE_FROM_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Handover:
    """What a parser is given.

    Attributes:
        content: the serialized ``ModelProto``.
        tensors: the bytes of initializers that have none in it, by the names that they have there.
    """

    content: bytes
    tensors: Mapping[str, torch.Tensor]


def hand_over(file: OnnxFile, slots: Sequence[Slot]) -> Handover:
    """Take a file's model apart for a parser: what the file keeps as ``model`` is gone, and is read again if asked for.

    Weights are called ``w0``, ``w1``, ... by slot, whatever the file calls them: those names are in the plan, which
    files of other names take from the cache. Nodes that no output needs are left out, as they are of the key.

    Raises:
        OnnxFileError: an input or an output has the name of a weight, or a tensor cannot be read.
    """
    model, held = file.model, {}
    _drop_dead(model.graph)
    initializers = list(model.graph.initializer)
    _inline_inner(file, model, {id(one) for one in initializers})
    _rename(file, model.graph, {name: f"w{slot.index}" for slot in slots for name in slot.names})
    for tensor in initializers:
        if _goes_by_reference(tensor):
            held[tensor.name] = flat_of(file, tensor)
            _empty(tensor)
    for at, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{at}"  # errors name nodes
    content = model.SerializeToString()
    file.release()
    return Handover(content, held)


def _drop_dead(graph: Any) -> None:
    needed = set(needed_nodes(graph))
    for at in reversed(range(len(graph.node))):
        if at not in needed:
            del graph.node[at]


def _goes_by_reference(tensor: Any) -> bool:
    if tensor.data_location == EXTERNAL:
        return bool(size_bytes(tensor))
    whole = tensor.HasField("raw_data") and TYPES[tensor.data_type].bits >= 8
    return whole and size_bytes(tensor) >= _BY_REFERENCE_FROM_BYTES


def _empty(tensor: Any) -> None:
    """Leave a tensor without data, as one that the reader is given."""
    tensor.ClearField("raw_data")
    tensor.ClearField("external_data")
    tensor.data_location = EXTERNAL
    tensor.external_data.add(key="location", value="weights")


def _inline_inner(file: OnnxFile, model: Any, outer: set[int]) -> None:
    """Put external data of tensors that are no initializers of the graph into the model: there is no other way."""
    for graph in (model.graph, *model.functions):
        for tensor in tensors_in(graph):
            if id(tensor) not in outer and tensor.data_location == EXTERNAL:
                content = file.elements.bytes_of(tensor)
                tensor.ClearField("external_data")
                tensor.ClearField("data_location")
                tensor.raw_data = bytes(content or b"")


def _rename(file: OnnxFile, graph: Any, names: Mapping[str, str]) -> None:
    """Give tensors new names, and others that have one of those another."""
    taken = {name for one in _holders(graph) for name in _names(one)}
    border = {one.name for one in graph.output} | ({one.name for one in graph.input} - set(names))
    wanted = set(names.values())
    if clash := sorted(border & wanted):
        raise file.error(f"it has an input or output called {clash[0]!r}, as plans call their weights; rename it")
    moved = dict(names)
    for name in sorted((taken & wanted) - set(names)):
        free = name + "_"
        while free in taken:
            free += "_"
        taken.add(free)
        moved[name] = free
    for one in _holders(graph):
        _apply(one, moved)


def _holders(graph: Any) -> Iterator[Any]:
    """Yield all that has names of tensors in a graph and those inside it."""
    yield from (*graph.initializer, *graph.input, *graph.output, *graph.value_info)
    for node in graph.node:
        yield node
        for inner in graphs_in(node):
            yield from _holders(inner)


def _names(holder: Any) -> list[str]:
    return [*holder.input, *holder.output] if hasattr(holder, "op_type") else [holder.name]


def _apply(holder: Any, moved: Mapping[str, str]) -> None:
    if not hasattr(holder, "op_type"):
        holder.name = moved.get(holder.name, holder.name)
        return
    for names in (holder.input, holder.output):
        for place, name in enumerate(names):
            if name in moved:
                names[place] = moved[name]
