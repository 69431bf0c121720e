"""Gets the entry of a program from the cache, or has it built there, and says why it was not there."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from trtcache.backends.tuning_cache import use_tuning_store
from trtcache.digests import CacheKey
from trtcache.errors import BuildForbiddenError, CanonicalizationError
from trtcache.runtime.report import PartitionReport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trtcache.cache import Cache
    from trtcache.keys.stored_graph import StoredGraph
    from trtcache.store.entry import Entry
    from trtcache.store.format import Built

log = logging.getLogger(__name__)


def supply(
    key: CacheKey | CanonicalizationError,
    cache: Cache,
    build: Callable[[], Built],
    *,
    kind: str,
    name: str,
    graph: Callable[[], StoredGraph],
    provenance: Mapping[str, str] | None = None,
) -> tuple[Entry, str]:
    """Return the entry of a program, and if it had to be built why there was none.

    Args:
        key: the program's, or why it has none.
        cache: where to look.
        build: builds what an entry holds.
        kind: the kind of engine.
        name: what people call the program.
        graph: returns its graph, to be compared with those of other entries.
        provenance: what is to be kept about the build.

    Raises:
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``; the message says why there was no hit.
        BuildError: the build failed.
        BusyError: another process builds it, and the cache is not to wait.
    """
    why = ""

    def built() -> Built:
        nonlocal why
        why = _why(key, cache, name, graph)
        return learner()

    def learner() -> Built:
        with use_tuning_store(cache):
            return build()

    if isinstance(key, CanonicalizationError):
        log.warning("%s is not cached: %s", name, key)
        return cache.build_uncached(learner, kind=kind, why=str(key), name=name), ""
    try:
        entry = cache.fetch(key, built, name=name, provenance=provenance)
    except BuildForbiddenError as error:
        error.why = _why(key, cache, name, graph)
        raise
    return entry, why


def _why(key: CacheKey | CanonicalizationError, cache: Cache, name: str, graph: Callable[[], StoredGraph]) -> str:
    """Return, and log, how the nearest stored entry differs; empty where the entry itself is there or nothing is."""
    stores = cache.layers.stores
    if not stores or not isinstance(key, CacheKey) or cache.layers.holder(key.digest):
        return ""
    from trtcache.keys.nearest import nearest  # SQLite and difflib, which a hit does not need

    try:
        asked = graph()
        each = (nearest(store, key.document, name=name, graph=asked) for store in stores)
        found = next(filter(None, each), None)
    except Exception:  # a remark for people: whatever lies in the store, the build goes on
        log.debug("the nearest entry could not be found", exc_info=True)
        return ""
    why = str(found) if found else f"no similar {key.kind} entry"
    log.info("miss: %s", why)
    return why


def partition(
    key: CacheKey | CanonicalizationError, entry: Entry, *, weights: int, load_s: float, why: str = ""
) -> PartitionReport:
    """Return the report on an entry that has ``weights`` weights and took ``load_s`` to load."""
    return PartitionReport(
        key=key if isinstance(key, CacheKey) else None,
        outcome=entry.outcome,
        reason=entry.reason or "",
        weights=weights,
        fetch_s=entry.load_s,
        load_s=load_s,
        build_s=entry.build_s,
        path=str(entry.path) if entry.path else None,
        why=why,
    )
