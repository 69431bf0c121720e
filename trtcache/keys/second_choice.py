"""Fallback entries for GPUs: an entry for another product of the same compute capability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trtcache.errors import StoreError
from trtcache.store.rows import COLUMNS, INDEX_NAME, read_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trtcache.digests import CacheKey
    from trtcache.store.disk import DiskStore
    from trtcache.store.format import EntryHeader
    from trtcache.store.reading import EntryStat

_KIND = COLUMNS.index("kind")


@dataclass(frozen=True, slots=True)
class SecondChoice:
    """An entry that differs from the requested key only in the GPU's product.

    Attributes:
        key: its key.
        product: the product that it was built for.
        wanted: the requested product.
    """

    key: CacheKey
    product: str
    wanted: str

    def __str__(self) -> str:
        return f"second choice: built for {self.product}, and this is {self.wanted}, of the same capability"


def second_choice(store: DiskStore, key: CacheKey) -> SecondChoice | None:
    """Return the best entry for another product of a key's compute capability, or None.

    An entry for a GPU with no more memory is preferred to one for a GPU with more, which may not fit; then the nearest
    number of multiprocessors; then the most recently used. Unreadable entries are skipped.

    Raises:
        OSError: the store's directory cannot be read.
    """
    wanted, gpu = _split_gpu(key.document)
    if gpu is None:
        return None
    found = []
    for stored, header in _headers(store, key):
        same, other = _split_gpu(header.key.document)
        if same == wanted and other is not None and header.key.digest != key.digest:
            found.append((_rank(gpu, other), -stored.used_ns, header.key.digest, header.key, other))
    if not found:
        return None
    *_, nearest, other = min(found, key=lambda one: one[:3])
    return SecondChoice(nearest, str(other["product"]), str(gpu["product"]))


def _rank(gpu: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[bool, int]:
    apart = abs(int(other["multiprocessors"]) - int(gpu["multiprocessors"]))
    return int(other["memory_gib"]) > int(gpu["memory_gib"]), apart


def _split_gpu(document: Mapping[str, Any]) -> tuple[object, Mapping[str, Any] | None]:
    """Return a key document without its target's GPU, and that GPU, or None."""
    parts = document["parts"]
    target = parts.get("target")
    if not isinstance(target, dict) or not isinstance(target.get("gpu"), dict):
        return document, None
    rest = {name: value for name, value in target.items() if name != "gpu"}
    return {**document, "parts": {**parts, "target": rest}}, target["gpu"]


def _headers(store: DiskStore, key: CacheKey) -> Iterator[tuple[EntryStat, EntryHeader]]:
    rows = read_rows(store.index_root / INDEX_NAME) or {}
    for stored in store.scan():
        row = rows.get(stored.digest)
        if row is not None and row[_KIND] != key.kind:
            continue
        try:
            header = store.header(stored.digest)
        except (OSError, StoreError):
            continue
        if header.kind == key.kind:
            yield stored, header
