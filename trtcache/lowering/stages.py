"""The stages of lowering: export, decompositions, the pass pipeline, numbered slots; and what stays in torch by name.

Modules are matched by the module stack that ``torch.export`` records at each operator. A selected operator is recorded
in that stack as well, before decompositions, so that its decomposition is marked; those that torch can leave whole are
not decomposed. Passes ignore marked operators.
"""

from __future__ import annotations

import difflib
import logging
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any

import torch

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import PassError, PostconditionError, PreconditionError, SettingsError, did_you_mean
from trtcache.lowering.capture import export
from trtcache.lowering.decompositions import decompose, restore_graph
from trtcache.lowering.devices import move_weights
from trtcache.lowering.guards import ExportGuards
from trtcache.lowering.marked_graph import mark, mark_views, result_views
from trtcache.lowering.passes import Pass, PassResult, installed_passes, load_third_party, spec
from trtcache.lowering.program import LoweredProgram, finish, listing
from trtcache.lowering.rewrites.arithmetic import Arithmetic, Casts, Commutative
from trtcache.lowering.rewrites.cleanup import CommonSubexpressions, DeadCode, DeadStores, NoOps
from trtcache.lowering.rewrites.constants import Attributes, Factories, FoldConstants, Loops
from trtcache.lowering.rewrites.dimensions import Dimensions, Reductions
from trtcache.lowering.rewrites.indexing import Concatenations, Lookups, Slices, Tuples
from trtcache.lowering.rewrites.linear import BatchNorm, Linear
from trtcache.lowering.rewrites.optional import Autocast, Unpack
from trtcache.lowering.rewrites.shapes import Shapes, Tile
from trtcache.lowering.rewrites.sizes import Assertions, CanonicalSizes, Guards
from trtcache.lowering.rewriting import TorchExecuted, is_ordered
from trtcache.lowering.unguarded_sizes import assert_numbers

if TYPE_CHECKING:
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
    views = result_views(exported)
    forced = torch_executed or TorchSelection()
    with forced.annotate(exported.graph), restore_graph(exported.graph_module):
        assert_numbers(exported.graph)
        decomposed = decompose(exported, keep, forced.keeps)
    guards = guards.with_small_sizes(exported, decomposed)
    exported = decomposed
    seconds["decompose"] = time.perf_counter() - start
    start = time.perf_counter()
    marked = mark(exported)
    forced.mark(marked.graph_module.graph)
    # Our passes, then the backend's and those of other distributions.
    first, last = default_pipeline(), last_pipeline(installed_passes(), unpack, autocast)
    runs = first.run(marked.graph_module, trace=trace)
    try:
        runs += last.run(marked.graph_module, trace=trace)
    except PassError as error:
        error.before = (*(run.spec for run in runs), *error.before)
        raise
    restore_targets(marked.graph_module.graph)
    move_weights(marked.graph_module, name or label)
    mark_views(marked.graph_module.graph, views)
    specs = (*first.spec, *last.spec, *(f"keep@1{{{operator}}}" for operator in sorted(keep)))
    program = finish(exported, marked, name=name or label, pipeline=specs, runs=runs, guards=guards)
    seconds["lower"] = time.perf_counter() - start
    program.seconds.update(seconds)
    return program


_OPERATORS = (torch._ops.OpOverload, torch._ops.HigherOrderOperator)
_NOTE = "trtcache.torch_executed:"
_CALL_NUMBER = re.compile(r"@\d+$")  # torch.export numbers further calls of a module: "lin@1"
_VARIABLE = re.compile(r"^[LG]\['\w+'\]\.?")  # torch.compile adds the variable with the model: "L['self'].lin"


@frozen_dataclass
class TorchSelection:
    """Names of what stays in torch.

    Attributes:
        modules: paths of modules (``encoder.layer.0``, or a list of them: ``encoder.layer``) and names of their classes
            (``torch.nn.modules.activation.GELU``), including submodules.
        operators: operators (``aten.softmax.int``), or all overloads of one (``aten.softmax``, ``mylib::scale``), as
            in the model or in the lowered program.
        is_subgraph: whether the program is one of several graphs of a model: an unmatched name is then a warning.
    """

    modules: Collection[str] = ()
    operators: Collection[str] = ()
    is_subgraph: bool = False
    _seen: set[str] = field(default_factory=set)

    @contextmanager
    def annotate(self, graph: fx.Graph) -> Iterator[None]:
        """Record selected operators in the module stacks of an exported graph in the block.

        Raises:
            SettingsError: a selected module is called within a block whose operators lose their modules.
        """
        if self.modules and (hidden := _hidden_modules(graph) & set(self.modules)):
            why = "it is called within torch.autocast, torch.no_grad or torch.cond in forward: use torch_executed_ops"
            raise SettingsError(f"settings.torch_executed_modules {min(hidden)!r}", why)
        if not self.operators:
            yield
            return
        stacks: dict[fx.Node, Any] = {}
        for node in graph.nodes:
            self._seen.update(operator_names(node.target))
            if name := self._match(node.target):
                stacks[node] = node.meta.get("nn_module_stack")
                node.meta["nn_module_stack"] = {**(stacks[node] or {}), _NOTE: ("", f"{_NOTE}{name}")}
        try:
            yield
        finally:
            for node, stack in stacks.items():
                if stack is None:
                    del node.meta["nn_module_stack"]
                else:
                    node.meta["nn_module_stack"] = stack

    def keeps(self, operator: object) -> bool:
        """Return whether an operator must not be decomposed."""
        return self._match(operator) is not None

    def mark(self, graph: fx.Graph) -> None:
        """Mark selected operators in a decomposed graph, and hide them from passes.

        The mark, ``meta["torch_executed"]``, is the reason as text. Sizes are not marked, and operators with side
        effects are not hidden.

        Raises:
            SettingsError: no operator or module has a selected name.
        """
        if not self.modules and not self.operators:
            return
        modules = set[str]()
        for node in graph.nodes:
            names = set(_modules(node))
            modules |= names
            self._seen.update(operator_names(node.target))
            module = next((name for name in self.modules if name in names), None)
            operator = self._match(node.target) or next(
                (one[len(_NOTE) :] for one in names if one.startswith(_NOTE)), None
            )
            value = node.meta.get("val")
            is_number = isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat))
            if (module or operator) and isinstance(node.target, _OPERATORS) and value is not None and not is_number:
                reason = f"torch_executed_modules has {module}" if module else f"torch_executed_ops has {operator}"
                node.meta["torch_executed"] = reason
                if not is_ordered(node):
                    node.target = TorchExecuted(node.target)
        self._check("torch_executed_modules", set(self.modules), {one for one in modules if not one.startswith(_NOTE)})
        self._check("torch_executed_ops", {name.replace("::", ".") for name in self.operators}, self._seen)

    def _check(self, setting: str, wanted: set[str], known: set[str]) -> None:
        for name in sorted(wanted - known):
            error = SettingsError(f"settings.{setting} {name!r}", did_you_mean(name, sorted(known)))
            if not self.is_subgraph:
                raise error
            log.warning("nothing with this name stays in torch, unless another graph contains it: %s", error)

    def _match(self, operator: object) -> str | None:
        if not self.operators:
            return None
        found = operator_names(operator)
        return next((name for name in self.operators if name.replace("::", ".") in found), None)


def operator_names(operator: object) -> tuple[str, ...]:
    """Return an operator's names: ``aten.softmax.int``, and for all overloads ``aten.softmax``."""
    if isinstance(operator, torch._ops.OpOverload):
        return str(operator), str(operator).rpartition(".")[0]
    return (str(operator),) if isinstance(operator, torch._ops.HigherOrderOperator) else ()


def restore_targets(graph: fx.Graph) -> None:
    """Restore the targets of marked operators; the marks stay in ``meta["torch_executed"]``."""
    for node in graph.nodes:
        if isinstance(node.target, TorchExecuted):
            node.target = node.target.operator


def _hidden_modules(graph: fx.Graph) -> set[str]:
    """Return the modules that are called within nested graphs, such as those of ``torch.autocast`` blocks.

    torch inlines these graphs, and their operators get the modules of the caller (torch 2.13).
    """
    hidden = set[str]()
    for call in graph.nodes:
        for node in call.all_input_nodes if call.op == "call_function" else ():
            part = getattr(graph.owning_module, str(node.target), None) if node.op == "get_attr" else None
            if (nested := getattr(part, "graph", None)) is not None:
                inside = {name for one in nested.nodes for name in _modules(one)}
                hidden |= (inside | _hidden_modules(nested)) - set(_modules(call))
    return hidden


def _modules(node: fx.Node) -> Iterator[str]:
    for path, kind in node.meta.get("nn_module_stack", {}).values():
        names = _VARIABLE.sub("", _CALL_NUMBER.sub("", path)).split(".")
        yield from (".".join(names[:end]) for end in range(1, len(names) + 1) if names[0])
        yield kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
