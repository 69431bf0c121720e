"""The torch-free door: keep what any builder makes, and build each thing once.

``get_or_build`` is all that ``trtcache.compile`` uses of the store. Trouble with the store never becomes the caller's:
a damaged entry is a miss with a reason, and what was built is returned even if it could not be kept. Trouble with the
build always does.
"""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING

from trtcache.config import logs
from trtcache.config.contention import ContentionPolicy
from trtcache.config.environment import Config
from trtcache.config.folders import absolute, absolutes
from trtcache.config.units import parse_size
from trtcache.digests import CacheKey
from trtcache.errors import BuildError, BuildForbiddenError, BusyError, LockTimeoutError, SettingsError, StoreError
from trtcache.store.build_turn import hold_build_lock
from trtcache.store.disk import COLLISION, DiskStore, Miss
from trtcache.store.entry import Entry
from trtcache.store.labels import check_kind, check_name, check_parts, check_provenance
from trtcache.store.layers import BELOW, Layers
from trtcache.store.pending_build import PendingBuild

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from trtcache.store.format import Built

_logger = logging.getLogger("trtcache.cache")

_BUILDING: ContextVar[frozenset[Path]] = ContextVar("trtcache.building", default=frozenset())
"""The entries that this thread holds the locks of: to wait for one of them would be to wait for itself."""


class Cache:
    """A cache in one directory, and what it finds in read-only ones below, as the configuration allows it to be used.

    ``store`` is None where there is none to use: disabled, or unusable. A root that the caller names must be usable;
    one from the environment or the default may fail, with a warning, and then everything is built. ``layers`` are all
    stores that are looked in, ``store`` before the others.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        *,
        max_size: int | str | None = None,
        lower: Iterable[str | os.PathLike[str]] | None = None,
        copy_up: bool | None = None,
        config: Config | None = None,
        on_busy: str | None = None,
        busy_timeout_s: float | None = None,
    ) -> None:
        """Open the cache at ``root`` (default: ``TRTCACHE_DIR``, or the user's cache directory).

        ``max_size`` (bytes, or text such as ``20GB``; 0: no limit) and ``root`` come before what ``config`` says,
        which is read from the environment if it is not given; a ``root`` stands for the whole of ``TRTCACHE_PATH``.
        Hits come from the stores in ``lower`` too, which are never written to: in place, or with ``copy_up`` as a copy
        in ``root``.

        ``on_busy`` says what a caller does while another builds what he wants: ``wait`` for it, ``build`` it too, or
        ``eager``: do without, which ``compile`` does in torch and ``get_or_build`` by a ``BusyError``. It waits for
        ``busy_timeout_s`` before; then one that was told to wait builds. Both come before what ``config`` says.

        Raises:
            SettingsError: ``root`` or one of ``lower`` is no path, ``max_size`` or a variable has an impossible value,
                the signing key cannot be read, or ``cryptography`` is wanted and not installed.
            StoreError: ``root`` or one of ``lower`` was given and is not a store, of a later format, or not safe.
        """
        self.config = config or Config.from_environ(os.environ)
        logs.start({logs.VARIABLE: self.config.log})
        if root is not None:
            if not isinstance(root, (str, os.PathLike)):
                raise SettingsError("cache", f"expected a Cache, a directory or None, got {root!r}")
            self.config = replace(self.config, root=absolute(root, "cache"), lower=())
        if lower is not None:
            self.config = replace(self.config, lower=absolutes(lower, "lower"))
        if copy_up is not None:
            self.config = replace(self.config, copy_up=bool(copy_up))
        if max_size is not None:
            self.config = replace(self.config, max_size_bytes=parse_size(max_size, "max_size") or None)
        self.busy = self.config.busy.override(on_busy, busy_timeout_s)
        self._rejected: dict[str, str] = {}
        self._damaged: dict[str, str] = {}
        self.layers = Layers.of(self.config, named=root is not None, named_below=lower is not None, tend=self._tend)
        self.store = self.layers.upper

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> Cache:
        """Return the cache that the ``TRTCACHE_*`` variables describe.

        Raises:
            SettingsError: a variable has an impossible value.
        """
        return cls(config=Config.from_environ(environ))

    def key(self, parts: Mapping[str, object], *, kind: str) -> CacheKey:
        """Return the key of the build of a ``kind`` of artifact from named ``parts``.

        Raises:
            CanonicalizationError: a part has no stable value, or ``kind`` is not 1 to 64 of ``a-z0-9._-``.
        """
        check_kind(kind)
        check_parts(parts)
        return CacheKey.of(kind, parts)

    def get(self, key: CacheKey) -> Entry | None:
        """Return the entry of ``key``, every byte verified, or None. Counts the hit or the miss."""
        if not self.layers.stores:
            return None
        found = self._look(key)
        if isinstance(found, Entry):
            return found
        self._count_miss(key, found.reason)
        return None

    def peek(self, key: CacheKey, *, counted: bool = True) -> Entry | None:
        """Return the entry of ``key`` as ``get`` does, and leave it to the caller's ``fetch`` to count a miss.

        Without ``counted`` a hit is not counted either: for entries that only lead to others.
        """
        if not self.layers.stores:
            return None
        found = self._look(key, counted=counted)
        if isinstance(found, Miss) and found.reason.startswith("corrupt:"):
            self._damaged[key.digest] = found.reason  # it is in quarantine now, and the caller's fetch finds none
        return found if isinstance(found, Entry) else None

    def keep(self, key: CacheKey, built: Built, *, build_s: float, name: str | None = None) -> None:
        """Store what was made beside a build, such as a way to its key; ``build_s`` is what having it saves.

        Nobody waits for such an entry and none is counted, only a failure to store it, which costs the caller nothing.
        """
        store = self.store
        if store is not None and store.takes:
            made = replace(PendingBuild(key, lambda: built, name, {}).run("kept"), build_s=build_s)
            if self._put(store, made) is not made:
                self._tend(store, key.digest)

    def recall(self, kind: str, parts: Mapping[str, object]) -> bytes | None:
        """Return what ``merge`` kept for ``parts``, or None. It is neither a hit nor a miss.

        Raises:
            CanonicalizationError: a part has no stable value.
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
        """Put what ``combine`` makes of the content kept for ``parts`` in its place; nothing where it returns None.

        Of all threads and processes one does so at a time, so that none loses what another added. For what saves time
        and may be lost: nothing is counted but a failure to store it, and trouble with the store is a warning. A prune
        takes ``saves_s`` for the seconds of its build.

        Raises:
            CanonicalizationError: a part has no stable value.
            Exception: whatever ``combine`` raises.
        """
        store, key = self.store, self.key(parts, kind=kind)
        if store is None or not store.takes:
            return
        with self._alone(store, key):
            found = self.layers.get(key)
            made = combine(bytes(found.read()) if isinstance(found, Entry) else None)
            if made is not None:
                self.keep(key, made, build_s=saves_s, name=name)

    def get_or_build(
        self,
        parts: Mapping[str, object],
        build: Callable[[], Built],
        *,
        kind: str,
        name: str | None = None,
        provenance: Mapping[str, str] | None = None,
    ) -> Entry:
        """Return the entry that ``parts`` describe; call ``build`` for it if there is none.

        ``parts`` is everything that the artifact depends on: named values, and ``trtcache.digest(path)`` of files.
        ``build`` returns bytes, the ``Path`` of a file, or a mapping of member names to those. Of all threads and
        processes that want the same entry, one builds. ``name`` is for people; ``provenance`` is kept in the entry.

        Raises:
            CanonicalizationError: a part has no stable value, or what describes the entry cannot be kept.
            BuildForbiddenError: there is no entry and ``TRTCACHE_FORBID_BUILD=1``.
            BusyError: there is none, another process builds it, and ``on_busy`` is ``eager``; it names that process.
            BuildCancelledError: who watches the build called off to wait for another.
            BuildError: ``build`` returned what cannot be kept, or a file that is gone, or asked for its own entry.
            Exception: whatever ``build`` raises.
        """
        return self.fetch(self.key(parts, kind=kind), build, name=name, provenance=provenance)

    def fetch(
        self,
        key: CacheKey,
        build: Callable[[], Built],
        *,
        name: str | None = None,
        provenance: Mapping[str, str] | None = None,
    ) -> Entry:
        """Do as ``get_or_build`` for a key that is already made.

        Raises:
            CanonicalizationError: the key's kind, ``name`` or ``provenance`` cannot be kept.
            BuildForbiddenError: there is no entry and ``TRTCACHE_FORBID_BUILD=1``.
            BusyError: there is none, another process builds it, and ``on_busy`` is ``eager``; it names that process.
            BuildCancelledError: who watches the build called off to wait for another.
            BuildError: ``build`` returned what cannot be kept, or a file that is gone, or asked for its own entry.
            Exception: whatever ``build`` raises.
        """
        check_kind(key.kind)
        check_name(name)
        check_provenance({} if provenance is None else provenance)
        made = PendingBuild(key, build, name, provenance or {})
        store = self.store
        found = self._look(key)
        if isinstance(found, Entry):
            return found
        if self.config.forbid_build:
            self._count_miss(key, found.reason)
            raise self._forbidden(key, found.reason)
        if store is None or not store.writable:
            return made.run("readonly" if store else found.reason)
        if not store.takes:
            self._count_miss(key, found.reason)
            return made.run(found.reason)  # nobody else would take it, so nobody has to wait for it
        if found.reason == COLLISION:
            self._count_miss(key, COLLISION)
            return made.run(COLLISION)  # what is there is another program's, and as good as this one
        with self._alone(store, key, name=name, busy=self.busy) as alone:
            again = self._look(key)
            entry = again if isinstance(again, Entry) else self._build(store, made, found.reason, alone=alone)
        if entry.outcome == "built" and entry.path is not None:
            self._tend(store, key.digest)
        return entry

    def _forbidden(self, key: CacheKey, reason: str) -> BuildForbiddenError:
        variables = {"recache": "TRTCACHE_RECACHE=1", "disabled": "TRTCACHE_DISABLE=1"}
        root = str(self.config.root)
        if reason in variables:
            return BuildForbiddenError(key.kind, key.digest, root, lack=f"{variables[reason]} asks to build")
        return BuildForbiddenError(key.kind, key.digest, root)

    def build_uncached(self, build: Callable[[], Built], *, kind: str, why: str, name: str | None = None) -> Entry:
        """Build what can have no key, and count it as a miss. The entry's key is one that no store has.

        Raises:
            BuildForbiddenError: ``TRTCACHE_FORBID_BUILD=1``.
            BuildError: ``build`` returned what an entry cannot hold, or a file that is gone.
            Exception: whatever ``build`` raises.
        """
        if self.store is not None:
            self.store.events.append("miss", reason="uncacheable", kind=kind)
        if self.config.forbid_build:
            raise BuildForbiddenError(kind, "", str(self.config.root), f"uncacheable: {why}")
        made = PendingBuild(CacheKey.of(kind, {"uncacheable": why}), build, name, {})
        return made.run(f"uncacheable: {why}")

    def reject(self, entry: Entry, reason: str) -> None:
        """Put aside an entry that is sound but of no use, such as one that its loader refused; count it.

        This cache does not return it again, even where the store cannot be written.
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

    def _look(self, key: CacheKey, *, counted: bool = True) -> Entry | Miss:
        if not self.layers.stores:
            return Miss("disabled" if self.config.disable else "unusable")
        if self.config.recache:
            return Miss("recache")
        if key.digest in self._rejected:
            return Miss(self._rejected[key.digest])
        found = self.layers.get(key)
        if (damage := self._damaged.pop(key.digest, "")) and found == Miss("absent"):
            found = Miss(damage)
        _logger.debug("%s %s: %s", key.kind, key.digest[:16], "hit" if isinstance(found, Entry) else found.reason)
        if isinstance(found, Entry) and counted and self.store is not None:
            saved_s = max(0.0, found.build_s - found.load_s)
            reason = BELOW if self.layers.is_below(found) else ""
            self.store.events.append("hit", reason=reason, kind=found.kind, key=key.digest, saved_s=saved_s)
        return found

    def _count_miss(self, key: CacheKey, reason: str) -> None:
        if self.store is not None:
            self.store.events.append("miss", reason=reason, kind=key.kind, key=key.digest)

    @contextmanager
    def _alone(
        self, store: DiskStore, key: CacheKey, *, name: str | None = None, busy: ContentionPolicy | None = None
    ) -> Iterator[bool]:
        """Hold the key's lock, and say so; where there is no lock to be had, go on without.

        Building twice is only slow. ``busy`` says how long to wait, and whether to go on if another still builds then.

        Raises:
            BuildError: this thread holds it already.
            BusyError: another holds it, and ``busy`` is not to build.
            BuildCancelledError: who watches builds does not want to wait.
        """
        path, building = store.path(key.digest), _BUILDING.get()
        if path in building:
            raise BuildError(key.kind, f"the build of {key.digest[:16]} asks for itself")
        with ExitStack() as stack:
            stack.callback(_BUILDING.reset, _BUILDING.set(building | {path}))
            alone = False
            try:
                stack.enter_context(hold_build_lock(store, key, name=name or "", busy=busy or ContentionPolicy()))
                alone = True
            except LockTimeoutError as error:
                self._go_without(store, key, busy or ContentionPolicy(), error.waited_s)
            except OSError as error:
                _logger.warning("building %s without its lock: %s", key.digest[:16], error)
            if alone:
                store.look_again(key.digest)
            yield alone

    def _go_without(self, store: DiskStore, key: CacheKey, busy: ContentionPolicy, waited_s: float) -> None:
        """Build although another does, or raise a BusyError."""
        who = store.notes.builder(key.digest)
        if busy.policy == "eager":
            self._count_miss(key, "busy")
            raise BusyError(key.kind, key.digest, str(who or ""), waited_s)
        _logger.warning("building %s although %s builds it", key.digest[:16], who or "another process")

    def _build(self, store: DiskStore, made: PendingBuild, reason: str, *, alone: bool) -> Entry:
        self._count_miss(made.key, reason)
        built = made.run(reason)
        if not alone and isinstance(there := store.get(made.key), Entry) and not self.config.recache:
            return replace(there, outcome="built", reason=reason, build_s=built.build_s)  # another was quicker
        entry = self._put(store, built)
        if entry.path is not None:
            store.events.append("put", kind=entry.kind, key=made.key.digest)
        return entry

    def _put(self, store: DiskStore, entry: Entry) -> Entry:
        """Return what was built as it is in the store; itself if it cannot be stored, which is counted."""
        try:
            stored = store.put(
                entry.key,
                entry.contents,
                kind=entry.kind,
                name=entry.name,
                build_s=entry.build_s,
                provenance=entry.provenance,
            )
        except (OSError, StoreError) as error:
            _logger.warning("entry %s was built but not stored: %s", entry.key.digest[:16], error)
            store.events.append("put_failed", reason=_word(error), kind=entry.kind, key=entry.key.digest)
            return entry
        self._rejected.pop(entry.key.digest, None)
        return replace(stored, reason=entry.reason)

    def _tend(self, store: DiskStore, digest: str) -> None:
        """Give a new entry its index row and keep the store under its limit. A failure costs neither entry nor call."""
        from trtcache.store.catalog import add  # a hit imports no SQLAlchemy
        from trtcache.store.gc import prune_after_put

        try:
            add(store, digest)
            store.sweep()
            prune_after_put(store, self.config.max_size_bytes, self.config.max_entries, keep=[digest])
        except (OSError, StoreError) as error:
            _logger.warning("the index of %s is left behind: %s", store.root, error)


def _word(error: Exception) -> str:
    if isinstance(error, OSError):
        return os.strerror(error.errno) if error.errno else type(error).__name__
    return type(error).__name__
