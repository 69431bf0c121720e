"""Stale entries: those whose keys name another toolchain than the installed one.

A key has the exact versions of the tools that built its engine (``Backend.toolchain``), and a request has those of this
process. After an upgrade no request has the keys of the old ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trtcache.backends import registry
from trtcache.digests import canonical
from trtcache.errors import BackendUnavailableError, StoreError
from trtcache.keys.key import KIND as ALIAS
from trtcache.keys.key import code_digest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trtcache.store.disk import DiskStore
    from trtcache.store.record import Record


@dataclass(frozen=True, slots=True)
class Staleness:
    """The stale entries among some.

    Attributes:
        stale: digests of the entries that cannot be used with the installed versions.
        unjudged: why others were not judged, by backend and device: a backend that cannot run here may run on another
            machine.
    """

    stale: list[str] = field(default_factory=list)
    unjudged: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, store: DiskStore, records: Iterable[Record]) -> Staleness:
        """Judge entries by the toolchains in their keys; an entry without one, or that is unreadable, is not stale."""
        staleness, installed = cls(), dict[tuple[str, str], object]()
        for record in records:
            parts = _parts(store, record.digest)
            if "toolchain" not in parts:
                continue
            backend = str(parts.get("backend", "")) if record.kind == ALIAS else record.kind
            device = str(parts.get("target", {}).get("device", "cpu"))
            try:
                if (backend, device) not in installed:
                    toolchain = registry.find(backend, device).toolchain(device)
                    installed[backend, device] = canonical(toolchain)
            except BackendUnavailableError as error:
                staleness.unjudged[f"{backend} for {device}"] = str(error)
                continue
            if parts["toolchain"] != installed[backend, device] or _is_of_other_code(parts):
                staleness.stale.append(record.digest)
        return staleness


def _is_of_other_code(parts: dict[str, Any]) -> bool:
    """Return whether the key of an alias has another digest of this package's code."""
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
