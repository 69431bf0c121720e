"""Linear layers in one form: ``reshape`` to two dimensions, ``mm`` or ``addmm``, ``reshape``."""

from __future__ import annotations

import math
from typing import Any, ClassVar, cast

import torch
from torch import fx

from trtcache.config.frozen import frozen_dataclass
from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewrites.sizes import SizeNodes
from trtcache.lowering.rewriting import (
    arguments,
    calls_of,
    expression,
    insert_call,
    insert_cast,
    is_static,
    recipe_of,
    replace,
    same_sizes,
    tensor_of,
)
from trtcache.weights.recipes import Recipe, sources, step
from trtcache.weights.slots import dtype_name

aten = torch.ops.aten


@frozen_dataclass
class Linear(Pass):
    """Fuse a product and the addition of a vector, and make a batched product with one matrix an unbatched one.

    ``mm`` + ``add`` of a bias, behind a ``reshape`` or not, is ``addmm``; an expanded bias is the vector itself;
    ``bmm`` by an expanded matrix, or with a batch of one, is ``mm`` between reshapes. The bias must have the product's
    dtype and last dimension, and the product must have no other users. ``addmm`` with factors other than 1 is
    unchanged.
    """

    name: ClassVar[str] = "linear"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite in place; unused nodes are left for dead code elimination."""
        modified = False
        for target, rewrite in _REWRITES:
            for node in calls_of(graph_module.graph, (target,)):
                modified |= rewrite(node)
        return PassResult(graph_module, modified)


def _fuse(node: fx.Node) -> bool:
    left, right, alpha = arguments(node)
    if alpha != 1:
        return False
    for product, bias in ((left, right), (right, left)):
        matmul = _find_mm(product, node)
        if matmul is not None and _is_bias(bias, matmul, node):
            _add_bias(node, matmul, bias)
            return True
    return False


def _find_mm(operand: Any, user: fx.Node) -> fx.Node | None:
    """Return the ``mm`` of an operand, behind a reshape that keeps its columns or not, if it has no other users."""
    value = tensor_of(operand)
    if value is None or len(operand.users) != 1 or not same_sizes(value.shape, user.meta["val"].shape):
        return None
    if operand.target is aten.mm.default:
        return operand  # type: ignore[no-any-return]  # a node, since it has a tensor
    source = operand.args[0] if operand.target is aten.reshape.default else None
    if not isinstance(source, fx.Node) or source.target is not aten.mm.default or len(source.users) != 1:
        return None
    return source if same_sizes(value.shape[-1:], source.meta["val"].shape[1:]) else None


def _is_bias(bias: Any, product: fx.Node, node: fx.Node) -> bool:
    """Return whether an operand is a vector, possibly with leading ones, as long as the product has columns."""
    value, result = tensor_of(bias), product.meta["val"]
    if value is None or value.dim() == 0 or value.device != result.device:
        return False
    if not value.dtype == result.dtype == node.meta["val"].dtype:
        return False
    return (
        all(expression(size) == 1 for size in value.shape[:-1])
        and is_static(value.shape)
        and same_sizes(value.shape[-1:], result.shape[1:])
        and value.dim() <= node.meta["val"].dim()
    )


def _add_bias(node: fx.Node, product: fx.Node, bias: fx.Node) -> None:
    result, value = product.meta["val"], bias.meta["val"]
    vector, width = bias, value.shape[-1:]
    if value.dim() != 1:
        source = bias.args[0] if bias.target is aten.reshape.default else None
        if isinstance(source, fx.Node) and same_sizes(source.meta["val"].shape, width):
            vector = source
        else:
            vector = insert_call(node, aten.reshape.default, (bias, [*width]), value.reshape(width))
    if same_sizes(result.shape, node.meta["val"].shape):
        node.target, node.args, node.kwargs = aten.addmm.default, (vector, *product.args), {}
        return
    (reshape,) = product.users
    fused = insert_call(node, aten.addmm.default, (vector, *product.args), result)
    node.target, node.args, node.kwargs = aten.reshape.default, (fused, reshape.args[1]), {}


def _shorten_bias(node: fx.Node) -> bool:
    bias = node.args[0]
    if not isinstance(bias, fx.Node) or bias.target is not aten.expand.default:
        return False
    source: fx.Node = bias.args[0]  # type: ignore[assignment]  # its first argument is a tensor
    if not same_sizes(source.meta["val"].shape, node.meta["val"].shape[1:]):
        return False
    node.args = (source, *node.args[1:])
    return True


def _unbatch(node: fx.Node) -> bool:
    left, right = node.args[:2]
    matrix = _matrix(right)
    if matrix is None or not isinstance(left, fx.Node):
        return False
    batch, rows, inner = left.meta["val"].shape
    columns = node.meta["val"].shape[2]
    sizes = SizeNodes(node.graph)
    flat_shape, shape = sizes.of_all((batch * rows, inner)), sizes.of_all((batch, rows, columns))
    if flat_shape is None or shape is None:
        return sizes.changed
    value = left.meta["val"].new_empty((batch * rows, inner))
    flat_left = insert_call(node, aten.reshape.default, (left, flat_shape), value)
    if matrix is right:
        matrix = insert_call(node, aten.reshape.default, (right, [inner, columns]), value.new_empty((inner, columns)))
    product = insert_call(node, aten.mm.default, (flat_left, matrix), value.new_empty((batch * rows, columns)))
    node.target, node.args = aten.reshape.default, (product, shape)
    return True


def _matrix(right: Any) -> fx.Node | None:
    """Return the matrix that a whole batch is multiplied by; the operand itself if the batch is one."""
    value = tensor_of(right)
    if value is None:
        return None
    if right.target is aten.expand.default:
        source: fx.Node = right.args[0]
        shape = source.meta["val"].shape
        if same_sizes(shape, value.shape[1:]):
            return source
    return right if expression(value.shape[0]) == 1 and is_static(value.shape) else None


_REWRITES = ((aten.bmm.default, _unbatch), (aten.add.Tensor, _fuse), (aten.addmm.default, _shorten_bias))


_NORM = aten._native_batch_norm_legit_no_training.default
_HALVES = frozenset({torch.float16, torch.bfloat16})


@frozen_dataclass
class BatchNorm(Pass):
    """Fold BatchNorm in eval mode into weights computed by recipes.

    A convolution or linear layer whose only user is the BatchNorm absorbs scale and shift into its own weights;
    otherwise one multiplication and one addition remain. Unchanged are a BatchNorm with batch statistics, one with a
    parameter that is not a weight (a constant, an input) or that calls modify, and one whose statistics are used.
    Accumulation is in float32 for float16 and bfloat16, as in torch.
    """

    name: ClassVar[str] = "batch_norm"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Fold in place. Weights that only the BatchNorm used are left for dead code elimination."""
        norms = graph_module.graph.find_nodes(op="call_function", target=_NORM)
        folding = _Folding(graph_module) if norms else None
        folded = [folding.fold(norm) for norm in norms] if folding else []
        return PassResult(graph_module, any(folded))


@frozen_dataclass
class _Affine:
    """The scale and shift of a BatchNorm, as recipes, and a fake tensor with an element for each channel."""

    scale: Recipe
    mean: Recipe
    bias: Recipe | None
    like: torch.Tensor

    def shift(self, before: Recipe | None = None) -> Recipe:
        """Return the shift; ``before`` is the bias of the preceding operator."""
        centre = step("sub", before, self.mean) if before else step("neg", self.mean)
        moved = step("mul", centre, self.scale)
        return step("add", moved, self.bias) if self.bias else moved


class _Folding:
    """Fold the BatchNorms of one graph; equal recipes share one weight."""

    def __init__(self, graph_module: fx.GraphModule) -> None:
        self._graph = graph_module.graph
        self._first = next(iter(self._graph.nodes))
        placeholders = self._graph.find_nodes(op="placeholder")
        self._by_recipe: dict[object, fx.Node] = {
            node.meta["recipe"]: node for node in placeholders if "recipe" in node.meta
        }
        roles = self._graph.output_node().meta["roles"]
        self._mutated = {role.target for role in roles if role.kind == "weight"}

    def fold(self, norm: fx.Node) -> bool:
        affine = self._affine(norm)
        if affine is None or any(used.users and used.args[1] != 0 for used in norm.users):
            return False
        before: Any = norm.args[0]
        folded = None
        if len(before.users) == 1:
            folded = self._into_convolution(before, affine) or self._into_linear(before, affine)
        folded = folded or self._multiply_add(norm, before, affine)
        for used in list(norm.users):
            replace(used, folded)
        self._graph.erase_node(norm)
        return True

    def _affine(self, norm: fx.Node) -> _Affine | None:
        _, weight, bias, mean, var, _, eps = arguments(norm)
        wide = {node: self._in_float32(node) for node in (weight, bias, mean, var) if node is not None}
        if None in wide.values() or not math.isfinite(eps):
            return None
        scale = step("rsqrt", step("add", cast("Recipe", wide[var]), float(eps)))
        factor = wide.get(weight)
        like = mean.meta["val"]
        return _Affine(
            scale=step("mul", scale, factor) if factor else scale,
            mean=cast("Recipe", wide[mean]),
            bias=wide.get(bias),
            like=like.to(torch.float32) if like.dtype in _HALVES else like,
        )

    def _weight(self, node: Any) -> Recipe | None:
        recipe = recipe_of(node) if isinstance(node, fx.Node) else None
        return recipe if recipe and self._mutated.isdisjoint(sources(recipe)) else None

    def _in_float32(self, node: Any) -> Recipe | None:
        """Return the recipe of a weight, in float32 if it is a half; None if it is not a weight, or calls modify it."""
        recipe = self._weight(node)
        return step("cast", recipe, "float32") if recipe and node.meta["val"].dtype in _HALVES else recipe

    def _into_convolution(self, before: fx.Node, affine: _Affine) -> fx.Node | None:
        if before.target is not aten.convolution.default:
            return None
        x, weight, bias, *rest = arguments(before)
        *_, transposed, _, groups = rest
        if transposed and groups != 1:
            return None
        parameters = self._combined_weights(affine, weight, bias, channel=1 if transposed else 0)
        return insert_call(before, before.target, (x, *parameters, *rest), before.meta["val"]) if parameters else None

    def _into_linear(self, before: fx.Node, affine: _Affine) -> fx.Node | None:
        if before.target is aten.mm.default:
            bias, (x, weight) = None, arguments(before)
        elif before.target is aten.addmm.default:
            bias, x, weight, beta, alpha = arguments(before)
            if not beta == alpha == 1 or bias.meta["val"].shape != weight.meta["val"].shape[1:]:
                return None  # the bias does not have an element for each channel
        else:
            return None
        is_transposed = weight.target is aten.permute.default and list(weight.args[1]) == [1, 0]
        source = weight.args[0] if is_transposed else weight
        parameters = self._combined_weights(affine, source, bias, channel=0 if is_transposed else 1)
        if parameters is None:
            return None
        factor, shift = parameters
        if is_transposed:
            factor = insert_call(before, aten.permute.default, (factor, [1, 0]), weight.meta["val"])
        return insert_call(before, aten.addmm.default, (shift, x, factor), before.meta["val"])

    def _combined_weights(
        self, affine: _Affine, weight: Any, bias: Any, *, channel: int
    ) -> tuple[fx.Node, fx.Node] | None:
        """Return the weight and bias that combine an operator and the BatchNorm."""
        recipe, before = self._weight(weight), self._in_float32(bias)
        if recipe is None or (bias is not None and before is None):
            return None
        value = weight.meta["val"]
        sizes = [1] * value.ndim
        sizes[channel] = -1
        scaled = step("mul", recipe, step("reshape", affine.scale, tuple(sizes)))
        return (
            self._placeholder(_cast_back(scaled, value.dtype), value),
            self._placeholder(_cast_back(affine.shift(before), value.dtype), affine.like.to(value.dtype)),
        )

    def _multiply_add(self, norm: fx.Node, before: fx.Node, affine: _Affine) -> fx.Node:
        value = before.meta["val"]
        wide = value.to(torch.float32) if value.dtype in _HALVES else value
        x = before if wide is value else insert_cast(norm, before, wide)
        sizes = (-1, *[1] * (value.ndim - 2))
        like = affine.like.reshape(sizes)
        for operator, recipe in ((aten.mul.Tensor, affine.scale), (aten.add.Tensor, affine.shift())):
            factor = self._placeholder(step("reshape", recipe, sizes), like)
            x = insert_call(norm, operator, (x, factor), wide)
        return x if wide is value else insert_cast(norm, x, value)

    def _placeholder(self, recipe: Recipe, value: torch.Tensor) -> fx.Node:
        if recipe not in self._by_recipe:
            with self._graph.inserting_before(self._first):
                node = self._graph.placeholder("made_weight")
            node.meta |= {"recipe": recipe, "val": value}
            self._by_recipe[recipe] = node
        return self._by_recipe[recipe]


def _cast_back(recipe: Recipe, dtype: torch.dtype) -> Recipe:
    """Return a recipe that was computed in float32, in the weight's dtype."""
    return step("cast", recipe, dtype_name(dtype)) if dtype in _HALVES else recipe
