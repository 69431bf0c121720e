"""Which entries no version that is installed here can use: their keys name another toolchain than what is there.

A key has the exact versions of what built its engine (``Backend.toolchain``), and a request has those of this process.
After an upgrade nothing asks for the old ones again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trtcache.backends import registry
from trtcache.digests import canonical
from trtcache.errors import BackendUnavailableError, StoreError
from trtcache.keys.alias import KIND as MEMO
from trtcache.keys.alias import code_digest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trtcache.store.disk import DiskStore
    from trtcache.store.record import Record


@dataclass(frozen=True, slots=True)
class Staleness:
    """What became of some entries.

    Attributes:
        stale: digests of those that nothing here can use.
        unjudged: why some were not looked at, by backend and device: what cannot run here says nothing of machines
            where it can.
    """

    stale: list[str] = field(default_factory=list)
    unjudged: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, store: DiskStore, records: Iterable[Record]) -> Staleness:
        """Judge entries by the toolchains in their keys; one that has none there, or cannot be read, is not stale."""
        found, installed = cls(), dict[tuple[str, str], object]()
        for record in records:
            parts = _parts(store, record.digest)
            if "toolchain" not in parts:
                continue
            backend = str(parts.get("backend", "")) if record.kind == MEMO else record.kind
            device = str(parts.get("target", {}).get("device", "cpu"))
            try:
                if (backend, device) not in installed:
                    toolchain = registry.find(backend, device).toolchain(device)
                    installed[backend, device] = canonical(toolchain)
            except BackendUnavailableError as error:
                found.unjudged[f"{backend} for {device}"] = str(error)
                continue
            if parts["toolchain"] != installed[backend, device] or _is_of_other_code(parts):
                found.stale.append(record.digest)
        return found


def _is_of_other_code(parts: dict[str, Any]) -> bool:
    """Say whether a memo is of another version of our own lowering."""
    code = parts.get("code")
    first = code[0] if isinstance(code, list) and code else code
    return first is not None and first != canonical(code_digest())


def _parts(store: DiskStore, digest: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = store.header(digest).key.document
    except (OSError, StoreError):
        return {}
    parts = document.get("parts", {})
    return parts if isinstance(parts, dict) else {}
