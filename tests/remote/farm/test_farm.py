"""The remote tier on real servers: ``make farm`` installs and runs them, other runs of the tests skip these."""

from __future__ import annotations

import os
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

import pytest

from tests.remote.conftest import Hosts, fetch, free_port, left_behind, report
from tests.remote.farm.servers import SERVERS, MissingServerError, Server
from tests.remote.fault_proxy import FaultProxy
from tests.remote.test_remote_claims import HOSTS
from tests.remote.test_remote_claims import Farm as Machines
from trtcache.config.remotes import RemoteSettings, RemoteUrl
from trtcache.errors import RemoteError
from trtcache.remote import uploads
from trtcache.remote.bucket import PART_BYTES, Bucket

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import StartPython

pytestmark = pytest.mark.farm


@pytest.fixture(scope="session", params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real server."""
    if "TRTCACHE_FARM" not in os.environ:
        pytest.skip("real servers are started by make farm")
    try:
        with SERVERS[request.param](tmp_path_factory.mktemp(request.param)) as running:
            report(f"{running.name} {running.version}")
            yield running
    except MissingServerError as error:
        pytest.skip(f"{request.param.upper()} WAS NOT TRIED: {error}")


@pytest.fixture(scope="session")
def _counting(server: Server) -> Iterator[FaultProxy]:
    proxy = FaultProxy(server.port)
    yield proxy
    proxy.close()


@pytest.fixture
def counted(_counting: FaultProxy) -> FaultProxy:
    """A proxy before the server, with no request counted."""
    _counting.fault = ""
    _counting.requests.clear()
    return _counting


@pytest.fixture
def farm(
    server: Server,
    counted: FaultProxy,
    tmp_path: Path,
    keys: dict[str, tuple[str, Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> Hosts:
    """Machines that share a prefix of the server."""
    for name, value in server.environ.items():
        monkeypatch.setenv(name, value)
    public, secret = keys["ci"]
    environ = {
        "TRTCACHE_TRUSTED_KEYS": public,
        "TRTCACHE_SIGNING_KEY": str(secret),
        "TRTCACHE_REMOTE_MIN_BUILD": "0",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    url = server.url(f"main-{os.urandom(4).hex()}").replace(str(server.port), str(counted.port))
    return Hosts(tmp_path / "hosts", url, environ)


def bucket_of(farm: Hosts) -> Bucket:
    """Return the bucket behind the URL of the machines."""
    return Bucket(RemoteUrl.parse(farm.url), RemoteSettings(), patient=True)


def test_a_build_is_uploaded_once_and_fetched_with_one_request(farm: Hosts, counted: FaultProxy) -> None:
    """Byte for byte; a miss is one request too, and then a local hit is none."""
    content = os.urandom(2_000_000)
    built = farm.publish(content)
    uploaded = [method for method, _ in counted.requests if method != "GET"]
    counted.requests.clear()
    cache = farm.host("server")
    found = fetch(cache, content)
    assert (found.outcome, found.origin, bytes(found.read())) == ("hit", "remote", content)
    assert built.path is not None
    assert found.path is not None
    assert found.path.read_bytes() == built.path.read_bytes()
    assert cache.get(cache.key({"n": 1}, kind="test")) is None
    assert fetch(farm.host("server"), content).origin == ""
    assert [method for method, _ in counted.requests] == ["GET", "GET"]
    assert uploaded == ["HEAD", "PUT"] if farm.url.startswith("http") else ["PUT"]
    assert not left_behind(farm.folder)


def test_a_large_entry(farm: Hosts, counted: FaultProxy) -> None:
    """In parts where the server takes parts; a second upload sends none of it."""
    content = os.urandom(2 * PART_BYTES + 5)
    farm.publish(content)
    assert bytes(fetch(farm.host("server")).read()) == content
    counted.requests.clear()
    fetch(farm.writer("other", TRTCACHE_RECACHE="1"), content)
    assert uploads.flush(20) == 0
    assert [method for method, _ in counted.requests] == ["HEAD"]


def test_the_first_of_two_builds_stays(server: Server, farm: Hosts) -> None:
    """Where the server ignores the condition the second replaces it, and that one is right too."""
    farm.publish(b"first")
    second = fetch(farm.writer("b", TRTCACHE_RECACHE="1"), b"second")
    assert (second.outcome, uploads.flush(10)) == ("built", 0)
    found = bytes(fetch(farm.host("c")).read())
    assert found == b"first" if server.honest else found in (b"first", b"second")


def test_objects_are_listed_and_deleted(server: Server, farm: Hosts) -> None:
    """A folder of a web server cannot be listed, which is an error and not an empty list."""
    entry = farm.publish(b"content")
    bucket = bucket_of(farm)
    name = f"entries/v1/{entry.key.digest[:2]}/{entry.key.digest}.trtc"
    if server.lists:
        assert [found.name for found in bucket.list("entries")] == [name]
        assert [found.name for found in bucket.list("claims")] == []
    else:
        with pytest.raises(RemoteError):
            list(bucket.list("entries"))
    head = bucket.head(name)
    assert head is not None
    assert entry.path is not None
    assert head.size_bytes == entry.path.stat().st_size
    for _ in range(2):
        with suppress(RemoteError) if server.name == "JuiceFS gateway" else nullcontext():  # its answer names no key
            bucket.delete(name)
        assert bucket.head(name) is None


@pytest.mark.parametrize("lack", ["bucket", "credentials"])
def test_what_is_set_wrongly_is_said_once(
    server: Server, farm: Hosts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, lack: str
) -> None:
    """A bucket that is not there, or a wrong key, is no miss; no message has the key in it."""
    if not server.environ:
        pytest.skip("a web folder has neither")
    url = farm.url
    secret = "d3Jvbmcgc2VjcmV0IG9mIHRoZSBmYXJt"  # noqa: S105  # of nobody
    if lack == "bucket":
        url = url.replace("://engines/", "://no-such-bucket/")
    else:
        name = next(name for name in server.environ if "SECRET" in name or name.endswith("_KEY"))
        monkeypatch.setenv(name, secret)
    cache = farm.host("a", TRTCACHE_REMOTE=f"{url}&mode=write")
    with caplog.at_level("DEBUG"):
        for n in range(3):
            assert fetch(cache, n=n).outcome == "built"
        uploads.flush(10)
    warnings = [record.message for record in caplog.records if "is not used by this process" in record.message]
    assert len(warnings) == 1
    report(f"{server.name}, wrong {lack}: {warnings[0]}")
    assert secret not in caplog.text
    assert not any(value in caplog.text for value in server.environ.values() if len(value) > 10)


def test_one_of_sixteen_machines_builds(server: Server, farm: Hosts, start_python: StartPython, tmp_path: Path) -> None:
    """The others wait for its entry. Where the server ignores the condition, all build and nobody waits."""
    if farm.url.startswith("http"):
        pytest.skip("a web folder takes no claims")
    machines = Machines(farm, start_python, tmp_path / "machines", f"{farm.url}&mode=write&claims=1")
    machines.start(HOSTS, build_s=2.0)
    outcomes = machines.outcomes(warns=not server.honest)
    longest_s = max(float(outcome[2]) for outcome in outcomes)
    what = "until the last has it" if server.honest else "before the last begins"
    report(f"{server.name}: {HOSTS} machines, {len(machines.builders)} builds of 2 s, {longest_s} s {what}")
    assert len(machines.builders) == (1 if server.honest else HOSTS)
    assert {outcome[1] for outcome in outcomes} == {"engine"}


def test_a_server_that_went_away(server: Server, farm: Hosts) -> None:
    """It costs a moment, and the entry waits in the outbox."""
    url = server.url("gone").replace(str(server.port), str(free_port()))
    cache = farm.writer("a", TRTCACHE_REMOTE=f"{url}&mode=write")
    assert fetch(cache).outcome == "built"
    assert uploads.flush(10) == 0
    assert cache.store is not None
    assert len(cache.store.outbox.digests()) == 1
