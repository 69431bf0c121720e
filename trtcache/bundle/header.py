"""The header of a program file: names, sizes and digests of its members and sidecar files, and its signatures.

A signature covers the header's bytes, and so everything. With ``trust="local-file"`` the caller trusts the file itself.
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

    from trtcache.config.signing_keys import PublicKey, SecretKey

FORMAT: Final = 1
FOLDER: Final = "trtcache/"
HEADER: Final = f"{FOLDER}header.json"
SIGNATURES: Final = f"{FOLDER}signatures"
PROGRAM: Final = f"{FOLDER}program.json"
LOCAL_FILE: Final = "local-file"

_CONTEXT = b"trtcache program signature 1\n"
_DIGEST = re.compile(r"b3:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Checksum:
    """A size and a digest, ``b3:...``."""

    size_bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
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


def verify_trust(
    raw: bytes, signatures: bytes, path: str, *, keys: Sequence[PublicKey], local: bool, now_ns: int
) -> None:
    """Check that a header is trusted.

    Raises:
        UntrustedProgramError: it has no trusted signature, and the caller does not trust the file itself.
    """
    if local:
        return
    verdict = judge(signatures, FORMAT, raw, keys=keys, now_ns=now_ns, context=_CONTEXT)
    if verdict.reason is not None:
        whose = f"the signature of {verdict.signer} is not trusted" if verdict.signer else "it has no trusted signature"
        raise UntrustedProgramError(path, whose, verdict.reason)


def _sums(written: Any) -> dict[str, Checksum]:
    found = {}
    for name, (size, digest) in written.items():
        if type(size) is not int or size < 0 or not _DIGEST.fullmatch(digest):
            raise ValueError(f"a size or digest of {name!r:.60}")
        found[name] = Checksum(size, digest)
    return found
