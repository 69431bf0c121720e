"""Changes of shape as one ``reshape``, and of dimension order as one ``permute``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import fx

from trtcache.config.frozen import frozen_dataclass
from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewrites.sizes import SizeNodes
from trtcache.lowering.rewriting import (
    arguments,
    calls_of,
    expression,
    feed_stride_readers,
    insert_call,
    is_returned,
    is_static,
    replace,
    same_sizes,
    tensor_of,
)

aten = torch.ops.aten

_RESHAPES = frozenset(
    {
        *(aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.flatten.using_ints),
        *(aten.unflatten.int, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default),
    }
)
_PERMUTES = frozenset({aten.permute.default, aten.transpose.int, aten.t.default})
_RESHAPE_COPIES = frozenset({aten.view_copy.default, aten._reshape_copy.default, aten.unsqueeze_copy.default})


@frozen_dataclass
class Shapes(Pass):
    """Rewrite view, flatten, squeeze and unsqueeze to ``reshape``, transpose and t to ``permute``, and merge chains.

    Sizes are explicit; symbolic ones are computed as by ``sizes``. A reshape to its own shape, an identity permute, and
    an ``expand`` before an elementwise operator that broadcasts are removed; a permute that only moves dimensions of
    size 1 is a reshape. ``view_copy`` and ``permute_copy`` are treated as views, and as a ``clone`` and a view if the
    copy is visible: if it is returned, or used by an operator that reads strides.
    """

    name: ClassVar[str] = "shapes"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite in place. Unused parts of a merged chain are left for dead code elimination."""
        walk = _ShapeWalk(graph_module.graph)
        handlers = walk.handlers()
        for node in graph_module.graph.nodes:
            handle = handlers.get(node.target)
            if handle is not None:
                handle(node, node.args[0])
        return PassResult(graph_module, walk.modified or walk.sizes.changed)


class _ShapeWalk:
    """One walk over a graph: whether it changed, and the nodes of its sizes once needed."""

    def __init__(self, graph: fx.Graph) -> None:
        self.modified = False
        self.sizes = SizeNodes(graph)
        self._feeding = feed_stride_readers(graph)

    def handlers(self) -> dict[Any, Callable[[fx.Node, fx.Node], object]]:
        """Return the handler of each operator."""
        return {
            **dict.fromkeys(_RESHAPES, self.reshape),
            **dict.fromkeys(_PERMUTES, self.permute),
            **dict.fromkeys(_RESHAPE_COPIES, self.reshape_copy),
            aten.permute_copy.default: self.permute_copy,
            aten.expand.default: self.expand,
        }

    def _set(self, node: fx.Node, target: Any, args: tuple[Any, ...]) -> None:
        if node.args != args or node.kwargs:
            node.args, node.kwargs = args, {}
            self.modified = True
        if node.target is not target:
            node.target = target
            self.modified = True

    def _replace(self, node: fx.Node, by: fx.Node) -> None:
        replace(node, by)
        self.modified = True

    def reshape(self, node: fx.Node, source: fx.Node) -> bool:
        """Rewrite a node to a reshape of a source; return whether it is one now, or removed."""
        source = _through(aten.reshape.default, source)
        made = node.meta["val"]
        if same_sizes(source.meta["val"].shape, made.shape):
            self._replace(node, source)
            return True
        sizes = self.sizes.of_all(made.shape)
        if sizes is None:
            return False
        self._set(node, aten.reshape.default, (source, sizes))
        self._free_ranked(node, source)
        return True

    def reshape_copy(self, node: fx.Node, source: fx.Node) -> None:
        if not self._is_visible(node):
            self.reshape(node, source)
        elif self.sizes.of_all(node.meta["val"].shape) is not None:
            value = source.meta["val"]
            copy = insert_call(node, aten.clone.default, (source,), value.new_empty(value.shape))
            copy.kwargs = {"memory_format": torch.contiguous_format}
            self.reshape(node, copy)
            self.modified = True

    def permute_copy(self, node: fx.Node, source: fx.Node) -> None:
        if not self._is_visible(node):
            self.permute(node, source)
            return
        order = _order(node)
        permuted = insert_call(node, aten.permute.default, (source, order), source.meta["val"].permute(order))
        self._set(node, aten.clone.default, (permuted,))
        node.kwargs = {"memory_format": torch.contiguous_format}
        self.permute(permuted, source)

    def _is_visible(self, copy: fx.Node) -> bool:
        return is_returned(copy) or copy in self._feeding

    def _free_ranked(self, node: fx.Node, source: fx.Node) -> None:
        if same_sizes(_without_leading_ones(source), _without_leading_ones(node)):
            self._free_expanding(node, source)

    def _free_expanding(self, node: fx.Node, source: fx.Node) -> None:
        """Connect operators that broadcast to the tensor before its shape was changed for them."""
        for user in list(node.users):
            if _expands_itself(user, node, source):
                user.replace_input_with(node, source)
                self.modified = True

    def permute(self, node: fx.Node, source: fx.Node) -> None:
        order = _order(node)
        while source.target is aten.permute.default:
            order = [_order(source)[dim] for dim in order]
            source = source.args[0]  # type: ignore[assignment]  # their first argument is a tensor
        shape = source.meta["val"].shape
        moved = [dim for dim in order if expression(shape[dim]) != 1]
        if order == sorted(order):
            self._replace(node, source)
        elif (moved == sorted(moved) and self.reshape(node, source)) or self._permute_first(node, source, moved):
            return
        else:
            self._set(node, aten.permute.default, (source, order))

    def _permute_first(self, node: fx.Node, source: fx.Node, moved: list[int]) -> bool:
        """Permute before a reshape that only adds or drops dimensions of size 1, not after; return whether possible."""
        if source.target is not aten.reshape.default:
            return False
        base: Any = source.args[0]
        shapes = [one.meta["val"].shape for one in (base, source)]
        ours, theirs = ([dim for dim, size in enumerate(shape) if expression(size) != 1] for shape in shapes)
        is_same = same_sizes([shapes[0][dim] for dim in ours], [shapes[1][dim] for dim in theirs])
        sizes = self.sizes.of_all(node.meta["val"].shape)
        if not is_same or sizes is None:
            return False
        order, after = list(range(len(shapes[0]))), dict(zip(theirs, ours, strict=True))
        for place, dim in zip(ours, moved, strict=True):
            order[place] = after[dim]
        permuted = insert_call(node, aten.permute.default, (base, order), base.meta["val"].permute(order))
        self._set(node, aten.reshape.default, (permuted, sizes))
        self.permute(permuted, base)
        return self.reshape(node, node.args[0])  # type: ignore[arg-type]  # its first argument is a tensor

    def expand(self, node: fx.Node, source: fx.Node) -> None:
        source, made = _through(aten.expand.default, source), node.meta["val"]
        if source.target is aten.reshape.default:
            base: Any = source.args[0]
            added = source.meta["val"].dim() - base.meta["val"].dim()
            if added > 0 and same_sizes(source.meta["val"].shape[added:], base.meta["val"].shape):
                source = base  # the reshape only adds leading ones
        if same_sizes(source.meta["val"].shape, made.shape):
            self._replace(node, source)
            return
        sizes = self.sizes.of_all(made.shape)
        if sizes is not None:
            self._set(node, aten.expand.default, (source, sizes))
        self._free_expanding(node, source)
        if source.target is aten.reshape.default:
            self._free_ranked(source, source.args[0])  # type: ignore[arg-type]  # its first argument is a tensor


def _without_leading_ones(node: fx.Node) -> list[Any]:
    shape = list(node.meta["val"].shape)
    first = next((dim for dim, size in enumerate(shape) if expression(size) != 1), len(shape))
    return shape[first:]


def _through(target: object, source: fx.Node) -> fx.Node:
    while source.target is target:
        source = source.args[0]  # type: ignore[assignment]  # their first argument is a tensor
    return source


def _order(node: fx.Node) -> list[int]:
    rank = tensor_of(node.args[0]).dim()  # type: ignore[union-attr]  # their first argument is a tensor
    if node.target in {aten.permute.default, aten.permute_copy.default}:
        return [dim % rank for dim in arguments(node)[1]]
    order = list(range(rank))
    if rank < 2:
        return order
    one, other = (0, 1) if node.target is aten.t.default else arguments(node)[1:]
    order[one], order[other] = order[other], order[one]
    return order


def _expands_itself(user: fx.Node, expanded: fx.Node, source: fx.Node) -> bool:
    """Return whether an operator gives the same result for the tensor before it was expanded."""
    target = user.target
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.pointwise not in target.tags:
        return False
    made = tensor_of(user)
    if made is None or torch.Tag.nondeterministic_seeded in target.tags:
        return False
    used = [source if one is expanded else one for one in arguments(user)]
    tensors = [value for value in map(tensor_of, used) if value is not None]
    # A zero-dimensional tensor has lower priority in type promotion, and may be on another device.
    have_dims = [one.meta["val"].dim() > 0 for one in (source, expanded)]
    ranked = have_dims[0] == have_dims[1] or len({(tensor.dtype, tensor.device) for tensor in tensors}) == 1
    rank = max(tensor.dim() for tensor in tensors)
    shape: list[Any] = [1] * rank
    for tensor in tensors:
        for dim, size in enumerate(tensor.shape, start=rank - tensor.dim()):
            if expression(size) != 1:
                shape[dim] = size
    return ranked and same_sizes(shape, made.shape)


@frozen_dataclass
class Tile(Pass):
    """Rewrite ``tile``, and ``cat`` of one tensor several times, to ``repeat``, and merge chains of repeats.

    A repeat of dimensions of size 1 is an ``expand``, unless its result is returned or used by an operator that reads
    strides: a repeat has its own memory. Repetitions by a symbolic number are unchanged.
    """

    name: ClassVar[str] = "tile"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite in place. Unused parts of a merged chain are left for dead code elimination."""
        modified, feeding = False, feed_stride_readers(graph_module.graph)
        for node in calls_of(graph_module.graph, _REPETITIONS):
            repetition = _repetition(node)
            if repetition is None:
                continue
            source, repeats = repetition
            target, args = aten.repeat.default, (source, repeats)
            sizes: list[Any] = list(source.meta["val"].shape)
            sizes = [1] * (len(repeats) - len(sizes)) + sizes
            is_expand = is_static(sizes) and all(
                times == 1 or size == 1 for times, size in zip(repeats, sizes, strict=True)
            )
            if is_expand and not is_returned(node) and node not in feeding:
                target, args = aten.expand.default, (source, list(node.meta["val"].shape))
            if node.target is not target or node.args != args:
                node.target, node.args, node.kwargs, modified = target, args, {}, True
        return PassResult(graph_module, modified)


_REPETITIONS = (aten.tile.default, aten.cat.default, aten.repeat.default)


def _repetition(node: fx.Node) -> tuple[fx.Node, list[int]] | None:
    """Return a node's source, and the number of repetitions along each dimension of the result, or None."""
    if node.target is aten.cat.default:
        tensors, dim = arguments(node)
        made = tensor_of(node)
        if made is None or len(tensors) < 2 or len(set(tensors)) > 1:
            return None
        times = [1] * made.dim()
        times[dim] = len(tensors)
        return tensors[0], times
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
