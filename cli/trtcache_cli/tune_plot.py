"""Plot of ``trtcache tune``: latency and throughput over threads, a line for each number of runners."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from trtcache.runtime.tuning import Cell


_SHOWN = 4
"""Latency limit of the plot in medians; on a busy machine the 95th percentile can be 400 times the median."""


def draw(cells: Sequence[Cell], path: Path, *, title: str, form: str) -> None:
    """Write the plot to a file, in a format of matplotlib such as ``png``."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 3.8), layout="constrained", dpi=120)
    left, right = figure.subplots(1, 2)
    measured = [cell for cell in cells if not cell.skipped]
    for runners in sorted({cell.runners for cell in measured}):
        line = sorted((cell for cell in measured if cell.runners == runners), key=lambda cell: cell.threads)
        threads, label = [cell.threads for cell in line], f"{runners} runner{'s' if runners > 1 else ''}"
        median_ms = [cell.median_s * 1e3 for cell in line]
        above_ms = [(cell.p95_s - cell.median_s) * 1e3 for cell in line]
        left.errorbar(threads, median_ms, yerr=([0] * len(line), above_ms), marker="o", capsize=3, label=label)
        right.plot(threads, [cell.calls_per_s for cell in line], marker="o", label=label)
    longest_ms = max(min(cell.p95_s, _SHOWN * cell.median_s) for cell in measured) * 1e3
    left.set_ylim(top=longest_ms * 1.05)
    _finish(left, measured, "latency (ms): median, and bar to p95")
    _finish(right, measured, "throughput (calls/s)")
    figure.suptitle(title, parse_math=False)  # a file name may have dollars in it
    figure.savefig(path, format=form)


def _finish(axes: Axes, cells: Sequence[Cell], quantity: str) -> None:
    threads = sorted({cell.threads for cell in cells})
    axes.set(xlabel="intra-op threads of a call", ylabel=quantity, xticks=threads)
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
