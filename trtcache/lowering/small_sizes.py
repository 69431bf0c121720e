"""Which sizes of 0 and 1 a program answers: found by running its graph with such sizes, on tensors without memory.

``torch.export`` takes each size that varies for at least 2 while it traces, whatever the range that it was given
(``Dim("batch")`` allows 0). Mostly the program is right for 0 and 1 as well, and a batch of one is the commonest call
of all; but ``squeeze`` keeps such a dimension in the program and drops it when it runs, and ``amax`` of nothing raises.
So the exported graph is run with fake tensors of these sizes, and each result must have the shape that the program
says. Sizes for which it has another, or for which an operator raises, become guards. The decomposed graph is run as
well: what ``logsumexp`` and ``roll`` are decomposed into raises for sizes of 0 that they take themselves.

Some kernels refuse tensors without elements, or end the process (a division by the length of a sequence, a read at an
index of nothing), and their fake kernels do not. For these there is a list. Reductions without a value for no elements
(``max``) are run on tensors of no elements.

``reshape`` and ``contiguous`` copy in the program and may return the tensor itself where a size is 1. Then what is
written into one of the two afterwards is in both, and sizes for which that is so are excluded as well.
"""

from __future__ import annotations

import itertools
import logging
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from trtcache.lowering.rewriting import expression

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch.export import ExportedProgram

_LOG = logging.getLogger("torch._subclasses.fake_tensor")
_SMALL = (0, 1)
_NOT_EMPTY = ("scaled_dot_product", "_scaled_dot_product", "upsample", "_upsample")
_WITHOUT_IDENTITY = frozenset(
    (
        *("max", "min", "aminmax", "argmax", "argmin", "amax", "amin", "median", "nanmedian", "mode", "kthvalue"),
        *("cummax", "cummin", "logcumsumexp", "max_pool1d", "sort", "topk"),
    )
)
_INDEXED = frozenset({"index", "_unsafe_index", "embedding"})
_MOST_PAIRS = 4  # symbols of which every two are tried together: 24 runs


def small_size_guards(
    program: ExportedProgram, decomposed: ExportedProgram, conditions: Sequence[Any] = ()
) -> list[Any]:
    """Return conditions, as sympy expressions, that exclude the sizes of 0 and 1 for which a program is not right.

    Each symbol is tried alone with the others at their example's sizes, every two together where there are few, and
    all at once.

    Args:
        program: an exported program.
        decomposed: the same program in core ATen operators.
        conditions: what calls are held to anyway, as sympy expressions. A trial has sizes that satisfy them.
    """
    hints = _hints(program)
    if not hints:
        return []
    copies = _copies(program, hints)
    ranges = program.range_constraints
    symbols = [symbol for symbol in hints if symbol not in ranges or ranges[symbol].lower <= 2]
    excluded: list[dict[Any, int]] = []
    for trial in _trials(symbols):
        if any(one.items() <= trial.items() for one in excluded):
            continue
        sizes = _satisfying(trial, hints, conditions)
        if sizes is not None and not (_is_right(_Run(program, sizes, copies)) and _is_right(_Run(decomposed, sizes))):
            excluded.append(trial)
    return [_exclusion(trial) for trial in excluded]


def _satisfying(trial: Mapping[Any, int], hints: Mapping[Any, int], conditions: Sequence[Any]) -> dict[Any, int] | None:
    """Return sizes of all symbols that satisfy the conditions, with those of a trial; None where there are none.

    The other sizes are the example's, or like one of the trial where a condition makes them equal; else small ones are
    searched. Where none are found no call can have the trial's sizes, or almost none: it is tried with the example's.
    """
    others = [symbol for symbol in hints if symbol not in trial]
    candidates = [{**hints, **trial}, *({**dict.fromkeys(others, size), **trial} for size in set(trial.values()))]
    generator = random.Random(0)  # noqa: S311  # the same trials each time
    candidates += [
        {**{symbol: generator.randint(0, 12) for symbol in others}, **trial} for _ in range(200 if others else 0)
    ]
    for sizes in candidates:
        numbers = {symbol: sympy.Integer(size) for symbol, size in sizes.items()}
        if all(_may_hold(condition, numbers) for condition in conditions):
            return sizes
    return candidates[0] if others else None


def _may_hold(condition: Any, numbers: Mapping[Any, Any]) -> bool:
    try:
        return condition.xreplace(numbers) is not sympy.false
    except (ArithmeticError, AssertionError):  # it divides by a size of 0
        return False


def _trials(symbols: Sequence[Any]) -> Iterator[dict[Any, int]]:
    """Yield assignments of small sizes, those of few symbols first, so that a guard names no more than it has to."""
    for symbol, size in itertools.product(symbols, _SMALL):
        yield {symbol: size}
    if len(symbols) <= _MOST_PAIRS:
        for pair in itertools.combinations(symbols, 2):
            for sizes in itertools.product(_SMALL, repeat=2):
                yield dict(zip(pair, sizes, strict=True))
    if len(symbols) > 2:  # two are a pair
        for size in _SMALL:
            yield dict.fromkeys(symbols, size)


def _exclusion(trial: Mapping[Any, int]) -> Any:
    differ = [sympy.Ne(symbol, size, evaluate=False) for symbol, size in trial.items()]
    return differ[0] if len(differ) == 1 else sympy.Or(*differ, evaluate=False)


def _hints(program: ExportedProgram) -> dict[Any, int]:
    """Return the example's value of each symbol in the sizes of a program's inputs."""
    found: dict[Any, int] = {}
    for node in program.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, torch.Tensor) else (value,):
            if isinstance(size, torch.SymInt):
                values = size.node.shape_env.backed_var_to_val
                found |= {one: int(values[one]) for one in size.node.expr.free_symbols if one in values}
    return found


def _copies(program: ExportedProgram, hints: Mapping[Any, int]) -> frozenset[str]:
    """Return which nodes make copies for the example's sizes; none where nothing is written into a tensor."""
    if not any(map(_written, program.graph.nodes)):
        return frozenset()
    run = _Run(program, hints)
    return frozenset(run.copies) if _is_right(run) else frozenset()


class _Run(fx.Interpreter):
    """Runs a graph and compares the shape of each result with the program's, for given values of its symbols.

    Attributes:
        copies: the names of nodes whose result shares no memory with their arguments.
    """

    def __init__(
        self, program: ExportedProgram, sizes: Mapping[Any, int], copies: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(program.graph_module, garbage_collect_values=True)
        self.copies: set[str] = set()
        self._sizes, self._expected_copies = sizes, copies
        self._inputs = [node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")]
        self._shared: list[torch.UntypedStorage] = []  # of results that should have been copies

    def check(self) -> None:
        """Run the graph.

        Raises:
            Exception: an operator does not take these sizes, or the program is not right for them.
        """
        self.run(*(_input(said, self._sizes) for said in self._inputs), enable_io_processing=False)

    def run_node(self, n: fx.Node) -> Any:
        """Run a node and compare its result."""
        if n.op != "call_function":
            return super().run_node(n)
        arguments = [one for one in pytree.tree_leaves(self.fetch_args_kwargs_from_env(n)) if _is_strided(one)]
        if self._shared and _written(n) and any(map(self._is_shared, arguments)):
            raise ValueError(f"{n.name} writes into what is no copy")
        if arguments and not _takes(n.target, arguments):
            raise ValueError(f"{n.name} takes no empty tensor")
        if any(not tensor.numel() for tensor in arguments) and _name(n.target) in _WITHOUT_IDENTITY:
            _run_for_real(n.target, *self.fetch_args_kwargs_from_env(n))
        result = super().run_node(n)
        if _name(n.target).startswith(_NOT_EMPTY) and not result.numel():
            raise ValueError(f"{n.name} makes no empty tensor")
        if not _agrees(n.meta.get("val"), result, self._sizes):
            raise ValueError(f"{n.name} has another shape")
        if _is_strided(result) and result.numel():
            if not any(_memory(one) == _memory(result) for one in arguments):
                self.copies.add(n.name)
            elif n.name in self._expected_copies:
                self._shared.append(result.untyped_storage())
        return result

    def _is_shared(self, tensor: torch.Tensor) -> bool:
        return any(storage._cdata == _memory(tensor) for storage in self._shared)


def _takes(target: Any, arguments: Sequence[torch.Tensor]) -> bool:
    """Say whether an operator takes such tensors, where its fake kernel does not tell.

    An index that is there and points into no elements is out of range, whatever its value.
    """
    name = _name(target)
    first, *others = arguments
    if name.startswith(_NOT_EMPTY):
        return all(one.numel() for one in arguments)
    return not (name in _INDEXED and first.numel() == 0 and others and all(one.numel() for one in others))


def _name(target: Any) -> str:
    return target._schema.name.removeprefix("aten::") if isinstance(target, torch._ops.OpOverload) else ""


def _run_for_real(target: Any, args: Any, kwargs: Any) -> None:
    """Run an operator on zeros of the shapes of fake tensors, some of which have no elements.

    Raises:
        Exception: it does not take them.
    """
    with unset_fake_temporarily():
        args, kwargs = pytree.tree_map_only(
            FakeTensor, lambda fake: torch.zeros(fake.shape, dtype=fake.dtype), (args, kwargs)
        )
        target(*args, **kwargs)


def _written(node: fx.Node) -> bool:
    """Say whether an operator writes into an argument."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _is_strided(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided


def _memory(tensor: torch.Tensor) -> int:
    address: int = tensor.untyped_storage()._cdata
    return address


def _agrees(said: Any, found: Any, sizes: Mapping[Any, int]) -> bool:
    if isinstance(said, (list, tuple)):
        return len(said) == len(found) and all(map(lambda one, other: _agrees(one, other, sizes), said, found))
    if isinstance(said, torch.Tensor):
        return said.dim() == found.dim() and all(
            map(lambda one, other: _agrees(one, other, sizes), said.shape, found.shape)
        )
    if isinstance(said, (int, torch.SymInt)) and type(said) is not bool:
        value = _value(said, sizes)
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


def _is_right(run: _Run) -> bool:
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
    try:
        with mode, torch.no_grad(), _unlogged():
            run.check()
    except Exception:  # noqa: BLE001  # an operator may raise anything for a size that it does not take
        return False
    return True


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep torch from logging what fake tensors raise: sizes that do not fit are expected here."""
    before, _LOG.disabled = _LOG.disabled, True
    try:
        yield
    finally:
        _LOG.disabled = before


def _input(said: Any, sizes: Mapping[Any, int]) -> Any:
    if isinstance(said, torch.SymInt):
        return _value(said, sizes)
    if not isinstance(said, FakeTensor):
        return said
    shape = [size for size in (_value(size, sizes) for size in said.shape) if size is not None and size >= 0]
    if len(shape) != said.dim():
        raise ValueError("an input cannot have these sizes")
    return torch.empty(shape, dtype=said.dtype, device=said.device)
