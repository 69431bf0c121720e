"""The canonical form of an ONNX graph: records in the format of ``trtcache.keys.graph_digest``, and one digest.

A node's digest covers its operator, its attributes with the defaults of its schema, and its operands' digests in
order. Inputs enter by position, weights by slot number with dtype and shape, constants by content. The graph is
traversed from its outputs. So the digest does not depend on names of nodes, tensors and initializers, on the order of
unrelated nodes, on dead nodes and unused initializers, or on documentation and metadata.

A graph inside a node (a branch, a loop's body) enters by a digest of its own, in which tensors from outside are
numbered by first use; the node has them as operands. A local function enters the nodes that call it by a digest as
well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trtcache.digests import Digest
from trtcache.frontends.onnx.operators import GraphWalk, Operators, digest_of
from trtcache.frontends.onnx.roles import weights_among
from trtcache.frontends.onnx.tensors import TYPES
from trtcache.frontends.onnx.validation import domain_of, graphs_in
from trtcache.weights.slots import Slot, contiguous

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trtcache.digests import Json
    from trtcache.frontends.onnx.file import OnnxFile
    from trtcache.frontends.onnx.interface import Port

FORMAT = 1
"""Version of the canonical form. Changing it changes the key of every ONNX file."""


@dataclass(frozen=True, slots=True)
class CanonicalGraph:
    """A graph in canonical form.

    Attributes:
        digest: the digest of its outputs.
        records: a record for each tensor, in canonical order; the last is the output.
        slots: its weights, with the file's names for them, in the order of first use.
        operators: the names of the arguments of each operator.
        opsets: the versions of the domains whose operators it uses.
        foreign: the operators that neither ONNX nor the file defines.
    """

    digest: Digest
    records: Sequence[Json]
    slots: tuple[Slot, ...]
    operators: Mapping[str, Json]
    opsets: Mapping[str, int]
    foreign: tuple[str, ...]

    def document(self) -> dict[str, Json]:
        """Return the member ``graph.json`` of an artifact."""
        return {"format": 1, "operators": dict(self.operators), "sizes": [], "nodes": list(self.records)}


def canonical_graph(file: OnnxFile, inputs: Sequence[Port]) -> CanonicalGraph:
    """Return the canonical form of a file's graph."""
    graph = file.model.graph
    functions = {(domain_of(one.domain), one.name, getattr(one, "overload", "")): one for one in file.model.functions}
    known = Operators(str(file.path), file.elements, file.model.opset_import, functions)
    results = [value.name for value in graph.output]
    needed = [graph.node[at] for at in needed_nodes(graph)]
    weights = weights_among(file.initializers, needed, results, opaque=known.opaque, calls=known.function_of)
    leaves = _Leaves(file, inputs, weights)
    walk = GraphWalk(known, graph.node, leaves.record, {one.values.name: one for one in graph.sparse_initializer})
    digests = [walk.digest(name) for name in results]
    whole = digest_of(["output", len(results)], digests)
    uses: dict[int, int] = {}
    returned: list[Json] = [
        ["result", None, {"$use": uses.setdefault(walk.place(name), len(uses))}] for name in results
    ]
    return CanonicalGraph(
        digest=Digest(whole.hex(), sum(map(len, digests))),
        records=[*walk.records, ["output", returned, list(uses)]],
        slots=tuple(leaves.slots),
        operators=walk.operators,
        opsets={domain or "ai.onnx": version for domain, version in sorted(known.used.items())},
        foreign=tuple(sorted(known.foreign)),
    )


class _Leaves:
    """Inputs, weights and constants of a model as records; weights are numbered in the order of their records."""

    def __init__(self, file: OnnxFile, inputs: Sequence[Port], weights: frozenset[str]) -> None:
        self.slots: list[Slot] = []
        self._file = file
        self._inputs = {port.name: (place, port) for place, port in enumerate(inputs)}
        self._weights = weights

    def record(self, name: str) -> list[Json]:
        tensor = self._file.initializers.get(name)
        if tensor is None:
            return self._input(name)
        if name in self._weights:
            return self._weight(name, tensor)
        digest, dtype, shape = self._file.elements.document(tensor)
        return ["constant", [digest], [dtype, shape, "cpu"]]

    def _input(self, name: str) -> list[Json]:
        if name not in self._inputs:
            raise self._file.error(f"its graph uses {name!r}, which nothing produces")
        place, port = self._inputs[name]
        return ["input", [place], [port.dtype, list(port.declared), "cuda"], None]

    def _weight(self, name: str, tensor: Any) -> list[Json]:
        shape = tuple(tensor.dims)
        slot = Slot(len(self.slots), TYPES[tensor.data_type].name, shape, contiguous(shape), "cpu", (name,))
        self.slots.append(slot)
        return ["weight", [{"slot": slot.index}], slot.document()]


def needed_nodes(graph: Any) -> list[int]:
    """Return the indices of the nodes that a graph's outputs need, in the file's order."""
    producers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    needed: set[int] = set()
    pending = [producers[value.name] for value in graph.output if value.name in producers]
    while pending:
        index = pending.pop()
        if index not in needed:
            needed.add(index)
            pending += [producers[name] for name in _used_names(graph.node[index]) if name in producers]
    return sorted(needed)


def _used_names(node: Any) -> list[str]:
    """Return the names of the tensors that a node and the graphs inside it use."""
    inside = graphs_in(node)
    names = [name for graph in inside for inner in graph.node for name in _used_names(inner)]
    return [*node.input, *names, *(value.name for graph in inside for value in graph.output)]
