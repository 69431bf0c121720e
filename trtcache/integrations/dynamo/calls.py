"""Arguments and results of a Dynamo graph's calls.

Dynamo passes the weights with every call, and dynamic sizes as separate numbers. Weights are recognised by where Dynamo
found them; an argument that a call modifies is an input in any case, so that the change reaches the model.

An engine returns new memory. In eager torch a result can share memory with an argument or another result, and code
after the graph may write to it. So such results are created as views of the same base.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import fx
from torch._functorch import predispatch

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import ExportError, InputError
from trtcache.lowering.interface import evaluate
from trtcache.lowering.rewriting import example_of, is_contiguous, is_static
from trtcache.lowering.symbols import Symbols
from trtcache.weights.arrays import can_overlap_itself, contiguous
from trtcache.weights.slots import is_plain, storage_id

if TYPE_CHECKING:
    import sympy

    from trtcache.digests import Json

_OF_A_MODULE = re.compile(r"\._(parameters|buffers)\[")
_PART = re.compile(r"\['?([^'\]]+)'?\]|\.(\w+)")
_CONTAINERS = {"_modules", "_parameters", "_buffers"}


@frozen_dataclass
class Arguments:
    """The indices of a call's arguments by role.

    Attributes:
        inputs: the engine's input tensors, in this order.
        weights: the engine's weights, with readable names.
        sizes: numbers that are an input's size: the input's index and the dimension.
        numbers: other numbers; an engine is specialised on their values.
        fractions: Python floats, which Dynamo passes as 0-d float64 tensors; the graph reads each with ``item``.
        symbols: the index of each symbol's value.
    """

    inputs: tuple[int, ...]
    weights: Mapping[int, str]
    sizes: Mapping[int, tuple[int, int]]
    numbers: tuple[int, ...]
    fractions: tuple[int, ...]
    symbols: Mapping[sympy.Symbol, int]


@frozen_dataclass
class _OwnTensor:
    """A stand-in for torch's ``Source`` of a placeholder that ``lift_tensors`` adds; ``name`` is its expression."""

    name: str


def lift_tensors(graph_module: fx.GraphModule) -> tuple[fx.GraphModule, tuple[torch.Tensor, ...]]:
    """Return a graph with a placeholder for each parameter and buffer of its own (``get_attr``), and these tensors.

    Dynamo puts weights into the graph with ``freezing``, ``prepare_freezing``, ``install_free_tensors`` or
    ``mark_static_address``. Calls and the user's program can modify them. Dynamo's graph is not modified.
    """
    own = {**dict(graph_module.named_buffers(recurse=False)), **dict(graph_module.named_parameters(recurse=False))}
    nodes = [node for node in graph_module.graph.find_nodes(op="get_attr") if node.target in own]
    if not nodes:
        return graph_module, ()
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in graph_module.graph.find_nodes(op="placeholder"):
        copies[node] = graph.node_copy(node)
        copies[node]._dynamo_source = getattr(node, "_dynamo_source", None)
    # Parameters and buffers of the model, but not its other tensors.
    names = graph_module.meta.get("dynamo_flat_name_to_original_fqn", {})
    lifted = dict[str, fx.Node]()
    for node in nodes:
        name = str(node.target)
        if name not in lifted:
            lifted[name] = graph.placeholder(node.name)
            lifted[name].meta = {**node.meta}
            source = f"self._buffers['{names[name]}']" if name in names else name
            lifted[name]._dynamo_source = _OwnTensor(source)
        copies[node] = lifted[name]
    for node in graph_module.graph.nodes:
        if node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return fx.GraphModule(graph_module, graph), tuple(own[name] for name in lifted)


def read_arguments(
    placeholders: Sequence[fx.Node],
    examples: Sequence[Any],
    *,
    changed: Collection[int] = (),
    fixed: Collection[int] = (),
) -> Arguments:
    """Return the role of each argument.

    Args:
        placeholders: the graph's placeholders.
        examples: the arguments of the call that Dynamo traced.
        changed: indices of weights that calls modify, besides those that Dynamo detected.
        fixed: indices of fractions to specialise on, like numbers.

    Raises:
        ExportError: an argument is neither a plain tensor nor an integer.
    """
    inputs: list[int] = []
    weights: dict[int, str] = {}
    written: dict[int, sympy.Expr] = {}
    for place, (node, example) in enumerate(zip(placeholders, examples, strict=True)):
        if place in fixed:
            continue
        if isinstance(example, torch.Tensor) and is_plain(example):
            if place not in changed and _is_weight(node, example):
                weights[place] = f"{_readable_name(node)}_{place}"
            else:
                inputs.append(place)
        elif isinstance(example, (int, torch.SymInt)) and not isinstance(example, bool):
            written[place] = expression(value_of(node))
        else:
            kind = "a size without an example" if example is None else f"a {type(example).__name__}"
            raise ExportError("the graph", f"its argument {node.name} is {kind}")
    # The first input and dimension that equal each symbol.
    given: dict[sympy.Symbol, tuple[int, int]] = {}
    for place in inputs:
        for dim, size in enumerate(value_of(placeholders[place]).shape):
            if type(size) is not int and (expr := expression(size)).is_Symbol:
                given.setdefault(expr, (place, dim))
    symbols = {expr: place for place, expr in written.items() if expr.is_Symbol}
    sizes = {place: given[expr] for place, expr in written.items() if expr in given}
    numbers = tuple(sorted({*fixed, *written} - set(sizes)))
    fractions = tuple(place for place in inputs if _is_fraction(placeholders[place], examples[place]))
    return Arguments(tuple(inputs), weights, sizes, numbers, fractions, symbols)


def number(argument: Any) -> int | float:
    """Return a number argument's value; Dynamo passes floats as tensors."""
    value: int | float = argument.item() if isinstance(argument, torch.Tensor) else argument
    return value


def value_of(node: fx.Node) -> Any:
    """Return Dynamo's value for a node without data: a fake tensor or a number."""
    return node.meta.get("example_value")


def expression(size: Any) -> sympy.Expr:
    """Return a size as an expression, without reading its value, which would add a Dynamo guard."""
    import sympy

    found: sympy.Expr = size.node.expr if hasattr(size, "node") else sympy.sympify(size)
    return found


def source_name(node: fx.Node) -> str:
    """Return the Python expression that Dynamo reads an argument from."""
    name = getattr(getattr(node, "_dynamo_source", None), "name", "")
    return str(name() if callable(name) else name)  # a method before torch 2.10


def _is_weight(node: fx.Node, example: torch.Tensor) -> bool:
    value = value_of(node)
    # ``_version > 0``: Dynamo traced an in-place write, even one that lowering removes. Weights that share memory have
    # it, too (torch 2.13 creates the second fake tensor by a write): they also become inputs.
    if value.layout != torch.strided or value.is_inference() or value._version > 0:
        return False
    fixed = all(type(size) is int for size in (*value.shape, *value.stride()))
    return fixed and (isinstance(example, torch.nn.Parameter) or bool(_OF_A_MODULE.search(source_name(node))))


def _is_fraction(node: fx.Node, example: torch.Tensor) -> bool:
    single = example.dim() == 0 and example.dtype is torch.float64 and example.device.type == "cpu"
    return single and all(user.op == "call_method" and user.target == "item" for user in node.users)


def _readable_name(node: fx.Node) -> str:
    parts = [one or other for one, other in _PART.findall(source_name(node))]
    kept = [part for part in parts[1:] if part not in _CONTAINERS] or [node.name]
    return re.sub(r"\W", "_", "_".join(kept))


# Where the functions are that Dynamo writes into a graph: torch 2.11 has them in torch._C.
_FORWARD: Any = predispatch if hasattr(predispatch, "_enter_dual_level") else torch._C

_entered: ContextVar[dict[object, Callable[[], object]]] = ContextVar("trtcache_entered_regions")


@contextmanager
def regions() -> Iterator[None]:
    """Leave the regions that a graph in the block has entered, if an error ends it in one.

    These are regions of ``torch.autocast``, the levels of ``torch.func`` and of forward-mode differentiation, and those
    without hooks for saved tensors.
    """
    depth = torch._C._functorch.get_dynamic_layer_stack_depth()
    is_forward_enabled = torch._C._is_fwd_grad_enabled()
    why_no_hooks = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message()
    token = _entered.set({})
    try:
        yield
    finally:
        _leave_levels(depth)
        for leave in reversed(_entered.get().values()):
            leave()
        _entered.reset(token)
        torch._C._set_fwd_grad_enabled(is_forward_enabled)
        if why_no_hooks is None:
            torch._C._autograd._saved_tensors_hooks_enable()


def _leave_levels(depth: int) -> None:
    """Leave the levels of ``torch.func`` beyond a depth; torch's own function for it skips levels (torch 2.11)."""
    functorch: Any = torch._C._functorch
    kinds = functorch.TransformType
    leave = {
        kinds.Vmap: functorch._vmap_decrement_nesting,
        kinds.Grad: functorch._grad_decrement_nesting,
        kinds.Jvp: functorch._jvp_decrement_nesting,
        kinds.Functionalize: functorch._func_decrement_nesting,
    }
    while functorch.get_dynamic_layer_stack_depth() > depth:
        leave[functorch.peek_interpreter_stack().key()]()


def enter_autocast(device: str, dtype: torch.dtype | None, enabled: bool, cache_enabled: bool | None) -> torch.autocast:
    """Enter a region, in effect and in the program that ``torch.export`` records.

    ``torch.export`` only records torch's own function, and does not call it: the operators of the region were traced
    as if it had not been entered, and their fake tensors had other dtypes than the program computes.
    """
    region = torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)
    region.__enter__()  # type: ignore[no-untyped-call]  # torch's
    _entered.get()[region] = lambda: region.__exit__(None, None, None)
    return region


def exit_autocast(region: torch.autocast) -> None:
    """Leave a region."""
    _entered.get().pop(region)()


def enter_dual_level() -> int:
    """Enter a level of forward-mode differentiation: all threads share the only one."""
    level: int = _FORWARD._enter_dual_level()
    _entered.get()[level] = lambda: torch._C._exit_dual_level(level=level)
    return level


def exit_dual_level(*, level: int) -> None:
    """Leave a level."""
    _FORWARD._exit_dual_level(level=level)
    _entered.get().pop(level, None)  # it may have been entered before the graph


_REGIONS: Mapping[Any, Callable[..., Any]] = {
    torch.amp.autocast_mode._enter_autocast: enter_autocast,
    torch.amp.autocast_mode._exit_autocast: exit_autocast,
    _FORWARD._enter_dual_level: enter_dual_level,
    _FORWARD._exit_dual_level: exit_dual_level,
}


def flat_module(
    graph_module: fx.GraphModule, arguments: Arguments, call: Sequence[Any], computed: Iterable[fx.Node]
) -> fx.GraphModule:
    """Return a module that takes the inputs and returns the ``computed`` nodes of Dynamo's graph.

    The weights of ``call`` are its buffers, sizes are read from the inputs, and other numbers are those of ``call``.
    Dynamo's graph has no tensors of its own, and is not modified.
    """
    graph, copies = fx.Graph(), dict[fx.Node, Any]()
    root = torch.nn.Module()
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    for place in arguments.inputs:
        copies[placeholders[place]] = graph.placeholder(placeholders[place].name)
    for place, name in arguments.weights.items():
        root.register_buffer(name, call[place].detach())
        copies[placeholders[place]] = graph.get_attr(name)
    for place, (source, dim) in arguments.sizes.items():
        copies[placeholders[place]] = graph.call_method("size", (copies[placeholders[source]], dim))
    for place in arguments.numbers:
        # The nodes with a number's value: its placeholder, or if that is a tensor the nodes that read it.
        node = placeholders[place]
        nodes = list(node.users) if isinstance(call[place], torch.Tensor) else [node]
        copies |= dict.fromkeys(nodes, number(call[place]))
    for name, child in graph_module.named_children():  # bodies of higher-order operators
        root.add_module(name, child)
    for node in graph_module.graph.nodes:
        if node.op not in {"placeholder", "output"} and node not in copies:
            copies[node] = copy = graph.node_copy(node, copies.__getitem__)
            copy.target = _REGIONS.get(copy.target, copy.target)
    graph.output(tuple(copies[node] for node in computed))
    return fx.GraphModule(root, graph)


def dynamic_shapes(graph_module: fx.GraphModule, arguments: Arguments) -> tuple[dict[int, Any] | None, ...]:
    """Return the dynamic sizes of the inputs with Dynamo's ranges, in ``torch.export``'s format.

    torch infers further constraints.
    """
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    found = []
    for place in arguments.inputs:
        dims: dict[int, Any] = {}
        for dim, size in enumerate(value_of(placeholders[place]).shape):
            if type(size) is int:
                continue
            dims[dim] = torch.export.Dim.AUTO
            if (bounds := size.node.shape_env.var_to_range.get(expression(size))) is not None:
                least, most = (int(bound) if bound.is_Integer else None for bound in (bounds.lower, bounds.upper))
                dims[dim] = torch.export.Dim.AUTO(min=least, max=most)
        found.append(dims or None)
    return tuple(found)


@frozen_dataclass
class ConstantResult:
    """A result that is the same for every call."""

    value: object


@frozen_dataclass
class Number:
    """A result that is a number computed from sizes."""

    written: Json


@frozen_dataclass
class Computed:
    """A result that the engine computes."""

    index: int


@frozen_dataclass
class Argument:
    """A result that is an argument."""

    place: int


@frozen_dataclass
class View:
    """A result that shares the memory of an argument or of an engine output.

    ``offset`` counts from the start of the base; ``base_stride`` are the base's strides in eager torch, which the
    view's numbers refer to. ``requires_grad`` is whether the model's result requires gradients.
    """

    base: Argument | Computed
    base_stride: tuple[Json, ...]
    shape: tuple[Json, ...]
    stride: tuple[Json, ...]
    offset: Json
    requires_grad: bool


Maker: TypeAlias = ConstantResult | Number | Computed | Argument | View


@frozen_dataclass
class Results:
    """The results of a graph.

    Attributes:
        makers: one for each result.
        computed: the nodes that the engine computes.
        layouts: the strides that each of these needs, by its index; an empty tuple: contiguous, with dynamic sizes.
        symbols: the argument index of each symbol's value, by number.
        are_computed: whether the results are the engine's outputs, in their order.
    """

    makers: tuple[Maker, ...]
    computed: tuple[fx.Node, ...]
    layouts: Mapping[int, tuple[Json, ...]]
    symbols: Mapping[int, int]
    are_computed: bool

    @property
    def shared(self) -> tuple[tuple[int, tuple[Json, ...]], ...]:
        """The indices of arguments whose memory results share, with their required strides."""
        views = (maker for maker in self.makers if isinstance(maker, View))
        return tuple((view.base.place, view.base_stride) for view in views if isinstance(view.base, Argument))

    def check_strides(self, args: Sequence[Any]) -> None:
        """Reject a call whose arguments have other strides than those that the views were computed for.

        Such a call only occurs if a caller disabled Dynamo guards. It must be rejected before the engine runs, which
        may modify arguments.

        Raises:
            InputError: an argument has other strides.
        """
        sizes = self._sizes(args)
        for place, stride in self.shared:
            if args[place].stride() != (expected := _evaluate(stride, sizes)):
                raise InputError(f"argument {place}", f"strides {expected}", f"{args[place].stride()}")

    def _sizes(self, args: Sequence[Any]) -> Mapping[int, int]:
        return {number: int(args[place]) for number, place in self.symbols.items()}

    def make(self, args: Sequence[Any], computed: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """Return the results of a call whose strides were checked.

        Dynamo traced the code after the graph for results with certain strides, each with a storage of its own. Copy an
        output of the engine with other strides, and one that shares the storage of an earlier output. That happens to
        two results that eager torch makes by copying an input because of its layout: the engine's input is a copy
        already, and the engine returns it twice.
        """
        bases, memories = list(computed), set[int]()
        for index, base in enumerate(computed):
            layout = self.layouts.get(index)
            stride = base.stride()
            if layout:
                stride = stride if layout == stride else _evaluate(layout, self._sizes(args))
            elif layout is not None and not base.is_contiguous():
                stride = contiguous(tuple(base.shape))
            memory = base.untyped_storage().data_ptr() if len(computed) > 1 else 0
            if base.stride() != stride or (memory in memories and memory):
                bases[index] = base.new_empty_strided(base.shape, stride).copy_(base)
            memories.add(memory)
        if self.are_computed:
            return tuple(bases)
        sizes = self._sizes(args)
        return tuple(_make(maker, args, bases, sizes) for maker in self.makers)


def _make(maker: Maker, args: Sequence[Any], computed: Sequence[torch.Tensor], sizes: Mapping[int, int]) -> Any:
    match maker:
        case ConstantResult(value):
            return value
        case Number(written):
            return evaluate(written, sizes)
        case Computed(index):
            return computed[index]
        case Argument(place):
            return args[place]
        case View():
            base = _make(maker.base, args, computed, sizes)
            # Without gradients, a view of a parameter still requires them, unless it was detached.
            if torch.is_grad_enabled() or not maker.requires_grad:
                base = base.detach()
            shape, stride, (offset,) = (_evaluate(one, sizes) for one in (maker.shape, maker.stride, (maker.offset,)))
            return base.as_strided(shape, stride, base.storage_offset() + offset)


def read_results(graph_module: fx.GraphModule, arguments: Arguments) -> Results:
    """Return how to create the graph's results."""
    return _Reader(graph_module, arguments).read()


class _Reader:
    def __init__(self, graph_module: fx.GraphModule, arguments: Arguments) -> None:
        self._graph = graph_module.graph
        self._placeholders = self._graph.find_nodes(op="placeholder")
        self._symbols = Symbols()
        self._places: dict[int, int] = {}
        for symbol, place in arguments.symbols.items():
            written: Any = self._symbols.write(symbol)
            self._places[int(written["sym"])] = place
        self._computed: dict[fx.Node, int] = {}
        self._layouts: dict[int, tuple[Json, ...]] = {}
        self._bases: dict[int, fx.Node] = {}
        for node in self._graph.nodes:
            if _has_memory(value_of(node)):
                self._bases.setdefault(storage_id(value_of(node)), node)

    def read(self) -> Results:
        outputs: Any = self._graph.output_node().args[0]
        values = [value_of(node) for node in dict.fromkeys(outputs) if isinstance(node, fx.Node)]
        memories = [storage_id(value) for value in values if _has_memory(value)]
        shared = {memory for memory in memories if memories.count(memory) > 1}
        makers = tuple(self._maker(one, shared) for one in outputs)
        are_computed = makers == tuple(map(Computed, range(len(makers))))
        return Results(makers, tuple(self._computed), self._layouts, self._places, are_computed)

    def _maker(self, output: Any, shared: set[int]) -> Maker:
        if not isinstance(output, fx.Node):
            return ConstantResult(output)
        value = value_of(output)
        if type(value) in {int, torch.SymInt}:
            return Number(self._write(value, output))
        if not _has_memory(value):
            what = f"has layout {value.layout}" if isinstance(value, torch.Tensor) else f"is a {type(value).__name__}"
            raise ExportError("the graph", f"its result {output.name} {what}")
        base = self._bases[storage_id(value)]
        if base.op == "placeholder":
            # An argument, or a view of one.
            same = [place for place, one in enumerate(self._placeholders) if value is value_of(one)]
            return Argument(same[0]) if same else self._view(output, base, Argument(self._placeholders.index(base)))
        # The engine computes the node that made the storage, and a dense result that shares it with no other result.
        if value is value_of(base) or (storage_id(value) not in shared and _is_dense(value)):
            return self._compute(base if value is value_of(base) else output)
        # Otherwise it computes the node that made the storage, and the result is a view of that. If this view cannot be
        # described, it computes the result, unless another result shares the storage.
        count = len(self._computed)
        try:
            return self._view(output, base, self._compute(base))
        except ExportError:
            if storage_id(value) in shared:
                raise
            if len(self._computed) > count:
                del self._computed[base]
                self._layouts.pop(count, None)
            return self._compute(output)

    def _compute(self, node: fx.Node) -> Computed:
        value, index = value_of(node), self._computed.setdefault(node, len(self._computed))
        if index not in self._layouts and _is_dense(value):
            if not is_static(value.shape) and is_contiguous(value):
                self._layouts[index] = ()
            else:
                with suppress(ExportError):  # it depends on values
                    self._layouts[index] = tuple(self._write(step, node) for step in value.stride())
        return Computed(index)

    def _view(self, output: fx.Node, base: fx.Node, maker: Argument | Computed) -> View:
        value, of = value_of(output), value_of(base)
        if (value.dtype, value.is_conj(), value.is_neg()) != (of.dtype, of.is_conj(), of.is_neg()):
            raise ExportError("the graph", f"its result {output.name} is {base.name} read as something else")
        base_stride = tuple(self._write(step, base) for step in of.stride())
        if isinstance(maker, Computed):
            self._layouts[maker.index] = base_stride
        begin = expression(value.storage_offset()) - expression(of.storage_offset())
        return View(
            base=maker,
            base_stride=base_stride,
            shape=tuple(self._write(size, output) for size in value.shape),
            stride=tuple(self._write(step, output) for step in value.stride()),
            offset=self._write(begin, output),
            requires_grad=value.requires_grad,
        )

    def _write(self, size: Any, node: fx.Node) -> Json:
        """Write a size, and check that it can be computed from a call's arguments."""
        written = self._symbols.write(size)
        if evaluate(written, dict.fromkeys(self._places, 2)) is None:
            raise ExportError("the graph", f"the size {size} of {node.name} cannot be computed from the arguments")
        return written


def _has_memory(value: Any) -> bool:
    """Return whether a value is a tensor with memory; a wrapper of ``torch.func`` is not."""
    dense = isinstance(value, torch.Tensor) and value.layout == torch.strided
    return dense and not torch._C._functorch.is_functorch_wrapped_tensor(value)


def _is_dense(value: torch.Tensor) -> bool:
    """Return whether a fake tensor is non-overlapping and dense, in torch's sense, at the example's sizes."""
    sizes, strides = ([example_of(one, 2) for one in many] for many in (value.shape, value.stride()))
    reach = sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))
    return 0 in sizes or (reach + 1 == math.prod(sizes) and not can_overlap_itself(sizes, strides))


def _evaluate(written: Sequence[Json], sizes: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(size for one in written if (size := evaluate(one, sizes)) is not None)
