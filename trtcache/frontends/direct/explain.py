"""Explanations of direct mode's misses: what differs from the newest manifest, and the last reason."""

from __future__ import annotations

import json
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
_MOST = 3  # differences


def format_differences(before: Any, after: Any) -> str:
    """Return the first differences between the parts of two direct keys; empty if there are none.

    For example ``weights lin.weight: 4 -> 5``.
    """
    found = [f"{path.strip('.')}: {_shorten(old)} -> {_shorten(new)}" for path, old, new in _differences(before, after)]
    more = f", and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return "; ".join(found[:_MOST]) + more


def _differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the paths at which two descriptions differ, with their values there."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):
            yield from _differences(before.get(name), after.get(name), f"{path} {name}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for old, new in zip(before, after, strict=True):
            yield from _differences(old, new, path)
    elif before != after:
        yield path.strip(), before, after


def _shorten(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


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
                    return format_differences(stored, json.loads(json.dumps(parts))) or NO_MANIFEST
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
