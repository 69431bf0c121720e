"""How the time of a key grows with its graph, beside the key that torch's own cache of compiled graphs makes of it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._inductor.codecache import compiled_fx_graph_hash
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from benchmarks.report import Promise, median, promised, seconds, span, table
from benchmarks.timing import Samples, per_call_s
from trtcache.keys.graph_digest import graph_records
from trtcache.lowering.interface import Result
from trtcache.lowering.marked_graph import MarkedGraph
from trtcache.lowering.program import LoweredProgram, finish

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.effort import Effort
    from benchmarks.report import Figures

aten = torch.ops.aten

SMALL, LARGE = 10_000, 100_000


def measure(_folder: Path, effort: Effort) -> Samples:
    """Return the seconds for each node of our key and of torch's, with fixed and with symbolic sizes."""
    samples: Samples = {}
    for kind, is_dynamic in (("fixed", False), ("symbolic", True)):
        for size, label in ((SMALL, "small"), (LARGE, "large")):
            program = numbered(build(size, is_dynamic=is_dynamic))
            times = per_call_s(functools.partial(graph_records, program), calls=1, batches=effort.rounds)
            samples[f"{kind}_{label}_node_s"] = [value / size for value in times]
        samples[f"{kind}_torch_node_s"] = [
            value / SMALL for value in torch_key_s(SMALL, effort.rounds, is_dynamic=is_dynamic)
        ]
    return samples


def build(size: int, *, is_dynamic: bool) -> MarkedGraph:
    """Return a lowered graph of so many nodes: linear layers with an activation and a residual sum."""
    width, names = 16, ("w", "b")
    mode = FakeTensorMode(shape_env=ShapeEnv() if is_dynamic else None)
    shape = torch.empty(8, width)
    if is_dynamic:
        torch._dynamo.mark_dynamic(shape, 0)
    module = fx.GraphModule(torch.nn.Module(), fx.Graph())
    with mode:
        values = {"x": mode.from_tensor(shape), "w": torch.empty(width, width), "b": torch.empty(width)}
    nodes = {name: module.graph.placeholder(name) for name in values}
    for name, node in nodes.items():
        node.meta |= {"val": values[name], **({"weight": name} if name in names else {"input": 0})}
    last = _layers(module.graph, nodes, size)
    module.graph.output((last,)).meta["roles"] = (Result("result"),)
    return MarkedGraph(module, {"w": torch.empty(width, width), "b": torch.empty(width)}, {}, {})


def _layers(graph: fx.Graph, nodes: Mapping[str, fx.Node], size: int) -> fx.Node:
    x, w, b = nodes.values()
    value, earlier = x.meta["val"], x
    for place in range(size - len(nodes)):
        match place % 4:
            case 0:
                node = graph.call_function(aten.addmm.default, (b, x, w))
            case 1:
                node = graph.call_function(aten.gelu.default, (x,), {"approximate": "tanh"})
            case 2:
                node = graph.call_function(aten.mul.Tensor, (x, float(place)))
            case _:
                node = graph.call_function(aten.add.Tensor, (x, earlier))
                earlier = node
        node.meta["val"] = value
        x = node
    return x


@dataclass(frozen=True, slots=True)
class _Call:
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec


@dataclass(frozen=True, slots=True)
class _Exported:
    """What ``finish`` asks of an exported program."""

    call_spec: _Call
    state_dict: Mapping[str, torch.Tensor]
    range_constraints: Mapping[Any, Any]


def numbered(marked: MarkedGraph) -> LoweredProgram:
    """Return the lowered program of a graph: its nodes in canonical order, its slots numbered."""
    call = _Call(pytree.tree_structure(((0,), {})), pytree.tree_structure((0,)))
    exported: Any = _Exported(call, marked.state, {})
    return finish(exported, marked, name="layers", pipeline=(), runs=())


def torch_key_s(size: int, rounds: int, *, is_dynamic: bool) -> list[float]:
    """Return the seconds that torch's own key of the same graph takes."""
    module = build(size, is_dynamic=is_dynamic).graph_module
    inputs = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
    module.recompile()
    return per_call_s(lambda: compiled_fx_graph_hash(module, inputs, {}, []), calls=1, batches=rounds)


KINDS = ("fixed", "symbolic")


def section(figures: Figures) -> str:
    """Return what the page says of it."""
    rows = []
    for kind in KINDS:
        small, large = (figures[f"{kind}_{size}_node_s"] for size in ("small", "large"))
        rows.append((f"{kind} sizes", span(small), span(large), span(figures[f"{kind}_torch_node_s"])))
    header = ("time for each node", "10,000 nodes", "100,000 nodes", "torch's `FxGraphCache`, 10,000 nodes")
    fixed_s, symbolic_s = (median(figures, f"{kind}_small_node_s") for kind in KINDS)
    growth = max(median(figures, f"{kind}_large_node_s") / median(figures, f"{kind}_small_node_s") for kind in KINDS)
    kept = [
        Promise("a node of a graph of 10,000", seconds(fixed_s), "at most 15 us", fixed_s <= 15e-6),
        Promise("the same with symbolic sizes", seconds(symbolic_s), "at most 30 us", symbolic_s <= 30e-6),
        Promise("a node of 100,000, of one of 10,000", f"{growth:.2f}x", "at most 2x; 10x if quadratic", growth <= 2),
    ]
    return "\n".join(["## Keys of large graphs\n", table(header, rows), promised(*kept)])
