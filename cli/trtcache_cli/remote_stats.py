"""Statistics of each remote from a store's events: look-ups, uploads, bytes, times; and the state of its breaker."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trtcache.config.units import format_duration, format_size, percentile
from trtcache.store.events import BYTES, SAVED, Counters, Event, EventCount

if TYPE_CHECKING:
    from trtcache.config.environment import Config

UNNAMED = "unknown"
"""Reason of events without one."""


@dataclass(slots=True)
class RemoteStats:
    """Events of one remote.

    ``hit_s`` and ``miss_s`` are the total times of its answers. ``skips`` are look-ups that were not sent, by reason.
    ``times_s`` are the sorted times of the look-ups that are still in the logs. ``breaker`` is ``closed``, ``open for
    20 s: <why>`` or ``half-open``, and empty for a remote that is not configured.
    """

    hits: int = 0
    hit_s: float = 0.0
    saved_s: float = 0.0
    misses: Counter[str] = field(default_factory=Counter)
    miss_s: float = 0.0
    skips: Counter[str] = field(default_factory=Counter)
    uploads: int = 0
    failed_uploads: Counter[str] = field(default_factory=Counter)
    received_bytes: int = 0
    sent_bytes: int = 0
    times_s: list[float] = field(default_factory=list)
    breaker: str = ""

    @property
    def requests(self) -> int:
        """Look-ups that were sent, and uploads; a multipart upload counts once."""
        return self.hits + self.misses.total() + self.uploads + self.failed_uploads.total()

    def percentile_s(self, percent: int) -> float | None:
        """Return a percentile of the look-up times, None without any."""
        return percentile(self.times_s, percent) if self.times_s else None

    def add(self, event: str, reason: str, total: EventCount) -> bool:
        """Add a counter of this remote; return whether the event is one of remotes."""
        if event == "remote_hit":
            self.hits, self.hit_s = self.hits + total.count, self.hit_s + total.sum_s
        elif event == "remote_hit" + SAVED:
            self.saved_s += total.sum_s
        elif event == "remote_hit" + BYTES:
            self.received_bytes += total.count
        elif event == "remote_miss":
            self.misses[reason] += total.count
            self.miss_s += total.sum_s
        elif event == "remote_skip":
            self.skips[reason] += total.count
        elif event == "upload":
            self.uploads += total.count
        elif event == "upload" + BYTES:
            self.sent_bytes += total.count
        elif event == "upload_failed":
            self.failed_uploads[reason] += total.count
        else:
            return False
        return True


def sum_remotes(counts: Counters) -> dict[str, RemoteStats]:
    """Sum up the counters of each remote; their reason starts with its URL."""
    found: dict[str, RemoteStats] = {}
    for (_, event, text, _), total in sorted(counts.items()):
        url, _, reason = text.partition(" ")
        remote = found.get(url) or RemoteStats()
        if remote.add(event, reason or UNNAMED, total):
            found[url] = remote
    return found


def add_times(remotes: dict[str, RemoteStats], events: Iterable[Event]) -> None:
    """Add the times of single look-ups, which counters do not have."""
    for event in events:
        url = event.reason.partition(" ")[0]
        if event.event in ("remote_hit", "remote_miss") and url in remotes:
            remotes[url].times_s.append(event.waited_s)
    for remote in remotes.values():
        remote.times_s.sort()


def add_breakers(remotes: dict[str, RemoteStats], config: Config) -> None:
    """Add the state of the breaker of each configured remote. Nothing is sent."""
    if not config.remotes.urls:
        return
    from trtcache.remote.connection import connect  # imports no obstore

    for url in config.remotes.urls:
        state = connect(url, config.remotes).breaker.read()
        text = "closed"
        if state.until_s:
            left_s = state.until_s - time.time()
            text = f"open for {format_duration(left_s)}: {state.why}" if left_s > 0 else "half-open"
        remotes.setdefault(url.label, RemoteStats()).breaker = text


def remote_document(remote: RemoteStats) -> dict[str, object]:
    """Return the fields for ``--json``."""
    return {
        "hits": remote.hits,
        "hit_s": remote.hit_s,
        "misses": dict(remote.misses),
        "miss_s": remote.miss_s,
        "skips": dict(remote.skips),
        "saved_s": remote.saved_s,
        "uploads": remote.uploads,
        "failed_uploads": dict(remote.failed_uploads),
        "requests": remote.requests,
        "received_bytes": remote.received_bytes,
        "sent_bytes": remote.sent_bytes,
        "median_s": remote.percentile_s(50),
        "p95_s": remote.percentile_s(95),
        "breaker": remote.breaker or None,
    }


def remote_pairs(url: str, remote: RemoteStats) -> list[tuple[str, str]]:
    """Return names and values to print."""
    median_s, p95_s = remote.percentile_s(50), remote.percentile_s(95)
    pairs = [("remote", url)]
    if remote.breaker:
        pairs.append(("  breaker", remote.breaker))
    pairs.append(("  requests", f"{remote.requests:,}"))
    if median_s is not None and p95_s is not None:
        pairs.append(("  time of a look-up", f"median {format_duration(median_s)}, 95 % {format_duration(p95_s)}"))
    pairs.append(("  hits", f"{remote.hits:,}, {format_size(remote.received_bytes)} received"))
    pairs.append(("  time saved", format_duration(remote.saved_s)))
    pairs.append(("  misses", f"{remote.misses.total():,}"))
    pairs += _reasons("    ", remote.misses)
    if remote.skips:
        pairs += [("  not asked", f"{remote.skips.total():,}"), *_reasons("    ", remote.skips)]
    if remote.uploads:
        pairs.append(("  uploads", f"{remote.uploads:,}, {format_size(remote.sent_bytes)} sent"))
    pairs += _reasons("  failed uploads, ", remote.failed_uploads)
    return pairs


def _reasons(begin: str, counts: Counter[str]) -> Sequence[tuple[str, str]]:
    return [(f"{begin}{reason}", f"{count:,}") for reason, count in counts.most_common()]
