"""``docs/benchmarks.md``, written from the figures of one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Figures = dict[str, dict[str, Any]]


class Document(TypedDict):
    """What one run found, as it stands in ``docs/benchmarks.json``."""

    machine: dict[str, str]
    subjects: dict[str, Figures]


WAYS = {
    "cold": "`trtcache.compile`, cold: it builds",
    "hit": "`trtcache.compile`, hit",
    "raw": "torch's package loader, the same package",
    "torch_compile_cold": "`torch.compile`, cold",
    "torch_compile_warm": "`torch.compile`, its own caches warm",
    "eager": "eager",
}

PARTS = {
    "export_s": "`torch.export`",
    "decompose_s": "its decompositions",
    "lower_s": "passes and slots",
    "key_s": "key",
    "fetch_s": "fetch: find, read, verify",
    "load_s": "load, weights put in",
    "rest_s": "everything else in `compile`",
    "first_s": "first output",
}

FILE_WAYS = {
    "memo": "`trtcache.compile(path)`, a file that has not changed",
    "program": "`torch.export.load`, then `trtcache.compile(program)`: a hit",
    "torch": "`torch.export.load`, then eager",
}

FILE_PARTS = {
    "file_s": "file: open, map, digest of the program",
    "memo_s": "memo: find, read, verify",
    "fetch_s": "fetch: find, read, verify",
    "load_s": "load, weights put in",
    "rest_s": "everything else in `compile`",
    "first_s": "first output",
}

KINDS = ("fixed", "symbolic")

_INTRODUCTION = """\
# Benchmarks

Written by `make bench`; `benchmarks/` has one file per subject, `benchmarks.json` beside this file every sample. Times
are medians, with the least and the most in brackets. Other work on the machine moves all of them; ratios within one run
move little.
"""

_MODEL = """\
## From a model to its first output

all-MiniLM-L6-v2 (6 layers, 22.7 million weights), 8 sentences of 16 tokens, float32, CPU. Each figure is from new
processes which took turns. The clock runs from the call of `compile` (or of the loader) to the first output; importing
torch and reading the weights come before it. All run with `OMP_WAIT_POLICY=passive`.

![Seconds to the first output](benchmarks.svg)
"""


_FILE = """\
## From a program's file to its first output

The same model in a `.pt2` file of {megabytes} MB that the system has read before. New processes which took turns, with
builds forbidden; torch and trtcache are imported before the clock runs.
"""

_REFIT = """\
## Memory of a refit, and of the store

Anonymous and shared memory (`RssAnon` and `RssShmem`, looked at every millisecond) at the most, beyond what there was
before and what is there afterwards, in units of the largest weight. Mapped files, which the system can drop, do not
count. `aot_inductor` on the CPU; the first refits of a process are not measured.
"""

_THREADS = """\
## Calls side by side

Twelve layers with 50 MB of weights, and with {megabytes} MB for the memory; one intra-op thread for each call, CPU. One
and two runners take turns in each process. `torch's loader` is two threads that call the module without runners. Two
runners had {cores:.2f} cores: with fewer than two, because other work had the rest, they cannot be twice as fast. Two
processes share no lock of Python's: they are what the cores and their memory give at the most, {processes:.2f}x one
runner here.
"""

_TUNE = """\
## `trtcache tune` beside a measurement by hand

The first model above. `tune`'s own code and a plain loop take turns in each process; with two runners that is two
threads of a script that call the module. Latencies are medians of calls.
"""

_STORE = """\
## The store

One artifact that does not compress, in memory before and after, on the disk of temporary files. Ours hashes and flushes
what it puts and verifies what it gets; plain files and zstd (level 3) flush and verify nothing; `diskcache` does
neither. The ways take turns; what was put is still in the system's own memory when it is read.
"""

_PARTITION = """\
## Parts built side by side

Four encoders that meet in an operator that stays in torch: four engines, built one after the other in one process, or
two at once, each time in a new process with empty caches. Export and lowering are not in it; starting processes is.
"""

_SLACK_BYTES = 1 << 20  # what Python itself takes meanwhile


@dataclass(frozen=True, slots=True)
class Promise:
    """A figure that the project promises, and how it came out."""

    what: str
    found: str
    promised: str
    kept: bool

    @property
    def row(self) -> tuple[str, ...]:
        """The cells of the table."""
        return self.what, self.found, self.promised, "yes" if self.kept else "**no**"


def markdown(document: Document) -> str:
    """Return the page."""
    machine = _table(("machine", ""), document["machine"].items())
    sections = [SECTIONS[name](figures) for name, figures in document["subjects"].items()]
    return "\n".join([_INTRODUCTION, machine, *sections])


def _model(figures: Figures) -> str:
    ways = [
        (label, _span(figures[f"{way}.total_s"]), _seconds(_median(figures, f"{way}.call_s")))
        for way, label in WAYS.items()
    ]
    parts = [(label, _span(figures[f"hit.{part}"])) for part, label in PARTS.items()]
    parts.append(("**without export and decompositions**", _span(figures["hit.own_s"])))
    return "\n".join(
        [
            _MODEL,
            _table(("way", "to the first output", "a later call"), ways),
            "Where a hit spends it:\n",
            _table(("part", "time"), parts),
            _table(("promise", "found", "promised", "kept"), (promise.row for promise in promises(figures))),
        ]
    )


def promises(figures: Figures) -> list[Promise]:
    """Return what is promised of a hit without export and decompositions, from the medians of one run."""
    own_s = _median(figures, "hit.own_s")
    torch_ratio = _median(figures, "torch_compile_warm.total_s") / own_s
    raw_ratio = own_s / _median(figures, "raw.total_s")
    hit = "a hit to its first output, export and decompositions aside"
    return [
        Promise(hit, _seconds(own_s), "at most 60 ms", own_s <= 0.060),
        Promise("`torch.compile` with warm caches takes", f"{torch_ratio:.0f}x that", "50x or more", torch_ratio >= 50),
        Promise("it takes, of the raw load and first run", f"{raw_ratio:.2f}x", "at most 2x", raw_ratio <= 2),
    ]


def _file(figures: Figures) -> str:
    total_s = _median(figures, "memo.total_s")
    ways = [(label, _span(figures[f"{way}.total_s"])) for way, label in FILE_WAYS.items()]
    parts = [(label, _span(figures[f"memo.{part}"])) for part, label in FILE_PARTS.items()]
    by_memo = all(figures["memo.is_memo_count"]["values"])
    promised = [
        Promise("a file to its first output, by a memo", _seconds(total_s), "at most 60 ms", total_s <= 0.060),
        Promise("neither exported nor lowered", "every time" if by_memo else "not always", "every time", by_memo),
    ]
    return "\n".join(
        [
            _FILE.format(megabytes=round(_median(figures, "file_bytes") / 1e6)),
            _table(("way", "to the first output"), ways),
            "Where the memo's way spends it:\n",
            _table(("part", "time"), parts),
            _table(("promise", "found", "promised", "kept"), (promise.row for promise in promised)),
        ]
    )


def _checks(figures: Figures) -> str:
    fixed_s = _median(figures, "fixed_s")
    rows = [
        ("fixed sizes", _span(figures["fixed_s"])),
        ("a dynamic size", _span(figures["dynamic_s"])),
        ("fixed sizes in another layout, all copied", _span(figures["copied_s"])),
    ]
    promise = Promise("checks of a call with 8 inputs", _seconds(fixed_s), "at most 20 us", fixed_s <= 20e-6)
    return "\n".join(["## The checks of a call\n", _table(("8 tensors", "time of a call"), rows), _promise(promise)])


def _key(figures: Figures) -> str:
    rows = [
        ("passes and slots", _span(figures["lower_s"]), _seconds(_median(figures, "lower_node_s"))),
        ("digest of the graph", _span(figures["graph_s"]), _seconds(_median(figures, "graph_node_s"))),
    ]
    title = f"## Lowering and key\n\nThe model above, {_median(figures, 'nodes_count'):.0f} nodes after the passes.\n"
    return "\n".join([title, _table(("part", "time", "for each node"), rows)])


def _keys(figures: Figures) -> str:
    rows = []
    for kind in KINDS:
        small, large = (figures[f"{kind}_{size}_node_s"] for size in ("small", "large"))
        rows.append((f"{kind} sizes", _span(small), _span(large), _span(figures[f"{kind}_torch_node_s"])))
    header = ("time for each node", "10,000 nodes", "100,000 nodes", "torch's `FxGraphCache`, 10,000 nodes")
    fixed_s, symbolic_s = (_median(figures, f"{kind}_small_node_s") for kind in KINDS)
    growth = max(_median(figures, f"{kind}_large_node_s") / _median(figures, f"{kind}_small_node_s") for kind in KINDS)
    kept = [
        Promise("a node of a graph of 10,000", _seconds(fixed_s), "at most 15 us", fixed_s <= 15e-6),
        Promise("the same with symbolic sizes", _seconds(symbolic_s), "at most 30 us", symbolic_s <= 30e-6),
        Promise("a node of 100,000, of one of 10,000", f"{growth:.2f}x", "at most 2x; 10x if quadratic", growth <= 2),
    ]
    promised = _table(("promise", "found", "promised", "kept"), (promise.row for promise in kept))
    return "\n".join(["## Keys of large graphs\n", _table(header, rows), promised])


def _ls(figures: Figures) -> str:
    labels = {
        "terminal_s": "on a terminal: the first 200",
        "terminal_all_s": "on a terminal, `--limit 0`: all",
        "pipe_s": "in a pipe: all",
        "json_s": "`--json`: all",
        "index_lost_s": "in a pipe, after `rm index.sqlite`",
    }
    rows = [(label, _span(figures[name])) for name, label in labels.items()]
    worst_s = max(_median(figures, name) for name in labels if name != "index_lost_s")
    promise = Promise("the slowest default form", _seconds(worst_s), "under 0.6 s", worst_s < 0.6)
    return "\n".join(
        ["## `trtcache ls` of 10,000 entries\n", _table(("form", "whole process"), rows), _promise(promise)]
    )


def _plan(figures: Figures) -> str:
    rows = []
    for name, most in (("small", 1.6), ("large", 1.2), ("file", 1.6)):
        weights_bytes, peak_bytes = (_median(figures, f"{name}.{what}_bytes") for what in ("weights", "peak"))
        source = "of an ONNX file with external data, " if name == "file" else ""
        what = f"a plan {source}of {weights_bytes / 1e9:.1f} GB of weights, built and stored"
        found = f"{peak_bytes / weights_bytes:.2f} times the weights"
        rows.append(Promise(what, found, f"at most {most} times", peak_bytes <= most * weights_bytes).row)
    text = "The most resident memory beyond the model itself, mapped files included, by TensorRT-RTX on a CPU.\n"
    return "\n".join(["## Memory of a build of a plan\n", text, _table(("memory", "found", "promised", "kept"), rows)])


def _refit(figures: Figures) -> str:
    labels = {"linear": "as they are", "convolution": "made by recipes"}
    rows = []
    for model, label in labels.items():
        for way in ("module", "file"):
            find = {name: _median(figures, f"{model}.{way}.{name}_bytes") for name in ("extra", "largest", "weights")}
            what = f"{find['weights'] / 1e6:.0f} MB, {label}, from a {way}"
            found = f"{find['extra'] / find['largest']:.2f} weights in {_span(figures[f'{model}.{way}.refit_s'])}"
            kept = find["extra"] <= find["largest"] + _SLACK_BYTES
            rows.append(Promise(what, found, "at most one weight more", kept).row)
    for way, what in (("put", "into the store"), ("get", "out of it, verified, and into a file")):
        extra_bytes = _median(figures, f"store.{way}.extra_bytes")
        found = f"{extra_bytes / 1e6:.1f} MB in {_span(figures[f'store.{way}.seconds_s'])}"
        rows.append(Promise(f"3 GB {what}", found, "at most 64 MB", extra_bytes <= 64e6).row)
    return "\n".join([_REFIT, _table(("memory", "found", "promised", "kept"), rows)])


def _threads(figures: Figures) -> str:
    ways = {
        "two_threads_by_the_loader": "two threads, torch's loader",
        "one_runner": "one runner",
        "two_runners": "two runners",
        "two_processes": "two processes, with the weights twice",
    }
    rows = [(label, f"{_median(figures, f'{way}_per_s_count'):.1f}") for way, label in ways.items()]
    ratio, memory = _median(figures, "runners_ratio"), _median(figures, "memory_ratio")
    wrong, calls = _median(figures, "wrong_count"), _median(figures, "calls_count")
    kept = [
        Promise("two runners, of one", f"{ratio:.2f}x", "at least 1.6x", ratio >= 1.6),
        Promise(
            "memory that two runners add, of the weights", f"{memory:.2f}x", "at most 0.2x; 1x if copied", memory <= 0.2
        ),
        Promise(f"wrong answers of {calls:,.0f} calls of 8 threads", f"{wrong:.0f}", "0", wrong == 0),
    ]
    return "\n".join(
        [
            _THREADS.format(
                megabytes=round(_median(figures, "weights_bytes") / 1e6),
                cores=_median(figures, "cores_used_ratio"),
                processes=_median(figures, "processes_ratio"),
            ),
            _table(("way", "calls in a second"), rows),
            _table(("promise", "found", "promised", "kept"), (promise.row for promise in kept)),
        ]
    )


def _tune(figures: Figures) -> str:
    rows, kept = [], []
    for threads, runners in ((1, 1), (2, 1), (1, 2)):
        name, label = f"threads_{threads}_runners_{runners}", f"{threads} threads, {runners} runners"
        tuned, hand = (_median(figures, f"{name}.{way}_median_s") for way in ("tune", "hand"))
        tuned_per_s, hand_per_s = (_median(figures, f"{name}.{way}_per_s_count") for way in ("tune", "hand"))
        rows.append((label, _seconds(tuned), _seconds(hand), f"{tuned_per_s:.1f}", f"{hand_per_s:.1f}"))
        worst = max(abs(tuned / hand - 1), abs(tuned_per_s / hand_per_s - 1))
        kept.append(Promise(f"{label}, off by", f"{worst:.1%}", "at most 15 %", worst <= 0.15).row)
    header = ("", "latency, `tune`", "by hand", "calls in a second, `tune`", "by hand")
    return "\n".join([_TUNE, _table(header, rows), _table(("promise", "found", "promised", "kept"), kept)])


def _store(figures: Figures) -> str:
    ways = {"ours": "ours", "diskcache": "`diskcache`", "plain": "plain file", "zstd": "zstd"}
    rows = [
        (f"{what} {label}", *(_span(figures[f"{label}.{way}.{what}_s"]) for way in ways))
        for label in ("1 KB", "2 MB", "100 MB", "1 GB")
        for what in ("put", "get")
    ]
    get_s, hash_s = _median(figures, "1 GB.ours.get_s"), _median(figures, "1 GB.plain.get_and_hash_s")
    few_s, many_s = _median(figures, "hit_of_1000_s"), _median(figures, "hit_of_100000_s")
    four, eight = (_median(figures, f"processes_{count}_per_cpu_s_count") for count in (4, 8))
    together = [f"{_median(figures, f'processes_{count}_per_s_count'):.0f}" for count in (1, 4, 8)]
    read = f"get of 1 GB, of the speed of reading and hashing a plain file ({_seconds(hash_s)})"
    kept = [
        Promise(read, f"{hash_s / get_s:.0%}", "at least 70 %", hash_s >= 0.7 * get_s),
        Promise(
            f"a hit of 100,000 entries ({_seconds(many_s)}), of one of 1,000 ({_seconds(few_s)})",
            f"{many_s / few_s:.2f}x",
            "0.8x to 1.2x",
            0.8 <= many_s / few_s <= 1.2,
        ),
        Promise(
            "gets of 2 MB in a CPU second of one of 8 processes, of one of 4",
            f"{eight / four:.2f}x",
            "at least 0.9x",
            eight >= 0.9 * four,
        ),
    ]
    processes = f"1, 4 and 8 processes together get {', '.join(together)} entries of 2 MB in a second.\n"
    promised = _table(("promise", "found", "promised", "kept"), (promise.row for promise in kept))
    return "\n".join([_STORE, _table(("", *ways.values()), rows), processes, promised])


def _partition(figures: Figures) -> str:
    one, two = _median(figures, "one_s"), _median(figures, "two_s")
    ratio = _median(figures, "build_ratio")
    kept = Promise("two processes, of one", f"{ratio:.2f}x", "at least 1.5x", ratio >= 1.5)
    return "\n".join(
        [
            _PARTITION,
            _table(("way", "seconds"), [("one after the other", f"{one:.1f}"), ("two at once", f"{two:.1f}")]),
            _table(("promise", "found", "promised", "kept"), [kept.row]),
        ]
    )


def _footprint(figures: Figures) -> str:
    import_s, install_bytes = _median(figures, "import_s"), _median(figures, "install_bytes")
    rows = [
        Promise("`import trtcache`", _seconds(import_s), "under 50 ms", import_s < 0.050).row,
        ("`from trtcache import Cache`", _seconds(_median(figures, "import_cache_s")), "", ""),
        Promise("base install", f"{install_bytes / 1e6:.0f} MB", "under 60 MB", install_bytes < 60e6).row,
    ]
    return "\n".join(["## Footprint without torch\n", _table(("what", "found", "promised", "kept"), rows)])


SECTIONS: Mapping[str, Callable[[Figures], str]] = {
    "model": _model,
    "file": _file,
    "checks": _checks,
    "key": _key,
    "keys": _keys,
    "threads": _threads,
    "tune": _tune,
    "store": _store,
    "partition": _partition,
    "ls": _ls,
    "footprint": _footprint,
    "plan": _plan,
    "refit": _refit,
}


def _promise(promise: Promise) -> str:
    return _table(("promise", "found", "promised", "kept"), [promise.row])


def _median(figures: Figures, name: str) -> float:
    return float(figures[name]["median"])


def _span(figure: Mapping[str, Any]) -> str:
    median, least, most = figure["median"], figure["least"], figure["most"]
    return _seconds(median) if least == most else f"{_seconds(median)} ({_seconds(least)} to {_seconds(most)})"


def _seconds(value_s: float) -> str:
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(value_s) >= scale:
            return f"{value_s / scale:.3g} {unit}"
    return f"{value_s / 1e-6:.2g} us"


def _table(header: tuple[str, ...], rows: Any) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines) + "\n"
