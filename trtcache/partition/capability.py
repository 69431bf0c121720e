"""Which nodes of a program stay in torch, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trtcache.lowering.custom_operators import why_unknown
from trtcache.lowering.text import operator_name
from trtcache.partition.nodes import FUNCTIONS, depends_on_values, is_check, is_item, is_number, is_step
from trtcache.partition.partitions import LeftInTorch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from torch import fx

ON_VALUES = "a size depends on values, which is known only when the program runs"
CHECK = "it checks sizes"


def left_in_torch(node: fx.Node, why: str) -> LeftInTorch:
    """Describe a node that stays in torch."""
    paths = [path for path, _ in node.meta.get("nn_module_stack", {}).values() if path]
    return LeftInTorch(node.name, operator_name(node.target), paths[-1] if paths else "", why)


def refused(
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
        if node.op == "call_function" and (why := _why(node, declared, why_not)):
            found[node] = why
    return found


def _why(node: fx.Node, declared: Collection[str], why_not: Callable[[fx.Node], str | None]) -> str | None:
    if marked := node.meta.get("torch_executed"):
        return str(marked)
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        if why := why_unknown(target, declared):
            return why
    elif not is_number(node) and getattr(target, "__module__", None) not in FUNCTIONS:
        return f"{operator_name(target)} is no operator of a known version"
    return why_not(node)


def dragged_along(order: Iterable[fx.Node], refused: Collection[fx.Node]) -> dict[fx.Node, str]:
    """Return what else stays in torch once something does: what no cut can run through.

    Numbers that an operator makes cannot go into an engine, results of several belong to their operator, and a check of
    sizes is no work for an engine.
    """
    found: dict[fx.Node, str] = {}
    for node in order:
        if node in refused or not is_step(node):
            continue
        if depends_on_values(node):
            found[node] = ON_VALUES
        elif is_check(node):
            found[node] = CHECK
        elif is_item(node) and (node.args[0] in refused or node.args[0] in found):
            found[node] = ""
    return found
