"""Ed25519 keys: trusted public keys and signature modes in settings, and the files of secret keys.

A public key is written ``NAME:HEX``, with 64 hexadecimal digits, or ``NAME:HEX:DATE`` for one that is valid until the
end of that day (UTC). ``cryptography`` is imported to sign and to verify only.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import field
from datetime import UTC, date, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import SettingsError

SECRET_PREFIX = "trtcache-secret"  # noqa: S105  # the beginning of a secret key file

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_BETWEEN = re.compile(r"[\s,]+")
_HEX = re.compile(r"[0-9a-f]{64}")
_MODES = {"": None, "require": True, "off": False}

_SEED_BYTES = 32
_MAX_FILE_BYTES = 4096


@frozen_dataclass
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
        check_key_name(name, where)
        try:
            until = date.fromisoformat(day) if day else None
        except ValueError as error:
            raise SettingsError(where, f"{day!r} is not a date such as 2027-01-31") from error
        return cls(name, bytes.fromhex(digits), until)

    def is_valid_at(self, now_ns: int) -> bool:
        """Return whether this key is valid at a time."""
        if self.until is None:
            return True
        return datetime.fromtimestamp(now_ns // 10**9, UTC).date() <= self.until

    def __str__(self) -> str:
        return f"{self.name}:{self.raw.hex()}" + (f":{self.until.isoformat()}" if self.until else "")


@frozen_dataclass
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
    """Parse public keys separated by commas or whitespace."""
    return tuple(PublicKey.parse(part, where) for part in _BETWEEN.split(text) if part)


def parse_mode(text: str, where: str) -> bool | None:
    """Parse whether signatures are required; None for an empty string.

    Raises:
        SettingsError: it is neither ``require`` nor ``off``.
    """
    mode = text.strip().lower()
    if mode not in _MODES:
        raise SettingsError(where, f"{text!r} is not require or off")
    return _MODES[mode]


def ed25519() -> ModuleType:
    """Import the Ed25519 module.

    Raises:
        SettingsError: ``cryptography`` is not installed.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519 as module  # 14 ms, not needed by unsigned stores
    except ImportError as error:
        raise SettingsError(
            "signatures", "cryptography is not installed: pip install 'trtcache[signatures]'"
        ) from error
    return module


def is_signed(public: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether ``signature`` is that of ``message`` by a public key.

    Raises:
        SettingsError: ``cryptography`` is not installed.
    """
    module = ed25519()
    from cryptography.exceptions import InvalidSignature

    try:
        module.Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@frozen_dataclass
class SecretKey:
    """A key that signs. Its seed is never in a message or a ``repr``."""

    name: str
    seed: bytes = field(repr=False)

    @classmethod
    def generate(cls, name: str) -> SecretKey:
        """Generate a key."""
        return cls(check_key_name(name, "key"), os.urandom(_SEED_BYTES))

    @classmethod
    def read(cls, path: Path) -> SecretKey:
        """Read a key from a file that only this user can read.

        Raises:
            SettingsError: the file does not exist, is readable by others, or holds no secret key.
        """
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise SettingsError(
                "signing-key", f"{path}: {error.strerror}; create one: trtcache trust keygen"
            ) from error
        try:
            status = os.fstat(fd)
            raw = os.read(fd, _MAX_FILE_BYTES) if stat.S_ISREG(status.st_mode) else b""
        finally:
            os.close(fd)
        if not stat.S_ISREG(status.st_mode):
            raise SettingsError("signing-key", f"{path} is not a file")
        if status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o077:
            raise SettingsError("signing-key", f"{path} can be read by other users; run: chmod 600 {path}")
        prefix, _, rest = raw.decode("ascii", "replace").strip().partition(":")
        name, _, digits = rest.partition(":")
        try:
            seed = bytes.fromhex(digits)
        except ValueError:
            seed = b""
        if prefix != SECRET_PREFIX or len(seed) != _SEED_BYTES:
            raise SettingsError("signing-key", f"{path} is not a secret key of 'trtcache trust keygen'")
        return cls(check_key_name(name, "signing-key"), seed)

    def write(self, path: Path) -> None:
        """Write the key to a new file that only this user can read."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "w") as file:
                os.fchmod(fd, 0o600)
                file.write(f"{SECRET_PREFIX}:{self.name}:{self.seed.hex()}\n")
                file.flush()
                os.fsync(fd)
        except OSError:  # a full disk: part of a key must not take its name
            path.unlink(missing_ok=True)
            raise

    @property
    def public(self) -> PublicKey:
        """The public key that verifies this key's signatures."""
        return PublicKey(self.name, self._private().public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """Sign a message."""
        signature: bytes = self._private().sign(message)
        return signature

    def _private(self) -> Any:
        return ed25519().Ed25519PrivateKey.from_private_bytes(self.seed)
