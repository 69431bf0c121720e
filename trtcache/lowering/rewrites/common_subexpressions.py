"""Computes equal things once."""

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
    """Replaces a node by an earlier one with the same operator and the same arguments.

    Random operators, operators with side effects, and operators that leave memory unset are never merged; custom
    operators neither, since each may be one of those without saying so.
    """

    name: ClassVar[str] = "common_subexpressions"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Merge equal nodes in place; what they leave unused is gone as well."""
        first: dict[object, fx.Node] = {}
        modified = False
        for node in graph_module.graph.nodes:
            if not mergeable(node):
                continue
            key = (node.target, frozen(node.args), frozen(node.kwargs))
            twin = first.setdefault(key, node)
            if twin is not node:
                node.replace_all_uses_with(twin)
                graph_module.graph.erase_node(node)
                modified = True
        return PassResult(graph_module, modified)


def mergeable(node: fx.Node) -> bool:
    """Say whether the node gives the same result each time it is computed."""
    if node.op == "get_attr":
        return True
    return node.op == "call_function" and _repeatable(node.target)


@functools.cache
def is_random(target: object) -> bool:
    """Say whether an operator draws random numbers."""
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags


def draws(node: fx.Node) -> bool:
    """Say whether a call draws random numbers; one that could may be told not to, as attention without dropout is."""
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


def frozen(argument: Any) -> object:
    """Return an argument in a form that is equal for equal arguments only: ``1``, ``1.0`` and ``True`` differ."""
    if isinstance(argument, fx.Node):
        return argument
    if isinstance(argument, (list, tuple)):
        return tuple(map(frozen, argument))
    if isinstance(argument, dict):
        return tuple(sorted((name, frozen(one)) for name, one in argument.items()))
    if isinstance(argument, slice):
        return ("slice", frozen(argument.start), frozen(argument.stop), frozen(argument.step))
    if isinstance(argument, (float, complex)):
        return (type(argument), repr(argument))
    return (type(argument), argument)
