"""The pass pipeline: runs passes in order and checks their contracts."""

from __future__ import annotations

import difflib
import logging
import time
from typing import TYPE_CHECKING, Any

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import PassError, PostconditionError, PreconditionError
from trtcache.lowering.passes import Pass, PassResult, load_third_party, spec
from trtcache.lowering.program import listing
from trtcache.lowering.rewrites.arithmetic import Arithmetic, Casts, Commutative
from trtcache.lowering.rewrites.cleanup import CommonSubexpressions, DeadCode, DeadStores, NoOps
from trtcache.lowering.rewrites.constants import Attributes, Factories, FoldConstants, Loops
from trtcache.lowering.rewrites.dimensions import Dimensions, Reductions
from trtcache.lowering.rewrites.indexing import Concatenations, Lookups, Slices, Tuples
from trtcache.lowering.rewrites.linear import BatchNorm, Linear
from trtcache.lowering.rewrites.optional import Autocast, Unpack
from trtcache.lowering.rewrites.shapes import Shapes, Tile
from trtcache.lowering.rewrites.sizes import Assertions, CanonicalSizes, Guards

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from importlib.metadata import EntryPoint

    from torch import fx

log = logging.getLogger("trtcache.lowering")


@frozen_dataclass
class PassRun:
    """The run of one pass.

    Attributes:
        spec: the pass's spec string in the key.
        modified: whether it modified the graph.
        duration_s: its duration, including the contract checks.
        diff: the change as a unified diff of the graph's text; only if requested.
    """

    spec: str
    modified: bool
    duration_s: float
    diff: str = ""

    def __str__(self) -> str:
        what = "changed the graph" if self.modified else "changed nothing"
        return f"{self.spec} {what} in {self.duration_s * 1e3:.2f} ms" + (f"\n{self.diff}" if self.diff else "")


@frozen_dataclass
class Pipeline:
    """Passes in the order in which they run.

    After a round in which a pass of ``again_after`` modified the graph they run again, up to ``rounds`` times; a pass
    is skipped while nothing has changed since its last run. The graph is linted after each third-party pass, and once
    after our own, whose tests lint it after each: it costs as much as two passes. With ``trace`` it is linted after
    each.
    """

    passes: tuple[Pass, ...]
    rounds: int = 1
    again_after: frozenset[str] = frozenset()

    @property
    def spec(self) -> list[str]:
        """The spec strings of the passes in the key, and when they run again."""
        again = [f"again@{self.rounds}{{after={'+'.join(sorted(self.again_after))}}}"] if self.rounds > 1 else []
        return [*(spec(lowering_pass) for lowering_pass in self.passes), *again]

    def run(self, graph_module: fx.GraphModule, *, trace: bool = False) -> tuple[PassRun, ...]:
        """Run the passes on a lowered graph, in place.

        Args:
            graph_module: the graph.
            trace: record what each pass changed. Logging at DEBUG does so too.

        Raises:
            PreconditionError: a pass cannot handle the graph from those before it.
            PostconditionError: a pass violated its postcondition, or its graph is malformed.
            PassError: a pass raised; its exception is the cause.
        """
        runs: list[PassRun] = []
        trace = trace or log.isEnabledFor(logging.DEBUG)
        text = listing(graph_module.graph) if trace else []
        changes, seen = 0, [-1] * len(self.passes)
        for _ in range(self.rounds):
            again = False
            for place, lowering_pass in enumerate(self.passes):
                if seen[place] == changes:
                    continue  # nothing has changed since its last run
                before = tuple(run.spec for run in runs)
                start = time.perf_counter()
                try:
                    modified = _run(lowering_pass, graph_module, before, lint=trace or not _is_ours(lowering_pass))
                except PassError as error:
                    error.graph = "\n".join(listing(graph_module.graph))
                    error.add_note(error.graph)
                    raise
                duration_s, diff = time.perf_counter() - start, ""
                is_rerun, changes = seen[place] >= 0, changes + modified
                seen[place] = changes
                again = again or (modified and lowering_pass.name in self.again_after)
                if is_rerun and not modified:
                    continue
                if trace:
                    earlier, text, name = text, listing(graph_module.graph), f"after {lowering_pass.name}"
                    diff = "\n".join(difflib.unified_diff(earlier, text, "before", name, lineterm=""))
                runs.append(PassRun(spec(lowering_pass), modified, duration_s, diff))
                log.debug("%s", runs[-1])
            if not again:
                break
        if changes:
            _lint(graph_module, runs[-1].spec, tuple(run.spec for run in runs[:-1]))
        return tuple(runs)


def _run(lowering_pass: Pass, graph_module: fx.GraphModule, before: tuple[str, ...], *, lint: bool) -> bool:
    if why := _call_pass(lowering_pass, lowering_pass.requires, graph_module, before):
        raise PreconditionError(lowering_pass.name, before, why)
    size, text = len(graph_module.graph.nodes), None if _is_ours(lowering_pass) else listing(graph_module.graph)
    result = _call_pass(lowering_pass, lowering_pass, graph_module, before)
    if not isinstance(result, PassResult):
        raise PostconditionError(lowering_pass.name, before, f"returned {type(result).__name__}, not a PassResult")
    if result.graph_module is not graph_module:
        raise PostconditionError(lowering_pass.name, before, "returned another graph module than it was given")
    if not result.modified and len(graph_module.graph.nodes) != size:
        raise PostconditionError(lowering_pass.name, before, "reported no change, but the number of nodes changed")
    why = _call_pass(lowering_pass, lowering_pass.ensures, graph_module, before)
    if not why and text is not None:  # a third-party pass; ours are tested for these
        calls = (node for node in graph_module.graph.nodes if node.op == "call_function")
        if not result.modified and listing(graph_module.graph) != text:
            why = "reported no change, but changed the graph"
        elif bare := next((node.name for node in calls if "val" not in node.meta), None):
            why = f"gave {bare} no meta['val']"
    if why:
        raise PostconditionError(lowering_pass.name, before, why)
    if result.modified and lint:
        _lint(graph_module, lowering_pass.name, before)
    return result.modified


def _call_pass(
    lowering_pass: Pass,
    question: Callable[[fx.GraphModule], Any],
    graph_module: fx.GraphModule,
    before: tuple[str, ...],
) -> Any:
    try:
        return question(graph_module)
    except Exception as error:
        raise PassError(lowering_pass.name, before, f"raised {type(error).__name__}: {error}") from error


def _lint(graph_module: fx.GraphModule, name: str, before: tuple[str, ...]) -> None:
    try:
        graph_module.graph.lint()
    except (RuntimeError, ValueError, AttributeError) as error:
        raise PostconditionError(name, before, f"the graph is not well formed: {error}") from error


def _is_ours(lowering_pass: Pass) -> bool:
    return type(lowering_pass).__module__.startswith("trtcache.lowering.")


def default_pipeline() -> Pipeline:
    """Return the passes that every program goes through."""
    return Pipeline(
        (
            *(Assertions(), Attributes(), DeadStores(), DeadCode(), Loops()),
            *(Tuples(), NoOps(), Casts(), Tile(), Factories(), Dimensions(), Arithmetic(), Lookups()),
            *(Slices(), CanonicalSizes(), Shapes(), Reductions(), Concatenations()),
            *(DeadCode(), Linear(), BatchNorm(), Guards(), FoldConstants(), DeadCode()),
            *(Commutative(), CommonSubexpressions()),
        ),
        rounds=4,
        # What these rewrite needs the other passes again; a second round on every graph would cost 3 ms.
        again_after=frozenset({"tuples", "concatenations", "linear", "batch_norm"}),
    )


def last_pipeline(
    points: Collection[EntryPoint], unpack: Collection[str], autocast: Autocast | None = None
) -> Pipeline:
    """Return the passes that run after ours: autocast, unpacking for a backend, and those of other distributions."""
    ours: tuple[Pass, ...] = (autocast, Casts()) if autocast else ()
    ours += (Unpack(tuple(sorted(unpack))),) if unpack else ()
    taken = {one.name for one in (*default_pipeline().passes, Unpack(), Autocast())}
    passes_ = (*ours, *load_third_party(points, taken))
    return Pipeline((*passes_, CommonSubexpressions(), DeadCode()) if passes_ else ())
