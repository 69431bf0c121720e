"""Elimination of writes to weights that no call reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from trtcache.lowering.order import nodes_in
from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.slots import recipe_of
from trtcache.weights.recipes import sources

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import fx


@dataclass(frozen=True, slots=True)
class DeadStores(Pass):
    """Remove new contents of weights on which no result depends, in this call or a later one.

    Examples are a counter of calls, or the last activations stored for inspection: an engine modifies its own copies,
    which nothing else sees. Nodes that only computed those contents are left for dead code elimination.
    """

    name: ClassVar[str] = "dead_stores"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Drop outputs in place."""
        output = graph_module.graph.output_node()
        if all(role.kind != "weight" for role in output.meta["roles"]):
            return PassResult(graph_module, modified=False)
        outputs = list(zip(output.meta["roles"], output.args[0], strict=True))  # type: ignore[arg-type]
        read = _read_weights(graph_module.graph)
        kept = [(role, value) for role, value in outputs if role.kind != "weight" or role.target in read]
        if len(kept) == len(outputs):
            return PassResult(graph_module, modified=False)
        output.args = (tuple(value for _, value in kept),)
        output.meta["roles"] = tuple(role for role, _ in kept)
        return PassResult(graph_module, modified=True)


def _read_weights(graph: fx.Graph) -> set[object]:
    """Return the names of weights that results or side effects depend on, directly or through stores."""
    output = graph.output_node()
    stores: dict[object, fx.Node] = {}
    roots = [node for node in graph.nodes if node.op == "call_function" and not node.users and node.is_impure()]
    for role, value in zip(output.meta["roles"], output.args[0], strict=True):  # type: ignore[arg-type]
        if role.kind == "weight":
            stores[role.target] = value
        else:
            roots += nodes_in(value)
    read: set[object] = set()
    seen: set[fx.Node] = set()
    while roots:
        found = _used_by(roots, seen)
        roots = [stores[name] for name in found - read if name in stores]
        read |= found
    return read


def _used_by(roots: Iterable[fx.Node], seen: set[fx.Node]) -> set[object]:
    names: set[object] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        recipe = recipe_of(node)
        names |= set(sources(recipe)) if recipe else set()
        stack += node.all_input_nodes
    return names
