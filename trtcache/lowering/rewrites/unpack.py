"""Decomposition of fused operators, for backends that request it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import fx

from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewriting import arguments, insert_call, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

aten = torch.ops.aten

_HALVES = frozenset({torch.float16, torch.bfloat16})


@dataclass(frozen=True, slots=True)
class Unpack(Pass):
    """Decompose the given operators: ``addmm`` and ``log_softmax``.

    ``addmm`` becomes ``mm`` and ``add``, with multiplications if its factors are not 1. ``log_softmax`` becomes a shift
    by the maximum, then a shift by the logarithm of the sum of exponentials: the logarithm of a softmax would be minus
    infinity where that rounds to zero; in float16 and bfloat16 it is computed in float32, as in torch. Products of
    integers are unchanged.
    """

    operators: tuple[str, ...] = ()

    name: ClassVar[str] = "unpack"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Decompose in place."""
        modified = False
        for operator in self.operators:
            target, unpacked = UNPACKED[operator]
            for node in graph_module.graph.find_nodes(op="call_function", target=target):
                if node.meta["val"].is_floating_point():
                    replace(node, unpacked(node))
                    modified = True
        return PassResult(graph_module, modified)

    def requires(self, graph_module: fx.GraphModule) -> str | None:  # noqa: ARG002  # the options alone decide
        """Reject operators that cannot be decomposed."""
        unknown = sorted(set(self.operators) - set(UNPACKED))
        return f"{', '.join(unknown)} cannot be unpacked; known: {', '.join(UNPACKED)}" if unknown else None


def _addmm(node: fx.Node) -> fx.Node:
    bias, left, right, beta, alpha = arguments(node)
    value = node.meta["val"]
    product = insert_call(node, aten.mm.default, (left, right), value)
    if alpha != 1:
        product = insert_call(node, aten.mul.Tensor, (product, _factor(alpha)), value)
    if beta == 0:  # torch does not read the bias then, even if it is NaN
        return product
    if beta != 1:
        bias = insert_call(node, aten.mul.Tensor, (bias, _factor(beta)), bias.meta["val"])
    return insert_call(node, aten.add.Tensor, (product, bias), value)


def _factor(number: Any) -> Any:
    """Return a factor as the ``dimensions`` pass writes numbers next to floats."""
    return float(number) if isinstance(number, int) else number


def _log_softmax(node: fx.Node) -> fx.Node:
    x, dim, half_to_float = arguments(node)
    made = node.meta["val"]
    value = made.to(torch.float32) if made.dtype in _HALVES else made
    kept = value.narrow(dim, 0, 1) if value.dim() else value
    if value is not made or half_to_float:
        x = _cast(node, x, value)
    top = insert_call(node, aten.amax.default, (x, [dim], True), kept)
    shifted = insert_call(node, aten.sub.Tensor, (x, top), value)
    powers = insert_call(node, aten.exp.default, (shifted,), value)
    total = insert_call(node, aten.sum.dim_IntList, (powers, [dim], True), kept)
    result = insert_call(node, aten.sub.Tensor, (shifted, insert_call(node, aten.log.default, (total,), kept)), value)
    return result if value is made else _cast(node, result, made)


def _cast(before: fx.Node, x: fx.Node, value: torch.Tensor) -> fx.Node:
    copy = insert_call(before, aten._to_copy.default, (x,), value)
    copy.kwargs = {"dtype": value.dtype}
    return copy


UNPACKED: Mapping[str, tuple[Any, Callable[[fx.Node], fx.Node]]] = {
    "addmm": (aten.addmm.default, _addmm),
    "log_softmax": (aten._log_softmax.default, _log_softmax),
}
"""Operators that can be decomposed."""
