"""Worker of background builds: a supervisor that removes all temporary files, and the process that builds.

``python -m trtcache.compiler.background_worker supervise PARENT DETACH`` prints the path of a new folder, in which all
temporary files are. When the parent has written its request there and sends a line, the supervisor starts the builder,
prints the builder's process id, and after the builder has ended prints the answer as JSON. It kills the builder with
all processes of its group, compilers included, when the parent has ended (unless detached) or when it is terminated. It
removes the folder, unless it is killed itself.

``python -m trtcache.compiler.background_worker build FOLDER`` builds what ``request.json`` describes, and
puts it into the cache that the environment configures. If its supervisor is killed, it ends with its group.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trtcache.frontends.source import Source
    from trtcache.runtime import Report

REQUEST, ANSWER, PROGRAM = "request.json", "answer.json", "program.pt2"

NICENESS = 10
_POLL_S = 0.2


def supervise(parent: int, *, is_detached: bool) -> None:
    """Run the builder to its end, or kill it when the parent has ended; then remove the folder."""

    def stop(*_: object) -> None:
        raise SystemExit(1)

    signal.signal(signal.SIGTERM, stop)
    os.nice(NICENESS)
    builder, answer = None, {"error": "the worker was stopped"}
    folder = Path(tempfile.mkdtemp(prefix="trtcache-background-"))
    try:
        _print_line(folder)
        # The parent writes the request. If a process that it has forked holds the pipe open, there is no end of file
        # when the parent ends: its id is checked, too.
        while not select.select([sys.stdin], [], [], _POLL_S)[0]:
            if os.getppid() != parent:
                return
        if not sys.stdin.readline():
            return
        try:
            builder = _start_builder(folder)
        except OSError as error:
            answer = {"error": f"the worker cannot be started: {error}"}
            return
        _print_line(builder.pid)
        while builder.poll() is None:
            if not is_detached and os.getppid() != parent:
                return
            time.sleep(_POLL_S)
        try:
            answer = json.loads((folder / ANSWER).read_text())
        except (OSError, ValueError):
            code = builder.returncode
            answer = {"error": f"the worker was killed by signal {-code}" if code < 0 else f"the worker exited: {code}"}
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not keep the folder
        kill_and_remove(folder, builder.pid if builder is not None else None)
        _print_line(json.dumps(answer))


def _start_builder(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603  # this module
        [sys.executable, "-W", "ignore", "-m", "trtcache.compiler.background_worker", "build", str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(folder)},
        process_group=0,
    )


def kill_and_remove(folder: Path, builder: int | None) -> None:
    """Kill the builder with its group, and remove the folder."""
    if builder is not None:
        with suppress(ProcessLookupError, PermissionError):  # it has ended
            os.killpg(builder, signal.SIGKILL)
    for _ in range(50):  # a killed process may still be writing
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.02)


def _print_line(what: object) -> None:
    try:
        sys.stdout.write(f"{what}\n")
        sys.stdout.flush()
    except OSError:  # a detached build whose parent has ended
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123  # or the exit would fail to flush


def build(folder: Path) -> None:
    """Build what the folder's request describes, and write the answer; end when the supervisor does."""
    threading.Thread(target=_exit_with_supervisor, args=(os.getppid(),), daemon=True).start()
    start = time.monotonic()
    try:
        parts = _build(folder).partitions
        built = {part.key.digest: [part.reason, part.why] for part in parts if part.key and part.outcome == "built"}
        answer: dict[str, Any] = {"built_s": time.monotonic() - start, "built": built}
        if missing := [part.unstored or part.reason for part in parts if part.path is None]:
            answer = {"error": f"its engine could not be stored: {missing[0]}"}
    except Exception as error:  # noqa: BLE001  # the parent reports it: what this process prints is discarded
        answer = {"error": str(error) or type(error).__name__}
    temporary = folder / f".{ANSWER}"
    temporary.write_text(json.dumps(answer))
    temporary.replace(folder / ANSWER)


def _exit_with_supervisor(supervisor: int) -> None:
    while os.getppid() == supervisor:
        time.sleep(_POLL_S)
    os.killpg(0, signal.SIGKILL)


def _build(folder: Path) -> Report:
    from trtcache.cache import Cache
    from trtcache.compiler.compile import build_source
    from trtcache.compiler.program_file import keep, set_flags
    from trtcache.frontends.source import CompileOptions
    from trtcache.settings import Settings

    request = json.loads((folder / REQUEST).read_text())
    set_flags(request["flags"])
    cache = Cache.from_environ()
    options = CompileOptions(
        request["backend"], Settings.of(request["settings"]), request["target"], request["is_subgraph"]
    )
    with open_source(folder, request) as source:
        report = build_source(source, options, cache)
        if request["keep_program"]:
            keep(cache, report, source.program, options)
    return report


def open_source(folder: Path, request: dict[str, Any]) -> Source:
    """Return the source of a request: a program's file, or the program that the parent has sent.

    If the parent sent only the layouts of the weights, the weights are zeros.
    """
    from trtcache.compiler.program_file import read_program, zeros_with_layouts
    from trtcache.frontends.exported import ExportedSource
    from trtcache.frontends.resolve import resolve

    if request["file"]:
        return resolve(request["file"], name=request["name"])
    program = read_program(folder / PROGRAM, request["structures"])
    # torch.export.load sets ``meta["val"]`` of the output node, which torch.export.export does not. Without it the
    # digest is that of the program in the parent. If torch reads anything else than it has written, the alias stored
    # here is never found.
    program.graph.output_node().meta.pop("val", None)
    if request["layouts"] is not None:
        program._state_dict = zeros_with_layouts(request["layouts"])
    return ExportedSource(program, request["name"], export_s=request["export_s"], device_type=request["device_type"])


if __name__ == "__main__":
    if sys.argv[1] == "supervise":
        supervise(int(sys.argv[2]), is_detached=sys.argv[3] == "1")
    else:
        build(Path(sys.argv[2]))
