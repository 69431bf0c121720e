"""A compile with a remote, of ours, sccache's and ccache's: a hit, a miss, and a server that fails in five ways.

Each tool compiles the same file of C with nothing on the local disk. A proxy counts requests and fails on purpose.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import zlib
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.report import median, seconds, span, table
from benchmarks.timing import Samples, clean_environment
from tests.remote.conftest import BUCKET, free_port, put_object
from tests.remote.farm.faults import ProxyProcess, faulty
from trtcache.config.signing_keys import SecretKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.effort import Effort
    from benchmarks.report import Figures

FAULTS = ("closed", "503", "hang", "reset", "drip")
CASES = {"alone": "none", "hit": "none", "miss": "none", **{fault: fault for fault in FAULTS}}
"""What is measured -> the fault of the server. But for a miss, the server has the object; ``alone`` asks none."""

_SLOW = ("hang", "drip")

TOOLS = {"ours": "trtcache (S3)", "sccache": "sccache (S3)", "ccache": "ccache (HTTP)"}

_PEERS = Path(sys.prefix) / "remote-peers"


class _Files(BaseHTTPRequestHandler):
    """A folder of a web server, in memory."""

    protocol_version = "HTTP/1.1"
    files: dict[str, bytes] = {}  # noqa: RUF012  # of the whole server

    def do_GET(self) -> None:
        """Answer with a file or 404."""
        found = self.files.get(self.path)
        self._answer(404 if found is None else 200, found or b"")

    def do_PUT(self) -> None:
        """Keep a file."""
        self.files[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(201, b"")

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@dataclass(frozen=True)
class Place:
    """A new local state, and what a tool compiles in it: ``port`` is where the tool asks its remote."""

    folder: Path
    port: int
    writes: bool = False
    asks: bool = True

    def run(self, command: list[str], environ: dict[str, str]) -> tuple[subprocess.CompletedProcess[str], float]:
        """Run a command here, and return it with its seconds."""
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        whole = clean_environment({**keys, **environ})
        began_s = time.perf_counter()
        done = subprocess.run(command, env=whole, capture_output=True, text=True, check=False, cwd=self.folder)
        return done, time.perf_counter() - began_s


def _ours(place: Place, source: Path, key: SecretKey) -> float:
    mode = "&mode=write" if place.writes else ""
    key.write(place.folder / "key")
    environ = {
        "TRTCACHE_REMOTE": f"s3://{BUCKET}/ours?endpoint=http://127.0.0.1:{place.port}{mode}" if place.asks else "",
        "TRTCACHE_REMOTE_MIN_BUILD": "0",
        "TRTCACHE_DIR": str(place.folder / "cache"),
        "TRTCACHE_TRUSTED_KEYS": str(key.public),
        "TRTCACHE_SIGNING_KEY": str(place.folder / "key"),
        "XDG_CACHE_HOME": str(place.folder / "user"),
        "XDG_CONFIG_HOME": str(place.folder / "config"),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.remote_process", str(source), "object.o"]
    done, _ = place.run(command, environ)
    return float(json.loads(done.stdout)["took_s"]) if done.returncode == 0 else -1.0


def _sccache(place: Place, source: Path, _: SecretKey) -> float:
    command = shutil.which("sccache", path=f"{_PEERS / 'bin'}:{os.environ['PATH']}") or "sccache"
    remote = {
        "SCCACHE_BUCKET": BUCKET,
        "SCCACHE_ENDPOINT": f"http://127.0.0.1:{place.port}",
        "SCCACHE_S3_USE_SSL": "false",
        "SCCACHE_REGION": "us-east-1",
        "SCCACHE_S3_KEY_PREFIX": "sccache",
    }
    environ = {
        **(remote if place.asks else {}),
        "SCCACHE_DIR": str(place.folder / "cache"),
        "SCCACHE_SERVER_PORT": str(free_port()),
        "SCCACHE_IDLE_TIMEOUT": "30",
    }
    done, took_s = place.run([command, "gcc", "-c", str(source), "-o", "object.o"], environ)
    time.sleep(0.2)  # its daemon writes after the answer
    place.run([command, "--stop-server"], environ)
    return took_s if done.returncode == 0 else -took_s


def _ccache(place: Place, source: Path, _: SecretKey) -> float:
    environ = {
        "CCACHE_DIR": str(place.folder / "cache"),
        "CCACHE_REMOTE_STORAGE": f"http://127.0.0.1:{place.port}/ccache" if place.asks else "",
        "CCACHE_NODIRECT": "1",  # as for ours, one key and one object
    }
    done, took_s = place.run(["ccache", "gcc", "-c", str(source), "-o", "object.o"], environ)
    return took_s if done.returncode == 0 else -took_s


_COMPILE: dict[str, Callable[[Place, Path, SecretKey], float]] = {
    "ours": _ours,
    "sccache": _sccache,
    "ccache": _ccache,
}


def _is_there(tool: str) -> bool:
    return tool == "ours" or shutil.which(tool, path=f"{_PEERS / 'bin'}:{os.environ['PATH']}") is not None


@contextmanager
def s3_server() -> Iterator[int]:
    """Start moto's S3 server with a bucket, and yield its port."""
    port = free_port()
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    moto = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with suppress(OSError):
                put_object(port, f"/{BUCKET}", b"")
                break
            time.sleep(0.1)
        yield port
    finally:
        moto.kill()
        moto.wait()


@contextmanager
def _servers() -> Iterator[dict[str, ProxyProcess]]:
    """Start an S3 server and a web folder, each behind a proxy; yield the proxy of each tool."""
    with ExitStack() as stack:
        s3_port = stack.enter_context(s3_server())
        web = ThreadingHTTPServer(("127.0.0.1", 0), _Files)
        stack.callback(web.shutdown)
        threading.Thread(target=web.serve_forever, daemon=True).start()
        proxies = {"ours": ProxyProcess(s3_port), "sccache": ProxyProcess(s3_port)}
        proxies["ccache"] = ProxyProcess(web.server_address[1])
        for proxy in proxies.values():
            stack.callback(proxy.close)
        yield proxies


def measure(folder: Path, effort: Effort) -> Samples:
    """Return for each tool and case the seconds, the requests, and 1 for a compile that failed."""
    samples: Samples = {}
    key = SecretKey("benchmark", bytes(32))

    def note(name: str, value: float) -> None:
        samples.setdefault(name, []).append(value)

    with _servers() as proxies:
        for turn in effort.turns():
            for case in CASES if turn == 0 else [case for case in CASES if case not in _SLOW]:
                for tool in filter(_is_there, TOOLS):
                    took_s, count = _measure(folder / f"{turn}-{tool}-{case}", tool, case, proxies[tool], key)
                    note(f"{tool}.{case}_requests_count", count)
                    note(f"{tool}.{case}_fails_count", took_s < 0)
                    note(f"{tool}.{case}_s", abs(took_s))
            note("compiler_s", _compiler_s(folder))
    return samples


def _measure(folder: Path, tool: str, case: str, proxy: ProxyProcess, key: SecretKey) -> tuple[float, int]:
    """Return the seconds of a compile, negative if it failed, and its requests."""
    source = _source(folder.with_suffix(".c"))
    compile_ = _COMPILE[tool]
    if case not in ("miss", "alone"):
        (before := folder.with_suffix(".before")).mkdir()
        compile_(Place(before, proxy.port, writes=True), source, key)
    folder.mkdir()
    with faulty(proxy, CASES[case]) as port:
        proxy.set("" if CASES[case] == "none" else case)
        took_s = compile_(Place(folder, port, writes=case == "miss", asks=case != "alone"), source, key)
        return took_s, len(proxy.set(""))


def _source(path: Path) -> Path:
    """Write a file of C that has a key of its own."""
    text = f"int f(int x) {{ return x + {zlib.crc32(path.name.encode())}u; }}\n"
    path.write_text("#include <stdio.h>\n#include <stdlib.h>\n" + text)
    return path


def _compiler_s(folder: Path) -> float:
    source = _source(folder / "alone.c")
    began_s = time.perf_counter()
    subprocess.run(["gcc", "-c", str(source), "-o", str(folder / "alone.o")], check=True)
    return time.perf_counter() - began_s


_TEXT = """\
## Remotes of compiler caches

One file of C, which gcc compiles in {compiler}, with nothing on the local disk, on loopback: sccache {sccache} and
trtcache ask moto's S3 server, ccache {ccache} a web folder, each behind a proxy that counts requests and fails on
purpose. sccache and ccache are timed as whole commands, sccache's with the start of its daemon; trtcache is timed from
the look-up to the object in a process that has imported it, and does not wait for its upload. But for the miss, the
remote has the object.
"""


def section(figures: Figures) -> str:
    """Return what the page says of it."""
    found = [tool for tool in TOOLS if f"{tool}.hit_s" in figures]
    labels = {"alone": "a miss without a remote", "hit": "a hit", "miss": "a miss"} | {
        fault: f"the server: {fault}" for fault in FAULTS
    }
    rows = [(label, *(_cell(figures, tool, case) for tool in found)) for case, label in labels.items()]
    absent = [f"{name} was not there to be measured.\n" for tool, name in TOOLS.items() if tool not in found]
    versions = {tool: _version(tool) for tool in ("sccache", "ccache")}
    text = _TEXT.format(compiler=seconds(median(figures, "compiler_s")), **versions)
    return "\n".join([text, table(("", *(TOOLS[tool] for tool in found)), rows), *absent])


def _cell(figures: Figures, tool: str, case: str) -> str:
    count = median(figures, f"{tool}.{case}_requests_count")
    fails = sum(figures[f"{tool}.{case}_fails_count"]["values"])
    requests = f"{count:.0f} request{'' if count == 1 else 's'}"
    return f"{span(figures[f'{tool}.{case}_s'])}, {requests}" + (", **the compile fails**" if fails else "")


def _version(tool: str) -> str:
    path = shutil.which(tool, path=f"{_PEERS / 'bin'}:{os.environ['PATH']}")
    if path is None:
        return ""
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    return said.splitlines()[0].split()[-1]
