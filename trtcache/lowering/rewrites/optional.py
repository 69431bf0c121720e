"""Optional rewrites: autocast for a setting, and decomposition of fused operators for a backend.

The precision that autocast chooses is part of the graph, and so of the key: builders of strongly typed networks read it
there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import fx

from trtcache.config.frozen import frozen_dataclass
from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewriting import arguments, insert_call, insert_cast, recipe_of, replace
from trtcache.weights.recipes import sources, step
from trtcache.weights.slots import dtype_name

aten = torch.ops.aten

DTYPES: Mapping[str, torch.dtype] = {"fp16": torch.float16, "bf16": torch.bfloat16}
"""The values of ``Settings.autocast``."""

NARROW = frozenset(
    ("aten.addmm", "aten.bmm", "aten.convolution", "aten.mm", "aten.baddbmm", "aten.scaled_dot_product_attention")
)
"""Operators that are computed in the narrow dtype: those with fast kernels for it that accumulate in float32."""

FOLLOWING = frozenset(
    (
        *("aten.reshape", "aten.permute", "aten.slice", "aten.expand", "aten.clone", "aten.repeat", "aten.cat"),
        *("aten.relu", "aten.leaky_relu", "aten.gelu", "aten.sigmoid", "aten.tanh", "aten.hardtanh", "aten.neg"),
        *("aten.add", "aten.sub", "aten.mul", "aten.clamp", "aten.where", "aten.maximum", "aten.minimum"),
        *("aten.max_pool2d_with_indices", "aten.constant_pad_nd", "<built-in function getitem>"),
    )
)
"""Operators that are computed in the narrow dtype if all their operands already are; all others are not.

Their numbers must be in its range as well.
"""

_VIEWS = frozenset(("aten.reshape", "aten.permute", "aten.slice", "aten.expand"))


@frozen_dataclass
class Autocast(Pass):
    """Cast the operands of the operators in ``NARROW``, and let those in ``FOLLOWING`` continue in the narrow dtype.

    Everything else is computed in float32, and results keep their dtypes. A cast weight becomes one with a recipe, so
    the engine holds the narrow one and a refit casts again; one that calls modify is cast in the call. Operators in
    ``exclude`` (``aten.mm``) are unchanged, and so are programs that are not float32.
    """

    dtype: str = "fp16"
    exclude: tuple[str, ...] = ()

    name: ClassVar[str] = "autocast"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Cast in place."""
        casting = _Casting(graph_module.graph, DTYPES[self.dtype])
        for node in list(graph_module.graph.nodes):
            if node.op == "call_function":
                name = _packet(node)
                if name in NARROW and name not in self.exclude:
                    casting.narrow(node)
                elif not (name in FOLLOWING and name not in self.exclude and casting.follow(node)):
                    casting.widen(node)
            elif node.op == "output":
                casting.widen(node)
        return PassResult(graph_module, casting.modified)

    def requires(self, graph_module: fx.GraphModule) -> str | None:  # noqa: ARG002  # the options alone decide
        """Reject an unknown dtype."""
        return None if self.dtype in DTYPES else f"{self.dtype!r} is not one of {', '.join(DTYPES)}"


def _packet(node: fx.Node) -> str:
    return str(node.target).rpartition(".")[0] if isinstance(node.target, torch._ops.OpOverload) else str(node.target)


class _Casting:
    """The casts of one graph; each value is cast once."""

    def __init__(self, graph: fx.Graph, dtype: torch.dtype) -> None:
        self._graph, self._dtype = graph, dtype
        self._narrowed: set[fx.Node] = set()
        self._casts: dict[tuple[fx.Node, torch.dtype], fx.Node] = {}
        self._first = next(iter(graph.nodes))
        roles = graph.output_node().meta["roles"]
        self._changing = {role.target for role in roles if role.kind == "weight"}
        self.modified = False

    def narrow(self, node: fx.Node) -> None:
        """Compute a float32 operator in the narrow dtype."""
        if not _is_wide(node.meta["val"]):
            return
        for source in list(node.all_input_nodes):
            if source not in self._narrowed and _is_wide(source.meta.get("val")):
                node.replace_input_with(source, self._cast(source, self._dtype))
        self._become_narrow(node)

    def follow(self, node: fx.Node) -> bool:
        """Compute an operator in the narrow dtype if all its floating-point operands are; return whether it was.

        An operator with a finite number that is infinite in the narrow dtype is not: kernels of ``clamp`` and
        ``constant_pad_nd`` reject -1e9 in float16, and a product with 1e5 is finite.
        """
        floating = []
        for source in node.all_input_nodes:
            value = source.meta.get("val")
            values = value if isinstance(value, (list, tuple)) else [value]
            if any(isinstance(one, torch.Tensor) and one.is_floating_point() for one in values):
                floating.append(source)
        if not floating or not all(one in self._narrowed for one in floating) or self._overflows(node):
            return False
        self._become_narrow(node)
        return True

    def _overflows(self, node: fx.Node) -> bool:
        numbers = [] if _packet(node) in _VIEWS else arguments(node)  # the numbers of views are sizes and bounds
        largest = torch.finfo(self._dtype).max
        return any(isinstance(one, (int, float)) and largest < abs(one) < math.inf for one in numbers)

    def widen(self, node: fx.Node) -> None:
        """Restore float32 operands of an operator or the output."""
        for source in list(node.all_input_nodes):
            if source in self._narrowed and isinstance(source.meta["val"], torch.Tensor):
                node.replace_input_with(source, self._cast(source, torch.float32))

    def _become_narrow(self, node: fx.Node) -> None:
        value = node.meta["val"]
        several = isinstance(value, (list, tuple))
        if any(map(_is_wide, value if several else (value,))):
            narrowed = [one.to(self._dtype) if _is_wide(one) else one for one in (value if several else (value,))]
            node.meta["val"] = type(value)(narrowed) if several else narrowed[0]
            self._narrowed.add(node)
            self.modified = True

    def _cast(self, source: fx.Node, dtype: torch.dtype) -> fx.Node:
        known = self._casts.get((source, dtype))
        if known is not None:
            return known
        recipe, value = recipe_of(source), source.meta["val"].to(dtype)
        if recipe is not None and self._changing.isdisjoint(sources(recipe)):
            with self._graph.inserting_before(self._first):
                made = self._graph.placeholder("made_weight")
            made.meta |= {"recipe": step("cast", recipe, dtype_name(dtype)), "val": value}
        elif (view := self._cast_view(source, dtype)) is not None:
            made = view
        else:
            before = source.next
            while before.op in {"placeholder", "get_attr"}:  # constants stand between placeholders
                before = before.next
            made = insert_cast(before, source, value)
        self._casts[source, dtype] = made
        return made

    def _cast_view(self, source: fx.Node, dtype: torch.dtype) -> fx.Node | None:
        """Cast the weight at the start of a chain of views, not the last view."""
        if _packet(source) not in _VIEWS or len(source.all_input_nodes) != 1:
            return None
        (base,) = source.all_input_nodes
        if recipe_of(base) is None and _packet(base) not in _VIEWS:
            return None
        narrow = self._cast(base, dtype)
        with self._graph.inserting_before(source.next):
            made = self._graph.node_copy(source, lambda node: narrow if node is base else node)
        made.meta["val"] = source.meta["val"].to(dtype)
        return made


def _is_wide(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype is torch.float32


_HALVES = frozenset({torch.float16, torch.bfloat16})


@frozen_dataclass
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
    bias, left, right, *factors = arguments(node)
    # As the ``dimensions`` pass writes numbers next to floats.
    beta, alpha = (float(factor) if isinstance(factor, int) else factor for factor in factors)
    value = node.meta["val"]
    product = insert_call(node, aten.mm.default, (left, right), value)
    if alpha != 1:
        product = insert_call(node, aten.mul.Tensor, (product, alpha), value)
    if beta == 0:  # torch does not read the bias then, even if it is NaN
        return product
    if beta != 1:
        bias = insert_call(node, aten.mul.Tensor, (bias, beta), bias.meta["val"])
    return insert_call(node, aten.add.Tensor, (product, bias), value)


def _log_softmax(node: fx.Node) -> fx.Node:
    x, dim, half_to_float = arguments(node)
    made = node.meta["val"]
    value = made.to(torch.float32) if made.dtype in _HALVES else made
    kept = value.narrow(dim, 0, 1) if value.dim() else value
    if value is not made or half_to_float:
        x = insert_cast(node, x, value)
    top = insert_call(node, aten.amax.default, (x, [dim], True), kept)
    shifted = insert_call(node, aten.sub.Tensor, (x, top), value)
    powers = insert_call(node, aten.exp.default, (shifted,), value)
    total = insert_call(node, aten.sum.dim_IntList, (powers, [dim], True), kept)
    result = insert_call(node, aten.sub.Tensor, (shifted, insert_call(node, aten.log.default, (total,), kept)), value)
    return result if value is made else insert_cast(node, result, made)


UNPACKED: Mapping[str, tuple[Any, Callable[[fx.Node], fx.Node]]] = {
    "addmm": (aten.addmm.default, _addmm),
    "log_softmax": (aten._log_softmax.default, _log_softmax),
}
"""Operators that can be decomposed."""
