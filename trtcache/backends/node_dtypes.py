"""The dtypes that a node of a lowered program computes with."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import torch
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from torch import fx


def node_dtypes(node: fx.Node) -> frozenset[torch.dtype]:
    """Return the dtypes of the tensors that a node takes, and of those of its results that are used.

    Of an operator with several results those count that a ``getitem`` node reads, and a ``getitem`` node has the dtypes
    of its operator: both are in one partition.
    """
    if node.target is operator.getitem:
        node = node.all_input_nodes[0]
    result = node.meta.get("val")
    if isinstance(result, (list, tuple)):
        result = [user.meta.get("val") for user in node.users if user.target is operator.getitem]
    values = [result, *(argument.meta.get("val") for argument in node.all_input_nodes)]
    return frozenset(leaf.dtype for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))
