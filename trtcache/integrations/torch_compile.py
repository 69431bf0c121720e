"""``torch.compile(model, backend="trtcache")``: Dynamo's graphs as engines from the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trtcache.integrations.dynamo.graph import CompiledGraph
from trtcache.integrations.dynamo.options import GraphReport, Options, Reports

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

__all__ = ["GraphReport", "backend", "clear_reports", "reports"]

_REPORTS = Reports()  # torch.compile returns no report to its caller, so reports are kept per process


def backend(
    graph_module: torch.fx.GraphModule,
    example_inputs: list[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
) -> CompiledGraph:
    """Return the callable for a Dynamo graph; called by ``torch.compile``.

    Args:
        graph_module: the graph.
        example_inputs: the arguments of the traced call.
        mode: ``default`` or ``max-autotune-no-cudagraphs``.
        options: fields of ``trtcache.Settings``, and ``backend``, ``target``, ``cache``, ``name``, ``training``.

    Raises:
        SettingsError: an option or the mode is unknown, or a value is invalid.
        TrainingError: it is a training graph, and ``training`` is ``error``.
        BackendUnavailableError: the engine builder is unknown or cannot run here.
        BuildForbiddenError: ``TRTCACHE_FORBID_BUILD=1``, and there is no engine for the graph.
        BuildError: the build failed.
        StoreError: ``cache`` names a directory that cannot be a cache.
    """
    chosen = Options.of(options, mode)
    return CompiledGraph(graph_module, example_inputs, options=chosen, cache=chosen.open_cache(), reports=_REPORTS)


def reports() -> tuple[GraphReport, ...]:
    """Return the report of each graph that this process compiled, the oldest first."""
    return _REPORTS.all()


def clear_reports() -> None:
    """Clear the reports and the record of warnings."""
    _REPORTS.clear()
