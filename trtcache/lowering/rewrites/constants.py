"""Constant folding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import fx

from trtcache.lowering.contents import make_contiguous
from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewrites.sizes import SizeNodes
from trtcache.lowering.rewriting import arguments, calls_of, is_dense, is_static, set_arguments, tensor_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Operators with bitwise equal results on every processor: data movement, comparison, integer arithmetic, and the
# correctly rounded IEEE operations. Not sin, exp, pow and sums: they differ in the last bit between instruction sets,
# and a constant's content is in the key, so folding them would give equal programs different keys.
_EXACT_NAMES = (
    *("alias", "cat", "constant_pad_nd", "diagonal", "expand", "flip", "gather", "index", "index_select"),
    *("permute", "repeat", "reshape", "select", "slice", "squeeze", "stack", "t", "transpose", "unsqueeze", "view"),
    *("_to_copy", "arange", "full", "full_like", "ones", "ones_like", "scalar_tensor", "zeros", "zeros_like"),
    *("eq", "ge", "gt", "le", "lt", "ne", "masked_fill", "maximum", "minimum", "where"),
    *("all", "any", "bitwise_and", "bitwise_not", "bitwise_or", "logical_and", "logical_not", "logical_or"),
    *("abs", "add", "mul", "neg", "sub"),
)


def _functional(packet: torch._ops.OpOverloadPacket) -> Iterator[torch._ops.OpOverload]:
    for name in packet._overload_names:
        overload: torch._ops.OpOverload = getattr(packet, name or "default")  # "" would return another object
        if not overload._schema.is_mutable:
            yield overload


EXACT: frozenset[object] = frozenset(
    overload for name in _EXACT_NAMES for overload in _functional(getattr(torch.ops.aten, name))
)


@dataclass(frozen=True, slots=True)
class FoldConstants(Pass):
    """Replace operators over constants by their results, if those are exact on every machine.

    Weights are not constants: nothing that depends on one is folded. A tensor created from numbers alone (``full``,
    ``arange``) is left to the engine, where it is cheaper than a stored constant, and so is a result that is larger
    than ``max_bytes`` and than its operands. Inputs of ``as_strided`` are not folded either: it reads the memory of a
    view's base, and a folded view has its own memory.
    """

    max_bytes: int = 1 << 16

    name: ClassVar[str] = "fold_constants"
    version: ClassVar[int] = 2

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Fold in place. Nodes that only fed a folded one are left for dead code elimination."""
        values = self._evaluate(graph_module)
        modified = False
        for node, value in values.items():
            if node.op == "get_attr" or not node.all_input_nodes or all(user in values for user in node.users):
                continue
            _replace(graph_module, node, value)
            modified = True
        return PassResult(graph_module, modified)

    def _evaluate(self, graph_module: fx.GraphModule) -> dict[fx.Node, torch.Tensor]:
        values: dict[fx.Node, torch.Tensor] = {}
        read = _inputs_of_as_strided(graph_module.graph)
        for node in graph_module.graph.nodes:
            if node in read:
                continue
            if node.op == "get_attr":
                value = getattr(graph_module, str(node.target), None)
            elif node.target in EXACT and all(used in values for used in node.all_input_nodes):
                value = self._compute(node, values)
            else:
                continue
            if isinstance(value, torch.Tensor):
                values[node] = value
        return values

    def _compute(self, node: fx.Node, values: dict[fx.Node, torch.Tensor]) -> torch.Tensor | None:
        fake = node.meta.get("val")
        if not isinstance(fake, torch.Tensor) or not all(isinstance(size, int) for size in fake.shape):
            return None
        if fake.device.type == "meta":
            return None
        source_bytes = sum(values[used].nbytes for used in node.all_input_nodes)
        if fake.numel() * fake.element_size() > max(self.max_bytes, source_bytes):
            return None
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        with torch.no_grad():
            result = node.target(*args, **kwargs)  # type: ignore[operator]  # a member of EXACT
        return result if isinstance(result, torch.Tensor) else None


def _inputs_of_as_strided(graph: fx.Graph) -> set[fx.Node]:
    """Return the calls of ``as_strided`` and all nodes that they depend on."""
    found = set(graph.find_nodes(op="call_function", target=torch.ops.aten.as_strided.default))
    waiting = [*found]
    while waiting:
        inputs = set(waiting.pop().all_input_nodes) - found
        found |= inputs
        waiting.extend(inputs)
    return found


def _replace(graph_module: fx.GraphModule, node: fx.Node, value: torch.Tensor) -> None:
    node.replace_all_uses_with(new_constant(graph_module, value, before=node))


def new_constant(
    graph_module: fx.GraphModule, value: torch.Tensor, *, before: fx.Node, fake: torch.Tensor | None = None
) -> fx.Node:
    """Store a constant, contiguously, on the graph module and return a ``get_attr`` node for it.

    The node gets the given fake value, or else that of ``before``, which it replaces.
    """
    number = len(graph_module._buffers)
    while hasattr(graph_module, f"constant_{number}"):
        number += 1
    graph_module.register_buffer(f"constant_{number}", make_contiguous(value), persistent=False)
    with graph_module.graph.inserting_before(before):
        constant = graph_module.graph.create_node("get_attr", f"constant_{number}")
    constant.meta["val"] = make_contiguous(before.meta["val"] if fake is None else fake)
    return constant


aten = torch.ops.aten

_NUMBERS: dict[object, Callable[[fx.Node], Any]] = {
    **dict.fromkeys((aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default), lambda _: 0),
    **dict.fromkeys((aten.ones.default, aten.ones_like.default, aten.new_ones.default), lambda _: 1),
    **dict.fromkeys((aten.full_like.default, aten.full.default), lambda node: arguments(node)[1]),
    aten.new_full.default: lambda node: arguments(node)[2],
    aten.scalar_tensor.default: lambda node: arguments(node)[0],
}


@dataclass(frozen=True, slots=True)
class Factories(Pass):
    """Rewrite zeros, ones, ``full_like``, ``new_full`` and ``scalar_tensor`` to ``full`` with explicit arguments.

    A tensor with the shape of another no longer depends on it; symbolic sizes are computed as by ``sizes``. Tensors
    that copy another's non-contiguous layout are unchanged, since a result would expose it.
    """

    name: ClassVar[str] = "factories"
    version: ClassVar[int] = 2

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite in place."""
        modified, sizes = False, None
        for node in calls_of(graph_module.graph, _NUMBERS):
            made = tensor_of(node)
            if made is None or not is_dense(made):
                continue
            shape: list[Any] | None = list(made.shape)
            if not is_static(made.shape):
                sizes = sizes or SizeNodes(graph_module.graph)
                shape = arguments(node)[0] if node.target is aten.full.default else sizes.of_all(made.shape)
            if shape is not None:
                modified |= _write(node, made, shape, _NUMBERS[node.target](node))
        return PassResult(graph_module, modified or bool(sizes and sizes.changed))


def _write(node: fx.Node, made: torch.Tensor, shape: list[Any], number: Any) -> bool:
    if isinstance(number, int) and not isinstance(number, bool) and made.dtype.is_floating_point:
        number = float(number)
    if made.dtype is torch.bool:
        number = bool(number) if isinstance(number, (bool, int, float)) else number
    wanted = [shape, number, made.dtype, made.layout, made.device, None]
    given = arguments(node) if node.target is aten.full.default else []
    if given == wanted and type(given[1]) is type(number):
        return False
    node.target = aten.full.default
    set_arguments(node, wanted)
    return True
