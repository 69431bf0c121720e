"""The canonical order of a lowered graph: nodes that results depend on, in topological order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import fx

from trtcache.lowering.rewriting import arguments
from trtcache.weights.slots import is_fake

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def canonical_order(
    graph: fx.Graph,
) -> tuple[list[fx.Node], dict[fx.Node, list[Any]]]:
    """Return the nodes in the order of a depth-first walk from the outputs, and the arguments of each.

    The walk visits arguments in the order of the operator's schema, so that statement order, names and dead code do not
    matter. Nodes with side effects that no result depends on follow in their own order; unused inputs and the output
    node are left out.
    """
    found: dict[fx.Node, list[Any]] = {}
    order: list[fx.Node] = []
    output = graph.output_node()
    effects = [node for node in graph.nodes if not node.users and node.op == "call_function"]
    for root in (*nodes_in(output.args), *effects):
        _walk(root, found, order)
    return order, found


def _walk(root: fx.Node, found: dict[fx.Node, list[Any]], order: list[fx.Node]) -> None:
    if root in found:
        return
    found[root] = arguments(root)
    stack = [(root, nodes_in(found[root]))]
    while stack:
        node, rest = stack[-1]
        for used in rest:
            if used not in found:
                found[used] = arguments(used)
                stack.append((used, nodes_in(found[used])))
                break
        else:
            order.append(node)
            stack.pop()


def nodes_in(argument: Any) -> Iterator[fx.Node]:
    """Yield the nodes in an argument, including in lists, mappings and slices, in order."""
    if isinstance(argument, fx.Node):
        yield argument
    elif isinstance(argument, (list, tuple)):
        for element in argument:
            yield from nodes_in(element)
    elif isinstance(argument, dict):
        yield from nodes_in([one for _, one in sorted(argument.items())])
    elif isinstance(argument, slice):
        yield from nodes_in((argument.start, argument.stop, argument.step))


def group_tied(names: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Group names of tensors that are the same tensor: each name to all names of its group, in order."""
    groups: dict[object, list[str]] = {}
    for name, tensor in names.items():
        # A fake tensor has no address; `data_ptr` of all of them is 0.
        place = (tensor.untyped_storage()._cdata, tensor.storage_offset()) if is_fake(tensor) else tensor.data_ptr()
        identity = (place, tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
        groups.setdefault(identity if tensor.numel() else name, []).append(name)
    return {name: tuple(group) for group in groups.values() for name in group}
