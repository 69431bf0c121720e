"""Classification of a graph's initializers as weights or constants.

The values of weights are not in the key of a refittable plan, so the build must not depend on them. TensorRT's parser
reads some initializers (the scales of a Resize, the bounds of a Clip), folds some into others (BatchNorm, LSTM) and
computes sizes with some. So an initializer is a weight only if all its uses are known to pass it to TensorRT whole, and
no size depends on it. All others are constants, which enter the key by content: that costs hits, but is never wrong.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trtcache.frontends.onnx.tensors import TYPES, WEIGHTS
from trtcache.frontends.onnx.validation import domain_of, graphs_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

_WEIGHT_TYPES = frozenset(code for code, kind in TYPES.items() if kind.name in WEIGHTS)

_WHOLE_OPERANDS: Mapping[str, frozenset[int]] = {
    "Add": frozenset({0, 1}),
    "Conv": frozenset({1, 2}),
    "ConvTranspose": frozenset({1, 2}),
    "Div": frozenset({0, 1}),
    "Gather": frozenset({0}),
    "Gemm": frozenset({0, 1, 2}),
    "GroupNormalization": frozenset({1, 2}),
    "InstanceNormalization": frozenset({1, 2}),
    "LayerNormalization": frozenset({1, 2}),
    "MatMul": frozenset({0, 1}),
    "Mul": frozenset({0, 1}),
    "PRelu": frozenset({1}),
    "RMSNormalization": frozenset({1}),
    "Sub": frozenset({0, 1}),
}
"""Operator of ONNX -> inputs on whose values only the result's values depend."""

_ANY_RANK = frozenset({"Conv", "ConvTranspose", "Gemm", "PRelu"})
"""Operators whose scalar operands are weights too; in others a scalar is part of a formula."""

_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

_SIZES: Mapping[str, frozenset[int] | None] = {
    "AffineGrid": frozenset({1}),
    "BatchNormalization": frozenset({1, 2, 3, 4}),
    "CenterCropPad": frozenset({1}),
    "Clip": frozenset({1, 2}),
    "Col2Im": frozenset({1, 2}),
    "ConstantOfShape": frozenset({0}),
    "CumSum": frozenset({1}),
    "DFT": frozenset({1, 2}),
    "DequantizeLinear": frozenset({1, 2}),
    "Dropout": frozenset({1, 2}),
    "Expand": frozenset({1}),
    "If": frozenset({0}),
    "Loop": frozenset({0, 1}),
    "MaxUnpool": frozenset({2}),
    "NonMaxSuppression": None,
    "NonZero": None,
    "OneHot": frozenset({1, 2}),
    "Pad": frozenset({1, 2, 3}),
    "QuantizeLinear": frozenset({1, 2}),
    "Range": None,
    "Reshape": frozenset({1}),
    "Resize": frozenset({1, 2, 3}),
    "STFT": frozenset({1, 3}),
    "Slice": frozenset({1, 2, 3, 4}),
    "Split": frozenset({1}),
    "SplitToSequence": frozenset({1}),
    "Squeeze": frozenset({1}),
    "Tile": frozenset({1}),
    "TopK": frozenset({1}),
    "Trilu": frozenset({1}),
    "Unsqueeze": frozenset({1}),
    "Upsample": frozenset({1}),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), frozenset({0})),
    **dict.fromkeys(("Compress", "Unique"), None),
    **dict.fromkeys([f"Reduce{name}" for name in _REDUCTIONS], frozenset({1})),
}
"""Operator of ONNX -> inputs on whose values sizes, control flow or the build depend; None for all inputs."""

_SIZE_ONLY = frozenset({"Shape", "Size"})
"""Operators that depend on sizes only."""


def weights_among(
    initializers: Mapping[str, Any],
    nodes: Iterable[Any],
    results: Collection[str],
    *,
    opaque: Callable[[Any], bool],
    calls: Callable[[Any], object],
) -> frozenset[str]:
    """Return the names of the initializers that are weights.

    Args:
        initializers: the graph's initializers by name.
        nodes: the nodes that the graph's outputs need.
        results: the names of the graph's outputs.
        opaque: returns whether a node may compute sizes from any of its inputs.
        calls: returns the local function that a node calls, or None.
    """
    nodes = list(nodes)
    uses: dict[str, list[tuple[Any, int]]] = {name: [] for name in initializers}
    for node in nodes:
        for place, name in enumerate(node.input):
            if name in uses:
                uses[name].append((node, place))
    sizes = _Sizes(opaque)
    sizes.add(nodes)
    excluded = {*results, *sizes.inner, *sizes.sources()}
    return frozenset(
        name
        for name, tensor in initializers.items()
        if name not in excluded
        and tensor.data_type in _WEIGHT_TYPES
        and math.prod(tensor.dims)
        and uses[name]
        and all(not calls(node) and _takes_whole(node, place, len(tensor.dims)) for node, place in uses[name])
    )


def decides_sizes(node: Any) -> bool:
    """Return whether sizes or control flow depend on values of an input of an ONNX operator."""
    return node.op_type in _SIZES


def _takes_whole(node: Any, place: int, rank: int) -> bool:
    if domain_of(node.domain) or place not in _WHOLE_OPERANDS.get(node.op_type, ()):
        return False
    return rank > 0 or node.op_type in _ANY_RANK


class _Sizes:
    """The tensors that sizes depend on, in a graph and those inside it."""

    def __init__(self, opaque: Callable[[Any], bool]) -> None:
        self._opaque = opaque
        self._made_from: dict[str, list[str]] = {}
        self._deciding: list[str] = []
        self.inner: set[str] = set()

    def add(self, nodes: Iterable[Any], *, inside: bool = False) -> None:
        """Add nodes; ``inside`` a graph of another node, also record the names of their inputs."""
        for node in nodes:
            given = [name for name in node.input if name]
            self.inner |= set(given) if inside else set()
            for graph in graphs_in(node):
                for value in graph.input:
                    self._made_from.setdefault(value.name, []).extend(given)
                self.inner |= {value.name for value in graph.output}
                self.add(graph.node, inside=True)
                given = [*given, *(value.name for value in graph.output)]
            self._deciding += self._size_inputs(node)
            for name in node.output:
                self._made_from.setdefault(name, []).extend([] if node.op_type in _SIZE_ONLY else given)

    def sources(self) -> set[str]:
        """Return the names of all tensors on whose values a size or control flow depends."""
        names: set[str] = set()
        pending = self._deciding
        while pending:
            name = pending.pop()
            if name not in names:
                names.add(name)
                pending += self._made_from.get(name, ())
        return names

    def _size_inputs(self, node: Any) -> list[str]:
        places = None if self._opaque(node) else _SIZES.get(node.op_type, frozenset())
        return [name for place, name in enumerate(node.input) if name and (places is None or place in places)]
