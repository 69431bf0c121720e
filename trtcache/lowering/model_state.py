"""The state of a model around an export, which runs the model's own code and must leave the model as it was.

``forward`` may assign attributes, as the heads of YOLO store their anchors: after torch.export these are fake tensors,
with which the model answers wrongly from then on. ``forward`` may also write to a tensor that torch.export does not
know as a buffer because it is held by a plain object: torch then writes to the real tensor.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPAQUE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, str, bytes, int, float, complex)
_missing = object()


@contextmanager
def preserve_state(model: torch.nn.Module) -> Iterator[None]:
    """Restore a model's attributes, the contents of their containers, and tensors that are written to, after the block.

    Everything that attributes lead to is restored, except what objects of Python's own library hold.
    """
    state = _State(model)
    try:
        yield
    finally:
        state.restore()


class _State:
    """The attributes and containers of a model, and of all objects that they lead to."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._attributes: list[tuple[Any, dict[str, Any]]] = []
        self._lists: list[tuple[Any, list[Any]]] = []
        self._mappings: list[tuple[Any, dict[Any, Any]]] = []
        self._sets: list[tuple[set[Any], set[Any]]] = []
        self._tensors: list[tuple[torch.Tensor, int, torch.Tensor]] = []
        seen: dict[int, Any] = {}  # keeps the objects alive, so that no other gets one's address
        waiting: list[Any] = [model]
        while waiting:
            value = waiting.pop()
            if id(value) not in seen and value is not None and not isinstance(value, _OPAQUE):
                seen[id(value)] = value
                waiting += self._record(value)

    def _record(self, value: Any) -> list[Any]:
        """Record the state of one object, and return the objects that it leads to."""
        if isinstance(value, torch.Tensor):
            # torch.export puts fake tensors in place of registered parameters and buffers, which are recorded as well
            # only if they are held elsewhere. Parameters are not copied: LSTM has all of its own in a list, too.
            is_real = value.layout == torch.strided and not isinstance(value, (FakeTensor, torch.nn.Parameter))
            if is_real and value.device.type != "meta" and not value.is_inference():
                self._tensors.append((value, value._version, value.detach().clone()))
            return []
        if isinstance(value, torch.nn.Module):
            tables = ("_parameters", "_buffers")
            self._attributes.append((value, dict(value.__dict__)))
            self._mappings += [(value.__dict__[name], dict(value.__dict__[name])) for name in tables]
            return [item for name, item in value.__dict__.items() if name not in tables]
        found = self._record_items(value)
        library = type(value).__module__.partition(".")[0]
        if library in sys.stdlib_module_names - {"types", "__main__"}:
            return found  # of a lock or a logger nothing; reading ``__dict__`` of a partial would create one
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            self._attributes.append((value, dict(attributes)))
            found += attributes.values()
        return found

    def _record_items(self, value: Any) -> list[Any]:
        """Record the items of a container, and return them."""
        if isinstance(value, (list, deque)):
            self._lists.append((value, list(value)))
            return list(value)
        if isinstance(value, dict):
            self._mappings.append((value, dict(dict.items(value))))
            return [*dict.values(value)]
        if isinstance(value, set):
            self._sets.append((value, set(value)))
            return []
        if isinstance(value, functools.partial):
            return [value.func, value.args, value.keywords]
        if isinstance(value, types.MethodType):
            return [value.__self__]
        return list(value) if isinstance(value, tuple) else []

    def restore(self) -> None:
        """Restore what differs from the record."""
        for value, attributes in self._attributes:
            _restore_mapping(value.__dict__, attributes)
        for mapping, items in self._mappings:
            _restore_mapping(mapping, items)
        for values, elements in self._lists:
            if len(values) != len(elements) or any(map(_differ, values, elements)):
                values.clear()
                values.extend(elements)
        for members, before in self._sets:
            if members != before:
                members.clear()
                members.update(before)
        for tensor, version, values in self._tensors:
            if tensor._version != version:
                with torch.no_grad():
                    tensor.copy_(values)


def _restore_mapping(mapping: dict[Any, Any], before: dict[Any, Any]) -> None:
    """Restore a dict entry by entry: other threads may be reading it."""
    for key in [key for key in dict.keys(mapping) if key not in before]:
        dict.pop(mapping, key, None)
    for key, value in before.items():
        if dict.get(mapping, key, _missing) is not value:
            dict.__setitem__(mapping, key, value)


def _differ(one: object, other: object) -> bool:
    return one is not other
