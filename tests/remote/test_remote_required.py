"""``build`` and ``run`` wait for their uploads, and ``--require-remote`` exits with 4 if something failed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from tests.models import Affine
from tests.remote.conftest import fetch, free_port
from trtcache.config.environment import Config
from trtcache.errors import ReadOnlyError, RemoteError, SettingsError
from trtcache.store.disk import DiskStore
from trtcache.store.events import EventLog
from trtcache.store.files import Folders
from trtcache_cli.require_remote import remote_failures, require_usable_remote, summed_logs

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Result
    from tests.remote.conftest import Hosts
    from tests.remote.fault_proxy import FaultProxy

_PROGRAM = """
import sys
from trtcache.cache import Cache
Cache().get_or_build({"n": int(sys.argv[1])}, lambda: b"engine", kind="test")
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The file of a small model."""
    path = tmp_path / "affine.pt2"
    torch.export.save(torch.export.export(Affine(), (torch.randn(3, 4),)), path)
    return path


def test_build_ends_when_its_uploads_have_ended(
    command: Callable[..., Result], hosts: Hosts, proxy: FaultProxy, model: Path, interpreter: str
) -> None:
    """Another machine hits after it; with a remote that is only read, nothing is waited for."""
    build = ("build", model, "--backend", interpreter, "--json", "--require-remote")
    done = command(*build, TRTCACHE_REMOTE=f"{hosts.url}&mode=write")
    assert (done.code, done.json["outcome"]) == (0, "built")
    assert proxy.count("PUT") >= 1
    assert len(command("ls", hosts.name).rows) == proxy.count("PUT")
    other = command(*build, TRTCACHE_DIR=str(hosts.folder / "b"))
    assert (other.code, other.json["outcome"]) == (0, "hit")


def test_build_fails_with_its_remote_if_that_is_required(
    command: Callable[..., Result], hosts: Hosts, proxy: FaultProxy, model: Path, interpreter: str
) -> None:
    """The engine is built and stored all the same; without the option the exit code is 0."""
    build = ("build", model, "--backend", interpreter, "--json")
    closed = f"s3://engines/p?endpoint=http://127.0.0.1:{free_port()}&mode=write"
    done = command(*build, "--require-remote", TRTCACHE_REMOTE=closed)
    assert (done.code, done.json["outcome"]) == (4, "built")
    assert " failed (unreachable)" in done.err
    assert "still in the outbox" in done.err
    proxy.fault = "503"
    assert command(*build, TRTCACHE_REMOTE=hosts.url, TRTCACHE_DIR=str(hosts.folder / "b")).code == 0


@pytest.mark.parametrize(
    ("environ", "error"),
    [
        ({"TRTCACHE_REMOTE": ""}, SettingsError),
        ({"TRTCACHE_READONLY": "1"}, ReadOnlyError),
        ({"TRTCACHE_REMOTE": "s3://b/p?mode=write", "TRTCACHE_SIGNING_KEY": ""}, RemoteError),
    ],
)
def test_what_cannot_work_is_an_error_before_the_build(
    hosts: Hosts, environ: dict[str, str], error: type[Exception]
) -> None:
    """No remote, a directory that cannot be written, uploads that nothing would use."""
    DiskStore.open(hosts.folder / "a")
    with pytest.raises(error):
        require_usable_remote(Config.from_environ({**hosts.variables("a"), **environ}))


def test_answers_are_no_failures(hosts: Hosts) -> None:
    """An absent or an untrusted entry is an answer; old events do not count."""
    store = hosts.host("a").store
    assert store is not None
    store.events.append("upload_failed", reason="s3://b busy")
    since_ns = time.time_ns()
    for event, reason in (
        *(("remote_miss", "absent"), ("remote_miss", "untrusted:unsigned"), ("remote_hit", "")),
        *(("remote_miss", "corrupt:member"), ("remote_skip", "open"), ("upload_failed", "denied")),
    ):
        store.events.append(event, reason=f"s3://b {reason}".strip())
    assert remote_failures(store, since_ns) == {"look-up: corrupt": 1, "look-up: open": 1, "upload: denied": 1}


def test_failures_in_logs_that_were_reduced_to_sums_count(hosts: Hosts) -> None:
    """A long run writes more than the logs that are kept; what was in sums before it does not count."""
    store = hosts.host("a").store
    assert store is not None

    def write(event: str, reason: str, count: int) -> None:
        log = EventLog(Folders(store.root, shared=False), clock_ns=time.time_ns, writable=True, limit_bytes=300)
        for _ in range(count):
            log.append(event, reason=f"s3://b {reason}")

    write("upload_failed", "busy", 1)
    write("remote_hit", "", 100)
    summed, since_ns = summed_logs(store), time.time_ns()
    assert summed
    write("upload_failed", "denied", 2)
    write("remote_hit", "", 100)
    assert all(event.event == "remote_hit" for event in store.events.read())
    assert remote_failures(store, since_ns, summed) == {"upload: denied": 2}


def test_an_answer_of_a_remote_with_a_long_url_is_no_failure(hosts: Hosts) -> None:
    """An event has room for a reason."""
    cache = hosts.host("a", TRTCACHE_REMOTE=hosts.url.replace("?", f"/{'long/' * 120}?", 1))
    assert cache.store is not None
    fetch(cache)
    assert [event.reason[-7:] for event in cache.store.events.read() if event.event == "remote_miss"] == [" absent"]
    assert remote_failures(cache.store, 0) == {}


def test_uploads_of_others_do_not_count(
    command: Callable[..., Result], hosts: Hosts, model: Path, interpreter: str, tmp_path: Path
) -> None:
    """An entry that waits for another process, or that the server refuses, is no failure of this command."""
    unsigned = hosts.host("a", TRTCACHE_REMOTE="", TRTCACHE_SIGNING_KEY="")
    assert unsigned.store is not None
    waiting = fetch(unsigned).key.digest
    unsigned.store.outbox.add(waiting)
    build = ("build", model, "--backend", interpreter, "--require-remote")
    done = command(*build, TRTCACHE_REMOTE=f"{hosts.url}&mode=write")
    assert (done.code, "--require-remote" in done.err) == (0, False)
    assert run_program(hosts, tmp_path, "--require-remote", n=3)[0] == 0
    assert unsigned.store.outbox.digests() == [waiting]


def test_an_entry_that_is_not_offered_or_is_damaged_is_a_failure(
    command: Callable[..., Result], hosts: Hosts, model: Path, interpreter: str
) -> None:
    """Nothing waits in the outbox for either, so the event log has it."""
    writer = hosts.writer("a", TRTCACHE_REMOTE_MIN_BUILD="99")
    assert writer.store is not None
    since_ns = time.time_ns()
    damaged = fetch(writer).key.digest
    os.truncate(writer.store.path(damaged), 50)
    writer.store.outbox.add(damaged)
    assert command("push", TRTCACHE_REMOTE=f"{hosts.url}&mode=write").code == 4
    assert remote_failures(writer.store, since_ns) == {"upload: damaged": 1}
    outbox = writer.store.root / "outbox"
    outbox.rmdir()
    outbox.touch()
    build = ("build", model, "--backend", interpreter, "--require-remote")
    done = command(*build, TRTCACHE_REMOTE=f"{hosts.url}&mode=write")
    assert (done.code, "failed (outbox)" in done.err) == (4, True), done.err


def start_run(hosts: Hosts, tmp_path: Path, *args: str, program: str = _PROGRAM, **environ: str) -> list[str]:
    """Write a program, and return the command line that runs it."""
    (tmp_path / "program.py").write_text(program)
    hosts.folder.mkdir(parents=True, exist_ok=True)
    return [sys.executable, "-m", "trtcache_cli", "run", *args, str(tmp_path / "program.py")]


def run_program(hosts: Hosts, tmp_path: Path, *args: str, n: int = 0, code: int = 0, **environ: str) -> tuple[int, str]:
    """Run a program that builds an entry; return the exit code and standard error."""
    line = [*start_run(hosts, tmp_path, *args), str(n), str(code)]
    variables = {**os.environ, **hosts.variables("a"), "TRTCACHE_REMOTE": f"{hosts.url}&mode=write", **environ}
    done = subprocess.run(line, env=variables, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stderr


def test_run_has_the_exit_code_of_the_program_or_4(hosts: Hosts, proxy: FaultProxy, tmp_path: Path) -> None:
    """Its own if it is not 0; its uploads have ended when it ends."""
    assert run_program(hosts, tmp_path, "--require-remote")[0] == 0
    assert proxy.count("PUT") == 1
    assert run_program(hosts, tmp_path, "--require-remote", n=1, code=9)[0] == 9
    closed = f"s3://engines/p?endpoint=http://127.0.0.1:{free_port()}&mode=write"
    code, text = run_program(hosts, tmp_path, "--require-remote", n=2, TRTCACHE_REMOTE=closed)
    assert code == 4
    assert "--require-remote: 1 look-up failed (unreachable), 1 upload is still in the outbox" in text
    assert run_program(hosts, tmp_path, n=3, TRTCACHE_REMOTE=closed)[0] == 0


def test_run_forwards_signals(hosts: Hosts, tmp_path: Path) -> None:
    """A program that is terminated has ended when the command has."""
    waits = "import os, pathlib, sys, time\npathlib.Path(sys.argv[1]).write_text(str(os.getpid()))\ntime.sleep(60)\n"
    line = start_run(hosts, tmp_path, "--require-remote", program=waits)
    with subprocess.Popen([*line, str(tmp_path / "pid")], env={**os.environ, **hosts.variables("a")}) as process:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()
