"""``trtcache ls`` of 10,000 entries as a whole process, in each form that it has by default."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from benchmarks.report import Promise, median, promised, seconds, span, table
from benchmarks.timing import Samples, clean_environment, process_s, timed
from trtcache.digests import CacheKey
from trtcache.store.catalog import rebuild
from trtcache.store.disk import DiskStore

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.effort import Effort
    from benchmarks.report import Figures

ENTRIES = 10_000
COMMAND = [sys.executable, "-m", "trtcache_cli", "ls"]


def measure(folder: Path, effort: Effort) -> Samples:
    """Return the seconds of each form, and of the first listing after the index was lost."""
    root = folder / "crowd"
    _fill(root)
    environment = {"TRTCACHE_DIR": str(root)}
    process_s(COMMAND, environment)
    samples: Samples = {
        "pipe_s": [process_s(COMMAND, environment) for _ in range(effort.rounds)],
        "json_s": [process_s([*COMMAND, "--json"], environment) for _ in range(effort.rounds)],
        "terminal_s": [_terminal_s(COMMAND, environment) for _ in range(effort.rounds)],
        "terminal_all_s": [_terminal_s([*COMMAND, "--limit", "0"], environment) for _ in range(effort.rounds)],
    }
    (root / "index.sqlite").unlink()
    return samples | {"index_lost_s": [process_s(COMMAND, environment)]}


def _fill(root: Path) -> None:
    store = DiskStore.open(root)
    for number in range(ENTRIES):
        key = CacheKey.of("benchmark", {"number": number})
        contents = {"artifact": number.to_bytes(8)}
        name = f"model-{number % 50}/block.{number}"
        store.put(key, contents, kind="benchmark", name=name, build_s=float(number % 300), provenance={})
    rebuild(store)


def _terminal_s(command: list[str], environment: dict[str, str]) -> float:
    """Return the seconds of a process whose output is a terminal, with somebody who reads it."""
    reader, terminal = pty.openpty()
    thread = threading.Thread(target=_drain, args=(reader,))
    thread.start()
    try:
        whole = clean_environment(environment)
        return timed(lambda: subprocess.run(command, env=whole, stdout=terminal, stderr=terminal, check=True))[1]
    finally:
        os.close(terminal)
        thread.join()
        os.close(reader)


def _drain(reader: int) -> None:
    try:
        while os.read(reader, 1 << 16):
            pass
    except OSError:  # Linux answers EIO once the other end is closed
        return


def section(figures: Figures) -> str:
    """Return what the page says of it."""
    labels = {
        "terminal_s": "on a terminal: the first 200",
        "terminal_all_s": "on a terminal, `--limit 0`: all",
        "pipe_s": "in a pipe: all",
        "json_s": "`--json`: all",
        "index_lost_s": "in a pipe, after `rm index.sqlite`",
    }
    rows = [(label, span(figures[name])) for name, label in labels.items()]
    worst_s = max(median(figures, name) for name in labels if name != "index_lost_s")
    promise = Promise("the slowest default form", seconds(worst_s), "under 0.6 s", worst_s < 0.6)
    return "\n".join(
        ["## `trtcache ls` of 10,000 entries\n", table(("form", "whole process"), rows), promised(promise)]
    )
