"""Conditions on sizes that an operator's kernel checks and its decomposition does not.

``cross_entropy_loss`` of an input of sizes (N, C, d1, d2) raises for a target of other sizes than (N, d1, d2). Its
decomposition has a ``gather``, which accepts a smaller target. torch's fake kernels do not check it either, so export
records no guard. The conditions are added to the program's guards.

``as_strided`` reads a tensor's memory, regardless of the tensor's own sizes, and torch raises if it would read beyond
that memory. Compiled code has no such check, and uses dense copies of weights, constants and inputs.
"""

from __future__ import annotations

import operator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from trtcache.errors import ExportError
from trtcache.lowering.rewriting import argument_names, arguments, expression, tensor_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.export import ExportedProgram

aten = torch.ops.aten

_LOSSES = frozenset(
    {
        *(aten.cross_entropy_loss.default, aten.nll_loss_nd.default, aten.nll_loss.default, aten.nll_loss2d.default),
        *(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default, aten.multi_margin_loss.default),
    }
)


_AS_STRIDED = frozenset(
    {
        *(aten.as_strided.default, aten.as_strided_.default, aten.as_strided_copy.default),
        aten.as_strided_scatter.default,
    }
)


def operator_checks(program: ExportedProgram) -> tuple[Any, ...]:
    """Return the conditions of an exported program's operators, as sympy expressions, without trivial ones.

    Raises:
        ExportError: an operator's fake kernel and decomposition return another shape than its kernel.
    """
    for node in program.graph.nodes:
        values = tensor_of(node.args[0]) if node.target is aten.multilabel_margin_loss.default else None
        if values is not None and values.dim() < 2:  # a batch has two dimensions
            why = "torch decomposes multilabel_margin_loss of one sample to another shape: give it a batch of one"
            raise ExportError("the program", why)
    _reject_memory_views(program)
    found = (condition for node in program.graph.nodes for condition in _conditions(node))
    return tuple(dict.fromkeys(condition for condition in found if condition not in {sympy.true, True}))


def _conditions(node: fx.Node) -> Iterator[Any]:
    if node.target in _LOSSES:
        yield from _loss_conditions(node)
    elif node.target in _AS_STRIDED:
        yield _is_inside_memory(node)


def _reject_memory_views(program: ExportedProgram) -> None:
    """Reject a program with ``as_strided`` and weights or constants that are views of a larger memory."""
    if not any(node.target in _AS_STRIDED for node in program.graph.nodes):
        return
    for name, tensor in {**program.constants, **program.state_dict}.items():
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
            continue
        if tensor.storage_offset() or tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size():
            why = f"it calls as_strided, and {name} is a view of a larger tensor: replace {name} with {name}.clone()"
            raise ExportError("the program", why)


def _is_inside_memory(node: fx.Node) -> Any:
    """Return the condition that ``as_strided`` stays within the memory of its argument."""
    values = pytree.tree_map_only(fx.Node, lambda given: given.meta["val"], arguments(node))
    given = dict(zip(argument_names(node.target), values, strict=True))  # type: ignore[arg-type]  # one of _AS_STRIDED
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
_DIVISIONS = frozenset({operator.floordiv, operator.mod, operator.truediv})
_SELECTS = frozenset({aten.select.int, aten.select_copy.int})
_SQUEEZES = frozenset({aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims})
_NOT_EMPTY = ("aten::upsample", "aten::_upsample")


@contextmanager
def assert_numbers(graph: fx.Graph) -> Iterator[None]:
    """Add assertions on numbers to an exported graph in the block; decompositions keep them."""
    before = set(graph.nodes)
    for node in list(graph.nodes):
        _add_assertions(node)
    try:
        yield
    finally:
        for node in reversed(graph.nodes):  # users first
            if node not in before:
                graph.erase_node(node)


def _add_assertions(node: fx.Node) -> None:
    graph, target = node.graph, node.target
    if target in _ON_TENSORS:
        with graph.inserting_before(node):
            holds = graph.call_function(aten.ne.Scalar, (node.args[0], 0))
            number = graph.call_function(aten.item.default, (holds,))
            graph.call_function(aten._assert_scalar.default, (number, _message(node)))
    elif target in _DIVISIONS and _is_read(node.args[1]):
        _check(node, operator.ne, node.args[1], 0, "division by zero")
    elif target in _SELECTS:
        _check_index(node)
    elif target in _SQUEEZES:
        for size in _sizes_read(node):
            _check(node, operator.ne, size, 1, "squeeze of a size that is 1, and that the program assumes is not")
    elif getattr(getattr(target, "_schema", None), "name", "").startswith(_NOT_EMPTY):
        for size in _sizes_read(node):
            _check(node, operator.ne, size, 0, "an operator that does not support empty tensors")


def _check_index(node: fx.Node) -> None:
    """Assert that the index of a ``select`` is in range."""
    given = tensor_of(node.args[0])
    if given is None or not _is_read(node.args[2]):
        return
    with node.graph.inserting_before(node):
        size = node.graph.call_function(aten.sym_size.int, (node.args[0], node.args[1]))
        size.meta["val"] = given.shape[node.args[1]]  # type: ignore[index]  # the dimension
        least = node.graph.call_function(operator.neg, (size,))
        least.meta["val"] = -size.meta["val"]
    _check(node, operator.ge, node.args[2], least, "index out of range")
    _check(node, operator.lt, node.args[2], size, "index out of range")


def _sizes_read(node: fx.Node) -> list[fx.Node]:
    """Return nodes for the data-dependent sizes of a node's tensor."""
    given, sizes = tensor_of(node.args[0]), []
    for dim, size in enumerate(given.shape if given is not None else ()):
        if free_unbacked_symbols(size):
            with node.graph.inserting_before(node):
                sizes.append(node.graph.call_function(aten.sym_size.int, (node.args[0], dim)))
            sizes[-1].meta["val"] = size
    return sizes


def _is_read(argument: Any) -> bool:
    """Return whether an argument is a data-dependent number."""
    return isinstance(argument, fx.Node) and bool(free_unbacked_symbols(argument.meta["val"]))


def _check(node: fx.Node, comparison: Any, left: Any, right: Any, message: str) -> None:
    values = [one.meta["val"] if isinstance(one, fx.Node) else one for one in (left, right)]
    with node.graph.inserting_before(node):
        holds = node.graph.call_function(comparison, (left, right))
        holds.meta["val"] = comparison(*values)
        node.graph.call_function(aten._assert_scalar.default, (holds, message))


def _message(node: fx.Node) -> Any:
    return node.args[1] if len(node.args) > 1 else "an assertion on a tensor failed"
