"""Frozen dataclasses whose classes are created in a third of the time.

``dataclasses.dataclass(frozen=True, slots=True)`` compiles seven functions for each class, which takes 0.6 ms. A
process that gets an engine from the cache creates 55 to 77 such classes. Here ``__init__`` alone is compiled, and all
classes share the other methods.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import reprlib
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, field, fields
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
def frozen_dataclass(cls: type[T], /) -> type[T]: ...


@overload
def frozen_dataclass(*, eq: bool = True, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen_dataclass(cls: type[T] | None = None, /, *, eq: bool = True, kw_only: bool = False) -> Any:
    """Create a dataclass like ``dataclasses.dataclass(frozen=True, slots=True)``.

    Args:
        cls: the class, if the decorator has no arguments.
        eq: whether objects with equal fields are equal.
        kw_only: whether the fields are keyword arguments only.
    """
    if cls is None:
        return functools.partial(_create, eq=eq, kw_only=kw_only)
    return _create(cls, eq=eq, kw_only=kw_only)


def _create(cls: type[T], *, eq: bool, kw_only: bool) -> type[T]:
    own = vars(cls)
    methods = {"__setattr__": _set, "__delattr__": _delete, "__repr__": _repr}
    methods |= {"__getstate__": _get_state, "__setstate__": _set_state}
    methods |= {"__eq__": _eq, "__hash__": _hash} if eq else {}
    methods = {name: method for name, method in methods.items() if own.get(name) is None}
    # dataclasses compiles two methods for frozen=True, and wants it if a base is frozen.
    derived = any(map(dataclasses.is_dataclass, cls.__mro__[1:]))
    decorate = dataclasses.dataclass(init=False, repr=False, eq=False, frozen=derived, slots=True, kw_only=kw_only)
    created: Any = decorate(cls)
    created.__dataclass_params__.frozen = True  # a class that dataclasses creates from this one may be frozen
    methods["__init__"] = _compile_init(created)
    for name, method in methods.items():
        setattr(created, name, method)
    frozen: type[T] = created
    return frozen


def _compile_init(cls: Any) -> Any:
    """Compile ``__init__``, which sets the fields, and calls ``__post_init__`` if there is one."""
    given: dict[str, Any] = {"_set": object.__setattr__, "_MISSING": MISSING}
    positional, keyword, body = ["self"], list[str](), list[str]()
    for one in fields(cls):
        name, parameter, value = one.name, one.name, one.name
        if one.default_factory is not MISSING:
            given[f"_make_{name}"] = one.default_factory
            parameter = f"{name}=_MISSING"
            value = f"_make_{name}() if {name} is _MISSING else {name}" if one.init else f"_make_{name}()"
        elif one.default is not MISSING:
            given[f"_default_{name}"] = one.default
            parameter = f"{name}=_default_{name}"
            value = name if one.init else f"_default_{name}"
        elif not one.init:  # __post_init__ sets it
            continue
        if one.init:
            (keyword if one.kw_only else positional).append(parameter)
        body.append(f"_set(self, {name!r}, {value})")
    body += ["self.__post_init__()"] if hasattr(cls, "__post_init__") else []
    parameters = ", ".join([*positional, *(["*", *keyword] if keyword else [])])
    exec(f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"]), given)  # noqa: S102  # names are the class's own
    init = given["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {one.name: one.type for one in fields(cls) if one.init} | {"return": None}
    return init


def _set(_: object, name: str, __: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(_: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    values = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{type(self).__qualname__}({', '.join(values)})"


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    kind: Any = type(self)
    values = _compare_fields(kind)
    return values(self) == values(other)


def _hash(self: Any) -> int:
    kind: Any = type(self)
    return hash(_hash_fields(kind)(self))


@functools.cache
def _compare_fields(cls: Any) -> Callable[[Any], Any]:
    """Return the function that returns the fields to compare of an object."""
    return _getter([one.name for one in fields(cls) if one.compare])


@functools.cache
def _hash_fields(cls: Any) -> Callable[[Any], Any]:
    """Return the function that returns the fields of an object's hash."""
    return _getter([one.name for one in fields(cls) if (one.compare if one.hash is None else one.hash)])


def _getter(names: list[str]) -> Callable[[Any], Any]:
    return operator.attrgetter(*names) if names else lambda _: ()
