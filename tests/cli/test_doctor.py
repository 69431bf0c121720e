"""``trtcache doctor``."""

from __future__ import annotations

import os
import platform
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from trtcache.store.root import share
from trtcache_cli import probes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Result


def test_a_quick_look_finds_what_is_here(run: Callable[..., Result], put: Callable[..., str]) -> None:
    """Python, what is installed, each kind of engine, and the store, in every form."""
    put(1)
    done = run("doctor", "--quick", "--json")
    checks = {check["name"]: check for check in done.json["checks"]}
    assert (done.code, done.json["ok"]) == (0, True)
    assert platform.python_version() in checks["python"]["found"]
    assert {"torch", "tensorrt", "tensorrt_rtx", "c++ compiler", "gpu", "file system"} <= set(checks)
    assert {"backend aot_inductor", "backend tensorrt", "backend tensorrt_rtx"} <= set(checks)
    assert "private" in checks["permissions"]["found"]
    assert "tiny package" not in checks
    assert [row[0] for row in run("doctor", "--quick").rows] == list(checks)


def test_a_terminal_gets_advice_below(terminal: Callable[..., Result]) -> None:
    """What is missing comes with what to do."""
    assert "created by the first build" in terminal("doctor", "--quick").out


def test_a_quick_look_imports_no_torch(program: Callable[..., Result]) -> None:
    """Installed packages are read from metadata."""
    err = program("doctor", "--quick", PYTHONPROFILEIMPORTTIME="1").err
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in err.splitlines()}
    assert not imported & {"torch", "tensorrt", "sqlalchemy"}


def test_a_bad_store_is_a_failure(run: Callable[..., Result], root: Path) -> None:
    """Exit code 1, with the store's own message."""
    root.mkdir()
    (root / "photo.jpg").touch()
    done = run("doctor", "--quick", "--json")
    checks = {check["name"]: check for check in done.json["checks"]}
    assert (done.code, checks["cache directory"]["status"]) == (1, "bad")
    assert "is not a trtcache store" in checks["cache directory"]["found"]


def test_a_readable_store_is_not_private(put: Callable[..., str], root: Path) -> None:
    """It works, and the advice describes the cost."""
    put(1)
    root.chmod(0o755)
    found = {check.name: check for check in probes.store(root, readonly=False)}
    assert found["permissions"].status == "missing"
    assert f"chmod 700 {root}" in found["permissions"].advice


def test_trusted_keys_are_reported(run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a shared store: no key, some keys, or signatures not required; an unreadable key is a problem."""
    root = tmp_path / "shared"
    share(root, os.getgid())
    rows = []
    for variable, value in (
        ("TRTCACHE_DIR", str(root)),
        ("TRTCACHE_TRUSTED_KEYS", f"ci:{'ab' * 32}"),
        ("TRTCACHE_SIGNATURES", "off"),
    ):
        monkeypatch.setenv(variable, value)
        rows.append([row[1:3] for row in run("doctor", "--quick").rows if row[0] == "signatures"])
    assert rows == [
        [["missing", "required, and no key is trusted: every entry is a miss"]],
        [["ok", "required, of ci"]],
        [["missing", "off: every user who can write there can make you run their code"]],
    ]
    assert "shared" in next(row[2] for row in run("doctor", "--quick").rows if row[0] == "permissions")


def test_a_read_only_store_is_reported(put: Callable[..., str], root: Path) -> None:
    """By the variable or by permissions."""
    put(1)
    assert "read-only" in probes.store(root, readonly=True)[0].found


def test_abilities_follow_what_is_there() -> None:
    """Each kind needs its own things."""
    can_all = probes.backends(has_gpu=True, has_compiler=True)[0]
    cannot_build = probes.backends(has_gpu=False, has_compiler=False)[0]
    assert "build" in can_all.found
    assert "cannot build" in cannot_build.found
    assert probes._aot_inductor(has_torch=False, has_compiler=True).advice == "pip install 'trtcache[torch]'"


@pytest.mark.skipif(
    probes.distribution_version(probes.DISTRIBUTIONS["tensorrt_rtx"]) is None, reason="needs TensorRT-RTX"
)
def test_rtx_builds_without_a_gpu() -> None:
    """Where it is installed it can build, with or without one."""
    for has_gpu, found in ((False, "can build for a named compute capability"), (True, "can build; running and refit")):
        rtx = probes.backends(has_gpu=has_gpu, has_compiler=True)[2]
        assert rtx.status == "ok"
        assert rtx.found.startswith(found)


def test_a_missing_compiler_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With its consequences, also for the one in CXX."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert probes.compiler().status == "missing"
    monkeypatch.setenv("CXX", "special-c++")
    assert probes.compiler().found == "special-c++ not found"


def test_a_graphics_card_is_asked_for_by_the_drivers_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its first line is shown; a tool that fails means there is none."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA H200, 9.0, 580.1'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert (probes.gpu().status, probes.gpu().found) == ("ok", "NVIDIA H200, 9.0, 580.1")
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert probes.gpu().status == "missing"


def test_a_temporary_directory_where_nothing_runs_is_bad(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A noexec mount is found by trying."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert probes.temporary_directory().status == "ok"
    if os.geteuid() != 0 or os.system(f"mount -t tmpfs -o noexec,size=64k none {tmp_path} 2>/dev/null"):  # noqa: S605
        pytest.skip("cannot mount a file system with noexec here")
    try:
        found = probes.temporary_directory()
    finally:
        os.system(f"umount {tmp_path}")  # noqa: S605
    assert found.status == "bad"
    assert "TMPDIR" in found.advice


def test_a_layer_is_checked(run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A valid layer is ok, a missing one is reported, and a directory that is not a store is bad."""
    (tmp_path / "photos" / "summer").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    monkeypatch.delenv("TRTCACHE_DIR")
    monkeypatch.setenv("TRTCACHE_PATH", ":".join(str(tmp_path / one) for one in ("up", "empty", "gone", "photos")))
    done = run("doctor", "--quick", "--json")
    found = [check["status"] for check in done.json["checks"] if check["name"] == "layer below"]
    assert (found, done.code) == (["ok", "missing", "bad"], 1)


CRASH = f"import os, signal; os.kill(os.getpid(), signal.{signal.SIGSEGV.name})"


@pytest.mark.parametrize(
    ("code", "status", "found", "advice"),
    [
        ("print('warming up'); print('built')", "ok", "built", ""),
        ("raise SystemExit('no compiler')", "bad", "no compiler", ""),
        ("raise SystemExit(3)", "bad", "exit code 3", ""),
        (CRASH, "bad", "the child was killed by SIGSEGV", "LD_PRELOAD=$(g++ -print-file-name=libstdc++.so.6)"),
        (CRASH.replace("SIGSEGV", "SIGTERM"), "bad", "the child was killed by SIGTERM", ""),
        ("import time; time.sleep(60)", "bad", "not done after 1 s", "disk"),
    ],
)
def test_a_child_that_dies_is_reported(code: str, status: str, found: str, advice: str) -> None:
    """A segmentation fault comes with the cure that helped on a real machine."""
    check = probes.tiny_package([sys.executable, "-c", code], timeout_s=1.0 if "sleep" in code else 60.0)
    assert (check.status, check.found) == (status, found)
    assert advice in check.advice


@pytest.mark.slow
def test_a_tiny_package_is_built_loaded_and_run(program: Callable[..., Result]) -> None:
    """The real thing, in a child process."""
    pytest.importorskip("torch")
    done = program("doctor", "--json")
    checks = {check["name"]: check for check in done.json["checks"]}
    assert (done.code, checks["tiny package"]["status"]) == (0, "ok")
    assert "built, loaded and run" in checks["tiny package"]["found"]
    assert checks["key aliases"]["found"] == "an unchanged program is not lowered again"
    assert checks["direct mode"]["found"] == "nor is an unchanged module exported (TRTCACHE_DIRECT=off)"


@pytest.mark.parametrize(
    ("code", "aliases", "direct"),
    [
        ("pass", "", ""),
        (
            "key.code_digest = lambda: 1 / 0",
            "ZeroDivisionError: division by zero",
            "ZeroDivisionError: division by zero",
        ),
        ("key_code.file_bytes = fail", "has no key alias: our own code is gone", "it needs key aliases"),
        ("walk.Walk.model = fail", "", "our own code is gone"),
    ],
)
def test_fast_paths_that_do_not_work_are_reported(code: str, aliases: str, direct: str) -> None:
    """Key aliases and direct mode, each broken on purpose in the child process that tries them."""
    pytest.importorskip("torch")
    lines = (
        "import json, sys",
        "from trtcache.keys import code as key_code, key",
        "from trtcache.frontends.direct import walk",
        "def fail(*_): raise OSError('our own code is gone')",
        code,
        "from trtcache_cli.fast_paths import try_fast_paths",
        "print(json.dumps(try_fast_paths()))",
    )
    checks = {
        check.name: check for check in probes.fast_paths([sys.executable, "-W", "ignore", "-c", "\n".join(lines)])
    }
    for name, why in (("key aliases", aliases), ("direct mode", direct)):
        assert checks[name].status == ("bad" if why else "ok"), checks[name]
        assert why in checks[name].found
