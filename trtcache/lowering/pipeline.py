"""Runs passes in order and holds each one to its contract."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trtcache.errors import PassError, PostconditionError, PreconditionError
from trtcache.lowering.assertions import Assertions
from trtcache.lowering.batch_norm import BatchNorm
from trtcache.lowering.common_subexpressions import CommonSubexpressions
from trtcache.lowering.constants import FoldConstants
from trtcache.lowering.dead_code import DeadCode
from trtcache.lowering.dead_stores import DeadStores
from trtcache.lowering.passes import Pass, spec

if TYPE_CHECKING:
    from torch import fx


@dataclass(frozen=True, slots=True)
class PassRun:
    """What one pass did: its spec, whether it changed the graph, and how long it took."""

    spec: str
    modified: bool
    duration_s: float


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Passes in the order in which they run."""

    passes: tuple[Pass, ...]

    @property
    def spec(self) -> list[str]:
        """The passes as they stand in the key."""
        return [spec(one) for one in self.passes]

    def run(self, graph_module: fx.GraphModule) -> tuple[PassRun, ...]:
        """Run the passes over a lowered graph, in place.

        Raises:
            PreconditionError: a pass cannot take the graph that those before it made.
            PostconditionError: a pass returned a graph that breaks its promise, or that is not well formed.
            PassError: a pass raised; its exception is the cause.
        """
        runs: list[PassRun] = []
        for one in self.passes:
            before = tuple(run.spec for run in runs)
            start = time.perf_counter()
            modified = _run(one, graph_module, before)
            runs.append(PassRun(spec(one), modified, time.perf_counter() - start))
        return tuple(runs)


def _run(one: Pass, graph_module: fx.GraphModule, before: tuple[str, ...]) -> bool:
    if why := one.requires(graph_module):
        raise PreconditionError(one.name, before, why)
    size = len(graph_module.graph.nodes)
    try:
        result = one(graph_module)
    except Exception as error:
        raise PassError(one.name, before, f"raised {type(error).__name__}: {error}") from error
    if result.graph_module is not graph_module:
        raise PostconditionError(one.name, before, "returned another graph module than it was given")
    if not result.modified and len(graph_module.graph.nodes) != size:
        raise PostconditionError(one.name, before, "reported no change, but the number of nodes changed")
    if why := one.ensures(graph_module):
        raise PostconditionError(one.name, before, why)
    try:
        graph_module.graph.lint()
    except (RuntimeError, ValueError, AttributeError) as error:
        raise PostconditionError(one.name, before, f"the graph is not well formed: {error}") from error
    return result.modified


def default_pipeline() -> Pipeline:
    """Return the passes that every program goes through."""
    return Pipeline(
        (Assertions(), DeadStores(), DeadCode(), BatchNorm(), FoldConstants(), CommonSubexpressions(), DeadCode())
    )
