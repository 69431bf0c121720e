"""The header of a program's file: the names, sizes and digests of all that is in it and beside it, and who vouches.

A signature covers the header's bytes, so it covers everything. Whoever says ``trust="local-file"`` vouches himself.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from trtcache.digests import json_bytes
from trtcache.errors import NotAProgramError, ProgramContentError, ProgramVersionError, UntrustedProgramError
from trtcache.store.format import MAX_HEADER_BYTES, MAX_VALUES
from trtcache.store.signatures import judge, sign

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trtcache.config.signing_keys import SecretKey
    from trtcache.config.trust import PublicKey

FORMAT: Final = 1
FOLDER: Final = "trtcache/"
HEADER: Final = f"{FOLDER}header.json"
SIGNATURES: Final = f"{FOLDER}signatures"
PROGRAM: Final = f"{FOLDER}program.json"
LOCAL_FILE: Final = "local-file"

_CONTEXT = b"trtcache program signature 1\n"
_DIGEST = re.compile(r"b3:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Sum:
    """How many bytes something has, and their digest, ``b3:...``."""

    size_bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says of itself.

    Attributes:
        name: what people call the program.
        members: every member of the archive but the header and its signatures.
        beside: files that go with it, by name.
    """

    name: str
    members: Mapping[str, Sum]
    beside: Mapping[str, Sum]

    def write(self) -> bytes:
        """Return the header's bytes."""
        document = {
            "format": FORMAT,
            "name": self.name,
            "members": {name: [one.size_bytes, one.digest] for name, one in self.members.items()},
            "beside": {name: [one.size_bytes, one.digest] for name, one in self.beside.items()},
        }
        return json_bytes(document)

    @classmethod
    def read(cls, raw: bytes, path: str) -> Header:
        """Return the header that ``write`` wrote.

        Raises:
            NotAProgramError: it is none.
            ProgramVersionError: it is of a later format.
            ProgramContentError: it breaks the grammar.
        """
        try:
            document = parse(raw)
            version = document["format"]
        except (ValueError, LookupError, TypeError) as error:
            raise NotAProgramError(path, f"its header is none of a program with engines ({error})") from error
        if type(version) is int and version > FORMAT:
            raise ProgramVersionError(path, "", version, FORMAT)
        if type(version) is not int or version != FORMAT:
            raise ProgramContentError(path, f"its header is of format {version!r:.20}")
        try:
            return cls(str(document["name"]), _sums(document["members"]), _sums(document["beside"]))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ProgramContentError(path, f"its header breaks the grammar: {error}") from error


def parse(raw: bytes | memoryview) -> Any:
    """Return a JSON document of bounded size.

    Raises:
        ValueError: it is none, or has more values than any that is written.
    """
    data = bytes(raw)
    if len(data) > MAX_HEADER_BYTES or sum(map(data.count, (b"[", b"{", b","))) > MAX_VALUES:
        raise ValueError("a document that is larger than any that is written")
    try:
        return json.loads(data.decode())
    except RecursionError as error:
        raise ValueError("a document that is nested too deeply") from error


def signed(raw: bytes, key: SecretKey | None) -> bytes:
    """Return a header's signatures; none without a key."""
    return sign(key, FORMAT, raw, _CONTEXT) if key is not None else b""


def admit(raw: bytes, signatures: bytes, path: str, *, keys: Sequence[PublicKey], local: bool, now_ns: int) -> None:
    """Refuse a header that nobody vouches for.

    Raises:
        UntrustedProgramError: no signature of it counts, and the caller has not said that the file is his own.
    """
    if local:
        return
    verdict = judge(signatures, FORMAT, raw, keys=keys, now_ns=now_ns, context=_CONTEXT)
    if verdict.reason is not None:
        whose = f"the signature of {verdict.signer} does not count" if verdict.signer else "no signature of it counts"
        raise UntrustedProgramError(path, whose, verdict.reason)


def _sums(written: Any) -> dict[str, Sum]:
    found = {}
    for name, (size, digest) in written.items():
        if type(size) is not int or size < 0 or not _DIGEST.fullmatch(digest):
            raise ValueError(f"a size or digest of {name!r:.60}")
        found[name] = Sum(size, digest)
    return found
