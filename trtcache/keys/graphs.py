"""How two lowered graphs differ, in words: found by walking both, not by comparing digests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trtcache.keys.difference import Difference
from trtcache.keys.matching import Matched, match
from trtcache.keys.stored import in_words, short_digest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trtcache.keys.stored import StoredGraph, StoredNode

_SIZE_OPERATORS = ("aten.sym_", "_operator.", "math.")


def graph_differences(a: StoredGraph, b: StoredGraph) -> list[Difference]:
    """Return how ``b`` differs from ``a``, in the order of the graph, outputs last.

    What follows from another difference is left out: the shape of what a changed node makes, sizes among arguments that
    follow from changed shapes, a weight that came with a new node. Inputs are a part of the key document of their own.
    """
    return _Walk(a, b, match(a, b)).differences()


@dataclass(frozen=True, slots=True)
class _Walk:
    a: StoredGraph
    b: StoredGraph
    matched: Matched

    def differences(self) -> list[Difference]:
        found: list[tuple[tuple[bool, int], Difference]] = []
        for place, node in enumerate(self.a.nodes):
            if place in self.matched:
                found += [
                    ((node.is_leaf, place), one) for one in self._changed(node, self.b.nodes[self.matched[place]])
                ]
            elif not self._follows(node, self.a):
                found.append(((False, place), Difference(f"graph: node {node.name}", self.a.text(node), None)))
        theirs = set(self.matched.values())
        for place, node in enumerate(self.b.nodes):
            if place not in theirs and not self._follows(node, self.b):
                found.append(((False, place), Difference(f"graph: node {node.name}", None, self.b.text(node))))
        found.sort(key=lambda one: one[0])  # weights after the calls that want them so
        differences = [one for _, one in found] + list(self._results())
        return differences or list(self._leaves_alone())

    def _follows(self, node: StoredNode, graph: StoredGraph) -> bool:
        """Say whether a node that only one graph has comes with something else."""
        if node.is_leaf:
            return True
        return node.operator.startswith(_SIZE_OPERATORS) and self._symbols(graph) != self._symbols(
            self.a if graph is self.b else self.b
        )

    @staticmethod
    def _symbols(graph: StoredGraph) -> int:
        return len(graph.sizes)

    def _changed(self, x: StoredNode, y: StoredNode) -> Iterator[Difference]:
        if x.operator == "weight" or x.operator == "constant":
            yield from _changed_leaf(x, y)
        elif x.operator == "input":
            return
        elif x.operator != y.operator:
            yield Difference(f"graph: node {x.name} operator", x.operator, y.operator)
        else:
            found = [*self._arguments(x, y), *self._operands(x, y)]
            yield from found
            if not found and x.made != y.made and self._same_made(x, y) and x.arguments == y.arguments:
                yield Difference(f"graph: node {x.name} result", in_words(x.made), in_words(y.made))

    def _arguments(self, x: StoredNode, y: StoredNode) -> Iterator[Difference]:
        """Yield changed arguments but those that are nodes, and sizes that follow from changed shapes."""
        sizes_x, sizes_y = self._sizes(x, self.a), self._sizes(y, self.b)
        for path, before, after in _compared(x.arguments, y.arguments):
            if _is_use(before) and _is_use(after):
                continue
            if sizes_x != sizes_y and _size(before) in sizes_x and _size(after) in sizes_y:
                continue
            where = f"graph: node {x.name} argument {self._path(x, path)}"
            yield Difference(where, self.a.written(before, x.uses), self.b.written(after, y.uses))

    def _operands(self, x: StoredNode, y: StoredNode) -> Iterator[Difference]:
        """Yield as one difference all arguments of a node that are other nodes now."""
        changed = []
        for path, before, after in _compared(x.arguments, y.arguments, nodes=True):
            if not (_is_use(before) and _is_use(after)):
                continue
            one, other = x.uses[before["$use"]], y.uses[after["$use"]]
            if self.matched.get(one) != other and not self._came_between(one, other):
                changed.append((self._path(x, path), self.a.name(one), self._theirs(other)))
        if changed:
            names, before, after = (", ".join(column) for column in zip(*changed, strict=True))
            yield Difference(f"graph: node {x.name} argument{'s'[: len(changed) - 1]} {names}", before, after)

    def _came_between(self, one: int, other: int) -> bool:
        """Say whether an operand differs because a node was put in or taken out, which is told by itself."""
        gone, new = one >= 0 and one not in self.matched, other >= 0 and other not in set(self.matched.values())
        return (gone and not self.a.nodes[one].is_leaf) or (new and not self.b.nodes[other].is_leaf)

    def _theirs(self, place: int) -> str:
        """Return the name that a node of the second graph has in the first, so that both sides speak of one thing."""
        for one, other in self.matched.items():
            if other == place:
                return self.a.name(one)
        return f"{self.b.name(place)} (new)" if place >= 0 else self.b.name(place)

    def _results(self) -> Iterator[Difference]:
        if len(self.a.results) != len(self.b.results):
            yield Difference("graph: number of outputs", str(len(self.a.results)), str(len(self.b.results)))
            return
        changed = []
        for index, (one, other) in enumerate(zip(self.a.results, self.b.results, strict=True)):
            before, after = _result_place(one, self.a), _result_place(other, self.b)
            if one[:2] != other[:2] or (before is None) != (after is None):
                yield Difference(f"graph: output {index}", in_words(one), in_words(other))
            elif before is None or after is None:
                if one != other:
                    yield Difference(f"graph: output {index}", in_words(one[2]), in_words(other[2]))
            elif self.matched.get(before, -1) != after and not self._came_between(before, after):
                changed.append((str(index), self.a.name(before), self._theirs(after)))
        if changed:
            names, befores, afters = (", ".join(column) for column in zip(*changed, strict=True))
            yield Difference(f"graph: output{'s'[: len(changed) - 1]} {names}", befores, afters)

    def _leaves_alone(self) -> Iterator[Difference]:
        """Yield weights and constants that only one graph has, and ranges: where nothing else is to be told."""
        theirs = set(self.matched.values())
        for place, node in enumerate(self.a.nodes):
            if place not in self.matched and node.operator != "input":
                yield Difference(f"graph: {node.operator} {node.name}", in_words(node.made), None)
        for place, node in enumerate(self.b.nodes):
            if place not in theirs and node.operator != "input":
                yield Difference(f"graph: {node.operator} {node.name}", None, in_words(node.made))
        for number, (one, other) in enumerate(zip(self.a.sizes, self.b.sizes, strict=False)):
            if one != other:
                yield Difference(f"graph: range of size s{number}", in_words(one), in_words(other))

    def _path(self, node: StoredNode, path: tuple[int | str, ...]) -> str:
        index, *rest = path
        return self.a.argument_name(node, int(index)) + "".join(f"[{one}]" for one in rest)

    def _same_made(self, x: StoredNode, y: StoredNode) -> bool:
        return [self.a.nodes[one].made for one in x.uses] == [self.b.nodes[one].made for one in y.uses]

    @staticmethod
    def _sizes(node: StoredNode, graph: StoredGraph) -> set[str]:
        """Return the sizes of what a node makes and of what it uses."""
        made = [node.made, *(graph.nodes[one].made for one in node.uses)]
        return {in_words(size) for one in made for size in _shape(one)}


def _shape(made: Any) -> list[Any]:
    if isinstance(made, dict):
        return list(made.get("shape", []))
    if isinstance(made, list) and made and isinstance(made[0], list):
        return [size for one in made for size in _shape(one)]
    if isinstance(made, list) and len(made) > 1:
        return list(made[1]) if isinstance(made[1], list) else made[1:]
    return []


def _size(argument: Any) -> str | None:
    return None if isinstance(argument, (bool, str)) or argument is None else in_words(argument)


def _is_use(argument: Any) -> bool:
    return isinstance(argument, dict) and "$use" in argument


def _compared(x: Any, y: Any, path: tuple[int | str, ...] = (), *, nodes: bool = False) -> Iterator[Any]:
    """Yield ``(path, before, after)`` for the innermost arguments that differ; with ``nodes``, for every node too."""
    if isinstance(x, list) and isinstance(y, list) and len(x) == len(y):
        for index, (one, other) in enumerate(zip(x, y, strict=True)):
            yield from _compared(one, other, (*path, index), nodes=nodes)
    elif type(x) is not type(y) or x != y or (nodes and _is_use(x)):
        yield path, x, y


def _result_place(result: list[Any], graph: StoredGraph) -> int | None:
    argument = result[2]
    return graph.result_uses[argument["$use"]] if _is_use(argument) else None


def _changed_leaf(x: StoredNode, y: StoredNode) -> Iterator[Difference]:
    """Yield what is different about a weight or a constant: its dtype, its shape, and only then its content."""
    where = f"graph: {x.operator} {x.name}"
    before, after = _described(x), _described(y)
    changed = [name for name in before if before[name] != after.get(name)]
    if "shape" in changed:
        changed = [name for name in changed if name not in {"stride", "content"}]
    for name in changed:
        one, other = before[name], after.get(name)
        if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            for index, pair in enumerate(zip(one, other, strict=True)):
                if pair[0] != pair[1]:
                    yield Difference(f"{where} {name}[{index}]", in_words(pair[0]), in_words(pair[1]))
        else:
            yield Difference(f"{where} {name}", in_words(one), in_words(other))


def _described(node: StoredNode) -> dict[str, Any]:
    if isinstance(node.made, dict):
        return {**node.made, "recipe": node.arguments[0] if _is_recipe(node.arguments[0]) else None}
    dtype, shape, device = node.made
    return {"dtype": dtype, "shape": shape, "device": device, "content": short_digest(str(node.arguments[0]))}


def _is_recipe(argument: Any) -> bool:
    return isinstance(argument, dict) and set(argument) != {"slot"}
