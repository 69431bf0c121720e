"""From a model to the lowered program: export, decompositions, passes, numbered slots."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

from trtcache.lowering.capture import decompose, export, mark
from trtcache.lowering.pipeline import default_pipeline
from trtcache.lowering.program import LoweredProgram, finish

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["LoweredProgram", "lower"]


def lower(
    model: torch.nn.Module | torch.export.ExportedProgram,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    keep: Collection[str] = (),
    name: str | None = None,
    trace: bool = False,
) -> LoweredProgram:
    """Return the lowered program of a model called with these arguments.

    Args:
        model: a module, or a program that ``torch.export`` made (then ``args`` and ``kwargs`` are the program's own).
        args: example positional arguments.
        kwargs: example keyword arguments.
        dynamic_shapes: as ``torch.export.export`` takes it.
        keep: operators that the backend wants whole (``Capabilities.keep``).
        name: what people call the program; by default the model's class.
        trace: keep what each pass changed, in ``runs``.

    Raises:
        ExportError: the model cannot be exported, or is something that no engine takes.
        PassError: a lowering pass broke its contract.
    """
    seconds: dict[str, float] = {}
    start = time.perf_counter()
    if isinstance(model, torch.export.ExportedProgram):
        exported, label = model, "ExportedProgram"
    else:
        exported, label = export(model, tuple(args), dict(kwargs or {}), dynamic_shapes), type(model).__name__
    seconds["export"] = time.perf_counter() - start
    start = time.perf_counter()
    exported = decompose(exported, keep)
    seconds["decompose"] = time.perf_counter() - start
    start = time.perf_counter()
    marked = mark(exported)
    pipeline = default_pipeline()
    runs = pipeline.run(marked.graph_module, trace=trace)
    specs = (*pipeline.spec, *(f"keep@1{{{operator}}}" for operator in sorted(keep)))
    program = finish(exported, marked, name=name or label, pipeline=specs, runs=runs)
    seconds["lower"] = time.perf_counter() - start
    program.seconds.update(seconds)  # type: ignore[attr-defined]  # a dict that is still ours
    return program
