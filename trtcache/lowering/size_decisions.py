"""Recording of what Python code decides by sizes during an export, beyond the guards that torch notes.

``torch.export`` takes a size that varies for at least 2 while it traces, and notes no guard for what follows from
that: a branch on ``x.shape[0] == 1`` or ``x.numel() == 0`` is decided at once, and the program answers a call with such
a size by the wrong branch. Here each truth value of a size that Python code asks for is recorded with the comparison
that it came from, and becomes a guard of the program like torch's own.

``Tensor.is_contiguous`` answers for such sizes as well, and with one of 1 more tensors are contiguous. Where it said
no, the program is held to that.

Decisions inside an operator (broadcasting, contiguity, fake kernels) are not recorded: the operator itself is in the
graph, and decides again when it runs. ``small_sizes.py`` checks that its shapes agree.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch.fx.experimental.sym_node import SymNode
from torch.overrides import TorchFunctionMode

from trtcache.lowering.rewriting import expression

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from torch.export import ExportedProgram

_RELATIONS = {"eq": sympy.Eq, "ne": sympy.Ne, "lt": sympy.Lt, "le": sympy.Le, "gt": sympy.Gt, "ge": sympy.Ge}
_CONNECTIVES = {"and_": sympy.And, "or_": sympy.Or, "sym_not": sympy.Not}
_FORMATS = {  # dimensions from the innermost
    (torch.channels_last, 4): (1, 3, 2, 0),
    (torch.channels_last_3d, 5): (1, 4, 3, 2, 0),
}
_ATTRIBUTE = "_trtcache_comparison"


class Decisions:
    """The comparisons of sizes that Python code has asked for, as sympy expressions that held."""

    def __init__(self) -> None:
        """Start with none."""
        self.conditions: dict[Any, None] = {}

    def note(self, node: Any, outcome: bool) -> None:  # as torch's own methods have it
        """Note that a comparison had an outcome, unless an operator asked for it."""
        comparison = getattr(node, _ATTRIBUTE, None)
        if comparison is None:
            comparison = node._expr
        if getattr(comparison, "free_symbols", None) and not _inside_operator():
            self.conditions[comparison if outcome else sympy.Not(comparison, evaluate=False)] = None

    def note_not_contiguous(self, tensor: torch.Tensor, memory_format: torch.memory_format) -> None:
        """Note that a tensor is not contiguous: a size is not 1 whose stride is not the one it would have."""
        order = _FORMATS.get((memory_format, tensor.dim()), range(tensor.dim() - 1, -1, -1))
        differing, inner = [], sympy.S.One
        for dim in order:
            size, stride = expression(tensor.shape[dim]), expression(tensor.stride(dim))
            same = stride == inner
            if not same:
                parts = [sympy.Ne(size, 1, evaluate=False), sympy.Ne(stride, inner, evaluate=False)]
                differing.append(sympy.And(*parts, evaluate=False))
            inner = inner * size
        if inner.free_symbols and not _inside_operator():
            self.conditions[sympy.Ne(inner, 0, evaluate=False)] = None  # a tensor of no elements is contiguous
            self.conditions[sympy.Or(*differing, evaluate=False)] = None

    def add_to(self, program: ExportedProgram) -> None:
        """Add the decisions to a program's guards, in the words of torch's own."""
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


def _inside_operator() -> bool:
    """Say whether the code that asks runs inside an operator's dispatch, as fake kernels and decompositions do."""
    frame: FrameType | None = sys._getframe(3)
    while frame is not None:
        if frame.f_code.co_name == "__torch_dispatch__":
            return True
        if frame.f_code.co_name == "forward":
            return False
        frame = frame.f_back
    return False


class _Layouts(TorchFunctionMode):
    """Notes each tensor of which Python code hears that it is not contiguous."""

    def __init__(self, decisions: Decisions) -> None:
        super().__init__()
        self._decisions = decisions

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func is torch.Tensor.is_contiguous and result is False and args[0].layout == torch.strided:
            memory_format = kwargs.get("memory_format", torch.contiguous_format)
            self._decisions.note_not_contiguous(args[0], memory_format)
        return result


@contextmanager
def recorded_decisions() -> Iterator[Decisions]:
    """Record what Python code decides by sizes while the body runs, in this thread's exports.

    Comparisons are methods of ``SymNode``. One that sympy decides at once, by the assumption that sizes are positive,
    leaves only True or False, so the comparison is kept beside its result. ``bool_`` is called by ``SymBool.__bool__``,
    for Python code only; C++ calls ``guard_bool``. ``expect_true`` is what ``torch._check`` calls.
    """
    decisions = Decisions()
    originals = {name: getattr(SymNode, name) for name in (*_RELATIONS, *_CONNECTIVES, "bool_", "expect_true")}

    def comparison(name: str, head: Any) -> Any:
        original = originals[name]

        def compare(self: Any, *others: Any) -> Any:
            result = original(self, *others)
            if isinstance(result, SymNode) and not getattr(result._expr, "free_symbols", None):
                parts = [getattr(one, _ATTRIBUTE, None) for one in (self, *others)]
                terms = [one._expr if part is None else part for one, part in zip((self, *others), parts, strict=True)]
                if any(getattr(term, "free_symbols", None) for term in terms):
                    object.__setattr__(result, _ATTRIBUTE, head(*terms, evaluate=False))
            return result

        return compare

    def bool_(self: Any) -> bool:
        outcome: bool = originals["bool_"](self)
        decisions.note(self, outcome)
        return outcome

    def expect_true(self: Any, *place: Any) -> bool:
        outcome: bool = originals["expect_true"](self, *place)
        if outcome:
            decisions.note(self, outcome)
        return outcome

    replacements = {name: comparison(name, head) for name, head in (_RELATIONS | _CONNECTIVES).items()}
    try:
        for name, method in {**replacements, "bool_": bool_, "expect_true": expect_true}.items():
            setattr(SymNode, name, method)
        with _Layouts(decisions):
            yield decisions
    finally:
        for name, method in originals.items():
            setattr(SymNode, name, method)
