"""A quick ``python`` for tests: each process is a fork of one that has imported torch, and nothing of this project.

To start Python, to import torch and what ``torch.export`` imports, and to tear it down again takes four CPU seconds; a
fork takes none of them. ``python`` is a program with Python's own command line, so that ``subprocess`` starts it as it
does Python. It sends its arguments, environment, folder and files to a server, waits for the process that the server
forks, and ends as that one ends; if it is killed, that one is killed.

It runs the real Python instead for all that a fork cannot give: other options than ``-c``, ``-m`` and ``-W``, another
value of a variable that Python or torch reads when it starts, a ``sitecustomize``, and coverage. Modules ask for more
variables while they are imported: a server notes which, and refuses a fork to those who have other values. Tests of
what is imported, and of how a process starts, ends or takes signals, start the real Python themselves. There are two
servers with different hash seeds: processes that do not name one of them have either.

With ``QUICK_CHILDREN`` in its environment, ``python -m`` is the real Python, whose own children are quick: for programs
that do little but start others.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

SEEDS = ("1", "2")
_READ_AT_START = (
    *("PYTHON", "TORCH_", "PYTORCH_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "ATEN_", "NPY_", "CUDA_"),
    *("LD_", "LC_", "LANG", "TZ", "MALLOC_", "GLIBC_", "COVERAGE_"),
)
_NOT_COMPARED = ("PYTHONPATH", "PYTHONHASHSEED", "PYTHONWARNINGS")
_ASKED_AGAIN = (
    *("TORCHINDUCTOR_CACHE_DIR", "HOME", "TMPDIR", "TEMP", "TMP", "LOGNAME", "USER", "LNAME", "USERNAME"),
    "TORCHINDUCTOR_COMPILE_THREADS",
)
"""What modules ask for while they are imported, and again each time that they need it, or that a process starts."""
CHILDREN = "QUICK_CHILDREN"
_PARENT = "import runpy, sys; sys.executable = {!r}; runpy._run_module_as_main({!r})"
_FORKED = b"+"
_CPU = "cpu_s"  # the file with a line for each process that has ended


def start(folder: Path) -> list[subprocess.Popen[bytes]]:
    """Start the servers, and write ``python`` into the folder; they end when their standard input does."""
    folder.mkdir(parents=True)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("TRTCACHE_", "COVERAGE_"))}
    for name in ("PYTHONPATH", "PYTHONWARNINGS"):
        environ.pop(name, None)
    (folder / "environ").write_text(json.dumps(_read_at_start(environ)), encoding="utf-8")
    (folder / _CPU).touch()
    servers = []
    for seed in SEEDS:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(_address(folder, seed))
            listener.listen(64)
            command = [sys.executable, __file__, str(listener.fileno()), str(folder)]
            seeded = {**environ, "PYTHONHASHSEED": seed, "OPENBLAS_NUM_THREADS": "1"}  # it has threads from the start
            servers.append(subprocess.Popen(command, env=seeded, stdin=subprocess.PIPE, pass_fds=(listener.fileno(),)))
    program = folder / "python"
    text = Path(__file__).read_text(encoding="utf-8")
    program.write_text(f"#!{sys.executable} -IS\n{text}", encoding="utf-8")
    program.chmod(0o755)
    return servers


def cpu_s(folder: Path) -> float:
    """Return the CPU seconds of all processes that have ended."""
    return sum(map(float, (folder / _CPU).read_text(encoding="utf-8").split()))


def _read_at_start(environ: dict[str, str]) -> dict[str, str]:
    names = {name for name in environ if name.startswith(_READ_AT_START)}
    return {name: environ[name] for name in sorted(names.difference(_NOT_COMPARED))}


def _address(folder: Path, seed: str) -> str:
    return f"\0{folder}/{seed}"  # not of a file, whose path may be too long


def client(arguments: list[str]) -> int:
    """Run Python in a fork of a server, or in place of this process; return the exit code."""
    folder, real = Path(__file__).parent, sys.executable
    if os.environ.pop(CHILDREN, "") and (parsed := _parsed(arguments)) is not None and parsed[1][0] == "-m":
        warned = [word for value in parsed[0] for word in ("-W", value)]
        parent = _PARENT.format(__file__, parsed[1][1])
        os.execv(real, [real, *warned, "-c", parent, *parsed[1][2:]])  # noqa: S606  # Python
    seed = os.environ.get("PYTHONHASHSEED") or SEEDS[os.getpid() % 2]
    known = json.loads((folder / "environ").read_text(encoding="utf-8"))
    places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    is_customized = any(os.path.exists(os.path.join(place, "sitecustomize.py")) for place in places)  # noqa: PTH110, PTH118
    if (
        seed not in SEEDS
        or _read_at_start(dict(os.environ)) != known
        or is_customized
        or (parsed := _parsed(arguments)) is None
    ):
        os.execv(real, [real, *arguments])  # noqa: S606  # Python
    warned, program = parsed
    warned = [*filter(None, os.environ.get("PYTHONWARNINGS", "").split(",")), *warned]
    request: dict[str, Any] = {
        "arguments": arguments,
        "warned": warned,
        "program": program,
        "environ": dict(os.environ),
    }
    request |= {"cwd": os.getcwd(), "umask": _umask()}  # noqa: PTH109
    content = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(_address(folder, seed))
        socket.send_fds(server, [len(content).to_bytes(8, "big")], [0, 1, 2])
        server.sendall(content)
        if server.recv(1) != _FORKED:
            os.execv(real, [real, *arguments])  # noqa: S606  # Python
        for descriptor in (0, 1, 2):
            os.close(descriptor)  # or the end of the process would not be the end of its output
        answer = server.recv(64)
    code = int(answer) if answer else 125
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    return code


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _parsed(arguments: list[str]) -> tuple[list[str], list[str]] | None:
    """Return the values of ``-W`` and the rest, or None for what only Python itself can do."""
    warned, rest = [], list(arguments)
    while rest[:1] == ["-W"]:
        warned.append(rest[1])
        rest = rest[2:]
    is_option = len(rest) > 1 and rest[0] in ("-c", "-m")
    return (warned, rest) if is_option or (rest and rest[0].endswith(".py")) else None


def _import_for_forks() -> dict[str, str | None]:
    """Import what forks begin with; return the variables that the modules ask for, with their values."""
    import torch  # its own variables are those of _READ_AT_START

    asked: dict[str, str | None] = {}
    kind: Any = type(os.environ)
    look_up, contains = kind.get, kind.__contains__

    def get(environ: Any, name: str, default: Any = None) -> Any:
        asked.setdefault(name, look_up(environ, name))
        return look_up(environ, name, default)

    def contains_(environ: Any, name: str) -> bool:
        asked.setdefault(name, look_up(environ, name))
        return bool(contains(environ, name))

    kind.get, kind.__contains__ = get, contains_
    try:
        import torch._dynamo
        import torch._functorch.aot_autograd  # noqa: F401  # with torch._dynamo, what torch.export.export imports
    finally:
        del kind.get  # the one that it inherits
        kind.__contains__ = contains
    return {name: value for name, value in asked.items() if name not in _ASKED_AGAIN}


def serve(listener: socket.socket, folder: Path) -> None:
    """Fork a process for each request until the standard input ends."""
    import gc
    import select

    read = _import_for_forks()
    import numpy as np

    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208
    assert threads == 1, f"{threads} threads would not be in a fork"
    del sys.path[0]  # the folder of this file
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.collect()
    gc.freeze()  # or each fork copies the memory of all objects when it collects garbage
    while True:
        readable = select.select([listener, sys.stdin], [], [])[0]
        if sys.stdin in readable:
            return
        connection = listener.accept()[0]
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            head, files, _, _ = socket.recv_fds(connection, 8, 3)
            with connection.makefile("rb") as content:
                request = json.loads(content.read(int.from_bytes(head, "big")))
            if any(request["environ"].get(name) != value for name, value in read.items()):
                os._exit(0)
            connection.sendall(_FORKED)
            if child := os.fork():
                _wait(child, connection, files, folder)
            connection.close()
            np.random.seed()  # as in a process of its own; random does it by itself
            _become(request, files)
        connection.close()


def _wait(child: int, connection: socket.socket, files: list[int], folder: Path) -> None:
    """Wait for a child, and send how it ended; or kill it when the one who waits for that is gone."""
    import select

    for file in (0, 1, 2, *files):
        os.close(file)
    ended = os.pidfd_open(child)
    if ended not in select.select([ended, connection.fileno()], [], [])[0]:
        os.kill(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    with (folder / _CPU).open("a", encoding="utf-8") as log:
        log.write(f"{used.ru_utime + used.ru_stime:.3f}\n")
    try:
        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    finally:
        os._exit(0)


def _become(request: dict[str, Any], files: list[int]) -> None:
    """Do in a fork what Python does when it starts, run the program, and do what Python does when it ends."""
    import atexit
    import importlib
    import threading

    code, end = 1, (threading._shutdown, atexit._run_exitfuncs)  # type: ignore[attr-defined]
    try:
        for standard, file in enumerate(files):
            os.dup2(file, standard)
            os.close(file)
        _set_up(request, files)
        importlib.invalidate_caches()
        code = _run(request["program"])
    finally:
        for last in end:
            last()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):  # nobody reads any more
                code = code or 120
        os._exit(code)


def _set_up(request: dict[str, Any], files: list[int]) -> None:
    import tempfile
    import warnings

    for name, file, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        errors = "backslashreplace" if name == "stderr" else "strict"
        buffering = 1 if name == "stderr" or os.isatty(file) else -1
        stream = open(file, mode, buffering, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.environ.clear()
    os.environ.update(request["environ"])
    os.umask(request["umask"])
    os.chdir(request["cwd"])
    tempfile.tempdir = None  # TMPDIR may be another
    sys.warnoptions += request["warned"]
    warnings._processoptions(request["warned"])  # type: ignore[attr-defined]  # as Python does
    inductor: Any = sys.modules["torch._inductor.config"]
    inductor.compile_threads = inductor.decide_compile_threads()
    rest = request["program"]
    sys.orig_argv = [sys.executable, *request["arguments"]]
    first = {"-c": "", "-m": request["cwd"]}.get(rest[0], os.path.dirname(os.path.realpath(rest[0])))  # noqa: PTH120
    places = [os.path.abspath(place) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]  # noqa: PTH100
    sys.path[:0] = [first, *places]
    sys.argv = [rest[0], *rest[2:]] if rest[0] in ("-c", "-m") else rest


def _run(rest: list[str]) -> int:
    """Run a program as ``__main__``; return the exit code."""
    import builtins
    import runpy
    import types

    main = sys.modules["__main__"] = types.ModuleType("__main__")
    vars(main)["__builtins__"] = builtins
    try:
        if rest[0] == "-m":
            runpy._run_module_as_main(rest[1])  # type: ignore[attr-defined]  # as Python does
        elif rest[0] == "-c":
            exec(compile(rest[1], "<string>", "exec", dont_inherit=True), main.__dict__)  # noqa: S102  # the test's
        else:
            main.__file__ = rest[0]
            exec(compile(Path(rest[0]).read_bytes(), rest[0], "exec", dont_inherit=True), main.__dict__)  # noqa: S102
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException as error:  # noqa: BLE001  # Python prints whatever it is
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # without this file's frame
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


if __name__ == "__main__":
    if Path(__file__).suffix:
        serve(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2]))
    else:
        sys.exit(client(sys.argv[1:]))
