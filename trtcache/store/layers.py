"""Layered stores of one cache: a writable one, and read-only ones below it.

The first store that has an entry serves it. Lower stores are opened read-only: nothing in them is touched, locked,
counted or quarantined, and a damaged entry there is a miss that the upper store fills.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import (
    AmbiguousKeyError,
    CorruptBlobError,
    FormatVersionError,
    NotAStoreError,
    StoreError,
    UnknownKeyError,
    UntrustedWriterError,
)
from trtcache.store.contract import Entry, Miss, Store, miss_reason
from trtcache.store.disk import DiskStore

if TYPE_CHECKING:
    from trtcache.config.environment import Config
    from trtcache.digests import CacheKey

_logger = logging.getLogger("trtcache.store")

BELOW = "below"
"""Reason of a hit event that was served by a lower store."""


@frozen_dataclass
class Layers:
    """Open stores. ``upper`` is None if there is no usable one.

    ``copies`` copies hits from lower stores into the upper one. ``after_copy`` is then called with the upper store and
    the key's digest.
    """

    upper: DiskStore | None = None
    lower: tuple[Store, ...] = ()
    copies: bool = False
    after_copy: Callable[[DiskStore, str], None] | None = None

    @classmethod
    def of(
        cls,
        config: Config,
        *,
        upper_must_open: bool,
        lower_must_open: bool,
        after_copy: Callable[[DiskStore, str], None] | None = None,
    ) -> Layers:
        """Open the stores of a configuration. Those that the caller named must be usable; others only cause a warning.

        Raises:
            StoreError: a store that must open cannot be used.
            SettingsError: the signing key cannot be read, or ``cryptography`` is required and not installed.
        """
        if config.disable:
            return cls()
        upper: DiskStore | None = None
        try:
            upper = DiskStore.open(config.root, readonly=config.readonly, trust=config.trust)
        except StoreError as error:
            if upper_must_open:
                raise
            _logger.warning("%s; building without a cache", error)
        if upper is not None and upper.writable and not upper.can_put and not config.forbid_build:
            _logger.warning("%s", UntrustedWriterError(str(upper.root), upper.admission.why_not_stored() or ""))
        return replace(cls.below(upper, config, must_open=lower_must_open), after_copy=after_copy)

    @classmethod
    def below(cls, upper: DiskStore | None, config: Config, *, must_open: bool = False) -> Layers:
        """Open the lower stores for an open upper one."""
        stores: dict[str, Store] = {upper.location: upper} if upper else {}
        for root in config.lower:
            try:
                if not root.is_dir():
                    raise NotAStoreError(str(root), "the directory of this lower layer does not exist")
                store = DiskStore.open(root, readonly=True, trust=config.trust)
                stores.setdefault(store.location, store)
            except (OSError, StoreError) as error:
                if must_open:
                    raise
                _logger.warning("%s; continuing without this layer", error)
        return cls(upper, tuple(store for store in stores.values() if store is not upper), config.copy_up)

    @property
    def stores(self) -> tuple[Store, ...]:
        """The stores in lookup order."""
        return self.lower if self.upper is None else (self.upper, *self.lower)

    @property
    def disks(self) -> tuple[DiskStore, ...]:
        """Those stores that have an index, in the same order: what listings and searches go through."""
        return tuple(store for store in self.stores if isinstance(store, DiskStore))

    def holder(self, digest: str) -> Store | None:
        """Return the first store that has a file for a key's digest, without reading it."""
        return next((store for store in self.stores if store.contains(digest)), None)

    def why_missed(self, digest: str) -> str:
        """Return why no store would serve the entry of a key's digest; empty if one would, judged by its header.

        The reasons are those of misses: ``absent``, ``untrusted:<why>``, ``corrupt:<why>``, ``format``.
        """
        missed = "absent"
        for store in self.stores:
            if not store.contains(digest):
                continue
            try:
                verdict = store.verdict(digest) if isinstance(store, DiskStore) and store.admission.required else None
            except (CorruptBlobError, FormatVersionError) as error:
                found = miss_reason(error)
            except (OSError, StoreError):  # gone meanwhile, or unreadable
                continue
            else:
                if verdict is None or verdict.reason is None:
                    return ""
                found = f"untrusted:{verdict.reason}"
            missed = found if missed == "absent" else missed
        return missed

    def get(self, key: CacheKey) -> Entry | Miss:
        """Return the entry of ``key`` from the first store that has an intact one, or the reason for the miss.

        With ``copies``, a hit in a lower store is copied to the upper one before this returns; a failed copy is only
        logged.
        """
        missed = upper_miss = Miss("absent")
        for store in self.stores:
            found = store.get(key)
            if isinstance(found, Entry):
                return found if store is self.upper else self._from_below(store, found, upper_miss.reason)
            if store is self.upper:
                upper_miss = found
            if missed.reason == "absent":
                missed = found
        return missed

    def resolve(self, prefix: str) -> tuple[DiskStore, str]:
        """Return the first store that has the one key that starts with ``prefix``, and its full digest.

        Raises:
            UnknownKeyError: no key starts with it.
            AmbiguousKeyError: several keys do.
        """
        found: dict[str, DiskStore] = {}
        for store in self.disks:
            with suppress(UnknownKeyError):
                found.setdefault(store.resolve(prefix), store)
        if len(found) > 1:
            raise AmbiguousKeyError(prefix, tuple(sorted(found)))
        for digest, store in found.items():
            return store, digest
        raise UnknownKeyError(prefix)

    def is_below(self, entry: Entry) -> bool:
        """Return whether a hit was served by a lower store and not copied up."""
        if entry.path is None:  # built or downloaded and not stored, or a hit in a lower store without files
            return entry.outcome == "hit" and not entry.origin
        return self.upper is None or entry.path != self.upper.path(entry.key.digest)

    def _from_below(self, store: Store, entry: Entry, missed: str) -> Entry:
        """Copy a hit in a lower store to the upper one, unless the upper one keeps the file that made it miss.

        ``missed`` is the reason of the miss there.
        """
        upper = self.upper
        if not self.copies or upper is None or not upper.writable:
            return entry
        if missed.partition(":")[0] not in ("absent", "corrupt", "untrusted"):  # a newer format, another document
            return entry
        try:
            path = store.copy_to(entry, upper)
        except (OSError, StoreError) as error:
            _logger.warning("%s is used in place and not copied: %s", entry.path or entry.key.digest[:16], error)
            return entry
        if path is None:
            return entry
        upper.events.append("copy", kind=entry.kind, key=entry.key.digest)
        if self.after_copy is not None:
            self.after_copy(upper, entry.key.digest)
        return replace(entry, path=path)
