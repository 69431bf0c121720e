"""Assertions on numbers read from tensors, added to an exported graph while it is decomposed.

``run_decompositions`` drops ``torch._assert_async``, which has neither results nor, to it, side effects. And compiled
code lacks checks of torch's kernels: of an index (``x[n.item()]`` reads outside of ``x``), of a divisor, or that a size
which ``squeeze`` keeps is not 1.
"""

from __future__ import annotations

import operator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from trtcache.lowering.rewriting import tensor_of

if TYPE_CHECKING:
    from collections.abc import Iterator

aten = torch.ops.aten

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
