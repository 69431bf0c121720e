"""``torch.compile(model, backend="trtcache")``: the callable that Dynamo gets for a graph, its options and its report.

Calls run in engines where possible, and in eager torch otherwise.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import torch

from trtcache.cache import Cache
from trtcache.config.frozen import frozen_dataclass
from trtcache.config.units import field_names, parse_word, refuse_unknown
from trtcache.errors import (
    BuildForbiddenError,
    CanonicalizationError,
    ExportError,
    GuardError,
    InputError,
    PassError,
    SettingsError,
    TrainingError,
)
from trtcache.integrations.dynamo.calls import lift_tensors, number, value_of
from trtcache.integrations.dynamo.engines import GraphCompiler, GraphEngine
from trtcache.lowering.device_guard import keep_device_guard
from trtcache.settings import Settings, setting_names

if TYPE_CHECKING:
    from torch import fx

    from trtcache.config.backend_settings import Option
    from trtcache.runtime import Report

keep_device_guard()

log = logging.getLogger("trtcache.integrations.torch_compile")

# torch/_inductor/__init__.py, list_mode_options. The other modes use CUDA graphs, which packages do not support.
_MODES: Mapping[str, Mapping[str, Option]] = {
    "default": {},
    "max-autotune-no-cudagraphs": {"max_autotune": True, "coordinate_descent_tuning": True},
}

_TRAINING = ("warn", "eager", "error")

MOST_ENGINES = 16
"""Maximum engines of one graph for numbers that cannot be inputs. Other numbers run in eager torch."""

MOST_REASONS = 100
"""Maximum reasons for eager calls in one graph's report: each may contain an argument's shape."""

_WHERE = re.compile(r'File "([^"]+)", line \d+, in (\S+)')

CallHandler = Callable[[Sequence[Any]], Any]

_UNSUPPORTED = (CanonicalizationError, ExportError, PassError)
"""Errors of graphs that cannot have an engine. A failed build is not among them: it raises."""


@frozen_dataclass
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
        if self.name is not None and not isinstance(self.name, str):
            raise SettingsError("options['name']", f"expected a string, got {self.name!r}")
        parse_word(self.training, _TRAINING, "options['training']")

    @classmethod
    def of(cls, options: Mapping[str, object] | None, mode: str | None) -> Options:
        """Parse the user's options.

        Raises:
            SettingsError: an option or the mode is unknown (with the nearest one), or a value is invalid.
        """
        if mode is not None:
            parse_word(mode, list(_MODES), "mode")
        if options is not None and not isinstance(options, Mapping):
            raise SettingsError("options", f"expected a mapping of names to values, got {options!r}")
        given = dict(options or {})
        ours = [name for name in field_names(cls) if name != "settings"]
        refuse_unknown(given, [*ours, *setting_names(given.keys() - {*ours})], "options")
        chosen = {name: given.pop(name) for name in ours if name in given}
        if mode:
            given["inductor"] = {**_MODES[mode]}
        return cls(settings=Settings.of(given), **chosen)  # type: ignore[arg-type]  # values are checked where they are used


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


__all__ = ["GraphReport", "backend", "clear_reports", "reports"]

# torch.compile returns no report to its caller, so the last thousand are kept, and the warnings that were given.
_REPORTS: deque[GraphReport] = deque(maxlen=1000)
_WARNED: set[str] = set()
_LOCK = threading.Lock()


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
    cache = chosen.cache if isinstance(chosen.cache, Cache) else Cache(chosen.cache)
    return CompiledGraph(graph_module, example_inputs, options=chosen, cache=cache)


def reports() -> tuple[GraphReport, ...]:
    """Return the report of each graph that this process compiled, the oldest first."""
    with _LOCK:
        return tuple(_REPORTS)


def clear_reports() -> None:
    """Clear the reports and the record of warnings."""
    with _LOCK:
        _REPORTS.clear()
        _WARNED.clear()


class CompiledGraph:
    """Run the calls of one graph.

    An engine is compiled at once for the call that Dynamo traced, and later one for each new value of a number that is
    no input's size. Calls without an engine run in eager torch, with one warning that has the reason.
    """

    # Dynamo wraps what a backend returns in torch._dynamo.disable, which annotates calls in a global of torch.fx while
    # any thread exports, and not a function of this name. With the annotation, a call beside another thread's export
    # raised KeyError: 'custom' (torch 2.13).
    __name__ = "__torch_dispatch__"

    def __init__(
        self,
        graph_module: fx.GraphModule,
        examples: Sequence[Any],
        *,
        options: Options,
        cache: Cache,
    ) -> None:
        """Compile the first engine.

        Raises:
            TrainingError: it is a training graph, and ``training`` is ``error``.
        """
        name = options.name or _name(graph_module)
        graph_module, self._own_tensors = lift_tensors(graph_module)
        placeholders = graph_module.graph.find_nodes(op="placeholder")
        self.report = GraphReport(name)
        with _LOCK:
            _REPORTS.append(self.report)
        self._graph_module = graph_module
        self._cache, self._options = cache, options
        self._compiler = GraphCompiler(graph_module, placeholders, options, cache, name, self.report)
        self._numbers: tuple[int, ...] = ()
        self._fixed: tuple[tuple[int, int], ...] = ()
        self._handlers: dict[tuple[object, ...], CallHandler] = {}
        self._lock = threading.Lock()
        # A dynamic number has its current value; reading it in another way would add a Dynamo guard.
        call = [one.node.hint if isinstance(one, torch.SymInt) else one for one in examples]
        call += self._own_tensors
        why = why_training(graph_module, placeholders, call)
        if not why:
            self._handler(call)
            return
        refused = TrainingError(name, why)
        if options.training == "error":
            raise refused
        if options.training == "warn":
            self._fall_back(str(refused))
        else:
            self.report.eager.append(why)
        self._handlers[()] = self._eager

    def __call__(self, *args: Any) -> Any:
        """Return what the graph returns."""
        args += self._own_tensors
        handler = self._handlers.get(self._key(args)) or self._handler(args)
        try:
            return handler(args)
        except InputError as error:
            self._fall_back(_why_refused(error))
            return self._eager(args)

    def _key(self, args: Sequence[Any]) -> tuple[object, ...]:
        if not self._numbers and not self._fixed:
            return ()
        # As text 0.0 differs from -0.0, and NaN equals itself.
        numbers = [repr(number(args[place])) for place in self._numbers]
        return (*numbers, *(args[place].shape[dim] for place, dim in self._fixed))

    def _handler(self, args: Sequence[Any]) -> CallHandler:
        """Return the handler for calls like this one; create it on first use."""
        with self._lock:
            known = self._handlers.get(self._key(args))
            if known is not None:
                return known
            if len(self._handlers) >= MOST_ENGINES:  # further numbers, possibly millions, are not recorded
                self._fall_back(
                    f"it has {MOST_ENGINES} engines for numbers that are not an input's size, and there are more"
                )
                return self._eager
            handler: CallHandler = self._eager
            try:
                handler = engine = GraphEngine(self._compiler, args, self._fall_back)
            except _UNSUPPORTED as error:
                text = error.why if isinstance(error, ExportError) else str(error)  # torch's messages are long
                lines = (line.strip() for line in text.splitlines() if line.strip())
                self._fall_back(next(lines, type(error).__name__))
            else:
                if engine.numbers != self._numbers or not set(engine.fixed) <= set(self._fixed):
                    self._handlers.clear()  # their keys lack numbers
                    self._numbers, self._fixed = engine.numbers, tuple(dict.fromkeys((*self._fixed, *engine.fixed)))
            self._handlers[self._key(args)] = handler
            return handler

    def _eager(self, args: Sequence[Any]) -> Any:
        return self._graph_module(*args)

    def _fall_back(self, why: str) -> None:
        """Record that calls run in eager torch, and warn once.

        Raises:
            BuildForbiddenError: builds are forbidden, which implies that engines are expected.
        """
        if self._cache.config.forbid_build:
            raise BuildForbiddenError(self._options.backend, "", str(self._cache.config.root), why)
        if why in self.report.eager or len(self.report.eager) >= MOST_REASONS:
            return
        self.report.eager.append(why)
        warning = f"{self.report.name}: {why}"
        with _LOCK:
            is_new = warning not in _WARNED
            _WARNED.add(warning)
        log.log(logging.WARNING if is_new else logging.INFO, "%s runs in eager torch: %s", self.report.name, why)


def _why_refused(error: InputError) -> str:
    """Return why an engine refused a call; without the call's sizes, each of which would be a reason of its own."""
    if isinstance(error, GuardError) and error.where == "sizes":
        return f"its engine is compiled for {error.expected}; torch.compile(dynamic=False) has one for each size"
    return str(error)


def _name(graph_module: fx.GraphModule) -> str:
    """Return the file and function where the graph starts, ``modeling_bert.forward``, else a module's class."""
    nodes = [node for node in graph_module.graph.nodes if node.op not in {"placeholder", "output"}]
    for node in nodes:
        if where := _WHERE.search(node.meta.get("stack_trace") or ""):
            return f"{PurePath(where[1]).stem}.{where[2]}"
    classes = [kind for node in nodes for _, kind in (node.meta.get("nn_module_stack") or {}).values()]
    return next((kind.__name__ for kind in classes if isinstance(kind, type)), "torch.compile")


def why_training(graph_module: fx.GraphModule, placeholders: Sequence[fx.Node], call: Sequence[Any]) -> str:
    """Return why a graph is for training, or an empty string.

    Parameters that require gradients are not enough: under ``no_grad``, or if results are integers, eager torch records
    nothing for a backward pass either. A view of one requires gradients there too; a value with a
    ``grad_fn`` comes from code that enabled gradients inside the graph.
    """

    def requires_grad(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.requires_grad

    outputs: Any = graph_module.graph.output_node().args[0]
    given = [value_of(node) for node in placeholders]
    try:
        made = [
            value
            for value in map(value_of, outputs)
            if requires_grad(value)
            and (torch.is_grad_enabled() or value.grad_fn is not None)
            and not any(value is one for one in given)
        ]
    except RuntimeError as error:  # a view of a parameter that was made without gradients, and changed in place
        return f"torch cannot say whether a result requires gradients: {error}"
    if made:
        return f"{len(made)} of its results require gradients"
    changed = [one for value, one in zip(given, call, strict=True) if requires_grad(value) and not requires_grad(one)]
    return f"it makes {len(changed)} of its arguments require gradients" if changed else ""
