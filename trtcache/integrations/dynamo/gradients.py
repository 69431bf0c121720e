"""Whether gradients are to flow through a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trtcache.integrations.dynamo.arguments import value_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import fx


def training(graph_module: fx.GraphModule, placeholders: Sequence[fx.Node], call: Sequence[Any]) -> str:
    """Return why the graph is one for training, or nothing if it is not.

    Parameters that require gradients do not make it one: under ``no_grad``, or where results are whole numbers, eager
    torch keeps nothing for a backward pass either. A view of one requires gradients there all the same, and gets none;
    what has a ``grad_fn`` was made where the graph itself had switched gradients on.
    """
    outputs: Any = graph_module.graph.output_node().args[0]
    given = [value_of(node) for node in placeholders]
    made = [value for node in outputs if _gets_grad(value := value_of(node)) and not _is_among(value, given)]
    if made:
        return f"{len(made)} of its results require gradients"
    pairs = zip(given, call, strict=True)
    changed = [value for value, one in pairs if _requires_grad(value) and not _requires_grad(one)]
    return f"it makes {len(changed)} of its arguments require gradients" if changed else ""


def _gets_grad(value: Any) -> bool:
    return _requires_grad(value) and (torch.is_grad_enabled() or value.grad_fn is not None)


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _is_among(value: Any, others: Sequence[Any]) -> bool:
    return any(value is other for other in others)
