"""How Python stores objects: attributes, slots, items and elements, read and written without code of their classes.

Methods of classes can have effects. ``__getitem__`` of transformers' ``ACT2FN`` creates a module at each call, and
``isinstance`` of a lazy proxy creates what the proxy stands for.
"""

from __future__ import annotations

import operator
import types
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

MISSING = object()
"""In place of a value that is not there."""
PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, types.BuiltinFunctionType})
"""Classes of values that have nothing of the user's in them."""
CONTAINERS = (dict, list, tuple, deque, set)
"""Containers of Python's own, and the classes whose methods read those of derived classes."""


def is_kind(value: Any, *kinds: type) -> bool:
    """Return whether a value is of one of these classes, whatever it says of itself, as proxies and mocks do."""
    return issubclass(type(value), kinds)


def defining_module(value: Any) -> str:
    """Return the name of the module that defines the class of a value; '' if that is no name."""
    name = type(value).__module__
    return name if type(name) is str else ""


def attributes_of(value: Any) -> dict[str, Any] | None:
    """Return the ``__dict__`` of an object; None if it has none."""
    for base in type(value).__mro__:
        found: Any = vars(base).get("__dict__")
        if type(found) in {types.GetSetDescriptorType, types.MemberDescriptorType}:
            try:
                attributes = found.__get__(value)
            except AttributeError:  # there is none yet
                return None
            return attributes if type(attributes) is dict else None
    return None


def slot_members(kind: type) -> dict[str, types.MemberDescriptorType]:
    """Return what reads and writes the ``__slots__`` of a class's objects, by their names."""
    members: dict[str, types.MemberDescriptorType] = {}
    for base in kind.__mro__:
        if "__slots__" in vars(base):
            found = [one for one in vars(base).values() if type(one) is types.MemberDescriptorType]
            members = {**{one.__name__: one for one in found}, **members}
    return members


def slots_of(value: Any) -> dict[str, Any]:
    """Return what an object has in those of its ``__slots__`` that are set, by their names."""
    found = {}
    for name, member in slot_members(type(value)).items():
        try:
            found[name] = member.__get__(value)
        except AttributeError:
            continue
    return found


def class_of_items(mapping: dict[Any, Any]) -> Any:
    """Return the class whose methods read and write a dict: ``OrderedDict`` keeps its order beside the items."""
    return OrderedDict if is_kind(mapping, OrderedDict) else dict


def items_of(mapping: dict[Any, Any]) -> dict[Any, Any]:
    """Return the items that a dict holds, in their order."""
    if type(mapping) is dict:
        return mapping.copy()
    if not is_kind(mapping, OrderedDict):
        return dict(dict.items(mapping))
    # ``items()`` and ``dict.copy()`` of an ``OrderedDict`` call ``__getitem__`` of its class.
    return {key: dict.__getitem__(mapping, key) for key in list(OrderedDict.__iter__(mapping))}


def class_of_elements(values: Any) -> Any:
    """Return the class whose methods read and write a list, deque, tuple or set, not those of a subclass."""
    return next(one for one in (list, tuple, deque, set) if is_kind(values, one))


def elements_of(container: Any) -> list[Any]:
    """Return the elements of a container; of a dict, its keys and values."""
    if is_kind(container, dict):
        return [part for item in items_of(container).items() for part in item]
    return list(class_of_elements(container).__iter__(container))


def are_same(elements: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether two sequences have the same objects in the same order."""
    return len(elements) == len(others) and all(map(operator.is_, elements, others))


def containers_of(arguments: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any, list[Any]]]:
    """Yield the containers of Python's own in each argument, with its name and their elements."""
    for name, argument in arguments:
        waiting, seen = [argument], dict[int, Any]()
        while waiting:
            value = waiting.pop()
            if is_kind(value, *CONTAINERS) and id(value) not in seen:
                seen[id(value)] = value
                elements = elements_of(value)
                waiting += elements
                if not is_kind(value, tuple):
                    yield name, value, elements
