"""Trusted public keys and signature modes, and their syntax in settings.

A public key is written ``NAME:HEX``, with 64 hexadecimal digits, or ``NAME:HEX:DATE`` for one that is valid until the
end of that day (UTC).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from trtcache.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

SECRET_PREFIX = "trtcache-secret"  # noqa: S105  # the beginning of a secret key file

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_BETWEEN = re.compile(r"[\s,]+")
_HEX = re.compile(r"[0-9a-f]{64}")
_MODES = {"": None, "require": True, "off": False}


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that verifies signatures. ``until`` is the last day on which it is valid."""

    name: str
    raw: bytes
    until: date | None = None

    @classmethod
    def parse(cls, text: str, where: str = "key") -> PublicKey:
        """Parse a public key.

        Raises:
            SettingsError: it is not a public key; the message names ``where``, and never contains the text of a secret
                one.
        """
        if text.startswith(SECRET_PREFIX):
            raise SettingsError(where, "this is a secret key; 'trtcache trust ls' prints the public one")
        name, _, rest = text.partition(":")
        digits, _, day = rest.partition(":")
        if not _HEX.fullmatch(digits):
            raise SettingsError(where, f"{text!r} is not a public key: expected NAME:HEX with 64 hexadecimal digits")
        return cls(check_key_name(name, where), bytes.fromhex(digits), _day(day, where) if day else None)

    def counts(self, now_ns: int) -> bool:
        """Return whether this key is valid at a time."""
        if self.until is None:
            return True
        return datetime.fromtimestamp(now_ns // 10**9, UTC).date() <= self.until

    def __str__(self) -> str:
        return f"{self.name}:{self.raw.hex()}" + (f":{self.until.isoformat()}" if self.until else "")


@dataclass(frozen=True, slots=True)
class Trust:
    """Signature requirements of a store. By default shared stores require signatures and private ones do not.

    ``signing_key`` is the path of the secret key that signs new entries.
    """

    required: bool | None = None
    keys: tuple[PublicKey, ...] = ()
    signing_key: Path | None = None


def check_key_name(name: str, where: str) -> str:
    """Validate a key's name, which is also part of a file name.

    Raises:
        SettingsError: it is not 1 to 64 letters, digits and ``._@-``, starting with a letter or digit.
    """
    if not _NAME.fullmatch(name):
        raise SettingsError(where, f"{name!r} is not a valid key name: use letters, digits and ._@-")
    return name


def parse_keys(text: str, where: str) -> tuple[PublicKey, ...]:
    """Parse public keys separated by commas or whitespace.

    Raises:
        SettingsError: a key is invalid.
    """
    return tuple(PublicKey.parse(part, where) for part in _BETWEEN.split(text) if part)


def parse_mode(text: str, where: str) -> bool | None:
    """Parse whether signatures are required; None for an empty text.

    Raises:
        SettingsError: it is neither ``require`` nor ``off``.
    """
    mode = text.strip().lower()
    if mode not in _MODES:
        raise SettingsError(where, f"{text!r} is not require or off")
    return _MODES[mode]


def _day(text: str, where: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise SettingsError(where, f"{text!r} is not a date such as 2027-01-31") from error
