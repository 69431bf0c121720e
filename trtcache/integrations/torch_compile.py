"""``torch.compile(model, backend="trtcache")``: Dynamo's graphs as engines from the cache, options and reports."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trtcache.cache import Cache
from trtcache.config.named_fields import field_names, refuse_unknown
from trtcache.errors import SettingsError, did_you_mean
from trtcache.integrations.dynamo.graph import CompiledGraph
from trtcache.settings import Settings

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    import torch

    from trtcache.runtime import Report
    from trtcache.settings import Option

# torch/_inductor/__init__.py, list_mode_options. The other modes use CUDA graphs, which packages do not support.
_MODES: Mapping[str, Mapping[str, Option]] = {
    "default": {},
    "max-autotune-no-cudagraphs": {"max_autotune": True, "coordinate_descent_tuning": True},
}

_TRAINING = ("warn", "eager", "error")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one ``torch.compile``: the fields of ``Settings``, and these.

    Attributes:
        settings: the settings from the options that are fields of ``Settings``.
        backend: see ``trtcache.compile``.
        target: see ``trtcache.compile``.
        cache: see ``trtcache.compile``.
        name: the name of the graphs; by default the class of the module that they come from.
        training: what to do with training graphs: ``eager`` runs them in eager torch, ``warn`` (the default) too but
            warns once, ``error`` raises.
    """

    settings: Settings = field(default_factory=Settings)
    backend: str = "auto"
    target: str | None = None
    cache: Cache | str | os.PathLike[str] | None = None
    name: str | None = None
    training: str = "warn"

    def __post_init__(self) -> None:
        if self.training not in _TRAINING:
            raise SettingsError(
                "options['training']", f"{self.training!r}: {did_you_mean(self.training, [*_TRAINING])}"
            )

    @classmethod
    def of(cls, options: Mapping[str, object] | None, mode: str | None) -> Options:
        """Parse the user's options.

        Raises:
            SettingsError: an option or the mode is unknown (with the nearest one), or a value is invalid.
        """
        if mode is not None and mode not in _MODES:
            raise SettingsError("mode", f"{mode!r}: {did_you_mean(mode, list(_MODES))}")
        given = dict(options or {})
        ours = [name for name in field_names(cls) if name != "settings"]
        refuse_unknown(given, [*ours, *field_names(Settings)], "options")
        chosen = {name: given.pop(name) for name in ours if name in given}
        if mode:
            given["inductor"] = {**_MODES[mode]}
        return cls(settings=Settings.of(given), **chosen)  # type: ignore[arg-type]  # values are checked where they are used

    def open_cache(self) -> Cache:
        """Return the cache to use.

        Raises:
            SettingsError: a ``TRTCACHE_*`` variable has an invalid value.
            StoreError: ``cache`` names a directory that cannot be a cache.
        """
        return self.cache if isinstance(self.cache, Cache) else Cache(self.cache)


_MOST = 1000


@dataclass(slots=True)
class GraphReport:
    """One graph of a model. Printing it gives a small table.

    Attributes:
        name: the graph's name.
        engines: one report for each compiled engine, in order.
        eager: why calls run in eager torch, each reason once; empty if none do.
        weight_sets: the number of sets of weights.
    """

    name: str
    engines: list[Report] = field(default_factory=list)
    eager: list[str] = field(default_factory=list)
    weight_sets: int = 0

    def __str__(self) -> str:
        engines, sets = _count(len(self.engines), "engine"), _count(self.weight_sets, "set")
        rows = [f"{self.name}: {engines}, {sets} of weights"]
        rows += [str(one) for one in self.engines]
        rows += [f"  eager: {why}" for why in self.eager]
        return "\n".join(rows)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


class Reports:
    """The last thousand graph reports of a process, and the warnings given."""

    def __init__(self) -> None:
        """Start empty."""
        self._reports: deque[GraphReport] = deque(maxlen=_MOST)
        self._warned: set[str] = set()
        self._lock = threading.Lock()

    def new(self, name: str) -> GraphReport:
        """Add and return the report of a new graph."""
        report = GraphReport(name)
        with self._lock:
            self._reports.append(report)
        return report

    def all(self) -> tuple[GraphReport, ...]:
        """Return every report, the oldest first."""
        with self._lock:
            return tuple(self._reports)

    def is_news(self, warning: str) -> bool:
        """Return whether a warning is new, and record it."""
        with self._lock:
            known = warning in self._warned
            self._warned.add(warning)
            return not known

    def clear(self) -> None:
        """Clear reports and warnings."""
        with self._lock:
            self._reports.clear()
            self._warned.clear()


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
