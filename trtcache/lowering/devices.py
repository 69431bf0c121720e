"""Programs on two devices: the weights and constants of a program for a GPU are moved there."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import fx

from trtcache.errors import ExportError
from trtcache.lowering.rewriting import insert_call, operator_of, recipe_of, stored_weights, tensor_of

aten = torch.ops.aten

_ON_THE_CPU = "it computes with a weight or constant on the CPU, in a program for a GPU"
_INDEXING = frozenset({aten.index.Tensor, aten.index_put.default})


def device_of(name: str, nodes: Iterable[fx.Node]) -> torch.device:
    """Return the device of a program: the only CUDA device of its tensors, or the CPU.

    Raises:
        ExportError: its tensors are on several CUDA devices, or on a device of another kind.
    """
    values = (node.meta.get("val") for node in nodes)
    flat = (one for value in values for one in (value if isinstance(value, (list, tuple)) else (value,)))
    devices = {one.device for one in flat if isinstance(one, torch.Tensor)}
    accelerators = {device for device in devices if device.type != "cpu"}
    if len(accelerators) > 1 or any(device.type != "cuda" for device in accelerators):
        names = ", ".join(sorted(map(str, devices)))
        raise ExportError(name, f"its tensors are on {names}; an engine runs on the CPU or on one CUDA device")
    return next(iter(accelerators), torch.device("cpu"))


def move_weights(graph_module: fx.GraphModule, name: str) -> None:
    """Move the weights and constants of a program for a GPU there, which is where an engine of Inductor has them.

    Elementwise operators and indexing take a scalar or an index from the CPU beside tensors on a GPU, and have the same
    result if it is on the GPU too; so has a copy to the GPU. Other calls get a copy on the CPU, made by torch in each
    call, and torch computes what follows from it on the CPU.

    Raises:
        ExportError: a weight that calls change is on the CPU, or the tensors are on several CUDA devices.
    """
    graph = graph_module.graph
    device = device_of(name, graph.nodes)
    if device.type == "cpu":
        return
    changed = stored_weights(graph)
    for node in list(graph.nodes):
        value = tensor_of(node)
        if value is None or value.device == device:
            continue
        if node.meta.get("weight") in changed:
            why = f"its buffer {node.meta['weight']} is on {value.device}, and a call changes it: move it to {device}"
            raise ExportError(name, why)
        if recipe_of(node) is not None or node.op == "get_attr":
            _move(node, value, device)
        elif any(source.meta.get("torch_executed") == _ON_THE_CPU for source in node.all_input_nodes):
            node.meta["torch_executed"] = _ON_THE_CPU


def _move(node: fx.Node, value: torch.Tensor, device: torch.device) -> None:
    graph_module = node.graph.owning_module
    if node.op == "get_attr":
        setattr(graph_module, str(node.target), getattr(graph_module, str(node.target)).to(device))
    with value.fake_mode:  # type: ignore[attr-defined]  # a fake tensor
        node.meta["val"] = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
    users = [user for user in node.users if not _takes_either(user, device)]
    if users:
        copy = insert_call(node.next, aten._to_copy.default, (node,), value)
        copy.kwargs = {"device": value.device}
        copy.meta["torch_executed"] = _ON_THE_CPU
        for user in users:
            user.replace_input_with(node, copy)


def _takes_either(user: fx.Node, device: torch.device) -> bool:
    """Return whether a call has the same result for an operand on the CPU and on the GPU, where the result is."""
    target, result = operator_of(user), tensor_of(user)
    if result is None or result.device != device or not isinstance(target, torch._ops.OpOverload):
        return False
    return torch.Tag.pointwise in target.tags or target is aten._to_copy.default or target in _INDEXING
