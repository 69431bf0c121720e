"""Program files open for reading: every member is checked against the header's size and digest before use.

The header has names, sizes and digests of the members and of sidecar files. A signature covers the header's bytes, and
so everything. With ``trust="local-file"`` the caller trusts the file itself.
"""

from __future__ import annotations

import inspect
import json
import mmap
import os
import re
import stat
import struct
import sys
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trtcache.backends import registry
from trtcache.backends.fitness import Distance, Fitness, Misfit, StoredTarget
from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import Json, canonical, hash_bytes, json_bytes
from trtcache.errors import (
    BackendUnavailableError,
    DamagedProgramError,
    NoFittingEngineError,
    NotAProgramError,
    ProgramContentError,
    ProgramFileError,
    ProgramNamesError,
    ProgramSizesError,
    ProgramVersionError,
    TamperedProgramError,
    TruncatedProgramError,
    UntrustedProgramError,
)
from trtcache.store.format import MAX_HEADER_BYTES, MAX_SIGNATURES_BYTES, MAX_VALUES
from trtcache.store.signatures import judge, sign
from trtcache.target import host_platform
from trtcache.weights.files import TensorRecord

if TYPE_CHECKING:
    from trtcache.config.signing_keys import PublicKey, SecretKey
    from trtcache.lowering.interface import Interface


_UNSTORED = ["", "other"]
"""The default of a parameter whose value is not in the file."""

_PARAMETER_KINDS = {kind.name: kind for kind in inspect._ParameterKind}


class UnstoredDefault:
    """A default that is not in the file. No argument is equal to it."""

    def __repr__(self) -> str:
        return "the model's own default"


def write_signature(signature: inspect.Signature | None) -> Json:
    """Return a signature as JSON; None without one."""
    if signature is None:
        return None
    written: list[Json] = []
    for one in signature.parameters.values():
        default: list[Json] = [*_UNSTORED]
        if one.default is inspect.Parameter.empty:
            default = []
        elif one.default is None or type(one.default) in (bool, int, float, str):  # an enum is none of them
            default = [canonical(one.default)]
        written.append([one.name, one.kind.name, default])
    return written


def read_signature(written: Any) -> inspect.Signature | None:
    """Parse a signature.

    Raises:
        ValueError: it is malformed.
        LookupError: likewise.
    """
    if written is None:
        return None
    parameters = [
        inspect.Parameter(str(name), _PARAMETER_KINDS[kind], default=_read(value)) for name, kind, value in written
    ]
    return inspect.Signature(parameters)


def _read(written: Any) -> object:
    match written:
        case []:
            return inspect.Parameter.empty
        case [None | bool() | int() | str() as value]:
            return value
        case [{"$float": str(text)}]:
            return float.fromhex(text)
        case [_, _]:
            return UnstoredDefault()
    raise ValueError(f"the signature has a default in an unknown form: {written!r:.40}")


def choose(
    options: Sequence[StoredTarget], path: str, backend_of: Callable[[str], Fitness] = registry.load_backend
) -> StoredTarget:
    """Return the target that fits best: one for a GPU before one for a CPU, then by the backend's rank.

    Args:
        options: the targets.
        path: the file, for messages.
        backend_of: returns a backend by name.

    Raises:
        NoFittingEngineError: none fits; it has the reason for each, and the simplest remedy.
    """
    found = [(option, why_rejected(option, backend_of)) for option in options]
    fitting = [option for option, misfit in found if misfit is None]
    if fitting:
        return max(fitting, key=lambda option: (*rank(option, backend_of), -option.number))
    reasons = tuple(f"{option.label}: {misfit.why}" for option, misfit in found if misfit is not None)
    nearest = min(
        (misfit for _, misfit in found if misfit is not None), key=lambda misfit: misfit.distance, default=None
    )
    remedy = nearest.remedy if nearest else "export it again"
    raise NoFittingEngineError(path, "none of its engines can run here", reasons, remedy)


def rank(option: StoredTarget, backend_of: Callable[[str], Fitness] = registry.load_backend) -> tuple[bool, int]:
    """Return how well a target fits that can run here."""
    is_gpu = option.target["device"] == "cuda"
    return is_gpu, backend_of(option.backend).rank(option.target) if option.member else 0


def why_rejected(option: StoredTarget, backend_of: Callable[[str], Fitness] = registry.load_backend) -> Misfit | None:
    """Return why a target cannot run here, or None if it can."""
    platform = option.target.get("platform")
    if option.member is None:  # everything runs in torch
        return None
    if platform != host_platform():
        remedy = f"export it for this machine: trtcache export FILE.pt2 -o OUT.pt2, on {host_platform()}"
        return Misfit(f"it is for {platform}, and this is {host_platform()}", remedy, Distance.PLATFORM)
    try:
        return backend_of(option.backend).why_misfit(option)
    except BackendUnavailableError as error:
        remedy = f"make {option.backend} available here, or export it for this machine's target"
        return Misfit(error.why, remedy, Distance.BACKEND)


FORMAT: Final = 1
FOLDER: Final = "trtcache/"
HEADER: Final = f"{FOLDER}header.json"
SIGNATURES: Final = f"{FOLDER}signatures"
PROGRAM: Final = f"{FOLDER}program.json"
LOCAL_FILE: Final = "local-file"
MODEL: Final = "models/model.json"
BROKEN: Final = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError, AssertionError)
"""Errors raised by malformed documents; RuntimeError: torch rejects a size or a type."""

MAX_MEMBERS: Final = 1 << 16
MAX_DIRECTORY_BYTES: Final = 16 << 20

_CONTEXT = b"trtcache program signature 1\n"
_DIGEST = re.compile(r"b3:[0-9a-f]{64}")

# Records of the zip format: PKWARE's APPNOTE.TXT, 4.3
_NAME = re.compile(r"[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)*")
_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF
_COMMENT_BYTES = 1 << 16
_HASHED_MEANWHILE_BYTES = 256 << 20  # by one thread, while torch's libraries are loaded
_BEGINS = b"PK\x03\x04"


@frozen_dataclass
class Checksum:
    """A size and a digest, ``b3:...``."""

    size_bytes: int
    digest: str


@frozen_dataclass
class ProgramHeader:
    """The header of a program file.

    Attributes:
        name: the program's name.
        members: every member of the archive except the header and its signatures.
        beside: sidecar files by name.
    """

    name: str
    members: Mapping[str, Checksum]
    beside: Mapping[str, Checksum]

    def write(self) -> bytes:
        """Return the header as bytes."""
        document = {
            "format": FORMAT,
            "name": self.name,
            "members": {name: [one.size_bytes, one.digest] for name, one in self.members.items()},
            "beside": {name: [one.size_bytes, one.digest] for name, one in self.beside.items()},
        }
        return json_bytes(document)

    @classmethod
    def read(cls, raw: bytes, path: str) -> ProgramHeader:
        """Parse a header.

        Raises:
            NotAProgramError: it is not a header.
            ProgramVersionError: it has a later format.
            ProgramContentError: it is malformed.
        """
        try:
            document = parse(raw)
            version = document["format"]
        except (ValueError, LookupError, TypeError) as error:
            raise NotAProgramError(path, f"it is not the header of a program with engines ({error})") from error
        if type(version) is int and version > FORMAT:
            raise ProgramVersionError(path, "", version, FORMAT)
        if type(version) is not int or version != FORMAT:
            raise ProgramContentError(path, f"its header has the format {version!r:.20}")
        try:
            return cls(str(document["name"]), _sums(document["members"]), _sums(document["beside"]))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ProgramContentError(path, f"its header is malformed: {error}") from error


def parse(raw: bytes | memoryview) -> Any:
    """Parse a JSON document of bounded size.

    Raises:
        ValueError: it is not JSON, or has more values than any valid document.
    """
    data = bytes(raw)
    if len(data) > MAX_HEADER_BYTES or sum(map(data.count, (b"[", b"{", b","))) > MAX_VALUES:
        raise ValueError("a document that is larger than any valid one")
    try:
        return json.loads(data.decode())
    except RecursionError as error:
        raise ValueError("a document that is nested too deeply") from error


def sign_header(raw: bytes, key: SecretKey | None) -> bytes:
    """Return a header's signatures; empty without a key."""
    return sign(key, FORMAT, raw, _CONTEXT) if key is not None else b""


def _sums(written: Any) -> dict[str, Checksum]:
    found = {}
    for name, (size, digest) in written.items():
        if type(size) is not int or size < 0 or not _DIGEST.fullmatch(digest):
            raise ValueError(f"a size or digest of {name!r:.60}")
        found[name] = Checksum(size, digest)
    return found


class ProgramArchive:
    """An open program file.

    Attributes:
        path: its path.
        header: its verified header.

    If no other user can write to the file it is mapped, and its weights and engines are the file's own memory: replace
    it only by renaming a new file over it. Otherwise it is read into memory once.
    """

    def __init__(self, path: Path, *, keys: Sequence[PublicKey], local: bool) -> None:
        """Open a file, and verify that it is signed by a trusted key; ``local`` if the caller trusts the file itself.

        Raises:
            UntrustedProgramError: its header has no trusted signature, and the caller does not trust the file itself.
            TamperedProgramError: its members are not those of its header.
            ProgramSizesError: a member has another size.
        """
        self.path = path
        self._checked: set[str] = set()
        self._data = content_of(path)
        self._members = directory(self._data, str(path))
        raw, signatures = self._small(HEADER, MAX_HEADER_BYTES), self._small(SIGNATURES, MAX_SIGNATURES_BYTES)
        if not local:
            verdict = judge(signatures, FORMAT, raw, keys=keys, now_ns=time.time_ns(), context=_CONTEXT)
            if verdict.reason is not None:
                signer = verdict.signer
                whose = f"the signature of {signer} is not trusted" if signer else "it has no trusted signature"
                raise UntrustedProgramError(str(path), whose, verdict.reason)
        self.header = ProgramHeader.read(raw, str(path))
        found = {name: len(one.content) for name, one in self._members.items() if name not in {HEADER, SIGNATURES}}
        declared = {name: one.size_bytes for name, one in self.header.members.items()}
        if found.keys() != declared.keys():
            names = ", ".join(sorted(found.keys() ^ declared.keys())[:4])
            raise TamperedProgramError(str(path), f"its members do not match its header: {names}")
        if wrong := sorted(name for name, size in found.items() if size != declared[name]):
            raise ProgramSizesError(str(path), f"its member {wrong[0]} has another size than its header says")

    def read(self, name: str) -> memoryview:
        """Return the bytes of a member, verified against its digest on first use.

        Raises:
            DamagedProgramError: they do not match, or the member does not exist.
        """
        declared = self.header.members.get(name)
        if declared is None:
            raise DamagedProgramError(str(self.path), f"it has no member {name}")
        content = self._members[name].content
        if name not in self._checked:
            # New threads would wait for the dynamic linker, which loads torch's libraries (``libtorch.preload``).
            alone = "torch" not in sys.modules and len(self._data) <= _HASHED_MEANWHILE_BYTES
            if f"b3:{hash_bytes(content, in_this_thread=alone).hex()}" != declared.digest:
                raise TamperedProgramError(str(self.path), f"its member {name} does not match its digest")
            self._checked.add(name)
        return content

    def tensor_records(self, folder: str, names: Collection[str]) -> dict[str, TensorRecord]:
        """Return torch's records of tensors with these names, in the folder ``weights`` or ``constants``.

        Raises:
            ValueError: a record is malformed; LookupError and TypeError are possible too.
        """
        config = parse(self.read(f"data/{folder}/model_{folder}_config.json"))["config"]
        found = ((name, written) for name, written in config.items() if name in names)
        return {name: TensorRecord.parse(name, written, f"data/{folder}/") for name, written in found}

    def weight_records(self, interface: Interface) -> dict[str, TensorRecord]:
        """Return the records of the weights that engines need; torch stores those of transient slots as constants."""
        needed = {name for slot in interface.slots for name in slot.names}
        transient = {name for slot in interface.slots if slot.transient for name in slot.names}
        records = self.tensor_records("weights", needed)
        return records | (self.tensor_records("constants", transient) if transient else {})

    def _small(self, name: str, most: int) -> bytes:
        """Return the bytes of a member without a digest, verified by its checksum."""
        member = self._members.get(name)
        if member is None:
            what = "it is an archive without engines" if MODEL in self._members else "it is another archive"
            remedy = (
                "use a file written by trtcache.export; compile a program of torch.export.save with trtcache.compile"
            )
            raise NotAProgramError(str(self.path), f"{what}; {remedy}")
        if len(member.content) > most:
            raise ProgramSizesError(str(self.path), f"its member {name} has {len(member.content)} bytes")
        content = bytes(member.content)
        if zlib.crc32(content) != member.crc:
            raise TamperedProgramError(str(self.path), f"its member {name} does not match its checksum")
        return content


def content_of(path: Path) -> memoryview:
    """Return a file's bytes in memory that no other user can write to.

    Raises:
        ProgramFileError: it cannot be read.
    """
    try:
        # O_NONBLOCK: opening a pipe must not wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        why = getattr(error, "strerror", None) or error
        raise ProgramFileError(str(path), f"it cannot be read: {why}") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or not found.st_size:
            raise NotAProgramError(str(path), "it is not a regular file, or it is empty")
        done, private = 0, is_private(found)
        view = memoryview(mmap.mmap(descriptor, 0, flags=mmap.MAP_PRIVATE) if private else mmap.mmap(-1, found.st_size))
        while not private and done < found.st_size:
            count = os.preadv(descriptor, [view[done:]], done)
            if not count:
                raise ProgramSizesError(str(path), "it became shorter while it was read")
            done += count
    except (OSError, ValueError) as error:
        raise ProgramFileError(str(path), f"it cannot be read: {error}") from error
    finally:
        os.close(descriptor)
    return view


def is_private(found: os.stat_result) -> bool:
    """Return whether only this user and root can write to a file, so that it may be mapped."""
    return found.st_uid in (os.geteuid(), 0) and not found.st_mode & 0o022


@frozen_dataclass
class ArchiveMember:
    """The bytes of a member, and their checksum in the archive."""

    content: memoryview
    crc: int


def directory(data: memoryview, path: str) -> dict[str, ArchiveMember]:
    """Return the members of an archive by name, without their common folder.

    Raises:
        NotAProgramError: it is not a zip archive with one folder.
        ProgramSizesError: sizes in it do not match the file.
        ProgramNamesError: a name is a path, or occurs twice.
    """
    if bytes(data[:4]) != _BEGINS:
        raise NotAProgramError(path, "it is not a program of trtcache.export: not even a zip archive")
    start, size, count = _end(data, path)
    if count > MAX_MEMBERS or size > MAX_DIRECTORY_BYTES or count * _ENTRY.size > size:
        raise ProgramSizesError(path, f"a list of {count} members in {size} bytes")
    if start + size > len(data):
        raise ProgramSizesError(path, "the list of its members extends beyond the file")
    found: dict[str, ArchiveMember] = {}
    roots = set()
    for name, member in _entries(data, start, size, count, path):
        root, _, inside = name.partition("/")
        if inside in found:
            raise ProgramNamesError(path, f"two of its members have the name {inside!r}")
        roots.add(root)
        found[inside] = member
    if len(roots) != 1 or "" in found:
        raise NotAProgramError(path, "it is a zip archive, but not from trtcache.export")
    return found


def _end(data: memoryview, path: str) -> tuple[int, int, int]:
    """Return the directory's offset, its size, and the number of members."""
    tail = bytes(data[-(_END.size + _COMMENT_BYTES) :])
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size:
        raise TruncatedProgramError(path, "it is cut off: the list of members at its end is missing")
    _, disk, first, here, count, size, start, comment = _END.unpack_from(tail, at)
    if disk or first or here != count or at + _END.size + comment != len(tail):
        raise DamagedProgramError(path, "the record after its list of members is damaged")
    if _FULL16 in {count} or _FULL32 in {size, start}:
        return _end64(data, len(data) - len(tail) + at, path)
    return start, size, count


def _end64(data: memoryview, at: int, path: str) -> tuple[int, int, int]:
    if at < _LOCATOR.size:
        raise TruncatedProgramError(path, "it is cut off: the list of members at its end is missing")
    mark, _, end, _ = _LOCATOR.unpack_from(data, at - _LOCATOR.size)
    if mark != b"PK\x06\x07" or end + _END64.size > at:
        raise ProgramSizesError(path, "the record after its list of members is in another place")
    mark, _, _, _, _, _, here, count, size, start = _END64.unpack_from(data, end)
    if mark != b"PK\x06\x06" or here != count:
        raise DamagedProgramError(path, "the record after its list of members is damaged")
    return start, size, count


def _entries(data: memoryview, start: int, size: int, count: int, path: str) -> Iterator[tuple[str, ArchiveMember]]:
    at, end = start, start + size
    for _ in range(count):
        if at + _ENTRY.size > end:
            raise ProgramSizesError(path, "the list of its members is shorter than it says")
        fields = _ENTRY.unpack_from(data, at)
        mark, flags, method, crc, packed, plain = fields[0], fields[3], fields[4], *fields[7:10]
        names, extra, comment, offset = *fields[10:13], fields[16]
        after = at + _ENTRY.size + names + extra + comment
        if mark != b"PK\x01\x02" or after > end:
            raise DamagedProgramError(path, "the list of its members is damaged")
        name = bytes(data[at + _ENTRY.size : at + _ENTRY.size + names]).decode("ascii", "replace")
        if not _NAME.fullmatch(name) or any(set(part) == {"."} for part in name.split("/")) or len(name) > 512:
            raise ProgramNamesError(path, f"a member has the invalid name {name!r:.80}")
        more = bytes(data[at + _ENTRY.size + names : at + _ENTRY.size + names + extra])
        plain, packed, offset = _wide(more, (plain, packed, offset), path)
        if method or flags & 1 or packed != plain:
            raise DamagedProgramError(path, f"its member {name} is compressed or encrypted")
        yield name, _member(data, offset, plain, crc, path)
        at = after


def _wide(extra: bytes, sizes: tuple[int, int, int], path: str) -> list[int]:
    """Return sizes, with 64-bit ones taken from the extra field."""
    found = list(sizes)
    wanted = [place for place, size in enumerate(sizes) if size == _FULL32]
    while wanted and len(extra) >= 4:
        kind, length = struct.unpack_from("<2H", extra)
        body, extra = extra[4 : 4 + length], extra[4 + length :]
        if kind == 1 and len(body) >= 8 * len(wanted):
            for place, (size,) in zip(wanted, struct.iter_unpack("<Q", body[: 8 * len(wanted)]), strict=True):
                found[place] = size
            wanted = []
    if wanted:
        raise ProgramSizesError(path, "a member has no size")
    return found


def _member(data: memoryview, offset: int, size: int, crc: int, path: str) -> ArchiveMember:
    if offset + _LOCAL.size > len(data):
        raise ProgramSizesError(path, "a member is not within the file")
    fields = _LOCAL.unpack_from(data, offset)
    start = offset + _LOCAL.size + fields[9] + fields[10]
    if fields[0] != _BEGINS:
        raise DamagedProgramError(path, "the start of a member is damaged")
    if start + size > len(data):
        raise ProgramSizesError(path, "a member is not within the file")
    return ArchiveMember(data[start : start + size], crc)
