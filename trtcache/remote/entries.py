"""The entries of a remote for commands: listed, copied, verified and removed. No look-up of a compile needs this.

Names of objects are untrusted: what does not follow the layout is ignored, and no name becomes a path on this machine.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trtcache.errors import CorruptBlobError, FormatVersionError, RemoteError, UnknownKeyError, UntrustedEntryError
from trtcache.remote.bucket import ARCHIVED, RemoteObject, open_bucket
from trtcache.remote.connection import REMEDIES
from trtcache.remote.tier import object_name
from trtcache.store.contract import ABSENT, miss_reason
from trtcache.store.format import Admit, EntryHeader, check_document
from trtcache.store.parallel import call_in_thread, map_in_threads
from trtcache.store.reader import ArtifactFile, EntryStat
from trtcache.store.record import Record
from trtcache.store.signatures import Admission, Verdict
from trtcache.store.sync import REMOTE_THREADS
from trtcache.store.writer import IncomingFile

if TYPE_CHECKING:
    from trtcache.config.remotes import RemoteSettings, RemoteUrl
    from trtcache.config.signing_keys import Trust

MARKER: Final = "trtcache-remote.json"
FORMAT: Final = 1

_ENTRY = re.compile(r"entries/v1/([0-9a-f]{2})/(\1[0-9a-f]{62})\.trtc")
_PIN = re.compile(r"pins/([0-9a-f]{64})")
_BEGIN_BYTES = 64 << 10
_MOST_MARKER_BYTES = 4096
_MOST_UNTRUSTED_BYTES = 1 << 20
"""Longest header that is parsed although no trusted key signed it: 40 of 7 MB took 2.4 GB of memory at once."""


class RemoteEntries:
    """The entries below one URL, with requests that may take longer than a look-up.

    It is a source or a target of ``trtcache.store.sync``. As in a shared store, signatures are required by default.
    Each method raises RemoteError if a request fails, or if the server cannot list.
    """

    shared = True

    def __init__(
        self,
        url: RemoteUrl,
        settings: RemoteSettings,
        trust: Trust,
    ) -> None:
        self.url = url
        self.admission = Admission.of(trust, shared=True, writable=False, clock_ns=time.time_ns)
        self._bucket = open_bucket(url, settings, patient=True)
        self._long_header = threading.Lock()

    @property
    def location(self) -> str:
        """The URL, with the endpoint if there is one."""
        return self.url.text + (f"?endpoint={self.url.endpoint}" if self.url.endpoint else "")

    def address(self, digest: str) -> str:
        """Return where the entry of a key digest is, for messages."""
        return f"{self.url.text}/{object_name(digest)}"

    def require_trust(self) -> None:
        """Check that entries can be copied from here or to here at all.

        Raises:
            RemoteError: signatures are required, and no key is trusted.
        """
        if self.admission.required and not self.admission.keys:
            raise RemoteError(self.url.text, "no-trusted-key", REMEDIES["no-trusted-key"])

    def check_format(self) -> bool:
        """Return whether the remote was prepared with ``trtcache init``.

        Raises:
            FormatVersionError: by a version of trtcache that uses another layout.
            CorruptBlobError: its marker is not what ``trtcache init`` writes.
            RemoteError: the request failed.
        """
        where = f"{self.url.text}/{MARKER}"

        def read() -> bytes:
            content = b""
            for chunk in self._bucket.get(MARKER)[1]:
                content += chunk
                if len(content) > _MOST_MARKER_BYTES:  # whatever length was declared
                    return b""
            return content

        try:
            content = call_in_thread(read)
        except FileNotFoundError:
            return False
        try:
            found = json.loads(content)["format"]
        except (KeyError, RecursionError, TypeError, ValueError):
            found = None
        if type(found) is not int or not 0 < found < 1000:
            raise CorruptBlobError(where, "header", "it is not the file that 'trtcache init' writes")
        if found != FORMAT:
            raise FormatVersionError(where, found, FORMAT)
        return True

    def prepare(self) -> bool:
        """Write the file that names the layout, and return whether there was none.

        Raises:
            FormatVersionError: the remote has another layout.
            CorruptBlobError: it has another file of this name; delete that.
            RemoteError: the request failed.
        """
        content = memoryview(json.dumps({"format": FORMAT}).encode())
        made = call_in_thread(lambda: self._bucket.put(MARKER, iter([content]), len(content)))
        self.check_format()
        return made

    def scan(self) -> Iterator[EntryStat]:
        """Yield the size and the time of the upload of each entry, by a listing."""
        for found in self._list("entries/v1", _ENTRY, [f"{number:02x}" for number in range(256)]):
            yield EntryStat(Path(found.name).stem, found.size_bytes, found.modified_ns, 0)

    def pins(self) -> frozenset[str]:
        """Return the digests of pinned entries."""
        return frozenset(Path(found.name).name for found in self._list("pins", _PIN))

    def _list(self, folder: str, wanted: re.Pattern[str], below: Collection[str] = ()) -> list[RemoteObject]:
        def read() -> list[RemoteObject]:
            # Names that do not count are not kept: a million of 1 KB would take 1.3 GB.
            return [found for found in self._bucket.list(folder, after="0") if wanted.fullmatch(found.name)]

        try:
            return call_in_thread(read)
        except FileNotFoundError:
            return []
        except RemoteError as error:
            if self.url.scheme in ("http", "https") and error.reason not in ("unreachable", "timeout"):
                why = "this web server does not list its folders; it would have to answer PROPFIND of WebDAV"
                raise RemoteError(self.url.text, "no-list", why) from error
            if error.reason != "name" or not below:
                raise
        # A name that is no path, such as "entries/v1/../x", fails the whole listing. In a folder, names that begin
        # with a dot or a slash are before "0".
        folders = [f"{folder}/{name}" for name in below]
        listings = map_in_threads(lambda name: self._list(name, wanted), folders, REMOTE_THREADS)
        return [found for _, listed in listings for found in listed]

    def pin(self, digest: str) -> None:
        """Pin an entry: ``prune`` keeps it."""
        call_in_thread(lambda: self._bucket.put(f"pins/{digest}", iter(()), 0))

    @contextmanager
    def open_entry(self, digest: str, admit: Admit | None) -> Iterator[IncomingFile]:
        """Download an entry; its header is received and authenticated, the rest arrives when it is read.

        Raises:
            FileNotFoundError: there is none.
            CorruptBlobError, FormatVersionError, UntrustedEntryError: as for ``IncomingFile.open``.
            RemoteError: the request failed.
        """
        found, chunks = self._bucket.get(object_name(digest))
        yield IncomingFile.open(chunks, found.size_bytes, digest, where=self.address(digest), admit=admit)

    def receive(self, file: ArtifactFile | IncomingFile) -> EntryStat | None:
        """Upload an entry after all of its stored bytes were verified; return None if it was there already.

        Raises:
            CorruptBlobError: it is damaged.
            RemoteError: a request failed.
        """
        if isinstance(file, IncomingFile):
            spooled = file.spool(None)
            try:
                return self.receive(spooled)
            finally:
                spooled.close()
        file.verify_stored()
        digest, size_bytes = file.header.key.digest, file.stat.st_size
        sent = self._bucket.put(object_name(digest), file.chunks(), size_bytes)
        return EntryStat(digest, size_bytes, time.time_ns(), 0) if sent else None

    def read_header(self, digest: str) -> tuple[EntryHeader, Verdict]:
        """Return an entry's header and who signed it, by a request for its first 64 KiB.

        Raises:
            UnknownKeyError: there is none any more.
            UntrustedEntryError: no trusted key signed it, and it is too long to be parsed then.
            CorruptBlobError, FormatVersionError: as for ``IncomingFile.open``.
            RemoteError: a request failed.
        """
        verdicts: list[Verdict] = []
        try:
            size_bytes, begin = self._begin(object_name(digest))
            where, admit = self.address(digest), self._judge(digest, verdicts, most_bytes=_MOST_UNTRUSTED_BYTES)
            with closing(begin):
                file = IncomingFile.open(begin, size_bytes, digest, where=where, admit=admit)
        except FileNotFoundError as error:
            raise UnknownKeyError(digest) from error
        check_document(file.header, where)
        return file.header, verdicts[0]

    def _begin(self, name: str) -> tuple[int, Generator[bytes]]:
        try:
            found, begin = self._bucket.get(name, most_bytes=_BEGIN_BYTES)
        except RemoteError as error:
            if error.reason != "error":
                raise
            found, whole = self._bucket.get(name)  # the server does not serve ranges, or the object is empty
            return found.size_bytes, (chunk for chunk in whole)

        def chunks() -> Generator[bytes]:
            yield from begin
            skip = _BEGIN_BYTES  # a header that is longer, which is rare: one at a time, as it may take 16 MiB
            with self._long_header:
                for chunk in self._bucket.get(name)[1]:
                    if len(chunk) > skip:
                        yield chunk[skip:]
                    skip = max(0, skip - len(chunk))

        return found.size_bytes, chunks()

    def verify(self, digest: str) -> Verdict:
        """Download an entry, verify every byte of it, and return who signed it.

        Where signatures are required, one that no trusted key signed is not downloaded beyond its header.

        Raises:
            UnknownKeyError: there is none any more.
            CorruptBlobError, FormatVersionError: as for ``IncomingFile.open``.
            RemoteError: the request failed.
            OSError: it cannot be written to the temporary directory.
        """
        verdicts: list[Verdict] = []
        try:
            admit = self._judge(digest, verdicts, most_bytes=0 if self.admission.required else None)
            with self.open_entry(digest, admit) as incoming:
                file = incoming.spool(None)
        except UntrustedEntryError:
            return verdicts[0]
        except FileNotFoundError as error:
            raise UnknownKeyError(digest) from error
        try:
            file.verify()
            check_document(file.header, self.address(digest))
        except CorruptBlobError as error:  # it names the temporary file
            raise CorruptBlobError(self.address(digest), error.reason, error.why) from error
        finally:
            file.close()
        return verdicts[0]

    def _judge(self, digest: str, verdicts: list[Verdict], *, most_bytes: int | None) -> Admit:
        """Return a check that notes who signed a header, and rejects a longer one without a trusted signature."""

        def note(version: int, header: bytes, block: bytes) -> None:
            verdict = self.admission.verdict(version, header, block)
            verdicts.append(verdict)
            if verdict.reason is not None and most_bytes is not None and len(header) > most_bytes:
                raise UntrustedEntryError(self.address(digest), verdict.reason, verdict.signer or "")

        return note

    def records(self, *, headers: bool) -> tuple[list[Record], dict[str, Verdict], dict[str, str]]:
        """List the entries, most recently uploaded first; with ``headers`` as a store's listing does.

        Return them, who signed each, and the reasons of those of which the header cannot be read. Without ``headers``,
        records have no kind and no name, and the time of the upload is the only one.
        """
        stats = sorted(self.scan(), key=lambda stored: (-stored.used_ns, stored.digest))
        pins = self.pins()
        records = {stored.digest: Record.of_listing(stored, pinned=stored.digest in pins) for stored in stats}
        if not headers:
            return list(records.values()), {}, {}
        verdicts: dict[str, Verdict] = {}
        unreadable: dict[str, str] = {}
        for stored, found in map_in_threads(lambda stored: self._try_header(stored.digest), stats, REMOTE_THREADS):
            if isinstance(found, str):
                del records[stored.digest]
                unreadable |= {} if found == ABSENT else {stored.digest: found}  # removed since the listing
            else:
                header, verdicts[stored.digest] = found
                records[stored.digest] = Record.of(header, stored, pinned=stored.digest in pins)
        return list(records.values()), verdicts, unreadable

    def miss_reasons(self, digests: Iterable[str]) -> dict[str, str]:
        """Return why look-ups would not use entries, as ``Layers.why_missed`` does; empty for one that they would use.

        Only headers are read, many at once.
        """
        reasons = {}
        for digest, found in map_in_threads(self._try_header, digests, REMOTE_THREADS):
            if isinstance(found, str):
                reasons[digest] = found
            else:
                reason = found[1].reason
                reasons[digest] = f"untrusted:{reason}" if reason and self.admission.required else ""
        return reasons

    def _try_header(self, digest: str) -> tuple[EntryHeader, Verdict] | str:
        """Return an entry's header and who signed it, or the reason that it cannot be read."""
        try:
            return self.read_header(digest)
        except UnknownKeyError:
            return ABSENT
        except (CorruptBlobError, FormatVersionError, UntrustedEntryError) as error:
            return miss_reason(error)
        except RemoteError as error:
            if error.reason != ARCHIVED:
                raise
            return ARCHIVED

    def remove(self, digests: Collection[str]) -> frozenset[str]:
        """Delete entries that are not pinned, many at once, and return which. If a request fails, some are deleted."""
        unpinned = set(digests) - self.pins()
        removed = map_in_threads(lambda digest: self._bucket.delete(object_name(digest)), unpinned, REMOTE_THREADS)
        return frozenset(digest for digest, _ in removed)
