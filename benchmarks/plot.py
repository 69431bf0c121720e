"""The plots of the page: seconds from a process's start to its first output, and of puts and gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import start_page

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from benchmarks.report import Document, Figures

_OWN_COLOUR, _OTHER_COLOUR = "#76b900", "#8a8f98"
_OWN = {"cold", "slow", "direct", "file"}


def draw(document: Document, folder: Path) -> None:
    """Write the plots of the subjects that are there, the same bytes for the same figures."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "trtcache", "svg.fonttype": "none", "font.size": 9})
    subjects = document["subjects"]
    if "start" in subjects:
        _start(subjects["start"], folder / "benchmarks-start.svg")


def _start(figures: Figures, path: Path) -> None:
    """Draw a panel for each model: whole processes, and in them the call."""
    from matplotlib import pyplot

    names = [name for name in start_page.MODELS if f"{name}.direct.process_s" in figures]
    figure, panels = pyplot.subplots(1, len(names), figsize=(2.6 + 2.1 * len(names), 3.6), sharey=True, squeeze=False)
    figure.set_layout_engine("constrained")
    for panel, name in zip(panels[0], names, strict=True):
        _model(panel, name, figures)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _model(axes: Axes, name: str, figures: Figures) -> None:
    """Draw one model's ways; its scale is its own."""
    ways = [way for way in reversed(start_page.WAYS) if f"{name}.{way}.process_s" in figures]
    found = [figures[f"{name}.{way}.process_s"]["median"] for way in ways]
    colours = [_OWN_COLOUR if way in _OWN else _OTHER_COLOUR for way in ways]
    bars = axes.barh([start_page.WAYS[way].replace("`", "") for way in ways], found, color=colours)
    axes.bar_label(bars, [f"{value:.3g}" for value in found], padding=3)
    axes.set(xlim=(0, max(found) * 1.25), title=start_page.MODELS[name], xlabel="seconds")
    axes.spines[["top", "right"]].set_visible(False)
