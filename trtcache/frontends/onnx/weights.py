"""Weights of ONNX files: models for TensorRT's parser with weights by reference, and refits from other files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtcache.backends.onnx_operators import OnnxModel
from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import RefitError
from trtcache.frontends.onnx.canonical import CanonicalGraph, canonical_graph, needed_nodes
from trtcache.frontends.onnx.file import EXTERNAL, TYPES, OnnxFile, is_onnx, size_bytes, tensors_in
from trtcache.frontends.onnx.interface import read_ports
from trtcache.frontends.onnx.schemas import graphs_in
from trtcache.keys.graph_diff import graph_differences
from trtcache.keys.stored_graph import StoredGraph

if TYPE_CHECKING:
    import torch

    from trtcache.weights.slots import Slot


_BY_REFERENCE_FROM_BYTES = 1024


def make_parser_model(file: OnnxFile, slots: Sequence[Slot]) -> OnnxModel:
    """Return a file's model for TensorRT's parser. This changes the parsed model, which the file then drops.

    Weights are renamed to ``w0``, ``w1``, ... by slot: the names are in the plan, which files with other names share.
    What the key ignores is left out, such as nodes that no output needs, and sizes that are declared inside the graph.

    Raises:
        OnnxFileError: external data cannot be read, or an input or output has the name of a weight.
    """
    model, held = file.model, {}
    _remove_unkeyed(model)
    # Embed the external data of all other tensors, which cannot be passed by reference.
    initializers = list(model.graph.initializer)
    outer = {id(one) for one in initializers}
    for tensor in tensors_in(model):
        if tensor.data_location == EXTERNAL:
            content = file.bytes_of(tensor) or b""
            if id(tensor) not in outer or not len(content):
                tensor.ClearField("external_data")
                tensor.ClearField("data_location")
                tensor.raw_data = bytes(content)
    _rename(file, model.graph, {name: f"w{slot.index}" for slot in slots for name in slot.names})
    # Pass large initializers and those with external data by reference.
    passed = set()
    for tensor in initializers:
        least = 1 if tensor.data_location == EXTERNAL else _BY_REFERENCE_FROM_BYTES
        plain = tensor.data_location == EXTERNAL or (tensor.HasField("raw_data") and TYPES[tensor.data_type].bits >= 8)
        if plain and size_bytes(tensor) >= least:
            held[tensor.name] = file.flat(tensor)
            passed.add(id(tensor))
            tensor.ClearField("raw_data")
            tensor.ClearField("external_data")
            tensor.data_location = EXTERNAL
            tensor.external_data.add(key="location", value="weights")
    for tensor in tensors_in(model):
        if tensor.data_location == EXTERNAL and id(tensor) not in passed:
            raise file.error(f"tensor {tensor.name!r} has external data that cannot be passed to the builder")
    for at, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{at}"  # errors name nodes
    inputs, outputs = (tuple(port.name for port in ports) for ports in (model.graph.input, model.graph.output))
    content = model.SerializeToString()
    file.release()
    return OnnxModel(content=content, weights=held, inputs=inputs, outputs=outputs, places={})


_PASSED: Mapping[str, frozenset[str]] = {
    "GraphProto": frozenset({"name", "input", "output", "initializer", "sparse_initializer", "node"}),
    "ModelProto": frozenset({"ir_version", "opset_import", "graph"}),
    "NodeProto": frozenset({"name", "op_type", "domain", "overload", "input", "output", "attribute"}),
    "ValueInfoProto": frozenset({"name", "type"}),
}
"""Message of ONNX -> the fields of it that a builder gets."""


def _remove_unkeyed(model: Any) -> None:
    """Remove from a model what is not in its key: a builder may believe sizes in ``value_info``, also wrong ones."""
    model.DiscardUnknownFields()
    graph = model.graph
    needed = set(needed_nodes(graph))
    for at in reversed(range(len(graph.node))):
        if at not in needed:
            del graph.node[at]
    held = {one.name for one in graph.initializer} | {one.values.name for one in graph.sparse_initializer}
    for at in reversed(range(len(graph.input))):
        if graph.input[at].name in held:  # the size that it declares is not in the key
            del graph.input[at]
    _remove_fields(model, inside=False)


def _remove_fields(message: Any, *, inside: bool) -> None:
    """Remove the fields of a message that are not passed, and sizes of inputs and outputs if it is in an attribute.

    Of these the key has the numbers of dimensions only, and of the model's own inputs and outputs all sizes.
    """
    passed = _PASSED.get(message.DESCRIPTOR.name)
    for field, value in message.ListFields():
        name, kind = field.name, field.message_type.name if field.message_type else ""
        if (passed and name not in passed) or (inside and message.DESCRIPTOR.name == "Dimension"):
            message.ClearField(name)
        elif kind not in {"", "TensorProto"} and name not in {"tp", "type_protos"}:  # these are in the key
            for one in (value,) if hasattr(value, "DESCRIPTOR") else value:
                _remove_fields(one, inside=inside or kind == "AttributeProto")


def _rename(file: OnnxFile, graph: Any, names: Mapping[str, str]) -> None:
    """Rename tensors; a tensor that already has one of the new names gets a free one."""
    lists, values = [], []  # of all names of tensors, in the graph and those inside it
    pending = [graph]
    while pending:
        inner = pending.pop()
        values += [*inner.initializer, *(one.values for one in inner.sparse_initializer), *inner.input, *inner.output]
        for node in inner.node:
            lists += [node.input, node.output]
            pending += graphs_in(node)
    taken = {value.name for value in values}.union(*lists)
    ports = {value.name for value in graph.output} | ({value.name for value in graph.input} - set(names))
    wanted = set(names.values())
    if clash := sorted(ports & wanted):
        raise file.error(f"it has an input or output named {clash[0]!r}, a plan's name for a weight; rename it")
    moved = dict(names)
    for name in sorted((taken & wanted) - set(names)):
        free = name + "_"
        while free in taken:
            free += "_"
        taken.add(free)
        moved[name] = free
    for value in values:
        value.name = moved.get(value.name, value.name)
    for operands in lists:
        for place, name in enumerate(operands):
            operands[place] = moved.get(name, name)


@frozen_dataclass
class KnownGraph:
    """The graph that a plan was built from.

    Attributes:
        digest: the digest of its canonical form, from the key.
        opsets: the versions of its operators' domains.
        slots: its weights, with the compiled file's names for them.
        graph: returns the graph that its entry stores.
    """

    digest: str
    opsets: Mapping[str, int]
    slots: Sequence[Slot]
    graph: Callable[[], StoredGraph]


class OnnxWeights:
    """Reader of weights for refits: those that a plan has now, and those of other files of the same graph."""

    def __init__(self, file: OnnxFile, known: KnownGraph) -> None:
        """Create a reader for a file that was compiled, and its graph."""
        self._file, self._known = file, known

    def current(self) -> dict[str, torch.Tensor]:
        """Return the plan's weights by its names for them; this parses the file."""
        initializers = self._file.initializers
        return {f"w{slot.index}": self._file.tensor(initializers[slot.names[0]]) for slot in self._known.slots}

    def accepts(self, weights: object) -> bool:
        """Return whether weights are the path of an ONNX file."""
        return is_onnx(weights)

    def read(self, path: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
        """Return the weights of another file, matched by position in the graph, by the names of the compiled file.

        Raises:
            RefitError: its graph differs; the message names the differences.
        """
        file, known = OnnxFile(Path(path)), self._known
        graph = canonical_graph(file, read_ports(file)[0])
        if str(graph.digest) != known.digest or dict(graph.opsets) != dict(known.opsets):
            raise _difference(file, graph, known)
        pairs = zip(known.slots, graph.slots, strict=True)
        return {ours.names[0]: file.tensor(file.initializers[theirs.names[0]]) for ours, theirs in pairs}


def _difference(file: OnnxFile, graph: CanonicalGraph, known: KnownGraph) -> RefitError:
    """Return the differences: of weights by name if the files have the same names, else by position; else the graph."""
    ours = {slot.names[0]: slot for slot in known.slots}
    theirs = {slot.names[0]: slot for slot in graph.slots}
    missing = tuple(name for name in ours if name not in file.initializers)
    extra = tuple(name for name in theirs if name not in ours)
    mismatched: list[str] = []
    if missing and extra and len(missing) == len(extra):
        missing, extra = (), ()  # renamed; the graph differs for another reason
        mismatched += [_unlike(one, other) for one, other in zip(known.slots, graph.slots, strict=False)]
    else:
        mismatched += [_unlike(ours[name], theirs[name]) for name in ours if name in theirs]
        for name in [one for one in ours if one not in theirs and one not in missing]:  # constants in the other file
            tensor, slot = file.initializers[name], ours[name]
            shape, dtype = tuple(tensor.dims), TYPES[tensor.data_type].name
            if (shape, dtype) != (slot.shape, slot.dtype):
                mismatched.append(f"{name} (shape {shape} of {dtype}, the engine has {slot.shape} of {slot.dtype})")
    found = tuple(one for one in mismatched if one)
    if missing or extra or found:
        return RefitError(missing, extra, found)
    # The weights are the same, and the graphs differ.
    opsets = {name: (known.opsets.get(name), version) for name, version in graph.opsets.items()}
    differences = [f"opset {name}: {old} -> {new}" for name, (old, new) in opsets.items() if old != new]
    try:
        differences += [str(item) for item in graph_differences(known.graph(), StoredGraph.of(graph.document()))]
    except (LookupError, ValueError, TypeError):
        differences = differences or ["the graph"]
    differences = differences or ["its inputs or outputs are declared otherwise"]
    return RefitError(mismatched=(f"the file has another graph ({'; '.join(differences[:4])}): compile it",))


def _unlike(ours: Slot, theirs: Slot) -> str:
    if ours.shape != theirs.shape:
        return f"{ours.names[0]} (shape {theirs.shape}, the engine has {ours.shape})"
    if ours.dtype != theirs.dtype:
        return f"{ours.names[0]} (dtype {theirs.dtype}, the engine has {ours.dtype})"
    return ""
