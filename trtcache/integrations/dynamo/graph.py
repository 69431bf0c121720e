"""The callable that Dynamo gets for a graph: engines where possible, eager torch for the rest."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import torch

from trtcache.errors import (
    BuildForbiddenError,
    CanonicalizationError,
    ExportError,
    InputError,
    PassError,
    TrainingError,
)
from trtcache.integrations.dynamo.calls import number, value_of
from trtcache.integrations.dynamo.engines import GraphCompiler, GraphEngine

if TYPE_CHECKING:
    from torch import fx

    from trtcache.cache import Cache
    from trtcache.integrations.torch_compile import Options, Reports

log = logging.getLogger("trtcache.integrations.torch_compile")

MOST_ENGINES = 16
"""Maximum engines of one graph for numbers that cannot be inputs. Other numbers run in eager torch."""

MOST_REASONS = 100
"""Maximum reasons for eager calls in one graph's report: each may contain an argument's shape."""

_WHERE = re.compile(r'File "([^"]+)", line \d+, in (\S+)')

CallHandler = Callable[[Sequence[Any]], Any]

_UNSUPPORTED = (CanonicalizationError, ExportError, PassError)
"""Errors of graphs that cannot have an engine. A failed build is not among them: it raises."""


class CompiledGraph:
    """Run the calls of one graph.

    An engine is compiled at once for the call that Dynamo traced, and later one for each new value of a number that is
    no input's size. Calls without an engine run in eager torch, with one warning that has the reason.
    """

    def __init__(
        self,
        graph_module: fx.GraphModule,
        examples: Sequence[Any],
        *,
        options: Options,
        cache: Cache,
        reports: Reports,
    ) -> None:
        """Compile the first engine.

        Raises:
            TrainingError: it is a training graph, and ``training`` is ``error``.
        """
        placeholders = graph_module.graph.find_nodes(op="placeholder")
        name = options.name or _name(graph_module)
        self.report = reports.new(name)
        self._graph_module = graph_module
        self._cache, self._options, self._reports = cache, options, reports
        self._compiler = GraphCompiler(graph_module, placeholders, options, cache, name, self.report)
        self._numbers: tuple[int, ...] = ()
        self._fixed: tuple[tuple[int, int], ...] = ()
        self._handlers: dict[tuple[object, ...], CallHandler] = {}
        self._lock = threading.Lock()
        # A dynamic number has its current value; reading it in another way would add a Dynamo guard.
        call = [one.node.hint if isinstance(one, torch.SymInt) else one for one in examples]
        why = training(graph_module, placeholders, call)
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
        handler = self._handlers.get(self._key(args)) or self._handler(args)
        try:
            return handler(args)
        except InputError as error:
            self._fall_back(str(error))
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
                handler = engine = GraphEngine(self._compiler, args)
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
        is_news = self._reports.is_news(f"{self.report.name}: {why}")
        log.log(logging.WARNING if is_news else logging.INFO, "%s runs in eager torch: %s", self.report.name, why)


def _name(graph_module: fx.GraphModule) -> str:
    """Return the file and function where the graph starts, ``modeling_bert.forward``, else a module's class."""
    nodes = [node for node in graph_module.graph.nodes if node.op not in {"placeholder", "output"}]
    for node in nodes:
        if where := _WHERE.search(node.meta.get("stack_trace") or ""):
            return f"{PurePath(where[1]).stem}.{where[2]}"
    classes = [kind for node in nodes for _, kind in (node.meta.get("nn_module_stack") or {}).values()]
    return next((kind.__name__ for kind in classes if isinstance(kind, type)), "torch.compile")


def training(graph_module: fx.GraphModule, placeholders: Sequence[fx.Node], call: Sequence[Any]) -> str:
    """Return why a graph is for training, or an empty string.

    Parameters that require gradients are not enough: under ``no_grad``, or if results are integers, eager torch records
    nothing for a backward pass either. A view of one requires gradients there too, without effect; a value with a
    ``grad_fn`` comes from code that enabled gradients inside the graph.
    """

    def requires_grad(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.requires_grad

    outputs: Any = graph_module.graph.output_node().args[0]
    given = [value_of(node) for node in placeholders]
    made = [
        value
        for value in map(value_of, outputs)
        if requires_grad(value)
        and (torch.is_grad_enabled() or value.grad_fn is not None)
        and not any(value is one for one in given)
    ]
    if made:
        return f"{len(made)} of its results require gradients"
    changed = [one for value, one in zip(given, call, strict=True) if requires_grad(value) and not requires_grad(one)]
    return f"it makes {len(changed)} of its arguments require gradients" if changed else ""
