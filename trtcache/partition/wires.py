"""Where a value comes from that a part of a program takes, or that the program returns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from trtcache.errors import ExportError
from trtcache.lowering.expressions import evaluate
from trtcache.partition.capability import is_size

if TYPE_CHECKING:
    from typing import Any

    from torch import fx

    from trtcache.digests import Json
    from trtcache.lowering.program import LoweredProgram


@dataclass(frozen=True, slots=True)
class InputWire:
    """A tensor that the program is called with, by its place among them."""

    place: int


@dataclass(frozen=True, slots=True)
class WeightWire:
    """A weight, by the name that the whole program has for it as an engine (``w3``)."""

    name: str


@dataclass(frozen=True, slots=True)
class ConstantWire:
    """A constant, by the name that the whole program has for it (``c0``)."""

    name: str


@dataclass(frozen=True, slots=True)
class PartitionOutput:
    """What a part makes, by the part's number and the place among all that it makes."""

    part: int
    place: int


@dataclass(frozen=True, slots=True)
class SizeWire:
    """A number: an expression of the sizes of the program's inputs, as ``Symbols`` writes it, in JSON."""

    text: str


@dataclass(frozen=True, slots=True)
class SizeTensor:
    """A tensor without elements that has a size as its first dimension: engines take nothing but tensors."""

    size: SizeWire


Wire: TypeAlias = InputWire | WeightWire | ConstantWire | PartitionOutput | SizeWire | SizeTensor


def make_size_wire(written: Json) -> SizeWire:
    """Return the wire of a size."""
    return SizeWire(json.dumps(written))


class WireTable:
    """The wires of a program's nodes; those of its parts are added as the parts are made."""

    def __init__(self, program: LoweredProgram) -> None:
        """Know the program's own inputs, weights and constants."""
        self._program = program
        self._outputs: dict[fx.Node, PartitionOutput] = {}
        inputs = [one for one in program.graph_module.graph.find_nodes(op="placeholder") if "input" in one.meta]
        self._inputs = {node: InputWire(place) for place, node in enumerate(inputs)}

    def add(self, part: int, outputs: list[fx.Node]) -> None:
        """Know what a part makes."""
        self._outputs |= {node: PartitionOutput(part, place) for place, node in enumerate(outputs)}

    def wire(self, node: fx.Node) -> Wire:
        """Return the wire of a node that is outside of the part that uses it."""
        if node in self._outputs:
            return self._outputs[node]
        if node in self._inputs:
            return self._inputs[node]
        if "engine_weight" in node.meta:
            return WeightWire(node.meta["engine_weight"].name)
        if "constant" in node.meta:
            return ConstantWire(node.meta["constant"][0])
        assert is_size(node), node  # noqa: S101  # there is nothing else outside of a part
        return self.size(node.meta["val"])

    def size(self, size: Any) -> SizeWire:
        """Return the wire of a size.

        Raises:
            ExportError: it is no arithmetic of the inputs' sizes that a call can do.
        """
        written = self._program.symbols.copied().write(size)
        numbers = symbols_in(written)
        if type(evaluate(written, dict.fromkeys(numbers, 2))) is not int or not numbers <= self._input_symbols():
            why = f"size {size} is needed on both sides of a cut, and cannot be told from the inputs' sizes"
            advice = "compute with whole numbers of sizes (//), or leave that dimension out of dynamic_shapes"
            raise ExportError(self._program.name, f"{why}; {advice}")
        return make_size_wire(written)

    def _input_symbols(self) -> set[int]:
        found: set[int] = set()
        for one in self._program.interface.inputs:
            for written in one.shape:
                found |= symbols_in(written)
        return found


def symbols_in(written: Json) -> set[int]:
    """Return the numbers of the symbols in an expression."""
    if isinstance(written, dict):
        return {int(str(written["sym"]))}
    if isinstance(written, list):
        return {number for one in written[1:] for number in symbols_in(one)}
    return set()
