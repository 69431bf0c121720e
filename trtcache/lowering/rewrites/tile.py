"""Repetition of a tensor as one ``repeat``, or as an ``expand`` if equivalent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trtcache.lowering.arguments import arguments
from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewriting import calls_of, is_static, tensor_of
from trtcache.lowering.visibility import is_returned, reads_strides

if TYPE_CHECKING:
    from torch import fx

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Tile(Pass):
    """Rewrite ``tile``, and ``cat`` of one tensor several times, to ``repeat``, and merge chains of repeats.

    A repeat of dimensions of size 1 is an ``expand``, unless its result is returned or used by an operator that reads
    strides: a repeat has its own memory. Repetitions by a symbolic number are unchanged.
    """

    name: ClassVar[str] = "tile"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite in place. Unused parts of a merged chain are left for dead code elimination."""
        modified = False
        for node in calls_of(graph_module.graph, _REPETITIONS):
            repetition = _repetition(node)
            if repetition is not None:
                modified |= _write(node, *repetition)
        return PassResult(graph_module, modified)


_REPETITIONS = (aten.tile.default, aten.cat.default, aten.repeat.default)


def _repetition(node: fx.Node) -> tuple[fx.Node, list[int]] | None:
    """Return a node's source, and the number of repetitions along each dimension of the result, or None."""
    if node.target is aten.cat.default:
        return _cat_repetition(node)
    source, repeats = arguments(node)
    value = tensor_of(source)
    if value is None or not all(type(one) is int for one in repeats):
        return None
    repeats = [1] * (value.dim() - len(repeats)) + list(repeats)
    inner = _repetition(source) if source.target is aten.repeat.default else None
    if inner is None:
        return source, repeats
    times = [1] * (len(repeats) - len(inner[1])) + inner[1]
    return inner[0], [one * other for one, other in zip(times, repeats, strict=True)]


def _cat_repetition(node: fx.Node) -> tuple[fx.Node, list[int]] | None:
    tensors, dim = arguments(node)
    made = tensor_of(node)
    if made is None or len(tensors) < 2 or len(set(tensors)) > 1:
        return None
    repeats = [1] * made.dim()
    repeats[dim] = len(tensors)
    return tensors[0], repeats


def _write(node: fx.Node, source: fx.Node, repeats: list[int]) -> bool:
    target, args = aten.repeat.default, (source, repeats)
    if _is_expand(node, source, repeats):
        target, args = aten.expand.default, (source, list(node.meta["val"].shape))
    if node.target is target and node.args == args:
        return False
    node.target, node.args, node.kwargs = target, args, {}
    return True


def _is_expand(node: fx.Node, source: fx.Node, repeats: list[int]) -> bool:
    sizes: list[Any] = list(source.meta["val"].shape)
    sizes = [1] * (len(repeats) - len(sizes)) + sizes
    if not is_static(sizes) or any(times != 1 and size != 1 for times, size in zip(repeats, sizes, strict=True)):
        return False
    return not is_returned(node) and not any(map(reads_strides, node.users))
