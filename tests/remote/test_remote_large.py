"""Large entries: parts side by side, in little memory, and only after the header was accepted."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from tests.effort import tries
from tests.remote.conftest import BUCKET, fetch, left_behind, report
from trtcache.remote import connection
from trtcache.remote.tier import object_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import RunPython, StartPython
    from tests.remote.conftest import Hosts
    from trtcache.cache import Cache

SIZE = 30 << 20


@dataclass
class Disk:
    """A server of entries on a disk. ``rate`` is in bytes a second for each connection, 0 for no limit."""

    port: int
    files: dict[str, Path] = field(default_factory=dict)
    takes_ranges: bool = True
    rate: int = 0
    breaks_at: int = 0
    asked: list[str] = field(default_factory=list)

    def add(self, hosts: Hosts, cache: Cache, content: bytes, *, build_s: float = 60.0) -> None:
        """Serve an entry that took a cache a minute to build."""
        key = cache.key({"n": 0}, kind="test")
        cache.keep(key, content, build_s=build_s)
        entry = cache.get(key)
        assert entry is not None
        assert entry.path is not None
        prefix = hosts.url.partition("?")[0].removeprefix(f"s3://{BUCKET}/")
        self.files[f"/{BUCKET}/{prefix}/{object_name(entry.key.digest)}"] = entry.path


class Handler(BaseHTTPRequestHandler):
    """GET of files, and of ranges of them."""

    protocol_version = "HTTP/1.1"
    disk: Disk

    def do_GET(self) -> None:
        """Answer with a file, or a range of it."""
        disk, range_ = self.disk, self.headers["Range"] or ""
        disk.asked.append(range_)
        path = disk.files.get(self.path)
        if path is None:
            self.send_error(404)
            return
        size = path.stat().st_size
        start, end = 0, size
        if match := re.fullmatch(r"bytes=(\d+)-(\d+)", range_) if disk.takes_ranges else None:
            start, end = int(match[1]), min(size, int(match[2]) + 1)
        self.send_response(206 if match else 200)
        headers = {"ETag": '"1"', "Last-Modified": formatdate(usegmt=True), "Content-Length": str(end - start)}
        if match:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self._send(path, start, end)
        except OSError:
            self.close_connection = True

    def _send(self, path: Path, start: int, end: int) -> None:
        disk, step = self.disk, 1 << 18
        with path.open("rb") as file:
            file.seek(start)
            for offset in range(start, end, step):
                if disk.breaks_at and offset <= disk.breaks_at < offset + step:
                    raise OSError("cut")
                self.wfile.write(file.read(min(step, end - offset)))
                if disk.rate:
                    time.sleep(step / disk.rate)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def disk() -> Iterator[Disk]:
    """A running server."""
    handler: Any = type("Served", (Handler,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        handler.disk = Disk(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield handler.disk
        server.shutdown()
        thread.join()


@pytest.fixture
def hosts(make_hosts: Callable[..., Hosts], disk: Disk) -> Hosts:
    """Machines that read from the disk's server."""
    return make_hosts(disk.port)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts from 16 MiB on."""
    monkeypatch.setattr(connection, "SIDE_BY_SIDE_BYTES", 16 << 20)


@pytest.fixture(scope="module")
def content() -> bytes:
    """What does not compress."""
    return os.urandom(SIZE)


def builder(hosts: Hosts) -> Cache:
    """Return the cache of a machine without a remote."""
    return hosts.host("ci", TRTCACHE_REMOTE="")


@pytest.mark.usefixtures("parts")
def test_parts_side_by_side(hosts: Hosts, disk: Disk, content: bytes) -> None:
    """Four small ones first, then such of 4 MiB; the file is byte for byte that of the builder."""
    disk.add(hosts, builder(hosts), content)
    found = fetch(hosts.host("a"))
    assert (found.outcome, found.origin) == ("hit", "remote")
    assert found.path is not None
    assert found.path.read_bytes() == next(iter(disk.files.values())).read_bytes()
    ranges = [range_ for range_ in disk.asked if range_]
    assert (len(disk.asked) - len(ranges), 10 <= len(ranges) <= 12) == (1, True)


def test_smaller_ones_are_one_request(hosts: Hosts, disk: Disk, content: bytes) -> None:
    """Up to 64 MiB."""
    disk.add(hosts, builder(hosts), content)
    assert fetch(hosts.host("a")).origin == "remote"
    assert disk.asked == [""]


@pytest.mark.usefixtures("parts")
def test_a_server_without_ranges_sends_one_stream(hosts: Hosts, disk: Disk, content: bytes) -> None:
    """It answers 200 with the whole object; the stream that was open goes on."""
    disk.takes_ranges = False
    disk.add(hosts, builder(hosts), content)
    assert bytes(fetch(hosts.host("a")).read()) == content
    assert disk.asked.count("") == 1
    assert len(disk.asked) <= 5


@pytest.mark.usefixtures("parts")
def test_a_header_that_does_not_count_ends_it(
    hosts: Hosts, disk: Disk, content: bytes, keys: dict[str, tuple[str, Path]]
) -> None:
    """No part is requested."""
    disk.add(hosts, builder(hosts), content)
    assert fetch(hosts.host("a", TRTCACHE_TRUSTED_KEYS=keys["stranger"][0])).outcome == "built"
    assert disk.asked == [""]


@pytest.mark.usefixtures("parts")
def test_a_part_that_is_cut_is_a_miss(hosts: Hosts, disk: Disk, content: bytes) -> None:
    """Nothing of it is left."""
    disk.add(hosts, builder(hosts), content)
    disk.breaks_at = 25 << 20
    assert fetch(hosts.host("a"), b"built").outcome == "built"
    assert not left_behind(hosts.folder)


@pytest.mark.usefixtures("parts")
def test_parts_of_a_slow_server_are_given_up(hosts: Hosts, disk: Disk, content: bytes) -> None:
    """When it is clear that they take longer than the build, and not earlier."""
    disk.add(hosts, builder(hosts), content, build_s=0.0)
    disk.rate = 1 << 20  # for each of four: 30 MiB would take 7 s, and 2 s are allowed
    assert fetch(hosts.host("slow"), b"built").outcome == "built"
    disk.rate = 12 << 20  # one stream would take 2.5 s, four less than a second
    assert fetch(hosts.host("fast")).origin == "remote"
    assert not left_behind(hosts.folder)


FETCH = """
import sys, threading, time
from trtcache.cache import Cache
from trtcache.remote import connection
connection.SIDE_BY_SIDE_BYTES = 16 << 20

def anonymous():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) / 1024

def sample():
    while True:
        most[0] = max(most[0], anonymous())
        time.sleep(0.002)

cache = Cache()
entry = cache.get_or_build({"n": 1}, lambda: b"", kind="test")
most = [0.0]
threading.Thread(target=sample, daemon=True).start()
before = anonymous()
print("asking", flush=True)
began = time.monotonic()
entry = cache.get_or_build({"n": 0}, lambda: b"never", kind="test")
print(entry.origin, most[0] - before, time.monotonic() - began)
"""


@pytest.mark.torture
def test_a_large_entry_takes_little_memory(hosts: Hosts, disk: Disk, run_python: RunPython) -> None:
    """Not more than 64 MiB, whatever its size."""
    megabytes = tries(250, 3000)
    disk.add(hosts, builder(hosts), os.urandom(megabytes << 20), build_s=600.0)
    done = run_python(FETCH, **hosts.variables("a"))
    assert done.stdout.startswith("asking\nremote "), done.stderr
    more, took = map(float, done.stdout.split()[2:])
    report(f"{megabytes} MiB: {more:.1f} MiB more memory, {took:.2f} s")
    assert more < 64


def test_ctrl_c_ends_parts(hosts: Hosts, disk: Disk, start_fresh_python: StartPython, content: bytes) -> None:
    """At once, and nothing is left."""
    disk.add(hosts, builder(hosts), content)
    disk.rate = 5 << 20
    process = start_fresh_python(FETCH, **hosts.variables("a"))
    assert process.stdout is not None
    process.stdout.readline()
    while not any(disk.asked):
        time.sleep(0.01)
    began_s = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    report(f"Ctrl-C among parts: {time.monotonic() - began_s:.2f} s")
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert not left_behind(hosts.folder)
