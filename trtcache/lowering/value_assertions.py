"""Assertions on tensors: ``torch._assert_async`` as an assertion on a number, which decompositions keep."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import fx

aten = torch.ops.aten

_ON_TENSORS = (aten._assert_async.default, aten._assert_async.msg)


@contextmanager
def on_numbers(graph: fx.Graph) -> Iterator[None]:
    """Assert what is read from a tensor instead of the tensor, in an exported graph, for as long as it is decomposed.

    ``run_decompositions`` drops ``_assert_async``, which has neither results nor, to it, side effects.
    """
    added: list[fx.Node] = []
    for node in [node for node in graph.nodes if node.target in _ON_TENSORS]:
        with graph.inserting_before(node):
            holds = graph.call_function(aten.ne.Scalar, (node.args[0], 0))
            number = graph.call_function(aten.item.default, (holds,))
            asserted = graph.call_function(aten._assert_scalar.default, (number, _message(node)))
        added += [asserted, number, holds]  # users first, as they are erased
    try:
        yield
    finally:
        for node in added:
            graph.erase_node(node)


def _message(node: fx.Node) -> Any:
    return node.args[1] if len(node.args) > 1 else "an assertion on a tensor failed"
