"""A store on a file system; the artifact files are authoritative.

Each entry is one file at a path derived from its key. A put writes a temporary file in the same directory, flushes and
verifies it, renames it and flushes the directories; an entry is therefore complete or absent, and what ``put``
returned survives a power cut. ``docs/format.md`` describes the directory.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trtcache.config.paths import explain_full_disk
from trtcache.config.signing_keys import Trust
from trtcache.errors import (
    CorruptBlobError,
    FormatVersionError,
    ReadOnlyError,
    UntrustedEntryError,
    UntrustedWriterError,
)
from trtcache.store.contract import COLLISION, Entry, Miss, Store, StoredContents, entry_of
from trtcache.store.events import EventLog
from trtcache.store.files import (
    TEMPORARY,
    Folders,
    Outbox,
    TemporaryFile,
    delete,
    hold,
    make_permanent,
    quarantine_time_ns,
    sweep,
    sync_directory,
    why_not_exclusive,
)
from trtcache.store.format import Admit, Content, Draft, EntryHeader, check_document
from trtcache.store.reader import LARGEST, ArtifactFile, EntryStat, StoredEntries, folders
from trtcache.store.root import MARKER, TAG, StoreRoot, is_local, prepare, private_index_root
from trtcache.store.signatures import Admission
from trtcache.store.single_flight import NOTES, NOTICE_EVERY_S, BuildNotes, BuildProcess, OnWait, Turn, turn

if TYPE_CHECKING:
    from trtcache.digests import CacheKey
    from trtcache.store.writer import IncomingFile

_logger = logging.getLogger("trtcache.store")

STALE_TEMPORARY_S: Final = 3600.0
STALE_QUARANTINE_S: Final = 7 * 86400.0
STALE_NOTE_S: Final = 7 * 86400.0


class DiskStore(StoredEntries, Store):
    """The entries below one root directory. Create it with ``open``; it has no state besides the root."""

    def __init__(self, opened: StoreRoot, admission: Admission, clock_ns: Callable[[], int]) -> None:
        super().__init__(opened.root, admission, shared=opened.shared)
        self.writable = opened.writable
        self.clock_ns = clock_ns
        self._folders = Folders(self.root, self.shared)
        self.events = EventLog(self._folders, clock_ns=clock_ns, writable=self.writable)

    @classmethod
    def open(
        cls,
        root: str | os.PathLike[str],
        *,
        readonly: bool = False,
        trust: Trust = Trust(),  # noqa: B008  # immutable
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> DiskStore:
        """Open the store at ``root``, and create it if the directory is missing or empty.

        A store that this user cannot write, or that is opened with ``readonly``, serves hits and is never modified.
        ``trust`` lists the trusted keys; without any, the entries of a shared store are ignored.

        Raises:
            NotAStoreError: the directory holds something else, or cannot be created or read.
            FormatVersionError: it is a store of a newer format.
            UnsafeStoreError: another user owns it or may write to it, and it was not declared shared.
            SettingsError: the signing key cannot be read, or ``cryptography`` is required and not installed.
        """
        opened = prepare(Path(root).absolute(), readonly=readonly)
        admission = Admission.of(trust, shared=opened.shared, writable=opened.writable, clock_ns=clock_ns)
        return cls(opened, admission, clock_ns)

    @property
    def location(self) -> str:
        """The root directory."""
        return str(self.root)

    @cached_property
    def can_put(self) -> bool:
        """Whether a put is stored: the store is writable, and this process would trust its own entries."""
        return self.writable and self.admission.why_not_stored() is None

    @cached_property
    def can_store_builds(self) -> bool:
        """Whether a build is stored: as ``can_put``, and on a network file system only where locks are known to work.

        The probe runs before a build, never for a hit.
        """
        if not self.can_put or is_local(self.root):
            return self.can_put
        why = why_not_exclusive(self.root, private_index_root(self.root))
        if why is not None:
            remedy = f"layer a store on a local disk over it: TRTCACHE_PATH=LOCAL:{self.root}"
            _logger.warning("%s: %s; hits are served, but builds are not stored. %s", self.root, why, remedy)
        return why is None

    @cached_property
    def index_root(self) -> Path:
        """The directory of the index: the store's own, or a private one of this user on this host.

        A shared store gets a private index because SQLite opens files by path and follows links, and a database that
        all members can write is not trustworthy input. A store on a network file system gets one because SQLite does
        not support their locks and caches.
        """
        return private_index_root(self.root) if self.shared or not is_local(self.root) else self.root

    def get(self, key: CacheKey) -> Entry | Miss:
        """Return the entry of ``key``, with every byte of its file verified, or the reason for a miss.

        A damaged file is quarantined with a warning. A file of a newer format, an entry of another key document with
        the same digest, and an entry with untrusted signatures are left in place.
        """
        began_s = time.perf_counter()
        inode = _inode(self.path(key.digest))
        try:
            file = self._open(key.digest, self.admission.admit(str(self.path(key.digest))))
            if file.header.key.document != key.document:
                # An entry of another key document with the same digest, unless its document is damaged, which raises.
                check_document(file.header, str(file.path))
                _logger.warning("%s was built for another key document with the same digest; it is not used", file.path)
                return Miss(COLLISION)
            contents = file.load(mapped=self.private)
        except FileNotFoundError:
            return Miss("absent")
        except FormatVersionError as error:
            _logger.warning("%s", error)
            return Miss("format")
        except UntrustedEntryError as error:
            _logger.info("%s", error)
            return Miss(f"untrusted:{error.reason}")
        except CorruptBlobError as error:
            _logger.warning("%s; it is a miss", error)
            self.quarantine_damage(key.digest, error.reason, inode)
            return Miss(f"corrupt:{error.reason}")
        except OSError as error:
            _logger.warning("%s cannot be read: %s", self.path(key.digest), error.strerror)
            return Miss("unreadable")
        if self.writable:
            file.touch()
        file.close()  # a mapping keeps its own reference to the file
        load_s = time.perf_counter() - began_s
        return entry_of(file.header, contents, path=file.path, outcome="hit", load_s=load_s)

    def put(
        self,
        key: CacheKey,
        contents: Mapping[str, Content],
        *,
        kind: str,
        name: str | None = None,
        build_s: float = 0.0,
        provenance: Mapping[str, str] | None = None,
    ) -> Entry:
        """Store the result of a build, replacing any entry of ``key``, and return it with outcome ``built``.

        When it returns, the entry is durable. When it raises, an older entry is unchanged. A failed flush is not
        retried: the kernel may have dropped the pages and report success the second time.

        Raises:
            ReadOnlyError: the store cannot be written.
            UntrustedWriterError: the store requires signatures, and this process has no trusted key.
            OSError: the disk is full or failing.
            CorruptBlobError: the file does not read back as written.
            BuildError: a member's file cannot be read.
            HeaderSizeError: the key document is too large for a header.
        """
        self._require_writable("store an entry")
        if why := self.admission.why_not_stored():
            raise UntrustedWriterError(str(self.root), why)
        began_s = time.perf_counter()
        draft = Draft(key, kind, name, self.clock_ns(), build_s, dict(provenance or {}), contents)
        from trtcache.store.writer import write_entry_file  # a hit does not need it

        with self.place(key.digest) as place:
            file = self._publish(place, lambda fd: write_entry_file(fd, draft, self.admission.key))
        stored = StoredContents(file, contents, mapped=self.private)
        load_s = time.perf_counter() - began_s
        return entry_of(file.header, stored, path=self.path(key.digest), outcome="built", load_s=load_s)

    def put_entry(self, entry: Entry) -> Entry:
        """Store an entry that was built, or that another kind of store has, as ``put`` does."""
        return self.put(
            entry.key,
            entry.contents,
            kind=entry.kind,
            name=entry.name,
            build_s=entry.build_s,
            provenance=entry.provenance,
        )

    def copy_to(self, entry: Entry, target: DiskStore) -> Path | None:
        """Copy the file of an entry to another store, byte for byte and with its signatures.

        A file that the target would serve is kept, and one that is damaged or untrusted is replaced. Entries of a group
        without signatures are not copied: the target would vouch for them.

        Raises:
            OSError: the entry cannot be read or written.
            CorruptBlobError: it is damaged, or has been replaced by the entry of another key.
            FormatVersionError: it, or the file in the target, has a newer format.
            UntrustedEntryError: its signatures are not trusted in the source or in the target.
            ReadOnlyError: ``target`` is not writable.
        """
        if self.shared and not self.admission.required:
            _logger.info("%s stays in %s: entries of a group without signatures are not copied", entry.path, self.root)
            return None
        path, original = target.path(entry.key.digest), self.path(entry.key.digest)
        admit = target.admission.admit(str(path))
        with (
            suppress(FileNotFoundError, CorruptBlobError, UntrustedEntryError),
            target.open_entry(entry.key.digest, admit) as existing,
        ):
            return path if existing.header.key == entry.key else None
        file = ArtifactFile(original, shared=self.shared, admit=self.admission.admit(str(original)))
        try:
            if file.header.key != entry.key:
                raise CorruptBlobError(str(original), "key", "it is the entry of another key")
            target.receive(file)
        finally:
            file.close()
        return path

    def receive(self, file: ArtifactFile | IncomingFile, *, durable: bool = True) -> EntryStat:
        """Copy an open artifact file of another store or remote into this one; the caller adds the index row.

        Unless it is ``durable``, a power cut may remove the copy until ``make_durable``.

        Runs in constant memory: the stored bytes and the signatures that this store requires are verified before the
        copy is renamed into place, the decompressed content when a member is used.

        Raises:
            CorruptBlobError: the copy is damaged, or does not begin with the file's header.
            UntrustedEntryError: this store requires signatures, and does not trust those of the file.
            OSError: it cannot be written.
            Exception: any exception of the chunks of an incoming file.
        """
        digest = file.header.key.digest
        admit = self.admission.admit(str(self.path(digest)))

        def copy(fd: int) -> EntryHeader:
            file.copy_to(fd)
            return file.header

        with self.place(digest) as place:
            stored = self._publish(place, copy, admit, durable=durable)
        stored.close()
        return EntryStat.of(digest, stored.stat)

    def make_durable(self, digests: Iterable[str]) -> None:
        """Flush the names of received entries to the disk: one flush of a directory for all that arrived in it."""
        for name in sorted({digest[:2] for digest in digests}):
            with suppress(FileNotFoundError), self._folders.inside("entries", name) as folder:
                sync_directory(folder)

    @contextmanager
    def open_entry(self, digest: str, admit: Admit | None) -> Iterator[ArtifactFile]:
        """Open the file of an entry to copy it.

        Raises:
            FileNotFoundError: there is none.
            CorruptBlobError, FormatVersionError, UntrustedEntryError: as for ``ArtifactFile``.
        """
        file = self._open(digest, admit)
        try:
            check_document(file.header, str(file.path))
            yield file
        finally:
            file.close()

    def address(self, digest: str) -> str:
        """Return the path of an entry as text, for messages."""
        return str(self.path(digest))

    @contextmanager
    def place(self, digest: str) -> Iterator[Path]:
        """Yield the path to publish the entry of a key digest at; its directory exists."""
        self._require_writable("store an entry")
        remedy = "free space with 'trtcache prune' or 'trtcache clean', or use another cache directory"
        path = self.path(digest)
        with explain_full_disk(path, remedy), self._folders.inside("entries", digest[:2], make=True) as folder:
            yield folder / path.name if self.shared else path

    def _publish(
        self, path: Path, write: Callable[[int], EntryHeader], admit: Admit | None = None, *, durable: bool = True
    ) -> ArtifactFile:
        with TemporaryFile(path.parent) as temporary:
            header = write(temporary.fd)
            os.fsync(temporary.fd)
            file = ArtifactFile(temporary.path, shared=self.shared, admit=admit)
            if file.header != header:
                raise CorruptBlobError(str(temporary.path), "header", "it does not read back as written")
            file.verify_stored()
            temporary.commit(path, durable=durable)
        return file

    def remove(self, digest: str) -> int:
        """Delete an entry and return the bytes freed, 0 if there was none. Delete its index row first."""
        self._require_writable("remove an entry")
        try:
            with self._folders.inside("entries", digest[:2]) as folder:
                return delete(folder / self.path(digest).name)
        except FileNotFoundError:
            return 0

    def quarantine(self, digest: str, reason: str) -> None:
        """Move an entry to the quarantine directory and count it. Does nothing if the entry is gone."""
        self._require_writable("quarantine an entry")
        word = re.sub(r"[^a-z0-9-]", "-", reason.lower())[:32]
        inside = self._folders.inside
        try:
            with inside("quarantine", make=True) as target, inside("entries", digest[:2]) as folder:
                (folder / self.path(digest).name).rename(target / f"{digest}.{word}.{self.clock_ns()}")
        except FileNotFoundError:
            return
        self.events.append("quarantine", reason=reason, key=digest)

    def quarantine_damage(self, digest: str, reason: str, inode: int) -> None:
        """Quarantine the damaged file with this inode number, if the store is writable and it is still there.

        Another process may have found the same damage and already replaced the file.
        """
        if self.writable and _inode(self.path(digest)) == inode:
            with suppress(OSError):
                self.quarantine(digest, reason)

    def pin(self, digest: str) -> None:
        """Pin an entry. A pin is a file, so it survives the loss of the index."""
        self._require_writable("pin an entry")
        with self._folders.inside("pins", make=True) as pins:
            make_permanent(pins / digest)
            sync_directory(pins)

    def unpin(self, digest: str) -> None:
        """Remove a pin, if there is one."""
        self._require_writable("unpin an entry")
        with suppress(FileNotFoundError), self._folders.inside("pins") as pins:
            (pins / digest).unlink(missing_ok=True)
            sync_directory(pins)

    def flight(
        self,
        digest: str,
        *,
        who: BuildProcess | None = None,
        timeout_s: float | None = None,
        on_wait: OnWait | None = None,
        notice_every_s: float = NOTICE_EVERY_S,
    ) -> AbstractContextManager[Turn]:
        """Hold the build lock of a key, in a permanent file, and note ``who`` next to it.

        Raises:
            LockTimeoutError: another process held it for ``timeout_s`` seconds.
            OSError: its directory cannot be created, or the file system has no locks.
            Exception: any exception of ``on_wait``, which is called while this waits.
        """
        who = who or BuildProcess.here()
        return turn(self._folders, digest, who, timeout_s=timeout_s, on_wait=on_wait, notice_every_s=notice_every_s)

    @contextmanager
    def lock(self, digest: str) -> Iterator[int]:
        """Hold the lock of a digest without waiting, and yield its descriptor, which a child process may inherit.

        Raises:
            LockTimeoutError: another process holds it.
            OSError: its directory cannot be created, or the file system has no locks.
        """
        with ExitStack() as stack:
            with self._folders.inside("locks", digest[:2], make=True) as folder:
                fd = stack.enter_context(hold(folder / f"{digest}.lock", timeout_s=0.0))
            yield fd

    @property
    def notes(self) -> BuildNotes:
        """The status files of running builds."""
        return BuildNotes(self._folders)

    @property
    def outbox(self) -> Outbox:
        """The entries that are waiting for their upload."""
        return Outbox(self._folders)

    def forget_absence(self, digest: str) -> None:
        """Make a network file system forget that an entry was absent.

        A client caches failed lookups, for 29 s in one measurement with NFS 4.2, and looks again in a directory that it
        has modified itself.
        """
        if not is_local(self.root):
            with suppress(OSError), self._folders.inside("entries", digest[:2], make=True) as folder:
                with TemporaryFile(folder) as probe:
                    probe.close()
                probe.path.unlink()

    @contextmanager
    def housekeeping(self) -> Iterator[None]:
        """Hold the lock for pruning the store."""
        with self._folders.inside("locks", make=True) as folder, hold(folder / "prune.lock", timeout_s=0):
            yield

    def sweep(self, *, temporary_s: float = STALE_TEMPORARY_S, quarantine_s: float = STALE_QUARANTINE_S) -> int:
        """Delete abandoned temporary files and old quarantined files; return the bytes freed.

        Temporary files younger than ``temporary_s`` seconds are kept, as their writers may be alive. Status files of
        builds and waits are kept for a week in any case.
        """
        self._require_writable("sweep")
        if not self.shared:  # there another member could give a file of this user one of these names
            for name in (MARKER, TAG):  # a scratch file system may delete files that are not modified for long
                with suppress(OSError):
                    os.utime(self.root / name, follow_symlinks=False)
        now_ns = self.clock_ns()
        temporary_ns, quarantine_ns = now_ns - int(temporary_s * 1e9), now_ns - int(quarantine_s * 1e9)
        stale: list[tuple[tuple[str, ...], str, int]] = [((), TEMPORARY, temporary_ns)]
        stale += [(("locks", name), "", now_ns - int(STALE_NOTE_S * 1e9)) for name in NOTES]
        stale += [(("entries", name), TEMPORARY, temporary_ns) for name in folders(self.root)]
        if self.shared:  # permanent files of a shared store are created under a temporary name
            stale += [((name,), TEMPORARY, temporary_ns) for name in ("events", "pins", "locks", "outbox")]
            stale += [(("locks", name), TEMPORARY, temporary_ns) for name in folders(self.root, "locks")]
        freed_bytes = 0
        if not quarantine_s:
            quarantine_ns = LARGEST  # all of them, whatever time their names have
        with suppress(OSError), self._folders.inside("quarantine") as folder:
            freed_bytes += sweep(folder, "", quarantine_ns, quarantine_time_ns)
        if self.index_root != self.root:  # where a damaged private index is quarantined
            freed_bytes += sweep(self.index_root / "quarantine", "", quarantine_ns, quarantine_time_ns)
        for names, prefix, before_ns in stale:
            with suppress(OSError), self._folders.inside(*names) as folder:
                freed_bytes += sweep(folder, prefix, before_ns)
        return freed_bytes

    def _require_writable(self, action: str) -> None:
        if not self.writable:
            raise ReadOnlyError(str(self.root), action)


def _inode(path: Path) -> int:
    try:
        return path.lstat().st_ino & LARGEST  # as in EntryStat
    except OSError:
        return 0
