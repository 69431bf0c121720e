"""Weights packed for oneDNN when a package is loaded (``settings={"weights": "packed"}``).

A convolution or a linear layer of oneDNN takes its weight in a layout of its own, which depends on the processor.
Given an ordinary tensor, each call packs it again, or computes with a slower kernel. Inductor's ``freezing`` packs it
in the build, so that the package has its values. Here the package is compiled for an ordinary tensor, and the loader
sets a packed one as its constant: the operator takes either. So one package serves every set of weights, and a refit
packs the new ones.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from trtcache.backends.aot_inductor.marks import CONVOLUTION, LINEAR, PACKED_MARK, Packing, is_transposed
from trtcache.errors import IncompatibleEngineError
from trtcache.weights.fingerprints import Snapshot

if TYPE_CHECKING:
    from torch import fx

aten = torch.ops.aten

LEAST_PRODUCTS = 1 << 20
"""Multiplications of a linear layer from which it is replaced. A call of oneDNN's operator takes 14 us in addition: 8
rows and a weight of 256 by 256 took 27 us packed and 22 us as they are, 4 rows and 768 by 768 67 us and 132 us."""

_ASSUMED_ROWS = 16
"""Rows of an input with a dynamic batch, to decide whether its layer is replaced."""

_RESHAPES = {aten.reshape.default, aten.view.default}

_Use: TypeAlias = "tuple[fx.Node, list[Any]]"
"""A node that uses a weight, and how the weight is packed for it: its kind and the arguments."""


def use_packed_weights(module: fx.GraphModule, mutated: Collection[str]) -> Packing:
    """Replace convolutions and linear layers by oneDNN's, in place, and return how their weights are packed.

    These are two-dimensional float32 convolutions on inputs of fixed sizes, and products of a float32 matrix of more
    than one row and a weight, if they are not small. Others, such as transposed convolutions, stay as they are. A
    weight that is used in another way as well, such as that of an embedding, stays a constant besides.

    Args:
        module: a program whose weights are buffers.
        mutated: names of weights that calls change: they are not packed.
    """
    if not torch._C._has_mkldnn:
        return {}
    # The condition of Inductor's freezing (torch/_inductor/fx_passes/mkldnn_fusion.py).
    linear = torch._C.has_mkl or torch.ops.mkldnn._is_mkldnn_acl_supported()
    packing: Packing = {}
    names: dict[str, str] = {}  # one packed weight serves all uses with the same arguments
    for weight in module.graph.find_nodes(op="get_attr"):
        name = str(weight.target)
        if name in mutated:
            continue
        for user, (kind, *arguments) in [*_convolutions(weight), *(_linear_layers(weight) if linear else ())]:
            row = [kind, name, *arguments]
            packed = names.setdefault(json.dumps(row), f"packed{len(packing)}")
            if packed not in packing:
                packing[packed] = row
                tensor = getattr(module, name)
                empty = (
                    tensor.new_empty(tensor.t().shape) if is_transposed(kind, arguments) else torch.empty_like(tensor)
                )
                module.register_buffer(packed, empty)
            if kind == CONVOLUTION:
                _replace_convolution(module.graph, user, packed, arguments)
            else:
                _replace_linear(module.graph, user, packed)
    _remove_unused_weights(module)
    module.recompile()
    return packing


def _convolutions(weight: fx.Node) -> Iterator[_Use]:
    """Yield the convolutions that can take a weight packed."""
    for user in weight.users:
        if user.target is not aten.convolution.default:
            continue
        source, taken, bias, stride, padding, dilation, transposed, _, groups = user.args
        if taken is not weight or weight in (source, bias) or transposed:
            continue
        values = [one.meta["val"] for one in (source, weight)]  # type: ignore[union-attr]  # nodes
        if not all(_is_plain(value, 4) and _is_fixed(value.shape) for value in values):
            continue
        numbers = [[*map(int, cast("list[int]", one))] for one in (padding, stride, dilation)]
        # Inductor repeats a single number for both dimensions; oneDNN's operator does not.
        pairs = [one * 2 if len(one) == 1 else one for one in numbers]
        yield user, [CONVOLUTION, *pairs, groups, [*values[0].shape]]


def _linear_layers(weight: fx.Node) -> Iterator[_Use]:
    """Yield the products of a matrix and a weight, or its transpose, that can take it packed.

    ``nn.Linear`` transposes its weight; ``Conv1D`` of GPT-2 does not.
    """
    value = weight.meta["val"]
    if not (_is_plain(value, 2) and _is_fixed(value.shape) and value.is_contiguous()):
        return
    order: Any
    for user in weight.users:
        matrices = [(weight, user, True)]
        if user.target is aten.permute.default:
            _, order = user.args
            matrices = [(user, product, False) for product in user.users if [dim % 2 for dim in order] == [1, 0]]
        for matrix, product, transposed in matrices:
            if not _is_linear_layer(product, matrix):
                continue
            size = product.meta["val"].shape[0]
            rows = size if type(size) is int else None
            if (rows or _ASSUMED_ROWS) * value.numel() >= LEAST_PRODUCTS:
                yield product, [LINEAR, rows, transposed]


def _is_linear_layer(product: fx.Node, matrix: fx.Node) -> bool:
    """Return whether a node is a product of a float32 matrix and this one, perhaps with a bias for each column."""
    if product.target not in {aten.addmm.default, aten.mm.default} or product.kwargs or product.args[-1] is not matrix:
        return False
    *biases, source, _ = cast("tuple[fx.Node, ...]", product.args)
    columns = matrix.meta["val"].shape[1]
    if not all(_is_plain(one.meta["val"], 1) and one.meta["val"].shape[0] == columns for one in biases):
        return False
    rows = product.meta["val"].shape[0]
    # oneDNN reads the weight as it is for a single row, and there is nothing to compute for none.
    return _is_plain(source.meta["val"], 2) and (type(rows) is not int or rows > 1)


def _is_plain(value: torch.Tensor, dims: int) -> bool:
    return value.dtype is torch.float32 and value.device.type == "cpu" and value.dim() == dims


def _is_fixed(shape: torch.Size) -> bool:
    return all(type(size) is int and size > 0 for size in shape)


def _replace_convolution(graph: fx.Graph, convolution: fx.Node, packed: str, arguments: list[Any]) -> None:
    source, _, bias = convolution.args[:3]
    padding, stride, dilation, groups, _ = arguments
    with graph.inserting_before(convolution):
        weight = graph.get_attr(packed)
        operator = torch.ops.mkldnn._convolution_pointwise.default
        new = graph.call_function(operator, (source, weight, bias, padding, stride, dilation, groups, "none", [], ""))
    new.meta["val"] = convolution.meta["val"].contiguous(memory_format=torch.channels_last)
    convolution.replace_all_uses_with(new)
    graph.erase_node(convolution)


def _replace_linear(graph: fx.Graph, product: fx.Node, packed: str) -> None:
    """Replace a product, and the reshapes around it if the input and the result have the same leading sizes.

    Inductor computes an activation and a sum in oneDNN's operator if no reshape is in between.
    """
    *biases, source, matrix = cast("tuple[fx.Node, ...]", product.args)
    old = [product, source, matrix]
    result = next(iter(product.users)) if len(product.users) == 1 else product
    if source.target in _RESHAPES and result.target in _RESHAPES:
        inner = source.all_input_nodes[0]
        if _same_leading_sizes(inner.meta["val"].shape, source.meta["val"].shape, result.meta["val"].shape):
            source, old = inner, [result, *old]
    with graph.inserting_before(old[0]):
        weight = graph.get_attr(packed)
        arguments: Any = (source, weight, biases[0] if biases else None, "none", [], "")
        new = graph.call_function(torch.ops.mkldnn._linear_pointwise.default, arguments)
    new.meta["val"] = old[0].meta["val"]
    old[0].replace_all_uses_with(new)
    for node in old:
        if not node.users and node.op == "call_function":
            graph.erase_node(node)


def _same_leading_sizes(inner: torch.Size, source: torch.Size, result: torch.Size) -> bool:
    """Return whether all sizes but the last are the same before and after; no guard is added to find out."""
    pairs = zip((*inner[:-1], inner[-1]), (*result[:-1], source[-1]), strict=False)
    return len(inner) == len(result) and all(statically_known_true(one == other) for one, other in pairs)


def _remove_unused_weights(module: fx.GraphModule) -> None:
    for weight in module.graph.find_nodes(op="get_attr"):
        if not weight.users:
            module.graph.erase_node(weight)
    used = {str(weight.target) for weight in module.graph.find_nodes(op="get_attr")}
    for name in {name for name, _ in module.named_buffers()} - used:
        delattr(module, name)


def mark(packing: Packing) -> dict[str, str]:
    """Return the metadata of a package that takes weights packed in this way."""
    return {PACKED_MARK: json.dumps(packing)}


def pack_weights(given: Mapping[str, torch.Tensor], packing: Packing) -> tuple[Mapping[str, torch.Tensor], Snapshot]:
    """Return the tensors of a package by the engine's names, some of them packed, and the weights as they were packed.

    Weights are shared with the model, and the copies do not follow a change in place: so each call looks for one. Those
    of inference mode stay as they are: they have no version counter.

    Raises:
        IncompatibleEngineError: a weight is missing.
    """
    weights = {name for _, name, *_ in packing.values()}
    if missing := weights - given.keys():
        raise IncompatibleEngineError("package", f"it needs weights that are missing: {sorted(missing)}")
    sources = {name: given[name] for name in weights}
    snapshot = Snapshot(tensor for tensor in sources.values() if not tensor.is_inference())
    with torch.no_grad():
        packed = {one: _pack(kind, sources[name].detach(), rest) for one, (kind, name, *rest) in packing.items()}
    return {**given, **packed}, snapshot


def _pack(kind: str, weight: torch.Tensor, arguments: list[Any]) -> torch.Tensor:
    """Return a weight in the layout of oneDNN, or as it is if it is of inference mode."""
    if is_transposed(kind, arguments):
        weight = weight.t()
    if weight.is_inference():
        return weight
    if kind == CONVOLUTION:
        return cast("torch.Tensor", torch.ops.mkldnn._reorder_convolution_weight(weight, *arguments))
    return cast("torch.Tensor", torch.ops.mkldnn._reorder_linear_weight(weight, arguments[0]))
