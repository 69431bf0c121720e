"""Stale entries: their keys name versions of the toolchain, or code of this package, that are not installed.

A key has the exact versions of the tools that built its engine (``Backend.versions``), and a request has those of this
process. After an upgrade no request has the key of an old entry.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from trtcache.backends import registry
from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import canonical
from trtcache.errors import BackendUnavailableError, StoreError
from trtcache.keys.key import KIND as ALIAS
from trtcache.keys.key import code_digest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trtcache.store.disk import DiskStore
    from trtcache.store.record import Record


@frozen_dataclass
class Staleness:
    """Which entries are stale.

    Attributes:
        stale: digests of the entries that cannot be used with the installed versions.
        unchecked: why other entries were not checked, by backend and device: a backend that cannot run here may run on
            another machine.
    """

    stale: list[str] = field(default_factory=list)
    unchecked: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, store: DiskStore, records: Iterable[Record]) -> Staleness:
        """Check entries by the toolchain and the code in their keys.

        An entry that names no toolchain, or that cannot be read, is not stale.
        """
        staleness, installed = cls(), dict[tuple[str, str], Any]()
        for record in records:
            parts = _parts(store, record.digest)
            recorded, target = parts.get("toolchain"), parts.get("target")
            if not isinstance(recorded, dict):  # none, or a part of a caller's own key
                continue
            backend = str(parts.get("backend", "")) if record.kind == ALIAS else record.kind
            device = str(target.get("device", "cpu")) if isinstance(target, dict) else "cpu"
            try:
                if (backend, device) not in installed:
                    toolchain = registry.find(backend, device).versions(device)
                    installed[backend, device] = canonical(toolchain)
            except BackendUnavailableError as error:
                staleness.unchecked[f"{backend} for {device}"] = str(error)
                continue
            # A plan from an ONNX file records no versions of the exporters from torch.
            versions = installed[backend, device]
            is_other = any(versions.get(name) != version for name, version in recorded.items())
            if is_other or ("code" in parts and parts["code"] != canonical(code_digest())):
                staleness.stale.append(record.digest)
        return staleness


def _parts(store: DiskStore, digest: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = store.header(digest).key.document
    except (OSError, StoreError):
        return {}
    parts = document.get("parts", {})
    return parts if isinstance(parts, dict) else {}
