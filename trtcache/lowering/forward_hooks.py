"""Hooks around ``forward``: what it assigns to parameters and buffers, and which of its arguments it changes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules import module as hooks

from trtcache.lowering.python_objects import are_same, containers_of, elements_of


@contextmanager
def watch_assignments(model: torch.nn.Module, watch: Callable[[str, object, object, bool], None]) -> Iterator[None]:
    """Call a function for each buffer and parameter of a model that is assigned in the block.

    Its arguments are the name in the model, the value before, the new one, and whether an attribute is assigned
    (``self.count = ...``), before which it is called. For others (``self._buffers["count"] = ...``) it is called after
    ``forward``. The fake tensors that ``forward`` finds get the attributes of those in whose place they are.
    """
    # By their dicts of buffers: torch.export runs copies of modules, which share those.
    paths = {id(one._buffers): f"{path}." if path else "" for path, one in model.named_modules()}
    originals, before, noticed = _weights_by_name(model), dict[str, torch.Tensor](), set[str]()

    def notify(module: torch.nn.Module, name: str, value: object) -> None:
        if (prefix := paths.get(id(module._buffers))) is not None:
            noticed.add(prefix + name)
            watch(prefix + name, module._parameters.get(name, module._buffers.get(name)), value, True)

    def remember(*_: object) -> None:
        before.clear()
        before.update(_weights_by_name(model))
        for name in originals.keys() & before.keys():
            copy_attributes(originals[name], before[name])

    def compare(*_: object) -> None:
        now = _weights_by_name(model)
        for name in (before | now).keys() - noticed:
            if (old := before.get(name)) is not (new := now.get(name)):
                watch(name, old, new, False)

    with (
        hooks.register_module_buffer_registration_hook(notify),
        hooks.register_module_parameter_registration_hook(notify),
        model.register_forward_pre_hook(remember, prepend=True),
        model.register_forward_hook(compare),
    ):
        yield


def copy_attributes(tensor: torch.Tensor, fake: torch.Tensor) -> None:
    """Set the attributes of a weight (``weight.scale = 2``) on the fake one in its place, as torch.export does not."""
    for name, value in vars(tensor).items():
        if name not in vars(fake) and not name.startswith("_dynamo"):  # a mark for Dynamo
            setattr(fake, name, value)


def _weights_by_name(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers by the first names of their modules; those of TorchScript are left out."""
    return {
        f"{path}.{name}" if path else name: tensor
        for path, module in model.named_modules()
        if "_buffers" in vars(module)
        for table in (module._parameters, module._buffers)
        for name, tensor in table.items()
        if tensor is not None
    }


@contextmanager
def record_changed_arguments(model: torch.nn.Module) -> Iterator[list[str]]:
    """Yield a list, to which those arguments are added whose lists, dicts, sets or deques ``forward`` changes.

    torch.export calls ``forward`` with copies of the containers, and a program knows their elements only.
    """
    changed: list[str] = []
    before: list[tuple[str, Any, list[Any]]] = []
    by_position = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    parameters = [one.name for one in inspect.signature(model.forward).parameters.values() if one.kind in by_position]

    def record(_: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        names = [*parameters, *(f"argument {place}" for place in range(len(parameters), len(args)))]
        before[:] = [*containers_of(zip(names, args, strict=False)), *containers_of(kwargs.items())]

    def compare(*_: object) -> None:
        for name, container, elements in before:
            if name not in changed and not are_same(elements, elements_of(container)):
                changed.append(name)

    with model.register_forward_pre_hook(record, with_kwargs=True), model.register_forward_hook(compare):
        yield changed
