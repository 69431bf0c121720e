"""Which nodes of two lowered graphs are the same: found by structure first, then by order."""

from __future__ import annotations

import json
from collections import defaultdict
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trtcache.keys.stored_graph import StoredGraph, StoredNode

Matched: TypeAlias = dict[int, int]
"""Place in the first graph -> place in the second."""

SELECTION = "_operator.getitem"
"""Takes one of several results; it comes and goes with the operator that makes them."""


def match(a: StoredGraph, b: StoredGraph) -> Matched:
    """Return which nodes correspond.

    Inputs correspond by their leaf of the call, and calls that compute the same from those, wherever they stand and
    whichever weights they use. The rest, what lies behind a difference, is aligned in canonical order. Weights, and
    what is computed from weights and constants alone, correspond where they are used in the same place.
    """
    matched = _inputs(a, b)
    matched |= _equal_calls(a, b)
    taken = set(matched.values())
    rest_a = [place for place in _anchored(a) if place not in matched]
    rest_b = [place for place in _anchored(b) if place not in taken]
    matched |= _aligned(rest_a, rest_b, a, b)
    _descend(a, b, matched)
    return matched


def _inputs(a: StoredGraph, b: StoredGraph) -> Matched:
    theirs = {node.name: place for place, node in enumerate(b.nodes) if node.operator == "input"}
    return {
        place: theirs[node.name]
        for place, node in enumerate(a.nodes)
        if node.operator == "input" and node.name in theirs
    }


def _anchored(graph: StoredGraph) -> list[int]:
    """Return the calls that depend on an input: what does not is known only by where it is used."""
    reached: set[int] = set()
    for place, node in enumerate(graph.nodes):
        if node.operator == "input" or not reached.isdisjoint(node.uses):
            reached.add(place)
    return [place for place in sorted(reached) if not graph.nodes[place].is_leaf]


def _equal_calls(a: StoredGraph, b: StoredGraph) -> Matched:
    """Match calls with the same operator, arguments and operands, all the way to the inputs."""
    numbers: dict[object, int] = {}
    ours, theirs = _numbered(a, numbers), _numbered(b, numbers)
    places: dict[int, list[int]] = defaultdict(list)
    for place in reversed(_anchored(b)):
        places[theirs[place]].append(place)
    return {place: places[ours[place]].pop() for place in _anchored(a) if places[ours[place]]}


def _numbered(graph: StoredGraph, numbers: dict[object, int]) -> list[int]:
    """Number the nodes so that equal subgraphs have equal numbers; ``numbers`` is shared by the graphs compared."""
    found: list[int] = []
    for node in graph.nodes:
        key = (_token(node), tuple(found[used] for used in node.uses))
        found.append(numbers.setdefault(key, len(numbers)))
    return found


def _token(node: StoredNode) -> str:
    """Return what a node is without its operands; of a weight, and of an input, without what it is called."""
    if node.operator == "weight":
        return json.dumps([node.operator, node.made["dtype"], node.made["shape"]])
    return json.dumps([node.operator, node.arguments])


def _aligned(ours: list[int], theirs: list[int], a: StoredGraph, b: StoredGraph) -> Matched:
    """Align calls by operator and arguments; what is between, by operator; what is left there, if as many, in order."""
    tokens = {place: _token(a.nodes[place]) for place in ours}, {place: _token(b.nodes[place]) for place in theirs}
    matched, gaps = _aligned_by(ours, theirs, *tokens)
    for left, right in gaps:
        names = {one: a.nodes[one].operator for one in left}, {one: b.nodes[one].operator for one in right}
        inside, rests = _aligned_by(left, right, *names)
        matched |= inside
        for rest in rests:
            x = [one for one in rest[0] if a.nodes[one].operator != SELECTION]
            y = [one for one in rest[1] if b.nodes[one].operator != SELECTION]
            matched |= dict(zip(x, y, strict=True)) if len(x) == len(y) else {}
    return matched


def _aligned_by(
    ours: Sequence[int], theirs: Sequence[int], ours_as: Mapping[int, str], theirs_as: Mapping[int, str]
) -> tuple[Matched, list[tuple[Sequence[int], Sequence[int]]]]:
    """Return the longest common subsequences as pairs, and what lies between them."""
    matched: Matched = {}
    gaps: list[tuple[Sequence[int], Sequence[int]]] = []
    matcher = SequenceMatcher(None, [ours_as[one] for one in ours], [theirs_as[one] for one in theirs])
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            matched |= dict(zip(ours[i1:i2], theirs[j1:j2], strict=True))
        else:
            gaps.append((ours[i1:i2], theirs[j1:j2]))
    return matched, gaps


def _descend(a: StoredGraph, b: StoredGraph, matched: Matched) -> None:
    """Match what matched calls and results use in the same place: weights, constants, and what is made of them."""
    taken = set(matched.values())
    stack = list(reversed(matched.items()))
    stack += [pair for pair in _results(a, b) if pair[0] not in matched]
    while stack:
        one, other = stack.pop()
        if one not in matched and other not in taken and _kind(a.nodes[one]) == _kind(b.nodes[other]):
            matched[one] = other
            taken.add(other)
        if matched.get(one) == other and a.nodes[one].operator == b.nodes[other].operator:
            stack += [pair for pair in operand_pairs(a.nodes[one], b.nodes[other]) if pair[0] not in matched]


def _results(a: StoredGraph, b: StoredGraph) -> Iterator[tuple[int, int]]:
    if len(a.result_uses) == len(b.result_uses):
        yield from zip(a.result_uses, b.result_uses, strict=True)


def _kind(node: StoredNode) -> str:
    return node.operator if node.is_leaf else "call"


def operand_pairs(x: StoredNode, y: StoredNode) -> Iterator[tuple[int, int]]:
    """Yield the operands of two calls that stand in the same place of their arguments."""
    for _, before, after in compared(x.arguments, y.arguments, nodes=True):
        if is_use(before) and is_use(after):
            yield x.uses[before["$use"]], y.uses[after["$use"]]


def is_use(argument: object) -> bool:
    """Say whether an argument is a node."""
    return isinstance(argument, dict) and "$use" in argument


def compared(
    x: Any, y: Any, path: tuple[int, ...] = (), *, nodes: bool = False
) -> Iterator[tuple[tuple[int, ...], Any, Any]]:
    """Yield ``(path, before, after)`` for the innermost arguments that differ; with ``nodes``, for every node too."""
    if isinstance(x, list) and isinstance(y, list) and len(x) == len(y):
        for index, (one, other) in enumerate(zip(x, y, strict=True)):
            yield from compared(one, other, (*path, index), nodes=nodes)
    elif type(x) is not type(y) or x != y or (nodes and is_use(x)):
        yield path, x, y
