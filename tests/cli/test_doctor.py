"""``trtcache doctor``."""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.store.mounts import mounted
from tests.store.users import ALICE, as_user, needs_root, public_directory
from trtcache.backends.aot_inductor.diagnosis import compiler
from trtcache.backends.tensorrt.flavour import TENSORRT_RTX
from trtcache.config import backend_settings
from trtcache.config.signing_keys import Trust
from trtcache.store.root import share
from trtcache_cli import backend_checks, probes

if TYPE_CHECKING:
    from collections.abc import Callable

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


@pytest.fixture
def quick_checks(python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process that checks the backends be a quick one."""
    defaults = probes.check_backends.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "command", (python, *probes._BACKENDS[1:]))


@pytest.mark.usefixtures("quick_checks")
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
    found = {check.name: check for check in probes.check_store(root, readonly=False)}
    assert found["permissions"].status == "missing"
    assert f"chmod 700 {root}" in found["permissions"].advice


def test_a_store_that_every_user_can_write_to_is_bad(tmp_path: Path) -> None:
    """Also if it is shared."""
    root = tmp_path / "shared"
    share(root, os.getgid())
    root.chmod(0o2777)
    found = {check.name: check for check in probes.check_store(root, readonly=False)}
    assert (found["permissions"].status, "every user can write to it" in found["permissions"].found) == ("bad", True)
    assert found["permissions"].advice == f"chmod o-w {root}"


@pytest.mark.usefixtures("quick_checks")
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
    assert "read-only" in probes.check_store(root, readonly=True)[0].found


def test_abilities_follow_what_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """AOTInductor needs a compiler to build; without torch no backend can do anything."""
    pytest.importorskip("torch")
    assert [check.status for check in backend_checks.checks_of("aot_inductor", quick=True)] == ["ok", "ok"]
    monkeypatch.setenv("PATH", str(tmp_path))
    checks = {check.name: check for check in backend_checks.checks_of("aot_inductor", quick=True)}
    assert checks["c++ compiler"].status == "missing"
    assert "cannot build" in checks["backend aot_inductor"].found
    monkeypatch.setattr(probes, "distribution_version", lambda _: None)
    assert {check.advice for check in probes.check_backends(quick=True)} == {"pip install 'trtcache[torch]'"}


@pytest.mark.usefixtures("quick_checks")
def test_settings_that_build_everything_are_reported(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else says that a cache which is sound is not used."""

    def used() -> list[list[str]]:
        return [row[1:3] for row in run("doctor", "--quick").rows if row[0] == "use of the cache"]

    assert used() == []
    monkeypatch.setenv("TRTCACHE_RECACHE", "1")
    assert used() == [["missing", "no hits: everything is built and replaced: TRTCACHE_RECACHE=1"]]
    monkeypatch.setenv("TRTCACHE_DISABLE", "1")
    assert used() == [["missing", "none: everything is built and nothing stored: TRTCACHE_DISABLE=1"]]


@pytest.mark.skipif(not TENSORRT_RTX.installed, reason="needs TensorRT-RTX")
def test_rtx_builds_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is installed it can build, with or without one."""
    for has_gpu, found in ((False, "can build for a named compute capability"), (True, "can build; running and refit")):
        monkeypatch.setattr("torch.cuda.is_available", lambda answer=has_gpu: answer)
        package, backend = backend_checks.checks_of("tensorrt_rtx", quick=True)
        assert (package.status, backend.status) == ("ok", "ok")
        assert backend.found.startswith(found)


@pytest.fixture
def broken(interpreter: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Register a backend that cannot be imported, besides the others."""
    table = {**backend_settings.backend_table(), "broken": "trtcache_that_is_not_there:Broken"}
    monkeypatch.setattr(backend_settings, "backend_table", lambda: table)
    return "broken"


def test_a_backend_of_another_package_is_checked(
    interpreter: str, broken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the default checks; one that cannot be imported is bad, and the others are checked all the same."""
    (check,) = backend_checks.checks_of(interpreter, quick=True)
    assert (check.name, check.status, check.found) == ("backend interpreter", "ok", "ready")
    assert backend_checks.main(["--quick", broken, "aot_inductor"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one.get("end") for one in lines] == [None, broken, None, None, "aot_inductor"]
    assert lines[0]["check"]["status"] == "bad"
    assert "cannot be imported" in lines[0]["check"]["found"]


def test_a_missing_compiler_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With its consequences, also for the one in CXX."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert compiler().status == "missing"
    monkeypatch.setenv("CXX", "special-c++")
    assert compiler().found == "special-c++ not found"


def test_a_graphics_card_is_asked_for_by_the_drivers_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its first line is shown; a tool that fails means there is none."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA H200, 9.0, 580.1'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert (probes.check_gpu().status, probes.check_gpu().found) == ("ok", "NVIDIA H200, 9.0, 580.1")
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert probes.check_gpu().status == "missing"


def test_a_temporary_directory_where_nothing_runs_is_bad(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A noexec mount is found by trying."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert probes.check_temporary_directory().status == "ok"
    if os.geteuid() != 0 or os.system(f"mount -t tmpfs -o noexec,size=64k none {tmp_path} 2>/dev/null"):  # noqa: S605
        pytest.skip("cannot mount a file system with noexec here")
    try:
        found = probes.check_temporary_directory()
    finally:
        os.system(f"umount {tmp_path}")  # noqa: S605
    assert found.status == "bad"
    assert "TMPDIR" in found.advice


def test_a_full_temporary_directory_is_bad(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Doctor goes on, also if there is none that can be written to."""
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "nr_inodes=2,size=64k", "none") as small:
        monkeypatch.setattr("tempfile.tempdir", str(small))
        (small / "last").touch()
        found = probes.check_temporary_directory()
    assert (found.status, found.found) == ("bad", "no file can be written: No space left on device")
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: [str(tmp_path / "gone")])
    found = probes.check_temporary_directory()
    assert (found.status, "No usable temporary directory" in found.found) == ("bad", True)


def test_a_directory_that_no_build_creates_is_reported(tmp_path: Path) -> None:
    """A read-only cache stays missing, and nothing is created below a file or by a link that leads nowhere."""
    (found,) = probes.check_store(tmp_path / "a" / "b", readonly=True)
    assert (found.status, "does not exist, and is not created" in found.found) == ("missing", True)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("gone")
    for path, why in (("file/cache", "it is not a directory"), ("link", "a link to gone, which does not exist")):
        (found,) = probes.check_store(tmp_path / path, readonly=False)
        assert (found.status, why in found.found) == ("bad", True), found
    (found,) = probes.check_store(tmp_path / "a" / "b", readonly=False)
    assert (found.status, found.found) == ("ok", f"{tmp_path / 'a' / 'b'}, created by the first build")


@needs_root
def test_a_directory_that_cannot_be_created_is_bad() -> None:
    """The nearest parent that exists decides."""

    def look() -> None:
        (found,) = probes.check_store(Path("/proc/trtcache/cache"), readonly=False)
        assert (found.status, "cannot be created in /proc" in found.found) == ("bad", True), found

    with public_directory():
        as_user(ALICE, look)


@needs_root
def test_directories_that_cannot_be_reached_are_bad() -> None:
    """Below a directory of another user; doctor goes on."""
    with public_directory() as public:
        (public / "closed" / "cache").mkdir(parents=True)
        (public / "closed").chmod(0o700)

        def look() -> None:
            checks = [
                *probes.check_store(public / "closed" / "cache", readonly=False),
                probes.check_layer(public / "closed" / "a", Trust()),
            ]
            assert [check.status for check in checks] == ["bad", "bad"]
            assert all("Permission denied" in check.found for check in checks)

        as_user(ALICE, look)


@pytest.mark.usefixtures("quick_checks")
def test_a_layer_is_checked(run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A valid layer is ok, a missing one is reported, and a directory that is not a store is bad."""
    (tmp_path / "photos" / "summer").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    monkeypatch.delenv("TRTCACHE_DIR")
    monkeypatch.setenv("TRTCACHE_PATH", ":".join(str(tmp_path / one) for one in ("up", "empty", "gone", "photos")))
    done = run("doctor", "--quick", "--json")
    found = [check["status"] for check in done.json["checks"] if check["name"] == "lower layer"]
    assert (found, done.code) == (["ok", "missing", "bad"], 1)


@pytest.mark.usefixtures("quick_checks")
def test_trusted_keys_of_a_shared_layer_are_reported(
    run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a shared cache directory: without one, every entry of the layer is a miss."""
    root = tmp_path / "shared"
    share(root, os.getgid())
    rows = []
    for variable, value in (
        ("TRTCACHE_PATH", f"{tmp_path / 'up'}:{root}"),
        ("TRTCACHE_TRUSTED_KEYS", f"ci:{'ab' * 32}"),
        ("TRTCACHE_SIGNATURES", "off"),
    ):
        monkeypatch.delenv("TRTCACHE_DIR", raising=False)
        monkeypatch.setenv(variable, value)
        rows.append(next(row[1:3] for row in run("doctor", "--quick").rows if row[0] == "lower layer"))
    assert rows == [
        ["missing", f"{root}: signatures required, and no key is trusted: every entry is a miss"],
        ["ok", str(root)],
        ["missing", f"{root}: signatures off: every user who can write there can make you run their code"],
    ]


CRASH = f"import os, signal; os.kill(os.getpid(), signal.{signal.SIGSEGV.name})"


@pytest.mark.parametrize(
    ("code", "found", "advice"),
    [
        ("raise SystemExit('no compiler')", "no compiler", ""),
        ("raise SystemExit(3)", "exit code 3", ""),
        ("pass", "the process that checks it ended early", ""),
        (CRASH, "the child was killed by SIGSEGV", "LD_PRELOAD=$(g++ -print-file-name=libstdc++.so.6)"),
        (CRASH.replace("SIGSEGV", "SIGTERM"), "the child was killed by SIGTERM", ""),
        ("import time; time.sleep(60)", "not done after 3 s", "disk"),
    ],
)
def test_a_backend_that_kills_the_child_is_reported(
    monkeypatch: pytest.MonkeyPatch, code: str, found: str, advice: str
) -> None:
    """A segmentation fault comes with the cure that helped on a real machine; the other backends are checked."""
    monkeypatch.setattr(backend_settings, "backend_table", lambda: dict.fromkeys(("good", "bad", "fine"), ""))
    child = (
        "import json, sys\n"
        "for name in sys.argv[2:]:\n"
        f"    if name == 'bad':\n        {code}\n        raise SystemExit\n"
        "    print(json.dumps({'check': {'name': name, 'status': 'ok', 'found': 'it'}}))\n"
        "    print(json.dumps({'end': name}), flush=True)\n"
    )
    command = (sys.executable, "-c", child)
    checks = [*probes.check_backends(quick=True, command=command, timeout_s=3.0 if "sleep" in code else 60.0)]
    assert [(check.name, check.status) for check in checks] == [("good", "ok"), ("backend bad", "bad"), ("fine", "ok")]
    assert checks[1].found == found
    assert advice in checks[1].advice


@pytest.mark.slow
@pytest.mark.usefixtures("quick_grandchildren")
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
            "alias_key.code_digest = lambda: 1 / 0",
            "ZeroDivisionError: division by zero",
            "ZeroDivisionError: division by zero",
        ),
        ("alias_key.file_bytes = fail", "has no key alias: our own code is gone", "it needs key aliases"),
        ("mode.direct_key_parts = fail", "", "our own code is gone"),
        ("mode.record = fail", "", "our own code is gone"),
    ],
)
def test_fast_paths_that_do_not_work_are_reported(python: str, code: str, aliases: str, direct: str) -> None:
    """Key aliases and direct mode, each broken on purpose in the child process that tries them."""
    pytest.importorskip("torch")
    lines = (
        "import json, sys",
        "from trtcache.keys import alias_key",
        "from trtcache.frontends.direct import mode",
        "def fail(*_): raise OSError('our own code is gone')",
        code,
        "from trtcache_cli.fast_paths import try_fast_paths",
        "print(json.dumps(try_fast_paths()))",
    )
    checks = {check.name: check for check in probes.check_fast_paths([python, "-W", "ignore", "-c", "\n".join(lines)])}
    for name, why in (("key aliases", aliases), ("direct mode", direct)):
        assert checks[name].status == ("bad" if why else "ok"), checks[name]
        assert why in checks[name].found
