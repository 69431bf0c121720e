"""What the page says of ``benchmarks.start``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.report import Promise, median, promised, seconds, span, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from benchmarks.report import Figures

MODELS = {
    "minilm": "MiniLM",
    "resnet": "ResNet-18",
    "vit": "ViT-S/16",
    "gpt2": "GPT-2",
    "bert": "BERT of 1 GB",
}
WAYS = {
    "eager": "eager",
    "torch_compile_cold": "`torch.compile`, cold",
    "torch_compile_warm": "`torch.compile`, its own caches warm",
    "mega_cache": "`torch.compile`, its saved artifacts loaded",
    "onnxruntime": "ONNX Runtime, the optimised model saved",
    "raw": "torch's package loader, the same package",
    "cold": "`trtcache.compile`, cold: it builds",
    "slow": "`trtcache.compile`, hit, `TRTCACHE_DIRECT=off`",
    "direct": "`trtcache.compile`, hit, direct",
    "file": "`trtcache.compile(path)`, a hit",
    "plain": "`trtcache.load(path)` without torch",
    "infer": "`trtcache infer`",
}
"""Name of a way -> what the page calls it."""

PARTS = {
    "direct_s": "direct key, manifest and its check",
    "export_s": "`torch.export`",
    "decompose_s": "its decompositions",
    "lower_s": "passes and slots",
    "key_s": "key",
    "fetch_s": "fetch: find, read, verify",
    "load_s": "load, weights put in",
    "rest_s": "everything else in `compile`",
    "first_s": "first output",
    "own_s": "**all without export and decompositions**",
}

_TEXT = """\
## From the start of a process to its first output

{models}; float32, {device}. The weights are in files that the system has in memory. Each figure is the median of new
processes that took turns, with the least and the most in brackets; the last column says how many (what is cold was
done once{together}). The whole process is Python, torch and its imports, the model, and what the way does; torch's
loader and `compile(path)` need no model, and ONNX Runtime's process has no torch in it. The call runs from `compile`
(or the loader) to the first output, when torch, trtcache, the model and its weights are in memory. Every output was
compared with eager's.{note}
"""
_CPU_NOTE = " On a CPU the artifacts that `torch.compile` saves have no compiled C++ in them: it compiles again."
_CUDA_NOTE = " TF32 is off."
_PLOT = "![Seconds from the start of a process to its first output, cold and warm](benchmarks-start.svg)\n"


def section(figures: Figures) -> str:
    """Return what the page says of it."""
    found = {name: _label(figures, name) for name in MODELS if f"{name}.weights_bytes" in figures}
    ways = [way for way in WAYS if any(_has(figures, name, way) for name in found)]
    header = ("", *found.values(), "processes")
    parts = [_text(figures, found), *([] if median(figures, "is_cuda_count") else [_PLOT])]
    for what, title in (("process", "whole process"), ("call", "the call")):
        rows = [_row(figures, way, what, found) for way in ways]
        parts.append(table((title, *header[1:]), rows))
    imported = [_row(figures, way, "imported_call", found) for way in ways if _imports(figures, way, found)]
    if imported:
        parts.append(table(("the call, trtcache's imports included", *header[1:]), imported))
    ratios = [_ratios(figures, way, found) for way in ways if way not in {"eager", "direct"}]
    parts += ["How many times as long as a direct hit the call takes:\n", table(header[:-1], ratios)]
    if _has(figures, "minilm", "slow"):
        parts.append(_spent(figures))
    promises = list(_promises(figures))
    return "\n".join([*parts, *([promised(*promises)] if promises else []), *_failures(figures)])


def _text(figures: Figures, found: dict[str, str]) -> str:
    sizes = (f"{label} ({median(figures, f'{name}.weights_bytes') / 1e6:.0f} MB)" for name, label in found.items())
    is_cpu = not median(figures, "is_cuda_count")
    together = int(median(figures, "together_count"))
    return _TEXT.format(
        models=", ".join(sizes),
        device="CPU" if is_cpu else "CUDA",
        together=f", for {together} models together" if together > 1 else "",
        note=_CPU_NOTE if is_cpu else _CUDA_NOTE,
    )


def _label(figures: Figures, name: str) -> str:
    """Return the name of a model; MiniLM's says so when its trained weights were not there."""
    is_odd = name == "minilm" and median(figures, "minilm.is_random_count")
    return f"{MODELS[name]} (random weights)" if is_odd else MODELS[name]


def _has(figures: Figures, name: str, way: str) -> bool:
    return f"{name}.{way}.call_s" in figures


def _imports(figures: Figures, way: str, names: Iterable[str]) -> bool:
    """Return whether the imports of a way were timed for every model that it did not fail for."""
    there = [name for name in names if _has(figures, name, way)]
    return bool(there) and all(f"{name}.{way}.imported_call_s" in figures for name in there)


def _row(figures: Figures, way: str, what: str, names: dict[str, str]) -> tuple[str, ...]:
    """Return the cells of a way, and how many processes they are medians of."""
    cells = (_cell(figures, name, way, what) for name in names)
    counts = sorted({len(figures[f"{name}.{way}.call_s"]["values"]) for name in names if _has(figures, name, way)})
    return WAYS[way], *cells, " or ".join(map(str, counts))


def _cell(figures: Figures, name: str, way: str, what: str) -> str:
    """Return a median with its spread; a direct hit that was none says so."""
    if not _has(figures, name, way):
        return "failed"
    is_slow = way == "direct" and not figures.get(f"{name}.{way}.is_direct_count", {"least": 0})["least"]
    return span(figures[f"{name}.{way}.{what}_s"]) + (", not direct" if is_slow else "")


def _ratios(figures: Figures, way: str, names: dict[str, str]) -> tuple[str, ...]:
    return WAYS[way], *(_ratio(figures, name, way) for name in names)


def _ratio(figures: Figures, name: str, way: str) -> str:
    if not (_has(figures, name, way) and _has(figures, name, "direct")):
        return ""
    return f"{_call_s(figures, name, way) / _call_s(figures, name, 'direct'):.3g}x"


def _call_s(figures: Figures, name: str, way: str) -> float:
    return median(figures, f"{name}.{way}.call_s")


def _spent(figures: Figures) -> str:
    """Return where a hit of MiniLM spends its time, one that exports and a direct one."""
    ways = [way for way in ("slow", "direct") if f"minilm.{way}.own_s" in figures]
    rows = [
        (label, *(span(figures[f"minilm.{way}.{part}"]) for way in ways))
        for part, label in PARTS.items()
        if any(figures[f"minilm.{way}.{part}"]["most"] for way in ways)
    ]
    later = ", ".join(
        f"{label} {seconds(median(figures, f'minilm.{way}.later_s'))}"
        for way, label in (("direct", "trtcache's"), ("raw", "the raw package's"), ("eager", "eager's"))
        if f"minilm.{way}.later_s" in figures
    )
    header = ("where a hit of MiniLM spends it", *(WAYS[way] for way in ways))
    return "\n".join([table(header, rows), f"A later call of MiniLM: {later}.\n"])


def _promises(figures: Figures) -> Iterator[Promise]:
    """Yield what is promised, from the medians of one run."""
    for name, label in MODELS.items():
        if _has(figures, name, "direct") and _has(figures, name, "raw") and name in {"minilm", "bert"}:
            above_s = _call_s(figures, name, "direct") - _call_s(figures, name, "raw")
            what = f"{label}: a direct hit above torch's loader"
            yield Promise(what, seconds(above_s), "at most 25 ms", above_s <= 0.025)
    for way in ("direct", "file"):
        if f"minilm.{way}.import_s" in figures:
            import_s = median(figures, f"minilm.{way}.import_s")
            yield Promise(f"imports of {WAYS[way]}", seconds(import_s), "at most 60 ms", import_s <= 0.060)
    if not all(_has(figures, "minilm", way) for way in ("direct", "raw", "slow", "torch_compile_warm")):
        return
    warm_s, own_s = _call_s(figures, "minilm", "torch_compile_warm"), median(figures, "minilm.slow.own_s")
    times = warm_s / _call_s(figures, "minilm", "direct")
    raw_times = own_s / _call_s(figures, "minilm", "raw")
    own = "MiniLM: a hit that exports, without export and decompositions"
    yield Promise("MiniLM: `torch.compile` warm, of a direct hit", f"{times:.3g}x", "at least 60x", times >= 60)
    yield Promise(own, seconds(own_s), "at most 60 ms", own_s <= 0.060)
    yield Promise("`torch.compile` warm, of that", f"{warm_s / own_s:.3g}x", "at least 50x", warm_s >= 50 * own_s)
    yield Promise("that, of torch's loader", f"{raw_times:.2f}x", "at most 2x", raw_times <= 2)


def _failures(figures: Figures) -> Iterator[str]:
    """Yield what failed, and direct hits that were none."""
    for figure, values in figures.items():
        name, _, what = figure.rpartition(".")
        if what == "failed_count":
            yield f"Failed: {name}.\n"
        if name.endswith(".direct") and what == "is_direct_count" and values["least"] < 1:
            yield f"{name}: not every process had a direct hit.\n"
