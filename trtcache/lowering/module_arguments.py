"""Modules among the arguments of a program, whose parameters and buffers torch.export treats as inputs.

Their classes, flags and numbers become part of the program. torch can flatten such a module only during export;
``in_spec`` has its class, and as context the names of its tensors and a weak reference to it.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import Any

import torch
from torch.utils import _pytree as pytree

_CONTAINERS = frozenset({tuple, list, dict, OrderedDict, defaultdict, deque, namedtuple})
_TENSORS = frozenset({"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"})


def module_class(spec: pytree.TreeSpec) -> type[torch.nn.Module] | None:
    """Return the class of a module argument's spec; None for other specs."""
    return spec.type if isinstance(spec.type, type) and issubclass(spec.type, torch.nn.Module) else None


def without_modules(spec: pytree.TreeSpec) -> pytree.TreeSpec:
    """Return a spec with modules replaced by dicts of their tensors: torch flattens modules only during export."""
    if spec.is_leaf():
        return spec
    parts = [without_modules(child) for child in children(spec)]
    if module_class(spec) is not None:
        return pytree.TreeSpec(dict, list(spec.context[0]), parts)
    return pytree.TreeSpec(spec.type, spec.context, parts)


def leaf_paths(spec: pytree.TreeSpec) -> list[tuple[Any, ...]]:
    """Return the path of each leaf as ``torch.utils._pytree`` writes it.

    A class whose objects cannot hold anything but tensors, as the caches of transformers, counts as a list.
    """
    spec = without_modules(spec)
    try:
        paths = [
            path for path, _ in pytree.tree_flatten_with_path(pytree.tree_unflatten(range(spec.num_leaves), spec))[0]
        ]
    except Exception:  # noqa: BLE001  # it runs code of the class
        paths = []
    if len(paths) != spec.num_leaves:
        lists = _without_classes(spec)
        paths = [
            path for path, _ in pytree.tree_flatten_with_path(pytree.tree_unflatten(range(spec.num_leaves), lists))[0]
        ]
    return paths


def has_classes(spec: pytree.TreeSpec) -> bool:
    """Return whether a structure has a node of a registered class, which is not one of Python's containers."""
    return not spec.is_leaf() and (spec.type not in _CONTAINERS or any(map(has_classes, children(spec))))


def _without_classes(spec: pytree.TreeSpec) -> pytree.TreeSpec:
    if spec.is_leaf():
        return spec
    parts = [_without_classes(child) for child in children(spec)]
    return (
        pytree.TreeSpec(spec.type, spec.context, parts)
        if spec.type in _CONTAINERS
        else pytree.TreeSpec(list, None, parts)
    )


def configuration(module: torch.nn.Module) -> dict[str, Any]:
    """Return what a module's results depend on besides parameters and buffers: classes, flags and numbers.

    An object without a plain value is compared by identity.
    """
    found: dict[str, Any] = {}
    for path, part in module.named_modules():
        own = {name: value for name, value in vars(part).items() if name not in _TENSORS}
        found[path] = (type(part), {name: _plain(value) for name, value in own.items()})
    return found


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return type(value), repr(value)
    if isinstance(value, (list, tuple)):
        return type(value), [_plain(part) for part in value]
    if isinstance(value, dict):
        return type(value), [(_plain(key), _plain(part)) for key, part in value.items()]
    return _Same(value)


class _Same:
    """An object that equals only itself, kept alive so that no other gets its address."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other._value is self._value

    def __hash__(self) -> int:
        return id(self._value)


def configurations(spec: pytree.TreeSpec) -> list[dict[str, Any] | None]:
    """Return the configurations of module arguments, in order; None for one that no longer exists."""
    if spec.is_leaf():
        return []
    if module_class(spec) is not None:
        module = spec.context[1]()  # after torch.export.load this is not a module of that class
        return [configuration(module) if type(module) is spec.type else None]
    return [found for child in children(spec) for found in configurations(child)]


def children(spec: pytree.TreeSpec) -> list[pytree.TreeSpec]:
    """Return the children of a spec, which older versions of torch have as an attribute."""
    parts = spec.children
    return list(parts() if callable(parts) else parts)
