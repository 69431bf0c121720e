"""Differences of two programs or keys, and of two lowered graphs by walking both instead of comparing digests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trtcache.config.frozen import frozen_dataclass
from trtcache.keys.stored_graph import SELECTION, compare_arguments, format_value, is_use, match, short_digest

if TYPE_CHECKING:
    from trtcache.keys.stored_graph import StoredGraph, StoredNode


_MOST_SHOWN = 160
_INDEX = re.compile(r"(\[[^\]]*\])+$")


@frozen_dataclass
class KeyDifference:
    """One difference: ``inputs[0].shape[2]: 224 -> 256``.

    Attributes:
        where: a path in the key document, or a node of the graph and what differs about it.
        before: the first value; None if there is none.
        after: the second value; None if there is none.
        alike: the number of further places with the same change.
    """

    where: str
    before: str | None
    after: str | None
    alike: int = 0

    @property
    def field(self) -> str:
        """The last word of ``where``, without indices: the kind of value that changed."""
        return re.split(r"[ .]", _INDEX.sub("", self.where))[-1]

    def __str__(self) -> str:
        before, after = (
            text if len(text := value or "nothing") <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
            for value in (self.before, self.after)
        )
        more = f" (and {self.alike} alike)" if self.alike else ""
        if self.before is None:
            return f"{self.where} added: {after}{more}"
        if self.after is None:
            return f"{self.where} removed: {before}{more}"
        return f"{self.where}: {before} -> {after}{more}"

    def as_json(self) -> dict[str, str | int | None]:
        """Return the fields, and the sentence as ``text``."""
        return {
            "where": self.where,
            "before": self.before,
            "after": self.after,
            "alike": self.alike,
            "text": str(self),
        }


def merge_repeated(differences: Iterable[KeyDifference]) -> list[KeyDifference]:
    """Merge equal changes in several places into one difference, in order."""
    first: dict[object, KeyDifference] = {}
    for difference in differences:
        only_one_has_it = difference.before is None or difference.after is None
        key = (difference.where if only_one_has_it else difference.field, difference.before, difference.after)
        earlier = first.get(key)
        first[key] = difference if earlier is None else replace(earlier, alike=earlier.alike + 1)
    return list(first.values())


def summary(differences: list[KeyDifference]) -> str:
    """Return the first difference and the number of others, as one line."""
    if not differences:
        return "nothing that can be named"
    more = len(differences) - 1
    return f"{differences[0]}" + (f" (and {more} more)" if more else "")


def graph_differences(a: StoredGraph, b: StoredGraph) -> list[KeyDifference]:
    """Return how ``b`` differs from ``a``: calls in graph order, then outputs, weights and constants.

    Consequences of another difference are left out: the shape of a changed node's result, sizes among arguments that
    follow from changed shapes, a weight or a branch that came with its user. Inputs are in the key document.
    """
    return _GraphComparison(a, b).differences()


_WRITTEN = frozenset({"weight", "input"})
"""Kinds of results that are the new value of a mutated weight or input."""


class _GraphComparison:
    """Two graphs, the matching of their nodes, and the calls inserted or removed between matched nodes."""

    def __init__(self, a: StoredGraph, b: StoredGraph) -> None:
        self.a = a
        self.b = b
        self.matched = match(a, b)
        self.theirs = {other: one for one, other in self.matched.items()}
        self.gone: set[int] = set()
        self.new: set[int] = set()

    def differences(self) -> list[KeyDifference]:
        calls: list[tuple[int, KeyDifference]] = []
        leaves: list[KeyDifference] = []
        for one, other in sorted(self.matched.items()):
            x, y = self.a.nodes[one], self.b.nodes[other]
            if x.is_leaf:
                leaves += _compare_leaves(x, y)
            else:
                calls += [(one, difference) for difference in self._compare_calls(x, y)]
        results = [*self._compare_results(), *self._compare_contents()]
        for place in sorted(self.gone):
            node = self.a.nodes[place]
            calls.append((place, KeyDifference(f"graph: node {node.name}", self.a.text(node), None)))
        for place in sorted(self.new):
            node = self.b.nodes[place]
            calls.append((place, KeyDifference(f"graph: node {node.name}", None, self.b.text(node))))
        calls.sort(key=lambda one: one[0])
        if found := [*(difference for _, difference in calls), *results, *leaves]:
            return found
        # Left are nodes of only one graph that nothing else reported, and ranges of sizes.
        for graph, matched in ((self.a, self.matched), (self.b, self.theirs)):
            for node in (node for place, node in enumerate(graph.nodes) if place not in matched):
                text, where = format_value(node.value), f"graph: {node.operator} {node.name}"
                found.append(KeyDifference(where, text, None) if graph is self.a else KeyDifference(where, None, text))
        for number, (before, after) in enumerate(zip(self.a.sizes, self.b.sizes, strict=False)):
            if before != after:
                where = f"graph: range of size s{number}"
                found.append(KeyDifference(where, format_value(before), format_value(after)))
        return found

    def _compare_calls(self, x: StoredNode, y: StoredNode) -> list[KeyDifference]:
        """Return the differences of two matched calls: changed arguments, then all replaced operands as one.

        Leave out an argument that is the size of an operand or of the result, if those sizes have changed.
        """
        if x.operator != y.operator:
            return [KeyDifference(f"graph: node {x.name} operator", x.operator, y.operator)]
        found: list[KeyDifference] = []
        operands: list[tuple[str, int, int]] = []
        sizes_x, sizes_y = _sizes(x, self.a), _sizes(y, self.b)
        for path, before, after in compare_arguments(x.arguments, y.arguments):
            name = self.a.argument_name(x, path[0]) + "".join(f"[{index}]" for index in path[1:])
            if is_use(before) and is_use(after):
                operands.append((name, x.uses[before["$use"]], y.uses[after["$use"]]))
            elif sizes_x == sizes_y or not all(
                is_use(value) or (type(value) is int and str(value) in sizes)
                for value, sizes in ((before, sizes_x), (after, sizes_y))
            ):
                texts = self.a.format_argument(before, x.uses), self.b.format_argument(after, y.uses)
                found.append(KeyDifference(f"graph: node {x.name} argument {name}", *texts))
        found += self._compare_operands(f"graph: node {x.name} argument", operands)
        same_uses = [self.a.nodes[one].value for one in x.uses] == [self.b.nodes[one].value for one in y.uses]
        if not found and x.value != y.value and x.arguments == y.arguments and same_uses:
            found.append(KeyDifference(f"graph: node {x.name} result", format_value(x.value), format_value(y.value)))
        return found

    def _compare_results(self) -> Iterator[KeyDifference]:
        ours, theirs = ([one for one in graph.results if one[0] not in _WRITTEN] for graph in (self.a, self.b))
        if len(ours) != len(theirs):
            yield KeyDifference("graph: number of outputs", str(len(ours)), str(len(theirs)))
            return
        pairs = []
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if is_use(one[2]) and is_use(other[2]):
                pairs.append((str(index), self.a.result_uses[one[2]["$use"]], self.b.result_uses[other[2]["$use"]]))
            elif one != other:
                was = self.a.format_argument(one[2], self.a.result_uses)
                yield KeyDifference(f"graph: output {index}", was, self.b.format_argument(other[2], self.b.result_uses))
        yield from self._compare_operands("graph: output", pairs)

    def _compare_contents(self) -> Iterator[KeyDifference]:
        """Yield weights and inputs that a call writes in one graph only, or with another value."""
        ours, theirs = (
            {
                f"{kind} {target}": graph.result_uses[use["$use"]]
                for kind, target, use in graph.results
                if kind in _WRITTEN
            }
            for graph in (self.a, self.b)
        )
        for target in {**ours, **theirs}:
            before, after = ours.get(target), theirs.get(target)
            where = f"graph: new content of {target}"
            if before is not None and after is not None:
                yield from self._compare_operands(where, [("", before, after)])
            else:
                was = None if before is None else self.a.name(before)
                yield KeyDifference(where, was, None if after is None else self.b.name(after))

    def _compare_operands(self, where: str, pairs: list[tuple[str, int, int]]) -> Iterator[KeyDifference]:
        """Yield the operands that do not match each other as one difference, with the first graph's names for nodes."""
        changed = [
            (
                name,
                self.a.name(one),
                self.a.name(self.theirs[other]) if other in self.theirs else f"{self.b.name(other)} (new)",
            )
            for name, one, other in pairs
            if self.matched.get(one) != other and not self._is_insertion(one, other)
        ]
        if changed:
            names, before, after = (", ".join(column) for column in zip(*changed, strict=True))
            yield KeyDifference(f"{where}{'s' if len(changed) > 1 else ''} {names}".rstrip(), before, after)

    def _is_insertion(self, one: int, other: int) -> bool:
        """Record calls that were inserted or removed before an operand; return whether they explain its difference."""
        gone, new = _chain(one, self.a, self.matched), _chain(other, self.b, self.theirs)
        if not gone and not new:
            return False
        if not gone and all(self.matched.get(one) not in self.b.nodes[place].uses for place in new):
            return False
        if not new and all(self.theirs.get(other) not in self.a.nodes[place].uses for place in gone):
            return False
        self.gone |= {place for place in gone if self._is_reported(place, self.a)}
        self.new |= {place for place in new if self._is_reported(place, self.b)}
        return True

    def _is_reported(self, place: int, graph: StoredGraph) -> bool:
        """Return whether a call of only one graph deserves a line: not if it comes with an input or a size."""
        node = graph.nodes[place]
        matched = self.matched if graph is self.a else self.theirs
        inputs = {one for one in node.uses if graph.nodes[one].operator == "input"}
        counts = node.operator.startswith(("aten.sym_", "_operator.", "math."))
        return (
            node.operator != SELECTION
            and not (counts and len(self.a.sizes) != len(self.b.sizes))
            and (inputs <= set(matched))
        )


def _chain(place: int, graph: StoredGraph, matched: dict[int, int]) -> set[int]:
    """Return the unmatched calls that the result of ``place`` depends on, up to the first matched ones."""
    found: set[int] = set()
    stack = [place]
    while stack:
        one = stack.pop()
        if one in matched or one in found or graph.nodes[one].is_leaf:
            continue
        found.add(one)
        stack += graph.nodes[one].uses
    return found


def _sizes(node: StoredNode, graph: StoredGraph) -> set[str]:
    """Return the sizes of a node's result and operands."""
    made = [node.value, *(graph.nodes[one].value for one in node.uses)]
    return {format_value(size) for one in made for size in _shape(one)}


def _shape(made: Any) -> list[Any]:
    if isinstance(made, dict):
        return list(made.get("shape", []))
    if isinstance(made, list) and made and isinstance(made[0], list):
        return [size for one in made for size in _shape(one)]
    if isinstance(made, list) and len(made) > 1:
        return list(made[1]) if isinstance(made[1], list) else made[1:]
    return []


def _compare_leaves(x: StoredNode, y: StoredNode) -> Iterator[KeyDifference]:
    """Yield differences of a weight or constant: dtype and shape, and only if these agree strides and content."""
    if x.operator == "input":
        return
    before, after = _leaf_fields(x), _leaf_fields(y)
    changed = [name for name in before if before[name] != after.get(name)]
    if {"shape", "dtype"} & set(changed):
        changed = [name for name in changed if name not in {"stride", "content"}]
    for name in changed:
        where, one, other = f"graph: {x.operator} {x.name} {name}", before[name], after.get(name)
        if isinstance(one, list) and isinstance(other, list) and len(one) == len(other) and name == "shape":
            pairs = enumerate(zip(one, other, strict=True))
            yield from (
                KeyDifference(f"{where}[{index}]", format_value(was), format_value(now))
                for index, (was, now) in pairs
                if was != now
            )
        else:
            yield KeyDifference(where, format_value(one), format_value(other))


def _leaf_fields(node: StoredNode) -> dict[str, Any]:
    if isinstance(node.value, dict):
        recipe = node.arguments[0]
        made = {name: value for name, value in node.value.items() if name != "mutated"}
        return {**made, "recipe": None if isinstance(recipe, dict) and set(recipe) == {"slot"} else recipe}
    dtype, shape, device = node.value
    content = short_digest(str(node.arguments[0]))
    return {"dtype": str(dtype).removeprefix("torch."), "shape": shape, "device": device, "content": content}
