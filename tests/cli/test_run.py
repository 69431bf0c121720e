"""``trtcache run``: the program behaves as without it, except for torch_tensorrt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import trtcache_cli.run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Result

_TELLS = """
import os, sys
print(__name__, __file__, sys.argv, sys.path, sys.orig_argv[1:], sys.flags, type(__spec__))
print(sorted(name for name in os.environ if not name.startswith(("PYTHONPATH", "TRTCACHE_RUN", "LC_"))))
print("torch" in sys.modules, os.getpid() == int(os.environ.get("TRTCACHE_RUN", os.getpid())))
"""

_HAS_HOOK = "import sys; print(any(type(one).__name__ == 'Installation' for one in sys.meta_path))"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a script and a package."""
    work = tmp_path / "work"
    (work / "package").mkdir(parents=True)
    (work / "tool").write_text("#!/bin/sh\n")
    (work / "command").write_text("#!/bin/sh\n")
    (work / "command").chmod(0o700)
    (work / "serve.py").write_text(_TELLS)
    (work / "package" / "__init__.py").touch()
    (work / "package" / "__main__.py").write_text(_TELLS)
    monkeypatch.chdir(work)
    return work


@pytest.mark.parametrize(
    "line",
    [
        ["serve.py"],
        ["serve.py", "-m", "--", "-h", "--cache-dir", "x"],
        ["./serve.py", ""],
        ["package"],
        ["-m", "package", "-x"],
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("folder")
def test_a_program_sees_what_python_shows_it(program: Callable[..., Result], line: list[str]) -> None:
    """Arguments, module, paths, flags and environment are those of ``python`` with the same line."""
    plain = subprocess.run([sys.executable, *line], capture_output=True, text=True, check=True, env=dict(os.environ))
    done = program("run", *line)
    assert done.out == plain.stdout
    assert (done.code, done.err) == (0, "trtcache: torch_tensorrt was not imported\n")


@pytest.mark.parametrize("code", [0, 7, 130])
def test_the_exit_code_is_the_program_s(program: Callable[..., Result], folder: Path, code: int) -> None:
    """Also one that trtcache uses itself."""
    (folder / "leave.py").write_text(f"raise SystemExit({code})")
    assert program("run", "leave.py").code == code


def test_an_exception_is_told_as_python_tells_it(program: Callable[..., Result], folder: Path) -> None:
    """The traceback has no line of trtcache."""
    (folder / "fail.py").write_text("def f():\n    return 1 / 0\nf()\n")
    done = program("run", "fail.py")
    assert done.code == 1
    assert "ZeroDivisionError" in done.err
    assert "trtcache_cli" not in done.err
    assert "runpy" not in done.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_signals_reach_the_program(folder: Path, number: signal.Signals) -> None:
    """The process that was started is the program, and dies of the signal as it would."""
    (folder / "wait.py").write_text(
        "import signal, time\n"
        "signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-m", "trtcache_cli", "run", "wait.py"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(number)
        assert child.wait() == -number


def test_standard_input_is_a_program(folder: Path) -> None:
    """With a hyphen, as Python takes it."""
    command = [sys.executable, "-m", "trtcache_cli", "run", "-", "a"]
    done = subprocess.run(command, input="import sys; print(sys.argv)", capture_output=True, text=True, check=True)
    assert done.stdout == "['-', 'a']\n"


def test_a_command_is_run_as_it_is(program: Callable[..., Result], folder: Path) -> None:
    """A command from PATH has the environment, and so has the Python that it starts."""
    (folder / "bin").mkdir()
    tool = folder / "bin" / "tool"
    tool.write_text(f'#!/bin/sh\necho "$1"\nexec {sys.executable} -c "$2"\n')
    tool.chmod(0o755)
    done = program("run", "tool", "--x", _HAS_HOOK, PATH=f"{folder / 'bin'}:{os.environ['PATH']}")
    assert done.out == "--x\nTrue\n"
    assert done.err == "trtcache: torch_tensorrt was not imported\n"


def test_programs_that_it_starts_use_the_cache_too(program: Callable[..., Result], folder: Path) -> None:
    """A child process has the hook, prints nothing if it did nothing, and can opt out."""
    (folder / "start.py").write_text(
        "import subprocess, sys\n"
        f"code = {_HAS_HOOK!r}\n"
        "for flags in ([], ['-E'], ['-I']):\n"
        "    print(subprocess.run([sys.executable, *flags, '-c', code], capture_output=True, text=True).stdout)\n"
    )
    done = program("run", "start.py")
    assert done.out.split() == ["True", "False", "False"]
    assert done.err == "trtcache: torch_tensorrt was not imported\n"


def test_processes_of_multiprocessing_find_the_main_module(program: Callable[..., Result], folder: Path) -> None:
    """A spawned worker imports the script again, as without trtcache."""
    (folder / "pool.py").write_text(
        "import multiprocessing\n"
        "def double(x):\n    return 2 * x\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(double, [1, 2]))\n"
    )
    done = program("run", "pool.py")
    assert (done.code, done.out) == (0, "[2, 4]\n")


def test_one_s_own_sitecustomize_runs(program: Callable[..., Result], folder: Path) -> None:
    """What PYTHONPATH had comes after, and its sitecustomize is not hidden."""
    (folder / "mine").mkdir()
    (folder / "mine" / "sitecustomize.py").write_text("import builtins; builtins.mine = 'here'")
    (folder / "ask.py").write_text("import sitecustomize; print(mine, sitecustomize.__file__)")
    done = program("run", "ask.py", PYTHONPATH=str(folder / "mine"))
    assert done.out == f"here {folder}/mine/sitecustomize.py\n"


def test_a_python_without_trtcache_runs_as_ever(program: Callable[..., Result], folder: Path) -> None:
    """Another interpreter that the program starts is not disturbed."""
    bare = folder / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    done = program("run", str(bare / "bin" / "python"), "-c", f"{_HAS_HOOK}; print(6 * 7)")
    assert (done.code, done.out, done.err) == (0, "False\n42\n", "")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["nothing-of-this-name"], "neither a file nor a command"),
        (["."], "'.' is a directory without __main__.py"),
        (["tool"], "'tool' is a script for another program, and not executable"),
        (["command"], "'command' is not on PATH; write ./command"),
        (["--cache-dr", "x", "serve.py"], "--cache-dir"),
        (["--port", "8000", "serve.py"], "run has no option --port, and options of the program come after it"),
        ([], "PROGRAM"),
        (["--cache-dir", __file__, "serve.py"], "is a file"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_wrong_usage_is_told_before_anything_runs(run: Callable[..., Result], line: list[str], says: str) -> None:
    """One line, exit code 2."""
    done = run("run", *line)
    assert (done.code, done.out) == (2, "")
    assert says in done.err


@pytest.mark.usefixtures("folder")
def test_an_impossible_setting_is_told_before_anything_runs(program: Callable[..., Result]) -> None:
    """The program is not started under a setting that would be ignored."""
    done = program("run", "serve.py", TRTCACHE_MAX_SIZE="plenty")
    assert (done.code, done.out) == (2, "")
    assert "TRTCACHE_MAX_SIZE" in done.err


def test_the_cache_directory_is_handed_on(tmp_path: Path) -> None:
    """``--cache-dir`` reaches the program as an absolute path, and what PYTHONPATH had stays behind ours."""
    environ = trtcache_cli.run.environment({"PYTHONPATH": "/a::/b", "TRTCACHE_DIR": "/old"}, tmp_path)
    assert environ["TRTCACHE_DIR"] == str(tmp_path)
    assert environ["PYTHONPATH"].split(os.pathsep)[1:] == ["/a", "", "/b"]  # the current directory
    assert trtcache_cli.run.environment({"PYTHONPATH": ""}, None)["PYTHONPATH"].count(os.pathsep) == 0
    assert trtcache_cli.run.environment(environ, None)["PYTHONPATH"] == environ["PYTHONPATH"]
    assert environ["TRTCACHE_RUN"] == str(os.getpid())
