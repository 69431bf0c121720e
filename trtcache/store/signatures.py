"""Signatures of artifact files, and the signature policy of one open store.

The signed message is the whole header as stored, prefixed with the format version. The header has the key document and
the digests of all members, so no part of an entry can be changed, exchanged or stored under another key.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from trtcache.config.frozen import frozen_dataclass
from trtcache.config.signing_keys import PublicKey, SecretKey, Trust, ed25519, is_signed
from trtcache.digests import hash_bytes
from trtcache.errors import UntrustedEntryError

if TYPE_CHECKING:
    from trtcache.store.format import Admit

LINE_BYTES: Final = 194

_CONTEXT = b"trtcache entry signature 1\n"
_LINE = re.compile(rb"([0-9a-f]{64}):([0-9a-f]{128})\n")


@frozen_dataclass
class Verdict:
    """Result of verifying an entry's signatures: the signer, or why the entry is not trusted.

    ``reason`` is None, ``unsigned``, ``malformed``, ``unknown-key``, ``expired-key`` or ``bad-signature``. ``signer``
    is the trusted key's name, or the first digits of an unknown key.
    """

    reason: str | None
    signer: str | None = None

    def __str__(self) -> str:
        if self.reason is None:
            return str(self.signer)
        return f"{self.signer} ({self.reason})" if self.signer else self.reason


def statement(version: int, header: bytes, context: bytes = _CONTEXT) -> bytes:
    """Return the message to sign for a header; ``context`` separates the kinds of files."""
    return context + hash_bytes(struct.pack("<I", version), header)


def sign(key: SecretKey, version: int, header: bytes, context: bytes = _CONTEXT) -> bytes:
    """Sign a header and return the block of one signature."""
    signature = key.sign(statement(version, header, context))
    return b"%b:%b\n" % (key.public.raw.hex().encode(), signature.hex().encode())


def judge(
    block: bytes,
    version: int,
    header: bytes,
    *,
    keys: Iterable[PublicKey],
    now_ns: int,
    context: bytes = _CONTEXT,
) -> Verdict:
    """Verify a block of signatures against the trusted ``keys``. One valid signature is sufficient."""
    if not block:
        return Verdict("unsigned")
    lines = [_LINE.fullmatch(line) for line in block.splitlines(keepends=True)]
    signatures = [(bytes.fromhex(line[1].decode()), bytes.fromhex(line[2].decode())) for line in lines if line]
    unsorted = any(first[0] >= second[0] for first, second in itertools.pairwise(signatures))
    if len(signatures) != len(lines) or unsorted:
        return Verdict("malformed")
    known, message, verdicts = list(keys), statement(version, header, context), []
    for raw, signature in signatures:
        named = [key for key in known if key.raw == raw]
        valid = [key for key in named if key.is_valid_at(now_ns)]
        if not named:
            verdicts.append(Verdict("unknown-key", raw.hex()[:16]))
        elif not is_signed(raw, signature, message):
            verdicts.append(Verdict("bad-signature", named[0].name))
        else:
            verdicts.append(Verdict(None, valid[0].name) if valid else Verdict("expired-key", named[0].name))
    order = (None, "bad-signature", "expired-key", "unknown-key")
    return min(verdicts, key=lambda verdict: order.index(verdict.reason))


@frozen_dataclass
class Admission:
    """Signature rules of one open store. ``key`` signs the entries that are stored there."""

    required: bool
    keys: tuple[PublicKey, ...]
    key: SecretKey | None
    clock_ns: Callable[[], int]

    @classmethod
    def of(cls, trust: Trust, *, shared: bool, writable: bool, clock_ns: Callable[[], int]) -> Admission:
        """Build the rules for a store from the user's trust settings.

        Signatures are required where ``trust`` requires them, or by default in a shared store.
        """
        required = shared if trust.required is None else trust.required
        signing = writable and trust.signing_key is not None
        if signing or (required and trust.keys):
            ed25519()
        key = SecretKey.read(trust.signing_key) if signing and trust.signing_key else None
        return cls(required, trust.keys, key, clock_ns)

    def verdict(self, version: int, header: bytes, block: bytes) -> Verdict:
        """Verify an entry's signatures against the trusted keys."""
        return judge(block, version, header, keys=self.keys, now_ns=self.clock_ns())

    def admit(self, path: str) -> Admit | None:
        """Return a check that raises for untrusted signatures of the file at ``path``, or None if none are required."""
        if not self.required:
            return None

        def refuse(version: int, header: bytes, block: bytes) -> None:
            verdict = self.verdict(version, header, block)
            if verdict.reason is not None:
                raise UntrustedEntryError(path, verdict.reason, verdict.signer or "")

        return refuse

    def why_not_stored(self) -> str | None:
        """Return why this process could not read back an entry that it stores here, or None if it could.

        Such an entry is not stored: it would replace one that others trust.
        """
        if not self.required:
            return None
        if self.key is None:
            return "no signing key is set"
        raw = self.key.public.raw
        named = [key for key in self.keys if key.raw == raw]
        if not named:
            return f"the signing key {self.key.name} is not among the trusted keys"
        if not any(key.is_valid_at(self.clock_ns()) for key in named):
            return f"the signing key {self.key.name} has expired ({named[0].until})"
        return None
