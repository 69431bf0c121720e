"""Explanation of why two keys differ: causes first, without what follows from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
"""Differences that follow from one: prefixes of paths, or after a colon the field of paths in a part."""


def explain(
    a: Mapping[str, Json],
    b: Mapping[str, Json],
    graphs: tuple[StoredGraph, StoredGraph] | None = None,
) -> list[KeyDifference]:
    """Return how the key document ``b`` differs from ``a``, causes first; an empty list if they are equal.

    Args:
        a: a key document, such as a stored entry's.
        b: another.
        graphs: the lowered graphs of both. Without them a difference of the graphs is reported by digest only.
    """
    before, after = _readable(a), _readable(b)
    found = [
        one
        for part in _parts(before, after)
        for one in _walk(part, before.get(part, _ABSENT), after.get(part, _ABSENT))
    ]
    found = _without_derived(found)
    layouts = [one for one in found if one.where.startswith("layouts")]
    found = [one for one in found if one not in layouts]
    if before.get("graph", _ABSENT) != after.get("graph", _ABSENT):
        found += _graph(before, after, found, graphs)
    return merge_repeated(found or layouts)  # nearly any other difference changes layouts of results


def _parts(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    others = sorted({*before, *after} - {*_ORDER, "graph"})
    return [part for part in (*_ORDER, *others) if part in before or part in after]


def _graph(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    known: list[KeyDifference],
    graphs: tuple[StoredGraph, StoredGraph] | None,
) -> list[KeyDifference]:
    walked = _compare_graphs(graphs)
    if walked is None:
        return [] if known else list(_walk("graph", before.get("graph", _ABSENT), after.get("graph", _ABSENT)))
    reported = {(_number(one.before), _number(one.after)) for one in known if one.where.startswith("values")}
    fields = {(one.field, one.before, one.after) for one in known}
    prefixes = _followers(known)
    found = [
        one
        for one in walked
        if (_number(one.before), _number(one.after)) not in reported
        and (one.field, one.before, one.after) not in fields
        and not _is_follower(one, prefixes)
    ]
    if any(one.where == "structure.output" for one in known):
        found = [one for one in found if not one.where.startswith("graph: number of outputs")]
    if not found and not known:
        found = [KeyDifference("graph", "as stored", "another, in a way that its records do not show")]
    return found


def _compare_graphs(graphs: tuple[StoredGraph, StoredGraph] | None) -> list[KeyDifference] | None:
    """Return how two graphs differ, or None without graphs or if one has records of an unknown form."""
    try:
        return graph_differences(*graphs) if graphs else None
    except (LookupError, TypeError, ValueError, AttributeError):
        return None


def _number(text: str | None) -> object:
    """Return a number written as ``3`` or ``3.0`` as one value."""
    try:
        return float(text or "")
    except ValueError:
        return text


def _without_derived(found: list[KeyDifference]) -> list[KeyDifference]:
    followers = _followers(found)
    reshaped = {one.where.partition(".")[0] for one in found if ".shape" in one.where}
    counted = any(one.where.startswith(("inputs[", "values[")) and None in {one.before, one.after} for one in found)

    def follows(one: KeyDifference) -> bool:
        part = one.where.partition(".")[0]
        return (
            _is_follower(one, followers)
            or (one.field == "stride" and part in reshaped)
            or (part == "sizes" and None in {one.before, one.after} and bool(reshaped))
            or (counted and one.where == "structure.arguments")
        )

    return [one for one in found if not follows(one)]


def _followers(found: list[KeyDifference]) -> tuple[str, ...]:
    return tuple(follower for one in found for follower in _FOLLOWS.get(one.where, ()))


def _is_follower(difference: KeyDifference, followers: tuple[str, ...]) -> bool:
    for follower in followers:
        part, _, field = follower.partition(":")
        if difference.where.startswith(part) and (not field or difference.field == field):
            return True
    return False


def _walk(where: str, before: Any, after: Any) -> Iterator[KeyDifference]:
    if before == after and repr(before) == repr(after):  # 1 and True are equal but not the same
        return
    if _is_table(before) and _is_table(after):
        for name in [*before, *(name for name in after if name not in before)]:
            yield from _walk(_below(where, name), before.get(name, _ABSENT), after.get(name, _ABSENT))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _lists(where, before, after)
    else:
        yield KeyDifference(where, _format(before), _format(after))


def _format(value: Any) -> str | None:
    return None if value is _ABSENT else format_value(value)


def _lists(where: str, before: list[Any], after: list[Any]) -> Iterator[KeyDifference]:
    if len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _walk(f"{where}[{index}]", one, other)
    elif where.endswith(".shape") or all(isinstance(one, int) for one in (*before, *after)):
        yield KeyDifference(where, format_value(before), format_value(after))
    else:
        yield from _compare_resized(where, before, after)


def _compare_resized(where: str, before: list[Any], after: list[Any]) -> Iterator[KeyDifference]:
    left, right = ([json.dumps(one, sort_keys=True) for one in side] for side in (before, after))
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        for index in range(max(i2 - i1, j2 - j1)):
            one = before[i1 + index] if i1 + index < i2 else _ABSENT
            other = after[j1 + index] if j1 + index < j2 else _ABSENT
            place = i1 + index if other is _ABSENT else j1 + index
            yield from _walk(f"{where}[{place}]", one, other)


def _below(where: str, name: str) -> str:
    if name.startswith("["):
        return f"{where}{name}"
    return f"{where}.{name}" if name.replace("_", "").isalnum() else f"{where}[{name!r}]"


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) and not any(name.startswith("$") or name == "sym" for name in value)


def _readable(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a key document's parts with the machine-readable ones in a readable form."""
    parts = document.get("parts")
    readable: dict[str, Any] = {"format": document.get("format"), "kind": document.get("kind")}
    readable |= dict(parts) if isinstance(parts, Mapping) else {}
    for name, reader in (("inputs", _inputs), ("values", _values), ("sizes", _sizes), ("structure", _structure)):
        if not isinstance(readable.get(name), dict if name == "structure" else list):
            continue  # a foreign part of that name
        try:
            readable |= {name: reader(readable[name])}
        except (LookupError, TypeError, ValueError, AttributeError):
            continue  # a foreign part of that name
    return readable


def _inputs(inputs: Any) -> dict[str, Any]:
    return {
        f"[{one['leaf']}]": {
            "dtype": one["dtype"],
            "shape": [_size(size) for size in one["shape"]],
            "stride": format_value(one["stride"]),
            "device": one["device"],
        }
        for one in inputs
    }


def _size(size: Any) -> Any:
    return size if isinstance(size, int) else format_value(size)


def _values(values: Any) -> dict[str, Any]:
    return {f"[{leaf}]": value for leaf, value in values}


def _sizes(sizes: Any) -> dict[str, Any]:
    return {f"s{number}": {"least": least, "most": most} for number, (least, most) in enumerate(sizes)}


def _structure(structure: Any) -> dict[str, Any]:
    return {name: _tree(one) for name, one in structure.items()}


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
