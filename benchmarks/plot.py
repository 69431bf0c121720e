"""The plots of the page: seconds from a process's start to its first output, and of puts and gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import start_page, store

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from benchmarks.report import Document, Figures

_OWN_COLOUR, _OTHER_COLOUR = "#76b900", "#8a8f98"
_COLOURS = {
    "ours": _OWN_COLOUR,
    "torch_tensorrt": "#5b6472",
    "diskcache": "#8a8f98",
    "plain": "#b9bdc4",
    "zstd": "#dfe1e5",
}
_OWN = {"cold", "slow", "direct", "file"}


def draw(document: Document, folder: Path) -> None:
    """Write the plots of the subjects that are there, the same bytes for the same figures."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "trtcache", "svg.fonttype": "none", "font.size": 9})
    subjects = document["subjects"]
    if "start" in subjects:
        _start(subjects["start"], folder / "benchmarks-start.svg")
    if "store" in subjects:
        _store(subjects["store"], folder / "benchmarks-store.svg")


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


def _store(figures: Figures, path: Path) -> None:
    """Draw puts and gets: a group of bars for each size, on a scale of powers of ten."""
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(10.5, 3.4), sharey=True, layout="constrained")
    for panel, what in zip(panels, ("put", "get"), strict=True):
        _sizes(panel, what, figures)
    panels[0].set_ylabel("seconds")
    panels[1].legend(loc="upper left", frameon=False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _sizes(axes: Axes, what: str, figures: Figures) -> None:
    ways = [way for way in store.WAYS if f"1 GB.{way}.{what}_s" in figures]
    width = 0.8 / len(ways)
    for place, way in enumerate(ways):
        found = [figures[f"{size}.{way}.{what}_s"]["median"] for size in store.SIZES]
        at = [group + (place - (len(ways) - 1) / 2) * width for group in range(len(found))]
        axes.bar(at, found, width * 0.92, color=_COLOURS[way], label=store.WAYS[way].replace("`", ""))
    if what == "get":
        limits = [figures[f"{size}.plain.map_and_hash_s"]["median"] for size in store.SIZES]
        ends = [(group - 0.42, group + 0.42) for group in range(len(limits))]
        starts, stops = zip(*ends, strict=True)
        axes.hlines(limits, starts, stops, colors="black", linewidth=1.2, label="limit: mapped and hashed")
    axes.set(yscale="log", title=what)
    axes.set_xticks(range(len(store.SIZES)), list(store.SIZES))
    axes.spines[["top", "right"]].set_visible(False)
