"""Explanations of direct mode's misses: differences of descriptions, from the newest manifest, and the last reason."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trtcache.digests import CacheKey
from trtcache.frontends.direct import manifest as manifests
from trtcache.frontends.direct.manifest import DETAILS, FORMAT, KIND
from trtcache.store.entry import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trtcache.cache import Cache
    from trtcache.store.layers import Layers

log = logging.getLogger(__name__)

NO_MANIFEST = "no matching manifest"
REASON_MEMBER, REASON_KIND = "reason", "direct-why"

_SHOWN = 60  # characters of a value
_BEFORE = 20  # characters before a difference
_MOST = 3  # differences


def format_key_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return the first differences between the parts of two direct keys; empty if there are none.

    For example ``attribute encoder.layer.3.dropout.p: 0.1 -> 0.2``.
    """
    found: list[str] = []
    # In the order of the walk: a difference shifts the numbers of all later objects, which are no differences.
    for name in sorted({*before, *after}, key=["model", "inputs", "dynamic_shapes", "surroundings"].index):
        found += _label_parts(name, before.get(name), after.get(name))
    return _join(found)


def format_differences(label: str, before: Any, after: Any) -> str:
    """Return the first differences of two descriptions of one object."""
    differences = _differences(before, after)
    return _join([f"{label}{path.strip('.')}: {_format_change(old, new)}" for path, old, new in differences])


def _join(found: list[str]) -> str:
    more = f", and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return "; ".join(found[:_MOST]) + more


def _label_parts(name: str, before: Any, after: Any) -> list[str]:
    lines = []
    for path, old, new in _differences(before, after):
        place = path.strip(".")
        label = f"attribute {place.replace('..', '.')}" if name == "model" else f"{name} {place}"
        lines.append(f"{label}: {_format_change(old, new)}")
    return lines


def _differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the paths at which two descriptions differ, with their values there."""
    if before == after and str(before) == str(after):
        return
    if isinstance(before, list) and isinstance(after, list) and before[:1] == after[:1] == ["same"]:
        return  # numbers of earlier objects shift with any other difference
    if str(before)[:7] == str(after)[:7] == "memory ":
        return
    if isinstance(before, dict) and isinstance(after, dict) and "float" not in before:
        for name in dict.fromkeys((*before, *after)):
            yield from _differences(before.get(name), after.get(name), f"{path}.{name}")
    elif isinstance(before, list) and isinstance(after, list):
        yield from _lists(before, after, path)
    else:
        yield path, before, after


def _lists(before: list[Any], after: list[Any], path: str) -> Iterator[tuple[str, Any, Any]]:
    names = _by_name(before), _by_name(after)
    if before and names[0] is not None and names[1] is not None:
        yield from _differences(*names, path)
    elif len(before) == len(after) and before and (before[0] == after[0] or type(before[0]) is type(after[0]) is list):
        for place, (old, new) in enumerate(zip(before, after, strict=True)):
            step = "" if isinstance(old, list) and before[:1] in (["object"], ["dict"]) else f"[{place}]"
            yield from _differences(old, new, f"{path}{step}")
    else:
        yield path, before, after


def _by_name(items: list[Any]) -> dict[str, Any] | None:
    """Return the values of ``[name, value, ...]`` lists by name; None if the items are of another form."""
    if not all(isinstance(item, list) and len(item) >= 2 and isinstance(item[0], str) for item in items):
        return None
    named = {item[0]: item[1] if len(item) == 2 else item[1:] for item in items}
    return named if len(named) == len(items) else None


def _format_change(old: Any, new: Any) -> str:
    """Format two values, of long ones the part from which on they differ."""
    texts = [_format(old), _format(new)]
    if max(map(len, texts)) > _SHOWN:
        same = next((place for place, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
        texts = [f"...{text[same - _BEFORE :]}" for text in texts] if same > _BEFORE else texts
    return " -> ".join(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..." for text in texts)


def _format(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"float"}:
        return repr(float.fromhex(value["float"]))
    if isinstance(value, list) and value[:1] == ["function"]:
        return f"function {value[2]}" if len(value) > 2 else "a function"
    return "nothing" if value is None else str(value)


def differences_to_newest(cache: Cache, name: str, parts: Mapping[str, Any]) -> str:
    """Return the differences from the newest stored manifest of a model of this name, or ``NO_MANIFEST``."""
    from trtcache.store.catalog import load_records

    for store in cache.layers.disks:
        try:
            records = [record for record in load_records(store) if record.kind == KIND and record.name == name]
            for record in sorted(records, key=lambda record: -record.created_ns):
                entry = cache.peek(store.header(record.digest).key, counted=False)
                if entry is not None:
                    stored = manifests.details(bytes(entry.read(DETAILS)))["parts"]
                    return format_key_differences(stored, parts) or NO_MANIFEST
        except Exception:  # only a diagnostic: compilation goes on whatever the store contains
            log.debug("reading the newest manifest failed", exc_info=True)
    return NO_MANIFEST


def reason_key(name: str) -> CacheKey:
    """Return the key of the entry with the last reason for a model of this name."""
    return CacheKey.of(REASON_KIND, {"format": FORMAT, "name": name})


def store_reason(cache: Cache, name: str, reason: str) -> None:
    """Store the outcome of direct mode for ``trtcache why --direct``, unless it is stored already."""
    if cache.store is None or not cache.store.can_store_builds:
        return
    data = reason.encode()
    try:
        if load_reason(cache.layers, name) != reason:
            cache.keep(reason_key(name), {REASON_MEMBER: data}, build_s=0.0, name=name)
    except Exception:  # only a diagnostic
        log.debug("storing the outcome of direct mode failed", exc_info=True)


def load_reason(layers: Layers, name: str) -> str | None:
    """Return the last outcome of direct mode for a model of this name; None if none is stored."""
    entry = layers.get(reason_key(name))
    try:
        return bytes(entry.read(REASON_MEMBER)).decode("utf-8", "replace") if isinstance(entry, Entry) else None
    except KeyError:
        return None
