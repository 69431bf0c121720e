"""Node support: which nodes of a program stay in torch, and why."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from trtcache.lowering.operators import TORCHS_OWN, is_arithmetic, operator_name, why_unknown
from trtcache.lowering.rewriting import draws_random_numbers, is_check, is_ordered, is_view
from trtcache.partition.division import LeftInTorch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from torch import fx

ON_VALUES = "a size depends on values, which is known only when the program runs"
CHECK = "it checks sizes"
RANDOM = "it draws random numbers, and an engine would draw others than torch"


def describe_torch_node(node: fx.Node, why: str) -> LeftInTorch:
    """Describe a node that stays in torch."""
    paths = [path for path, _ in node.meta.get("nn_module_stack", {}).values() if path]
    return LeftInTorch(node.name, operator_name(node.target), paths[-1] if paths else "", why)


def find_unsupported(
    order: Iterable[fx.Node], declared: Collection[str], why_not: Callable[[fx.Node], str | None]
) -> dict[fx.Node, str]:
    """Return the nodes that an engine does not support or must not contain, with the reason.

    ``declared`` are custom operators and namespaces whose version is known; ``why_not`` is the backend's reason.
    """
    reasons = {}
    for node in order:
        if node.op != "call_function":
            continue
        target, why = node.target, None
        if marked := node.meta.get("torch_executed"):
            why = str(marked)
        elif draws_random_numbers(node):
            why = RANDOM
        elif isinstance(target, torch._ops.OpOverload):
            why = why_unknown(target, declared)
        elif not is_number(node) and not is_arithmetic(target):
            why = f"{operator_name(target)} is not an operator of a known version"
        if why := why or why_not(node):
            reasons[node] = why
    return reasons


def find_dependents(order: Iterable[fx.Node], find_unsupported: Collection[fx.Node]) -> dict[fx.Node, str]:
    """Return the nodes that stay in torch because other nodes do.

    Data-dependent numbers cannot be engine inputs, ``getitem`` stays with its operator, and a size check is not worth
    an engine.
    """
    reasons: dict[fx.Node, str] = {}
    for node in order:
        if node in find_unsupported or not is_step(node):
            continue
        if depends_on_values(node):
            reasons[node] = ON_VALUES
        elif is_check(node):
            reasons[node] = CHECK
        elif node.target is operator.getitem and (node.args[0] in find_unsupported or node.args[0] in reasons):
            reasons[node] = ""
    return reasons


_NUMBERS = (torch.SymInt, torch.SymBool, torch.SymFloat)


def is_number(node: fx.Node) -> bool:
    """Return whether a node computes a size or another number instead of a tensor."""
    return isinstance(node.meta.get("val"), _NUMBERS)


def depends_on_values(node: fx.Node) -> bool:
    """Return whether a node computes or takes a data-dependent number (an unbacked symbol)."""
    return any(_has_unbacked_symbols(one.meta.get("val")) for one in (node, *node.all_input_nodes))


def _has_unbacked_symbols(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_unbacked_symbols, value))
    if isinstance(value, torch.Tensor):
        symbolic = any(type(size) is not int for size in value.shape)
        return symbolic and bool(free_unbacked_symbols(value))
    return isinstance(value, _NUMBERS) and bool(free_unbacked_symbols(value))


def is_size(node: fx.Node) -> bool:
    """Return whether a node computes a number from input sizes alone; such nodes are recomputed where they are used."""
    return node.op == "call_function" and is_number(node) and not depends_on_values(node)


def is_step(node: fx.Node) -> bool:
    """Return whether a node belongs to exactly one partition: it computes something other than a size."""
    return node.op == "call_function" and not is_size(node)


def is_work(node: fx.Node) -> bool:
    """Return whether a node counts as an operator of an engine; views and ``getitem`` do not."""
    return is_step(node) and not is_view(node) and node.target is not operator.getitem


def is_sequential(node: fx.Node) -> bool:
    """Return whether a node keeps its order among such nodes even when partitions run in parallel.

    Custom operators do: one may have an effect, or draw random numbers, without declaring it.
    """
    if node.op != "call_function":
        return False
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace not in TORCHS_OWN or is_ordered(node)
    return not is_arithmetic(target)
