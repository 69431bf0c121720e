"""``stats`` of remotes: bytes, times, what was not asked, the breaker, and the text for Prometheus."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.remote.conftest import fetch, free_port
from trtcache.remote import uploads
from trtcache.store.catalog import counters
from trtcache.store.events import Event, read_from, tails
from trtcache_cli.remote_stats import RemoteStats, add_times

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Result
    from tests.remote.conftest import Hosts
    from tests.remote.fault_proxy import FaultProxy


def remote_stats(command: Callable[..., Result], hosts: Hosts, *args: str) -> dict[str, object]:
    """Return the block of the remote."""
    found = command("stats", "--json", *args).json["remotes"]
    assert list(found) == [hosts.name]
    block: dict[str, object] = found[hosts.name]
    return block


def test_bytes_times_and_savings_are_counted(command: Callable[..., Result], hosts: Hosts) -> None:
    """Of hits and of uploads, with the time of a look-up."""
    cache = hosts.writer("ci")
    key = cache.key({"n": 0}, kind="test")
    cache.keep(key, b"x" * 100_000, build_s=30.0)
    assert uploads.flush(60) == 0
    reader = hosts.writer("a")
    fetch(reader)
    fetch(reader, n=1)
    assert uploads.flush(60) == 0
    block = remote_stats(command, hosts)
    assert cache.store is not None
    assert block["received_bytes"] == cache.store.stat(key.digest).file_bytes
    assert 4096 < float(str(block["sent_bytes"])) < 20_000
    assert 0 < float(str(block["saved_s"])) < 30
    assert (block["hits"], block["misses"], block["uploads"], block["requests"]) == (1, {"absent": 1}, 1, 3)
    assert 0 < float(str(block["median_s"])) <= float(str(block["p95_s"])) < 60
    assert block["breaker"] == "closed"
    assert remote_stats(command, hosts, "--since", "1d") == block
    shown = dict(command("stats").rows)
    assert shown["remote"] == hosts.name
    assert shown["  hits"].endswith("received")
    assert shown["  time of a look-up"].startswith("median ")


def test_an_open_breaker_is_shown(command: Callable[..., Result], hosts: Hosts) -> None:
    """With the look-ups that were not asked, and without a request."""
    closed = f"s3://engines/p?endpoint=http://127.0.0.1:{free_port()}"
    cache = hosts.host("a", TRTCACHE_REMOTE=closed)
    for n in range(3):
        fetch(cache, n=n)
    block = command("stats", "--json", TRTCACHE_REMOTE=closed).json["remotes"]["s3://engines/p"]
    assert (block["misses"], block["skips"]) == ({"unreachable": 1}, {"open": 2})
    assert block["breaker"].startswith("open for ")
    assert dict(command("stats", TRTCACHE_REMOTE=closed).rows)["  not asked"] == "2"


def test_waiting_uploads_are_counted(command: Callable[..., Result], hosts: Hosts) -> None:
    """Those of earlier processes, until ``push`` has sent them."""
    store = hosts.writer("a").store
    assert store is not None
    assert "waiting uploads" not in dict(command("stats").rows)
    store.outbox.add("ab" * 32)
    assert dict(command("stats").rows)["waiting uploads"] == "1 (trtcache push)"
    assert command("stats", "--json").json["waiting_uploads"] == 1
    assert command("push", TRTCACHE_REMOTE=f"{hosts.url}&mode=write").code == 0
    assert command("stats", "--json").json["waiting_uploads"] == 0


def test_a_remote_without_events_has_a_block(command: Callable[..., Result], hosts: Hosts, proxy: FaultProxy) -> None:
    """And the command sends nothing."""
    block = remote_stats(command, hosts)
    assert (block["requests"], block["median_s"], block["breaker"]) == (0, None, "closed")
    assert proxy.count() == 0


def test_quantiles_are_those_of_the_events() -> None:
    """The slowest of twenty is above the 95 percent."""
    remotes = {"u": RemoteStats()}
    add_times(remotes, [Event(0, "remote_hit", "u", waited_s=float(n)) for n in range(20, 0, -1)])
    assert (remotes["u"].percentile_s(50), remotes["u"].percentile_s(95)) == (10.0, 19.0)


def test_logs_of_before_are_read(tmp_path: Path, hosts: Hosts) -> None:
    """Lines without bytes count as before, and a hostile number does not stop a count."""
    path = tmp_path / "host.jsonl"
    line = {"t": time.time_ns(), "event": "remote_hit", "reason": "s3://b", "waited_s": 0.5}
    lines = [line, {**line, "bytes": 7, "saved_s": 2.0}, {**line, "bytes": 10**30}, {**line, "bytes": -3}]
    path.write_text("".join(json.dumps(one) + "\n" for one in [*lines, {**line, "bytes": "x"}]))
    events, _ = read_from(path, 0)
    assert [event.size_bytes for event in events] == [0, 7, 1 << 40, 0]
    counted = tails([path], {})
    assert counted is not None
    sums = {event: (total.count, total.sum_s) for (_, event, _, _), total in counted[0].items()}
    assert sums == {"remote_hit": (4, 2.0), "remote_hit:bytes": ((1 << 40) + 7, 0.0), "remote_hit:saved": (1, 2.0)}
    store = hosts.host("a").store
    assert store is not None
    store.events.append("remote_hit", reason="s3://b", size_bytes=5)
    assert {event for _, event, _, _ in counters(store)} >= {"remote_hit", "remote_hit:bytes"}


def test_prometheus_gets_its_text(command: Callable[..., Result], hosts: Hosts) -> None:
    """Every counter, in a format that its own parser reads."""
    parser = pytest.importorskip("prometheus_client.parser")
    hosts.publish()
    cache = hosts.writer("a")
    fetch(cache)
    fetch(cache, n=1)
    assert uploads.flush(60) == 0
    done = command("stats", "--prometheus")
    assert done.code == 0
    families = {family.name: family for family in parser.text_string_to_metric_families(done.out)}
    assert families["trtcache_hits"].samples[0].value == 1
    (hits,) = families["trtcache_remote_hits"].samples
    assert (hits.name, hits.value, hits.labels["remote"]) == ("trtcache_remote_hits_total", 1, hosts.name)
    (misses,) = families["trtcache_remote_misses"].samples
    assert (misses.labels["reason"], misses.value) == ("absent", 1)
    times = {sample.labels.get("quantile", sample.name): sample.value for sample in families[_TIMES].samples}
    assert times[f"{_TIMES}_count"] == 2
    assert 0 < times["0.5"] <= times["0.95"]
    assert families["trtcache_remote_breaker_open"].samples[0].value == 0
    assert families["trtcache_remote_received_bytes"].samples[0].value > 4096
    assert families["trtcache_waiting_uploads"].samples[0].value == 0
    assert "# HELP trtcache_entries " in done.out


_TIMES = "trtcache_remote_request_seconds"


def test_prometheus_needs_its_client(command: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the command that installs it; --json is another format."""
    assert command("stats", "--prometheus", "--json").code == 2
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    done = command("stats", "--prometheus")
    assert done.code == 2
    assert "pip install 'trtcache[metrics]'" in done.err
