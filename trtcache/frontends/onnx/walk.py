"""Walks the nodes of one ONNX graph from what is asked of it, each after those that it uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trtcache.frontends.onnx.operators import Body, digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from trtcache.digests import Json
    from trtcache.frontends.onnx.operators import Operators

SELECTION = "_operator.getitem"
"""What a record of one of several outputs is called, as in torch's graphs."""


class Walk:
    """Records and digests of the tensors of a graph.

    A record is ``[operator, arguments, made, uses]``: in the arguments a tensor is ``{"$use": k}``, the k-th of those
    that the node uses, and ``uses`` are their places in the list.

    Attributes:
        records: in canonical order.
        operators: names of the arguments of each operator that was met.
    """

    def __init__(
        self,
        known: Operators,
        nodes: Iterable[Any],
        leaf: Callable[[str], list[Json]],
        sparse: Mapping[str, Any],
    ) -> None:
        """Walk a graph.

        Args:
            known: what the nodes are.
            nodes: the graph's.
            leaf: returns the record of what no node makes, without ``uses``; it is asked once for each name.
            sparse: sparse initializers by name.
        """
        self.records: list[Json] = []
        self.operators: dict[str, Json] = {}
        self._known = known
        self._leaf = leaf
        self._sparse = sparse
        self._nodes = list(nodes)
        self._makers = {name: (at, place) for at, one in enumerate(self._nodes) for place, name in _outputs(one)}
        random = [at for at, node in enumerate(self._nodes) if known.is_random(node)]
        self._random = {at: number for number, at in enumerate(random)}
        self._bodies: dict[int, dict[str, list[Body]]] = {}
        self._made: dict[int, tuple[bytes, int]] = {}
        self._digests: dict[str, bytes] = {}
        self._places: dict[str, int] = {}

    def place(self, name: str) -> int:
        """Return the place of a tensor's record, after ``digest``."""
        return self._places[name]

    def digest(self, wanted: str) -> bytes:
        """Return the digest of a tensor, after it and all that it is made from were recorded.

        Raises:
            OnnxFileError: the graph has a cycle, or something in it cannot be read.
        """
        waiting, entered = [wanted], set()
        while waiting:
            name = waiting[-1]
            maker = None if name in self._digests else self._makers.get(name)
            missing = [one for one in self._needs(maker[0]) if one not in self._digests] if maker else []
            if missing and maker:
                if maker[0] in entered:
                    raise self._known.error(f"its node {self._nodes[maker[0]].name!r} depends on itself")
                entered.add(maker[0])
                waiting += reversed(missing)
                continue
            waiting.pop()
            if name not in self._digests:
                self._add(name, maker)
        return self._digests[wanted]

    def _needs(self, at: int) -> list[str]:
        if at not in self._bodies:
            self._bodies[at] = {
                one.name: [self._known.body(graph) for graph in ([one.g] if one.HasField("g") else one.graphs)]
                for one in self._nodes[at].attribute
                if one.type in {5, 10}
            }
        given = [name for name in self._nodes[at].input if name]
        outer = [name for _, bodies in sorted(self._bodies[at].items()) for body in bodies for name in body.outer]
        return [*given, *outer]

    def _add(self, name: str, maker: tuple[int, int] | None) -> None:
        if maker is not None:
            self._add_output(name, *maker)
            return
        sparse = self._sparse.get(name)
        self._add_leaf(name, self._leaf(name) if sparse is None else self._known.sparse_constant(sparse))

    def _add_leaf(self, name: str, head: list[Json]) -> None:
        self._digests[name] = digest_of(head)
        self._places[name] = len(self.records)
        self.records.append([*head, []])

    def _add_output(self, name: str, at: int, place: int) -> None:
        """Record a node, and which of its outputs a tensor is where there are several."""
        constant = self._known.constant(self._nodes[at])
        if constant is not None:
            self._add_leaf(name, constant)
            return
        if at not in self._made:
            self._made[at] = self._add_node(at)
        digest, where = self._made[at]
        if [one for one in self._nodes[at].output if one] != [name] or place:
            head: list[Json] = [SELECTION, [{"$use": 0}, place], None]
            digest, where = digest_of(head, [digest]), len(self.records)
            self.records.append([*head, [self._made[at][1]]])
        self._digests[name], self._places[name] = digest, where

    def _add_node(self, at: int) -> tuple[bytes, int]:
        node = self._nodes[at]
        uses: dict[bytes, str] = {}  # by digest: what is computed twice is computed once

        def use(name: str) -> Json:
            uses.setdefault(self._digests[name], name)
            return {"$use": list(uses).index(self._digests[name])}

        head, names = self._known.record(node, use, self._bodies[at])
        self.operators[self._known.name(node)] = list(names)
        if at in self._random:
            head.append(self._random[at])
        self.records.append([*head, [self._places[name] for name in uses.values()]])
        return digest_of(head, uses), len(self.records) - 1


def _outputs(node: Any) -> list[tuple[int, str]]:
    return [(place, name) for place, name in enumerate(node.output) if name]
