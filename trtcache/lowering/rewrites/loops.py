"""Unrolling of loops with a known number of iterations."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewrites.constants import EXACT, new_constant
from trtcache.lowering.rewriting import insert_call, is_static, replace, tensor_of

if TYPE_CHECKING:
    from collections.abc import Sequence

aten = torch.ops.aten

_UNKNOWN = object()
_FOLLOWED = EXACT | {aten.clone.default}
_KNOWN_ELEMENTS = 64  # counters and small tables; larger tensors do not determine iteration counts


@dataclass(frozen=True, slots=True)
class Loops(Pass):
    """Unroll ``while_loop`` and ``scan`` if the number of iterations follows from the program alone.

    For a ``scan`` that is the size of the scanned dimension; for a ``while_loop`` the condition is evaluated from
    constants, as far as exact operators allow. Unchanged are loops whose iterations depend on inputs or weights,
    endless ones, and those that would have more than ``max_nodes`` nodes.
    """

    max_nodes: int = 10_000

    name: ClassVar[str] = "loops"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Unroll in place, including nested loops. Bodies are left for dead code elimination."""
        waiting = deque(node for node in graph_module.graph.nodes if _is_loop(node))
        modified = False
        while waiting:
            loop = waiting.popleft()
            unrolled = _Unrolling(graph_module, loop).run(self.max_nodes)
            modified |= unrolled is not None
            waiting += unrolled or ()
        return PassResult(graph_module, modified)


def _is_loop(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.HigherOrderOperator) and str(node.target) in {"while_loop", "scan"}


class _Unrolling:
    """Unroll one loop."""

    def __init__(self, graph_module: fx.GraphModule, loop: fx.Node) -> None:
        self._graph_module = graph_module
        self._loop = loop
        self._inner: list[fx.Node] = []
        self._followed: dict[fx.Node, Any] = {}
        self._mode = _fake_mode(graph_module.graph)

    def run(self, max_nodes: int) -> list[fx.Node] | None:
        """Return the nested loops of the body, or None if this loop is unchanged."""
        is_scan = str(self._loop.target) == "scan"
        results = self._scan(max_nodes) if is_scan else self._while(max_nodes)
        if results is None:
            return None
        for used in list(self._loop.users):
            _substitute(used, results[used.args[1]])  # type: ignore[index]  # getitem of a number
        self._loop.graph.erase_node(self._loop)
        return self._inner

    def _body(self, argument: object) -> fx.GraphModule:
        assert isinstance(argument, fx.Node)  # noqa: S101  # torch.export writes get_attr of a module
        body = getattr(self._graph_module, str(argument.target))
        assert isinstance(body, fx.GraphModule)  # noqa: S101  # as above
        return body

    def _while(self, max_nodes: int) -> Sequence[Any] | None:
        condition, body = map(self._body, self._loop.args[:2])
        carried, more = list(self._loop.args[2]), list(self._loop.args[3])  # type: ignore[arg-type]  # lists of nodes
        known = [self._known_value(one) for one in (*carried, *more)]
        trips = _trips(condition, body, known, len(carried), max_nodes // len(body.graph.nodes))
        if trips is None:
            return None
        for _ in range(trips):
            carried = self._inline(body, [*carried, *more])
        return carried

    def _scan(self, max_nodes: int) -> Sequence[Any] | None:
        body = self._body(self._loop.args[0])
        carried, scanned, more = (list(one) for one in self._loop.args[1:4])  # type: ignore[arg-type]  # lists of nodes
        trips = scanned[0].meta["val"].shape[0]
        if not isinstance(trips, int) or not 0 < trips <= max_nodes // len(body.graph.nodes):
            return None
        first, rows = len(carried), []
        for trip in range(trips):
            made = self._inline(body, [*carried, *(self._row(one, trip) for one in scanned), *more])
            carried, row = made[:first], made[first:]
            rows.append(row)
        return [*carried, *(self._stack(column) for column in zip(*rows, strict=True))]

    def _row(self, scanned: fx.Node, trip: int) -> fx.Node:
        return insert_call(self._loop, aten.select.int, (scanned, 0, trip), scanned.meta["val"].select(0, trip))

    def _stack(self, rows: Sequence[fx.Node]) -> fx.Node:
        """Return rows as one tensor, as torch decomposes ``stack``."""
        shape = rows[0].meta["val"].shape
        if not shape or not is_static(shape):
            rows = [insert_call(self._loop, aten.unsqueeze.default, (one, 0), one.meta["val"][None]) for one in rows]
        whole = insert_call(self._loop, aten.cat.default, (list(rows),), torch.cat([one.meta["val"] for one in rows]))
        if len(whole.meta["val"].shape) > len(shape):
            return whole
        sizes = [len(rows), *shape]
        return insert_call(self._loop, aten.view.default, (whole, sizes), whole.meta["val"].view(sizes))

    def _inline(self, body: fx.GraphModule, inputs: Sequence[Any]) -> list[Any]:
        """Copy a body before the loop and return its results: nodes, or known numbers."""
        values: dict[fx.Node, Any] = dict(zip(body.graph.find_nodes(op="placeholder"), inputs, strict=True))
        for node in body.graph.nodes:
            if node.op == "get_attr":
                values[node] = self._attribute(getattr(body, str(node.target)))
            elif node.op == "call_function":
                values[node] = self._copy_node(node, values)
        results = fx.node.map_arg(body.graph.output_node().args[0], values.__getitem__)
        return list(results)  # type: ignore[arg-type]  # a body returns a list or a tuple

    def _attribute(self, value: object) -> fx.Node:
        if isinstance(value, torch.Tensor):
            return new_constant(self._graph_module, value, before=self._loop, fake=self._mode.from_tensor(value))
        name = f"body_{len(self._graph_module._modules)}"
        self._graph_module.add_submodule(name, value)  # type: ignore[arg-type]  # the body of an inner loop
        with self._loop.graph.inserting_before(self._loop):
            return self._loop.graph.create_node("get_attr", name)

    def _copy_node(self, node: fx.Node, values: dict[fx.Node, Any]) -> Any:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        if _is_arithmetic(node.target) and not any(isinstance(one, fx.Node) for one in args):
            return node.target(*args, **kwargs)  # type: ignore[operator]  # a function of Python
        copy = insert_call(self._loop, node.target, args, node.meta.get("val"))
        copy.kwargs = kwargs
        if _is_loop(node):
            self._inner.append(copy)
        elif isinstance(node.target, torch._ops.OpOverload):
            values_in = fx.node.map_arg((args, kwargs), lambda one: one.meta["val"])
            with self._mode:
                copy.meta["val"] = node.target(*values_in[0], **values_in[1])
        return copy

    def _known_value(self, argument: Any) -> Any:
        """Return the value of an argument if it is small and depends on constants alone."""
        if not isinstance(argument, fx.Node):
            return argument
        if argument not in self._followed:
            self._followed[argument] = self._follow(argument)
        return self._followed[argument]

    def _follow(self, node: fx.Node) -> Any:
        if node.op == "get_attr":
            return _small(getattr(self._graph_module, str(node.target), None))
        if node.op != "call_function" or node.target not in _FOLLOWED:
            return _UNKNOWN
        return _compute(node, {one: self._known_value(one) for one in node.all_input_nodes})


def _fake_mode(graph: fx.Graph) -> FakeTensorMode:
    made = (node.meta.get("val") for node in graph.nodes)
    return next((one.fake_mode for one in made if isinstance(one, FakeTensor)), None) or FakeTensorMode()


def _substitute(node: fx.Node, result: Any) -> None:
    if isinstance(result, fx.Node):
        replace(node, result)
        return
    for user in list(node.users):
        user.args, user.kwargs = fx.node.map_arg((user.args, user.kwargs), lambda one: result if one is node else one)
    node.graph.erase_node(node)


def _trips(
    condition: fx.GraphModule, body: fx.GraphModule, known: Sequence[Any], carried: int, most: int
) -> int | None:
    """Return the number of iterations of a loop, given the known values of its inputs, or None."""
    for trip in range(most + 1):
        (goes_on,) = _partial(condition, known)
        if goes_on is _UNKNOWN:
            return None
        if not goes_on:
            return trip
        known = [*_partial(body, known), *known[carried:]]
    return None


def _partial(body: fx.GraphModule, inputs: Sequence[Any]) -> list[Any]:
    """Evaluate a graph as far as known inputs determine its results."""
    values: dict[fx.Node, Any] = dict(zip(body.graph.find_nodes(op="placeholder"), inputs, strict=True))
    for node in body.graph.nodes:
        if node.op == "get_attr":
            values[node] = _small(getattr(body, str(node.target)))
        elif node.op == "call_function":
            values[node] = _compute(node, values)
    results = body.graph.output_node().args[0]
    listed = results if isinstance(results, (list, tuple)) else [results]
    return [values[one] if isinstance(one, fx.Node) else one for one in listed]


def _compute(node: fx.Node, known: dict[fx.Node, Any]) -> Any:
    if any(known[one] is _UNKNOWN for one in node.all_input_nodes):
        return _UNKNOWN
    fake = tensor_of(node)
    exact = node.target in _FOLLOWED and fake is not None and _is_small(fake)
    if not exact and not _is_arithmetic(node.target):
        return _UNKNOWN
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
    with torch.no_grad():
        return node.target(*args, **kwargs)  # type: ignore[operator]  # an operator or a function of Python


def _small(value: object) -> object:
    return value if isinstance(value, torch.Tensor) and _is_small(value) else _UNKNOWN


def _is_small(value: torch.Tensor) -> bool:
    return is_static(value.shape) and value.numel() <= _KNOWN_ELEMENTS


def _is_arithmetic(target: object) -> bool:
    """Return whether a target is Python's arithmetic, or torch's replacement for symbolic sizes."""
    module, name = getattr(target, "__module__", None), getattr(target, "__name__", "")
    return module in {"_operator", "math"} or (module == "torch" and name.startswith("sym_"))
