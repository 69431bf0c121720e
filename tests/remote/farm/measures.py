"""What the remote tier takes on a real server: latencies beside a raw GET, memory of a large entry, and the extra."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.remote.conftest import Hosts, fetch
from tests.remote.farm.faults import ProxyProcess
from trtcache.config.remotes import RemoteSettings, RemoteUrl
from trtcache.config.signing_keys import SecretKey
from trtcache.remote import uploads
from trtcache.remote.bucket import Bucket
from trtcache.remote.tier import object_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.remote.farm.servers import Server

SIZES = {"175 kB": 175_000, "2 MB": 2_000_000, "100 MB": 100_000_000}
LARGE_BYTES = 3_000_000_000
SYNCED, SYNCED_BYTES, SYNCS = 1000, 100_000, 5


@contextmanager
def hosts_of(server: Server, folder: Path) -> Iterator[Hosts]:
    """Yield machines that share a prefix of a server, with the server's credentials in the environment."""
    before = dict(os.environ)
    os.environ.update(server.environ, XDG_CACHE_HOME=str(folder / "user"))
    key = SecretKey("ci", bytes(32))
    key.write(folder / "ci.secret")
    environ = {
        "TRTCACHE_TRUSTED_KEYS": str(key.public),
        "TRTCACHE_SIGNING_KEY": str(folder / "ci.secret"),
        "TRTCACHE_REMOTE_MIN_BUILD": "0",
        "TRTCACHE_MAX_SIZE": "0",
        "XDG_CONFIG_HOME": str(folder / "config"),
    }
    try:
        yield Hosts(folder / "hosts", server.url(f"main-{os.urandom(4).hex()}"), environ)
    finally:
        os.environ.clear()
        os.environ.update(before)


def latencies(server: Server, folder: Path, rounds: int) -> dict[str, list[float]]:
    """Return seconds of raw GETs, of those written and flushed, of hits, of local hits and of misses, which take turns.

    A local hit is of the entry that came from the remote (``local``), and of one that was built (``built``), by a cache
    that has no remote.
    """
    found: dict[str, list[float]] = {}

    def note(name: str, action: Callable[..., Any], *args: object) -> Any:
        began_s = time.perf_counter()
        result = action(*args)
        found.setdefault(name, []).append(time.perf_counter() - began_s)
        return result

    with hosts_of(server, folder) as hosts:
        bucket = Bucket(RemoteUrl.parse(hosts.url), RemoteSettings())
        names, alone = {}, hosts.host("alone", TRTCACHE_REMOTE="")
        for n, (label, size_bytes) in enumerate(SIZES.items()):
            content = os.urandom(size_bytes)
            entry = fetch(hosts.writer(), content, n)
            fetch(alone, content, n)
            assert uploads.flush(60) == 0
            names[label] = object_name(entry.key.digest)
            assert fetch(hosts.host("a"), n=n).origin == "remote"  # the first one makes folders
            hosts.host("a").store.remove(entry.key.digest)  # type: ignore[union-attr]
        for turn in range(rounds):
            for n, label in enumerate(SIZES if turn < max(3, rounds // 4) else list(SIZES)[:2]):
                data = note(f"{label} raw", _read, bucket, names[label])
                note(f"{label} flushed", _write, folder / "raw", data)
                cache = hosts.host("a")
                key = cache.key({"n": n}, kind="test")
                assert note(f"{label} hit", cache.get, key) is not None
                assert note(f"{label} local", cache.get, key) is not None
                assert note(f"{label} built", alone.get, key) is not None
                assert cache.store is not None
                cache.store.remove(key.digest)
            absent = cache.key({"absent": turn}, kind="test")
            note("raw miss", bucket.head, f"entries/v1/absent-{turn}")
            assert note("miss", cache.get, absent) is None
            assert note("miss again", cache.get, absent) is None
    return found


def _read(bucket: Bucket, name: str) -> bytes:
    return b"".join(bucket.get(name)[1])


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


_LARGE = """
import json, sys, time
from pathlib import Path
import sqlalchemy, trtcache
from benchmarks.memory import watched
cache = trtcache.Cache()
key = cache.key({"n": 0}, kind="test")
if sys.argv[1] == "up":
    cache.keep(key, Path(sys.argv[2]), build_s=999.0)
began_s = time.perf_counter()
with watched() as memory:
    if sys.argv[1] == "up":
        assert trtcache.flush(500) == 0
    else:
        assert cache.get(key) is not None
print(json.dumps({"extra_bytes": memory.peak_bytes - memory.before_bytes, "took_s": time.perf_counter() - began_s}))
"""


def large(server: Server, folder: Path) -> dict[str, dict[str, float]]:
    """Return the memory and the seconds of an upload and of a download of 3 GB, each in a new process."""
    content = folder / "content"
    with content.open("wb") as file:
        for _ in range(LARGE_BYTES // 10_000_000):
            file.write(os.urandom(10_000_000))
    found: dict[str, dict[str, float]] = {}
    with hosts_of(server, folder) as hosts:
        for what, mode in (("up", "write"), ("down", "read")):
            environ = hosts.variables(what) | {"TRTCACHE_REMOTE": f"{hosts.url}&mode={mode}"}
            whole = {**os.environ, **environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
            command = [sys.executable, "-W", "ignore", "-c", _LARGE, what, str(content)]
            done = subprocess.run(command, env=whole, stdout=subprocess.PIPE, text=True, check=True)
            found[what] = json.loads(done.stdout)
    return found


_COMPILE = """
import sys
import torch, trtcache
from tests.models import Affine
model, example = Affine().eval(), (torch.arange(12.0).reshape(3, 4),)
torch.manual_seed(0)
compiled = trtcache.compile(model, example, backend="aot_inductor")
torch.testing.assert_close(compiled(*example), model(*example))
assert trtcache.flush(60) == 0
print(compiled.report.partitions[0].origin or compiled.report.partitions[0].outcome)
"""


def requests(server: Server, folder: Path) -> dict[str, dict[str, Any]]:
    """Return the methods of the requests of a cold compile with AOTInductor, of the same on a new host, and again."""
    found: dict[str, dict[str, Any]] = {}
    with hosts_of(server, folder) as hosts:
        proxy = ProxyProcess(server.port)
        try:
            url = f"{hosts.url}&mode=write".replace(str(server.port), str(proxy.port))
            for what, name in (("cold", "a"), ("new host", "b"), ("again", "b")):
                environ = {**os.environ, **hosts.variables(name), "TRTCACHE_REMOTE": url}
                environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
                command = [sys.executable, "-W", "ignore", "-c", _COMPILE]
                done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True)
                methods = Counter("LIST" if "list-type=" in path else method for method, path in proxy.set(""))
                found[what] = {"origin": done.stdout.split()[-1], "requests": dict(methods)}
        finally:
            proxy.close()
    return found


def sync(server: Server, folder: Path) -> dict[str, float]:
    """Return the seconds of ``trtcache sync`` with a remote, both ways, and of as many requests by obstore alone.

    Medians of ``SYNCS`` rounds; each uploads to a prefix of its own and downloads from it into an empty directory.
    """
    raw = folder / "raw"
    found: dict[str, list[float]] = {}

    def note(name: str, action: Callable[[], object]) -> None:
        began_s = time.perf_counter()
        action()
        found.setdefault(name, []).append(time.perf_counter() - began_s)

    def together(one: Callable[[int], object]) -> None:
        with ThreadPoolExecutor(32) as threads:
            list(threads.map(one, range(SYNCED)))

    with hosts_of(server, folder) as hosts:
        cache = hosts.host("a", TRTCACHE_REMOTE="")
        for n in range(SYNCED):
            fetch(cache, os.urandom(SYNCED_BYTES), n)
        bucket = Bucket(RemoteUrl.parse(hosts.url), RemoteSettings(), patient=True)
        content = os.urandom(SYNCED_BYTES)
        raw.mkdir()
        for turn in range(SYNCS):
            names = [f"raw{turn}/{n}" for n in range(SYNCED)]
            note("up raw", lambda: together(lambda n: bucket.put(names[n], iter([memoryview(content)]), SYNCED_BYTES)))  # noqa: B023
            note("down raw", lambda: together(lambda n: _write(raw / str(n), _read(bucket, names[n]))))  # noqa: B023
            remote, target = f"{hosts.name}/{turn}", hosts.folder / f"b{turn}"
            for what, places in (("up", (str(hosts.folder / "a"), remote)), ("down", (remote, str(target)))):
                environ = {**os.environ, **hosts.variables("a"), "TRTCACHE_REMOTE": f"{hosts.url}&mode=write"}
                command = [str(Path(sys.executable).with_name("trtcache")), "sync", "--json", *places]
                note(what, lambda: subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, check=True))  # noqa: B023
            assert sum(path.is_file() for path in target.rglob("*.trtc")) == SYNCED
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def install() -> dict[str, float]:
    """Return the bytes and the distributions that the extra adds to an install."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "-qq", "--no-compile", "--target", folder, "obstore>=0.12"]
        subprocess.run(command, check=True)
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        count = sum(path.name == "METADATA" for path in files)
        return {"bytes": sum(path.stat().st_size for path in files), "distributions": count}
