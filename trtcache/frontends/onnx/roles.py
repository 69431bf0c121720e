"""Which initializers of a graph are weights, and which are constants.

A weight's values are no part of the key of a plan that takes other weights, so nothing that is built may depend on
them. The parser reads some initializers while it parses (the scales of a Resize, the bounds of a Clip), melts some into
others (BatchNorm, LSTM) and computes sizes with some. So an initializer is a weight only where each of its uses is one
that is known to take a tensor whole, and where no size follows from it. All others are constants: they are in the key
by content, which costs hits and never gives a wrong one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trtcache.frontends.onnx.tensors import TYPES, WEIGHTS
from trtcache.frontends.onnx.validation import domain_of, graphs_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

_WEIGHT_TYPES = frozenset(code for code, kind in TYPES.items() if kind.name in WEIGHTS)

_TAKEN_WHOLE: Mapping[str, frozenset[int]] = {
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
"""Operator of ONNX -> inputs whose values decide nothing but the result's values."""

_ANY_RANK = frozenset({"Conv", "ConvTranspose", "Gemm", "PRelu"})
"""Operators whose small operands are weights; a number without dimensions elsewhere is part of a formula."""

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
"""Operator of ONNX -> inputs whose values decide sizes, what is run or what is built; None for all of them."""

_SIZE_ONLY = frozenset({"Shape", "Size"})
"""Operators that look at no value."""


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
        initializers: the graph's, by name.
        nodes: the graph's nodes that its results need.
        results: names of the graph's outputs.
        opaque: says of a node whether it may compute sizes from any of its inputs.
        calls: says of a node which function of the model it calls, whatever ONNX has under that name.
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
    """Say whether a node of ONNX's own makes sizes, or what is run, of the values of an input."""
    return node.op_type in _SIZES


def _takes_whole(node: Any, place: int, rank: int) -> bool:
    if domain_of(node.domain) or place not in _TAKEN_WHOLE.get(node.op_type, ()):
        return False
    return rank > 0 or node.op_type in _ANY_RANK


class _Sizes:
    """What sizes are computed from, in a graph and those inside it."""

    def __init__(self, opaque: Callable[[Any], bool]) -> None:
        self._opaque = opaque
        self._made_from: dict[str, list[str]] = {}
        self._deciding: list[str] = []
        self.inner: set[str] = set()

    def add(self, nodes: Iterable[Any], *, inside: bool = False) -> None:
        """Note nodes; ``inside`` a graph of another node, names of initializers among their inputs too."""
        for node in nodes:
            given = [name for name in node.input if name]
            self.inner |= set(given) if inside else set()
            for graph in graphs_in(node):
                self._add_inner(graph, given)
                given = [*given, *(one.name for one in graph.output)]
            self._deciding += self._size_inputs(node)
            for name in node.output:
                self._made_from.setdefault(name, []).extend([] if node.op_type in _SIZE_ONLY else given)

    def _add_inner(self, graph: Any, given: list[str]) -> None:
        for one in graph.input:
            self._made_from.setdefault(one.name, []).extend(given)
        self.inner |= {one.name for one in graph.output}
        self.add(graph.node, inside=True)

    def sources(self) -> set[str]:
        """Return all names whose values decide a size or what is run."""
        found: set[str] = set()
        waiting = self._deciding
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self._made_from.get(name, ())
        return found

    def _size_inputs(self, node: Any) -> list[str]:
        places = None if self._opaque(node) else _SIZES.get(node.op_type, frozenset())
        return [name for place, name in enumerate(node.input) if name and (places is None or place in places)]
