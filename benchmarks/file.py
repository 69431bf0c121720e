"""From a program's file to its first output: by a key alias, by lowering, and with torch's loader.

Every figure is from a new process; the ways take turns, so that a slower minute of the machine is everybody's.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from benchmarks.report import Promise, median, promised, seconds, span, table
from benchmarks.timing import Samples, child, gathered

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.effort import Effort
    from benchmarks.report import Figures

PROCESS = "benchmarks.file_process"
WAYS = ("alias", "program", "torch")


def measure(folder: Path, effort: Effort) -> Samples:
    """Return the seconds of each way, as ``way.part_s``."""
    shared = {"TRTCACHE_DIR": str(folder / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    child(PROCESS, "save", str(folder), environment=shared)
    child(PROCESS, "alias", str(folder), environment=shared)
    figures = []
    for turn in effort.turns():
        for way in WAYS:
            sys.stderr.write(f"  round {turn + 1}: {way}\n")
            taken = child(PROCESS, way, str(folder), environment=shared | {"TRTCACHE_FORBID_BUILD": "1"})
            figures.append({f"{way}.{name}": value for name, value in taken.items()})
    return gathered(figures) | {"file_bytes": [float((folder / "model.pt2").stat().st_size)]}


FILE_WAYS = {
    "alias": "`trtcache.compile(path)`, a file that has not changed",
    "program": "`torch.export.load`, then `trtcache.compile(program)`: a hit",
    "torch": "`torch.export.load`, then eager",
}

FILE_PARTS = {
    "file_s": "file: open, map, digest of the program",
    "alias_s": "key alias: find, read, verify",
    "fetch_s": "fetch: find, read, verify",
    "load_s": "load, weights put in",
    "rest_s": "everything else in `compile`",
    "first_s": "first output",
}

_FILE = """\
## From a program's file to its first output

MiniLM in a `.pt2` file of {megabytes} MB that the system has read before. New processes which took turns, with
builds forbidden; torch and trtcache are imported before the clock runs.
"""


def section(figures: Figures) -> str:
    """Return what the page says of it."""
    total_s = median(figures, "alias.total_s")
    ways = [(label, span(figures[f"{way}.total_s"])) for way, label in FILE_WAYS.items()]
    parts = [(label, span(figures[f"alias.{part}"])) for part, label in FILE_PARTS.items()]
    by_alias = all(figures["alias.is_alias_count"]["values"])
    kept = [
        Promise("a file to its first output, by a key alias", seconds(total_s), "at most 60 ms", total_s <= 0.060),
        Promise("neither exported nor lowered", "every time" if by_alias else "not always", "every time", by_alias),
    ]
    return "\n".join(
        [
            _FILE.format(megabytes=round(median(figures, "file_bytes") / 1e6)),
            table(("way", "to the first output"), ways),
            "Time of a hit by a key alias:\n",
            table(("part", "time"), parts),
            promised(*kept),
        ]
    )
