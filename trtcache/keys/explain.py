"""Explanation of why two keys differ: causes first, without what follows from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from trtcache.keys.graph_diff import KeyDifference, graph_differences, merge_repeated
from trtcache.keys.stored_graph import format_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trtcache.digests import Json
    from trtcache.keys.stored_graph import StoredGraph

_ORDER = (
    *("format", "kind", "target", "toolchain", "settings", "ambient", "pipeline"),
    *("inputs", "values", "sizes", "structure"),
)
"""Parts by reach: a difference in an earlier part may be the cause of one in a later part."""

_ABSENT: Any = object()

_FOLLOWS = {
    "target.level": ("target.instruction_sets",),
    "target.device": ("target.capability", "toolchain.cuda", "toolchain.triton", "graph:device", "inputs:device"),
    "toolchain.torch": ("toolchain.torch_git",),
}
"""Difference -> differences that it implies: prefixes of paths, or ``part:field`` for one field in a part."""


def explain(
    a: Mapping[str, Json],
    b: Mapping[str, Json],
    graphs: tuple[StoredGraph, StoredGraph] | None = None,
) -> list[KeyDifference]:
    """Return how the key document ``b`` differs from ``a``, causes first; an empty list if they are equal.

    Args:
        a: a key document, such as a stored entry's.
        b: another.
        graphs: the lowered graphs of both. Without them a difference of the graphs is reported by digest, and only if
            nothing else differs.
    """
    before, after = _readable(a), _readable(b)
    _tell_trees_apart(before, after, a, b)
    parts = (*_ORDER, *sorted({*before, *after} - {*_ORDER, "graph"}))
    walked = [one for part in parts for one in _walk(part, before.get(part, _ABSENT), after.get(part, _ABSENT))]
    with_other_shapes = {one.where.partition(".")[0] for one in walked if ".shape" in one.where}
    has_other_inputs = any(
        one.where.startswith(("inputs[", "values[")) and None in {one.before, one.after} for one in walked
    )
    has_another_graph = before.get("graph", _ABSENT) != after.get("graph", _ABSENT)
    found: list[KeyDifference] = []
    layouts: list[KeyDifference] = []
    for one in walked:
        part = one.where.partition(".")[0]
        if (
            _follows(one, walked)
            or (one.field == "stride" and part in with_other_shapes)
            or (part == "sizes" and None in {one.before, one.after} and with_other_shapes)
            or (one.where == "structure.arguments" and has_other_inputs)
        ):
            continue  # another difference implies it
        (layouts if one.where.startswith("layouts") else found).append(one)
    if has_another_graph:
        found += _graph(before, after, found, graphs)
    return merge_repeated(found or layouts)  # nearly any other difference changes layouts of results


def _graph(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    known: list[KeyDifference],
    graphs: tuple[StoredGraph, StoredGraph] | None,
) -> list[KeyDifference]:
    try:
        walked = graph_differences(*graphs) if graphs else None
    except (LookupError, TypeError, ValueError, AttributeError):  # a record of an unknown form
        walked = None
    if walked is None:
        return [] if known else list(_walk("graph", before.get("graph", _ABSENT), after.get("graph", _ABSENT)))
    reported = {(_number(one.before), _number(one.after)) for one in known if one.where.startswith("values")}
    fields = {(one.field, one.before, one.after) for one in known}
    found = [
        one
        for one in walked
        if (_number(one.before), _number(one.after)) not in reported
        and (one.field, one.before, one.after) not in fields
        and not _follows(one, known)
    ]
    if any(one.where == "structure.output" for one in known):
        found = [one for one in found if not one.where.startswith("graph: number of outputs")]
    if not found and not known:
        found = [KeyDifference("graph", "as stored", "another; the stored records do not show where")]
    return found


def _number(text: str | None) -> object:
    """Return a number written as ``3`` or ``3.0`` as one value."""
    try:
        return float(text or "")
    except ValueError:
        return text


def _follows(difference: KeyDifference, known: list[KeyDifference]) -> bool:
    """Return whether a difference follows from a known one by ``_FOLLOWS``."""
    for follower in (follower for one in known for follower in _FOLLOWS.get(one.where, ())):
        part, _, field = follower.partition(":")
        if difference.where.startswith(part) and (not field or difference.field == field):
            return True
    return False


def _walk(where: str, before: Any, after: Any) -> Iterator[KeyDifference]:
    if before == after and repr(before) == repr(after):  # 1 and True are equal but not the same
        return
    if all(
        isinstance(one, Mapping) and not any(name.startswith("$") or name == "sym" for name in one)
        for one in (before, after)
    ):
        for name in {**before, **after}:
            plain = f".{name}" if name.replace("_", "").isalnum() else f"[{name!r}]"
            below = where + (name if name.startswith("[") else plain)
            yield from _walk(below, before.get(name, _ABSENT), after.get(name, _ABSENT))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _walk_lists(where, before, after)
    else:
        was, now = (None if one is _ABSENT else format_value(one) for one in (before, after))
        yield KeyDifference(where, was, now)


def _walk_lists(where: str, before: list[Any], after: list[Any]) -> Iterator[KeyDifference]:
    if len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _walk(f"{where}[{index}]", one, other)
        return
    if where.endswith(".shape") or all(isinstance(one, int) for one in (*before, *after)):
        yield KeyDifference(where, format_value(before), format_value(after))
        return
    left, right = ([json.dumps(one, sort_keys=True) for one in side] for side in (before, after))
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        for index in range(max(i2 - i1, j2 - j1) if tag != "equal" else 0):
            one = before[i1 + index] if i1 + index < i2 else _ABSENT
            other = after[j1 + index] if j1 + index < j2 else _ABSENT
            place = i1 + index if other is _ABSENT else j1 + index
            yield from _walk(f"{where}[{place}]", one, other)


def _readable(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a key document's parts with the machine-readable ones in a readable form."""
    parts = document.get("parts")
    readable: dict[str, Any] = {"format": document.get("format"), "kind": document.get("kind")}
    readable |= dict(parts) if isinstance(parts, Mapping) else {}
    for name, reader in _READERS.items():
        if isinstance(readable.get(name), dict if name == "structure" else list):
            with suppress(LookupError, TypeError, ValueError, AttributeError):  # a foreign part of that name
                readable[name] = reader(readable[name])
    return readable


def _tell_trees_apart(
    before: dict[str, Any], after: dict[str, Any], a: Mapping[str, Any], b: Mapping[str, Any]
) -> None:
    """Name the classes and contexts of trees that differ and read alike, such as those of two lengths of a deque."""
    if not all(isinstance(one.get("structure"), dict) for one in (before, after)):
        return
    with suppress(LookupError, TypeError, ValueError, AttributeError):  # a foreign part of that name
        trees, others = a["parts"]["structure"], b["parts"]["structure"]
        for name in before["structure"].keys() & after["structure"].keys():
            alike = before["structure"][name] == after["structure"][name]
            if alike and repr(trees[name]) != repr(others[name]):  # 1 and True are equal but not the same
                before["structure"][name], after["structure"][name] = (
                    _whole_tree(trees[name]),
                    _whole_tree(others[name]),
                )


def _tree(spec: Any) -> str:
    if spec is None:
        return "*"
    kind, context, *children = spec
    name = str(kind).rpartition(".")[2]
    names = context if isinstance(context, list) and len(context) == len(children) else None
    inside = [_tree(child) for child in children]
    if names is not None and children:
        inside = [f"{label}={child}" for label, child in zip(names, inside, strict=True)]
    return f"{name}({', '.join(inside)})"


def _whole_tree(spec: Any) -> str:
    """Return a tree with the module of each class and all of its context, as ``collections.deque[3](*)``."""
    if spec is None:
        return "*"
    kind, context, *children = spec
    inside = ", ".join(map(_whole_tree, children))
    return f"{kind}({inside})" if context is None else f"{kind}[{context!r}]({inside})"


_READERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "inputs": lambda inputs: {
        f"[{one['leaf']}]": {
            "dtype": one["dtype"],
            "shape": [size if isinstance(size, int) else format_value(size) for size in one["shape"]],
            "stride": format_value(one["stride"]),
            "device": one["device"],
        }
        for one in inputs
    },
    "values": lambda values: {f"[{leaf}]": value for leaf, value in values},
    "sizes": lambda sizes: {f"s{number}": {"min": low, "max": high} for number, (low, high) in enumerate(sizes)},
    "structure": lambda structure: {name: _tree(spec) for name, spec in structure.items()},
}
"""The readable forms of parts of a key document."""
