"""Recording of branches on sizes in Python code during an export, beyond torch's own guards.

``torch.export`` assumes that a dynamic size is at least 2 while it traces, and adds no guard for consequences of that:
a branch on ``x.shape[0] == 1`` or ``x.numel() == 0`` is decided at once, and for such a size the program takes the
wrong branch. Here each truth value of a size that Python code reads is recorded with its comparison, and becomes a
guard of the program like torch's own.

Terms of sizes are simplified by the same assumption: ``torch.sym_max(x.shape[0], 1)`` becomes ``x.shape[0]``, and
``x.numel() // x.shape[0]`` a number, where Python raises ZeroDivisionError for a batch of 0. That divisors are not 0,
and that a simplified term has the value of the original one, become guards as well.

``Tensor.is_contiguous`` has the same assumption, and with a size of 1 more tensors are contiguous. If it returned
False, the program is guarded by that.

Decisions inside an operator (broadcasting, contiguity, fake kernels) are not recorded: the operator itself is in the
graph, and decides again when it runs. ``small_sizes.py`` checks that its shapes agree.
"""

from __future__ import annotations

import itertools
import operator
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch.fx.experimental.sym_node import SymNode
from torch.overrides import TorchFunctionMode
from torch.utils._sympy.functions import FloorDiv, IntTrueDiv, Max, Min, PythonMod

from trtcache.lowering.rewriting import expression

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from torch.export import ExportedProgram

_RELATIONS = {"eq": sympy.Eq, "ne": sympy.Ne, "lt": sympy.Lt, "le": sympy.Le, "gt": sympy.Gt, "ge": sympy.Ge}
_CONNECTIVES = {"and_": sympy.And, "or_": sympy.Or, "sym_not": sympy.Not}
_FORMATS = {  # dimensions from the innermost
    (torch.channels_last, 4): (1, 3, 2, 0),
    (torch.channels_last_3d, 5): (1, 4, 3, 2, 0),
}
_ATTRIBUTE = "_trtcache_comparison"

# Methods of SymInt that Python code calls: their function, and torch's sympy function for it.
_ARITHMETIC: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "__floordiv__": (operator.floordiv, FloorDiv),
    "__mod__": (operator.mod, PythonMod),
    "__truediv__": (operator.truediv, IntTrueDiv),
    "__sym_max__": (max, Max),
    "__sym_min__": (min, Min),
}
_REFLECTED = {"__rfloordiv__": "__floordiv__", "__rmod__": "__mod__", "__rtruediv__": "__truediv__"}
_DIVISIONS = frozenset({"__floordiv__", "__mod__", "__truediv__"})
_TRIED = (0, 1, 2, 3, 7)
_MOST_TRIED = 256


class Decisions:
    """Comparisons of sizes that Python code evaluated, as sympy expressions that were true."""

    def __init__(self, counts: Callable[[], bool] | None = None) -> None:
        """Start empty; ``counts`` returns whether to record decisions of the calling code."""
        self.conditions: dict[Any, None] = {}
        self._counts = counts or (lambda: _asking_code() != "__torch_dispatch__")
        # torch computes strides outside of the model
        self._counts_terms = counts or (lambda: _asking_code() == "forward")

    def record(self, node: Any, outcome: bool) -> None:  # as in torch's own methods
        """Record the outcome of a comparison, unless an operator made it."""
        comparison = getattr(node, _ATTRIBUTE, None)
        if comparison is None:
            comparison = node._expr
        if getattr(comparison, "free_symbols", None) and self._counts():
            self.conditions[comparison if outcome else sympy.Not(comparison, evaluate=False)] = None

    def record_arithmetic(self, name: str, left: Any, right: Any, result: Any) -> None:
        """Record that a divisor is not 0, and that a term simplified by torch equals the original one."""
        terms = [_term(left), _term(right)]
        symbols = {symbol for term in terms for symbol in getattr(term, "free_symbols", ())}
        if not symbols or not self._counts_terms():
            return
        if name in _DIVISIONS and getattr(terms[1], "free_symbols", None):
            self.conditions[sympy.Ne(terms[1], 0, evaluate=False)] = None
        function, head = _ARITHMETIC[name]
        if _differs(function, terms, _term(result), sorted(symbols, key=str)):
            original = head(*map(sympy.sympify, terms), evaluate=False)
            self.conditions[sympy.Eq(_term(result), original, evaluate=False)] = None

    def record_choice(self, condition: Any, result: Any, chosen: Any) -> None:
        """Record the term that ``torch.sym_ite`` chose by a comparison that torch decided at once."""
        if getattr(getattr(condition, "node", None), _ATTRIBUTE, None) is not None:
            self.record(condition.node, _term(result) == _term(chosen))

    def record_not_contiguous(self, tensor: torch.Tensor, memory_format: torch.memory_format) -> None:
        """Record that a tensor is not contiguous: a size is not 1 and its stride is not the contiguous one."""
        order = _FORMATS.get((memory_format, tensor.dim()), range(tensor.dim() - 1, -1, -1))
        differing, inner = [], sympy.S.One
        for dim in order:
            size, stride = expression(tensor.shape[dim]), expression(tensor.stride(dim))
            same = stride == inner
            if not same:
                parts = [sympy.Ne(size, 1, evaluate=False), sympy.Ne(stride, inner, evaluate=False)]
                differing.append(sympy.And(*parts, evaluate=False))
            inner = inner * size
        if inner.free_symbols and self._counts():
            self.conditions[sympy.Ne(inner, 0, evaluate=False)] = None  # a tensor without elements is contiguous
            self.conditions[sympy.Or(*differing, evaluate=False)] = None

    def add_to(self, program: ExportedProgram) -> None:
        """Add the decisions to a program's guards, in torch's notation."""
        texts = list(program._guards_code)
        for text in self._texts(program):
            if text not in texts:
                texts.append(text)
        program._guards_code = texts

    def _texts(self, program: ExportedProgram) -> Iterator[str]:
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import ShapeGuardPythonPrinter

        environment = _environment(program)
        if environment is None:
            return
        sources = environment.var_to_sources
        known = {
            symbol
            for symbol, found in sources.items()
            if found and not any(isinstance(source, ConstantSource) for source in found)
        }
        printer = ShapeGuardPythonPrinter(sources, _source_name, sources)
        for condition in self.conditions:
            if condition.free_symbols <= known:
                text = printer.doprint(condition)
                if "L['self']" not in text:
                    yield text


def _term(value: Any) -> Any:
    return value.node.expr if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) else value


def trials(symbols: Sequence[Any], values: Sequence[int]) -> Iterator[dict[Any, Any]]:
    """Yield assignments of values to symbols, all of them or the first 256."""
    for trial in itertools.islice(itertools.product(map(sympy.Integer, values), repeat=len(symbols)), _MOST_TRIED):
        yield dict(zip(symbols, trial, strict=True))


def _differs(function: Callable[[Any, Any], Any], terms: list[Any], result: Any, symbols: list[Any]) -> bool:
    """Return whether a simplified term differs from the original one for some small sizes."""
    for sizes in trials(symbols, _TRIED):
        try:
            numbers = [_number(term, sizes) for term in terms]
            if function(*numbers) != _number(result, sizes):
                return True
        except (ArithmeticError, AssertionError, TypeError):  # a division by 0, which is a separate condition
            continue
    return False


def _number(term: Any, sizes: dict[Any, Any]) -> Any:
    value = term.xreplace(sizes) if isinstance(term, sympy.Basic) else term
    if isinstance(value, sympy.Basic):
        return int(value) if value.is_integer else float(value)
    return value


def _source_name(source: Any) -> str:
    name = source.name  # a property from torch 2.12 on
    return str(name() if callable(name) else name)


def _environment(program: ExportedProgram) -> Any:
    for node in program.graph.nodes:
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, torch.Tensor) else (value,):
            if isinstance(size, torch.SymInt):
                return size.node.shape_env
    return None


def _asking_code() -> str:
    """Return the innermost calling function that is an operator's dispatch or a module's ``forward``, or ''."""
    frame: FrameType | None = sys._getframe(3)
    while frame is not None:
        if frame.f_code.co_name in {"__torch_dispatch__", "forward"}:
            return frame.f_code.co_name
        frame = frame.f_back
    return ""


class _Layouts(TorchFunctionMode):
    """Record each tensor whose ``is_contiguous`` returned False to Python code."""

    def __init__(self, decisions: Decisions) -> None:
        super().__init__()
        self._decisions = decisions

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func is torch.Tensor.is_contiguous and result is False and args[0].layout == torch.strided:
            memory_format = kwargs.get("memory_format", torch.contiguous_format)
            self._decisions.record_not_contiguous(args[0], memory_format)
        return result


@contextmanager
def record_decisions(counts: Callable[[], bool] | None = None) -> Iterator[Decisions]:
    """Record branches on sizes in Python code in the block, in this thread's exports.

    Comparisons are methods of ``SymNode``. One that sympy decides at once, because sizes are positive, only leaves True
    or False, so the comparison is attached to its result. ``bool_`` is called by ``SymBool.__bool__``, for Python code
    only; C++ calls ``guard_bool``. ``expect_true`` is called by ``torch._check``.

    Args:
        counts: returns whether to record decisions of the calling code; by default all except those inside an operator.
    """
    decisions = Decisions(counts)
    replaced: list[tuple[type, str, Any]] = []

    def replace(owner: type, name: str, method: Any) -> None:
        replaced.append((owner, name, getattr(owner, name)))
        setattr(owner, name, method)

    try:
        for name, head in (_RELATIONS | _CONNECTIVES).items():
            replace(SymNode, name, _comparison(head, getattr(SymNode, name)))
        replace(SymNode, "bool_", _bool(decisions, SymNode.bool_))
        replace(SymNode, "expect_true", _expect_true(decisions, SymNode.expect_true))
        for name in (*_ARITHMETIC, *_REFLECTED):
            replace(torch.SymInt, name, _arithmetic(decisions, name, getattr(torch.SymInt, name)))
        replace(torch.SymBool, "__sym_ite__", _choice(decisions, torch.SymBool.__sym_ite__))
        with _Layouts(decisions):
            yield decisions
    finally:
        for owner, name, original in replaced:
            setattr(owner, name, original)


def _comparison(head: Any, original: Any) -> Any:
    def compare(self: Any, *others: Any) -> Any:
        result = original(self, *others)
        if isinstance(result, SymNode) and not getattr(result._expr, "free_symbols", None):
            parts = [getattr(one, _ATTRIBUTE, None) for one in (self, *others)]
            terms = [one._expr if part is None else part for one, part in zip((self, *others), parts, strict=True)]
            if any(getattr(term, "free_symbols", None) for term in terms):
                object.__setattr__(result, _ATTRIBUTE, head(*terms, evaluate=False))
        return result

    return compare


def _bool(decisions: Decisions, original: Any) -> Any:
    def bool_(self: Any) -> bool:
        outcome: bool = original(self)
        decisions.record(self, outcome)
        return outcome

    return bool_


def _expect_true(decisions: Decisions, original: Any) -> Any:
    def expect_true(self: Any, *place: Any) -> bool:
        outcome: bool = original(self, *place)
        if outcome:
            decisions.record(self, outcome)
        return outcome

    return expect_true


def _arithmetic(decisions: Decisions, name: str, original: Any) -> Any:
    straight = _REFLECTED.get(name)

    def compute(self: Any, other: Any) -> Any:
        result = original(self, other)
        if result is not NotImplemented:
            left, right = (other, self) if straight else (self, other)
            decisions.record_arithmetic(straight or name, left, right, result)
        return result

    return compute


def _choice(decisions: Decisions, original: Any) -> Any:
    def sym_ite(self: Any, then: Any, other: Any) -> Any:
        result = original(self, then, other)
        decisions.record_choice(self, result, then)
        return result

    return sym_ite
