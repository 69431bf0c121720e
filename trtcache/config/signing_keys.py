"""Ed25519 secret keys: key files, signing and verification. The only module that needs ``cryptography``."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trtcache.config.trust import SECRET_PREFIX, PublicKey, check_key_name
from trtcache.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

_SEED_BYTES = 32
_MAX_FILE_BYTES = 4096


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
    """Verify a signature of ``message`` with a public key.

    Raises:
        SettingsError: ``cryptography`` is not installed.
    """
    from cryptography.exceptions import InvalidSignature

    try:
        ed25519().Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class SecretKey:
    """A key that signs. Its seed is never in a message or a ``repr``."""

    name: str
    seed: bytes = field(repr=False)

    @classmethod
    def generate(cls, name: str) -> SecretKey:
        """Generate a key.

        Raises:
            SettingsError: the name is invalid.
        """
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
            _check_file(os.fstat(fd), path)
            return cls._parse(os.read(fd, _MAX_FILE_BYTES), path)
        finally:
            os.close(fd)

    @classmethod
    def _parse(cls, raw: bytes, path: Path) -> SecretKey:
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
        """Write the key to a new file that only this user can read.

        Raises:
            FileExistsError: the path exists.
            OSError: the file cannot be created.
        """
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            os.fchmod(fd, 0o600)
            file.write(f"{SECRET_PREFIX}:{self.name}:{self.seed.hex()}\n")
            file.flush()
            os.fsync(fd)

    @property
    def public(self) -> PublicKey:
        """The public key that verifies this key's signatures.

        Raises:
            SettingsError: ``cryptography`` is not installed.
        """
        return PublicKey(self.name, self._private().public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """Sign a message.

        Raises:
            SettingsError: ``cryptography`` is not installed.
        """
        signature: bytes = self._private().sign(message)
        return signature

    def _private(self) -> Any:
        return ed25519().Ed25519PrivateKey.from_private_bytes(self.seed)


def _check_file(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise SettingsError("signing-key", f"{path} is not a file")
    if status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o077:
        raise SettingsError("signing-key", f"{path} can be read by other users; run: chmod 600 {path}")
