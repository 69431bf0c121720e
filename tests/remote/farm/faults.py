"""What each of 13 faults costs: the first look-ups or builds, the first misses, a hundred more, and the exit.

Each runs in a new process with a new cache folder, once with the remote and once without one. The server is real, the
fault is of a proxy in a process of its own.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.remote.farm.servers import free_ports
from tests.remote.fault_proxy import FAULTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.remote.conftest import Hosts

ALL_FAULTS = ("none", "closed", "full backlog", *FAULTS)
FLUSH_S = 0.5
BUILD_S = 2.0

_CHILD = """
import hashlib, json, os, sys, time
import trtcache

what, first = sys.argv[1], 3
cache = trtcache.Cache()
content = [hashlib.shake_256(b"%d" % n).digest(150_000 if n < first else 1000) for n in range(first + 100)]

def get(n):
    return bytes(cache.get_or_build({"n": n}, lambda: content[n], kind="test").read()) == content[n]

def look_up(n):
    cache.get(keys[n])
    return True

def put(n):
    cache.keep(keys[n], content[n], build_s=2.0)
    return True

offset = 0 if what in ("publish", "get") else 1000
keys = [cache.key({"n": offset + n}, kind="test") for n in range(2 * first + 100)]
begin, then = {"get": (get, look_up), "put": (put, put), "publish": (put, put), "exit": (put, put)}[what]
got = {}
parts = [("first", begin, range(first)), ("missed", look_up, range(first + 100, 2 * first + 100))]
for name, action, numbers in (*parts, ("next", then, range(first, first + 100))):
    if (what in ("publish", "exit") and name != "first") or (what == "put" and name == "missed"):
        continue
    began_s = time.perf_counter()
    got["right"] = got.get("right", True) and all([action(n) for n in numbers])
    got[f"{name}_s"] = time.perf_counter() - began_s
got["ended"] = time.time()
print(json.dumps(got), flush=True)
"""


@dataclass(frozen=True)
class Cost:
    """What one process did: seconds of the first three, of three misses, of the next hundred and of its exit."""

    code: int
    right: bool
    first_s: float
    missed_s: float
    next_s: float
    exit_s: float


class ProxyProcess:
    """A fault proxy in a process of its own."""

    def __init__(self, upstream: int) -> None:
        command = [sys.executable, "-m", "tests.remote.fault_proxy", str(upstream)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        self.port = int(self._line())

    def set(self, fault: str) -> list[tuple[str, str]]:
        """Set the fault; return the requests since the last call."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{fault}\n")
        self._process.stdin.flush()
        return [(method, path) for method, path in json.loads(self._line())]

    def close(self) -> None:
        """Stop it."""
        self._process.kill()
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@contextmanager
def faulty(proxy: ProxyProcess, fault: str) -> Iterator[int]:
    """Yield the port on which a server with this fault is asked."""
    with ExitStack() as stack:
        if fault == "closed":
            yield free_ports(1)[0]
        elif fault == "full backlog":
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            for _ in range(3):
                client = stack.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex(listener.getsockname())
            yield listener.getsockname()[1]
        else:
            proxy.set("" if fault == "none" else fault)
            stack.callback(proxy.set, "")
            yield proxy.port


def run(what: str, environ: Mapping[str, str], folder: Path) -> Cost:
    """Run a process with a cache folder of its own."""
    own = folder / os.urandom(4).hex()
    variables = {"TRTCACHE_DIR": str(own / "cache"), "XDG_CACHE_HOME": str(own / "user"), "OMP_NUM_THREADS": "1"}
    whole = {**os.environ, **environ, **variables, "PYTHONPATH": os.getcwd()}  # noqa: PTH109
    command = [sys.executable, "-W", "ignore", "-c", _CHILD, what]
    done = subprocess.run(command, env=whole, capture_output=True, text=True, check=False)
    ended_s = time.time()
    got: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
    right = bool(got.get("right")) and "Traceback" not in done.stderr
    times = [got.get(f"{name}_s", 0.0) for name in ("first", "missed", "next")]
    return Cost(done.returncode, right, *times, ended_s - got.get("ended", ended_s))


def measure(
    hosts: Hosts, port: int, folder: Path, rounds: int = 3
) -> dict[tuple[str, str], list[tuple[Cost, Cost, int]]]:
    """Return for each fault and operation, and for each round: with the remote, without it, and the requests."""
    found: dict[tuple[str, str], list[tuple[Cost, Cost, int]]] = {}
    url = f"{hosts.url}&mode=write"
    environ = {**hosts.environ, "TRTCACHE_REMOTE_FLUSH": str(FLUSH_S)}
    published = run("publish", {**environ, "TRTCACHE_REMOTE": url, "TRTCACHE_REMOTE_FLUSH": "30"}, folder)
    assert published.right, published
    proxy = ProxyProcess(port)
    try:
        for _ in range(rounds):
            for fault in ALL_FAULTS:
                for what in ("get", "put", "exit"):
                    without = run(what, {**environ, "TRTCACHE_REMOTE": ""}, folder)
                    with faulty(proxy, fault) as asked:
                        there = (url if what != "get" else hosts.url).replace(str(port), str(asked))
                        cost = run(what, {**environ, "TRTCACHE_REMOTE": there}, folder)
                        count = len(proxy.set(""))
                    found.setdefault((fault, what), []).append((cost, without, count))
    finally:
        proxy.close()
    return found
