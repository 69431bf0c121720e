"""What a remote that fails costs: a bounded moment once, never an error and never a wrong answer."""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.effort import SOON_S, tries
from tests.remote.conftest import fetch, free_port, left_behind, report
from tests.remote.fault_proxy import FAULTS
from trtcache.remote import uploads

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import RunPython, StartPython
    from tests.remote.conftest import Hosts
    from tests.remote.fault_proxy import FaultProxy

CONTENT = os.urandom(150_000)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_costs_a_moment_and_no_answer(hosts: Hosts, proxy: FaultProxy, fault: str) -> None:
    """The first three look-ups take 2.5 s at most, and the next hundred together hardly any time."""
    for n in range(3):
        hosts.publish(CONTENT, n)
    proxy.fault = fault
    cache = hosts.host("a")
    began_s = time.monotonic()
    for n in range(3):
        assert bytes(fetch(cache, CONTENT, n).read()) == CONTENT
    first_s = time.monotonic() - began_s
    keys = [cache.key({"n": n}, kind="test") for n in range(100, 200)]
    began_s, asked = time.monotonic(), proxy.count()
    found = [cache.get(key) for key in keys]
    next_s = time.monotonic() - began_s
    report(
        f"{fault}: first three {first_s:.2f} s, next hundred {next_s * 1e3:.0f} ms, {proxy.count() - asked} requests"
    )
    assert found == [None] * 100
    assert first_s < SOON_S  # measured: 2.3 at most
    if fault not in ("1 MB/s", "every other 503"):  # which answer, slowly or at the second attempt
        assert proxy.count() - asked <= 3
        assert next_s < SOON_S
    assert not left_behind(hosts.folder)


@pytest.mark.parametrize("fault", ["closed", "full backlog"])
def test_a_server_that_cannot_be_reached(make_hosts: Callable[..., Hosts], fault: str) -> None:
    """A closed port and a listener that accepts nothing open the breaker at once."""
    with ExitStack() as stack:
        port = free_port()
        if fault == "full backlog":
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            port = listener.getsockname()[1]
            for _ in range(3):
                client = stack.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex(("127.0.0.1", port))
        cache = make_hosts(port).writer("a")
        began_s = time.monotonic()
        assert fetch(cache).outcome == "built"
        first_s = time.monotonic() - began_s
        began_s = time.monotonic()
        assert all(cache.get(cache.key({"n": n}, kind="test")) is None for n in range(1, 101))
        next_s = time.monotonic() - began_s
        report(f"{fault}: first {first_s:.2f} s, next hundred {next_s * 1e3:.0f} ms")
        assert first_s < SOON_S
        assert next_s < SOON_S
        assert uploads.flush(60) == 0
        assert cache.store is not None
        assert len(cache.store.outbox.digests()) == 1


def test_the_breaker_is_shared_by_processes(make_hosts: Callable[..., Hosts], run_python: RunPython) -> None:
    """After one failure, the next process asks nothing, and does not even import obstore."""
    hosts = make_hosts(free_port())
    fetch(hosts.host("a"))
    code = """
    import sys, trtcache
    print(trtcache.Cache().get_or_build({"n": 9}, lambda: b"new", kind="test").outcome, "obstore" in sys.modules)
    """
    done = run_python(code, **hosts.variables("a"))
    assert done.stdout == "built False\n", done.stderr


def test_a_bucket_that_is_not_there_is_said_once(
    hosts: Hosts, proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """It is no miss: nobody would notice."""
    cache = hosts.host("a", TRTCACHE_REMOTE=hosts.url.replace("s3://engines", "s3://no-such-bucket"))
    for n in range(3):
        assert fetch(cache, n=n).outcome == "built"
    assert proxy.count() == 1
    assert [record.message for record in caplog.records if "no-such-bucket" in record.message] == [
        next(record.message for record in caplog.records if "TRTCACHE_REMOTE" in record.message)
    ]


def test_missing_credentials_are_said_once(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: object
) -> None:
    """With what to set; the build goes on."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("HOME", str(tmp_path))
    cache = hosts.host("a")
    for n in range(2):
        assert fetch(cache, n=n).outcome == "built"
    assert (
        sum("is not used by this process" in r.message or "no requests for" in r.message for r in caplog.records) == 1
    )


def test_a_bucket_may_be_named_credentials(hosts: Hosts) -> None:
    """A closed port is one, whatever the bucket is called: it does not switch the remote off for the process."""
    url = f"s3://credentials/credentials?endpoint=http://127.0.0.1:{free_port()}"
    cache = hosts.host("a", TRTCACHE_REMOTE=url)
    assert fetch(cache).outcome == "built"
    assert cache.store is not None
    missed = [event.reason for event in cache.store.events.read() if event.event == "remote_miss"]
    assert [reason.partition(" ")[2] for reason in missed] == ["unreachable"]


def test_missing_token_files_are_missing_credentials(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And no failure that may pass."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/x")
    cache = hosts.host("a")
    assert fetch(cache).outcome == "built"
    assert cache.store is not None
    missed = [event.reason for event in cache.store.events.read() if event.event == "remote_miss"]
    assert [reason.partition(" ")[2] for reason in missed] == ["no-credentials"]


def test_a_drip_is_left_before_it_ends(hosts: Hosts, proxy: FaultProxy) -> None:
    """A byte at a time never runs into a time-out of the library."""
    hosts.publish(CONTENT)
    proxy.fault = "drip"
    began_s = time.monotonic()
    assert fetch(hosts.host("a"), CONTENT).outcome == "built"
    assert time.monotonic() - began_s < SOON_S


def test_a_download_that_takes_longer_than_the_build_is_left(hosts: Hosts, proxy: FaultProxy) -> None:
    """At 1 MB/s, 6 MB are not worth waiting for if the build took no time."""
    content = os.urandom(6_000_000)
    hosts.publish(content)
    proxy.fault = "1 MB/s"
    began_s = time.monotonic()
    cache = hosts.host("a")
    assert fetch(cache, content).outcome == "built"
    report(f"left after {time.monotonic() - began_s:.2f} s")
    assert cache.store is not None
    (reason,) = [event.reason for event in cache.store.events.read() if event.event == "remote_miss"]
    assert reason.endswith(" slow")
    assert not left_behind(hosts.folder)


def test_ctrl_c_ends_a_hang(hosts: Hosts, proxy: FaultProxy, start_fresh_python: StartPython) -> None:
    """A signal gets through at once, although the library does not look at signals."""
    proxy.fault = "hang"
    code = """
    import sys, trtcache
    print("asking", flush=True)
    trtcache.Cache().get_or_build({"n": 0}, lambda: b"", kind="test")
    """
    variables = {**hosts.variables("a"), "TRTCACHE_REMOTE_TIMEOUT": "30"}
    process = start_fresh_python(code, **variables)
    assert process.stdout is not None
    process.stdout.readline()
    while not proxy.count():
        time.sleep(0.02)
    began_s = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    report(f"Ctrl-C ends a hang after {time.monotonic() - began_s:.2f} s")
    assert time.monotonic() - began_s < SOON_S
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert process.returncode == -signal.SIGINT


def test_a_forked_child_does_not_ask(hosts: Hosts, proxy: FaultProxy, run_python: RunPython) -> None:
    """After its parent did, a request would wait for threads that the child does not have."""
    code = """
    import os, sys, time, trtcache
    cache = trtcache.Cache()
    cache.get_or_build({"n": 0}, lambda: b"", kind="test")
    child = os.fork()
    if not child:
        key = cache.key({"n": 2}, kind="test")
        began = time.monotonic()
        cache.get(key)
        took_s = time.monotonic() - began
        print(cache.get_or_build({"n": 1}, lambda: b"", kind="test").outcome, took_s, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    """
    done = run_python(code, **hosts.variables("a"))
    outcome, took_s = done.stdout.split()
    report(f"a look-up in a forked child misses after {float(took_s) * 1e3:.1f} ms")
    assert outcome == "built", done.stderr
    assert proxy.count() == 1
    assert done.stderr.count("is not used by this process") == 1


def test_a_child_forked_before_the_first_request_asks(hosts: Hosts, proxy: FaultProxy, run_python: RunPython) -> None:
    """Nothing is started before it is needed."""
    code = """
    import os, trtcache
    cache = trtcache.Cache()
    if not (child := os.fork()):
        cache.get_or_build({"n": 1}, lambda: b"", kind="test")
        os._exit(0)
    os.waitpid(child, 0)
    """
    done = run_python(code, **hosts.variables("a"))
    assert (done.returncode, done.stderr, proxy.count()) == (0, "", 1)


@pytest.mark.torture
def test_random_faults_never_give_a_wrong_answer(
    hosts: Hosts, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of look-ups through faults each is a hit with the right bytes or a miss, and no file is left behind."""
    from trtcache.remote.connection import Breaker

    contents = [os.urandom(2000 + 997 * n) for n in range(20)]
    for n, content in enumerate(contents):
        hosts.publish(content, n)
    monkeypatch.setattr(Breaker, "admits", lambda _: True)  # ask in spite of the faults
    proxy.fault, proxy.delay_s = "random", 0.0
    hits = 0
    rounds = tries(10, 500)
    for round_ in range(rounds):
        cache = hosts.host(f"host-{round_}", TRTCACHE_REMOTE_TIMEOUT="0.2")
        for n, content in enumerate(contents):
            found = cache.get(cache.key({"n": n}, kind="test"))
            hits += found is not None
            assert found is None or bytes(found.read()) == content
    report(f"{rounds * 20} look-ups: {hits} hits, {proxy.count('GET')} requests")
    assert rounds < hits < rounds * 20
    assert not left_behind(hosts.folder)
