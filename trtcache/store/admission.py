"""Which entries a store takes, and how it signs its own: what the user's trust amounts to in one store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trtcache.config.signing_keys import SecretKey, ed25519
from trtcache.errors import UntrustedEntryError
from trtcache.store.signatures import Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Callable

    from trtcache.config.trust import PublicKey, Trust
    from trtcache.store.format import Admit


@dataclass(frozen=True, slots=True)
class Admission:
    """The rules of one open store. ``key`` signs what is put there."""

    required: bool
    keys: tuple[PublicKey, ...]
    key: SecretKey | None
    clock_ns: Callable[[], int]

    @classmethod
    def of(cls, trust: Trust, *, shared: bool, writable: bool, clock_ns: Callable[[], int]) -> Admission:
        """Return what ``trust`` says for a store: signatures are asked for where it says so, or where it is shared.

        Raises:
            SettingsError: the signing key cannot be read, or ``cryptography`` is wanted and not installed.
        """
        required = shared if trust.required is None else trust.required
        signing = writable and trust.signing_key is not None
        if signing or (required and trust.keys):
            ed25519()
        key = SecretKey.read(trust.signing_key) if signing and trust.signing_key else None
        return cls(required, trust.keys, key, clock_ns)

    def verdict(self, version: int, header: bytes, block: bytes) -> Verdict:
        """Return what an entry's signatures are worth here."""
        return judge(block, version, header, keys=self.keys, now_ns=self.clock_ns())

    def admit(self, path: str) -> Admit | None:
        """Return what refuses the file at ``path`` if its signatures do not count; None where none are asked for."""
        if not self.required:
            return None

        def refuse(version: int, header: bytes, block: bytes) -> None:
            found = self.verdict(version, header, block)
            if found.reason is not None:
                raise UntrustedEntryError(path, found.reason, found.signer or "")

        return refuse

    def objection(self) -> str | None:
        """Return why what this process puts would be a miss for itself, or None if it would be a hit.

        Such an entry is not stored: it would take the place of one that counts for others.
        """
        if not self.required:
            return None
        if self.key is None:
            return "no signing key is set"
        raw = self.key.public.raw
        if not any(key.raw == raw and key.counts(self.clock_ns()) for key in self.keys):
            return f"the signing key {self.key.name} is not among the trusted keys"
        return None
