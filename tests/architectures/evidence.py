"""Write ``docs/evidence/models.md``: ``python -m tests.architectures.evidence``, or ``make models``.

Each architecture is compiled in one process and loaded from the cache in another. Each result is saved at once: the
same command goes on where an earlier one ended. After a change of trtcache or torch everything
runs again, unless ``--keep``.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.metadata
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import trtcache
from tests.architectures.catalogue import GROUPS, group_of, names_of
from tests.architectures.page import DOCUMENT, markdown
from trtcache.digests import hash_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
STATE = ROOT / ".models" / "results.jsonl"
LIBRARIES = ROOT / ".venv" / "model-libraries" / "site-packages"  # where installed code is looked for
DIED = "the process"

Row = dict[str, Any]
Attempt = Callable[[str, "Servers", Path, float], Row]
"""Tries an architecture in two processes with a cache, each step within some seconds, and returns its row."""

Summary = Callable[[Row], str]
"""Returns a row in a few words."""

FIRST_STEPS = frozenset({"first", "record"})


class Servers:
    """The two processes in which a group's steps run; their hash seeds differ."""

    def __init__(self, group: str, cache: Path, log: Path, libraries: Path) -> None:
        self.group, self._cache, self._log = group, cache, log
        self._libraries = libraries
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def ask(self, step: str, request: Row) -> Row:
        """Run a step and return its row; start the process if it does not run."""
        process = self._processes.get(step)
        if process is None or process.poll() is not None:
            process = self._processes[step] = self._start("1" if step in FIRST_STEPS else "2")
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"step": step, **request}) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        row: Row = json.loads(answer) if answer else {"died": f"{self.group}: its libraries cannot be imported"}
        return row

    def close(self) -> None:
        """End both processes."""
        for process in self._processes.values():
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                stream.close()
            process.wait()
        self._processes.clear()

    def _start(self, hash_seed: str) -> subprocess.Popen[str]:
        paths = [str(ROOT), str(ROOT / "cli"), str(ROOT / "migrations"), str(self._libraries)]
        paths += filter(None, [os.environ.get("PYTHONPATH")])
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("TRTCACHE_", "COVERAGE_"))}
        environ |= {
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join(paths),
            "LD_LIBRARY_PATH": str(self._libraries.parent / "stubs"),
            "OMP_NUM_THREADS": "1",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # its pool of processes does not survive a fork
            "HF_HUB_OFFLINE": "1",
            "CUDA_VISIBLE_DEVICES": "",
        }
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "tests.architectures.server", self.group, str(self._cache)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environ,
                cwd=ROOT,
            )


def try_architecture(name: str, servers: Servers, cache: Path, timeout_s: float) -> Row:
    """Return the row of an architecture: its compile, and what a second process found."""
    request = {"name": name, "cache": str(cache), "timeout_s": timeout_s}
    row = servers.ask("first", request)
    if "died" in row:
        row = {"outcome": "failed", "by": DIED, "why": row["died"]}
    elif row["outcome"] != "failed":
        second = servers.ask("second", {**request, "is_dynamic": row["is_dynamic"]})
        row |= {"hit_off": f"no: {second['died']}"} if "died" in second else second
    return {**row, "library_version": _version(name)}


def run(names: Sequence[str], arguments: argparse.Namespace, versions: Row, attempt: Attempt, summary: Summary) -> None:
    """Try architectures, several at a time, until all have a row or the time is over."""
    tasks: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in names:
        tasks.put(name)
    ends = time.monotonic() + 60 * arguments.minutes
    lock = threading.Lock()
    arguments.state.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="trtcache-models-") as folder, arguments.state.open("a") as state:
        cache = Path(folder) / "cache"

        def work() -> None:
            servers: Servers | None = None
            while time.monotonic() < ends:
                try:
                    name = tasks.get_nowait()
                except queue.Empty:
                    break
                if servers is None or servers.group != group_of(name):
                    if servers is not None:
                        servers.close()
                    log = arguments.state.with_suffix(".log")
                    servers = Servers(group_of(name), cache, log, arguments.libraries)
                start = time.perf_counter()
                row = {"name": name, **attempt(name, servers, cache, arguments.timeout)}
                row |= versions | {"total_s": time.perf_counter() - start}
                with lock:
                    _append(state, row)
                    left = tasks.qsize()
                    sys.stderr.write(f"{name}: {summary(row)}, {row['total_s']:.0f} s; {left} left\n")
            if servers is not None:
                servers.close()

        workers = [threading.Thread(target=work) for _ in range(arguments.jobs)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


def _append(state: IO[str], row: Row) -> None:
    state.write(json.dumps(row) + "\n")
    state.flush()


def _summary(row: Row) -> str:
    if row["outcome"] == "failed":
        return f"failed by {row['by']}: {row['why']}"
    parts = {"hit": row.get("hit_off"), "direct": row.get("direct"), "dynamic": row["dynamic"], "refit": row["refit"]}
    return f"{row['outcome']}, " + ", ".join(f"{name} {value}" for name, value in parts.items())


def all_rows(state: Path) -> list[Row]:
    """Return the rows of a file of results, the oldest first; none if there is no file."""
    return [json.loads(line) for line in state.read_text().splitlines()] if state.exists() else []


def read_rows(state: Path, versions: Row | None) -> dict[str, Row]:
    """Return the latest row of each architecture; with ``versions``, only rows of those."""
    rows = all_rows(state)
    known = [row for row in rows if versions is None or all(row.get(name) == versions[name] for name in _COMPARED)]
    return {row["name"]: row for row in known}


_COMPARED = ("torch", "trtcache_code")


def current_versions() -> Row:
    """Return what results depend on: torch, and trtcache's code."""
    files = sorted(Path(trtcache.__file__).parent.rglob("*.py"))
    code = hash_bytes(b"".join(file.read_bytes() for file in files))
    return {"torch": importlib.metadata.version("torch"), "trtcache_code": code.hex()[:12], "cores": os.cpu_count()}


def _version(name: str) -> str:
    library = name.partition("/")[0]
    found = importlib.metadata.packages_distributions().get(library)
    return importlib.metadata.version(found[0]) if found else ""


def parse(argv: Sequence[str] | None, *, state: Path = STATE, page: Path = DOCUMENT) -> argparse.Namespace:
    """Return the command's options; the files of results and of the page are the default ones of a command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1, help="architectures at a time")
    parser.add_argument("--minutes", type=float, default=600.0, help="start none after this time")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for each step of an architecture")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="those of this name, as timm/*")
    parser.add_argument("--again", action="store_true", help="run those again that have results")
    parser.add_argument("--keep", action="store_true", help="keep results of another trtcache or torch")
    parser.add_argument("--page-only", action="store_true", help="run none, write the page")
    parser.add_argument("--state", type=Path, default=state, help="the file of results")
    parser.add_argument("--page", type=Path, default=page, help="the file of the page")
    parser.add_argument("--libraries", type=Path, default=LIBRARIES, help="where make models installed the libraries")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None, *, names: Sequence[str] | None = None) -> None:
    """Try all architectures that have no result, and write the page."""
    arguments = parse(argv)
    sys.path.append(str(arguments.libraries))
    listed = [name for group in GROUPS for name in names_of(group)] if names is None else list(names)
    versions = current_versions()
    known = read_rows(arguments.state, None if arguments.keep else versions)
    chosen = [name for name in listed if fnmatch.fnmatch(name, arguments.only)]
    known = {name: row for name, row in known.items() if row.get("by") != DIED}  # too slow, perhaps on a busy machine
    if not arguments.page_only:
        left = [name for name in chosen if arguments.again or name not in known]
        run(left, arguments, versions, try_architecture, _summary)
    rows = read_rows(arguments.state, None if arguments.keep or arguments.page_only else versions)
    arguments.page.write_text(markdown(listed, rows))


if __name__ == "__main__":
    main()
