"""The stages of lowering: export, decompositions, passes, numbered slots."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

from trtcache.errors import PassError
from trtcache.lowering.capture import decompose, export, mark
from trtcache.lowering.entry_points import installed_passes
from trtcache.lowering.fallback import TorchSelection, restore_targets
from trtcache.lowering.input_guards import ExportGuards
from trtcache.lowering.operator_checks import assert_numbers
from trtcache.lowering.pipeline import default_pipeline, last_pipeline
from trtcache.lowering.program import LoweredProgram, finish

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from trtcache.lowering.pipeline import PassRun
    from trtcache.lowering.rewrites.autocast import Autocast


def lower(
    model: torch.nn.Module | torch.export.ExportedProgram,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    keep: Collection[str] = (),
    unpack: Collection[str] = (),
    torch_executed: TorchSelection | None = None,
    autocast: Autocast | None = None,
    name: str | None = None,
    trace: bool = False,
) -> LoweredProgram:
    """Lower a model called with these arguments.

    Args:
        model: a module, or a program from ``torch.export``, for which the other example inputs are ignored.
        args: example positional arguments.
        kwargs: example keyword arguments.
        dynamic_shapes: see ``torch.export.export``.
        keep: operators not to decompose (``Capabilities.keep``).
        unpack: operators to decompose further (``Capabilities.unpack``).
        torch_executed: the selection of what stays in torch.
        autocast: the autocast pass (``Settings.autocast``), or None.
        name: the program's name; by default the model's class.
        trace: record what each pass changed, in ``runs``.

    Raises:
        ExportError: the model cannot be exported, or engines do not support it.
        PassError: a lowering pass violated its contract, or a third-party one cannot be loaded.
        SettingsError: the program has no module or operator with a name of ``torch_executed``.
    """
    seconds: dict[str, float] = {}
    start = time.perf_counter()
    if isinstance(model, torch.export.ExportedProgram):
        exported, label = model, "ExportedProgram"
    else:
        exported, label = export(model, tuple(args), dict(kwargs or {}), dynamic_shapes), type(model).__name__
    seconds["export"] = time.perf_counter() - start
    start = time.perf_counter()
    guards = ExportGuards.of(exported)  # before decompositions, which may lose the saved guards
    forced = torch_executed or TorchSelection()
    with forced.annotate(exported.graph), assert_numbers(exported.graph):
        decomposed = decompose(exported, keep, forced.keeps)
    guards = guards.with_small_sizes(exported, decomposed)
    exported = decomposed
    seconds["decompose"] = time.perf_counter() - start
    start = time.perf_counter()
    marked = mark(exported)
    forced.mark(marked.graph_module.graph)
    specs, runs = _run_passes(marked.graph_module, unpack, autocast, trace=trace)
    restore_targets(marked.graph_module.graph)
    specs = (*specs, *(f"keep@1{{{operator}}}" for operator in sorted(keep)))
    program = finish(exported, marked, name=name or label, pipeline=specs, runs=runs, guards=guards)
    seconds["lower"] = time.perf_counter() - start
    program.seconds.update(seconds)  # type: ignore[attr-defined]  # a dict, not shared yet
    return program


def _run_passes(
    graph_module: torch.fx.GraphModule, unpack: Collection[str], autocast: Autocast | None, *, trace: bool
) -> tuple[tuple[str, ...], tuple[PassRun, ...]]:
    """Run our passes, then the backend's and third-party ones; return their specs and runs."""
    first, last = default_pipeline(), last_pipeline(installed_passes(), unpack, autocast)
    runs = first.run(graph_module, trace=trace)
    try:
        runs += last.run(graph_module, trace=trace)
    except PassError as error:
        error.before = (*(run.spec for run in runs), *error.before)
        raise
    return (*first.spec, *last.spec), runs
