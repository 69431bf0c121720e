"""What kinds of nodes there are to a partitioner."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from trtcache.lowering.custom_operators import TORCHS_OWN
from trtcache.lowering.rewrites.common_subexpressions import draws, is_random
from trtcache.lowering.visibility import is_view

if TYPE_CHECKING:
    from torch import fx

FUNCTIONS = frozenset({operator.add.__module__, math.sqrt.__module__, "torch"})
"""Modules of functions, other than operators, that do nothing but compute."""

_NUMBERS = (torch.SymInt, torch.SymBool, torch.SymFloat)


def is_number(node: fx.Node) -> bool:
    """Say whether a node makes a size or another number, and no tensor."""
    return isinstance(node.meta.get("val"), _NUMBERS)


def depends_on_values(node: fx.Node) -> bool:
    """Say whether a number that is known only when the program runs is in what a node makes or takes."""
    return any(_unbacked(one.meta.get("val")) for one in (node, *node.all_input_nodes))


def _unbacked(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_unbacked, value))
    if isinstance(value, torch.Tensor):
        symbolic = any(type(size) is not int for size in value.shape)
        return symbolic and bool(free_unbacked_symbols(value))
    return isinstance(value, _NUMBERS) and bool(free_unbacked_symbols(value))


def is_size(node: fx.Node) -> bool:
    """Say whether a node makes a number of the sizes of the program's inputs alone: it is computed where it is used."""
    return node.op == "call_function" and is_number(node) and not depends_on_values(node)


def is_step(node: fx.Node) -> bool:
    """Say whether a node belongs to one part: it computes, and what it computes is no size."""
    return node.op == "call_function" and not is_size(node)


def is_work(node: fx.Node) -> bool:
    """Say whether a node counts as an operator of an engine; one that looks at memory in another way does not."""
    return is_step(node) and not is_view(node) and node.target is not operator.getitem


def is_item(node: fx.Node) -> bool:
    """Say whether a node takes one of several results out of what an operator made."""
    return node.target is operator.getitem


def is_check(node: fx.Node) -> bool:
    """Say whether a node makes nothing: it only raises if something does not hold."""
    return node.op == "call_function" and node.meta.get("val") is None and not node.users


def is_ordered(node: fx.Node) -> bool:
    """Say whether the order matters in which a node runs among others of its kind: it draws, or has a side effect."""
    if node.op != "call_function" or is_check(node):
        return False
    return draws(node) if is_random(node.target) else node.is_impure()


def keeps_its_turn(node: fx.Node) -> bool:
    """Say whether a node runs in one order among others of its kind, also where parts run side by side.

    Custom operators do: one may have an effect, or draw random numbers, without saying so.
    """
    if node.op != "call_function":
        return False
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace not in TORCHS_OWN or is_ordered(node)
    return getattr(target, "__module__", None) not in FUNCTIONS
