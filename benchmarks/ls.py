"""``trtcache ls`` and ``trtcache report`` of 10,000 entries as whole processes, ``ls`` in each form by default."""

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
from trtcache.target import resolve_target

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.effort import Effort
    from benchmarks.report import Figures

ENTRIES = 10_000
EVENTS = 20_000
PROGRAM = [sys.executable, "-m", "trtcache_cli"]
COMMAND = [*PROGRAM, "ls"]


def measure(folder: Path, effort: Effort) -> Samples:
    """Return the seconds of each form, of reports, and of the first listing after the index was lost."""
    root, page = folder / "crowd", folder / "report.html"
    _fill(root)
    environment = {"TRTCACHE_DIR": str(root)}
    process_s(COMMAND, environment)
    samples: Samples = {
        "pipe_s": [process_s(COMMAND, environment) for _ in range(effort.rounds)],
        "json_s": [process_s([*COMMAND, "--json"], environment) for _ in range(effort.rounds)],
        "terminal_s": [_terminal_s(COMMAND, environment) for _ in range(effort.rounds)],
        "terminal_all_s": [_terminal_s([*COMMAND, "--limit", "0"], environment) for _ in range(effort.rounds)],
    }
    report = [*PROGRAM, "report", "--html", str(page)]
    first_s = process_s(report, environment)  # it adds the events to the index
    samples |= {
        "report_first_s": [first_s],
        "report_s": [process_s(report, environment) for _ in range(effort.rounds)],
        "report_bytes": [float(page.stat().st_size)],
    }
    (root / "index.sqlite").unlink()
    return samples | {"index_lost_s": [process_s(COMMAND, environment)]}


def _fill(root: Path) -> None:
    store = DiskStore.open(root)
    target = resolve_target("x86-64", device="cpu").document()
    for number in range(ENTRIES):
        key = CacheKey.of("benchmark", {"number": number, "target": target})
        contents = {"artifact": number.to_bytes(8)}
        name = f"model-{number % 50}/block.{number}"
        store.put(key, contents, kind="benchmark", name=name, build_s=float(number % 300), provenance={})
    rebuild(store)
    for number in range(EVENTS):
        event, reason = ("miss", "absent") if number % 4 == 0 else ("hit", "")
        store.events.append(event, reason=reason, kind="benchmark", saved_s=1.0, key=f"{number:064x}")


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
        "report_s": "`trtcache report --html`",
        "report_first_s": "`trtcache report --html`, after 20,000 events",
    }
    rows = [(label, span(figures[name])) for name, label in labels.items() if name in figures]
    worst_s = max(median(figures, name) for name in ("terminal_s", "terminal_all_s", "pipe_s", "json_s"))
    promise = Promise("the slowest default form", seconds(worst_s), "under 0.6 s", worst_s < 0.6)
    return "\n".join(
        [
            "## `trtcache ls` and `trtcache report` of 10,000 entries\n",
            table(("form", "whole process"), rows),
            promised(promise, *_report_promises(figures)),
        ]
    )


def _report_promises(figures: Figures) -> list[Promise]:
    """Return what is promised of reports; figures of before they were measured have none."""
    if "report_s" not in figures:
        return []
    worst_s = max(median(figures, "report_s"), median(figures, "report_first_s"))
    kb = median(figures, "report_bytes") / 1e3
    return [
        Promise("`report --html`, with 20,000 events", seconds(worst_s), "under 2 s", worst_s < 2),
        Promise("its page", f"{kb:.0f} kB", "under 2 MB", kb < 2000),
    ]
