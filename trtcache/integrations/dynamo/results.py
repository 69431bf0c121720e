"""Results of a Dynamo graph: computed by the engine, an argument itself, a view, or a number.

An engine returns new memory. In eager torch a result can share memory with an argument or another result, and code
after the graph may write to it. So such results are created as views of the same base.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import fx

from trtcache.errors import ExportError, InputError
from trtcache.integrations.dynamo.arguments import expression, value_of
from trtcache.lowering.interface import evaluate
from trtcache.lowering.symbols import Symbols

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import sympy

    from trtcache.digests import Json
    from trtcache.integrations.dynamo.arguments import Arguments


@dataclass(frozen=True, slots=True)
class ConstantResult:
    """A result that is the same for every call."""

    value: object


@dataclass(frozen=True, slots=True)
class Number:
    """A result that is a number computed from sizes."""

    written: Json


@dataclass(frozen=True, slots=True)
class Computed:
    """A result that the engine computes."""

    index: int


@dataclass(frozen=True, slots=True)
class Argument:
    """A result that is an argument."""

    place: int


@dataclass(frozen=True, slots=True)
class View:
    """A result that shares the memory of an argument or of an engine output.

    ``offset`` counts from the start of the base; ``base_stride`` are the base's strides in eager torch, which the
    view's numbers refer to.
    """

    base: Argument | Computed
    base_stride: tuple[Json, ...]
    shape: tuple[Json, ...]
    stride: tuple[Json, ...]
    offset: Json


Maker: TypeAlias = ConstantResult | Number | Computed | Argument | View


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a graph.

    Attributes:
        makers: one for each result.
        computed: the nodes that the engine computes.
        layouts: the required strides of some of these, by index.
        symbols: the argument index of each symbol's value, by number.
    """

    makers: tuple[Maker, ...]
    computed: tuple[fx.Node, ...]
    layouts: Mapping[int, tuple[Json, ...]]
    symbols: Mapping[int, int]

    @property
    def are_computed(self) -> bool:
        """Whether the engine's outputs are the results."""
        return self.makers == tuple(map(Computed, range(len(self.makers))))

    @property
    def lent(self) -> tuple[tuple[int, tuple[Json, ...]], ...]:
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
        for place, stride in self.lent:
            if args[place].stride() != (expected := _evaluate(stride, sizes)):
                raise InputError(f"argument {place}", f"strides {expected}", f"{args[place].stride()}")

    def _sizes(self, args: Sequence[Any]) -> Mapping[int, int]:
        return {number: int(args[place]) for number, place in self.symbols.items()}

    def make(self, args: Sequence[Any], computed: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """Return the results of a call whose strides were checked."""
        sizes = self._sizes(args)
        computed = [
            _to_stride(one, _evaluate(self.layouts[index], sizes)) if index in self.layouts else one
            for index, one in enumerate(computed)
        ]
        return tuple(_make(maker, args, computed, sizes) for maker in self.makers)


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
            return _view(maker, _make(maker.base, args, computed, sizes).detach(), sizes)


def _view(view: View, base: torch.Tensor, sizes: Mapping[int, int]) -> torch.Tensor:
    shape, stride, (offset,) = (_evaluate(one, sizes) for one in (view.shape, view.stride, (view.offset,)))
    return base.as_strided(shape, stride, base.storage_offset() + offset)


def read_results(graph_module: fx.GraphModule, arguments: Arguments) -> Results:
    """Return how to create the graph's results.

    Raises:
        ExportError: a result is neither a tensor nor a number of sizes, or shares memory in a way that no view
            expresses.
    """
    return _Reader(graph_module, arguments).read()


class _Reader:
    def __init__(self, graph_module: fx.GraphModule, arguments: Arguments) -> None:
        self._graph = graph_module.graph
        self._placeholders = self._graph.find_nodes(op="placeholder")
        self._symbols = Symbols()
        self._places = {self._number(symbol): place for symbol, place in arguments.symbols.items()}
        self._computed: dict[fx.Node, int] = {}
        self._layouts: dict[int, tuple[Json, ...]] = {}
        self._bases: dict[int, fx.Node] = {}
        for node in self._graph.nodes:
            if _has_memory(value_of(node)):
                self._bases.setdefault(_memory(value_of(node)), node)

    def _number(self, symbol: sympy.Symbol) -> int:
        written: Any = self._symbols.write(symbol)
        return int(written["sym"])

    def read(self) -> Results:
        outputs: Any = self._graph.output_node().args[0]
        memories = [_memory(value_of(node)) for node in dict.fromkeys(outputs) if _is_tensor(node)]
        shared = {memory for memory in memories if memories.count(memory) > 1}
        makers = tuple(self._maker(one, shared) for one in outputs)
        return Results(makers, tuple(self._computed), self._layouts, self._places)

    def _maker(self, output: Any, shared: set[int]) -> Maker:
        if not isinstance(output, fx.Node):
            return ConstantResult(output)
        value = value_of(output)
        if isinstance(value, torch.Tensor):
            return self._tensor(output, value, shared)
        if type(value) in {int, torch.SymInt}:
            return Number(self._write(value, output))
        raise ExportError("the graph", f"its result {output.name} is a {type(value).__name__}")

    def _tensor(self, output: fx.Node, value: torch.Tensor, shared: set[int]) -> Maker:
        if not _has_memory(value):
            raise ExportError("the graph", f"its result {output.name} has layout {value.layout}")
        base = self._bases[_memory(value)]
        if base.op == "placeholder":
            argument = Argument(self._placeholders.index(base))
            same = any(value is value_of(one) for one in self._placeholders)
            return self._argument(value) if same else self._view(output, base, argument)
        if _memory(value) not in shared:
            return self._compute(output)
        made = self._compute(base)
        return made if value is value_of(base) else self._view(output, base, made)

    def _argument(self, value: torch.Tensor) -> Argument:
        (place,) = (place for place, one in enumerate(self._placeholders) if value is value_of(one))
        return Argument(place)

    def _compute(self, node: fx.Node) -> Computed:
        return Computed(self._computed.setdefault(node, len(self._computed)))

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
        )

    def _write(self, size: Any, node: fx.Node) -> Json:
        """Write a size, and check that it can be computed from a call's arguments."""
        written = self._symbols.write(size)
        if evaluate(written, dict.fromkeys(self._places, 2)) is None:
            raise ExportError("the graph", f"the size {size} of {node.name} cannot be computed from the arguments")
        return written


def _is_tensor(node: Any) -> bool:
    return isinstance(node, fx.Node) and _has_memory(value_of(node))


def _has_memory(value: Any) -> bool:
    """Return whether a value is a tensor with memory; a wrapper of ``torch.func`` is not."""
    dense = isinstance(value, torch.Tensor) and value.layout == torch.strided
    return dense and not torch._C._functorch.is_functorch_wrapped_tensor(value)


def _memory(value: torch.Tensor) -> int:
    address: int = value.untyped_storage()._cdata
    return address


def _evaluate(written: Sequence[Json], sizes: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(size for one in written if (size := evaluate(one, sizes)) is not None)


def _to_stride(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    if tensor.stride() == stride:
        return tensor
    return tensor.new_empty_strided(tensor.shape, stride).copy_(tensor)
