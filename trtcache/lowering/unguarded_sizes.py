"""Conditions on sizes for which ``torch.export`` has no guard: they become guards of the program like torch's own.

Branches in Python code: torch assumes that a dynamic size is at least 2 while it traces, and adds no guard for
consequences of that. A branch on ``x.shape[0] == 1`` or ``x.numel() == 0`` is decided at once, and for such a size the
program takes the wrong branch. So each truth value of a size that Python code reads is recorded with its comparison.

Terms of sizes are simplified by the same assumption: ``torch.sym_max(x.shape[0], 1)`` becomes ``x.shape[0]``, and
``x.numel() // x.shape[0]`` a number, where Python raises ZeroDivisionError for a batch of 0. That divisors are not 0,
and that a simplified term has the value of the original one, is recorded as well. So is a ``Tensor.is_contiguous`` that
returned False: with a size of 1 more tensors are contiguous.

The text of a size is that of its symbol in an export (``"s0"``). Code of the model that asks for it gets that of the
example's number, for which the size then becomes constant, but for a message of ``torch._assert``: nothing reads it.
So does a size that is rounded to tens: ``round(x.shape[0] * 7, -1)``.

Decisions inside an operator (broadcasting, contiguity, fake kernels) are not recorded: the operator itself is in the
graph, and decides again when it runs. ``trial_runs.py`` checks that its shapes agree.

Checks of kernels that decompositions do not make: ``cross_entropy_loss`` of an input of sizes (N, C, d1, d2) raises for
a target of other sizes than (N, d1, d2). Its decomposition has a ``gather``, which accepts a smaller target, and
torch's fake kernels do not check it either. ``as_strided`` reads a tensor's memory, regardless of the tensor's own
sizes, and torch raises if it would read beyond that memory. Compiled code has no such check, and uses dense copies of
weights, constants and inputs. Of an input, which a call may give as a view or in another layout, it is refused.
"""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import itertools
import linecache
import logging
import operator
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch import fx
from torch.fx.experimental import symbolic_shapes
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._sympy.functions import FloorDiv, IntTrueDiv, Max, Min, PythonMod

from trtcache.errors import ExportError
from trtcache.lowering import patch_attributes
from trtcache.lowering.operators import code_owner, operator_name
from trtcache.lowering.rewriting import (
    AS_STRIDED,
    arguments,
    covers_memory,
    example_of,
    expression,
    is_view,
    kind_of,
    parameter_places,
    same_sizes,
    shape_environment,
    tensor_of,
    written_nodes,
)
from trtcache.weights.arrays import can_overlap_itself

if TYPE_CHECKING:
    from torch.export import ExportedProgram


aten = torch.ops.aten

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
_NUMBERS: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
_DIVISIONS = frozenset({"__floordiv__", "__mod__", "__truediv__"})
_IS_CONTIGUOUS, _CONTIGUOUS = torch.Tensor.is_contiguous, torch.Tensor.contiguous
_TRIED = (0, 1, 2, 3, 7)
_MOST_TRIED = 256


class Decisions:
    """Comparisons of sizes that Python code evaluated, as sympy expressions that were true."""

    def __init__(self, counts: Callable[[], bool] | None = None) -> None:
        """Start empty; ``counts`` returns whether to record decisions of the calling code."""
        self.conditions: dict[Any, None] = {}
        self._counts = counts or (lambda: _asking_code() != "__torch_dispatch__")
        self._keeps = counts is None
        # torch computes strides outside of the model
        self._counts_terms = counts or (lambda: _asking_code() == "forward")

    def record(self, node: Any, outcome: bool) -> None:
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

    def record_layout(self, func: Any, args: Any, kwargs: Mapping[str, Any], result: Any) -> Any:
        """Record an ``is_contiguous`` that returned False to Python code, and return the result of each function.

        Unless decisions of chosen code are recorded, a ``contiguous`` that returned its input returns another tensor:
        torch would record nothing for it, so ``trial_runs.py`` could not run it with other layouts.
        """
        if func is _IS_CONTIGUOUS and result is False and args[0].layout == torch.strided:
            self._record_not_contiguous(args[0], kwargs.get("memory_format", torch.contiguous_format))
        if self._keeps and func is _CONTIGUOUS and result is args[0] and result.layout == torch.strided:
            # torch's tracer would take one tensor for the other.
            return aten.contiguous.default(aten.alias.default(result), **kwargs)
        return result

    def _record_not_contiguous(self, tensor: torch.Tensor, memory_format: torch.memory_format) -> None:
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
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import ShapeGuardPythonPrinter

        environment = shape_environment(program.graph.nodes)
        if environment is None:
            return
        sources = environment.var_to_sources
        known = {
            symbol
            for symbol, found in sources.items()
            if found and not any(isinstance(source, ConstantSource) for source in found)
        }

        def name(source: Any) -> str:
            return str(source.name() if callable(source.name) else source.name)  # a property from torch 2.12 on

        printer, texts = ShapeGuardPythonPrinter(sources, name, sources), list(program._guards_code)
        added: dict[str, Any] = {}
        for condition in self.conditions:
            if condition.free_symbols <= known:
                text = printer.doprint(condition)
                if "L['self']" not in text and text not in texts:
                    texts.append(text)
                    added[text] = condition
        program._guards_code = texts
        program._added_guards = added  # type: ignore[attr-defined]  # our attribute, for ExportGuards


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


def _asking_code() -> str:
    """Return the name of the innermost calling function among ``__torch_dispatch__`` and ``forward``, or ''."""
    frame: FrameType | None = sys._getframe(3)  # without this function, the lambda and the method that calls it
    while frame is not None:
        if frame.f_code.co_name in {"__torch_dispatch__", "forward"}:
            return frame.f_code.co_name
        frame = frame.f_back
    return ""


class LayoutMode(TorchFunctionMode):
    """Record decisions on layouts where the caller enters this mode."""

    def __init__(self, decisions: Decisions) -> None:
        super().__init__()
        self._decisions = decisions

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        return self._decisions.record_layout(func, args, kwargs, func(*args, **kwargs))


@contextmanager
def record_decisions(counts: Callable[[], bool] | None = None) -> Iterator[Decisions]:
    """Record branches on sizes in Python code in the block.

    Those on layouts are seen by a mode for functions of torch that the caller enters, ``LayoutMode`` or one that calls
    ``record_layout``.

    Methods of torch's classes are replaced meanwhile, for all threads: a ``torch.export`` of the caller in another
    thread is recorded as well, which can only add conditions.

    Comparisons are methods of ``SymNode``. One that sympy decides at once, because sizes are positive, only leaves True
    or False, so the comparison is attached to its result. ``bool_`` is called by ``SymBool.__bool__``, for Python code
    only; C++ calls ``guard_bool``. ``expect_true`` is called by ``torch._check``.

    Args:
        counts: returns whether to record decisions of the calling code; by default all except those inside an operator.
    """
    decisions = Decisions(counts)
    comparisons = {
        name: _comparison(head, getattr(SymNode, name)) for name, head in (_RELATIONS | _CONNECTIVES).items()
    }
    outcomes = {
        "bool_": _outcome(decisions, SymNode.bool_, only_true=False),
        "expect_true": _outcome(decisions, SymNode.expect_true, only_true=True),
    }
    arithmetic = {
        name: _arithmetic(decisions, name, getattr(torch.SymInt, name)) for name in (*_ARITHMETIC, *_REFLECTED)
    }
    # torch says where a guard comes from: the nearest caller that is not in one of these files.
    uninteresting = symbolic_shapes.uninteresting_files
    with (
        patch_attributes(SymNode, **comparisons, **outcomes),
        patch_attributes(torch.SymInt, **arithmetic),
        patch_attributes(torch.SymBool, __sym_ite__=_choice(decisions, torch.SymBool.__sym_ite__)),
        patch_attributes(
            symbolic_shapes,
            uninteresting_files=functools.cache(lambda: {*uninteresting(), __file__, logging.__file__}),
        ),
        ExitStack() as texts,
    ):
        for kind in _NUMBERS if counts is None else ():
            texts.enter_context(patch_attributes(kind, __repr__=_text(kind.__repr__)))
        if counts is None:
            texts.enter_context(patch_attributes(torch.SymInt, __round__=_round(torch.SymInt.__round__)))
        yield decisions


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


def _outcome(decisions: Decisions, original: Any, *, only_true: bool) -> Any:
    def method(self: Any, *place: Any) -> bool:
        outcome: bool = original(self, *place)
        if outcome or not only_true:
            decisions.record(self, outcome)
        return outcome

    return method


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


def _round(original: Callable[..., Any]) -> Any:
    def round_size(self: Any, ndigits: Any = None) -> Any:
        if ndigits is None or ndigits >= 0:
            return original(self, ndigits)
        return round(int(self), int(ndigits))  # torch 2.13 ignores the digits

    return round_size


def _text(original: Callable[..., str]) -> Any:
    owner = threading.get_ident()

    def text(self: Any) -> str:
        frame = sys._getframe(1)
        is_models = threading.get_ident() == owner and _is_asked_by_model(frame) and not _is_of_message(frame)
        return repr(_NUMBERS[type(self)](self)) if is_models else original(self)

    return text


def _is_asked_by_model(frame: FrameType | None) -> bool:
    """Return whether the innermost function outside of the standard library is neither torch's nor this package's."""
    while frame is not None:
        owner = code_owner(frame.f_code.co_filename)
        if owner not in {"python", "generated"}:
            return owner == "model"
        frame = frame.f_back
    return False


def _is_of_message(frame: FrameType) -> bool:
    """Return whether a function formats an f-string that is the message of a call of ``torch._assert`` itself."""
    code = frame.f_code
    first, last, start, end = next(itertools.islice(code.co_positions(), frame.f_lasti // 2, None))
    is_formatting = dis.opname[code.co_code[frame.f_lasti]].startswith("FORMAT_")
    if not is_formatting or first is None or last is None or start is None or end is None:
        return False
    for message, function in _messages(code.co_filename):
        if function[0] in {*code.co_varnames, *code.co_cellvars, *code.co_freevars}:
            continue
        begins = message.lineno, message.col_offset
        ends = message.end_lineno, message.end_col_offset
        if begins <= (first, start) and (last, end) <= ends:
            found = frame.f_globals.get(function[0])
            return functools.reduce(lambda one, name: getattr(one, name, None), function[1:], found) is torch._assert
    return False


@functools.lru_cache(maxsize=64)
def _messages(file: str) -> list[tuple[Any, list[str]]]:
    """Return the f-strings in a file that are second arguments, with the parts of the names of the functions."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:  # it has changed, or is of another Python
        return []
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call) and len(one.args) == 2]
    found = [(one.args[1], ast.unparse(one.func).split(".")) for one in calls if isinstance(one.args[1], ast.JoinedStr)]
    return [(message, names) for message, names in found if names[-1].endswith("_assert")]


_LOSSES = frozenset(
    {
        *(aten.cross_entropy_loss.default, aten.nll_loss_nd.default, aten.nll_loss.default, aten.nll_loss2d.default),
        *(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default, aten.multi_margin_loss.default),
    }
)


_AS_STRIDED = frozenset({*AS_STRIDED, aten.as_strided_.default})
_CAN_COPY = frozenset({aten.contiguous.default, aten.to.dtype, aten.to.dtype_layout, aten.to.device, aten.to.other})
"""Operators that return a tensor itself, or a copy of another dtype or layout."""


def _check_written(node: fx.Node) -> None:
    """Refuse a write to an expanded tensor: functionalization adds up the copies of an element (torch 2.13)."""
    if any(map(_overlaps_itself, written_nodes(node))):
        what = f"{operator_name(node.target)} writes to a tensor of which several elements are one in memory"
        raise ExportError("the program", f"{what}, such as an expanded one: let it write to a clone")


def _check_values(node: fx.Node) -> None:
    """Refuse a call for which compiled code has other values than torch."""
    if node.target is aten.multilabel_margin_loss.default:  # 300 of 300 random samples were wrong with torch 2.13
        raise ExportError("the program", "torch decomposes multilabel_margin_loss to other values than it has")
    if node.target is builtins.round and arguments(node)[1:] not in ([], [None], [0]):
        # Python rounds by the decimal expansion, Inductor's code by a product: 3 * 0.55 to 1.6, not 1.7 (torch 2.13).
        what = f"compiled code rounds a float to digits otherwise than Python: {node.meta['val']}"
        raise ExportError("the program", f"{what}; round a tensor (torch.round(x, decimals=1)), or outside")


def _overlaps_itself(node: fx.Node) -> bool:
    """Return whether several elements of a node's tensor may be one in memory, at the sizes of the example."""
    value = tensor_of(node)
    if value is None or value.layout != torch.strided:
        return False
    sizes, strides = [example_of(size, 2) for size in value.shape], [example_of(step, 0) for step in value.stride()]
    return can_overlap_itself(sizes, strides)


def operator_checks(program: ExportedProgram) -> tuple[Any, ...]:
    """Return the conditions of an exported program's operators, as sympy expressions, without trivial ones.

    Raises:
        ExportError: an operator's decomposition returns other values than its kernel, or ``as_strided`` reads an input,
            or may read a weight or constant that is a view of a larger memory, or a write is to an expanded tensor, or
            a float is rounded to digits.
    """
    found: list[Any] = []
    inputs = set(program.graph_signature.user_inputs)
    for node in program.graph.nodes:
        _check_written(node)
        _check_values(node)
        if node.target in _LOSSES:
            found += _loss_conditions(node)
        elif node.target in _AS_STRIDED:
            if (owner := _memory_owner(node)).op == "placeholder" and owner.name in inputs:
                why = f"it calls as_strided on its input {owner.name}, which is in other memory at each call"
                remedy = f"index or view it, or use {owner.name}.clone(memory_format=torch.contiguous_format)"
                raise ExportError("the program", f"{why}: {remedy}")
            found.append(_is_inside_memory(node))
    reads_memory = any(node.target in _AS_STRIDED for node in program.graph.nodes)
    for name, tensor in ({**program.constants, **program.state_dict} if reads_memory else {}).items():
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
            continue
        if not covers_memory(tensor):
            why = f"it calls as_strided, and {name} is a view of a larger tensor: replace {name} with {name}.clone()"
            raise ExportError("the program", why)
        if name in program.constants and not tensor.is_contiguous():  # its copy in an engine is
            why = f"it calls as_strided, and {name} is not contiguous: replace {name} with {name}.contiguous()"
            raise ExportError("the program", why)
    return tuple(dict.fromkeys(condition for condition in found if condition not in {sympy.true, True}))


def _memory_owner(node: fx.Node) -> fx.Node:
    """Return the node whose memory ``as_strided`` reads, looking through views and changes in place."""
    owner: fx.Node = node.args[0]  # type: ignore[assignment]  # its first argument is a tensor
    while owner.op == "call_function" and is_view(owner):
        source = owner.all_input_nodes[0]
        if owner.target in _CAN_COPY:
            before, after = source.meta["val"], owner.meta["val"]
            if kind_of(before) != kind_of(after) or not same_sizes(before.stride(), after.stride()):
                break
        owner = source
    return owner


def _is_inside_memory(node: fx.Node) -> Any:
    """Return the condition that ``as_strided`` stays within the memory of its argument."""
    values = pytree.tree_map_only(fx.Node, lambda given: given.meta["val"], arguments(node))
    given = dict(zip(parameter_places(node.target), values, strict=True))
    base, offset = given["self"], given["storage_offset"]
    last = expression(base.storage_offset() if offset is None else offset)
    for size, stride in zip(given["size"], given["stride"], strict=True):
        last = last + (expression(size) - 1) * expression(stride)
    count = expression(base.untyped_storage().nbytes()) // base.element_size()
    return sympy.Lt(last, count)


def _loss_conditions(node: fx.Node) -> Iterator[Any]:
    if node.target is aten.multi_margin_loss.default:  # its kernel leaves the mean of no elements uninitialized
        given = tensor_of(node.args[0])
        yield from (
            sympy.Ne(expression(size), 0, evaluate=False) for size in (given.shape if given is not None else ())
        )
        return
    values, target = (tensor_of(argument) for argument in node.args[:2])
    if values is None or target is None or target.dim() != max(values.dim() - 1, 0):
        return  # a target of probabilities has the sizes of the input, which elementwise operators compare
    others = [size for dim, size in enumerate(values.shape) if dim != min(1, values.dim() - 1)]
    for size, wanted in zip(target.shape, others, strict=True):
        yield sympy.Eq(expression(size), expression(wanted))


_ON_TENSORS = (aten._assert_async.default, aten._assert_async.msg)
_DIVIDING = frozenset({operator.floordiv, operator.mod, operator.truediv})
_SELECTS = frozenset({aten.select.int, aten.select_copy.int})
_INDEX_PUTS = frozenset(
    {aten.index_put.default, aten.index_put_.default, aten._unsafe_index_put.default, aten._index_put_impl_.default}
)
_SQUEEZES = frozenset({aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims})
_NOT_EMPTY = ("aten::upsample", "aten::_upsample")


def assert_numbers(graph: fx.Graph) -> None:
    """Add assertions on numbers to an exported graph; decompositions keep them."""
    for node in list(graph.nodes):
        _add_assertions(node)


def _add_assertions(node: fx.Node) -> None:
    graph, target = node.graph, node.target
    if target in _ON_TENSORS:
        message = node.args[1] if len(node.args) > 1 else "an assertion on a tensor failed"
        with graph.inserting_before(node):
            holds = graph.call_function(aten.ne.Scalar, (node.args[0], 0))
            number = graph.call_function(aten.item.default, (holds,))
            graph.call_function(aten._assert_scalar.default, (number, message))
    elif target in _DIVIDING and _is_read(node.args[1]):
        _assert_relation(node, operator.ne, node.args[1], 0, "division by zero")
    elif target in _SELECTS and _is_read(node.args[2]) and (given := tensor_of(node.args[0])) is not None:
        with graph.inserting_before(node):
            size = graph.call_function(aten.sym_size.int, (node.args[0], node.args[1]))
            size.meta["val"] = given.shape[node.args[1]]  # type: ignore[index]  # the dimension
            least = graph.call_function(operator.neg, (size,))
            least.meta["val"] = -size.meta["val"]
        _assert_relation(node, operator.ge, node.args[2], least, "index out of range")
        _assert_relation(node, operator.lt, node.args[2], size, "index out of range")
    elif target in _INDEX_PUTS:
        _assert_count(node)
    elif target in _SQUEEZES:
        for size in _sizes_read(node, *node.args[1:]):
            message = "squeeze of a size that is 1, and that the program assumes is not"
            _assert_relation(node, operator.ne, size, 1, message)
    elif getattr(getattr(target, "_schema", None), "name", "").startswith(_NOT_EMPTY):
        for size in _sizes_read(node):
            _assert_relation(node, operator.ne, size, 0, "an operator that does not support empty tensors")


def _assert_count(node: fx.Node) -> None:
    """Assert that there is a value for each element that a boolean index selects, or one for all."""
    given, indices, values = node.args[:3]
    ((place, mask), *others) = [(place, index) for place, index in enumerate(indices) if index is not None]  # type: ignore[arg-type]  # a list, says the schema
    index, target, value = map(tensor_of, (mask, given, values))
    if others or index is None or target is None or value is None or index.dtype not in {torch.bool, torch.uint8}:
        return
    dim = value.dim() - (target.dim() - place - index.dim()) - 1
    if dim < 0 or (type(value.shape[dim]) is int and value.shape[dim] == 1):
        return
    selections = [one for one in mask.users if one.target is aten.index.Tensor and one.args[1] == indices]
    if any(expression(one.meta["val"].shape[place]) == expression(value.shape[dim]) for one in selections):
        return  # there are as many as the same index selects
    with node.graph.inserting_before(node):
        size = node.graph.call_function(aten.sym_size.int, (values, dim))
        count = node.graph.call_function(aten.sum.default, (node.graph.call_function(aten.ne.Scalar, (mask, 0)),))
        difference = node.graph.call_function(aten.sub.Scalar, (count, size))
        if type(value.shape[dim]) is not int:  # 0 for a size of 1, too
            less = node.graph.call_function(operator.sub, (size, 1))
            difference = node.graph.call_function(aten.mul.Scalar, (difference, less))
        holds = node.graph.call_function(aten.eq.Scalar, (difference, 0))
        number = node.graph.call_function(aten.item.default, (holds,))
        message = "a boolean index selects another number of elements than there are values"
        node.graph.call_function(aten._assert_scalar.default, (number, message))


def _sizes_read(node: fx.Node, dims: Any = None) -> list[fx.Node]:
    """Return nodes for the data-dependent sizes of a node's tensor, in all dimensions or in the given ones."""
    given, sizes = tensor_of(node.args[0]), []
    shape = given.shape if given is not None else ()
    chosen = (
        None if dims is None else {dim % len(shape) for dim in ([dims] if isinstance(dims, int) else dims) if shape}
    )
    for dim, size in enumerate(shape):
        if free_unbacked_symbols(size) and (chosen is None or dim in chosen):
            with node.graph.inserting_before(node):
                sizes.append(node.graph.call_function(aten.sym_size.int, (node.args[0], dim)))
            sizes[-1].meta["val"] = size
    return sizes


def _is_read(argument: Any) -> bool:
    """Return whether an argument is a data-dependent number."""
    return isinstance(argument, fx.Node) and bool(free_unbacked_symbols(argument.meta["val"]))


def _assert_relation(node: fx.Node, comparison: Any, left: Any, right: Any, message: str) -> None:
    values = [one.meta["val"] if isinstance(one, fx.Node) else one for one in (left, right)]
    with node.graph.inserting_before(node):
        holds = node.graph.call_function(comparison, (left, right))
        holds.meta["val"] = comparison(*values)
        node.graph.call_function(aten._assert_scalar.default, (holds, message))
