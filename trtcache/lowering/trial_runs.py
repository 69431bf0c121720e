"""Runs of a program's graph with other inputs: in other layouts, and with sizes of 0 and 1.

``torch.export`` assumes that each dynamic size is at least 2 while it traces, whatever its range (``Dim("batch")``
allows 0). Mostly the program is right for 0 and 1 as well, and a batch of one is the most common call; but ``squeeze``
keeps such a dimension in the program and drops it when it runs, and ``amax`` of no elements raises. So the exported
graph is run with fake tensors of these sizes, and each result must have the program's shape. Sizes for which it has
another, or for which an operator raises, become guards. The decomposed graph is run as well: decompositions of
``logsumexp`` and ``roll`` raise for sizes of 0 that these operators accept.

Some kernels reject tensors without elements, or crash the process (they divide by the length of a sequence, or read at
an index of an empty tensor), while their fake kernels accept them; these operators are listed below. Reductions that
have no value for an empty tensor (``max``) are run on real tensors.

In the program, ``reshape`` and ``contiguous`` copy; when they run with a size of 1, they may return the tensor itself.
A later write to one of the two is then visible in both, so such sizes are excluded as well.

The graph is run with inputs in other layouts as well. ``reshape``, ``contiguous`` and their like return a view or a
copy, depending on the layout of their input, and an in-place write to a view also changes the input. The program does
what the example's layout led to: an input in another layout is first copied into that layout. So the program could
change a tensor that eager torch leaves unchanged, or the reverse. Such inputs are accepted in the example's layout
only. Nothing is run if no write comes after such an operator.

A decision in Python, such as ``if not x.is_contiguous()``, is not in the graph, and no run notices it.
"""

from __future__ import annotations

import functools
import itertools
import logging
import operator
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.export.graph_signature import InputKind
from torch.fx.experimental.symbolic_shapes import ShapeEnv, guard_or_false
from torch.utils import _pytree as pytree

from trtcache.lowering import patch_attributes
from trtcache.lowering.rewriting import expression, is_mutating, makes_view, written_nodes
from trtcache.weights.slots import storage_id

if TYPE_CHECKING:
    from torch.export import ExportedProgram


_FAKE_TENSOR_LOG = logging.getLogger("torch._subclasses.fake_tensor")
_SMALL = (0, 1)
_REJECT_EMPTY = ("scaled_dot_product", "_scaled_dot_product", "upsample", "_upsample")
_RUN_FOR_REAL = frozenset(
    (
        *("max", "min", "aminmax", "argmax", "argmin", "amax", "amin", "median", "nanmedian", "mode", "kthvalue"),
        *("cummax", "cummin", "logcumsumexp", "max_pool1d", "sort", "topk"),
    )
)
_INDEXED = frozenset({"index", "_unsafe_index", "embedding"})
_SELECTING = frozenset({"select", "select_copy"})
_MOST_PAIRS = 4  # up to this many symbols are also tried in pairs: 24 trials for 4 symbols


def small_size_guards(
    program: ExportedProgram, decomposed: ExportedProgram, conditions: Sequence[Any] = ()
) -> list[Any]:
    """Return conditions, as sympy expressions, that exclude sizes of 0 and 1 that a program does not support.

    Each symbol is tried alone with the others at their example's sizes, each pair if there are few, and all at once.

    Args:
        program: an exported program.
        decomposed: the same program in core ATen operators.
        conditions: conditions checked on calls anyway, as sympy expressions. Trials satisfy them where possible.
    """
    hints = example_sizes(program)
    if not hints:
        return []
    writes = None  # of the run with the example's sizes
    if any(map(is_mutating, program.graph.nodes)):
        run = TrialRun(program, hints)
        writes = run.writes if succeeds(run) else None
    ranges = program.range_constraints
    symbols = [symbol for symbol in hints if symbol not in ranges or ranges[symbol].lower <= 2]
    excluded: list[dict[Any, int]] = []
    for trial in _trials(symbols):
        if any(one.items() <= trial.items() for one in excluded):
            continue
        sizes = _satisfying(trial, hints, conditions)
        runs = [] if sizes is None else [TrialRun(program, sizes, writes), TrialRun(decomposed, sizes)]
        if not all(map(succeeds, runs)):
            excluded.append(trial)
    differ = [[sympy.Ne(symbol, size, evaluate=False) for symbol, size in trial.items()] for trial in excluded]
    return [one[0] if len(one) == 1 else sympy.Or(*one, evaluate=False) for one in differ]


def example_sizes(program: ExportedProgram) -> dict[Any, int]:
    """Return the example's value of each symbol in the sizes of a program's inputs."""
    hints: dict[Any, int] = {}
    for node in program.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, torch.Tensor) else (value,):
            if isinstance(size, torch.SymInt):
                values = size.node.shape_env.backed_var_to_val
                hints |= {one: int(values[one]) for one in size.node.expr.free_symbols if one in values}
    return hints


def _satisfying(trial: Mapping[Any, int], hints: Mapping[Any, int], conditions: Sequence[Any]) -> dict[Any, int] | None:
    """Return sizes of all symbols that contain a trial's and satisfy the conditions.

    The other sizes are the example's, or equal to one of the trial's if a condition requires that; otherwise small
    sizes are searched. If none satisfy the conditions, calls with the trial's sizes hardly ever occur: the result is
    the trial's sizes with the example's for the rest, or None if the trial has all symbols.
    """
    others = [symbol for symbol in hints if symbol not in trial]
    candidates = [{**hints, **trial}, *({**dict.fromkeys(others, size), **trial} for size in set(trial.values()))]
    generator = random.Random(0)  # noqa: S311  # deterministic trials
    candidates += [
        {**{symbol: generator.randint(0, 12) for symbol in others}, **trial} for _ in range(200 if others else 0)
    ]
    for sizes in candidates:
        numbers = {symbol: sympy.Integer(size) for symbol, size in sizes.items()}
        try:
            if all(condition.xreplace(numbers) is not sympy.false for condition in conditions):
                return sizes
        except (ArithmeticError, AssertionError):  # a condition divides by a size of 0
            continue
    return candidates[0] if others else None


def _trials(symbols: Sequence[Any]) -> Iterator[dict[Any, int]]:
    """Yield assignments of small sizes, with few symbols first, so that a guard names no more than necessary."""
    for symbol, size in itertools.product(symbols, _SMALL):
        yield {symbol: size}
    if len(symbols) <= _MOST_PAIRS:
        for pair in itertools.combinations(symbols, 2):
            for sizes in itertools.product(_SMALL, repeat=2):
                yield dict(zip(pair, sizes, strict=True))
    if len(symbols) > 2:  # two are a pair
        for size in _SMALL:
            yield dict.fromkeys(symbols, size)


class TrialRun(fx.Interpreter):
    """Run a graph for given values of its symbols, and compare the shape of each result with the program's.

    Attributes:
        writes: for each node that writes, the names of the nodes that share the written memory: inputs and weights, and
            results that are used afterwards.
        differs: whether a write changed other nodes' memory than ``writes`` of the program says.
    """

    def __init__(
        self,
        program: ExportedProgram,
        sizes: Mapping[Any, int],
        writes: Mapping[str, frozenset[str]] | None = None,
        strides: Mapping[str, Callable[[Sequence[int]], Sequence[int]]] | None = None,
    ) -> None:
        """Prepare a run.

        Args:
            program: an exported program.
            sizes: the values of its symbols.
            writes: those of the program, to compare with.
            strides: for inputs by the names of their nodes, what returns the strides of a shape; by default the
                program's.
        """
        super().__init__(program.graph_module, garbage_collect_values=True)
        self.writes: dict[str, frozenset[str]] = {}
        self.differs = False
        self._sizes, self._expected_writes, self._strides = sizes, writes, strides or {}
        self._inputs = program.graph.find_nodes(op="placeholder")
        # Storage -> the nodes whose results are, or were, in it.
        self._sharing: defaultdict[int, list[fx.Node]] = defaultdict(list)
        self._empty: set[str] = set()

    def check(self) -> None:
        """Run the graph."""
        inputs = [_input(one.meta.get("val"), self._sizes, self._strides.get(one.name)) for one in self._inputs]
        functorch: Any = torch._C._functorch
        depth = functorch.get_dynamic_layer_stack_depth()
        try:
            self.run(*inputs, enable_io_processing=False)
        finally:
            if functorch.get_dynamic_layer_stack_depth() > depth:  # it has failed within a transform of torch.func
                functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
                with suppress(RuntimeError):  # which was not jvp
                    torch._C._exit_dual_level(level=0)

    def _check_write(self, node: fx.Node) -> None:
        """Record which results a write changes, and compare them with the program's."""
        written = {storage_id(one) for source in written_nodes(node) for one in _with_memory(self.env[source])}
        if not written:
            return
        sharing = (one for place in written for one in self._sharing[place])
        self.writes[node.name] = frozenset(one.name for one in sharing if one.op == "placeholder" or one in self.env)
        expected = None if self._expected_writes is None else self._expected_writes.get(node.name)
        if expected is not None and self.writes[node.name] != expected - self._empty:
            self.differs = True
            raise ValueError(f"{node.name} changes other tensors")

    def run_node(self, n: fx.Node) -> Any:
        """Run a node and check its result."""
        if n.op == "call_function" and is_mutating(n):
            self._check_write(n)
        result = self._run_node(n)
        if n.op != "output":
            for one in _with_memory(result):
                self._sharing[storage_id(one)].append(n)
            if any(_is_strided(one) and _is_empty(one) for one in pytree.tree_leaves(result)):
                self._empty.add(n.name)
        return result

    def _run_node(self, n: fx.Node) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        arguments = [one for one in pytree.tree_leaves(self.fetch_args_kwargs_from_env(n)) if _is_strided(one)]
        if arguments and not _accepts(n.target, arguments):
            raise ValueError(f"{n.name} takes no empty tensor")
        if _name(n.target) in _SELECTING and not _is_in_range(*self.fetch_args_kwargs_from_env(n)):
            raise ValueError(f"{n.name} selects beyond a dimension")
        if any(map(_is_empty, arguments)) and _name(n.target) in _RUN_FOR_REAL:
            _run_for_real(n.target, *self.fetch_args_kwargs_from_env(n))
        result = super().run_node(n)
        # Kernels of attention return a tuple; the first item is the output.
        if _name(n.target).startswith(_REJECT_EMPTY) and _is_empty(pytree.tree_leaves(result)[0]):
            raise ValueError(f"{n.name} does not support an empty result")
        if not _has_expected_shape(n.meta.get("val"), result, self._sizes):
            raise ValueError(f"{n.name} has another shape")
        return result


def _accepts(target: Any, arguments: Sequence[torch.Tensor]) -> bool:
    """Return whether an operator accepts such tensors, where its fake kernel does not check it.

    A non-empty index into no elements is out of range, whatever its value.
    """
    name = _name(target)
    first, *others = arguments
    if name.startswith(_REJECT_EMPTY):
        return not any(map(_is_empty, arguments))
    return not (name in _INDEXED and _is_empty(first) and others and not any(map(_is_empty, others)))


def _is_in_range(given: Sequence[Any], named: Mapping[str, Any]) -> bool:
    """Return whether an index is within its dimension, which the fake kernel of torch 2.11 does not check."""
    source, dimension, index = (*given, *named.values())
    size = source.shape[dimension]
    return not isinstance(index, int) or -size <= index < size


def _name(target: Any) -> str:
    return target._schema.name.removeprefix("aten::") if isinstance(target, torch._ops.OpOverload) else ""


def _run_for_real(target: Any, args: Any, kwargs: Any) -> None:
    """Run an operator on zeros with the shapes of fake tensors, some of which have no elements."""
    with unset_fake_temporarily():
        args, kwargs = pytree.tree_map_only(
            FakeTensor, lambda fake: torch.zeros(fake.shape, dtype=fake.dtype), (args, kwargs)
        )
        target(*args, **kwargs)


def _with_memory(value: object) -> list[torch.Tensor]:
    return [one for one in pytree.tree_leaves(value) if _is_strided(one) and not _is_empty(one)]


def _is_empty(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has no elements; sizes that depend on values, as of ``nonzero``, are unknown."""
    return guard_or_false(tensor.numel() == 0)


def _is_strided(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided


def _has_expected_shape(expected: Any, found: Any, sizes: Mapping[Any, int]) -> bool:
    if isinstance(expected, (list, tuple)):
        return len(expected) == len(found) and all(
            map(lambda one, other: _has_expected_shape(one, other, sizes), expected, found)
        )
    if isinstance(expected, torch.Tensor):
        return expected.dim() == found.dim() and all(
            map(lambda one, other: _has_expected_shape(one, other, sizes), expected.shape, found.shape)
        )
    if isinstance(expected, (int, torch.SymInt)) and type(expected) is not bool:
        value = _value(expected, sizes)
        return value is None or not isinstance(found, int) or value == found
    return True


def _value(size: Any, sizes: Mapping[Any, int]) -> int | None:
    """Return a size for values of its symbols; None if it depends on others, as that of ``nonzero`` does."""
    written = expression(size)
    if isinstance(written, int):
        return written
    if not written.free_symbols <= sizes.keys():
        return None
    value = written.xreplace({symbol: sympy.Integer(size) for symbol, size in sizes.items()})
    return int(value) if value.is_Integer else None


def succeeds(run: TrialRun) -> bool:
    """Return whether a run raises nothing."""
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
    try:
        # torch logs errors of fake tensors: mismatched sizes are expected here.
        with patch_attributes(_FAKE_TENSOR_LOG, disabled=True), mode, torch.no_grad():
            run.check()
    except Exception:  # noqa: BLE001  # an operator may raise anything for an unsupported size
        return False
    return True


def _input(expected: Any, sizes: Mapping[Any, int], strides_of: Callable[[Sequence[int]], Sequence[int]] | None) -> Any:
    if isinstance(expected, torch.SymInt):
        return _value(expected, sizes)
    if not isinstance(expected, FakeTensor):
        return expected
    shape = [size for size in (_value(size, sizes) for size in expected.shape) if size is not None and size >= 0]
    if len(shape) != expected.dim():
        raise ValueError("an input cannot have these sizes")
    if expected.layout != torch.strided:
        return torch.empty(shape, dtype=expected.dtype, device=expected.device)
    # The strides decide whether ``contiguous`` and ``reshape`` copy.
    if strides_of is not None:
        return torch.empty_strided(shape, strides_of(shape), dtype=expected.dtype, device=expected.device)
    strides = [stride for stride in (_value(stride, sizes) for stride in expected.stride()) if stride is not None]
    if len(strides) != expected.dim():
        raise ValueError("an input cannot have these strides")
    return torch.empty_strided(shape, strides, dtype=expected.dtype, device=expected.device)


_MOST_ORDERS = 24  # all of four dimensions
_MOST_RUNS = 96  # of single inputs; a run of a large language model takes 0.2 s
_GAPPED = -1


def layout_dependent_inputs(program: ExportedProgram) -> frozenset[int]:
    """Return the leaves of the inputs that an exported program takes only in the layout of the example."""
    if not any(may_be_copy for _, may_be_copy in _writes(program.graph)):
        return frozenset()
    sizes = example_sizes(program)
    example = TrialRun(program, sizes)
    if not succeeds(example):
        return frozenset()
    inputs = enumerate(input_nodes(program))
    leaves = {node.name: leaf for leaf, node in inputs if _is_strided(node.meta.get("val"))}

    def differs(names: Iterable[str], layout: int) -> bool | None:
        """Return whether a write changes other tensors than in the program; None if the run fails in another way."""
        run = TrialRun(program, sizes, example.writes, dict.fromkeys(names, functools.partial(_strides, layout)))
        return False if succeeds(run) else run.differs or None

    found: set[str] = set()
    for layout in (_GAPPED, *range(max(2, min(_MOST_ORDERS, _MOST_RUNS // max(1, len(leaves)))))):
        # Try all inputs together. If a write differs or the run fails, try each alone. If none differs alone, take all
        # if they differ together.
        rest = [name for name in leaves if name not in found]
        together = differs(rest, layout)
        if together is not False:  # ``view`` fails for some layouts; it does in eager torch, too
            found |= {name for name in rest if differs([name], layout)} or set(rest if together else ())
    return frozenset(leaves[name] for name in found)


def written_inputs(program: ExportedProgram) -> frozenset[int]:
    """Return the leaves of the inputs that an exported program may write to."""
    written = {node for sources, _ in _writes(program.graph) for node in sources}
    return frozenset(leaf for leaf, node in enumerate(input_nodes(program)) if node in written)


def _writes(graph: fx.Graph) -> Iterator[tuple[frozenset[fx.Node], bool]]:
    """Yield for each write the nodes whose memory it may change, and whether its target may be a copy of one of them.

    Operators that torch composes of others, such as ``reshape``, may return a copy or a view.
    """
    if not any(map(is_mutating, graph.nodes)):
        return
    sources: dict[fx.Node, frozenset[fx.Node]] = {}
    copied: set[fx.Node] = set()
    for node in graph.nodes:
        if is_mutating(node):
            memory = frozenset().union(*(sources[one] for one in written_nodes(node)))
            yield memory, not copied.isdisjoint(memory)
        shares = makes_view(node.target) or node.target is operator.getitem
        sources[node] = frozenset({node}).union(*(sources[one] for one in node.all_input_nodes if shares))
        is_composed = isinstance(node.target, torch._ops.OpOverload) and node.target._can_decompose()
        if shares and not is_mutating(node) and is_composed:
            copied |= sources[node]


def input_nodes(program: ExportedProgram) -> list[fx.Node]:
    """Return the placeholders of an exported program's inputs, in the order of leaves."""
    nodes = zip(program.graph.find_nodes(op="placeholder"), program.graph_signature.input_specs, strict=True)
    return [node for node, spec in nodes if spec.kind is InputKind.USER_INPUT]


def _strides(number: int, shape: Sequence[int]) -> list[int]:
    """Return strides of one of many layouts: dimensions in another order, or in this order with gaps."""
    orders = list(itertools.islice(itertools.permutations(range(len(shape))), _MOST_ORDERS))
    gap = number == _GAPPED
    strides, step = [0] * len(shape), 1 + gap
    for dim in reversed(orders[0 if gap else number % len(orders)]):
        strides[dim] = step
        step *= shape[dim] + gap
    return strides
