"""Merging of chains of casts."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewriting import is_returned, replace, tensor_of

if TYPE_CHECKING:
    from torch import fx

aten = torch.ops.aten
_cast = aten._to_copy.default
_PROMOTING = frozenset(
    {
        *(aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor),
        *(aten.maximum.default, aten.minimum.default, aten.eq.Tensor, aten.ne.Tensor),
        *(aten.lt.Tensor, aten.le.Tensor, aten.gt.Tensor, aten.ge.Tensor),
    }
)
"""Operators that promote two tensors to one dtype before they compute."""


@dataclass(frozen=True, slots=True)
class Casts(Pass):
    """Skip a cast whose result is cast again, if the intermediate dtype represents every value of the first one.

    ``f16 -> f32 -> f16`` is removed, ``bf16 -> f32 -> f64`` is one cast, and ``f32 -> f16 -> f32`` stays: it rounds.
    Only casts that change nothing but the dtype are merged. If a result is returned, a pair that cancels becomes a
    ``clone``. A cast that equals an operator's own type promotion is removed.
    """

    name: ClassVar[str] = "casts"
    version: ClassVar[int] = 2

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Merge in place; skipped casts are left for dead code elimination."""
        modified = False
        for node in graph_module.graph.find_nodes(op="call_function", target=_cast):
            source = node.args[0]
            if not (_changes_dtype_only(node) and source.target is _cast and _changes_dtype_only(source)):
                continue
            first = source.args[0]
            dtype = first.meta["val"].dtype
            if not holds(source.meta["val"].dtype, dtype):
                continue
            if node.meta["val"].dtype is not dtype:
                node.replace_input_with(source, first)
            elif is_returned(node):
                node.target, node.args, node.kwargs = torch.ops.aten.clone.default, (first,), {}
            else:
                replace(node, first)
            modified = True
        for node in graph_module.graph.find_nodes(op="call_function", target=_cast):
            for user in list(node.users):
                if _promotes(user, node):
                    user.replace_input_with(node, node.args[0])
                    modified = True
        return PassResult(graph_module, modified)


def _promotes(user: fx.Node, cast: fx.Node) -> bool:
    """Return whether an operator promotes an operand like its cast; the other operand must not be a cast too."""
    if user.target not in _PROMOTING or not _changes_dtype_only(cast):
        return False
    others: list[Any] = [one for one in user.args if one is not cast]
    first: Any = cast.args[0]
    if first.meta["val"].dtype is torch.bool and user.target is aten.sub.Tensor:
        return False  # torch does not subtract booleans
    source, other = tensor_of(first), tensor_of(others[0]) if len(others) == 1 else None
    if source is None or other is None or others[0].target is _cast or source.device != other.device:
        return False
    # A zero-dimensional tensor has lower priority in type promotion.
    have_dimensions = source.dim() > 0 and other.dim() > 0
    return have_dimensions and torch.result_type(source, other) is cast.meta["val"].dtype


def _changes_dtype_only(node: fx.Node) -> bool:
    source, made = tensor_of(node.args[0]), tensor_of(node)
    if source is None or made is None:
        return False
    return source.device == made.device and source.layout == made.layout and not node.kwargs.get("memory_format")


@functools.cache
def holds(wide: torch.dtype, narrow: torch.dtype) -> bool:
    """Return whether a dtype represents every value of another."""
    if narrow is wide or narrow is torch.bool:
        return True
    if wide is torch.bool or wide.is_complex or narrow.is_complex:
        return False
    if wide.is_floating_point:
        bits, least, most = _float_range(narrow) if narrow.is_floating_point else _integer_range(narrow)
        wide_bits, wide_least, wide_most = _float_range(wide)
        return wide_bits >= bits and wide_least <= least and wide_most >= most
    if narrow.is_floating_point:
        return False
    return torch.iinfo(wide).min <= torch.iinfo(narrow).min and torch.iinfo(wide).max >= torch.iinfo(narrow).max


def _float_range(dtype: torch.dtype) -> tuple[int, float, float]:
    """Return the significant bits, the smallest positive value and the largest value."""
    known = torch.finfo(dtype)
    return 1 - round(math.log2(known.eps)), known.tiny * known.eps, known.max


def _integer_range(dtype: torch.dtype) -> tuple[int, float, float]:
    known = torch.iinfo(dtype)
    return known.bits - (known.min < 0), 1.0, float(known.max)
