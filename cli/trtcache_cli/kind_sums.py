"""Number and size of the entries of each kind, or of any other group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trtcache.store.record import Record

Sums = dict[str, tuple[int, int]]
"""Kind, or any other group -> number of its entries and their bytes on disk, largest first."""


def _kind(record: Record) -> str:
    return record.kind


def sum_entries(records: Iterable[Record], group_of: Callable[[Record], str] = _kind) -> Sums:
    """Sum up the entries of each kind, or of each group."""
    counts: Counter[str] = Counter()
    sizes_bytes: Counter[str] = Counter()
    for record in records:
        group = group_of(record)
        counts[group] += 1
        sizes_bytes[group] += record.file_bytes
    order = sorted(counts, key=lambda group: (-sizes_bytes[group], group))
    return {group: (counts[group], sizes_bytes[group]) for group in order}


def sums_as_json(sums: Sums) -> dict[str, dict[str, int]]:
    """Convert sums for ``--json``."""
    return {group: {"entries": count, "file_bytes": file_bytes} for group, (count, file_bytes) in sums.items()}


def counts_in_words(records: Iterable[Record]) -> str:
    """Return ``3 alias, 1 direct``."""
    return ", ".join(f"{count:,} {kind}" for kind, (count, _) in sum_entries(records).items())
