"""Dead code elimination."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from trtcache.lowering.passes import Pass, PassResult

if TYPE_CHECKING:
    from torch import fx


@dataclass(frozen=True, slots=True)
class DeadCode(Pass):
    """Remove unused operators, constants and weights. Inputs and nodes with side effects stay.

    Side effects are those known to ``torch.fx``: mutation, random numbers, assertions.
    """

    name: ClassVar[str] = "dead_code"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Remove dead nodes in place, the last one first."""
        size = len(graph_module.graph.nodes)
        for node in reversed(graph_module.graph.nodes):
            if is_dead(node):
                graph_module.graph.erase_node(node)
        return PassResult(graph_module, len(graph_module.graph.nodes) != size)

    def ensures(self, graph_module: fx.GraphModule) -> str | None:
        """Return the first node that is still dead, if any."""
        return next((f"{node.name} is dead" for node in graph_module.graph.nodes if is_dead(node)), None)


def is_dead(node: fx.Node) -> bool:
    """Return whether a node is unused and has no effect."""
    if node.users or node.op == "output" or "input" in node.meta:
        return False
    return node.op in {"placeholder", "get_attr"} or not node.is_impure()
