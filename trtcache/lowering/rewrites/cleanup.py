"""Removal of dead code, dead stores, common subexpressions, and operators without effect."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Collection
from typing import Any, ClassVar

import torch
from torch import fx

from trtcache.config.frozen import frozen_dataclass
from trtcache.lowering.operators import TORCHS_OWN
from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewriting import (
    AS_STRIDED,
    arguments,
    calls_of,
    feed_stride_readers,
    is_random,
    is_returned,
    is_view,
    kind_of,
    memory_owner,
    nodes_in,
    operator_of,
    reaches_output,
    reads_strides,
    recipe_of,
    replace,
    same_shape,
    same_sizes,
    stored_weights,
    tensor_of,
)
from trtcache.weights.recipes import sources

aten = torch.ops.aten


@frozen_dataclass
class DeadCode(Pass):
    """Remove unused operators, constants and weights. Inputs, stored weights and nodes with side effects stay.

    Side effects are those known to ``torch.fx``: mutation, random numbers, assertions.
    """

    name: ClassVar[str] = "dead_code"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Remove dead nodes in place, the last one first."""
        size = len(graph_module.graph.nodes)
        for node in reversed(graph_module.graph.nodes):
            if is_dead(node):
                graph_module.graph.erase_node(node)
        return PassResult(graph_module, len(graph_module.graph.nodes) != size)

    def ensures(self, graph_module: fx.GraphModule) -> str | None:
        """Return the first node that is still dead, if any."""
        return next((f"{node.name} is dead" for node in graph_module.graph.nodes if is_dead(node)), None)


def is_dead(node: fx.Node) -> bool:
    """Return whether a node is unused and has no effect."""
    if node.users or node.op == "output" or "input" in node.meta:
        return False
    if "weight" in node.meta:
        return node.meta["weight"] not in stored_weights(node.graph)
    return node.op in {"placeholder", "get_attr"} or not node.is_impure()


@frozen_dataclass
class DeadStores(Pass):
    """Remove new contents of transient weights on which nothing depends, in this call or a later one.

    An example are the last activations in a buffer that is not persistent. New contents of other weights stay: they are
    in the ``state_dict``. Nodes that only computed removed contents are left for dead code elimination.
    """

    name: ClassVar[str] = "dead_stores"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Drop outputs in place."""
        output = graph_module.graph.output_node()
        if all(role.kind != "weight" for role in output.meta["roles"]):
            return PassResult(graph_module, modified=False)
        outputs = list(zip(output.meta["roles"], output.args[0], strict=True))  # type: ignore[arg-type]
        transient = {
            node.meta["weight"]
            for node in graph_module.graph.find_nodes(op="placeholder")
            if node.meta.get("transient") and "weight" in node.meta
        }
        dropped = transient - _read_weights(graph_module.graph, transient)
        kept = [(role, value) for role, value in outputs if role.kind != "weight" or role.target not in dropped]
        if len(kept) == len(outputs):
            return PassResult(graph_module, modified=False)
        output.args = (tuple(value for _, value in kept),)
        output.meta["roles"] = tuple(role for role, _ in kept)
        return PassResult(graph_module, modified=True)


def _read_weights(graph: fx.Graph, transient: Collection[object]) -> set[object]:
    """Return the names of weights on which results, side effects or stores of other weights than transient ones depend.

    They depend on a weight directly, or through stores.
    """
    output = graph.output_node()
    stores: dict[object, fx.Node] = {}
    stack = [node for node in graph.nodes if node.op == "call_function" and not node.users and node.is_impure()]
    for role, value in zip(output.meta["roles"], output.args[0], strict=True):  # type: ignore[arg-type]
        if role.kind == "weight" and role.target in transient:
            stores[role.target] = value
        else:
            stack += nodes_in(value)
    read: set[object] = set()
    seen: set[fx.Node] = set()
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            recipe = recipe_of(node)
            names = set(sources(recipe)) - read if recipe else set()
            read |= names
            stack += [*node.all_input_nodes, *(stores[name] for name in names if name in stores)]
    return read


@frozen_dataclass
class CommonSubexpressions(Pass):
    """Replace a node by an earlier one with the same operator and arguments.

    Random operators, operators with side effects, and operators that leave memory uninitialised are never merged; nor
    are custom operators, which may be any of these without declaring it. Two nodes whose memory is returned stay two: a
    caller may write to one result, such as one of several new caches, and must not change another.
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
            if twin is node or (not is_view(node) and is_returned(node) and is_returned(twin)):
                continue
            node.replace_all_uses_with(twin)
            graph_module.graph.erase_node(node)
            modified = True
        return PassResult(graph_module, modified)


def mergeable(node: fx.Node) -> bool:
    """Return whether a node always computes the same result."""
    return node.op == "get_attr" or (node.op == "call_function" and _is_repeatable(node.target))


@functools.cache
def _is_repeatable(target: object) -> bool:
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
    if isinstance(argument, float):
        return (float, struct.pack("d", argument))
    if isinstance(argument, complex):
        return (complex, freeze(argument.real), freeze(argument.imag))
    return (type(argument), argument)


def _is_full(node: fx.Node) -> bool:
    """Return whether an expand or a slice returns a whole tensor, once."""
    source, made = tensor_of(node.args[0]), tensor_of(node)
    if source is None or made is None or not same_shape(source, made):
        return False
    return bool(node.target is aten.expand.default or arguments(node)[4] == 1)


def _is_plain_copy(node: fx.Node) -> bool:
    source, made = tensor_of(node.args[0]), tensor_of(node)
    if source is None or made is None:
        return False
    return (source.dtype, source.device, source.layout) == (made.dtype, made.device, made.layout)


def _scales_by_one(node: fx.Node) -> bool:
    """Return whether a number is multiplied or divided by one, which keeps every bit."""
    factor = arguments(node)[1]
    is_one = type(factor) in {int, float} and factor == 1 and _is_plain_copy(node)
    return is_one and not node.meta["val"].dtype.is_complex  # torch multiplies inf + 0j by 1 + 0j: inf + nan j


_VIEWS: dict[Any, Callable[[fx.Node], bool]] = {
    **dict.fromkeys((aten.alias.default, aten.detach.default, aten.lift_fresh.default), lambda _: True),
    **dict.fromkeys((aten.expand.default, aten.slice.Tensor), _is_full),
}
_COPIES: dict[Any, Callable[[fx.Node], bool]] = {
    **dict.fromkeys((aten.clone.default, aten.contiguous.default, aten.lift_fresh_copy.default), lambda _: True),
    **dict.fromkeys((aten.alias_copy.default, aten.detach_copy.default), lambda _: True),
    aten._to_copy.default: _is_plain_copy,
    aten.cat.default: lambda node: len(node.args[0]) == 1,  # type: ignore[arg-type]  # a list, says the schema
    aten.repeat.default: lambda node: list(arguments(node)[1]) == [1] * arguments(node)[0].meta["val"].dim(),
    aten.dropout.default: lambda node: node.args[2] is False or node.args[1] in (0, 0.0),
    aten.constant_pad_nd.default: lambda node: not any(node.args[1]),  # type: ignore[arg-type]
    **dict.fromkeys((aten.mul.Tensor, aten.div.Tensor), _scales_by_one),
    aten.flip.default: lambda node: not node.args[1],
}
_RULES = {**_VIEWS, **_COPIES}


@frozen_dataclass
class NoOps(Pass):
    """Remove clone, contiguous, alias, detach, dropout in eval mode, and casts, slices, factors without effect.

    A copy stays if it is visible: if it is returned, itself or through views, and its source is not a fresh tensor of
    the same layout; and if an operator uses it that reads strides, or is not torch's. So does one of a tensor that is
    conjugated or negated lazily. Other arithmetic stays: ``x + 0`` is not ``x`` for -0.0.
    """

    name: ClassVar[str] = "no_ops"
    version: ClassVar[int] = 2

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Remove in place."""
        modified, feeding = False, feed_stride_readers(graph_module.graph)
        for node in calls_of(graph_module.graph, _RULES):
            if not _RULES[node.target](node):
                continue
            source: Any = node.args[0]
            source = source[0] if isinstance(source, (list, tuple)) else source
            if node.target in _COPIES and (
                any(map(reads_strides, node.users))
                or (is_returned(node) and not _is_fresh(source, node))
                # an input, or a view of one, can be a part of a larger memory
                or ("input" in memory_owner(source).meta and any(map(_reads_memory, node.users)))
            ):
                continue  # a caller can distinguish the copy from its source
            if kind_of(source.meta["val"]) != kind_of(node.meta["val"]):
                continue  # ``resolve_conj``: view_as_real raises for a lazily conjugated tensor
            if not same_sizes(source.meta["val"].stride(), node.meta["val"].stride()):
                if node in feeding:
                    continue
                _free_views(node)
            replace(node, source)
            modified = True
        return PassResult(graph_module, modified)


def _free_views(node: fx.Node) -> None:
    """Convert views of a copy, recursively, to reshapes: its source may have an incompatible layout for a view."""
    for user in node.users:
        if user.op == "call_function" and is_view(user):
            if user.target is aten.view.default:
                user.target = aten.reshape.default
            _free_views(user)


def _reads_memory(user: fx.Node) -> bool:
    """Return whether ``as_strided`` reads the memory of a tensor, itself or through a view."""
    return operator_of(user) in AS_STRIDED or (is_view(user) and any(map(_reads_memory, user.users)))


def _is_fresh(source: fx.Node, copy: fx.Node) -> bool:
    """Return whether a tensor was just computed, has its copy's layout, and is not returned otherwise."""
    if source.op != "call_function" or is_view(source):
        return False
    if not same_sizes(source.meta["val"].stride(), copy.meta["val"].stride()):
        return False
    return not any(reaches_output(user) for user in source.users if user is not copy)
