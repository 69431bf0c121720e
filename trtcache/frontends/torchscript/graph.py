"""The graph of a TorchScript module's ``forward``, rewritten for tracing.

TorchScript's interpreter sends operators through the dispatcher, except for a few of its own that access a tensor's
memory. A fake tensor has none: ``aten::tensor`` of one crashed the process (torch 2.13).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trtcache.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_GET, _SET = "prim::GetAttr", "prim::SetAttr"
_UNSEEN = "prim::data"
"""An operator that tracers do not see. Without gradients it is the identity."""

_MADE = frozenset({"aten::tensor", "aten::as_tensor"})
_TEXTS = frozenset({"aten::format", "aten::percentFormat", "aten::str"})
_NUMBER = "prim::NumToTensor"
_READ = "prim::tolist"
_PRINTED = "prim::Print"
_DTYPES = {"IntType": torch.int64, "FloatType": None, "BoolType": torch.bool}
"""The dtypes that ``aten::tensor`` gives numbers; None is torch's default dtype."""

_GIVE = "give the torch.nn.Module that it was created from"


def graph_of(module: torch.jit.ScriptModule) -> Any:
    """Return the graph of a module's ``forward`` with all calls inlined; the module is not changed.

    Raises:
        ExportError: it has no ``forward``, or reads or creates tensors with operators that tracers do not see.
    """
    forward: Any = getattr(module, "forward", None)
    if forward is None:  # torch.jit.script(nn.LSTM(...)) has several methods instead
        raise ExportError(module.original_name, f"it has no method forward; {_GIVE}")
    graph = forward.inlined_graph
    torch._C._jit_pass_inline_fork_wait(graph)
    torch._C._jit_pass_constant_propagation(graph)
    for node in list(_nodes(graph)):
        kind = node.kind()
        if kind == _NUMBER:
            _keep_value(graph, node)
        elif kind == _UNSEEN:
            node.output().replaceAllUsesWith(node.inputsAt(0))
        elif kind == _PRINTED:
            node.destroy()
        elif kind == _READ:
            raise ExportError(module.original_name, f"{_READ} needs values of tensors, known only in a call; {_GIVE}")
        elif kind in _TEXTS:
            _name_tensors(graph, node)
        elif kind in _MADE and not _is_tensor(node.inputsAt(0)):
            _make_of_numbers(graph, node, module.original_name)
    torch._C._jit_pass_dce(graph)
    return graph


def attributes(graph: Any, label: str, parts: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the qualified names of the attributes that a graph reads, and of those that it changes.

    Args:
        graph: the graph.
        label: the module's name in messages.
        parts: the names of its submodules.

    Raises:
        ExportError: it changes an attribute of an object that is not part of the module.
    """
    modules = {next(graph.inputs()).debugName(): ""}
    read: dict[str, None] = {}
    changed: dict[str, None] = {}
    for node in _nodes(graph):
        if node.kind() not in {_GET, _SET}:
            continue
        within, last = modules.get(node.inputsAt(0).debugName()), node.s("name")
        name = f"{within}.{last}" if within else last
        if node.kind() == _SET:
            if within is None:
                raise ExportError(label, f"{_SET} changes {last} of an object that is not in the module; {_GIVE}")
            changed[name] = None
        elif within is not None and name in parts:
            modules[node.output().debugName()] = name
        elif within is not None:
            read[name] = None
    return list(read), list(changed)


def _nodes(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def _is_tensor(value: Any) -> bool:
    return bool(value.type().isSubtypeOf(torch._C.TensorType.get()))


def _keep_value(graph: Any, node: Any) -> None:
    """Keep the value of a tensor that is created from a size: traced modules compute sizes with tensors.

    torch's tracers recognize a constant by ``aten::lift_fresh``.
    """
    lifted = graph.create("aten::lift_fresh", [node.output()], 1)
    lifted.insertAfter(node)
    node.output().replaceAllUsesWith(lifted.output())
    lifted.replaceInput(0, node.output())


def _name_tensors(graph: Any, node: Any) -> None:
    """Replace tensors in formatted text by a placeholder, since formatting them needs their values."""
    graph.setInsertPoint(node)
    for place, value in enumerate(list(node.inputs())):
        if _is_tensor(value):
            node.replaceInput(place, graph.insertConstant("<tensor>"))


def _make_of_numbers(graph: Any, node: Any, label: str) -> None:
    """Create a tensor from a number or a list of numbers with operators that tracers see.

    Raises:
        ExportError: the tensor is created from something else.
    """
    value, dtype, device = node.inputsAt(0), node.inputsAt(1), node.inputsAt(2)
    graph.setInsertPoint(node)
    if value.type().kind() in _DTYPES:
        tensor = _scalar(graph, value, dtype, device)
    elif _is_list_of_numbers(value):
        scalars = [_scalar(graph, number, dtype, device) for number in value.node().inputs()]
        items = graph.insertNode(graph.create("prim::ListConstruct", scalars, 1)).output()
        items.setType(torch._C.ListType.ofTensors())
        tensor = graph.insertNode(graph.create("aten::stack", [items, graph.insertConstant(0)], 1)).output()
    else:
        where = str(node.sourceRange()).partition("\n")[0]
        raise ExportError(label, f"{node.kind()} creates a tensor from a list built in the call ({where}); {_GIVE}")
    node.output().replaceAllUsesWith(tensor)
    node.destroy()


def _is_list_of_numbers(value: Any) -> bool:
    """Return whether a value is a literal list of numbers that nothing else can change."""
    if value.node().kind() != "prim::ListConstruct" or value.type().getElementType().kind() not in _DTYPES:
        return False
    return len(value.uses()) == 1 and bool(list(value.node().inputs()))


def _scalar(graph: Any, value: Any, dtype: Any, device: Any) -> Any:
    none = graph.insertConstant(None)
    if dtype.type().kind() == "NoneType":
        dtype = graph.insertConstant(_DTYPES[value.type().kind()])
    if value.type().kind() == "BoolType":  # TorchScript does not convert it implicitly
        value = graph.insertNode(graph.create("aten::Int", [value], 1)).output()
        value.setType(torch._C.IntType.get())
    return graph.insertNode(graph.create("aten::scalar_tensor", [value, dtype, none, device, none], 1)).output()
