"""The quick ``python`` of tests does what Python does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.python_server import SEEDS

CASES = {
    "output": ("import sys; print(sys.argv, sys.path[0]); print('error', file=sys.stderr)", "a", "b"),
    "input": ("print(input())",),
    "a number": ("raise SystemExit(300)",),
    "a message": ("raise SystemExit('why')",),
    "an error": ("def f():\n    1 / 0\n\n\nf()",),
    "a signal": ("import os\nos.kill(os.getpid(), 9)",),
    "at exit": ("import atexit, threading, time\natexit.register(print, 'last')\n"
                "threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()",),
    "environment": ("import os, tempfile; print(os.environ['MORE'], tempfile.gettempdir(), os.getcwd(), os.umask(0))",),
    "warnings": ("import warnings, sys; warnings.warn('x', DeprecationWarning); print(sys.warnoptions)",),
    "main": ("import sys; print(sys.modules['__main__'].__dict__ is globals(), __name__, __spec__)",),
}  # fmt: skip


def answer(python: str, *arguments: str, **environ: str) -> tuple[int, str, str]:
    """Return how a process ends, and what it prints."""
    more = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), **environ}
    done = subprocess.run(
        [python, *arguments], input="typed\n", env=more, cwd="/", capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr.replace("^", "").replace("~", "")


@pytest.mark.parametrize("name", CASES)
def test_it_does_what_python_does(python: str, tmp_path: Path, name: str) -> None:
    """Its output, its errors and its end are the same."""
    arguments = ("-W", "default", "-c", *CASES[name])
    environ = {"MORE": "more", "TMPDIR": str(tmp_path)}
    assert answer(python, *arguments, **environ) == answer(sys.executable, *arguments, **environ)


def test_variables_for_a_process_are_read(python: str) -> None:
    """Filters of warnings come before those of ``-W``, and Inductor has the threads that are named."""
    code = "import sys; from torch._inductor import config; print(sys.warnoptions, config.compile_threads)"
    environ = {"PYTHONWARNINGS": "default,ignore::UserWarning", "TORCHINDUCTOR_COMPILE_THREADS": "3"}
    found = answer(python, "-W", "error", "-c", code, **environ)
    assert found == answer(sys.executable, "-W", "error", "-c", code, **environ)
    assert found[1] == "['default', 'ignore::UserWarning', 'error'] 3\n"


def test_modules_and_files_are_run(python: str, tmp_path: Path) -> None:
    """As Python runs them, with the same arguments and first place of modules."""
    code = "import sys; print(__name__, __file__, sys.argv, sys.path[:2], getattr(__spec__, 'name', ''))"
    (tmp_path / "program.py").write_text(code)
    for arguments in (["-m", "program", "x"], [str(tmp_path / "program.py"), "y"]):
        found = answer(python, *arguments, PYTHONPATH=str(tmp_path))
        assert found == answer(sys.executable, *arguments, PYTHONPATH=str(tmp_path))
        assert found[0] == 0


def test_children_are_quick_where_that_is_asked_for(python: str, tmp_path: Path) -> None:
    """A module is run by Python itself, whose ``sys.executable`` is the quick one; its children have Python's."""
    (tmp_path / "parent.py").write_text("""
import os, subprocess, sys
print("torch" in sys.modules, __name__, sys.argv[1:], sys.path[0], "QUICK_CHILDREN" in os.environ, flush=True)
subprocess.run([sys.executable, "-c", "import sys; print('torch' in sys.modules, sys.executable)"], check=True)
""")
    done = subprocess.run(
        [python, "-W", "ignore", "-m", "parent", "x"],
        cwd=tmp_path,
        env={**os.environ, "QUICK_CHILDREN": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    own = "False __main__ ['x']  False"
    assert (done.stdout.splitlines(), done.stderr) == ([own, f"True {sys.executable}"], "")


def test_it_begins_with_torch_and_without_the_project(python: str) -> None:
    """Neither it nor what builds import is there; another option or variable is Python's own business."""
    names = ("torch", "torch._dynamo", "trtcache", "torch._inductor.compile_fx")
    code = f"import sys; print(*(name in sys.modules for name in {names}))"
    assert answer(python, "-c", code)[1] == "True True False False\n"
    for arguments, environ in (
        (("-B",), {}),
        ((), {"TORCH_LOGS": ""}),
        ((), {"SYMPY_DEBUG": "False"}),
        ((), {"CXX": "g++"}),
    ):
        assert answer(python, *arguments, "-c", code, **environ)[1] == "False False False False\n"


def test_hash_seeds_are_those_asked_for(python: str) -> None:
    """Two seeds have a server each, and any other is a process of Python's own."""
    code = "print(hash('a'))"
    for seed in (*SEEDS, "3"):
        asked = {"PYTHONHASHSEED": seed}
        assert answer(python, "-c", code, **asked) == answer(sys.executable, "-c", code, **asked)


def test_it_does_not_outlive_who_waits_for_it(python: str) -> None:
    """The process is killed with the program."""
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    with subprocess.Popen([python, "-c", code], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        program.kill()
        assert program.stdout.read() == ""  # closed with the process
    assert program.returncode == -signal.SIGKILL
    assert not Path(f"/proc/{pid}/cwd").exists()
