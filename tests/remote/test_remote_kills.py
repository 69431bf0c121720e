"""A process that is killed while it uploads or downloads leaves whole objects and whole entries behind."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from contextlib import contextmanager
from hashlib import shake_256
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import environ_untraced
from tests.effort import tries
from tests.remote.conftest import fetch, left_behind, report
from trtcache.config.remotes import RemoteSettings, RemoteUrl
from trtcache.remote import uploads
from trtcache.remote.bucket import PART_BYTES, Bucket
from trtcache.remote.tier import object_name
from trtcache.store.reader import ArtifactFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.remote.conftest import Hosts

# Imports what a look-up and an upload need, except for obstore, and forks a process for each line of its input.
_FORKING = """
import json, os, signal, sys, time
from hashlib import shake_256
import sqlalchemy, trtcache, trtcache.remote.uploads
from trtcache.cache import Cache
from trtcache.config.environment import Config
Cache(sys.argv[1], remote=[]).get_or_build({"n": 0}, lambda: b"", kind="warm")

def work(what, n, size_bytes, environ):
    cache = Cache(config=Config.from_environ(environ))
    key = cache.key({"n": n}, kind="test")
    if what == "get":
        return cache.get(key) is not None
    if what == "keep":
        cache.keep(key, shake_256(b"%d" % n).digest(size_bytes), build_s=9.0)
    else:
        cache.store.outbox.add(cache.key({"n": -1}, kind="test").digest)  # of no entry: any upload sends what is left
        cache.keep(cache.key({"n": -2 - n}, kind="test"), b"", build_s=9.0)
    return not trtcache.flush(30)

for line in sys.stdin:
    given = json.loads(line)
    began = time.monotonic()
    child = os.fork()
    if not child:
        code = 1
        try:
            code = not work(given["what"], given["n"], given["size_bytes"], given["environ"])
        finally:
            os._exit(code)
    if given["kill_s"] is not None:
        time.sleep(given["kill_s"])
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    print(json.dumps([os.waitstatus_to_exitcode(status), time.monotonic() - began]), flush=True)
"""


@contextmanager
def forking(folder: Path) -> Iterator[Callable[..., tuple[int, float]]]:
    """Yield what runs work in a process that is killed after a while; it returns the exit code and the seconds."""
    command = [sys.executable, "-W", "ignore", "-c", _FORKING, str(folder / "warm")]
    pipe = subprocess.PIPE
    environ = {**environ_untraced(), "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environ) as process:

        def run(
            what: str, n: int, size_bytes: int, environ: dict[str, str], kill_s: float | None = None
        ) -> tuple[int, float]:
            given = {"what": what, "n": n, "size_bytes": size_bytes, "environ": environ, "kill_s": kill_s}
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(given) + "\n")
            process.stdin.flush()
            code, took_s = json.loads(process.stdout.readline())
            return code, took_s

        yield run
        assert process.stdin is not None
        process.stdin.close()


def size_of(n: int) -> int:
    """Return the size of an entry: every fourth is sent in parts."""
    return PART_BYTES + 5 if n % 4 == 3 else 300_000


@pytest.mark.torture
def test_a_killed_upload(hosts: Hosts, tmp_path: Path) -> None:
    """The object is whole or absent, and what was in the outbox is sent by the next process that uploads."""
    chance, count, absent, waited = random.Random(10), tries(8, 200), 0, 0
    bucket = Bucket(RemoteUrl.parse(hosts.url), RemoteSettings(), patient=True)
    environ = hosts.variables("a") | {"TRTCACHE_REMOTE": f"{hosts.url}&mode=write"}
    store = hosts.writer("a").store
    assert store is not None
    with forking(tmp_path) as run:
        whole_s = {}
        for n in (2, 3):
            code, whole_s[size_of(n)] = run("keep", n, size_of(n), environ)
            assert code == 0
        for n in range(4, count + 4):
            code, _ = run("keep", n, size_of(n), environ, chance.random() * 1.2 * whole_s[size_of(n)])
            assert code in (0, -9)
            digest = hosts.host("a").key({"n": n}, kind="test").digest
            waits = digest in store.outbox.digests()
            is_there = _is_whole(bucket, digest, store.path(digest))
            absent, waited = absent + (not is_there), waited + waits
            if waits:
                assert run("next", n, 0, environ)[0] == 0
                assert _is_whole(bucket, digest, store.path(digest))
            assert store.outbox.digests() == []
    report(f"uploads killed at {count} points: {absent} absent, {waited} sent by the next process")


def _is_whole(bucket: Bucket, digest: str, path: Path) -> bool:
    """Return whether there is an object, which has to be the file."""
    try:
        _, chunks = bucket.get(object_name(digest))
    except FileNotFoundError:
        return False
    assert b"".join(chunks) == path.read_bytes()
    return True


@pytest.mark.torture
def test_a_killed_download(hosts: Hosts, tmp_path: Path) -> None:
    """Every entry in the directory is whole, and the next look-up is a hit."""
    chance, count, stored = random.Random(11), tries(8, 200), 0
    content = {n: shake_256(b"%d" % n).digest(size_of(n)) for n in (2, 3)}
    for n in content:
        hosts.publish(content[n], n)
    assert uploads.flush(60) == 0
    with forking(tmp_path) as run:
        whole_s = {n: run("get", n, 0, hosts.variables(f"whole-{n}"))[1] for n in content}
        for turn in range(count):
            n, name = (3 if turn % 4 == 3 else 2), f"host-{turn}"
            code, _ = run("get", n, 0, hosts.variables(name), chance.random() * 1.2 * whole_s[n])
            assert code in (0, -9)
            files = list((hosts.folder / name).rglob("*.trtc"))
            stored += len(files)
            for path in files:
                file = ArtifactFile(path)
                file.verify()
                file.close()
            cache = hosts.host(name)
            assert bytes(fetch(cache, b"wrong", n).read()) == content[n]
            assert cache.store is not None
            cache.store.sweep(temporary_s=-1, quarantine_s=-1)
            assert not left_behind(hosts.folder / name)
    report(f"downloads killed at {count} points: {stored} stored before")
