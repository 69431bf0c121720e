"""How each result of a Dynamo graph comes about: computed by the engine, an argument itself, a view, or a number.

An engine returns new memory. In eager torch a result can share memory with an argument or with another result, and what
comes after the graph may write into it. So such results are made as views of what they are views of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import fx

from trtcache.errors import ExportError, InputError
from trtcache.integrations.dynamo.arguments import expression, value_of
from trtcache.lowering.expressions import evaluate
from trtcache.lowering.symbols import Symbols

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import sympy

    from trtcache.digests import Json
    from trtcache.integrations.dynamo.arguments import Arguments


@dataclass(frozen=True, slots=True)
class Constant:
    """A result that is the same for every call."""

    value: object


@dataclass(frozen=True, slots=True)
class Number:
    """A result that is a number made of sizes."""

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
    """A result that lies in the memory of an argument or of what the engine computed.

    ``offset`` counts from where the base begins; ``base_stride`` is the base's in eager torch, which the view's
    numbers are about.
    """

    base: Argument | Computed
    base_stride: tuple[Json, ...]
    shape: tuple[Json, ...]
    stride: tuple[Json, ...]
    offset: Json


Maker: TypeAlias = Constant | Number | Computed | Argument | View


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a graph.

    Attributes:
        makers: one for each result.
        computed: the nodes that the engine is to compute.
        layouts: the strides in which some of those are needed, by their index.
        symbols: the place of each symbol's value among the arguments, by number.
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
        """The places of arguments that results lie in the memory of, with the strides that they must have."""
        views = (maker for maker in self.makers if isinstance(maker, View))
        return tuple((view.base.place, view.base_stride) for view in views if isinstance(view.base, Argument))

    def check_strides(self, args: Sequence[Any]) -> None:
        """Refuse a call whose arguments lie otherwise than those that the views were found for.

        Only guards of Dynamo's that a caller switched off let such a call come. It has to be refused before the engine
        runs, which may change arguments.

        Raises:
            InputError: an argument has other strides.
        """
        sizes = self._sizes(args)
        for place, stride in self.lent:
            if args[place].stride() != (expected := _evaluated(stride, sizes)):
                raise InputError(f"argument {place}", f"strides {expected}", f"{args[place].stride()}")

    def _sizes(self, args: Sequence[Any]) -> Mapping[int, int]:
        return {number: int(args[place]) for number, place in self.symbols.items()}

    def make(self, args: Sequence[Any], computed: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """Return the results of a call, whose strides were checked."""
        sizes = self._sizes(args)
        computed = [
            _laid_out(one, _evaluated(self.layouts[index], sizes)) if index in self.layouts else one
            for index, one in enumerate(computed)
        ]
        return tuple(_made(maker, args, computed, sizes) for maker in self.makers)


def _made(maker: Maker, args: Sequence[Any], computed: Sequence[torch.Tensor], sizes: Mapping[int, int]) -> Any:
    match maker:
        case Constant(value):
            return value
        case Number(written):
            return evaluate(written, sizes)
        case Computed(index):
            return computed[index]
        case Argument(place):
            return args[place]
        case View():
            return _view(maker, _made(maker.base, args, computed, sizes).detach(), sizes)


def _view(view: View, base: torch.Tensor, sizes: Mapping[int, int]) -> torch.Tensor:
    shape, stride, (offset,) = (_evaluated(one, sizes) for one in (view.shape, view.stride, (view.offset,)))
    return base.as_strided(shape, stride, base.storage_offset() + offset)


def read_results(graph_module: fx.GraphModule, arguments: Arguments) -> Results:
    """Return how the graph's results come about.

    Raises:
        ExportError: a result is no tensor and no number of sizes, or shares memory in a way that no view gives.
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
            return Constant(output)
        value = value_of(output)
        if isinstance(value, torch.Tensor):
            return self._tensor(output, value, shared)
        if type(value) in {int, torch.SymInt}:
            return Number(self._written(value, output))
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
        base_stride = tuple(self._written(step, base) for step in of.stride())
        if isinstance(maker, Computed):
            self._layouts[maker.index] = base_stride
        begin = expression(value.storage_offset()) - expression(of.storage_offset())
        return View(
            base=maker,
            base_stride=base_stride,
            shape=tuple(self._written(size, output) for size in value.shape),
            stride=tuple(self._written(step, output) for step in value.stride()),
            offset=self._written(begin, output),
        )

    def _written(self, size: Any, node: fx.Node) -> Json:
        """Write a size down, and see that it can be evaluated from a call's arguments."""
        written = self._symbols.write(size)
        if evaluate(written, dict.fromkeys(self._places, 2)) is None:
            raise ExportError("the graph", f"the size {size} of {node.name} cannot be told from the arguments")
        return written


def _is_tensor(node: Any) -> bool:
    return isinstance(node, fx.Node) and _has_memory(value_of(node))


def _has_memory(value: Any) -> bool:
    """Say whether a value is a tensor that lies somewhere; what ``torch.func`` wraps around one does not."""
    dense = isinstance(value, torch.Tensor) and value.layout == torch.strided
    return dense and not torch._C._functorch.is_functorch_wrapped_tensor(value)


def _memory(value: torch.Tensor) -> int:
    address: int = value.untyped_storage()._cdata
    return address


def _evaluated(written: Sequence[Json], sizes: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(size for one in written if (size := evaluate(one, sizes)) is not None)


def _laid_out(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    if tensor.stride() == stride:
        return tensor
    return tensor.new_empty_strided(tensor.shape, stride).copy_(tensor)
