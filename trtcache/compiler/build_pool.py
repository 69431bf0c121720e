"""Pool of build processes, which start when they are needed and end with the pool.

A build process reads paths of folders from standard input, one per line, and answers each with a line of JSON. A
folder contains the members of a program and a description of the request. The worker rebuilds the program from them
and computes its key. It builds the engine only if the key equals that of the requesting process.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from trtcache.backends.protocol import Artifact, make_members
from trtcache.digests import CacheKey
from trtcache.errors import BuildError, TrtcacheError
from trtcache.frontends.request import Request, TorchRequest
from trtcache.keys.key import EXAMPLE_SIZES

log = logging.getLogger(__name__)

MEMBERS = "members"
REQUEST = "request.json"


def main() -> None:
    """Answer until there is no more input."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # keep builders' output out of the answers
    for line in sys.stdin:
        answers.write(json.dumps(_answer(Path(line.rstrip("\n")))) + "\n")
        answers.flush()


def _answer(folder: Path) -> dict[str, Any]:
    try:
        return _build(folder)
    except BuildError as error:
        return {"error": error.why}
    except (TrtcacheError, ValueError) as error:  # possibly only in this worker: the requesting process tries itself
        return {"mismatch": str(error)}


def _build(folder: Path) -> dict[str, Any]:
    import torch

    from trtcache.backends import registry
    from trtcache.backends.registry import build_artifact
    from trtcache.compiler.stored_program import rebuild_program
    from trtcache.frontends.request import make_request
    from trtcache.settings import Settings
    from trtcache.target import Target

    request = json.loads((folder / REQUEST).read_text())
    members = {path.name: path.read_bytes() for path in (folder / MEMBERS).iterdir()}
    device = torch.device(request["device"])
    if device.type == "cuda":
        torch.cuda.set_device(device)
    program = rebuild_program(
        members, name=request["name"], pipeline=request["pipeline"], hints=request["hints"], device=device
    )
    settings = Settings.of(request["settings"])
    target = Target(**{**request["target"], "instruction_sets": tuple(request["target"]["instruction_sets"])})
    backend = registry.find(request["backend"], device.type)
    engine_request = make_request(program, backend, settings, target)
    if request["example_sizes"]:
        engine_request = engine_request.with_example_sizes(request["example_sizes"])
    if getattr(engine_request.key, "digest", engine_request.key) != request["key"]:
        raise ValueError(f"its key is {engine_request.key} here")
    artifact = build_artifact(backend, program, settings, target, folder)
    for name, content in artifact.members.items():
        (folder / name).write_bytes(content)
    return {"engine": str(artifact.engine), "members": sorted(artifact.members), "steps": dict(artifact.steps)}


class Pool:
    """Build processes, one for each concurrent build, each with its share of the cores.

    If a process dies or cannot rebuild the same program, this process builds instead.
    """

    def __init__(self, threads: int) -> None:
        """Create an empty pool, whose processes will have this many threads each."""
        self._threads = str(threads)
        self._idle: list[subprocess.Popen[str]] = []
        self._all: list[subprocess.Popen[str]] = []
        self._lock = threading.Lock()
        self._ended = False

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()
        for process in self._all:
            process.communicate()

    def end(self) -> None:
        """Kill the processes."""
        with self._lock:  # a process that is being started is killed too
            self._ended = True
            for process in self._all:
                process.kill()

    def build(self, request: Request, folder: Path) -> Artifact | None:
        """Build a request in another process, or return None if only this process can.

        Raises:
            BuildError: the builder failed, or the pool was ended.
        """
        if not _write(request, folder):
            return None
        process = self._take_process(request.backend.name)
        answer = _send(process, folder)
        if answer is None and (self._ended or process.wait() == -signal.SIGINT):  # Ctrl-C reaches all processes at once
            raise BuildError(request.backend.name, "it was interrupted")
        if answer is None:
            log.warning(
                "the process that built %s ended unexpectedly; building it in this process", request.program.name
            )
            return None
        with self._lock:
            self._idle.append(process)
        if "error" in answer:
            raise BuildError(request.backend.name, str(answer["error"]))
        if "mismatch" in answer:
            why = answer["mismatch"]
            log.info("building %s in this process: another process cannot rebuild it: %s", request.program.name, why)
            return None
        members = {name: (folder / name).read_bytes() for name in answer["members"]}
        return Artifact(Path(answer["engine"]), members, answer["steps"])

    def _take_process(self, backend: str) -> subprocess.Popen[str]:
        with self._lock:
            if self._ended:
                raise BuildError(backend, "it was interrupted")
            if self._idle:
                return self._idle.pop()
            shares = {"OMP_NUM_THREADS": self._threads, "TORCHINDUCTOR_COMPILE_THREADS": self._threads}
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "trtcache.compiler.build_pool"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **shares, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                text=True,
            )
            self._all.append(process)
            return process


def _send(process: subprocess.Popen[str], folder: Path) -> dict[str, Any] | None:
    assert process.stdin is not None  # noqa: S101  # both are pipes
    assert process.stdout is not None  # noqa: S101
    try:
        process.stdin.write(f"{folder}\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except OSError:
        return None
    return dict(json.loads(line)) if line.endswith("\n") else None


def _write(request: Request, folder: Path) -> bool:
    """Write a request for another process into a folder, and return whether it could be written."""
    program, key = request.program, request.key
    if not isinstance(key, CacheKey) or not isinstance(request, TorchRequest):
        return False
    parts = key.parts
    members = make_members(program, request.records, Path())
    (folder / MEMBERS).mkdir(parents=True)
    for name, content in members.items():
        if isinstance(content, bytes):
            (folder / MEMBERS / name).write_bytes(content)
    document = {
        "backend": request.backend.name,
        "device": str(program.device),
        "hints": [program.example_sizes.get(number) for number in range(len(program.symbols.order))],
        "key": key.digest,
        "example_sizes": parts.get(EXAMPLE_SIZES),
        "name": program.name,
        "pipeline": list(program.pipeline),
        "settings": request.settings.explicit,
        "target": request.target.document(),
    }
    try:
        (folder / REQUEST).write_text(json.dumps(document))
    except TypeError:
        return False
    return True


if __name__ == "__main__":
    main()
