"""The flat graph of a decomposed program, with marked inputs, weights, constants and outputs."""

from __future__ import annotations

import math
import operator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import ExportError
from trtcache.lowering.capture import missing_values_error
from trtcache.lowering.interface import Content, Result
from trtcache.lowering.rewrites.constants import new_constant
from trtcache.lowering.rewriting import (
    accepts_any_layout,
    arguments,
    group_tied,
    is_contiguous,
    is_static,
    same_sizes,
    tensor_of,
)
from trtcache.lowering.symbols import as_tensor, follows_from_inputs
from trtcache.weights.slots import is_fake, layout

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_NUMBERS = (SymIntArgument, SymFloatArgument, SymBoolArgument)
_DETACHING = frozenset({torch.ops.aten.detach.default, torch.ops.aten.detach_.default})
_NEED_WEIGHTS = 10  # index of this argument of ``_native_multi_head_attention``


@frozen_dataclass
class MarkedGraph:
    """A lowered graph, and the program's data besides it.

    ``state`` is every weight of the model by name, ``values`` the leaves of the arguments that are not tensors, and
    ``constants`` the constants that the program uses, by the model's names.
    """

    graph_module: fx.GraphModule
    state: dict[str, torch.Tensor]
    values: dict[int, object]
    constants: dict[str, Content]


def mark(program: ExportedProgram) -> MarkedGraph:
    """Convert a decomposed program's graph, in place, to the form described in ``passes.py``.

    Raises:
        ExportError: the program uses something that engines do not support, a custom object or a dynamic number.
    """
    graph_module, signature = program.graph_module, program.graph_signature
    mutated = {spec.target for spec in signature.output_specs if spec.kind is OutputKind.BUFFER_MUTATION}
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    values: dict[int, object] = {}
    constants: dict[str, Content] = {}
    leaf = 0
    for node, spec in zip(placeholders, signature.input_specs, strict=True):
        if spec.kind is InputKind.USER_INPUT:
            _mark_input(node, spec, leaf, values)
            leaf += 1
        elif spec.kind is InputKind.PARAMETER or (
            spec.kind is InputKind.BUFFER and (spec.persistent or spec.target in mutated)
        ):
            node.meta["weight"] = str(spec.target)
        else:
            _make_constant(graph_module, node, spec, program, constants)
    _mark_outputs(graph_module, signature.output_specs, {node.name: node.meta.get("input") for node in placeholders})
    state = {**program.constants, **program.state_dict}
    state = {name: tensor for name, tensor in state.items() if isinstance(tensor, torch.Tensor)}
    # Tied weights: all names of one tensor become the first one's node.
    groups = group_tied(state)
    first: dict[tuple[str, ...], fx.Node] = {}
    for node in graph_module.graph.find_nodes(op="placeholder"):
        if "weight" in node.meta and (twin := first.setdefault(groups[node.meta["weight"]], node)) is not node:
            node.replace_all_uses_with(twin)
            graph_module.graph.erase_node(node)
    for names, node in first.items():
        node.meta["transient"] = not any(name in program.state_dict for name in names)
    output = graph_module.graph.output_node()
    output.meta["roles"] = tuple(
        replace(role, target=first[groups[str(role.target)]].meta["weight"]) if role.kind == "weight" else role
        for role in output.meta["roles"]
    )
    for node in graph_module.graph.nodes:
        if node.op == "call_function" and not accepts_any_layout(node.target):
            tensors = {place: tensor_of(one) for place, one in enumerate(node.args)}
            node.meta["contiguous"] = [
                place for place, one in tensors.items() if one is not None and is_contiguous(one)
            ]
    return MarkedGraph(graph_module, state, values, constants)


def _mark_input(node: fx.Node, spec: InputSpec, leaf: int, values: dict[int, object]) -> None:
    if isinstance(spec.arg, TensorArgument):
        node.meta["input"] = leaf
    elif isinstance(spec.arg, ConstantArgument):
        values[leaf] = spec.arg.value
        if node.users:
            raise ExportError("the program", f"input {node.name} is a constant that the graph still uses")
        node.graph.erase_node(node)
    elif isinstance(spec.arg, SymIntArgument):
        _mark_int(node, leaf, values)
    else:
        kind = type(spec.arg).__name__
        why = f"input {node.name} is a {kind}: only tensors and ints can vary; pass a fixed number"
        raise ExportError("the program", why)


def _mark_int(node: fx.Node, leaf: int, values: dict[int, object]) -> None:
    """Replace a dynamic int by a tensor of shape (int, 0): engines only take tensors."""
    number = node.meta["val"]
    if isinstance(number, int):  # export specialised on this value
        for user in list(node.users):
            user.args, user.kwargs = fx.node.map_arg(
                (user.args, user.kwargs), lambda one: number if one is node else one
            )
        values[leaf] = number
        node.graph.erase_node(node)
        return
    hint = number.node.hint
    if hint is not None and int(hint) < 0:
        raise ExportError("the program", f"input {node.name} is {hint}: a dynamic int cannot be negative")
    fakes = (tensor_of(other) for other in node.graph.nodes)
    fake = next((one for one in fakes if isinstance(one, FakeTensor)), None)
    if fake is None:
        raise ExportError("the program", f"input {node.name} is a dynamic int, and there are no tensors")
    users = list(node.users)
    with node.graph.inserting_after(node):
        size = node.graph.call_function(torch.ops.aten.sym_size.int, (node, 0))
    size.meta["val"] = number
    for user in users:
        user.replace_input_with(node, size)
    node.meta = {**node.meta, "input": leaf, "number": True, "val": fake.new_empty((number, 0), dtype=torch.float32)}


def _make_constant(
    graph_module: fx.GraphModule,
    node: fx.Node,
    spec: InputSpec,
    program: ExportedProgram,
    constants: dict[str, Content],
) -> None:
    if spec.kind not in {InputKind.BUFFER, InputKind.CONSTANT_TENSOR}:
        raise ExportError(
            "the program", f"{spec.target or node.name} is a {spec.kind.name}, which engines do not support"
        )
    if node.users:
        value = program.constants[str(spec.target)]
        if isinstance(value, torch.Tensor) and is_fake(value):
            raise missing_values_error("the program", [str(spec.target)])
        constant = new_constant(graph_module, value, before=node)
        constant.meta["content"] = constants[str(spec.target)] = Content.of(value)
        node.replace_all_uses_with(constant)
    node.graph.erase_node(node)


def _mark_outputs(graph_module: fx.GraphModule, specs: list[OutputSpec], leaves: dict[str, int | None]) -> None:
    output = graph_module.graph.output_node()
    roles: list[Result] = []
    results: list[Any] = list(output.args[0])  # type: ignore[arg-type]  # a tuple, from export
    for place, spec in enumerate(specs):
        node = results[place]
        if _is_none(node):
            results[place], role = None, Result("value")
        elif spec.kind is OutputKind.BUFFER_MUTATION:
            role = Result("weight", spec.target)
        elif spec.kind is OutputKind.USER_INPUT_MUTATION:
            role = Result("input", leaves[str(spec.target)])
        elif spec.kind is OutputKind.USER_OUTPUT and isinstance(spec.arg, TensorArgument):
            role = Result("result", layout=_layout(node))
        elif spec.kind is OutputKind.USER_OUTPUT and isinstance(spec.arg, ConstantArgument):
            role = Result("value", value=spec.arg.value)
        elif spec.kind is OutputKind.USER_OUTPUT and isinstance(spec.arg, _NUMBERS):
            number = node.meta["val"] if isinstance(node, fx.Node) else node
            if isinstance(number, (bool, int, float)):
                role = Result("value", value=number)
            else:
                is_size = follows_from_inputs(number, graph_module.graph)
                role = Result("size", value=number) if is_size else Result("number")
            results[place] = as_tensor(node, output) if role.kind == "number" else None
        elif spec.kind is OutputKind.PARAMETER_MUTATION:
            why = f"it writes to parameter {spec.target}; register it as a buffer (register_buffer) instead"
            raise ExportError("the program", why)
        else:
            what = f"{spec.kind.name} of {type(spec.arg).__name__}"
            raise ExportError("the program", f"it returns a {what}; only tensors and constants can be returned")
        roles.append(role)
    output.args = (tuple(results),)
    output.meta["roles"] = tuple(roles)


def result_views(program: ExportedProgram) -> list[tuple[object, str | None]]:
    """Return for each result of an exported program its node, and what it is if lowering removes that.

    An argument itself is None. What views of an argument lead to is a ``view``, of which torch can compute a gradient.
    Anything else is ``detached``, as ``x.detach()``; also ``x[:]`` within ``torch.no_grad``, which is another graph.
    """
    specs = program.graph_signature.output_specs
    results: list[Any] = list(program.graph.output_node().args[0])
    return [
        (node, _view(node)) for node, spec in zip(results, specs, strict=True) if spec.kind is OutputKind.USER_OUTPUT
    ]


def _view(node: object) -> str | None:
    if not isinstance(node, fx.Node) or node.op == "placeholder":
        return None
    while node.op == "call_function":
        sources = [one for one in node.all_input_nodes if tensor_of(one) is not None or node.target is operator.getitem]
        is_operator = isinstance(node.target, torch._ops.OpOverload) or node.target is operator.getitem
        if not is_operator or node.target in _DETACHING or len(sources) != 1:
            return "detached"
        node = sources[0]
    return "view" if node.op == "placeholder" else "detached"


def mark_views(graph: fx.Graph, views: list[tuple[object, str | None]]) -> None:
    """Set ``view`` of the results that are a tensor of their own in the model, and another one itself in the graph.

    Args:
        graph: the lowered graph.
        views: what ``result_views`` returned.
    """
    output = graph.output_node()
    remaining, exported, roles = iter(views), dict[fx.Node, object](), []
    for role, node in zip(output.meta["roles"], output.args[0], strict=True):  # type: ignore[arg-type]  # a tuple
        source, view = (None, None) if role.kind in {"weight", "input"} else next(remaining)
        if role.kind == "result" and view and ("input" in node.meta or exported.get(node, source) is not source):
            role = replace(role, view=view)
        if role.kind == "result":
            exported.setdefault(node, source)
        roles.append(role)
    output.meta["roles"] = tuple(roles)


def _is_none(value: object) -> bool:
    """Return whether an operator returns None here, although its fake implementation returns an empty tensor.

    That applies to the second output of ``_native_multi_head_attention`` with ``need_weights=False``.
    """
    if not isinstance(value, fx.Node) or value.target is not operator.getitem or value.args[1] != 1:
        return False
    called = value.args[0]
    if not isinstance(called, fx.Node) or called.target is not torch.ops.aten._native_multi_head_attention.default:
        return False
    return arguments(called)[_NEED_WEIGHTS] is False


def _layout(node: fx.Node) -> tuple[int, ...] | None:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    shape, stride = tuple(value.shape), value.stride()
    if is_static((*shape, *stride)):
        dense = layout(shape, stride) == stride
        return tuple(sorted(range(len(shape)), key=lambda dim: -stride[dim])) if dense else None
    inner = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    return tuple(range(len(shape))) if same_sizes(stride, inner) else None
