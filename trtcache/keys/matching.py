"""Which nodes of two lowered graphs are the same: found by structure first, then by order."""

from __future__ import annotations

import json
from collections import defaultdict
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trtcache.keys.stored import StoredGraph, StoredNode

Matched: TypeAlias = dict[int, int]
"""Place in the first graph -> place in the second."""


def match(a: StoredGraph, b: StoredGraph) -> Matched:
    """Return which nodes correspond.

    Inputs correspond by their leaf of the call, weights and constants by what they are, and calls that compute the same
    from those, wherever they stand. The rest, what lies behind a difference, is aligned in canonical order.
    """
    matched = _leaves(a, b)
    matched |= _equal_calls(a, b, matched)
    taken = set(matched.values())
    rest_a = [place for place, node in enumerate(a.nodes) if place not in matched and not node.is_leaf]
    rest_b = [place for place, node in enumerate(b.nodes) if place not in taken and not node.is_leaf]
    return matched | dict(_aligned(rest_a, rest_b, a, b))


def _leaves(a: StoredGraph, b: StoredGraph) -> Matched:
    matched: Matched = {}
    for kind in ("input", "weight", "constant"):
        ours = [place for place, node in enumerate(a.nodes) if node.operator == kind]
        theirs = [place for place, node in enumerate(b.nodes) if node.operator == kind]
        if kind == "input":
            by_leaf = {_token(b.nodes[place]): place for place in theirs}
            matched |= {place: by_leaf[t] for place in ours if (t := _token(a.nodes[place])) in by_leaf}
        elif len(ours) == len(theirs):
            matched |= dict(zip(ours, theirs, strict=True))
        else:
            matched |= dict(_in_order(ours, theirs, [_what(a.nodes[one]) for one in ours], _whats(b, theirs)))
    return matched


def _what(node: StoredNode) -> str:
    return json.dumps([node.operator, node.made, node.arguments if node.operator == "constant" else None])


def _whats(graph: StoredGraph, places: Sequence[int]) -> list[str]:
    return [_what(graph.nodes[place]) for place in places]


def _equal_calls(a: StoredGraph, b: StoredGraph, leaves: Matched) -> Matched:
    """Match calls with the same operator, arguments and operands, all the way to the inputs."""
    numbers: dict[object, int] = {}
    places: dict[int, list[int]] = defaultdict(list)
    for place, number in enumerate(_numbered(b, {theirs: ours for ours, theirs in leaves.items()}, numbers)):
        places[number].append(place)
    matched: Matched = {}
    for place, number in enumerate(_numbered(a, {ours: ours for ours in leaves}, numbers)):
        if not a.nodes[place].is_leaf and places[number]:
            matched[place] = places[number].pop(0)
    return matched


def _numbered(graph: StoredGraph, leaves: Matched, numbers: dict[object, int]) -> list[int]:
    """Number the nodes so that equal subgraphs have equal numbers; ``numbers`` is shared by the graphs compared."""
    found: list[int] = []
    for place, node in enumerate(graph.nodes):
        if node.is_leaf:
            key: object = ("leaf", leaves.get(place, (id(graph), place)))
        else:
            key = (_token(node), tuple(found[used] for used in node.uses))
        found.append(numbers.setdefault(key, len(numbers)))
    return found


def _token(node: StoredNode) -> str:
    return json.dumps([node.operator, node.arguments])


def _aligned(ours: list[int], theirs: list[int], a: StoredGraph, b: StoredGraph) -> Iterator[tuple[int, int]]:
    """Align calls by operator and arguments; what is between, by operator; what is left there, if as many, in order."""
    tokens = ([_token(a.nodes[one]) for one in ours], [_token(b.nodes[one]) for one in theirs])
    for gap in _gaps(ours, theirs, *tokens):
        if isinstance(gap, tuple):
            yield gap
            continue
        left, right = gap
        names = ([a.nodes[one].operator for one in left], [b.nodes[one].operator for one in right])
        for inner in _gaps(left, right, *names):
            if isinstance(inner, tuple):
                yield inner
            elif len(inner[0]) == len(inner[1]):
                yield from zip(*inner, strict=True)


def _gaps(
    ours: Sequence[int], theirs: Sequence[int], ours_as: Sequence[str], theirs_as: Sequence[str]
) -> Iterator[tuple[int, int] | list[list[int]]]:
    """Yield matched pairs as tuples, and what lies between them as lists."""
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, ours_as, theirs_as).get_opcodes():
        if tag == "equal":
            yield from zip(ours[i1:i2], theirs[j1:j2], strict=True)
        else:
            yield [list(ours[i1:i2]), list(theirs[j1:j2])]


def _in_order(
    ours: Sequence[int], theirs: Sequence[int], ours_as: Sequence[str], theirs_as: Sequence[str]
) -> Iterator[tuple[int, int]]:
    yield from (gap for gap in _gaps(ours, theirs, ours_as, theirs_as) if isinstance(gap, tuple))
