"""What every test has: an environment of its own, one cache of engines for the session, and processes."""

from __future__ import annotations

import gc
import importlib.util
import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from hypothesis import settings

from tests import compile_once, python_server
from tests.effort import TORTURE, memory, samples
from tests.quicker_torch import quicker_torch as quicker_torch
from trtcache.store.disk import DiskStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# The same examples in every run, so that a red run is a change's own; HYPOTHESIS_PROFILE=explore draws new ones.
settings.register_profile("stable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "stable"))

# A run in the background of a shell inherits that Ctrl-C is ignored, and so would the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Where pytest makes its temporary folders.
if not TORTURE and (_in_memory := memory()) is not None:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_in_memory))

_PROJECT = Path(__file__).parent.parent
_WITHOUT_TORCH = importlib.util.find_spec("torch") is None  # make test-base: the store, the commands and get_or_build


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Hide the caller's ``TRTCACHE_*`` and ``TORCHINDUCTOR_*`` variables and the user's own cache."""
    for name in list(os.environ):
        if name.startswith(("TRTCACHE_", "TORCHINDUCTOR_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TRTCACHE_DIRECT", "off")  # to record each export takes time; tests/direct say what they want
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path_factory.getbasetemp() / name.lower()))


@pytest.fixture(scope="session", autouse=True)
def _compile_once(objects: Path) -> None:
    """Let this process and those that it starts compile equal C++ sources once, with precompiled headers soon."""
    if _WITHOUT_TORCH or shutil.which("g++") is None:
        return
    from trtcache.backends.aot_inductor import compilation

    compilation._builds = compilation._MANY_BUILDS  # many follow
    compile_once.install(objects)
    os.environ["PATH"] = f"{objects}{os.pathsep}{os.environ['PATH']}"


def environ_untraced() -> dict[str, str]:
    """Return the environment for a process that coverage does not follow: a build in it takes half as long."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}


def _of_session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache directory for the whole session, shared by all its workers: each distinct program is built once."""
    return _of_session(tmp_path_factory) / "engines" / "cache"


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of ``compile_once``, likewise."""
    return _of_session(tmp_path_factory) / compile_once.NAME


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Pause the garbage collector while everything is imported, none of which is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest: a worker that is left with one at the end is waited for."""
    slow = {item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("torture")}
    items.sort(key=lambda item: item.path not in slow)


_forks: list[Path] = []
"""The folder of the fixture ``python``, which counts the CPU seconds of its processes; empty until a test uses it."""


def _cpu_s() -> float:
    """Return the CPU seconds of this process, of the processes that it has waited for, and of the quick ones."""
    own = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own + sum(map(python_server.cpu_s, _forks))


_cpu_s_until = _cpu_s()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Note the CPU seconds since the last test ended."""
    global _cpu_s_until
    report = yield
    if call.when == "teardown":
        last, _cpu_s_until = _cpu_s_until, _cpu_s()
        report.user_properties.append(("cpu_s", _cpu_s_until - last))
    return report


def _tell_cpu_seconds(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the files that took the most CPU seconds, their processes included: those are what a run of tests costs."""
    spent: Counter[str] = Counter()
    for report in [one for reports in terminalreporter.stats.values() for one in reports]:
        if getattr(report, "when", "") == "teardown":
            spent[report.nodeid.partition("::")[0]] += dict(report.user_properties).get("cpu_s", 0.0)
    if len(spent) > 1:
        terminalreporter.section(f"CPU seconds of the tests: {spent.total():.0f}, and most of them")
        for path, seconds in spent.most_common(30):
            terminalreporter.line(f"{seconds:7.1f} {path}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell what the tests took, name those that tried a sample, and tell how many C++ sources were equal."""
    _tell_cpu_seconds(terminalreporter)
    base = terminalreporter.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # pytest's
    compiled, copied = compile_once.count(base / compile_once.NAME)
    if compiled:
        terminalreporter.section("C++ sources")
        terminalreporter.line(f"{compiled} were compiled, and {copied} were equal to one of them")
    passed = {report.nodeid.partition("::")[0] for report in terminalreporter.stats.get("passed", [])}
    found = {path: samples(_PROJECT / path) for path in sorted(passed) if (_PROJECT / path).exists()}
    if TORTURE or not any(found.values()):
        return
    terminalreporter.section("a sample was tried: tries(in make test, in make torture)")
    for path, calls in found.items():
        if calls:
            terminalreporter.line(f"{path}: {', '.join(calls)}")


@pytest.fixture(scope="session")
def build_count() -> Callable[[Path], int]:
    """Say how often something was built and put into the cache in a directory."""

    def count(root: Path) -> int:
        return sum(event.event == "put" for event in DiskStore.open(root).events.read())

    return count


class RunPython(Protocol):
    """Runs code in a new Python process and returns it when it has ended."""

    def __call__(self, code: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run ``code`` with these variables beside the test's own environment."""
        ...


class StartPython(Protocol):
    """Starts code in a new Python process."""

    def __call__(self, code: str, **environ: str) -> subprocess.Popen[str]:
        """Start ``code`` with these variables beside the test's own environment."""
        ...


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give a program that does what Python does, without the seconds that it takes to start and to import torch."""
    if _WITHOUT_TORCH or not hasattr(os, "pidfd_open"):
        yield sys.executable  # there are no quick processes
        return
    folder = tmp_path_factory.mktemp("python") / "quick"
    servers = python_server.start(folder)
    _forks.append(folder)
    yield str(folder / "python")
    for server in servers:
        server.communicate()


def _start(python: str, code: str, environ: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python, "-W", "ignore", "-c", textwrap.dedent(code)],
        cwd=_PROJECT,
        env={**environ_untraced(), "PYTHONPATH": str(_PROJECT), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _ended(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    out, err = process.communicate(timeout=1800)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture
def start_python(python: str) -> StartPython:
    """Start code in a new process that has imported torch, with the project and its tests importable."""
    return lambda code, **environ: _start(python, code, environ)


@pytest.fixture
def quick_children(python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process start quick processes wherever it starts ``sys.executable``."""
    monkeypatch.setattr(sys, "executable", python)


@pytest.fixture
def quick_grandchildren(quick_children: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process start real ones wherever it starts ``sys.executable -m``, and let these start quick ones."""
    monkeypatch.setenv(python_server.CHILDREN, "1")


@pytest.fixture
def run_python(start_python: StartPython) -> RunPython:
    """Run code in a new process that has imported torch, to its end."""
    return lambda code, **environ: _ended(start_python(code, **environ))


@pytest.fixture
def start_fresh_python() -> StartPython:
    """Start code in a process that has imported nothing: to test what it imports, and how Ctrl-C ends it."""
    return lambda code, **environ: _start(sys.executable, code, environ)


@pytest.fixture
def run_fresh_python() -> RunPython:
    """Run code in a process that has imported nothing, to its end: to test what it imports."""
    return lambda code, **environ: _ended(_start(sys.executable, code, environ))


@pytest.fixture
def compiled(interpreter: str, tmp_path: Path) -> Callable[..., Any]:
    """``trtcache.compile`` with the interpreter and a cache of this test's own, unless others are given."""
    import trtcache

    def compile_(*args: Any, **kwargs: Any) -> trtcache.CompiledModule:
        return trtcache.compile(*args, **{"backend": interpreter, "cache": tmp_path / "cache", **kwargs})

    return compile_


@pytest.fixture(scope="session")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Install the interpreter as another distribution would, by an entry point, and return its name."""
    from trtcache.config import backend_settings

    site = tmp_path_factory.mktemp("site")
    (site / "interpreter-1.0.dist-info").mkdir()
    (site / "interpreter-1.0.dist-info" / "METADATA").write_text("Name: interpreter\nVersion: 1.0\n")
    (site / "interpreter-1.0.dist-info" / "entry_points.txt").write_text(
        "[trtcache.backends]\ninterpreter = trtcache.testing.interpreter:Interpreter\n"
        "freezer = tests.backends.freezer:Freezer\n"
        "portable = tests.backends.portable:Portable\n"
    )
    sys.path.append(str(site))
    backend_settings.backend_table.cache_clear()
    return "interpreter"


@pytest.fixture
def own_threads_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let threads that other tests have left run nothing of the user's: an export restores less beside such threads."""
    from trtcache.lowering import threads

    left, can_run = set(threading.enumerate()), threads._can_run_users_code
    monkeypatch.setattr(threads, "_can_run_users_code", lambda thread: thread not in left and can_run(thread))
