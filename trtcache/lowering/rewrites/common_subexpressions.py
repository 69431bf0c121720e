"""Common subexpression elimination."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import fx

from trtcache.lowering.arguments import argument_names, arguments
from trtcache.lowering.custom_operators import TORCHS_OWN
from trtcache.lowering.passes import Pass, PassResult


@dataclass(frozen=True, slots=True)
class CommonSubexpressions(Pass):
    """Replace a node by an earlier one with the same operator and arguments.

    Random operators, operators with side effects, and operators that leave memory uninitialised are never merged; nor
    are custom operators, which may be any of these without declaring it.
    """

    name: ClassVar[str] = "common_subexpressions"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Merge equal nodes in place, and erase the duplicates."""
        first: dict[object, fx.Node] = {}
        modified = False
        for node in graph_module.graph.nodes:
            if not mergeable(node):
                continue
            key = (node.target, freeze(node.args), freeze(node.kwargs))
            twin = first.setdefault(key, node)
            if twin is not node:
                node.replace_all_uses_with(twin)
                graph_module.graph.erase_node(node)
                modified = True
        return PassResult(graph_module, modified)


def mergeable(node: fx.Node) -> bool:
    """Return whether a node always computes the same result."""
    if node.op == "get_attr":
        return True
    return node.op == "call_function" and _repeatable(node.target)


@functools.cache
def is_random(target: object) -> bool:
    """Return whether an operator draws random numbers."""
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags


def draws(node: fx.Node) -> bool:
    """Return whether a call draws random numbers; arguments may disable it, as for attention without dropout."""
    if not is_random(node.target):
        return False
    given = dict(zip(argument_names(node.target), arguments(node), strict=True))  # type: ignore[arg-type]  # an operator
    return not (given.get("dropout_p") == 0 or given.get("train") is False or given.get("training") is False)


@functools.cache
def _repeatable(target: object) -> bool:
    if isinstance(target, torch._ops.OpOverload):
        return not (
            target.namespace not in TORCHS_OWN
            or is_random(target)
            or target._schema.is_mutable
            or not target._schema.returns
            or "empty" in target._schema.name
        )
    return getattr(target, "__module__", None) in {"_operator", "math"}


def freeze(argument: Any) -> object:
    """Return an argument in a hashable form, equal only for equal arguments: ``1``, ``1.0`` and ``True`` differ."""
    if isinstance(argument, fx.Node):
        return argument
    if isinstance(argument, (list, tuple)):
        return tuple(map(freeze, argument))
    if isinstance(argument, dict):
        return tuple(sorted((name, freeze(one)) for name, one in argument.items()))
    if isinstance(argument, slice):
        return ("slice", freeze(argument.start), freeze(argument.stop), freeze(argument.step))
    if isinstance(argument, (float, complex)):
        return (type(argument), repr(argument))
    return (type(argument), argument)
