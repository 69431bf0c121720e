"""Canonical reductions: kept dimensions, and extrema without indices."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewriting import arguments, calls_of, parameter_places, replace, same_sizes, set_arguments

if TYPE_CHECKING:
    from torch import fx

aten = torch.ops.aten

_KEEPING = frozenset(
    {
        *(aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.amin.default, aten.logsumexp.default),
        *(aten.var.correction, aten.std.correction, aten.linalg_vector_norm.default, aten.prod.dim_int),
        *(aten.any.dim, aten.any.dims, aten.all.dim, aten.all.dims, aten.argmax.default, aten.argmin.default),
    }
)
_EXTREMES: dict[Any, Any] = {aten.max.dim: aten.amax.default, aten.min.dim: aten.amin.default}


@dataclass(frozen=True, slots=True)
class Reductions(Pass):
    """Rewrite ``x.sum(1).unsqueeze(1)`` to a sum that keeps its dimensions, and ``x.max(1)[0]`` to ``amax``.

    A reshape that only restores, or drops, the reduced dimensions becomes the reduction's own, if it is the only user.
    ``max`` and ``min`` whose indices are used are unchanged.
    """

    name: ClassVar[str] = "reductions"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite in place."""
        modified = False
        for node in calls_of(graph_module.graph, _EXTREMES):
            modified |= _take_values(node)
        for node in calls_of(graph_module.graph, _KEEPING):
            modified |= _keep(node)
        return PassResult(graph_module, modified)


def _take_values(node: fx.Node) -> bool:
    users = list(node.users)
    if not users or any(user.target is not operator.getitem or user.args[1] != 0 for user in users):
        return False
    x, dim, keepdim = arguments(node)
    node.meta["val"] = node.meta["val"][0]
    node.target = _EXTREMES[node.target]
    set_arguments(node, (x, [dim], keepdim))
    for user in users:
        replace(user, node)
    return True


def _keep(node: fx.Node) -> bool:
    (user,) = node.users if len(node.users) == 1 else (node,)
    places, values = parameter_places(node.target), arguments(node)
    dims = values[places["dim"]]
    if user.target is not aten.reshape.default or dims in (None, []):
        return False
    keepdim = not values[places["keepdim"]]
    if not same_sizes(user.meta["val"].shape, _reduced_shape(node, dims, keepdim=keepdim)):
        return False
    values[places["keepdim"]] = keepdim
    set_arguments(node, values)
    node.meta["val"] = user.meta["val"]
    replace(user, node)
    return True


def _reduced_shape(node: fx.Node, dims: Any, *, keepdim: bool) -> list[Any]:
    """Return the operand's shape with some dimensions reduced to one, or dropped."""
    sizes = node.all_input_nodes[0].meta["val"].shape
    reduced = {dims} if isinstance(dims, int) else set(dims)
    ones = [1 if dim in reduced else size for dim, size in enumerate(sizes)]
    return [size for dim, size in enumerate(ones) if keepdim or dim not in reduced]
