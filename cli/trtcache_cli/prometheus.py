"""``trtcache stats --prometheus``: the counters in the text format of Prometheus, for node_exporter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from prometheus_client import Metric

    from trtcache_cli.remote_stats import RemoteStats
    from trtcache_cli.stats import Stats


class _Collector:
    """The metrics of one store, for a registry of ``prometheus-client``."""

    def __init__(self, found: Stats) -> None:
        self._found, self._root = found, found.root

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        found = self._found
        yield self._gauge("entries", "Entries in the store, key aliases included.", found.files)
        yield self._gauge("store_bytes", "Bytes on disk.", found.file_bytes)
        yield self._counter("hits", "Look-ups that found an entry.", {"": found.hits})
        yield self._counter("misses", "Look-ups that found none, by reason.", found.misses, "reason")
        yield self._counter("puts", "Entries stored after a build.", {"": found.puts})
        yield self._counter("put_failures", "Entries that could not be stored.", found.put_failures, "reason")
        yield self._counter("failed_builds", "Builds that failed, by exception.", found.failed_builds, "reason")
        yield self._counter("cancelled_builds", "Builds that were cancelled.", {"": found.cancelled_builds})
        yield self._counter("evictions", "Entries removed to free space.", found.evictions, "reason")
        yield self._counter("quarantines", "Damaged entries moved away.", found.quarantines, "reason")
        yield self._counter("saved_seconds", "Build time saved by hits.", {"": found.saved_s})
        yield self._counter("waited_seconds", "Seconds spent waiting for other builders.", {"": found.waited_s})
        yield self._gauge("waiting_uploads", "Entries waiting to be uploaded.", found.waiting_uploads)
        if found.remotes:
            yield from self._collect_remotes(found.remotes)

    def _collect_remotes(self, remotes: Mapping[str, RemoteStats]) -> Iterator[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily

        def counter(name: str, text: str) -> CounterMetricFamily:
            return CounterMetricFamily(f"trtcache_remote_{name}", text, labels=["root", "remote"])

        requests, hits = counter("requests", "Requests for entries."), counter("hits", "Look-ups that found an entry.")
        saved = counter("saved_seconds", "Build time saved by hits, less the time of the requests.")
        received, sent = (
            counter("received_bytes", "Bytes received by hits."),
            counter("sent_bytes", "Bytes sent by uploads."),
        )
        uploads = counter("uploads", "Uploaded entries.")
        labels = ["root", "remote", "reason"]
        misses = CounterMetricFamily("trtcache_remote_misses", "Look-ups that found none, by reason.", labels=labels)
        skips = CounterMetricFamily("trtcache_remote_skips", "Look-ups that were skipped, by reason.", labels=labels)
        failures = CounterMetricFamily("trtcache_remote_upload_failures", "Failed uploads, by reason.", labels=labels)
        times = SummaryMetricFamily("trtcache_remote_request_seconds", "Time of look-ups.", labels=labels[:2])
        is_open = GaugeMetricFamily(
            "trtcache_remote_breaker_open",
            "1 while no requests are sent.",
            labels=labels[:2],
        )
        for url, remote in remotes.items():
            names = [self._root, url]
            for family, value in (
                (requests, remote.requests),
                (hits, remote.hits),
                (saved, remote.saved_s),
                (received, remote.received_bytes),
                (sent, remote.sent_bytes),
                (uploads, remote.uploads),
            ):
                family.add_metric(names, value)
            for family, counts in ((misses, remote.misses), (skips, remote.skips), (failures, remote.failed_uploads)):
                for reason, count in counts.items():
                    family.add_metric([*names, reason], count)
            times.add_metric(names, remote.hits + remote.misses.total(), remote.hit_s + remote.miss_s)
            for percent in (50, 95):
                if (time_s := remote.percentile_s(percent)) is not None:
                    where = {"root": self._root, "remote": url, "quantile": str(percent / 100)}
                    times.add_sample(times.name, where, time_s)
            if remote.breaker:
                is_open.add_metric(names, remote.breaker.startswith("open"))
        yield from (requests, hits, misses, skips, saved, received, sent, uploads, failures, times, is_open)

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        from prometheus_client.metrics_core import GaugeMetricFamily

        family = GaugeMetricFamily(f"trtcache_{name}", text, labels=["root"])
        family.add_metric([self._root], value)
        return family

    def _counter(self, name: str, text: str, values: Mapping[str, float], label: str = "") -> Metric:
        from prometheus_client.metrics_core import CounterMetricFamily

        family = CounterMetricFamily(f"trtcache_{name}", text, labels=["root", *([label] if label else [])])
        for value, count in values.items():
            family.add_metric([self._root, *([value] if label else [])], count)
        return family


def exposition(found: Stats) -> str:
    """Return the counters of a store as text.

    Raises:
        click.UsageError: ``prometheus-client`` is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError as error:
        raise click.UsageError("--prometheus needs prometheus-client: pip install 'trtcache[metrics]'") from error
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(found))
    text: bytes = generate_latest(registry)
    return text.decode()
