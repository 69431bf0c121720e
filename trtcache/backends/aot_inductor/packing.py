"""Convolution weights packed for oneDNN when a package is loaded (``settings={"weights": "packed"}``).

A convolution of oneDNN takes its weight in a layout of its own, which depends on the processor. Given an ordinary
tensor, each call packs it again. Inductor's ``freezing`` packs it in the build, so that the package has its values.
Here the package is compiled for an ordinary tensor, and the loader sets a packed one as its constant: the operator
takes either. So one package serves every set of weights, and a refit packs the new ones.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import torch

from trtcache.backends.aot_inductor.marks import PACKED_MARK, Packing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import fx

aten = torch.ops.aten


def use_packed_weights(module: fx.GraphModule) -> Packing:
    """Replace convolutions of weights by oneDNN's, in place, and return how each weight is packed.

    A weight is packed if every use of it is a two-dimensional float32 convolution with the same arguments, on inputs of
    one fixed size. Others, such as transposed convolutions, stay as they are.
    """
    if not torch._C._has_mkldnn:
        return {}
    packing: Packing = {}
    uses: dict[str, list[tuple[fx.Node, fx.Node]]] = {}
    for node in module.graph.find_nodes(op="get_attr"):
        uses.setdefault(str(node.target), []).extend((node, user) for user in node.users)
    for name, pairs in uses.items():
        found = [_packing_arguments(weight, user) for weight, user in pairs]
        if not found or None in found or any(one != found[0] for one in found):
            continue
        packing[name] = cast("list[Any]", found[0])
        for _, convolution in pairs:
            _replace(module.graph, convolution, packing[name])
    module.recompile()
    return packing


def _packing_arguments(weight: fx.Node, user: fx.Node) -> list[Any] | None:
    """Return padding, stride, dilation, groups and input size of a convolution whose weight can be packed."""
    if user.target is not aten.convolution.default:
        return None
    source, taken, bias, stride, padding, dilation, transposed, _, groups = user.args
    if taken is not weight or weight in (source, bias) or transposed:
        return None
    values = [one.meta["val"] for one in (source, weight)]  # type: ignore[union-attr]  # nodes
    for value in values:
        if value.dtype is not torch.float32 or value.device.type != "cpu" or value.dim() != 4:
            return None
        if not all(type(size) is int and size > 0 for size in value.shape):
            return None
    numbers = [[*map(int, cast("list[int]", one))] for one in (padding, stride, dilation)]
    # Inductor repeats a single number for both dimensions; oneDNN's operator does not.
    padding_2d, stride_2d, dilation_2d = (one * 2 if len(one) == 1 else one for one in numbers)
    return [padding_2d, stride_2d, dilation_2d, groups, [*values[0].shape]]


def _replace(graph: fx.Graph, convolution: fx.Node, arguments: list[Any]) -> None:
    source, weight, bias = convolution.args[:3]
    padding, stride, dilation, groups, _ = arguments
    with graph.inserting_before(convolution):
        operator = torch.ops.mkldnn._convolution_pointwise.default
        new = graph.call_function(operator, (source, weight, bias, padding, stride, dilation, groups, "none", [], ""))
    new.meta["val"] = convolution.meta["val"].contiguous(memory_format=torch.channels_last)
    convolution.replace_all_uses_with(new)
    graph.erase_node(convolution)


def mark(packing: Packing) -> dict[str, str]:
    """Return the metadata of a package that takes weights packed in this way."""
    return {PACKED_MARK: json.dumps(packing)}


class PackedTensors:
    """The tensors of a package, some of them packed.

    Weights are shared with the model, and the copies would not follow a change in place. So their version counters are
    compared before each call.

    Attributes:
        tensors: the tensors by the engine's names.
    """

    def __init__(self, given: Mapping[str, torch.Tensor], packing: Packing) -> None:
        """Pack the weights, except those of inference mode: they have no version counter, and stay as they are."""
        sources = {name: given[name].detach() for name in packing if not given[name].is_inference()}
        self._versions = [(tensor, tensor._version) for tensor in sources.values()]
        with torch.no_grad():
            reorder = torch.ops.mkldnn._reorder_convolution_weight
            packed = {name: reorder(tensor, *packing[name]) for name, tensor in sources.items()}
        self.tensors = {**given, **packed}

    def is_current(self) -> bool:
        """Return whether no packed weight has been changed in place."""
        return all(tensor._version == version for tensor, version in self._versions)
