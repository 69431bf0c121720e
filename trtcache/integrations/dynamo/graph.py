"""The callable that Dynamo gets for a graph: engines where there can be some, and eager torch for the rest."""

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
from trtcache.integrations.dynamo.arguments import number
from trtcache.integrations.dynamo.engines import Workshop
from trtcache.integrations.dynamo.gradients import training

if TYPE_CHECKING:
    from torch import fx

    from trtcache.cache import Cache
    from trtcache.integrations.dynamo.options import Options
    from trtcache.integrations.dynamo.reports import Reports

log = logging.getLogger("trtcache.integrations.torch_compile")

MOST_ENGINES = 16
"""Engines that one graph has for numbers it cannot take as inputs. Other numbers run in eager torch."""

MOST_REASONS = 100
"""Reasons to leave calls to eager torch that one graph's report has: an argument's shape may be in each."""

_WHERE = re.compile(r'File "([^"]+)", line \d+, in (\S+)')

Way = Callable[[Sequence[Any]], Any]

_UNTAKEN = (CanonicalizationError, ExportError, PassError)
"""Errors that say of a graph that no engine can be had of it. A failed build is none of them: it raises."""


class CompiledGraph:
    """Runs the calls of one graph.

    An engine is made at once for the call that Dynamo traced, and later one for each other value of a number that no
    input's size tells. What no engine can be had for runs in eager torch, with one warning that says why.
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
        """Make the first engine.

        Raises:
            TrtcacheError: as ``trtcache.compile``, where the graph is not one that eager torch should run instead.
        """
        placeholders = graph_module.graph.find_nodes(op="placeholder")
        name = options.name or _name(graph_module)
        self.report = reports.new(name)
        self._graph_module = graph_module
        self._cache, self._options, self._reports = cache, options, reports
        self._workshop = Workshop(graph_module, placeholders, options, cache, name, self.report)
        self._numbers: tuple[int, ...] = ()
        self._fixed: tuple[tuple[int, int], ...] = ()
        self._ways: dict[tuple[object, ...], Way] = {}
        self._lock = threading.Lock()
        call = [_known(one) for one in examples]
        if why := training(graph_module, placeholders, call):
            self._refuse_training(why)
            self._ways[()] = self._eager
        else:
            self._way(call)

    def __call__(self, *args: Any) -> Any:
        """Return what the graph returns."""
        way = self._ways.get(self._key(args)) or self._way(args)
        try:
            return way(args)
        except InputError as error:
            self._leave(str(error))
            return self._eager(args)

    def _key(self, args: Sequence[Any]) -> tuple[object, ...]:
        if not self._numbers and not self._fixed:
            return ()
        # As text 0.0 is not -0.0, and a number that is none is itself.
        numbers = [repr(number(args[place])) for place in self._numbers]
        return (*numbers, *(args[place].shape[dim] for place, dim in self._fixed))

    def _way(self, args: Sequence[Any]) -> Way:
        """Return how calls like this one run, after finding out."""
        with self._lock:
            known = self._ways.get(self._key(args))
            if known is not None:
                return known
            if len(self._ways) >= MOST_ENGINES:  # nothing is kept of further numbers, of which there may be millions
                self._leave(f"it has {MOST_ENGINES} engines for numbers that are no input's size, and there are more")
                return self._eager
            way = self._found(args)
            self._ways[self._key(args)] = way
            return way

    def _found(self, args: Sequence[Any]) -> Way:
        try:
            engine = self._workshop.engine(args)
        except _UNTAKEN as error:
            self._leave(_said(error))
            return self._eager
        if engine.numbers != self._numbers or not set(engine.fixed) <= set(self._fixed):
            self._ways.clear()  # by keys that say too little
            self._numbers, self._fixed = engine.numbers, tuple(dict.fromkeys((*self._fixed, *engine.fixed)))
        return engine

    def _eager(self, args: Sequence[Any]) -> Any:
        return self._graph_module(*args)

    def _refuse_training(self, why: str) -> None:
        refused = TrainingError(self.report.name, why)
        if self._options.training == "error":
            raise refused
        if self._options.training == "warn":
            self._leave(str(refused))
        else:
            self.report.eager.append(why)

    def _leave(self, why: str) -> None:
        """Leave calls to eager torch, and say so once.

        Raises:
            BuildForbiddenError: builds are forbidden; who forbids them counts on having engines.
        """
        if self._cache.config.forbid_build:
            raise BuildForbiddenError(self._options.backend, "", str(self._cache.config.root), why)
        if why in self.report.eager or len(self.report.eager) >= MOST_REASONS:
            return
        self.report.eager.append(why)
        is_news = self._reports.is_news(f"{self.report.name}: {why}")
        log.log(logging.WARNING if is_news else logging.INFO, "%s runs in eager torch: %s", self.report.name, why)


def _known(example: Any) -> Any:
    """Return a number that varies as what it is now, without a guard of Dynamo's on it."""
    return example.node.hint if isinstance(example, torch.SymInt) else example


def _said(error: Exception) -> str:
    """Return an error as one line; torch explains at length what its graphs are not."""
    text = error.why if isinstance(error, ExportError) else str(error)
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)


def _name(graph_module: fx.GraphModule) -> str:
    """Return the file and the function where the graph begins, ``modeling_bert.forward``, else a module's class."""
    nodes = [node for node in graph_module.graph.nodes if node.op not in {"placeholder", "output"}]
    for node in nodes:
        if where := _WHERE.search(node.meta.get("stack_trace") or ""):
            return f"{PurePath(where[1]).stem}.{where[2]}"
    classes = [kind for node in nodes for _, kind in (node.meta.get("nn_module_stack") or {}).values()]
    return next((kind.__name__ for kind in classes if isinstance(kind, type)), "torch.compile")
