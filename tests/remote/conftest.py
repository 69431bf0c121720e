"""A real S3 server (moto) on loopback, a proxy before it that fails as it is wanted to, and hosts with keys."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import Result
from tests.remote.fault_proxy import FaultProxy
from trtcache.cache import Cache
from trtcache.config.environment import Config
from trtcache.config.signing_keys import SecretKey
from trtcache.remote import uploads
from trtcache_cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from trtcache.store.contract import Entry

BUCKET = "engines"


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def put_object(port: int, path: str, content: bytes, **headers: str) -> None:
    """Put an object, as anyone who may write to the bucket can."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    scope = "test/20260101/us-east-1/s3/aws4_request"
    authorization = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0"  # moto verifies none
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("PUT", path, content, {"Authorization": authorization, **headers})
    assert connection.getresponse().status == 200
    connection.close()


@pytest.fixture(scope="session")
def moto() -> Iterator[int]:
    """The port of moto's server, with one bucket."""
    port = free_port()
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(1200):
            try:
                put_object(port, f"/{BUCKET}", b"")
                break
            except OSError:
                time.sleep(0.1)
        yield port
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="session")
def _session_proxy(moto: int) -> Iterator[FaultProxy]:
    proxy = FaultProxy(moto)
    yield proxy
    proxy.close()


@pytest.fixture
def proxy(_session_proxy: FaultProxy) -> Iterator[FaultProxy]:
    """The proxy without a fault, with no request counted."""
    _session_proxy.fault, _session_proxy.delay_s = "", 0.7
    _session_proxy.requests.clear()
    yield _session_proxy
    _session_proxy.fault = ""


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What every process here has: a key pair of the S3 server, and a cache folder of its own."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))


@dataclass(frozen=True)
class Hosts:
    """Machines that share nothing but a remote, and the keys that they trust."""

    folder: Path
    url: str
    environ: dict[str, str]

    def host(self, name: str, **environ: str) -> Cache:
        """Return the cache of a machine."""
        variables = {**self.environ, "TRTCACHE_REMOTE": self.url, **environ}
        return Cache(config=Config.from_environ({**variables, "TRTCACHE_DIR": str(self.folder / name)}))

    def writer(self, name: str = "ci", **environ: str) -> Cache:
        """Return the cache of a machine that uploads."""
        return self.host(name, **{"TRTCACHE_REMOTE": f"{self.url}&mode=write", **environ})

    def publish(self, content: bytes = b"engine", n: int = 0) -> Entry:
        """Build an entry on one machine, and wait for its upload."""
        entry = fetch(self.writer(), content, n)
        assert uploads.flush(60) == 0
        return entry

    @property
    def name(self) -> str:
        """The URL without its parameters."""
        return self.url.partition("?")[0]

    @property
    def path(self) -> str:
        """The path of the prefix on the server."""
        return "/" + self.name.partition("://")[2]

    def variables(self, name: str) -> dict[str, str]:
        """Return the environment of a process on a machine."""
        return {**self.environ, "TRTCACHE_REMOTE": self.url, "TRTCACHE_DIR": str(self.folder / name)}


def fetch(cache: Cache, content: bytes = b"engine", n: int = 0) -> Entry:
    """Get or build an entry."""
    return cache.get_or_build({"n": n}, lambda: content, kind="test")


@pytest.fixture
def command(hosts: Hosts, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run a command on machine ``a``, with the remote of ``hosts``; ``environ`` changes its environment."""

    def command(*args: object, **environ: str) -> Result:
        capsys.readouterr()
        with monkeypatch.context() as patch:
            for name, value in {**hosts.variables("a"), **environ}.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return Result(int(ended.value.code or 0), captured.out, captured.err)

    return command


def report(text: str) -> None:
    """Print a measured value, which ``-rP`` shows."""
    sys.stdout.write(f"{text}\n")


def left_behind(folder: Path) -> list[Path]:
    """Return the temporary files in a directory."""
    return [path for path in folder.rglob("*") if path.name.startswith((".tmp-", ".remote-"))]


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, Path]]:
    """Two signing keys: the text of the public half, and the file of the secret one."""
    made = {}
    for index, name in enumerate(("ci", "stranger")):
        key, path = SecretKey(name, bytes([index]) * 32), tmp_path_factory.mktemp("keys") / name
        key.write(path)
        made[name] = (str(key.public), path)
    return made


@pytest.fixture
def make_hosts(
    tmp_path: Path, keys: dict[str, tuple[str, Path]], request: pytest.FixtureRequest
) -> Callable[..., Hosts]:
    """Make machines that share a prefix of the bucket behind a port, which nothing else uses."""
    public, secret = keys["ci"]
    environ = {
        "TRTCACHE_TRUSTED_KEYS": public,
        "TRTCACHE_SIGNING_KEY": str(secret),
        "TRTCACHE_REMOTE_MIN_BUILD": "0",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }

    def make(port: int, name: str = "") -> Hosts:
        prefix = re.sub(r"[^a-z0-9]+", "-", f"{request.node.name}{name}".lower()).strip("-")[:100]
        url = f"s3://{BUCKET}/{prefix}-{os.urandom(3).hex()}?endpoint=http://127.0.0.1:{port}"
        return Hosts(tmp_path / "hosts", url, environ)

    return make


@pytest.fixture
def hosts(make_hosts: Callable[..., Hosts], proxy: FaultProxy) -> Hosts:
    """Machines that share a prefix behind the proxy."""
    return make_hosts(proxy.port)
