"""Inputs whose layout decides what a program changes: found by running its graph with inputs in other layouts.

``reshape``, ``contiguous`` and their like return the memory of their input or a copy, depending on its layout. A later
write to one of the two is visible in both, or not. In the program this is as the example's layout had it, and an input
in another layout is copied into that one, so the program could change a tensor that eager torch leaves as it is. Such
inputs are accepted in the example's layout only. Nothing is run if no write comes after such an operator.

Decisions in Python, such as ``if not x.is_contiguous()``, are not in the graph.
"""

from __future__ import annotations

import functools
import itertools
import operator
from typing import TYPE_CHECKING

import torch
from torch.export.graph_signature import InputKind

from trtcache.lowering.rewriting import is_mutating, makes_view, written_nodes
from trtcache.lowering.small_sizes import TrialRun, example_sizes, succeeds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch import fx
    from torch.export import ExportedProgram

_MOST_ORDERS = 24  # all of four dimensions
_MOST_RUNS = 96  # of single inputs; a run of a large language model takes 0.2 s
_GAPPED = -1


def layout_dependent_inputs(program: ExportedProgram) -> frozenset[int]:
    """Return the leaves of the inputs that an exported program takes only in the layout of the example."""
    if not any(may_be_copy for _, may_be_copy in _writes(program.graph)):
        return frozenset()
    sizes = example_sizes(program)
    example = TrialRun(program, sizes)
    if not succeeds(example):
        return frozenset()
    leaves = {node.name: leaf for leaf, node in enumerate(_input_nodes(program)) if _is_strided(node)}

    def differs(names: Iterable[str], layout: int) -> bool | None:
        """Return whether a write changes others than in the program; None if another operator fails before."""
        run = TrialRun(program, sizes, example.writes, dict.fromkeys(names, functools.partial(_strides, layout)))
        return False if succeeds(run) else run.differs or None

    found: set[str] = set()
    for layout in (_GAPPED, *range(max(2, min(_MOST_ORDERS, _MOST_RUNS // max(1, len(leaves)))))):
        rest = [name for name in leaves if name not in found]
        together = differs(rest, layout)
        if together is not False:  # ``view`` fails for some layouts; it does in eager torch, too
            found |= {name for name in rest if differs([name], layout)} or set(rest if together else ())
    return frozenset(leaves[name] for name in found)


def written_inputs(program: ExportedProgram) -> frozenset[int]:
    """Return the leaves of the inputs that an exported program may write to."""
    written = {node for sources, _ in _writes(program.graph) for node in sources}
    return frozenset(leaf for leaf, node in enumerate(_input_nodes(program)) if node in written)


def _writes(graph: fx.Graph) -> Iterator[tuple[frozenset[fx.Node], bool]]:
    """Yield for each write the nodes whose memory it may change, and whether its target may be a copy of one of them.

    Operators that torch composes of others, such as ``reshape``, may return a copy or a view.
    """
    if not any(map(is_mutating, graph.nodes)):
        return
    sources: dict[fx.Node, frozenset[fx.Node]] = {}
    copied: set[fx.Node] = set()
    for node in graph.nodes:
        if is_mutating(node):
            memory = frozenset().union(*(sources[one] for one in written_nodes(node)))
            yield memory, not copied.isdisjoint(memory)
        shares = makes_view(node.target) or node.target is operator.getitem
        sources[node] = frozenset({node}).union(*(sources[one] for one in node.all_input_nodes if shares))
        if shares and not is_mutating(node) and _is_composed(node.target):
            copied |= sources[node]


def _is_composed(target: object) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target._can_decompose()


def _input_nodes(program: ExportedProgram) -> list[fx.Node]:
    nodes = zip(program.graph.find_nodes(op="placeholder"), program.graph_signature.input_specs, strict=True)
    return [node for node, spec in nodes if spec.kind is InputKind.USER_INPUT]


def _is_strided(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.layout == torch.strided


def _strides(number: int, shape: Sequence[int]) -> list[int]:
    """Return strides of one of many layouts: dimensions in another order, or in this order with gaps."""
    orders = list(itertools.islice(itertools.permutations(range(len(shape))), _MOST_ORDERS))
    gap = number == _GAPPED
    strides, step = [0] * len(shape), 1 + gap
    for dim in reversed(orders[0 if gap else number % len(orders)]):
        strides[dim] = step
        step *= shape[dim] + gap
    return strides
