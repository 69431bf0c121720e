"""Which nodes of a program stay in torch, and why."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from trtcache.lowering.custom_operators import TORCHS_OWN, why_unknown
from trtcache.lowering.rewrites.common_subexpressions import draws, is_random
from trtcache.lowering.text import operator_name
from trtcache.lowering.visibility import is_view
from trtcache.partition.partitions import LeftInTorch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from torch import fx

ON_VALUES = "a size depends on values, which is known only when the program runs"
CHECK = "it checks sizes"


def describe_torch_node(node: fx.Node, why: str) -> LeftInTorch:
    """Describe a node that stays in torch."""
    paths = [path for path, _ in node.meta.get("nn_module_stack", {}).values() if path]
    return LeftInTorch(node.name, operator_name(node.target), paths[-1] if paths else "", why)


def find_unsupported(
    order: Iterable[fx.Node], declared: Collection[str], why_not: Callable[[fx.Node], str | None]
) -> dict[fx.Node, str]:
    """Return the nodes that an engine cannot have, or is not to have, with the reason.

    Args:
        order: a program's nodes.
        declared: custom operators and namespaces of known version.
        why_not: asks the backend about a node.
    """
    found = {}
    for node in order:
        if node.op == "call_function" and (why := _reason(node, declared, why_not)):
            found[node] = why
    return found


def _reason(node: fx.Node, declared: Collection[str], why_not: Callable[[fx.Node], str | None]) -> str | None:
    if marked := node.meta.get("torch_executed"):
        return str(marked)
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        if why := why_unknown(target, declared):
            return why
    elif not is_number(node) and getattr(target, "__module__", None) not in FUNCTIONS:
        return f"{operator_name(target)} is no operator of a known version"
    return why_not(node)


def find_dependents(order: Iterable[fx.Node], find_unsupported: Collection[fx.Node]) -> dict[fx.Node, str]:
    """Return what else stays in torch once something does: what no cut can run through.

    Numbers that an operator makes cannot go into an engine, results of several belong to their operator, and a check of
    sizes is no work for an engine.
    """
    found: dict[fx.Node, str] = {}
    for node in order:
        if node in find_unsupported or not is_step(node):
            continue
        if depends_on_values(node):
            found[node] = ON_VALUES
        elif is_check(node):
            found[node] = CHECK
        elif is_item(node) and (node.args[0] in find_unsupported or node.args[0] in found):
            found[node] = ""
    return found


FUNCTIONS = frozenset({operator.add.__module__, math.sqrt.__module__, "torch"})
"""Modules of functions, other than operators, that do nothing but compute."""

_NUMBERS = (torch.SymInt, torch.SymBool, torch.SymFloat)


def is_number(node: fx.Node) -> bool:
    """Say whether a node makes a size or another number, and no tensor."""
    return isinstance(node.meta.get("val"), _NUMBERS)


def depends_on_values(node: fx.Node) -> bool:
    """Say whether a number that is known only when the program runs is in what a node makes or takes."""
    return any(_has_unbacked_symbols(one.meta.get("val")) for one in (node, *node.all_input_nodes))


def _has_unbacked_symbols(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_unbacked_symbols, value))
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


def is_sequential(node: fx.Node) -> bool:
    """Say whether a node runs in one order among others of its kind, also where parts run side by side.

    Custom operators do: one may have an effect, or draw random numbers, without saying so.
    """
    if node.op != "call_function":
        return False
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace not in TORCHS_OWN or is_ordered(node)
    return getattr(target, "__module__", None) not in FUNCTIONS
