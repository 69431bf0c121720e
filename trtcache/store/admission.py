"""Signature policy of one open store: which entries it serves and how it signs new ones."""

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
    """Signature rules of one open store. ``key`` signs the entries that are stored there."""

    required: bool
    keys: tuple[PublicKey, ...]
    key: SecretKey | None
    clock_ns: Callable[[], int]

    @classmethod
    def of(cls, trust: Trust, *, shared: bool, writable: bool, clock_ns: Callable[[], int]) -> Admission:
        """Build the rules for a store from the user's trust settings.

        Signatures are required where ``trust`` requires them, or by default in a shared store.

        Raises:
            SettingsError: the signing key cannot be read, or ``cryptography`` is required and not installed.
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

    def objection(self) -> str | None:
        """Return why this process could not read back an entry that it stores here, or None if it could.

        Such an entry is not stored: it would replace one that others trust.
        """
        if not self.required:
            return None
        if self.key is None:
            return "no signing key is set"
        raw = self.key.public.raw
        if not any(key.raw == raw and key.counts(self.clock_ns()) for key in self.keys):
            return f"the signing key {self.key.name} is not among the trusted keys"
        return None
