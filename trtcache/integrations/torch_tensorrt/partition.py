"""A torch_tensorrt partition as a lowered program, to compute its key.

The partition's graph is not modified: torch_tensorrt builds from it, so none of our passes may affect it. A copy is
described, in which inputs, weights and constants are marked.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from trtcache.errors import CanonicalizationError
from trtcache.lowering.capture import Role
from trtcache.lowering.interface import Interface, Result
from trtcache.lowering.program import LoweredProgram, number_weights
from trtcache.lowering.rewriting import canonical_order
from trtcache.lowering.symbols import Symbols

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.weights.fingerprints import Fingerprints

_FOLDED = "_frozen_param"
"""The prefix of torch_tensorrt's names for folded constants."""


def describe(module: fx.GraphModule, fingerprints: Fingerprints, *, name: str, refittable: bool) -> LoweredProgram:
    """Return a partition as a lowered program. Its tensors are the partition's own; nothing is copied.

    Args:
        module: the partition.
        fingerprints: computes digests.
        name: the partition's name.
        refittable: whether parameters and statistics of BatchNorms are slots. Everything else is described by
            content, as is everything in a frozen engine: values that converters read (indices, shapes, single
            numbers) determine the network.

    Raises:
        CanonicalizationError: something in the partition has no stable description.
    """
    graph = fx.Graph()
    values: dict[fx.Node, fx.Node] = {}
    returned = graph.graph_copy(module.graph, values)
    tensors = {node: _attribute(module, node) for node in graph.find_nodes(op="get_attr")}
    state = {str(node.target): one for node, one in tensors.items() if refittable and _is_slot(node, one)}
    for node in tensors:
        node.meta["val"] = tensors[node]
        if str(node.target) in state:
            node.meta["weight"] = str(node.target)
    _mark_constants({node: one for node, one in tensors.items() if str(node.target) not in state}, fingerprints)
    for leaf, node in enumerate(graph.find_nodes(op="placeholder")):
        node.meta["input"] = leaf
        if "val" not in node.meta:
            raise CanonicalizationError(f"graph node {node.name}", "an input without dtype and shape")
    results = tuple(returned) if isinstance(returned, (list, tuple)) else (returned,)
    graph.output(results).meta["roles"] = (Role("result"),) * len(results)
    return _program(graph, module, state, tensors, name)


class _DescriptionGraph(fx.GraphModule):
    """A graph that never runs, without the Python code that torch generates: 25 ms for 1,130 nodes."""

    def recompile(self) -> None:  # type: ignore[override]  # torch returns the code, which is unused
        """Generate no code."""


def _program(
    graph: fx.Graph,
    module: fx.GraphModule,
    state: Mapping[str, torch.Tensor],
    tensors: Mapping[fx.Node, torch.Tensor],
    name: str,
) -> LoweredProgram:
    order, arguments = canonical_order(graph)
    slots, weights = number_weights(order, state, mutated=(), saved=frozenset(state))
    roles = graph.output_node().meta["roles"]
    constants = {one.meta["constant"][0]: tensors[one] for one in order if "constant" in one.meta}
    nothing = pytree.tree_structure(())
    return LoweredProgram(
        name=name,
        device=torch.device("cuda"),
        graph_module=_DescriptionGraph(module, graph),
        order=tuple(order),
        arguments=arguments,
        interface=Interface(
            inputs=(),  # torch_tensorrt's own input specs are in the key
            values=(),
            results=tuple(Result(role.kind) for role in roles),
            slots=slots,
            weights=weights,
            constants=tuple(one.meta["constant"][1] for one in order if "constant" in one.meta),
            ranges=(),
        ),
        constants=constants,
        state=state,
        sources={},
        in_spec=nothing,
        out_spec=nothing,
        symbols=Symbols(),
        constraints=_ranges(graph),
        pipeline=(),
    )


def _attribute(module: fx.GraphModule, node: fx.Node) -> torch.Tensor:
    value: object = functools.reduce(getattr, str(node.target).split("."), module)
    if not isinstance(value, torch.Tensor):
        raise CanonicalizationError(f"graph node {node.name}", f"a {type(value).__name__} is not a tensor")
    return value


def _is_slot(node: fx.Node, tensor: torch.Tensor) -> bool:
    """Return whether a refit sets this tensor: several floating-point numbers that are certainly a weight.

    A partition does not distinguish a model's buffers from its constants, so of those only BatchNorm statistics count.
    What torch_tensorrt folded may be a mask as well as a weight; and a converter may read a single number.
    """
    if not tensor.is_floating_point() or tensor.numel() < 2 or str(node.target).startswith(_FOLDED):
        return False
    return isinstance(tensor, torch.nn.Parameter) or all("batch_norm" in str(user.target) for user in node.users)


def _mark_constants(tensors: Mapping[fx.Node, torch.Tensor], fingerprints: Fingerprints) -> None:
    digests = fingerprints.of(tensors.values())
    for number, (node, digest) in enumerate(zip(tensors, digests, strict=True)):
        node.meta["constant"] = (f"c{number}", str(digest))


def _ranges(graph: fx.Graph) -> Mapping[Any, Any]:
    """Return the ranges of the graph's symbolic sizes."""
    for node in graph.nodes:
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, torch.Tensor) else (value,):
            if isinstance(size, torch.SymInt):
                ranges: Mapping[Any, Any] = size.node.shape_env.var_to_range
                return ranges
    return {}
