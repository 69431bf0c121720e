"""Run cells of ``trtcache warm`` in processes of ``trtcache build``, several at a time, and report them as they end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from trtcache.config.units import format_duration
from trtcache_cli.output import note, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from trtcache_cli.matrix import Cell

BUILT: Final = "built"
HIT: Final = "hit"
FAILED: Final = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a cell.

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
        """Return a line for people."""
        why = f": {printable(self.why)}" if self.why else ""
        return f"{self.cell.number} {printable(str(self.cell))}: {self.outcome}, {format_duration(self.seconds)}{why}"


class Processes:
    """The builds that run now; they are ended when this process is interrupted."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, cell: Cell, cache_dir: Path | None) -> Outcome:
        """Build a cell and return its outcome."""
        command = [sys.executable, "-m", "trtcache_cli", "build", "--json", *cache_option(cache_dir), *cell.arguments]
        begin_s = time.monotonic()
        with self._lock:
            if self._stopped:
                return Outcome(cell, FAILED, "interrupted")
            process = subprocess.Popen(  # noqa: S603  # ourselves, without a shell
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            self._running.add(process)
        out, err = process.communicate()
        with self._lock:
            self._running.discard(process)
        return outcome_of(cell, process.returncode, out, err, time.monotonic() - begin_s)

    def stop(self) -> None:
        """Interrupt all builds, and start no more."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.send_signal(signal.SIGINT)


def outcome_of(cell: Cell, code: int, out: str, err: str, seconds: float) -> Outcome:
    """Return the outcome of ``trtcache build --json`` from what it printed."""
    if code:
        lines = [line for line in err.splitlines() if line.strip()]
        why = lines[-1].removeprefix("trtcache: error: ") if lines else f"the process ended with {code}"
        return Outcome(cell, FAILED, why, seconds=seconds)
    document = json.loads(out.splitlines()[-1])
    engines = document.get("engines", [document])
    built = any(engine["outcome"] == BUILT for engine in engines)
    keys = tuple(engine["key"] for engine in engines if engine["key"])
    return Outcome(cell, BUILT if built else HIT, keys=keys, seconds=seconds)


def run_cells(cells: Sequence[Cell], jobs: int, cache_dir: Path | None) -> list[Outcome]:
    """Build cells here, ``jobs`` at a time, with progress on standard error.

    Raises:
        KeyboardInterrupt: Ctrl-C; the builds that ran are ended.
    """
    processes, outcomes = Processes(), []
    with ThreadPoolExecutor(jobs) as pool, _progress(len(cells)) as show:
        futures = [pool.submit(processes.run, cell, cache_dir) for cell in cells]
        try:
            for future in as_completed(futures):
                outcomes.append(future.result())
                show(outcomes[-1])
        except BaseException:
            processes.stop()
            pool.shutdown(cancel_futures=True)
            raise
    return sorted(outcomes, key=lambda outcome: outcome.cell.number)


def cache_option(cache_dir: Path | None) -> list[str]:
    """Return the option that names the cache directory, if one was given."""
    return [] if cache_dir is None else ["--cache-dir", str(cache_dir)]


@contextmanager
def _progress(total: int) -> Iterator[Callable[[Outcome], None]]:
    """Show a bar with what ends above it on a terminal, or print a line for each cell otherwise."""
    if not sys.stderr.isatty():
        yield lambda outcome: note(f"cell {outcome}")
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    console = Console(stderr=True, highlight=False)
    with Progress(
        "warming", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console, transient=True
    ) as progress:
        task = progress.add_task("", total=total)

        def show(outcome: Outcome) -> None:
            console.print(f"cell {outcome}", markup=False)
            progress.advance(task)

        yield show
