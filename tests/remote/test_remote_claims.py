"""Claims: of hosts that share nothing but a remote one builds, and where claims do not work nobody waits."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from tests.effort import SOON_S, tries
from tests.remote.conftest import BUCKET, fetch, report
from trtcache.config.environment import Config
from trtcache.config.remotes import RemoteSettings, RemoteUrl
from trtcache.errors import BusyError, SettingsError
from trtcache.remote import claims, tier, uploads
from trtcache.remote.bucket import Bucket
from trtcache.remote.claims import Claims
from trtcache.remote.connection import FIRST_S, Connection
from trtcache_cli.remote_probe import examine_remotes

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import StartPython
    from tests.remote.conftest import Hosts
    from tests.remote.fault_proxy import FaultProxy
    from trtcache.cache import Cache

HOSTS = 16

BUILD = """
import os, sys, time
from pathlib import Path
from trtcache.cache import Cache
from trtcache.remote import claims
claims.DEAD_AFTER_S, claims.HEARTBEAT_S, claims.LONGEST_POLL_S = 4.0, 1.0, 1.0
folder, build_s = Path(os.environ["SHARED"]), float(os.environ["BUILD_S"])

waited_s = 0.0

def build():
    global waited_s
    waited_s = time.monotonic() - began_s
    with open(folder / "builds", "a") as file:
        file.write(f"{os.getpid()}\\n")
    time.sleep(build_s)
    return b"engine"

cache = Cache()
print("ready", flush=True)
while not (folder / "go").exists():
    time.sleep(0.01)
began_s = time.monotonic()
entry = cache.get_or_build({"n": 0}, build, kind="test")
print(entry.outcome, bytes(entry.read()).decode(), round(waited_s or time.monotonic() - began_s, 2))
"""


class Farm:
    """Processes on hosts of their own, that begin at the same moment."""

    def __init__(self, hosts: Hosts, start: StartPython, folder: Path, url: str) -> None:
        self._hosts, self._start, self._folder, self._url = hosts, start, folder, url
        folder.mkdir()
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, count: int, *, build_s: float, **environ: str) -> None:
        """Start processes, and let them build."""
        for number in range(len(self.processes), len(self.processes) + count):
            variables = self._hosts.variables(f"host-{number}") | {
                "TRTCACHE_REMOTE": self._url,
                "XDG_CACHE_HOME": str(self._folder / f"home-{number}"),
                "SHARED": str(self._folder),
                "BUILD_S": str(build_s),
                **environ,
            }
            self.processes.append(self._start(BUILD, **variables))
        for process in self.processes[-count:]:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        (self._folder / "go").touch()

    @property
    def builders(self) -> list[int]:
        """Processes that have begun to build."""
        path = self._folder / "builds"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def outcomes(self, *, warns: bool = False) -> list[list[str]]:
        """Wait for all that live, and return outcome, content and seconds up to the hit or the build of each."""
        outputs = []
        for process in self.processes:
            out, err = process.communicate(timeout=120)
            if process.returncode >= 0:
                assert process.returncode == 0, err
                assert warns or not err, err
                outputs.append(out.split())
        return outputs


@pytest.fixture
def farm(hosts: Hosts, start_fresh_python: StartPython, tmp_path: Path) -> Iterator[Farm]:
    """Hosts that claim what they build."""
    made = Farm(hosts, start_fresh_python, tmp_path / "farm", f"{hosts.url}&mode=write&claims=1")
    yield made
    for process in made.processes:
        process.kill()
        process.communicate()


def objects(hosts: Hosts, folder: str) -> list[str]:
    """Return the names of a remote's objects in a folder."""
    return [found.name for found in Bucket(RemoteUrl.parse(hosts.url), RemoteSettings()).list(folder)]


def claimer(hosts: Hosts, name: str = "ci", **environ: str) -> Cache:
    """Return the cache of a machine that claims."""
    return hosts.host(name, **{"TRTCACHE_REMOTE": f"{hosts.url}&mode=write&claims=1", **environ})


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims that are old after 3 s."""
    for name, value in {"DEAD_AFTER_S": 3.0, "HEARTBEAT_S": 0.5, "LONGEST_POLL_S": 1.0}.items():
        monkeypatch.setattr(claims, name, value)


def hold_claim(hosts: Hosts, key_digest: str, content: bytes = b"{}") -> None:
    """Claim a build, as another host does."""
    Bucket(RemoteUrl.parse(hosts.url), RemoteSettings()).put(
        f"claims/{key_digest}.0", iter([memoryview(content)]), len(content)
    )


def test_one_of_sixteen_hosts_builds(farm: Farm, hosts: Hosts, proxy: FaultProxy) -> None:
    """The others wait for its entry, and no claim is left."""
    farm.start(HOSTS, build_s=1.5)
    outcomes = farm.outcomes()
    longest_s = max(float(outcome[2]) for outcome in outcomes)
    report(f"{HOSTS} hosts: {len(farm.builders)} builds of 1.5 s, {longest_s} s in all, {proxy.count()} requests")
    assert len(farm.builders) == 1
    assert [outcome[:2] for outcome in outcomes].count(["hit", "engine"]) == HOSTS - 1
    assert objects(hosts, "claims") == []


def test_a_killed_builder_costs_one_more_build(farm: Farm, hosts: Hosts) -> None:
    """Its claim grows old, and one of those that wait builds."""
    farm.start(5, build_s=2.0)
    while not farm.builders:
        time.sleep(0.01)
    began_s = time.monotonic()
    os.kill(farm.builders[0], signal.SIGKILL)
    outcomes = farm.outcomes()
    report(f"builder killed, claims old after 4 s: {len(farm.builders)} builds, {time.monotonic() - began_s:.1f} s")
    assert len(farm.builders) == 2
    assert sorted(outcome[0] for outcome in outcomes) == ["built", "hit", "hit", "hit"]
    assert objects(hosts, "claims") == []


def test_ctrl_c_of_a_builder_releases_its_claim(farm: Farm, hosts: Hosts) -> None:
    """The next one builds at once."""
    farm.start(3, build_s=2.0)
    while not farm.builders:
        time.sleep(0.01)
    os.kill(farm.builders[0], signal.SIGINT)
    assert sorted(outcome[0] for outcome in farm.outcomes()) == ["built", "hit"]
    assert len(farm.builders) == 2
    assert objects(hosts, "claims") == []


class Careless(BaseHTTPRequestHandler):
    """An S3 server in memory that accepts conditions and ignores them."""

    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes]
    asked: list[str]

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.asked.append(self.command)
        self.send_response(status)
        for name, value in {"ETag": '"1"', "Last-Modified": formatdate(usegmt=True)}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)

    def do_GET(self) -> None:
        """Answer with an object."""
        found = self.objects.get(self.path)
        self._answer(404 if found is None else 200, found or b"")

    do_HEAD = do_GET  # noqa: N815  # the base class's name

    def do_PUT(self) -> None:
        """Store an object."""
        self.objects[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200)

    def do_POST(self) -> None:
        """Delete the objects of a list."""
        found = re.search(rb"<Key>(.*?)</Key>", self.rfile.read(int(self.headers["Content-Length"])))
        assert found is not None
        self.objects.pop(f"/{BUCKET}/{found[1].decode()}", None)
        self._answer(200, b"<DeleteResult><Deleted>%b</Deleted></DeleteResult>" % found[0])

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class ManyServer(ThreadingHTTPServer):
    """A server that 16 processes may connect to at the same moment."""

    request_queue_size = 64
    daemon_threads = True


@pytest.fixture
def careless() -> Iterator[tuple[type[Careless], int]]:
    """A running server that ignores conditions, and its port."""
    handler = type("Served", (Careless,), {"objects": {}, "asked": []})
    with ManyServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield handler, server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.torture
def test_nobody_waits_where_conditions_are_ignored(
    careless: tuple[type[Careless], int],
    make_hosts: Callable[..., Hosts],
    start_fresh_python: StartPython,
    tmp_path: Path,
) -> None:
    """Each host builds, as without claims; the first on each says so."""
    served, port = careless
    hosts = make_hosts(port)
    farm = Farm(hosts, start_fresh_python, tmp_path / "farm", f"{hosts.url}&mode=write&claims=1")
    count = tries(4, HOSTS)
    farm.start(count, build_s=1.0)
    waited = [float(outcome[2]) for outcome in farm.outcomes(warns=True)]
    report(f"conditions ignored: {len(farm.builders)} builds, the last began after {max(waited)} s")
    assert len(farm.builders) == count
    assert max(waited) < SOON_S
    assert not [path for path in served.objects if "/claims/" in path]


def test_the_answer_of_the_probe_is_kept(careless: tuple[type[Careless], int], hosts: Hosts, proxy: FaultProxy) -> None:
    """For a week, in the user's cache folder."""
    served, port = careless
    settings = RemoteSettings()
    for url, excludes in ((hosts.url, True), (f"s3://{BUCKET}/p?endpoint=http://127.0.0.1:{port}", False)):
        remote = RemoteUrl.parse(url)
        assert Claims(Connection(remote, settings)).server_refuses_duplicates() is excludes
        count, asked = proxy.count(), len(served.asked)
        again = Connection(remote, settings)
        assert Claims(again).server_refuses_duplicates() is excludes
        assert (proxy.count(), len(served.asked)) == (count, asked)
        assert json.loads(again.note("claims").read_text()) == {"excludes": excludes}
        os.utime(again.note("claims"), (1, 1))
        assert Claims(again).server_refuses_duplicates() is excludes
        assert (proxy.count(), len(served.asked)) != (count, asked)
    assert objects(hosts, "claims") == []


def test_a_damaged_note_is_probed_again(hosts: Hosts) -> None:
    """Whatever it contains."""
    connection = Connection(RemoteUrl.parse(hosts.url), RemoteSettings())
    connection.note("claims").parent.mkdir(parents=True)
    for text in ("", "[]", "{}", "{" * 5000):
        connection.note("claims").write_text(text)
        assert Claims(connection).server_refuses_duplicates()


def test_without_claims_there_are_no_requests_for_them(hosts: Hosts, proxy: FaultProxy) -> None:
    """They are off by default."""
    hosts.publish()
    assert not [path for _, path in proxy.requests if "/claims/" in path]


def test_what_a_claimed_build_asks(hosts: Hosts, proxy: FaultProxy) -> None:
    """The claim, the entry once more, its upload, and the end of the claim; builds of any length are uploaded."""
    cache = claimer(hosts, TRTCACHE_REMOTE_MIN_BUILD="60")
    fetch(cache, n=0)
    assert uploads.flush(60) == 0
    proxy.requests.clear()
    fetch(cache, n=1)
    assert uploads.flush(60) == 0
    asked = [(method, "/claims/" in path or method == "POST") for method, path in proxy.requests]
    report(f"a claimed build: {asked}")
    assert asked[:4] == [("GET", False), ("PUT", True), ("GET", False), ("PUT", False)]
    assert len(asked) == 5
    assert objects(hosts, "claims") == []
    assert fetch(hosts.host("other"), n=1).origin == "remote"


@pytest.mark.usefixtures("short")
def test_a_claim_lives_as_long_as_its_build(hosts: Hosts) -> None:
    """It is put again while the builder lives, however long that takes."""
    first, second, found = claimer(hosts, "first"), claimer(hosts, "second"), []

    def build() -> bytes:
        waiter.start()
        time.sleep(5)
        return b"first"

    def wait() -> None:
        found.append(fetch(second, b"second"))

    waiter = threading.Thread(target=wait)
    assert first.get_or_build({"n": 0}, build, kind="test").outcome == "built"
    waiter.join()
    assert (found[0].outcome, bytes(found[0].read())) == ("hit", b"first")
    assert second.store is not None
    (waited,) = [event for event in second.store.events.read() if event.event == "wait"]
    assert (waited.reason, waited.waited_s > 3) == ("remote", True)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("content", [b"", b"{", b'{"token": 1}', b"x" * 100_000], ids=["empty", "cut", "short", "long"])
def test_an_old_claim_is_passed_over(hosts: Hosts, content: bytes) -> None:
    """Whatever is in it, and both are deleted after the upload."""
    cache = claimer(hosts)
    hold_claim(hosts, cache.key({"n": 0}, kind="test").digest, content)
    began_s = time.monotonic()
    assert fetch(cache).outcome == "built"
    assert 1 < time.monotonic() - began_s < SOON_S
    assert uploads.flush(60) == 0
    assert objects(hosts, "claims") == []


@pytest.mark.usefixtures("short")
def test_a_claim_that_is_lost_before_its_build_grows_old(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by Ctrl-C at that moment: the process lives on, and others must not wait for it."""
    first = claimer(hosts, "first")

    def interrupt(_: claims.Claim) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(claims.Claim, "__enter__", interrupt)
        with pytest.raises(KeyboardInterrupt):
            fetch(first)
    assert len(objects(hosts, "claims")) == 1
    began_s = time.monotonic()
    assert fetch(claimer(hosts, "second")).outcome == "built"
    assert time.monotonic() - began_s < SOON_S


def test_on_busy_decides_how_long_to_wait(hosts: Hosts) -> None:
    """As for the locks of one host: build at once, after the time-out, or raise."""
    for n, (policy, timeout, at_least_s) in enumerate((("build", "", 0.0), ("wait", "0.6", 0.6))):
        cache = claimer(hosts, TRTCACHE_ON_BUSY=policy, TRTCACHE_BUSY_TIMEOUT=timeout)
        hold_claim(hosts, cache.key({"n": n}, kind="test").digest)
        began_s = time.monotonic()
        assert fetch(cache, n=n).outcome == "built"
        assert at_least_s <= time.monotonic() - began_s < SOON_S
    cache = claimer(hosts, TRTCACHE_ON_BUSY="eager")
    who = json.dumps({"host": "farm-7", "pid": 12, "since_ns": 1}).encode()
    hold_claim(hosts, cache.key({"n": 9}, kind="test").digest, who)
    with pytest.raises(BusyError) as caught:
        fetch(cache, n=9)
    assert caught.value.builder == "farm-7:12"


def test_a_failed_build_releases_its_claim(hosts: Hosts) -> None:
    """The next host need not wait until it is old."""

    def fail() -> bytes:
        raise ValueError("no engine")

    with pytest.raises(ValueError, match="no engine"):
        claimer(hosts).get_or_build({"n": 0}, fail, kind="test")
    assert objects(hosts, "claims") == []


@pytest.mark.parametrize("fault", ["503", "hang", "reset", "cut", "foreign"])
def test_a_remote_that_fails_costs_no_build(hosts: Hosts, proxy: FaultProxy, farm: Farm, fault: str) -> None:
    """Neither while a host waits, nor while it builds and uploads."""
    farm.start(1, build_s=1.0, TRTCACHE_REMOTE_FLUSH="0.5")
    while not farm.builders:
        time.sleep(0.01)
    proxy.fault = fault
    began_s = time.monotonic()
    ((outcome, *_),) = farm.outcomes(warns=True)
    built_s = time.monotonic() - began_s
    proxy.fault = ""
    cache = claimer(hosts, TRTCACHE_REMOTE_TIMEOUT="0.5")
    hold_claim(hosts, cache.key({"n": 1}, kind="test").digest)
    threading.Timer(0.5, setattr, (proxy, "fault", fault)).start()
    began_s = time.monotonic()
    entry = fetch(cache, n=1)
    waited_s = time.monotonic() - began_s
    report(f"{fault}: a build of 1 s ended after {built_s:.2f} s, and one that waited after {waited_s:.2f} s")
    assert (outcome, entry.outcome) == ("built", "built")
    assert built_s < SOON_S
    assert waited_s < SOON_S
    breaker = Connection(RemoteUrl.parse(hosts.url), RemoteSettings()).breaker
    assert breaker.read().wait_s in (0, FIRST_S)  # what was not asked is no failure


def test_a_server_that_refuses_claims_still_gives_entries(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A role may be allowed entries only; one warning says what claims need."""
    hosts.publish(n=5)
    put = Bucket.put

    def refuse(self: Bucket, name: str, *args: object, **kwargs: object) -> bool:
        if name.startswith("claims/"):
            from trtcache.errors import RemoteError

            raise RemoteError(self.url.text, "denied", "403")
        return put(self, name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Bucket, "put", refuse)
    cache = claimer(hosts, "other")
    assert [fetch(cache, n=n).outcome for n in range(2)] == ["built", "built"]
    assert fetch(cache, n=5).origin == "remote"
    assert sum("builds are not claimed" in record.message for record in caplog.records) == 1


def test_doctor_says_whether_claims_work(careless: tuple[type[Careless], int], hosts: Hosts) -> None:
    """By trying it, whatever was found before."""
    served, port = careless
    other = hosts.url.replace(hosts.url.rpartition(":")[2], str(port))
    found = []
    for url in (hosts.url, other):
        environ = {**hosts.environ, "TRTCACHE_REMOTE": f"{url}&mode=write&claims=1"}
        *_, check = examine_remotes(Config.from_environ(environ))
        found.append((check.name, check.status, check.found))
    assert [status for _, status, _ in found] == ["ok", "bad"]
    assert found[1][2] == "the server accepts a second create of one name"
    assert served.asked.count("PUT") == 2
    assert objects(hosts, "claims") == []


def test_claims_need_a_remote_that_is_written_to(hosts: Hosts) -> None:
    """A reader cannot create one; web folders have no conditions."""
    with pytest.raises(SettingsError, match="mode=write"):
        hosts.host("a", TRTCACHE_REMOTE=f"{hosts.url}&claims=1")
    with pytest.raises(SettingsError, match="claims"):
        hosts.host("a", TRTCACHE_REMOTE="https://host/cache?mode=write&claims=1")


@pytest.mark.usefixtures("short")
def test_a_claim_that_never_ends_holds_nobody_for_ever(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It can be forged and put again; without a limit of the user's there is one all the same."""
    monkeypatch.setattr(tier, "LONGEST_WAIT_S", 5.0)
    cache, stopped = claimer(hosts), threading.Event()
    digest = cache.key({"n": 0}, kind="test").digest
    forged = json.dumps({"host": "\x1b]0;owned\x07", "pid": 1, "program": "\u202e", "kind": "x" * 9999}).encode()

    def forge() -> None:
        bucket = Bucket(RemoteUrl.parse(hosts.url), RemoteSettings())
        while not stopped.wait(0.3):
            bucket.put(f"claims/{digest}.0", iter([memoryview(forged)]), len(forged), replace=True)

    hold_claim(hosts, digest, forged)
    thread = threading.Thread(target=forge)
    thread.start()
    began_s = time.monotonic()
    try:
        assert fetch(cache).outcome == "built"
    finally:
        stopped.set()
        thread.join()
    assert 4 < time.monotonic() - began_s < SOON_S
    assert "although" in caplog.text
    assert all(record.getMessage().isprintable() for record in caplog.records)
