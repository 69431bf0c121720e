"""How two lowered graphs differ, in words: found by walking both, not by comparing digests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trtcache.keys.difference import Difference
from trtcache.keys.matching import SELECTION, compared, is_use, match
from trtcache.keys.stored_graph import in_words, short_digest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trtcache.keys.stored_graph import StoredGraph, StoredNode


def graph_differences(a: StoredGraph, b: StoredGraph) -> list[Difference]:
    """Return how ``b`` differs from ``a``: calls in the order of the graph, then outputs, weights and constants.

    What follows from another difference is left out: the shape of what a changed node makes, sizes among arguments that
    follow from changed shapes, a weight or a branch that came with what uses it. Inputs are in the key document.
    """
    return _Walk(a, b).differences()


class _Walk:
    """Both graphs, which of their nodes correspond, and the calls that were put in or taken out between those."""

    def __init__(self, a: StoredGraph, b: StoredGraph) -> None:
        self.a = a
        self.b = b
        self.matched = match(a, b)
        self.theirs = {other: one for one, other in self.matched.items()}
        self.gone: set[int] = set()
        self.new: set[int] = set()

    def differences(self) -> list[Difference]:
        calls: list[tuple[int, Difference]] = []
        leaves: list[Difference] = []
        for one, other in sorted(self.matched.items()):
            x, y = self.a.nodes[one], self.b.nodes[other]
            if x.is_leaf:
                leaves += _changed_leaf(x, y)
            else:
                calls += [(one, difference) for difference in self._changed(x, y)]
        results = [*self._results(), *self._contents()]
        for place in sorted(self.gone):
            node = self.a.nodes[place]
            calls.append((place, Difference(f"graph: node {node.name}", self.a.text(node), None)))
        for place in sorted(self.new):
            node = self.b.nodes[place]
            calls.append((place, Difference(f"graph: node {node.name}", None, self.b.text(node))))
        calls.sort(key=lambda one: one[0])
        return [*(difference for _, difference in calls), *results, *leaves] or list(self._rest())

    def _changed(self, x: StoredNode, y: StoredNode) -> Iterator[Difference]:
        if x.operator != y.operator:
            yield Difference(f"graph: node {x.name} operator", x.operator, y.operator)
            return
        found = [*self._arguments(x, y), *self._operands(x, y)]
        yield from found
        same_uses = [self.a.nodes[one].made for one in x.uses] == [self.b.nodes[one].made for one in y.uses]
        if not found and x.made != y.made and x.arguments == y.arguments and same_uses:
            yield Difference(f"graph: node {x.name} result", in_words(x.made), in_words(y.made))

    def _arguments(self, x: StoredNode, y: StoredNode) -> Iterator[Difference]:
        """Yield changed arguments but those that are nodes, and sizes that follow from changed shapes."""
        sizes_x, sizes_y = _sizes(x, self.a), _sizes(y, self.b)
        for path, before, after in compared(x.arguments, y.arguments):
            if is_use(before) and is_use(after):
                continue
            if sizes_x != sizes_y and _follow(before, sizes_x) and _follow(after, sizes_y):
                continue
            where = f"graph: node {x.name} argument {self._path(x, path)}"
            yield Difference(where, self.a.written(before, x.uses), self.b.written(after, y.uses))

    def _operands(self, x: StoredNode, y: StoredNode) -> Iterator[Difference]:
        """Yield as one difference all arguments of a node that are other nodes now."""
        pairs = [
            (self._path(x, path), x.uses[before["$use"]], y.uses[after["$use"]])
            for path, before, after in compared(x.arguments, y.arguments, nodes=True)
            if is_use(before) and is_use(after)
        ]
        yield from self._moved(f"graph: node {x.name} argument", pairs)

    def _results(self) -> Iterator[Difference]:
        ours, theirs = _returned(self.a), _returned(self.b)
        if len(ours) != len(theirs):
            yield Difference("graph: number of outputs", str(len(ours)), str(len(theirs)))
            return
        pairs = []
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            before, after = _place(one, self.a), _place(other, self.b)
            if before is not None and after is not None:
                pairs.append((str(index), before, after))
            elif one != other:
                written = self.a.written(one[2], self.a.result_uses), self.b.written(other[2], self.b.result_uses)
                yield Difference(f"graph: output {index}", *written)
        yield from self._moved("graph: output", pairs)

    def _contents(self) -> Iterator[Difference]:
        """Yield weights and inputs that a call changes in one graph only, or to something else."""
        ours, theirs = _written_back(self.a), _written_back(self.b)
        for target in [*ours, *(one for one in theirs if one not in ours)]:
            before, after = ours.get(target), theirs.get(target)
            where = f"graph: new content of {target}"
            if before is None or after is None:
                names = self.a.name(before) if before is not None else None, self.b.name(after or 0)
                yield Difference(where, names[0], None if after is None else names[1])
            else:
                yield from self._moved(where, [("", before, after)])

    def _moved(self, where: str, pairs: list[tuple[str, int, int]]) -> Iterator[Difference]:
        """Yield as one difference the operands that are not the same node in both graphs."""
        changed = [
            (name, self.a.name(one), self._named(other))
            for name, one, other in pairs
            if self.matched.get(one) != other and not self._came_between(one, other)
        ]
        if changed:
            names, before, after = (", ".join(column) for column in zip(*changed, strict=True))
            yield Difference(f"{where}{'s' if len(changed) > 1 else ''} {names}".rstrip(), before, after)

    def _came_between(self, one: int, other: int) -> bool:
        """Say whether an operand differs because calls were put in or taken out, and note those calls."""
        gone = _chain(one, self.a, self.matched)
        new = _chain(other, self.b, self.theirs)
        if not gone and not new:
            return False
        if not gone and self.matched.get(one) not in _uses(new, self.b):
            return False
        if not new and self.theirs.get(other) not in _uses(gone, self.a):
            return False
        self.gone |= {place for place in gone if self._is_told(place, self.a)}
        self.new |= {place for place in new if self._is_told(place, self.b)}
        return True

    def _is_told(self, place: int, graph: StoredGraph) -> bool:
        """Say whether a call that only one graph has is worth a line: not what comes with an input or a size."""
        node = graph.nodes[place]
        matched = self.matched if graph is self.a else self.theirs
        inputs = {one for one in _uses({place}, graph) if graph.nodes[one].operator == "input"}
        counts = node.operator.startswith(("aten.sym_", "_operator.", "math."))
        return (
            node.operator != SELECTION
            and not (counts and len(self.a.sizes) != len(self.b.sizes))
            and (inputs <= set(matched))
        )

    def _named(self, place: int) -> str:
        """Return the name that a node of the second graph has in the first, so that both sides speak of one thing."""
        return self.a.name(self.theirs[place]) if place in self.theirs else f"{self.b.name(place)} (new)"

    def _rest(self) -> Iterator[Difference]:
        """Yield what only one graph has and nothing else has told, and ranges of sizes."""
        for place, node in enumerate(self.a.nodes):
            if place not in self.matched:
                yield Difference(f"graph: {node.operator} {node.name}", in_words(node.made), None)
        for place, node in enumerate(self.b.nodes):
            if place not in self.theirs:
                yield Difference(f"graph: {node.operator} {node.name}", None, in_words(node.made))
        for number, (one, other) in enumerate(zip(self.a.sizes, self.b.sizes, strict=False)):
            if one != other:
                yield Difference(f"graph: range of size s{number}", in_words(one), in_words(other))

    def _path(self, node: StoredNode, path: tuple[int, ...]) -> str:
        index, *rest = path
        return self.a.argument_name(node, index) + "".join(f"[{one}]" for one in rest)


def _chain(place: int, graph: StoredGraph, matched: dict[int, int]) -> set[int]:
    """Return the calls from ``place`` down that the other graph has not."""
    found: set[int] = set()
    stack = [place]
    while stack:
        one = stack.pop()
        if one in matched or one in found or graph.nodes[one].is_leaf:
            continue
        found.add(one)
        stack += graph.nodes[one].uses
    return found


def _uses(places: set[int], graph: StoredGraph) -> set[int]:
    return {used for place in places for used in graph.nodes[place].uses}


def _returned(graph: StoredGraph) -> list[Any]:
    return [result for result in graph.results if result[0] not in {"weight", "input"}]


def _written_back(graph: StoredGraph) -> dict[str, int]:
    changes = [result for result in graph.results if result[0] in {"weight", "input"}]
    return {f"{kind} {target}": graph.result_uses[use["$use"]] for kind, target, use in changes}


def _place(result: list[Any], graph: StoredGraph) -> int | None:
    return graph.result_uses[result[2]["$use"]] if is_use(result[2]) else None


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


def _follow(argument: object, sizes: set[str]) -> bool:
    """Say whether an argument is a size, or a node that computes one."""
    return is_use(argument) or (type(argument) is int and str(argument) in sizes)


def _changed_leaf(x: StoredNode, y: StoredNode) -> Iterator[Difference]:
    """Yield what is different about a weight or a constant: dtype and shape, and only then strides and content."""
    if x.operator == "input":
        return
    before, after = _described(x), _described(y)
    changed = [name for name in before if before[name] != after.get(name)]
    if {"shape", "dtype"} & set(changed):
        changed = [name for name in changed if name not in {"stride", "content"}]
    for name in changed:
        where, one, other = f"graph: {x.operator} {x.name} {name}", before[name], after.get(name)
        if isinstance(one, list) and isinstance(other, list) and len(one) == len(other) and name == "shape":
            pairs = enumerate(zip(one, other, strict=True))
            yield from (
                Difference(f"{where}[{index}]", in_words(was), in_words(now))
                for index, (was, now) in pairs
                if was != now
            )
        else:
            yield Difference(where, in_words(one), in_words(other))


def _described(node: StoredNode) -> dict[str, Any]:
    if isinstance(node.made, dict):
        recipe = node.arguments[0]
        made = {name: value for name, value in node.made.items() if name != "mutated"}
        return {**made, "recipe": None if isinstance(recipe, dict) and set(recipe) == {"slot"} else recipe}
    dtype, shape, device = node.made
    content = short_digest(str(node.arguments[0]))
    return {"dtype": str(dtype).removeprefix("torch."), "shape": shape, "device": device, "content": content}
