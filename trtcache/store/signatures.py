"""The signatures of an artifact file: what is signed, how it is written, and what a signature is worth to a reader.

Signed is the whole header, as its bytes lie in the file, with the format's version before it. The header has the key's
document and the digests of all members, so nothing of an entry can be changed, exchanged or put under another key.
"""

from __future__ import annotations

import itertools
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trtcache.config.signing_keys import SecretKey, is_signed
from trtcache.digests import hash_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trtcache.config.trust import PublicKey

LINE_BYTES: Final = 194

_CONTEXT = b"trtcache entry signature 1\n"
_LINE = re.compile(rb"([0-9a-f]{64}):([0-9a-f]{128})\n")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the signatures of an entry are worth: by whom it is signed, or why it does not count.

    ``reason`` is None, ``unsigned``, ``malformed``, ``unknown-key``, ``expired-key`` or ``bad-signature``. ``signer``
    is the name that the reader knows a key by, or of a key that he does not know the beginning of its digits.
    """

    reason: str | None
    signer: str | None = None

    @property
    def is_trusted(self) -> bool:
        """Whether the entry counts."""
        return self.reason is None

    def __str__(self) -> str:
        if self.reason is None:
            return str(self.signer)
        return f"{self.signer} ({self.reason})" if self.signer else self.reason


def statement(version: int, header: bytes, context: bytes = _CONTEXT) -> bytes:
    """Return what is signed for a header; ``context`` says of what kind of file, so that none counts as another."""
    return context + hash_bytes(struct.pack("<I", version) + header)


def sign(key: SecretKey, version: int, header: bytes, context: bytes = _CONTEXT) -> bytes:
    """Return a header's block of one signature.

    Raises:
        SettingsError: ``cryptography`` is not installed.
    """
    signature = key.sign(statement(version, header, context))
    return b"%b:%b\n" % (key.public.raw.hex().encode(), signature.hex().encode())


def parse(block: bytes) -> list[tuple[bytes, bytes]]:
    """Return the public keys and signatures in a block.

    Raises:
        ValueError: it breaks the grammar, or its keys are not in order, each once.
    """
    lines = [_LINE.fullmatch(line) for line in block.splitlines(keepends=True)]
    found = [(bytes.fromhex(line[1].decode()), bytes.fromhex(line[2].decode())) for line in lines if line]
    if len(found) != len(lines) or any(one[0] >= other[0] for one, other in itertools.pairwise(found)):
        raise ValueError("its signatures break the grammar")
    return found


def judge(
    block: bytes,
    version: int,
    header: bytes,
    *,
    keys: Iterable[PublicKey],
    now_ns: int,
    context: bytes = _CONTEXT,
) -> Verdict:
    """Return what a block of signatures is worth to a reader who trusts ``keys``. One that counts is enough.

    Raises:
        SettingsError: ``cryptography`` is not installed.
    """
    if not block:
        return Verdict("unsigned")
    try:
        signatures = parse(block)
    except ValueError:
        return Verdict("malformed")
    known = list(keys)
    verdicts = [_judge(one, statement(version, header, context), known, now_ns) for one in signatures]
    return min(verdicts, key=lambda one: _ORDER.index(one.reason))


_ORDER: Final = (None, "bad-signature", "expired-key", "unknown-key")


def _judge(signature: tuple[bytes, bytes], message: bytes, known: list[PublicKey], now_ns: int) -> Verdict:
    raw, value = signature
    named = [key for key in known if key.raw == raw]
    if not named:
        return Verdict("unknown-key", raw.hex()[:16])
    counting = [key for key in named if key.counts(now_ns)]
    if not is_signed(raw, value, message):
        return Verdict("bad-signature", named[0].name)
    return Verdict(None, counting[0].name) if counting else Verdict("expired-key", named[0].name)
