"""Uploads: in the background, once, of signed entries that took a while, and never lost with their process."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import trtcache
from tests.effort import SOON_S
from tests.remote.conftest import fetch, free_port, report
from trtcache.config.signing_keys import parse_keys
from trtcache.errors import FormatVersionError, RemoteError
from trtcache.remote import bucket, uploads
from trtcache.remote.tier import RemoteTier, object_name
from trtcache.store import files
from trtcache_cli.main import main

if TYPE_CHECKING:
    from tests.conftest import RunPython
    from tests.remote.conftest import Hosts
    from tests.remote.fault_proxy import FaultProxy
    from trtcache.cache import Cache


def waiting(cache: Cache) -> int:
    """Return how many entries wait in a cache's outbox."""
    assert cache.store is not None
    return len(cache.store.outbox.digests())


def test_an_entry_that_another_process_sends_hides_no_other(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """It vanishes between the listing of the folder and the look at its time."""
    cache, _, digests = with_outbox(hosts, 3)
    assert cache.store is not None
    real = files.modification_time_ns

    def time_of(file: os.DirEntry[str]) -> int:
        if file.name == digests[1]:
            Path(file.path).unlink()
        return real(file)

    monkeypatch.setattr(files, "modification_time_ns", time_of)
    assert cache.store.outbox.digests() == [digests[0], digests[2]]


def with_outbox(hosts: Hosts, count: int) -> tuple[Cache, RemoteTier, list[str]]:
    """Return a cache that uploads nothing by itself, its remote, and the digests of entries that wait, in order."""
    cache = hosts.writer(TRTCACHE_REMOTE_MIN_BUILD="99")
    assert cache.store is not None
    assert cache.config.remotes.target is not None
    for n in range(count):
        cache.store.outbox.add(fetch(cache, n=n).key.digest)
    tier = RemoteTier(cache.config.remotes.target, cache.config.remotes, cache.config.trust)
    return cache, tier, cache.store.outbox.digests()


def run(*args: str) -> int:
    """Run a command, and return its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(args)
    return int(ended.value.code or 0)


def test_a_reader_uploads_nothing(hosts: Hosts, proxy: FaultProxy) -> None:
    """Writing is opted into by mode=write."""
    cache = hosts.host("a")
    fetch(cache)
    assert trtcache.flush(5) == 0
    assert (proxy.count("PUT"), waiting(cache)) == (0, 0)


def test_a_web_server_without_put_is_read(
    tmp_path: Path, hosts: Hosts, caplog: pytest.LogCaptureFixture, run_python: RunPython
) -> None:
    """It says so once, look-ups go on, and what was not sent is said at the end of the process."""
    entry = fetch(hosts.host("ci", TRTCACHE_REMOTE=""), b"engine", 9)
    assert entry.path is not None
    target = tmp_path / "www" / object_name(entry.key.digest)
    target.parent.mkdir(parents=True)
    target.write_bytes(entry.path.read_bytes())
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "www"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}?mode=write"
        cache = hosts.host("a", TRTCACHE_REMOTE=url)
        for n in range(4):
            fetch(cache, n=n)
            assert uploads.flush(60) == 0
        assert fetch(cache, n=9).origin == "remote"
        code = "import trtcache; trtcache.Cache().get_or_build({'n': 10}, lambda: b'', kind='test')"
        done = run_python(code, **{**hosts.variables("b"), "TRTCACHE_REMOTE": url})
        server.shutdown()
    (said,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert re.fullmatch(r"nothing is uploaded to http://127[^ ]+: PUT http://[^ ]+[.]trtc: 501 [A-Za-z ]+", said)
    assert "uploads to http://127.0.0.1" in done.stderr


def test_a_quick_build_is_not_uploaded(hosts: Hosts, proxy: FaultProxy) -> None:
    """A second of build time is the default from which it pays; aliases go with their engine only."""
    cache = hosts.writer(TRTCACHE_REMOTE_MIN_BUILD="")
    fetch(cache)
    cache.keep(cache.key({"n": 1}, kind="alias"), b"alias", build_s=0.5)
    assert uploads.flush(5) == 0
    assert proxy.count("PUT") == 0
    cache.keep(cache.key({"n": 2}, kind="test"), b"engine", build_s=2.0)
    cache.keep(cache.key({"n": 3}, kind="alias"), b"alias", build_s=0.5)
    assert uploads.flush(5) == 0
    assert proxy.count("PUT") == 2


@pytest.mark.parametrize("missing", ["TRTCACHE_SIGNING_KEY", "trust"])
def test_what_others_would_not_use_is_not_uploaded(
    hosts: Hosts, proxy: FaultProxy, keys: dict[str, tuple[str, object]], missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a key, or with one that is not trusted, it is said once."""
    environ = {missing: ""} if missing != "trust" else {"TRTCACHE_TRUSTED_KEYS": keys["stranger"][0]}
    with caplog.at_level(logging.WARNING, "trtcache.remote"):
        cache = hosts.writer(**environ)
        fetch(cache)
        fetch(cache, n=1)
    assert uploads.flush(5) == 0
    assert (proxy.count("PUT"), waiting(cache)) == (0, 0)
    assert sum("nothing is uploaded" in record.message for record in caplog.records) == 1


def test_an_entry_that_this_process_does_not_trust_stays_in_the_outbox(
    hosts: Hosts, keys: dict[str, tuple[str, object]]
) -> None:
    """One that trusts the signer sends it later."""
    cache = hosts.writer(TRTCACHE_REMOTE_MIN_BUILD="99")
    entry = fetch(cache)
    assert cache.store is not None
    cache.store.outbox.add(entry.key.digest)
    assert cache.config.remotes.target is not None
    remotes = cache.config.remotes
    trust = replace(cache.config.trust, keys=parse_keys(keys["stranger"][0], "test"))
    for trusted, outcome in ((trust, "unsigned"), (cache.config.trust, "sent")):
        uploader = uploads.Uploader(cache.store, RemoteTier(cache.config.remotes.target, remotes, trusted))
        assert list(uploader.send_all()) == [(entry.key.digest, outcome)]
        assert waiting(cache) == (outcome == "unsigned")


def test_an_unexpected_error_ends_no_thread(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush ends, the entry stays in the outbox, and the next one is sent."""
    cache = hosts.writer()
    with monkeypatch.context() as patch:
        patch.setattr(bucket.Bucket, "put", lambda *_, **__: 1 / 0)
        fetch(cache)
        assert uploads.flush(SOON_S) == 0
    assert waiting(cache) == 1
    assert cache.store is not None
    failed = [event.reason for event in cache.store.events.read() if event.event == "upload_failed"]
    assert [reason.rpartition(" ")[2] for reason in failed] == ["error"]
    fetch(cache, n=1)
    assert uploads.flush(SOON_S) == 0
    assert waiting(cache) == 1


def test_an_object_that_is_there_is_kept(hosts: Hosts, proxy: FaultProxy) -> None:
    """The second of two builders gets 412, and its own entry stays where it is."""
    first = hosts.publish(b"first")
    second = fetch(hosts.writer("b", TRTCACHE_RECACHE="1"), b"second")
    assert uploads.flush(5) == 0
    assert proxy.count("PUT") == 2
    assert (bytes(second.read()), bytes(fetch(hosts.host("c")).read())) == (b"second", bytes(first.read()))


def test_a_large_entry_is_sent_in_parts(hosts: Hosts, proxy: FaultProxy) -> None:
    """And not at all if it is there: a conditional upload would be refused after all of its bytes."""
    content = os.urandom(bucket.PART_BYTES * 2)
    hosts.publish(content)
    assert proxy.count("HEAD") == 1
    assert proxy.count("PUT") == 3
    assert bytes(fetch(hosts.host("b")).read()) == content
    proxy.requests.clear()
    fetch(hosts.writer("c", TRTCACHE_RECACHE="1"), content)
    assert uploads.flush(60) == 0
    assert [method for method, _ in proxy.requests] == ["HEAD"]


def test_an_object_that_does_not_count_is_replaced(
    hosts: Hosts, proxy: FaultProxy, keys: dict[str, tuple[str, object]]
) -> None:
    """By a writer that has read it; a reader with both keys got the stranger's before."""
    stranger = {"TRTCACHE_TRUSTED_KEYS": keys["stranger"][0], "TRTCACHE_SIGNING_KEY": str(keys["stranger"][1])}
    fetch(hosts.writer("theirs", **stranger), b"theirs")
    assert uploads.flush(5) == 0
    ours = fetch(hosts.writer("ours"), b"ours")
    assert (ours.outcome, uploads.flush(5)) == ("built", 0)
    assert bytes(fetch(hosts.host("b")).read()) == b"ours"


def test_what_was_not_sent_waits_for_the_next_process(hosts: Hosts, proxy: FaultProxy) -> None:
    """A remote that refuses leaves it in the outbox, and the next upload takes it along."""
    cache = hosts.writer()
    fetch(cache)
    assert uploads.flush(60) == 0
    assert waiting(cache) == 0
    down = hosts.writer(TRTCACHE_REMOTE=f"{hosts.url.replace(str(proxy.port), str(free_port()))}&mode=write")
    fetch(down, n=1)
    assert uploads.flush(60) == 0
    assert waiting(down) == 1


def test_exit_waits_no_longer_than_it_may(hosts: Hosts, proxy: FaultProxy, run_python: RunPython) -> None:
    """An upload that hangs holds the exit for TRTCACHE_REMOTE_FLUSH seconds, and stays in the outbox."""
    code = """
    import time, trtcache
    cache = trtcache.Cache()
    cache.keep(cache.key({"n": 0}, kind="test"), b"engine", build_s=9.0)
    print(time.time())
    """
    proxy.fault = "hang"
    variables = {**hosts.variables("a"), "TRTCACHE_REMOTE": f"{hosts.url}&mode=write", "TRTCACHE_REMOTE_FLUSH": "0.5"}
    done = run_python(code, **variables)
    took_s = time.time() - float(done.stdout)
    report(f"exit with an upload that hangs, 0.5 s allowed: {took_s:.2f} s")
    assert (done.returncode, done.stderr.count("trtcache push")) == (0, 1)
    assert 0.4 < took_s < SOON_S
    assert waiting(hosts.host("a")) == 1
    proxy.fault = ""
    done = run_python(code.replace('"n": 0', '"n": 1'), **{**variables, "TRTCACHE_REMOTE_FLUSH": "10"})
    assert (done.returncode, done.stderr) == (0, "")
    assert waiting(hosts.host("a")) == 0
    assert proxy.count("PUT") == 3


def test_push_sends_the_outbox(
    hosts: Hosts, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And says what became of each entry; a second one has nothing to do."""
    for name, value in {**hosts.variables("a"), "TRTCACHE_REMOTE": f"{hosts.url}&mode=write"}.items():
        monkeypatch.setenv(name, value)
    cache = hosts.host("a")
    assert cache.store is not None
    for n in range(3):
        cache.store.outbox.add(fetch(cache, n=n).key.digest)
    cache.store.outbox.add("f" * 64)
    proxy.fault = "503"
    assert run("push") == 3
    assert waiting(cache) == 4
    proxy.fault = ""
    capsys.readouterr()
    assert run("push", "--json") == 0
    assert json.loads(capsys.readouterr().out)["outcomes"] == {"sent": 3, "gone": 1}
    assert waiting(cache) == 0
    assert run("push") == 0
    assert fetch(hosts.host("b"), n=2).origin == "remote"
    damaged = fetch(cache, n=3).key.digest
    os.truncate(cache.store.path(damaged), 50)
    cache.store.outbox.add(damaged)
    assert run("push") == 4


def test_names_of_objects_are_keys() -> None:
    """The first two digits are a folder, as in a store."""
    assert object_name("ab" * 32) == f"entries/v1/ab/{'ab' * 32}.trtc"


def test_one_object_that_the_server_refuses_does_not_hold_back_the_others(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays in the outbox, after the others, and does not count for the breaker."""
    cache, tier, digests = with_outbox(hosts, 4)
    assert cache.store is not None
    refused = digests[0]
    real_put = bucket.Bucket.put

    def put(self: bucket.Bucket, name: str, *args: object, **options: object) -> bool:
        if refused in name:
            raise RemoteError("u", bucket._reason("GenericError", "status code: 413 Payload Too Large"), "413")
        return real_put(self, name, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(bucket.Bucket, "put", put)
    outcomes = dict(uploads.Uploader(cache.store, tier).send_all())
    assert outcomes == dict.fromkeys(digests, "sent") | {refused: "refused"}
    assert (cache.store.outbox.digests(), tier.connection.breaker.read().failures) == ([refused], 0)
    uploader = uploads.Uploader(cache.store, tier)
    last = fetch(cache, n=5).key.digest
    uploader.offer(last)
    assert uploader.flush(SOON_S) == 0
    assert cache.store.outbox.digests() == [refused]


def test_an_entry_that_cannot_be_read_does_not_end_a_push(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one of a newer format: both stay in the outbox, and the others are sent."""
    cache, tier, (newer, unreadable, good) = with_outbox(hosts, 3)
    assert cache.store is not None
    real_file = uploads.ArtifactFile

    def open_file(path: Path, **options: object) -> object:
        if newer in path.name:
            raise FormatVersionError(str(path), 2, 1)
        if unreadable in path.name:
            raise PermissionError(13, "Permission denied")
        return real_file(path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(uploads, "ArtifactFile", open_file)
    outcomes = dict(uploads.Uploader(cache.store, tier).send_all())
    assert outcomes == {newer: "format", unreadable: "unreadable", good: "sent"}
    assert set(cache.store.outbox.digests()) == {newer, unreadable}


def test_a_refused_login_concerns_all_objects() -> None:
    """S3 answers 400 to an expired token, and to a wrong region."""
    page = "status code: 400 Bad Request: <Error><Code>{}</Code></Error>"
    reasons = [bucket._reason("GenericError", page.format(code)) for code in ("EntityTooLarge", "ExpiredToken")]
    assert reasons == ["refused", "error"]


def test_two_threads_get_one_uploader(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if both ask for the first time."""
    cache = hosts.writer()
    assert cache.store is not None
    assert cache.config.remotes.target is not None
    tier = RemoteTier(cache.config.remotes.target, cache.config.remotes, cache.config.trust)
    both, real_make = threading.Barrier(2), uploads.Uploader.__init__

    def make(self: uploads.Uploader, *args: object) -> None:
        both.wait(SOON_S)
        real_make(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(uploads.Uploader, "__init__", make)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: uploads.uploader_of(cache.store, tier), range(2))  # type: ignore[arg-type]
    assert one is other
