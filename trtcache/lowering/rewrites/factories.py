"""Canonical creation of constant-filled tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trtcache.lowering.arguments import arguments
from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewrites.sizes import SizeNodes
from trtcache.lowering.rewriting import calls_of, is_dense, is_static, set_arguments, tensor_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import fx

aten = torch.ops.aten

_NUMBERS: dict[object, Callable[[fx.Node], Any]] = {
    **dict.fromkeys((aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default), lambda _: 0),
    **dict.fromkeys((aten.ones.default, aten.ones_like.default, aten.new_ones.default), lambda _: 1),
    **dict.fromkeys((aten.full_like.default, aten.full.default), lambda node: arguments(node)[1]),
    aten.new_full.default: lambda node: arguments(node)[2],
    aten.scalar_tensor.default: lambda node: arguments(node)[0],
}


@dataclass(frozen=True, slots=True)
class Factories(Pass):
    """Rewrite zeros, ones, ``full_like``, ``new_full`` and ``scalar_tensor`` to ``full`` with explicit arguments.

    A tensor with the shape of another no longer depends on it; symbolic sizes are computed as by ``sizes``. Tensors
    that copy another's non-contiguous layout are unchanged, since a result would expose it.
    """

    name: ClassVar[str] = "factories"
    version: ClassVar[int] = 2

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite in place."""
        modified, sizes = False, None
        for node in calls_of(graph_module.graph, _NUMBERS):
            made = tensor_of(node)
            if made is None or not is_dense(made):
                continue
            shape: list[Any] | None = list(made.shape)
            if not is_static(made.shape):
                sizes = sizes or SizeNodes(graph_module.graph)
                shape = arguments(node)[0] if node.target is aten.full.default else sizes.of_all(made.shape)
            if shape is not None:
                modified |= _write(node, made, shape, _NUMBERS[node.target](node))
        return PassResult(graph_module, modified or bool(sizes and sizes.changed))


def _write(node: fx.Node, made: torch.Tensor, shape: list[Any], number: Any) -> bool:
    if isinstance(number, int) and not isinstance(number, bool) and made.dtype.is_floating_point:
        number = float(number)
    if made.dtype is torch.bool:
        number = bool(number) if isinstance(number, (bool, int, float)) else number
    wanted = [shape, number, made.dtype, made.layout, made.device, None]
    given = arguments(node) if node.target is aten.full.default else []
    if given == wanted and type(given[1]) is type(number):
        return False
    node.target = aten.full.default
    set_arguments(node, wanted)
    return True
