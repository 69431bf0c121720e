"""Finds the manifest that a model had before, to say what is another now."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trtcache.direct import manifest as manifests
from trtcache.direct.differences import in_words
from trtcache.direct.manifest import DETAILS, KIND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.cache import Cache

log = logging.getLogger(__name__)
NOTHING = "nothing is known of it"


def nearest(cache: Cache, name: str, parts: Mapping[str, Any]) -> str:
    """Return how the newest manifest of a name differs; that nothing is known where there is none."""
    from trtcache.store.catalog import load_records

    for store in cache.layers.stores:
        try:
            found = [one for one in load_records(store) if one.kind == KIND and one.name == name]
            for one in sorted(found, key=lambda record: -record.created_ns)[:1]:
                entry = cache.peek(store.header(one.digest).key, counted=False)
                if entry is not None:
                    return in_words(manifests.details(bytes(entry.read(DETAILS)))["parts"], parts) or NOTHING
        except Exception:  # a remark for people: whatever lies in the store, the compiling goes on
            log.debug("the nearest manifest could not be read", exc_info=True)
    return NOTHING
