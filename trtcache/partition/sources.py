"""Where each node of a program comes from, as the parts that use it see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtcache.errors import ExportError
from trtcache.lowering.expressions import evaluate
from trtcache.partition.nodes import is_size
from trtcache.partition.wires import Constant, Input, Made, Size, Weight, size_of

if TYPE_CHECKING:
    from typing import Any

    from torch import fx

    from trtcache.digests import Json
    from trtcache.lowering.program import LoweredProgram
    from trtcache.partition.wires import Wire


class Sources:
    """The wires of a program's nodes; those of its parts are added as the parts are made."""

    def __init__(self, program: LoweredProgram) -> None:
        """Know the program's own inputs, weights and constants."""
        self._program = program
        self._made: dict[fx.Node, Made] = {}
        inputs = [one for one in program.graph_module.graph.find_nodes(op="placeholder") if "input" in one.meta]
        self._inputs = {node: Input(place) for place, node in enumerate(inputs)}

    def add(self, part: int, outputs: list[fx.Node]) -> None:
        """Know what a part makes."""
        self._made |= {node: Made(part, place) for place, node in enumerate(outputs)}

    def of(self, node: fx.Node) -> Wire:
        """Return the wire of a node that is outside of the part that uses it."""
        if node in self._made:
            return self._made[node]
        if node in self._inputs:
            return self._inputs[node]
        if "engine_weight" in node.meta:
            return Weight(node.meta["engine_weight"].name)
        if "constant" in node.meta:
            return Constant(node.meta["constant"][0])
        assert is_size(node), node  # noqa: S101  # there is nothing else outside of a part
        return self.size(node.meta["val"])

    def size(self, size: Any) -> Size:
        """Return the wire of a size.

        Raises:
            ExportError: it is no arithmetic of the inputs' sizes that a call can do.
        """
        written = self._program.symbols.copied().write(size)
        numbers = symbols_in(written)
        if type(evaluate(written, dict.fromkeys(numbers, 2))) is not int or not numbers <= self._known():
            why = f"size {size} is needed on both sides of a cut, and cannot be told from the inputs' sizes"
            advice = "compute with whole numbers of sizes (//), or leave that dimension out of dynamic_shapes"
            raise ExportError(self._program.name, f"{why}; {advice}")
        return size_of(written)

    def _known(self) -> set[int]:
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
