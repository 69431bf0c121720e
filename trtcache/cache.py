"""Torch-free cache API: cache the output of any build function, and build each entry once.

``get_or_build`` is for callers with build functions of their own; ``trtcache.compile`` uses ``get_or_build_key`` and
``peek`` with its own keys. Store failures are not raised: a damaged entry is a miss with a reason, and a build that
could not be stored is still returned. Build failures are always raised.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

from trtcache.config.environment import LOG_VARIABLE, Config, start_logging
from trtcache.config.frozen import frozen_dataclass
from trtcache.config.paths import absolute, absolute_paths
from trtcache.config.remotes import parse_remotes, refuse_url
from trtcache.config.units import ContentionPolicy, parse_size
from trtcache.digests import CacheKey
from trtcache.errors import (
    BuildCancelledError,
    BuildError,
    BuildForbiddenError,
    BusyError,
    CanonicalizationError,
    LockTimeoutError,
    PinnedEntryError,
    ReadOnlyError,
    SettingsError,
    StoreError,
    UnknownKeyError,
)
from trtcache.store.contract import (
    COLLISION,
    REMOTE,
    Entry,
    Miss,
    check_kind,
    check_labels,
    describe_miss,
    is_companion,
    run_build,
    without_files,
)
from trtcache.store.format import HEX_DIGEST, LONGEST_BUILD_S, Built
from trtcache.store.layers import BELOW, Layers
from trtcache.store.single_flight import hold_build_lock

if TYPE_CHECKING:
    from trtcache.remote.claims import Claim
    from trtcache.remote.tier import RemoteTiers
    from trtcache.store.disk import DiskStore
    from trtcache.store.record import Record

_logger = logging.getLogger("trtcache.cache")

_ENGINE: ContextVar[str] = ContextVar("trtcache.engine", default="")
"""The digest of the engine that this thread has last requested: a put of its key alias does not evict it."""
_BUILDING: ContextVar[frozenset[Path]] = ContextVar("trtcache.building", default=frozenset())
"""Entries that this thread has locked: waiting for one of them would deadlock."""


@frozen_dataclass
class CacheStats:
    """Totals of a cache directory.

    Attributes:
        entries: the number of engines and kept programs, as ``trtcache ls`` lists them.
        file_bytes: the size of all entries on disk, key aliases included.
        hits: lookups that found an entry.
        misses: lookups that did not.
        saved_s: seconds of build time that hits have saved.
    """

    entries: int = 0
    file_bytes: int = 0
    hits: int = 0
    misses: int = 0
    saved_s: float = 0.0


class Cache:
    """A cache directory with optional read-only lower layers, as configured.

    ``store`` is None if the cache is disabled or unusable. A root passed by the caller must be usable; one from the
    environment or the default may fail with a warning, and then everything is built. ``layers`` are all stores that are
    searched, ``store`` first.

    ``key in cache`` says whether there is an entry, without reading it. ``len(cache)`` and iteration are of the entries
    that ``trtcache ls`` lists, as a ``Record`` each.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        *,
        max_size: int | str | None = None,
        lower: Iterable[str | os.PathLike[str]] | None = None,
        copy_up: bool | None = None,
        remote: Iterable[str] | None = None,
        config: Config | None = None,
        on_busy: str | None = None,
        busy_timeout_s: float | None = None,
    ) -> None:
        """Open the cache at ``root`` (default: ``TRTCACHE_DIR``, or the user's cache directory).

        ``max_size`` (bytes, or text such as ``20GB``; 0: no limit) and ``root`` override ``config``, which defaults to
        the environment; ``root`` replaces the whole of ``TRTCACHE_PATH``. Hits may also come from the stores in
        ``lower``, which are never written to: in place, or with ``copy_up`` as a copy in ``root``.

        ``remote`` lists the URLs of buckets and web folders that are asked after all directories, in place of those of
        ``TRTCACHE_REMOTE``. Hits are verified, and stored in ``root`` if it is writable and signatures are not off. The
        first with ``?mode=write`` gets the builds that took ``TRTCACHE_REMOTE_MIN_BUILD`` (1 s) or longer.

        ``on_busy`` is what to do while another process builds the same entry: ``wait`` for it, ``build`` it too, or
        ``eager``: continue without an engine, which ``compile`` does in torch and ``get_or_build`` by raising
        ``BusyError``. Each waits for ``busy_timeout_s`` first; after that, ``wait`` builds too. If no time is set,
        ``wait`` waits for as long as the other process lives, but a rank of ``torchrun`` for 480 s, and the others do
        not wait. Both override ``config``.

        Raises:
            SettingsError: ``root`` or an element of ``lower`` is not a path, an element of ``remote`` is not the URL of
                a remote, ``max_size`` or a variable has an invalid value, the signing key cannot be read, or
                ``cryptography`` is required and not installed.
            StoreError: ``root`` or an element of ``lower`` was given and is not a store, has a newer format, or is
                unsafe.
        """
        self.config = config or Config.from_environ(os.environ)
        start_logging({LOG_VARIABLE: self.config.log})
        if root is not None:
            if not isinstance(root, (str, os.PathLike)):
                raise SettingsError("cache", f"expected a Cache, a directory or None, got {root!r}")
            refuse_url(root, "cache")
            self.config = replace(self.config, root=absolute(root, "cache"), lower=())
        if lower is not None:
            self.config = replace(self.config, lower=absolute_paths(lower, "lower"))
        if copy_up is not None:
            if copy_up not in (True, False):
                raise SettingsError("copy_up", f"expected True or False, got {copy_up!r}")
            self.config = replace(self.config, copy_up=bool(copy_up))
        if remote is not None:
            self.config = replace(
                self.config, remotes=replace(self.config.remotes, urls=parse_remotes(remote, "remote"))
            )
        if max_size is not None:
            self.config = replace(self.config, max_size_bytes=parse_size(max_size, "max_size") or None)
        self.busy = self.config.busy.override(on_busy, busy_timeout_s)
        self.counts_hits = True  # but for what this process had built by another one
        self._rejected: dict[str, str] = {}
        self._damaged: dict[str, str] = {}
        self._has_swept = False
        self.layers = Layers.of(
            self.config, upper_must_open=root is not None, lower_must_open=lower is not None, after_copy=self._after_put
        )
        self.store = self.layers.upper

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> Cache:
        """Open the cache configured by the ``TRTCACHE_*`` variables.

        Raises:
            SettingsError: a variable has an invalid value.
        """
        return cls(config=Config.from_environ(environ))

    def __repr__(self) -> str:
        """Return the directories and the number of entries, without reading them."""
        if self.store is None:
            return "Cache(disabled)"
        roots = ", ".join(map(str, (self.config.root, *self.config.lower)))
        state = "" if self.store.writable else ", read-only"
        return f"Cache({roots}: {sum(1 for _ in self.store.scan()):,} files{state})"

    def __bool__(self) -> bool:
        """Return True: an empty cache is one, too."""
        return True

    def __len__(self) -> int:
        """Return the number of entries that ``trtcache ls`` lists: engines and kept programs."""
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[Record]:
        """Return the entries of the cache directory that ``trtcache ls`` lists, most recently used first."""
        from trtcache.store.catalog import load_records  # a hit does not need it

        records = [] if self.store is None else load_records(self.store)
        return (record for record in records if not is_companion(record.kind))

    def __contains__(self, key: object) -> bool:
        """Return whether there is an entry of a ``CacheKey``, or of its digest, in any layer; nothing is read."""
        digest = key.digest if isinstance(key, CacheKey) else key
        return _is_digest(digest) and self.layers.holder(digest) is not None

    def delete(self, key: CacheKey | str, *, force: bool = False) -> bool:
        """Remove the entry of a key, or of its digest, from the cache directory; return whether there was one.

        A pinned entry is only removed with ``force``, and its pin with it. A text that is not a whole digest, of 64
        hexadecimal digits, names no entry.

        Raises:
            PinnedEntryError: the entry is pinned.
            ReadOnlyError: the cache is disabled, or its directory is read-only.
        """
        if self.store is None:
            why = "cannot be used; see the warning about it"
            if self.config.disable:
                why = "is not used (TRTCACHE_DISABLE=1)"
            raise ReadOnlyError(str(self.config.root), "remove an entry", why)
        digest = key.digest if isinstance(key, CacheKey) else key
        if not _is_digest(digest):
            return False
        if not self.store.writable or not self.store.contains(digest):
            return self.store.remove(digest) > 0
        from trtcache.store.catalog import drop_rows

        is_pinned = self.store.is_pinned(digest)
        if is_pinned and not force:
            raise PinnedEntryError(digest)
        drop_rows(self.store, [digest])
        is_removed = self.store.remove(digest) > 0
        if is_pinned:
            self.store.unpin(digest)
        return is_removed

    def stats(self) -> CacheStats:
        """Return the number and size of entries, and the counts since the first event or ``trtcache stats --zero``."""
        from trtcache.store.catalog import (
            counters_from_zero,
            load_records,  # a hit does not need it
        )

        if self.store is None:
            return CacheStats()
        records = load_records(self.store)
        counts: dict[str, int] = {}
        saved_s = 0.0
        for (_, event, _, _), total in counters_from_zero(self.store)[0].items():
            counts[event] = counts.get(event, 0) + total.count
            saved_s += total.sum_s if event == "hit" else 0.0
        return CacheStats(
            entries=sum(not is_companion(record.kind) for record in records),
            file_bytes=sum(record.file_bytes for record in records),
            hits=counts.get("hit", 0),
            misses=counts.get("miss", 0),
            saved_s=saved_s,
        )

    def key(self, parts: Mapping[str, object], *, kind: str) -> CacheKey:
        """Return the key for a ``kind`` of artifact built from named ``parts``.

        Raises:
            CanonicalizationError: a part has no stable encoding, or ``kind`` is not 1 to 64 of ``a-z0-9._-``.
        """
        check_kind(kind)
        if not isinstance(parts, Mapping):  # names and values are checked when they are encoded
            raise CanonicalizationError("parts", f"expected a mapping of names to values, got {type(parts).__name__}")
        return CacheKey.of(kind, parts)

    def get(self, key: CacheKey) -> Entry | None:
        """Return the entry of ``key``, every byte verified, or None. Counts the hit or the miss."""
        if not self._can_search:
            return None
        found = self._look_up(key)
        if isinstance(found, Entry):
            return found
        self._count_miss(key, found.reason)
        return None

    def peek(self, key: CacheKey, *, counted: bool = True) -> Entry | None:
        """Look an entry up as ``get`` does, in the stores and then the remotes, but do not count a miss.

        A later ``get_or_build_key`` counts it. Without ``counted``, hits are not counted either: for entries that only
        lead to others.
        """
        if not self._can_search:
            return None
        found = self._look_up(key, counted=counted)
        if isinstance(found, Miss) and found.reason.startswith("corrupt:"):
            self._damaged[key.digest] = found.reason  # it is quarantined now, and the next look-up would see "absent"
        return found if isinstance(found, Entry) else None

    def keep(self, key: CacheKey, built: Built, *, build_s: float, name: str | None = None) -> None:
        """Store a by-product of a build, such as a key alias; ``build_s`` is the time that a hit saves.

        There is no lock for such an entry, and only a failure to store it is counted; it is not raised.
        """
        store = self.store
        build_s = min(max(0.0, build_s), LONGEST_BUILD_S)  # max() of 0 and NaN is 0
        if store is not None and store.can_store_builds:
            entry = replace(run_build(key, lambda: built, reason="kept", name=name), build_s=build_s)
            if (stored := self._put(store, entry)).path is not None:
                self._after_put(store, key.digest)
                self._offer(store, stored)

    def recall(self, kind: str, parts: Mapping[str, object]) -> bytes | None:
        """Return the content stored by ``merge`` for ``parts``, or None. Counts neither a hit nor a miss.

        Raises:
            CanonicalizationError: a part has no stable encoding.
        """
        found = self.peek(self.key(parts, kind=kind), counted=False)
        return None if found is None else bytes(found.read())

    def merge(
        self,
        kind: str,
        parts: Mapping[str, object],
        combine: Callable[[bytes | None], bytes | None],
        *,
        name: str | None = None,
        saves_s: float = 0.0,
    ) -> None:
        """Replace the content stored for ``parts`` with the result of ``combine``; None leaves it unchanged.

        Only one thread or process does so at a time, so no update is lost. For data that saves time and may be lost:
        only a failure to store it is counted, and store failures are warnings. Pruning uses ``saves_s`` as the build
        time.

        Raises:
            CanonicalizationError: a part has no stable encoding.
            Exception: any exception of ``combine``.
        """
        store, key = self.store, self.key(parts, kind=kind)
        if store is None or not store.can_store_builds:
            return
        with self._hold_lock(store, key):
            stored = self.layers.get(key)
            content = combine(bytes(stored.read()) if isinstance(stored, Entry) else None)
            if content is not None:
                self.keep(key, content, build_s=saves_s, name=name)

    def get_or_build(
        self,
        parts: Mapping[str, object],
        build: Callable[[], Built],
        *,
        kind: str,
        name: str | None = None,
        provenance: Mapping[str, str] | None = None,
    ) -> Entry:
        """Return the entry for ``parts``; call ``build`` if there is none.

        ``parts`` is everything that the artifact depends on: named values, and ``trtcache.digest(path)`` of files.
        ``build`` returns bytes, the ``Path`` of a file, or a mapping of member names to those. Of all threads and
        processes that need the same entry, one builds. ``name`` is a display name; ``provenance`` is stored in the
        entry.

        Raises:
            CanonicalizationError: a part has no stable encoding, or ``kind``, ``name`` or ``provenance`` is invalid.
            BuildForbiddenError: there is no entry and ``TRTCACHE_FORBID_BUILD=1``.
            BusyError: there is none, another process builds it, and ``on_busy`` is ``eager``; it names that process.
            BuildCancelledError: a watcher cancelled the wait for another process.
            BuildError: ``build`` returned an invalid value or a missing file, or requested its own entry; from another
                thread, that request waits for the build.
            Exception: any exception of ``build``.
        """
        return self.get_or_build_key(self.key(parts, kind=kind), build, name=name, provenance=provenance)

    def get_or_build_key(
        self,
        key: CacheKey,
        build: Callable[[], Built],
        *,
        name: str | None = None,
        provenance: Mapping[str, str] | None = None,
    ) -> Entry:
        """Like ``get_or_build``, for a key that the caller has made.

        Looks the key up in the stores, takes its build lock, looks it up again, and in the remotes; with ``claims=1``
        waits for a host that builds it; then builds and stores. ``build`` is called at most once, in this thread. The
        reason of a miss is that of the first look-up.

        Raises:
            Exception: as ``get_or_build``.
        """
        check_kind(key.kind)
        check_labels(name, provenance)
        _ENGINE.set(key.digest)
        result = self._look_up(key, remote=False)
        if isinstance(result, Entry):
            return result
        store, reason = self.store, result.reason
        can_lock = store is not None and store.writable and not self.config.forbid_build and store.can_store_builds
        if not can_lock and self.config.remotes.urls and isinstance(remote := self._look_up(key), Entry):
            # With a build lock, remotes are asked under it: of the processes of a host that wait, one asks. Here there
            # is none. (``peek`` never waits for a lock.)
            return remote
        call_build = partial(self._call_build, key, build, name=name, provenance=provenance)
        if self.config.forbid_build:
            self._count_miss(key, reason)
            raise self._forbidden(key, reason)
        if store is None:
            return without_files(call_build(reason=reason))
        if not store.writable:
            return without_files(call_build(reason="readonly"), f"{store.root} is read-only")
        if not store.can_store_builds or reason == COLLISION:
            # It will not be stored, so no other process has to wait: an existing entry of another document is kept.
            self._count_miss(key, reason)
            return without_files(call_build(reason=reason))
        began_s = time.monotonic()
        with self._hold_lock(store, key, name=name, busy=self.busy) as locked:
            found: Entry | Miss | Claim = self._look_up(key)  # another process may have built it during the wait
            if isinstance(found, Miss) and locked:
                # Of several hosts that share a remote, one claims the build. Waiting for another's ends with its entry.
                found = self._claim(store, key, name or "", waited_s=time.monotonic() - began_s) or found
            if isinstance(found, Entry):
                entry = found
            else:
                claim = None if isinstance(found, Miss) else found
                entry = self._build_and_store(store, key, call_build, reason, locked=locked, claim=claim)
        if entry.outcome == "built" and entry.path is not None:
            self._after_put(store, key.digest)
        return entry

    def _forbidden(self, key: CacheKey, reason: str) -> BuildForbiddenError:
        """Return the error of a build that is forbidden, with the reason of the miss, and that of each remote's."""
        cause = {"recache": "TRTCACHE_RECACHE=1", "disabled": "TRTCACHE_DISABLE=1"}.get(reason)
        lack = f"{cause} requires a build of" if cause else "no entry for"
        lack = "no trusted entry for" if reason.startswith("untrusted:") else lack
        remotes = () if cause or self._remotes is None else self._remotes.reasons(key.digest)
        why = describe_miss(reason)
        return BuildForbiddenError(key.kind, key.digest, str(self.config.root), why, lack=lack, remotes=remotes)

    def build_uncached(self, build: Callable[[], Built], *, kind: str, why: str, name: str | None = None) -> Entry:
        """Build an artifact that has no cache key, and count a miss. The returned key is never stored.

        Raises:
            BuildForbiddenError: ``TRTCACHE_FORBID_BUILD=1``.
            BuildError: ``build`` returned an invalid value or a missing file.
            Exception: any exception of ``build``.
        """
        if self.store is not None:
            self.store.events.append("miss", reason="uncacheable", kind=kind)
        if self.config.forbid_build:
            raise BuildForbiddenError(kind, "", str(self.config.root), f"uncacheable: {why}")
        reason = f"uncacheable: {why}"
        key = CacheKey.of(kind, {"uncacheable": why})
        return without_files(self._call_build(key, build, reason=reason, name=name))

    def reject(self, entry: Entry, reason: str) -> None:
        """Quarantine an intact entry that cannot be used, such as one that failed to load; count it.

        This cache does not return it again, even if the store cannot be written.
        """
        self._rejected[entry.key.digest] = reason
        if self.store is None:
            return
        self.store.events.append("reject", reason=reason, kind=entry.kind, key=entry.key.digest)
        try:
            if self.store.writable and not self.layers.is_below(entry):
                self.store.quarantine(entry.key.digest, reason)
        except OSError as error:
            _logger.warning("entry %s cannot be moved to quarantine: %s", entry.key.digest[:16], error.strerror)

    @contextmanager
    def replacing(self, entry: Entry, reason: str) -> Iterator[None]:
        """Let an intact entry that cannot be used be a miss, while the block builds and tries another one of its key.

        The entry was at fault if the block ends: this is counted, and this cache does not return it again, even if its
        successor could not be stored. After an exception it stays as it was: memory may be short, or a device be gone.
        """
        digest = entry.key.digest
        self._rejected[digest] = reason
        try:
            yield
        except BaseException:
            self._rejected.pop(digest, None)
            raise
        if self.store is not None:
            self.store.events.append("reject", reason=reason, kind=entry.kind, key=digest)

    @property
    def _can_search(self) -> bool:
        """Whether there is anything to look in."""
        return bool(self.layers.stores or (self.config.remotes.urls and not self.config.disable))

    @cached_property
    def _remotes(self) -> RemoteTiers | None:
        if self.config.disable or not self.config.remotes.urls:
            return None
        from trtcache.remote.tier import RemoteTiers  # a hit in a directory does not need it

        return RemoteTiers(self.config)

    def _look_up(self, key: CacheKey, *, counted: bool = True, remote: bool = True) -> Entry | Miss:
        if not self._can_search:
            return Miss("disabled" if self.config.disable else "unusable")
        if self.config.recache:
            return Miss("recache")
        if key.digest in self._rejected:
            return Miss(self._rejected[key.digest])
        found = self.layers.get(key) if self.layers.stores else Miss("unusable")
        if (damage := self._damaged.pop(key.digest, "")) and found == Miss("absent"):
            found = Miss(damage)
        if remote and isinstance(found, Miss) and found.reason != COLLISION and self._remotes is not None:
            found = self._fetch_remote(self._remotes, key, found)
        _logger.debug("%s %s: %s", key.kind, key.digest[:16], "hit" if isinstance(found, Entry) else found.reason)
        if isinstance(found, Entry) and counted:
            self.count_hit(found)
        return found

    def count_hit(self, entry: Entry) -> None:
        """Count a hit of an entry: for what ``peek`` has found without counting it."""
        if self.store is not None and self.counts_hits:
            saved_s = max(0.0, entry.build_s - entry.load_s)
            reason = BELOW if self.layers.is_below(entry) else ""
            self.store.events.append("hit", reason=reason, kind=entry.kind, key=entry.key.digest, saved_s=saved_s)

    def _fetch_remote(self, remotes: RemoteTiers, key: CacheKey, missed: Miss) -> Entry | Miss:
        fetched, store = remotes.fetch(key, self.store), self.store
        if isinstance(fetched, Entry):
            return fetched
        if not fetched or store is None:
            return missed
        self._after_put(store, key.digest, index=False)  # a listing adds the row; a hit imports no SQLAlchemy
        found = store.get(key)
        return replace(found, origin=REMOTE) if isinstance(found, Entry) else found

    def _count_miss(self, key: CacheKey, reason: str) -> None:
        if self.store is not None:
            self.store.events.append("miss", reason=reason, kind=key.kind, key=key.digest)

    @contextmanager
    def _hold_lock(
        self,
        store: DiskStore,
        key: CacheKey,
        *,
        name: str | None = None,
        busy: ContentionPolicy = ContentionPolicy(),  # noqa: B008  # immutable
    ) -> Iterator[bool]:
        """Hold the key's build lock and yield True; if it cannot be acquired, yield False and continue without.

        Building twice is only slower. ``busy`` is the contention policy: how long to wait, and whether to build after
        that.
        """
        path, building = store.path(key.digest), _BUILDING.get()
        if path in building:
            raise BuildError(key.kind, f"the build of {key.digest[:16]} requested its own entry")
        with ExitStack() as stack:
            stack.callback(_BUILDING.reset, _BUILDING.set(building | {path}))
            locked = False
            try:
                stack.enter_context(hold_build_lock(store, key, name=name or "", busy=busy))
                locked = True
            except LockTimeoutError as error:
                who = store.notes.builder(key.digest)
                if busy.policy == "eager":
                    self._count_miss(key, "busy")
                    raise BusyError(key.kind, key.digest, str(who or ""), error.waited_s) from error
                _logger.warning("building %s although %s builds it", key.digest[:16], who or "another process")
            except OSError as error:
                _logger.warning("building %s without its lock: %s", key.digest[:16], error)
            if locked:
                store.forget_absence(key.digest)
            yield locked

    def _claim(self, store: DiskStore, key: CacheKey, name: str, *, waited_s: float) -> Claim | Entry | None:
        """Claim a build among hosts, or return the entry that another host has built meanwhile; None: just build.

        Raises:
            BusyError: another host builds it, and ``on_busy`` is ``eager``.
            BuildCancelledError: a watcher cancelled the wait.
        """
        target, remotes = self.config.remotes.target, self._remotes
        if target is None or not target.claims or remotes is None:
            return None
        if self.config.recache or key.digest in self._rejected:  # an entry of another host would not be used either
            return None

        def look_up() -> Entry | None:
            found = self._look_up(key)
            return found if isinstance(found, Entry) else None

        try:
            return remotes.claim(store, key, name=name, busy=self.busy, waited_s=waited_s, look_up=look_up)
        except BusyError as error:
            if self.busy.policy == "eager":
                self._count_miss(key, "busy")
                raise
            _logger.warning("building %s although %s builds it", key.digest[:16], error.builder or "another host")
            return None

    def _call_build(
        self,
        key: CacheKey,
        build: Callable[[], Built],
        *,
        reason: str,
        name: str | None,
        provenance: Mapping[str, str] | None = None,
    ) -> Entry:
        """Build, and count a build that fails apart from one that is cancelled."""
        try:
            return run_build(key, build, reason=reason, name=name, provenance=provenance)
        except BaseException as error:
            if self.store is not None:
                ended = isinstance(error, BuildCancelledError) or not isinstance(error, Exception)  # Ctrl-C
                event = "build_cancelled" if ended else "build_failed"
                self.store.events.append(event, reason=type(error).__name__, kind=key.kind, key=key.digest)
            raise

    def _build_and_store(
        self,
        store: DiskStore,
        key: CacheKey,
        call_build: Callable[..., Entry],
        reason: str,
        *,
        locked: bool,
        claim: Claim | None,
    ) -> Entry:
        """Build, store and upload an entry; a claim is released afterwards, or by the upload."""
        with claim or nullcontext():
            self._count_miss(key, reason)
            built = call_build(reason=reason)
            may_be_there = not locked and not self.config.recache and key.digest not in self._rejected
            if may_be_there and isinstance(there := store.get(key), Entry):  # another process was faster
                return replace(there, outcome="built", reason=reason, build_s=built.build_s)
            entry = self._put(store, built)
            if entry.path is not None:
                store.events.append("put", kind=entry.kind, key=key.digest)
                self._offer(store, entry, claim)
        return entry

    def _offer(self, store: DiskStore, entry: Entry, claim: Claim | None = None) -> None:
        if self.config.remotes.target is not None and self._remotes is not None:
            self._remotes.offer(store, entry, claim)

    def _put(self, store: DiskStore, entry: Entry) -> Entry:
        """Store a new entry and return it as stored; on failure count it and return the unstored entry."""
        try:
            stored = store.put_entry(entry)
        except (OSError, StoreError) as error:
            text = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            _logger.warning("entry %s was built but not stored in %s: %s", entry.key.digest[:16], store.root, text)
            number = error.errno if isinstance(error, OSError) else None
            reason = os.strerror(number) if number else type(error).__name__
            store.events.append("put_failed", reason=reason, kind=entry.kind, key=entry.key.digest)
            return without_files(entry, reason)
        self._rejected.pop(entry.key.digest, None)
        return replace(stored, reason=entry.reason)

    def _after_put(self, store: DiskStore, digest: str, *, index: bool = True) -> None:
        """Add the index row of a new entry and prune the store to its limits. Failures are logged."""
        from trtcache.store.catalog import prune_after_put

        if index:
            from trtcache.store.catalog import add  # a hit imports no SQLAlchemy

            try:
                with suppress(UnknownKeyError):  # another process has removed it already
                    add(store, digest)
            except (OSError, StoreError) as error:
                _logger.warning("the index of %s was not updated: %s", store.root, error)
        try:
            # A sweep reads all folders, 2 to 7 ms: nothing beside a build, but as much as a hit from a remote takes.
            if index or not self._has_swept:
                self._has_swept = True
                store.sweep()
            prune_after_put(store, self.config.max_size_bytes, self.config.max_entries, keep=[digest, _ENGINE.get()])
        except (OSError, StoreError) as error:
            _logger.warning("%s was not pruned: %s", store.root, error)


def _is_digest(text: object) -> TypeGuard[str]:
    return isinstance(text, str) and HEX_DIGEST.fullmatch(text) is not None
