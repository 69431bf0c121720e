"""Memory and seconds of writing a program with a large engine to a file, and of loading it, in three ways."""

from __future__ import annotations

import sys
import tempfile
from typing import TYPE_CHECKING

from benchmarks.report import Promise, median, promised, table
from benchmarks.timing import Samples, child, gathered

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.effort import Effort
    from benchmarks.report import Figures

WAYS = {"embed": 1 << 30, "sidecar": 3 << 30, "reference": 1 << 30}
"""How an engine travels -> how large it is."""

MOST_EMBED = 2.5
MOST_SIDECAR_BYTES = 64 << 20
MOST_REFERENCE_BYTES = 1 << 20


def measure(folder: Path, effort: Effort) -> Samples:
    """Return the memory of both steps beyond mapped files, the sizes of the files, and the seconds."""
    figures = []
    for turn in effort.turns():
        for way, size_bytes in WAYS.items():
            sys.stderr.write(f"  round {turn + 1}: {way}\n")
            with tempfile.TemporaryDirectory(dir=folder) as place:
                exported = child("benchmarks.export_process", "export", way, place, str(size_bytes))
                loaded = child("benchmarks.export_process", "load", way, place, str(size_bytes))
            figures.append({f"{way}.{name}": value for name, value in (exported | loaded).items()})
    return gathered(figures)


def section(figures: Figures) -> str:
    """Return what the page says of it."""
    names = ("export.extra_bytes", "load.extra_bytes", "export_s", "load_s", "file_bytes")
    found = {way: {name: median(figures, f"{way}.{name}") for name in names} for way in WAYS}
    most = {way: max(one["export.extra_bytes"], one["load.extra_bytes"]) for way, one in found.items()}
    embed = most["embed"] / WAYS["embed"]
    sidecar_bytes, file_bytes = most["sidecar"], found["reference"]["file_bytes"]
    promises = promised(
        Promise(
            "an engine of 1 GiB in the file: the most memory beyond it, of writing and of loading",
            f"{embed:.2f} times its size",
            f"at most {MOST_EMBED} times",
            embed <= MOST_EMBED,
        ),
        Promise(
            "one of 3 GiB beside the file: the most beyond what is mapped",
            f"{sidecar_bytes / 1e6:.0f} MB",
            f"at most {MOST_SIDECAR_BYTES >> 20} MiB",
            sidecar_bytes <= MOST_SIDECAR_BYTES,
        ),
        Promise(
            "the file of a program that only refers to its engine",
            f"{file_bytes / 1e3:.0f} kB",
            "under 1 MB",
            file_bytes < MOST_REFERENCE_BYTES,
        ),
    )
    rows = [
        (
            way,
            f"{WAYS[way] >> 30} GiB",
            f"{one['export.extra_bytes'] / 1e6:.0f} MB, {one['export_s']:.1f} s",
            f"{one['load.extra_bytes'] / 1e6:.0f} MB, {one['load_s']:.1f} s",
        )
        for way, one in found.items()
    ]
    text = (
        "A program of one engine of random bytes, whose backend keeps the bytes that it is given: anonymous memory "
        "beyond what there was before, without mapped files. TensorRT's own memory for a plan comes on top of it.\n"
    )
    return "\n".join(
        ["## Programs that carry their engines\n", text, promises, table(("engines", "size", "export", "load"), rows)]
    )
