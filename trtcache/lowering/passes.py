"""The contract of lowering passes.

A pass takes a lowered graph and returns one that computes the same. The graph is a flat ``torch.fx`` graph of ATen
operators without mutation, as exported by ``torch.export``, in which

* a ``placeholder`` whose ``meta["input"]`` is a number is that leaf of the call's arguments; * a ``placeholder`` whose
``meta["weight"]`` is a name is a weight. It has a fake value only: passes cannot read weights; * a ``get_attr`` is a
constant tensor, stored on the graph module, and its value may be read; * the ``output`` lists every result, and its
``meta["roles"]`` has the role of each (see ``capture.Role``).

Every node's ``meta["val"]`` is its fake result; a pass that adds a node sets it. The Python code of the graph module is
not updated: call ``recompile`` to run it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from torch import fx


@dataclass(frozen=True, slots=True)
class PassResult:
    """A lowered graph, and whether it was modified."""

    graph_module: fx.GraphModule
    modified: bool


class Pass(Protocol):
    """A rewrite of a lowered graph; a frozen dataclass whose fields are its options.

    A pass MUST keep results and symbolic shapes, MUST be idempotent, MUST leave the graph untouched when it reports
    ``modified=False``, and MUST NOT depend on the names or the order of nodes. ``version`` MUST change whenever the
    graphs that it produces change: it is part of every key.
    """

    name: ClassVar[str]
    version: ClassVar[int]

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite the graph, possibly in place."""
        ...

    def requires(self, graph_module: fx.GraphModule) -> str | None:  # noqa: ARG002  # a default for all graphs
        """Return why the pass cannot handle this graph, or None."""
        return None

    def ensures(self, graph_module: fx.GraphModule) -> str | None:  # noqa: ARG002  # a default for no promise
        """Return how the pass's result violates its postcondition, or None."""
        return None


def spec(lowering_pass: Pass) -> str:
    """Return a pass's spec string in the key: ``fold_constants@1{max_bytes=65536}``."""
    options = ",".join(f"{field.name}={getattr(lowering_pass, field.name)!r}" for field in fields(lowering_pass))  # type: ignore[arg-type]
    return f"{lowering_pass.name}@{lowering_pass.version}" + (f"{{{options}}}" if options else "")
