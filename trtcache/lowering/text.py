"""Text form of a lowered program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from trtcache.lowering.expressions import describe
from trtcache.lowering.node_names import NodeNames
from trtcache.weights import recipes

if TYPE_CHECKING:
    from trtcache.lowering.program import LoweredProgram

_SHORT = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}


def render(program: LoweredProgram) -> str:
    """Return a line for each node in canonical order: its name, result, operator and arguments.

    Weights are ``w0``, ``w1``, ..., constants ``c0``, ..., inputs ``in0``, ... by leaf of the arguments, and other
    nodes are named after their operator, ``relu``, ``relu_1``, ...: as in ``trtcache why``.
    """
    node_names = NodeNames()
    names: dict[fx.Node, str] = {}
    lines = []
    for node in program.order:
        names[node] = _name(node, node_names)
        lines.append(f"{names[node]}: {_format_result(node)}{_how(node, program.arguments[node], names)}")
    output = program.graph_module.graph.output_node()
    roles = [role.kind for role in output.meta["roles"]]
    sizes = iter([describe(one.value, {}) for one in program.interface.results if one.kind == "size"])
    results = (
        f"size {next(sizes)}" if kind == "size" else f"{kind} {_value(value, names)}"
        for kind, value in zip(roles, output.args[0], strict=True)  # type: ignore[arg-type]
    )
    return "\n".join([*lines, f"return {', '.join(results)}"]) + "\n"


def listing(graph: fx.Graph) -> list[str]:
    """Return a line for each node of a graph, before slots are numbered and with torch's own names."""
    names = {node: node.name for node in graph.nodes}
    return [f"{node.name}: {_format_result(node)} = {_format_node(node, names)}" for node in graph.nodes]


def _format_node(node: fx.Node, names: dict[fx.Node, str]) -> str:
    if node.op == "placeholder":
        return f"weight {node.meta['weight']}" if "weight" in node.meta else f"input {node.meta.get('input')}"
    called = operator_name(node.target) if node.op == "call_function" else f"{node.op} {node.target}"
    keywords = [f"{name}={_value(one, names)}" for name, one in node.kwargs.items()]
    return f"{called}({', '.join([*(_value(one, names) for one in node.args), *keywords])})"


def operator_name(target: object) -> str:
    """Return ``aten.add.Tensor`` for an operator and ``_operator.mul`` for a function."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__qualname__', target)}"


def _name(node: fx.Node, node_names: NodeNames) -> str:
    if "engine_weight" in node.meta:
        return str(node.meta["engine_weight"].name)
    if "constant" in node.meta:
        return str(node.meta["constant"][0])
    if "input" in node.meta:
        return f"in{node.meta['input']}"
    return node_names.call(operator_name(node.target))


def _how(node: fx.Node, arguments: list[Any], names: dict[fx.Node, str]) -> str:
    if node.op == "call_function":
        where = " in torch" if "torch_executed" in node.meta else ""
        return f" = {operator_name(node.target)}{where}({_format_list(arguments, names)})"
    weight = node.meta.get("engine_weight")
    return f" = {recipes.text(weight.recipe)}" if weight and weight.slot is None else ""


def _format_result(node: fx.Node) -> str:
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else [value]
    return ", ".join(_tensor(one) if isinstance(one, torch.Tensor) else str(one) for one in values)


def _tensor(value: torch.Tensor) -> str:
    dtype = str(value.dtype).removeprefix("torch.")
    letters = dtype.rstrip("0123456789")
    return f"{_SHORT.get(letters, letters)}{dtype[len(letters) :]}[{','.join(map(str, value.shape))}]"


def _format_list(arguments: list[Any], names: dict[fx.Node, str]) -> str:
    return ", ".join(_value(one, names) for one in arguments)


def _value(argument: Any, names: dict[fx.Node, str]) -> str:
    if isinstance(argument, fx.Node):
        return names.get(argument, f"in{argument.meta['input']}" if "input" in argument.meta else argument.name)
    if isinstance(argument, (list, tuple)):
        return f"[{_format_list(list(argument), names)}]"
    return repr(argument)
