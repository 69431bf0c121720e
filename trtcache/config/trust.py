"""Whose signatures count: public keys by name, and the words that say so in settings.

A public key is written ``NAME:HEX``, 64 hexadecimal digits, or ``NAME:HEX:DATE`` for one that counts until the end of
that day (UTC).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from trtcache.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

SECRET_PREFIX = "trtcache-secret"  # noqa: S105  # what a secret key's file begins with

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_BETWEEN = re.compile(r"[\s,]+")
_HEX = re.compile(r"[0-9a-f]{64}")
_MODES = {"": None, "require": True, "off": False}


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The key that somebody's signatures are checked with. ``until`` is the last day on which they count."""

    name: str
    raw: bytes
    until: date | None = None

    @classmethod
    def parse(cls, text: str, where: str = "key") -> PublicKey:
        """Return the key that is written so.

        Raises:
            SettingsError: it is no public key; the message names ``where``, and never has the text of a secret one.
        """
        if text.startswith(SECRET_PREFIX):
            raise SettingsError(where, "this is a secret key; 'trtcache trust ls' prints the public one")
        name, _, rest = text.partition(":")
        digits, _, day = rest.partition(":")
        if not _HEX.fullmatch(digits):
            raise SettingsError(where, f"{text!r} is no public key, which is NAME:HEX with 64 hexadecimal digits")
        return cls(check_key_name(name, where), bytes.fromhex(digits), _day(day, where) if day else None)

    def counts(self, now_ns: int) -> bool:
        """Return whether signatures of this key count at a time."""
        if self.until is None:
            return True
        return datetime.fromtimestamp(now_ns // 10**9, UTC).date() <= self.until

    def __str__(self) -> str:
        return f"{self.name}:{self.raw.hex()}" + (f":{self.until.isoformat()}" if self.until else "")


@dataclass(frozen=True, slots=True)
class Trust:
    """What a store asks of entries. ``required`` is None for what is usual: yes in a shared store, no in a private one.

    ``signing_key`` is the file of the secret key that new entries are signed with.
    """

    required: bool | None = None
    keys: tuple[PublicKey, ...] = ()
    signing_key: Path | None = None


def check_key_name(name: str, where: str) -> str:
    """Return a key's name, which is also a part of a file's.

    Raises:
        SettingsError: it is not 1 to 64 letters, digits and ``._@-``, the first of them a letter or digit.
    """
    if not _NAME.fullmatch(name):
        raise SettingsError(where, f"{name!r} is no name of a key: use letters, digits and ._@-")
    return name


def parse_keys(text: str, where: str) -> tuple[PublicKey, ...]:
    """Return the keys in a text, which commas or blanks separate.

    Raises:
        SettingsError: one is no public key.
    """
    return tuple(PublicKey.parse(one, where) for one in _BETWEEN.split(text) if one)


def parse_mode(text: str, where: str) -> bool | None:
    """Return whether signatures are required, or None if nothing is said.

    Raises:
        SettingsError: it is neither ``require`` nor ``off``.
    """
    mode = text.strip().lower()
    if mode not in _MODES:
        raise SettingsError(where, f"{text!r} is neither require nor off")
    return _MODES[mode]


def _day(text: str, where: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise SettingsError(where, f"{text!r} is no date, as 2027-01-31 is") from error
