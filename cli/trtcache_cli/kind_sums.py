"""Number and size of the entries of each kind, or of each group of another sort."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trtcache.store.record import Record

Sums = dict[str, tuple[int, int]]
"""Kind, or another group -> number of its entries and their bytes on disk, largest first."""


def sums_by(records: Iterable[Record], group_of: Callable[[Record], str]) -> Sums:
    """Sum up the entries of each group."""
    counts: Counter[str] = Counter()
    sizes_bytes: Counter[str] = Counter()
    for record in records:
        group = group_of(record)
        counts[group] += 1
        sizes_bytes[group] += record.file_bytes
    order = sorted(counts, key=lambda group: (-sizes_bytes[group], group))
    return {group: (counts[group], sizes_bytes[group]) for group in order}


def sums_of(records: Iterable[Record]) -> Sums:
    """Sum up the entries of each kind."""
    return sums_by(records, lambda record: record.kind)


def sums_as_json(records: Iterable[Record]) -> dict[str, dict[str, int]]:
    """Sum up the entries of each kind for ``--json``."""
    return as_json(sums_of(records))


def as_json(sums: Sums) -> dict[str, dict[str, int]]:
    """Convert sums for ``--json``."""
    return {kind: {"entries": count, "file_bytes": file_bytes} for kind, (count, file_bytes) in sums.items()}


def counts_in_words(records: Iterable[Record]) -> str:
    """Return ``3 alias, 1 direct``."""
    return ", ".join(f"{count:,} {kind}" for kind, (count, _) in sums_of(records).items())


def entries_text(count: int) -> str:
    """Return ``1 entry``, ``1,200 entries``."""
    return count_of(count, "entry", "entries")


def count_of(count: int, name: str, plural: str) -> str:
    """Return ``1 hit``, ``1,200 hits``."""
    return f"{count:,} {name if count == 1 else plural}"


def hits_and_misses(hits: int, misses: int) -> str:
    """Return ``2 hits, 1 miss``."""
    return f"{count_of(hits, 'hit', 'hits')}, {count_of(misses, 'miss', 'misses')}"
