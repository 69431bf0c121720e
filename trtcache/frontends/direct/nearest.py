"""What people are told of a miss: the manifest that a model had before, and the reason that was given last."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trtcache.digests import CacheKey
from trtcache.frontends.direct import manifest as manifests
from trtcache.frontends.direct.differences import in_words
from trtcache.frontends.direct.manifest import DETAILS, FORMAT, KIND
from trtcache.store.entry import Entry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.cache import Cache
    from trtcache.store.layers import Layers

log = logging.getLogger(__name__)
NOTHING = "nothing is known of it"
REASON, REASONS = "reason", "direct-why"


def nearest(cache: Cache, name: str, parts: Mapping[str, Any]) -> str:
    """Return how the newest manifest of a name differs; that nothing is known where there is none."""
    from trtcache.store.catalog import load_records

    for store in cache.layers.disks:
        try:
            found = [one for one in load_records(store) if one.kind == KIND and one.name == name]
            for one in sorted(found, key=lambda record: -record.created_ns):
                entry = cache.peek(store.header(one.digest).key, counted=False)
                if entry is not None:
                    return in_words(manifests.details(bytes(entry.read(DETAILS)))["parts"], parts) or NOTHING
        except Exception:  # a remark for people: whatever lies in the store, the compiling goes on
            log.debug("the nearest manifest could not be read", exc_info=True)
    return NOTHING


def reason_key(name: str) -> CacheKey:
    """Return the key of the reason that was given last for a model of this name."""
    return CacheKey.of(REASONS, {"format": FORMAT, "name": name})


def keep_reason(cache: Cache, name: str, reason: str) -> None:
    """Keep why direct mode did not hit, for ``trtcache why --direct``; nothing is written where it is kept already."""
    if cache.store is None or not cache.store.takes:
        return
    data = reason.encode("utf-8", "backslashreplace")  # a key of a dictionary can be no text
    try:
        if reason_of(cache.layers, name) != data.decode():
            cache.keep(reason_key(name), {REASON: data}, build_s=0.0, name=name)
    except Exception:  # a remark, too
        log.debug("why direct mode did not hit could not be kept", exc_info=True)


def reason_of(layers: Layers, name: str) -> str | None:
    """Return why direct mode did not hit last time with a model of this name; None where nothing is kept."""
    found = layers.get(reason_key(name))
    try:
        return bytes(found.read(REASON)).decode("utf-8", "replace") if isinstance(found, Entry) else None
    except KeyError:
        return None
