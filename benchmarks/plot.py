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
_LIGHT = {_OWN_COLOUR: "#d3e3b3", _OTHER_COLOUR: "#d9dbde"}
_OWN = {"cold", "slow", "direct", "file"}
_COLD = {"cold", "torch_compile_cold", "mega_cache"}
"""Those that compile: `mega_cache` does on a CPU."""


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
    """Draw a column for each model: above the processes that compile, below those that do not."""
    from matplotlib import pyplot
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    names = [name for name in start_page.MODELS if f"{name}.direct.process_s" in figures]
    found = [way for way in start_page.WAYS if any(f"{name}.{way}.process_s" in figures for name in names)]
    rows = [[way for way in reversed(found) if (way in _COLD) == is_cold] for is_cold in (True, False)]
    layout, size = ConstrainedLayoutEngine(hspace=0.06), (3.4 + 1.9 * len(names), 4.9)
    figure, panels = pyplot.subplots(2, len(names), figsize=size, sharey="row", squeeze=False, layout=layout)
    for ways, line in zip(rows, panels, strict=True):
        for panel, name in zip(line, names, strict=True):
            _model(panel, name, ways, figures)
    for panel, name in zip(panels[0], names, strict=True):
        panel.set_title(start_page.MODELS[name])
    figure.suptitle("Time to the first output of a new process")
    figure.supxlabel(
        "seconds from the start of a process to its first output; dark: from the call of compile", fontsize=9
    )
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _model(axes: Axes, name: str, ways: list[str], figures: Figures) -> None:
    """Draw one model's ways; its scale is its own, and a way that failed has no bar."""
    processes, calls = (
        [figures.get(f"{name}.{way}.{what}_s", {"median": 0.0})["median"] for way in ways]
        for what in ("process", "call")
    )
    labels = [start_page.WAYS[way].replace("`", "") for way in ways]
    colours = [_OWN_COLOUR if way in _OWN else _OTHER_COLOUR for way in ways]
    bars = axes.barh(labels, processes, color=[_LIGHT[colour] for colour in colours])
    before = [whole - call for whole, call in zip(processes, calls, strict=True)]
    axes.barh(labels, calls, left=before, color=colours)
    axes.bar_label(bars, [f"{value:.3g}" if value else "failed" for value in processes], padding=3)
    axes.set(xlim=(0, max(processes) * 1.3))
    axes.spines[["top", "right"]].set_visible(False)


def _store(figures: Figures, path: Path) -> None:
    """Draw puts and gets: a group of bars for each size, on a scale of powers of ten."""
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(10.5, 3.4), sharey=True, layout="constrained")
    for panel, what in zip(panels, ("put", "get"), strict=True):
        _sizes(panel, what, figures)
    figure.suptitle("Time to store and to read an entry")
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
