"""The plots of the page: seconds to the first output, a bar for each way, and a hit split into its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import start
from benchmarks.model import PARTS, WAYS

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from benchmarks.report import Document, Figures

_CAPTURE = ("export_s", "decompose_s")
_OWN_COLOUR, _CAPTURE_COLOUR, _OTHER_COLOUR = "#76b900", "#c9d6b0", "#8a8f98"


def draw(document: Document, folder: Path) -> None:
    """Write the plots, the same bytes for the same figures."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "trtcache", "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot

    subjects = document["subjects"]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9.5, 3.0), layout="constrained")
    _ways(left, subjects["model"])
    _parts(right, subjects["model"])
    figure.savefig(folder / "benchmarks.svg", metadata={"Date": None})
    pyplot.close(figure)
    figure, panels = pyplot.subplots(1, len(start.MODELS), figsize=(12, 3.2), layout="constrained", sharey=True)
    for panel, name in zip(panels, start.MODELS, strict=True):
        _start(panel, name, subjects["start"])
    figure.savefig(folder / "benchmarks-start.svg", metadata={"Date": None})
    pyplot.close(figure)


def _start(axes: Axes, name: str, figures: Figures) -> None:
    """Draw one model's ways; scales are its own."""
    ways = list(reversed(start.WAYS))
    found = [figures[f"{name}.{way}.call_s"]["median"] for way in ways]
    colours = [_OWN_COLOUR if way in {"cold", "slow", "direct", "file"} else _OTHER_COLOUR for way in ways]
    bars = axes.barh([start.WAYS[way].replace("`", "") for way in ways], found, color=colours)
    axes.bar_label(bars, [f"{value:.3g}" for value in found], padding=3)
    axes.set(xscale="log", xlim=(min(found) / 2, max(found) * 12), title=start.MODELS[name])


def _ways(axes: Axes, figures: Figures) -> None:
    """Draw the ways on a logarithmic scale: they differ by a thousand."""
    names = list(reversed(WAYS))
    seconds = [figures[f"{name}.total_s"]["median"] for name in names]
    colours = [_OWN_COLOUR if name in {"cold", "hit"} else _OTHER_COLOUR for name in names]
    bars = axes.barh([WAYS[name].replace("`", "") for name in names], seconds, color=colours)
    axes.bar_label(bars, [f"{value:.3g} s" for value in seconds], padding=3)
    axes.set(xscale="log", xlim=(min(seconds) / 2, max(seconds) * 5), title="Seconds to the first output")


def _parts(axes: Axes, figures: Figures) -> None:
    names = list(reversed(PARTS))
    milliseconds = [figures[f"hit.{name}"]["median"] * 1e3 for name in names]
    colours = [_CAPTURE_COLOUR if name in _CAPTURE else _OWN_COLOUR for name in names]
    bars = axes.barh([PARTS[name].replace("`", "") for name in names], milliseconds, color=colours)
    axes.bar_label(bars, [f"{value:.3g}" for value in milliseconds], padding=3)
    axes.set(xscale="log", xlim=(1, max(milliseconds) * 5), title="A hit, milliseconds")
