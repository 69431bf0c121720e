"""Matching of the nodes of two lowered graphs: by structure first, then by order."""

from __future__ import annotations

import json
from collections import defaultdict
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trtcache.keys.stored_graph import StoredGraph, StoredNode

Matched: TypeAlias = dict[int, int]
"""Index in the first graph -> index in the second."""

SELECTION = "_operator.getitem"
"""Selects one of several results; it comes and goes with the operator that it selects from."""


def match(a: StoredGraph, b: StoredGraph) -> Matched:
    """Return which nodes correspond.

    Inputs correspond by their leaf of the call, and calls that compute the same from them, whatever their position and
    weights. The rest, downstream of a difference, is aligned in canonical order. Weights, and what is computed from
    weights and constants alone, correspond if they are used in the same place.
    """
    matched = _inputs(a, b)
    matched |= _equal_calls(a, b)
    taken = set(matched.values())
    rest_a = [place for place in _calls_from_inputs(a) if place not in matched]
    rest_b = [place for place in _calls_from_inputs(b) if place not in taken]
    matched |= _align(rest_a, rest_b, a, b)
    _descend(a, b, matched)
    return matched


def _inputs(a: StoredGraph, b: StoredGraph) -> Matched:
    theirs = {node.name: place for place, node in enumerate(b.nodes) if node.operator == "input"}
    return {
        place: theirs[node.name]
        for place, node in enumerate(a.nodes)
        if node.operator == "input" and node.name in theirs
    }


def _calls_from_inputs(graph: StoredGraph) -> list[int]:
    """Return the calls that depend on an input; others are identified only by their users."""
    reached: set[int] = set()
    for place, node in enumerate(graph.nodes):
        if node.operator == "input" or not reached.isdisjoint(node.uses):
            reached.add(place)
    return [place for place in sorted(reached) if not graph.nodes[place].is_leaf]


def _equal_calls(a: StoredGraph, b: StoredGraph) -> Matched:
    """Match calls with equal operators, arguments and operands, all the way to the inputs."""
    numbers: dict[object, int] = {}
    ours, theirs = _number_subgraphs(a, numbers), _number_subgraphs(b, numbers)
    places: dict[int, list[int]] = defaultdict(list)
    for place in reversed(_calls_from_inputs(b)):
        places[theirs[place]].append(place)
    return {place: places[ours[place]].pop() for place in _calls_from_inputs(a) if places[ours[place]]}


def _number_subgraphs(graph: StoredGraph, numbers: dict[object, int]) -> list[int]:
    """Number the nodes so that equal subgraphs get equal numbers; the graphs compared share ``numbers``."""
    found: list[int] = []
    for node in graph.nodes:
        key = (_token(node), tuple(found[used] for used in node.uses))
        found.append(numbers.setdefault(key, len(numbers)))
    return found


def _token(node: StoredNode) -> str:
    """Return a node's identity without its operands, and without the names of weights and inputs."""
    if node.operator == "weight":
        return json.dumps([node.operator, node.value["dtype"], node.value["shape"]])
    return json.dumps([node.operator, node.arguments])


def _align(ours: list[int], theirs: list[int], a: StoredGraph, b: StoredGraph) -> Matched:
    """Align calls by operator and arguments; the gaps by operator; then equally many remaining calls in order."""
    tokens = {place: _token(a.nodes[place]) for place in ours}, {place: _token(b.nodes[place]) for place in theirs}
    matched, gaps = _align_by(ours, theirs, *tokens)
    for left, right in gaps:
        names = {one: a.nodes[one].operator for one in left}, {one: b.nodes[one].operator for one in right}
        inside, rests = _align_by(left, right, *names)
        matched |= inside
        for rest in rests:
            x = [one for one in rest[0] if a.nodes[one].operator != SELECTION]
            y = [one for one in rest[1] if b.nodes[one].operator != SELECTION]
            matched |= dict(zip(x, y, strict=True)) if len(x) == len(y) else {}
    return matched


def _align_by(
    ours: Sequence[int], theirs: Sequence[int], ours_as: Mapping[int, str], theirs_as: Mapping[int, str]
) -> tuple[Matched, list[tuple[Sequence[int], Sequence[int]]]]:
    """Return the longest common subsequences as pairs, and the gaps between them."""
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
    """Match weights, constants and what is computed from them that matched calls and results use in the same place."""
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
    """Yield the operands in equal places of two calls' arguments."""
    for _, before, after in compare_arguments(x.arguments, y.arguments, nodes=True):
        if is_use(before) and is_use(after):
            yield x.uses[before["$use"]], y.uses[after["$use"]]


def is_use(argument: object) -> bool:
    """Return whether an argument is an operand."""
    return isinstance(argument, dict) and "$use" in argument


def compare_arguments(
    x: Any, y: Any, path: tuple[int, ...] = (), *, nodes: bool = False
) -> Iterator[tuple[tuple[int, ...], Any, Any]]:
    """Yield ``(path, before, after)`` for the innermost differing arguments; with ``nodes``, for operands too."""
    if isinstance(x, list) and isinstance(y, list) and len(x) == len(y):
        for index, (one, other) in enumerate(zip(x, y, strict=True)):
            yield from compare_arguments(one, other, (*path, index), nodes=nodes)
    elif type(x) is not type(y) or x != y or (nodes and is_use(x)):
        yield path, x, y
