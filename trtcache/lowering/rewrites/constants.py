"""What constants determine: constant folding, factory functions, and loops with a known number of iterations."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from trtcache.config.frozen import frozen_dataclass
from trtcache.lowering.interface import look_up, make_contiguous
from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewrites.sizes import SizeNodes
from trtcache.lowering.rewriting import (
    AS_STRIDED,
    arguments,
    calls_of,
    feed_stride_readers,
    insert_call,
    is_contiguous,
    is_static,
    set_arguments,
    tensor_of,
)

aten = torch.ops.aten


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


EXACT: frozenset[object] = frozenset(
    overload
    for packet in (getattr(aten, name) for name in _EXACT_NAMES)
    for overload in (getattr(packet, name or "default") for name in packet._overload_names)  # "" is another object
    if not overload._schema.is_mutable
)


_SUMS = frozenset({aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar})
_PRODUCTS = frozenset({aten.mul.Tensor, aten.mul.Scalar})


@frozen_dataclass
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
            node.replace_all_uses_with(new_constant(graph_module, value, before=node))
            modified = True
        return PassResult(graph_module, modified)

    def _evaluate(self, graph_module: fx.GraphModule) -> dict[fx.Node, torch.Tensor]:
        values: dict[fx.Node, torch.Tensor] = {}
        # as_strided can read memory beside a tensor; other readers of strides see that a constant is contiguous.
        beside = feed_stride_readers(graph_module.graph, AS_STRIDED)
        feeding = feed_stride_readers(graph_module.graph)
        for node in graph_module.graph.nodes:
            if node in beside or node.target in AS_STRIDED:
                continue
            if node.op == "get_attr":
                value = getattr(graph_module, str(node.target), None)
            elif node.target in EXACT and all(used in values for used in node.all_input_nodes):
                value = self._compute(node, values)
            else:
                continue
            if isinstance(value, torch.Tensor) and (node not in feeding or value.is_contiguous()):
                values[node] = value
        return values

    def _compute(self, node: fx.Node, values: dict[fx.Node, torch.Tensor]) -> torch.Tensor | None:
        fake = node.meta.get("val")
        if not isinstance(fake, torch.Tensor) or not all(isinstance(size, int) for size in fake.shape):
            return None
        if fake.device.type == "meta" or _depends_on_processor(node, values):
            return None
        source_bytes = sum(values[used].nbytes for used in node.all_input_nodes)
        if fake.numel() * fake.element_size() > max(self.max_bytes, source_bytes):
            return None
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        with torch.no_grad():
            result = node.target(*args, **kwargs)  # type: ignore[operator]  # a member of EXACT
        return result if isinstance(result, torch.Tensor) else None


def _depends_on_processor(node: fx.Node, values: dict[fx.Node, torch.Tensor]) -> bool:
    """Return whether an operator of ``EXACT`` is not exact for these arguments.

    A sum with a factor and a product of complex numbers may use fused operations, which round once, and a number beyond
    the range of integers is converted in another way on each processor.
    """
    dtypes = {values[used].dtype for used in node.all_input_nodes}
    factor = node.kwargs.get("alpha", node.args[2] if len(node.args) > 2 else 1)
    if node.target in _SUMS and factor != 1:
        return True
    if node.target in _PRODUCTS and any(dtype.is_complex for dtype in dtypes):
        return True
    result = node.meta["val"].dtype
    is_integer = not (result.is_floating_point or result.is_complex or result is torch.bool)
    return node.target is aten._to_copy.default and is_integer and any(dtype.is_floating_point for dtype in dtypes)


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


_NUMBERS: dict[object, Callable[[fx.Node], Any]] = {
    **dict.fromkeys((aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default), lambda _: 0),
    **dict.fromkeys((aten.ones.default, aten.ones_like.default, aten.new_ones.default), lambda _: 1),
    **dict.fromkeys((aten.full_like.default, aten.full.default), lambda node: arguments(node)[1]),
    aten.new_full.default: lambda node: arguments(node)[2],
    aten.scalar_tensor.default: lambda node: arguments(node)[0],
}


_LARGEST_WHOLE = 2**53


def _round(number: int, dtype: torch.dtype) -> float:
    """Return an integer as a float; one that float64 may not have is rounded to the dtype, once."""
    return float(number) if abs(number) <= _LARGEST_WHOLE else float(torch.full((), number, dtype=dtype).item())


@frozen_dataclass
class Factories(Pass):
    """Rewrite zeros, ones, ``full_like``, ``new_full`` and ``scalar_tensor`` to ``full`` with explicit arguments.

    A tensor with the shape of another no longer depends on it; symbolic sizes are computed as by ``sizes``. Tensors
    that copy another's non-contiguous layout are unchanged, since a result would expose it.
    """

    name: ClassVar[str] = "factories"
    version: ClassVar[int] = 2

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite in place."""
        modified, sizes = False, SizeNodes(graph_module.graph)
        for node in calls_of(graph_module.graph, _NUMBERS):
            made = tensor_of(node)
            if made is None or not is_contiguous(made):
                continue
            is_explicit = node.target is aten.full.default and not is_static(made.shape)
            shape = arguments(node)[0] if is_explicit else sizes.of_all(made.shape)
            if shape is None:
                continue
            number = _NUMBERS[node.target](node)
            if type(number) is int and made.dtype.is_floating_point:
                number = _round(number, made.dtype)
            elif isinstance(number, (int, float)) and made.dtype is torch.bool:
                number = bool(number)
            wanted = [shape, number, made.dtype, made.layout, made.device, None]
            given = arguments(node) if node.target is aten.full.default else []
            if given != wanted or type(given[1]) is not type(number):
                node.target, modified = aten.full.default, True
                set_arguments(node, wanted)
        return PassResult(graph_module, modified or sizes.changed)


@frozen_dataclass
class Attributes(Pass):
    """Convert tensors in submodules to constants, and reject parameters.

    torch.export has already made inputs of parameters and buffers, and constants of tensors that are plain attributes
    of modules. A parameter that the graph still reads would be a weight without a slot.
    """

    name: ClassVar[str] = "attributes"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite in place."""
        modified = False
        for node in graph_module.graph.find_nodes(op="get_attr"):
            if "." in str(node.target):
                value = look_up(graph_module, str(node.target))
                if isinstance(value, torch.Tensor):
                    node.replace_all_uses_with(new_constant(graph_module, value, before=node))
                    graph_module.graph.erase_node(node)
                    modified = True
        return PassResult(graph_module, modified)

    def requires(self, graph_module: fx.GraphModule) -> str | None:
        """Return the first node that reads a parameter, or calls a module, if any."""
        graph = graph_module.graph
        for node in (*graph.find_nodes(op="call_module"), *graph.find_nodes(op="call_method")):
            return f"{node.name} calls {node.target}; the graph must be one of operators"
        for node in graph.find_nodes(op="get_attr"):
            if isinstance(look_up(graph_module, str(node.target)), torch.nn.Parameter):
                return f"{node.name} reads the parameter {node.target}; weights must be inputs"
        return None


_UNKNOWN = object()
_FOLLOWED = EXACT | {aten.clone.default}
_KNOWN_ELEMENTS = 64  # counters and small tables; larger tensors do not determine iteration counts


@frozen_dataclass
class Loops(Pass):
    """Unroll ``while_loop`` and ``scan`` if the number of iterations follows from the program alone.

    For a ``scan`` that is the size of the scanned dimension; for a ``while_loop`` the condition is evaluated from
    constants, as far as exact operators allow. Unchanged are loops whose iterations depend on inputs or weights,
    endless ones, and those that would have more than ``max_nodes`` nodes, with the loops in them.
    """

    max_nodes: int = 10_000

    name: ClassVar[str] = "loops"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Unroll in place, including nested loops. Bodies are left for dead code elimination."""
        waiting = deque((node, self.max_nodes) for node in graph_module.graph.nodes if _is_loop(node))
        modified = False
        while waiting:
            loop, max_nodes = waiting.popleft()
            unrolling = _Unrolling(graph_module, loop)
            unrolled = unrolling.run(max_nodes)
            modified |= unrolled is not None
            waiting += ((inner, max_nodes // unrolling.trips) for inner in unrolled or ())
        return PassResult(graph_module, modified)


def _count_nodes(body: fx.GraphModule) -> int:
    """Return the number of nodes of a body whose loops with a known number of iterations are unrolled."""
    count = len(body.graph.nodes)
    for node in body.graph.nodes:
        if _is_loop(node) and str(node.target) == "scan":
            trips = node.args[2][0].meta["val"].shape[0]
            count += (trips if isinstance(trips, int) else 1) * _count_nodes(getattr(body, str(node.args[0].target)))
    return count


def _is_loop(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.HigherOrderOperator) and str(node.target) in {"while_loop", "scan"}


class _Unrolling:
    """Unroll one loop.

    Attributes:
        trips: the number of its iterations, once it is unrolled.
    """

    def __init__(self, graph_module: fx.GraphModule, loop: fx.Node) -> None:
        self._graph_module = graph_module
        self._loop = loop
        self._inner: list[fx.Node] = []
        self.trips = 1
        self._followed: dict[fx.Node, Any] = {}
        values = (node.meta.get("val") for node in graph_module.graph.nodes)
        mode = next((one.fake_mode for one in values if isinstance(one, FakeTensor)), None)
        self._mode = mode or FakeTensorMode()

    def run(self, max_nodes: int) -> list[fx.Node] | None:
        """Return the nested loops of the body, or None if this loop is unchanged."""
        is_scan = str(self._loop.target) == "scan"
        results = self._scan(max_nodes) if is_scan else self._while(max_nodes)
        if results is None:
            return None
        for used in list(self._loop.users):
            result = results[used.args[1]]  # type: ignore[index]  # getitem of a number
            for user in list(used.users):
                known: Any = {node: node for node in user.all_input_nodes} | {used: result}
                user.args, user.kwargs = fx.node.map_arg((user.args, user.kwargs), known.__getitem__)
            used.graph.erase_node(used)
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
        first, trips, most = len(carried), 0, max_nodes // _count_nodes(body)
        while trips <= most:
            (goes_on,) = _partial(condition, known)
            if goes_on is _UNKNOWN:
                return None
            if not goes_on:
                break
            known, trips = [*_partial(body, known), *known[first:]], trips + 1
        else:
            return None
        if not trips:  # a loop's results are never its inputs themselves
            return [self._copy(one) if isinstance(one, fx.Node) else one for one in carried]
        self.trips = trips
        for _ in range(trips):
            carried = self._inline(body, [*carried, *more])
        return carried

    def _copy(self, node: fx.Node) -> fx.Node:
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            return node
        with self._mode:
            return insert_call(self._loop, aten.clone.default, (node,), value.clone())

    def _scan(self, max_nodes: int) -> Sequence[Any] | None:
        body = self._body(self._loop.args[0])
        carried, scanned, more = (list(one) for one in self._loop.args[1:4])  # type: ignore[arg-type]  # lists of nodes
        trips = scanned[0].meta["val"].shape[0]
        if not isinstance(trips, int) or not 0 < trips <= max_nodes // _count_nodes(body):
            return None
        self.trips = trips
        first, rows = len(carried), []
        for trip in range(trips):
            row = [
                insert_call(self._loop, aten.select.int, (one, 0, trip), one.meta["val"].select(0, trip))
                for one in scanned
            ]
            made = self._inline(body, [*carried, *row, *more])
            carried = made[:first]
            rows.append(made[first:])
        return [*carried, *(self._stack(column) for column in zip(*rows, strict=True))]

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
            if node.op == "call_function":
                values[node] = self._copy_node(node, values)
            elif node.op == "get_attr":
                value = getattr(body, str(node.target))
                if isinstance(value, torch.Tensor):
                    fake = self._mode.from_tensor(value)
                    values[node] = new_constant(self._graph_module, value, before=self._loop, fake=fake)
                else:  # the body of an inner loop
                    name = f"body_{len(self._graph_module._modules)}"
                    self._graph_module.add_submodule(name, value)
                    with self._loop.graph.inserting_before(self._loop):
                        values[node] = self._loop.graph.create_node("get_attr", name)
        results = fx.node.map_arg(body.graph.output_node().args[0], values.__getitem__)
        return list(results)  # type: ignore[arg-type]  # a body returns a list or a tuple

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
            value: Any = _UNKNOWN
            if argument.op == "get_attr":
                value = _known_constant(self._graph_module, argument)
            elif argument.op == "call_function" and argument.target in _FOLLOWED:
                value = _compute(argument, {one: self._known_value(one) for one in argument.all_input_nodes})
            self._followed[argument] = value
        return self._followed[argument]


def _partial(body: fx.GraphModule, inputs: Sequence[Any]) -> list[Any]:
    """Evaluate a graph as far as known inputs determine its results."""
    values: dict[fx.Node, Any] = dict(zip(body.graph.find_nodes(op="placeholder"), inputs, strict=True))
    for node in body.graph.nodes:
        if node.op == "get_attr":
            values[node] = _known_constant(body, node)
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


def _known_constant(module: fx.GraphModule, node: fx.Node) -> object:
    value = getattr(module, str(node.target), None)
    return value if isinstance(value, torch.Tensor) and _is_small(value) else _UNKNOWN


def _is_small(value: torch.Tensor) -> bool:
    return is_static(value.shape) and value.numel() <= _KNOWN_ELEMENTS


def _is_arithmetic(target: object) -> bool:
    """Return whether a target is Python's arithmetic, or torch's replacement for symbolic sizes."""
    module, name = getattr(target, "__module__", None), getattr(target, "__name__", "")
    return module in {"_operator", "math"} or (module == "torch" and name.startswith("sym_"))
