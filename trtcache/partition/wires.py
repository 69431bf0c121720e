"""Wires: the sources of a partition's inputs and of a program's results."""

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
    """A program input, by index."""

    place: int


@dataclass(frozen=True, slots=True)
class WeightWire:
    """A weight, by its name in the whole program (``w3``)."""

    name: str


@dataclass(frozen=True, slots=True)
class ConstantWire:
    """A constant, by its name in the whole program (``c0``)."""

    name: str


@dataclass(frozen=True, slots=True)
class PartitionOutput:
    """A result of a partition, by the partition's number and the result's index."""

    part: int
    place: int


@dataclass(frozen=True, slots=True)
class SizeWire:
    """A number: an expression over the program's input sizes, as ``Symbols`` writes it, in JSON."""

    text: str


@dataclass(frozen=True, slots=True)
class SizeTensor:
    """A tensor without elements whose first dimension is a size: engines take only tensors."""

    size: SizeWire


Wire: TypeAlias = InputWire | WeightWire | ConstantWire | PartitionOutput | SizeWire | SizeTensor


def make_size_wire(written: Json) -> SizeWire:
    """Return the wire of a size."""
    return SizeWire(json.dumps(written))


class WireTable:
    """The wires of a program's nodes; a partition's results are added once it is extracted."""

    def __init__(self, program: LoweredProgram) -> None:
        """Register the program's inputs."""
        self._program = program
        self._outputs: dict[fx.Node, PartitionOutput] = {}
        inputs = [one for one in program.graph_module.graph.find_nodes(op="placeholder") if "input" in one.meta]
        self._inputs = {node: InputWire(place) for place, node in enumerate(inputs)}

    def add(self, part: int, outputs: list[fx.Node]) -> None:
        """Register the results of a partition."""
        self._outputs |= {node: PartitionOutput(part, place) for place, node in enumerate(outputs)}

    def wire(self, node: fx.Node) -> Wire:
        """Return the wire of a node outside of the partition that uses it."""
        if node in self._outputs:
            return self._outputs[node]
        if node in self._inputs:
            return self._inputs[node]
        if "engine_weight" in node.meta:
            return WeightWire(node.meta["engine_weight"].name)
        if "constant" in node.meta:
            return ConstantWire(node.meta["constant"][0])
        assert is_size(node), node  # noqa: S101  # nothing else is outside of a partition
        return self.size(node.meta["val"])

    def size(self, size: Any) -> SizeWire:
        """Return the wire of a size.

        Raises:
            ExportError: it cannot be computed from the inputs' sizes.
        """
        written = self._program.symbols.copy().write(size)
        numbers = symbols_in(written)
        if type(evaluate(written, dict.fromkeys(numbers, 2))) is not int or not numbers <= self._input_symbols():
            why = f"size {size} crosses a partition boundary, and cannot be computed from the inputs' sizes"
            advice = "compute with whole numbers of sizes (//), or leave that dimension out of dynamic_shapes"
            raise ExportError(self._program.name, f"{why}; {advice}")
        return make_size_wire(written)

    def _input_symbols(self) -> set[int]:
        found: set[int] = set()
        for spec in self._program.interface.inputs:
            for written in spec.shape:
                found |= symbols_in(written)
        return found


def symbols_in(written: Json) -> set[int]:
    """Return the numbers of the symbols in an expression."""
    if isinstance(written, dict):
        return {int(str(written["sym"]))}
    if isinstance(written, list):
        return {number for one in written[1:] for number in symbols_in(one)}
    return set()
