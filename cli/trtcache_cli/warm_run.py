"""Run cells of ``trtcache warm`` in processes of ``trtcache build``, several at a time, and report them as they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trtcache.config.environment import VARIABLES, merge_settings
from trtcache.config.frozen import frozen_dataclass
from trtcache.config.remotes import PARAMETERS, VARIABLE, RemoteUrl
from trtcache.config.units import format_duration
from trtcache_cli.output import printable
from trtcache_cli.termination import GRACE_S, open_input, raise_terminated
from trtcache_cli.warm_job import Ended, build_command
from trtcache_cli.warm_progress import Board

if TYPE_CHECKING:
    from trtcache_cli.matrix import Cell

BUILT: Final = "built"
HIT: Final = "hit"
FAILED: Final = "failed"


@frozen_dataclass
class Outcome:
    """The outcome of a cell.

    Attributes:
        cell: the cell.
        outcome: ``built``, ``hit`` or ``failed``.
        why: the error, for a cell that failed.
        keys: the keys of its engines.
        seconds: how long it took.
    """

    cell: Cell
    outcome: str
    why: str = ""
    keys: tuple[str, ...] = ()
    seconds: float = 0.0

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        rest = {"outcome": self.outcome, "why": self.why or None, "keys": list(self.keys), "seconds": self.seconds}
        return {**self.cell.document(), **rest}

    def __str__(self) -> str:
        """Return it as a line of text."""
        why = f": {printable(self.why)}" if self.why else ""
        return f"{self.cell.number} {printable(str(self.cell))}: {self.outcome}, {format_duration(self.seconds)}{why}"


class Processes:
    """The running builds, which are interrupted with this process."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = {**os.environ, **(environ or {})}
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, cell: Cell, arguments: Sequence[str], board: Board) -> Outcome:
        """Build a cell and return its outcome."""
        command = build_command(arguments)
        begin_s = time.monotonic()
        with self._lock:
            if self._stopped:
                return Outcome(cell, FAILED, "interrupted")
            process = subprocess.Popen(  # noqa: S603  # ourselves, without a shell
                command,
                stdin=open_input(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=self._environ,
            )
            self._running.add(process)
        board.set_state(cell, "running")
        out, err = process.communicate()
        with self._lock:
            self._running.discard(process)
        return outcome_of(cell, (process.returncode, out, err, time.monotonic() - begin_s))

    def stop(self) -> None:
        """Interrupt all builds, kill those that do not end, and start no more."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for process in running:
            process.send_signal(signal.SIGINT)
        ends_s = time.monotonic() + GRACE_S
        for process in running:
            try:
                process.wait(max(0.0, ends_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()


def outcome_of(cell: Cell, ended: Ended) -> Outcome:
    """Return the outcome of ``trtcache build --json`` from what it printed."""
    code, out, err, seconds = ended
    if code:
        killed = f"the process was killed by signal {-code}" if code < 0 else ""
        said = last_line(err).removeprefix("trtcache: error: ")
        why = ": ".join(filter(None, (killed, said))) or f"the process ended with {code}"
        return Outcome(cell, FAILED, why, seconds=seconds)
    document = _last_document(out)
    if document is None:
        return Outcome(cell, FAILED, "the process printed no result", seconds=seconds)
    if why := why_nothing_stored(document, last_warning(err)):
        return Outcome(cell, FAILED, why, seconds=seconds)
    engines = document.get("engines", [document])
    built = any(engine["outcome"] == BUILT for engine in engines)
    keys = tuple(engine["key"] for engine in engines if engine["key"])
    return Outcome(cell, BUILT if built else HIT, keys=keys, seconds=seconds)


def why_nothing_stored(document: Mapping[str, Any], warning: str) -> str:
    """Return why a build without an error has left nothing in the cache, or an empty string.

    Args:
        document: what ``trtcache build --json`` prints.
        warning: why an engine was not stored.
    """
    engines = document.get("engines", [document])
    if not engines or any(engine["outcome"] not in (BUILT, HIT) for engine in engines):
        return "nothing to store: it runs in torch"
    if any(engine["outcome"] == BUILT and not engine["path"] for engine in engines):
        return f"built, and not stored: {warning}"
    return ""


def _last_document(out: str) -> dict[str, Any] | None:
    """Return the last line that is the result of a build; a library may print others, also at exit."""
    for line in reversed(out.splitlines()):
        with suppress(ValueError):
            document = json.loads(line)
            if isinstance(document, dict) and ("engines" in document or "outcome" in document):
                return document
    return None


def last_warning(text: str) -> str:
    """Return the last warning in a log, which says why an entry was not stored."""
    start = "trtcache: WARNING: "
    warnings = [line.removeprefix(start) for line in text.splitlines() if line.startswith(start)]
    return warnings[-1] if warnings else "the cache is disabled or read-only"


def last_line(text: str) -> str:
    """Return the last line of a log that is not empty."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def run_cells(cells: Sequence[Cell], jobs: int, *, cache_dir: Path | None, environ: Mapping[str, str]) -> list[Outcome]:
    """Build cells here, ``jobs`` at a time, with progress on standard error.

    Raises:
        KeyboardInterrupt: Ctrl-C, or a signal that ends this process; the builds that ran are ended.
    """
    processes, outcomes, futures = Processes(environ), [], []
    with raise_terminated(), ThreadPoolExecutor(jobs) as pool, Board(len(cells)) as board:
        try:
            for cell in cells:
                board.set_state(cell, "")
                futures.append(pool.submit(processes.run, cell, build_arguments(cell, cache_dir), board))
            for future in as_completed(futures):
                outcomes.append(future.result())
                board.end(outcomes[-1])
        except BaseException:
            processes.stop()
            pool.shutdown(cancel_futures=True)
            raise
    return outcomes


def build_arguments(cell: Cell, cache_dir: Path | None) -> list[str]:
    """Return the arguments of ``trtcache build`` for a cell, with the cache directory, if one was given."""
    return [*([] if cache_dir is None else ["--cache-dir", str(cache_dir.absolute())]), *cell.arguments]


def effective_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of trtcache for a process on another host: those of the settings file here, too.

    Claims are on for the remote that is written to, unless its URL has ``claims=0``: of hosts that miss an entry, one
    builds it.
    """
    settings = {name: text for name, text in merge_settings(environ).items() if name in VARIABLES}
    if {"TRTCACHE_DIR", "TRTCACHE_PATH"} <= settings.keys():  # both at once are an error; the environment wins
        del settings["TRTCACHE_DIR" if environ.get("TRTCACHE_PATH") else "TRTCACHE_PATH"]
    return settings | claiming_environ(environ)


def claiming_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return ``TRTCACHE_REMOTE`` with claims for the remote that is written to; nothing if there is none."""
    urls = merge_settings(environ).get(VARIABLE, "").split()
    for index, text in enumerate(urls):
        url = RemoteUrl.parse(text)
        if url.writable:
            if "claims" in PARAMETERS[url.scheme] and "claims=" not in text.partition("?")[2]:
                urls[index] = f"{text}&claims=1"
            return {VARIABLE: " ".join(urls)}
    return {}
