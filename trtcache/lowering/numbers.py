"""Numbers among a program's results: computed from sizes, or read from tensors.

A number that is an expression over the inputs' sizes is computed at the call, without the engine. Any other is only
known to the engine (``x.item()``, ``x.nonzero().shape[0]``): it becomes a tensor of one element, which the compiled
module converts back to a number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from trtcache.errors import ExportError
from trtcache.lowering.expressions import affine, evaluate
from trtcache.lowering.input_guards import symbolic_guards
from trtcache.lowering.rewriting import insert_call, tensor_of
from trtcache.lowering.symbols import Symbols

if TYPE_CHECKING:
    from torch import fx

    from trtcache.digests import Json


class InputSizes:
    """The symbols that the sizes of a program's inputs determine."""

    def __init__(self, graph: fx.Graph) -> None:
        """Read the sizes of a graph whose inputs are marked."""
        self._symbols = Symbols()
        self._bound: dict[int, int] = {}
        for node in graph.find_nodes(op="placeholder"):
            value = node.meta.get("val")
            if "input" in node.meta and isinstance(value, torch.Tensor):
                for size in value.shape:
                    if found := affine(self._symbols.write(size)):
                        self._bound[found[0]] = 2  # any value: this only tests whether an expression can be evaluated

    def can_evaluate(self, number: Any) -> bool:
        """Return whether a call can compute a number from these sizes."""
        try:
            written = write_number(number, self._symbols.copy())
        except ExportError:
            return False
        return evaluate(written, self._bound) is not None


def write_number(number: Any, symbols: Symbols) -> Json:
    """Return a number computed from sizes as JSON, for ``evaluate``.

    Args:
        number: a SymInt, SymFloat or SymBool, or such JSON.
        symbols: numbers the symbols.

    Raises:
        ExportError: a term of a comparison is unknown.
    """
    if not isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return number  # type: ignore[no-any-return]  # JSON of a stored interface
    if isinstance(number, torch.SymBool):
        found = symbolic_guards([number.node.expr], symbols)
        return found[0] if found else None
    return symbols.write(number)


def as_tensor(node: fx.Node, output: fx.Node) -> fx.Node:
    """Return a tensor of one element with a number; ``item()`` is its inverse.

    Args:
        node: the number.
        output: the node to insert a new one before.

    Raises:
        ExportError: a tensor may not represent the number exactly.
    """
    if node.target is torch.ops.aten._local_scalar_dense.default:
        return node.all_input_nodes[0]
    value = node.meta["val"]
    mode = next((one.fake_mode for one in map(tensor_of, node.graph.nodes) if isinstance(one, FakeTensor)), None)
    if mode is None or not isinstance(value, torch.SymInt):
        # torch rearranges arithmetic on floats: the last bit could differ.
        what = {torch.SymFloat: "a float", torch.SymBool: "a truth value"}.get(type(value), "a number")
        why = f"it returns {what} that is computed at the call ({value})"
        raise ExportError("the program", f"{why}; return a tensor, and compute the number outside")
    with mode:
        made = insert_call(output, torch.ops.aten.scalar_tensor.default, (node,), torch.empty((), dtype=torch.int64))
    made.kwargs = {"dtype": torch.int64}
    return made
