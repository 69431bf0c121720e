"""Describes classes: what their objects do, apart from what they hold.

Of a method that ran all is written, of another that it is there: what did not run had no say. Plain values are written
as they are; one without a stable value is named, and rules a class out only if code that ran looks up its name.
"""

from __future__ import annotations

import _abc  # type: ignore[import-not-found]  # CPython's own, which abc asks
import abc
import functools
from dataclasses import dataclass
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from trtcache.direct.attributes import PLAIN, Describer, UnstableError, called_otherwise
from trtcache.direct.codes import within
from trtcache.direct.origin import is_trusted, is_trusted_module

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from trtcache.digests import Json

_BOOKKEEPING = frozenset(
    (
        *("__abstractmethods__", "__annotations__", "__dict__", "__doc__", "__firstlineno__"),
        *(
            "__module__",
            "__orig_bases__",
            "__parameters__",
            "__qualname__",
            "__slotnames__",
            "__static_attributes__",
            "__weakref__",
        ),
        *("_abc_impl", "__dataclass_fields__", "__dataclass_params__", "__classdictcell__", "__annotate_func__"),
    )
)
_CALLED = frozenset({functools.partial, functools.partialmethod, functools._lru_cache_wrapper})
_OF_PYTHON = frozenset({GetSetDescriptorType, MemberDescriptorType})
IN_C = frozenset({BuiltinFunctionType, ClassMethodDescriptorType, MethodDescriptorType, WrapperDescriptorType})
"""Types of functions and methods in C."""

_PLAIN = PLAIN | {float}
SIMPLE = _PLAIN | {tuple, list, dict, set, frozenset}
"""Types of values that are looked at of a class in any case."""

_WITHOUT_FUNCTIONS = SIMPLE | _OF_PYTHON | IN_C

_OF_MODULES = frozenset(vars(torch.nn.Module))
_OF_OWNERS = frozenset(
    (
        *("__init__", "__init_subclass__", "__new__", "__post_init__", "__repr__", "__str__", "__reduce__"),
        *("train", "eval", "to", "cpu", "cuda", "half", "float", "double", "bfloat16", "type", "apply", "compile"),
        *("requires_grad_", "zero_grad", "load_state_dict", "share_memory", "extra_repr", "to_empty", "xpu", "ipu"),
    )
)
"""What owners of a model call, and no export: looked at as other methods are, if it ran."""


@dataclass(frozen=True, slots=True)
class Looked:
    """How closely the attributes of a class are looked at, each as ``Base.name``.

    Attributes:
        ran: functions of which all is written.
        unread: values without a stable value, whose names nothing looks up.
    """

    ran: frozenset[str]
    unread: frozenset[str]


def bases(cls: type) -> list[str]:
    """Return the names of a class and its bases, in the order in which attributes are looked up."""
    return [f"{one.__module__}.{one.__qualname__}" for one in cls.__mro__]


def functions_in(value: Any) -> Sequence[FunctionType]:
    """Return the functions that an attribute of a class is made of."""
    kind = type(value)
    if kind is FunctionType:
        return (value,)
    return () if kind in _WITHOUT_FUNCTIONS else tuple(_functions_in(value))


def _functions_in(value: Any) -> Iterator[FunctionType]:
    if isinstance(value, (staticmethod, classmethod)):
        yield from functions_in(value.__func__)
    elif isinstance(value, property):
        for one in (value.fget, value.fset, value.fdel):
            yield from functions_in(one)
    elif isinstance(value, functools.cached_property):
        yield from functions_in(value.func)


def own_attributes(cls: type) -> Iterator[tuple[str, str, Any]]:
    """Yield a class's own attributes as ``Class.name``, name and value."""
    for name, value in list(vars(cls).items()):
        if name not in _BOOKKEEPING and type(value) not in _OF_PYTHON:
            yield f"{cls.__qualname__}.{name}", name, value


def own_bases(cls: type) -> list[type]:
    """Return a class and its bases that are the model's own."""
    return [one for one in cls.__mro__ if not is_trusted_module(one.__module__)]


def put_into(cls: type) -> Iterator[tuple[str, str, Any]]:
    """Yield the plain values of one of torch's or Python's own classes, and what somebody has put there."""
    for name, value in vars(cls).items():
        if name not in _BOOKKEEPING and (type(value) in SIMPLE or _is_put(cls, value)):
            yield f"{cls.__qualname__}.{name}", name, value


def _is_put(cls: type, value: Any) -> bool:
    """Say whether an attribute of one of torch's or Python's classes is another's: a function, or an object."""
    if type(value) is FunctionType:
        code = value.__code__
        return not is_trusted(code.co_filename) or not code.co_qualname.startswith(cls.__qualname__)
    kind = type(value)
    return kind not in _WITHOUT_FUNCTIONS and (
        kind in _CALLED
        or any(_is_put(cls, one) for one in functions_in(value))
        or not is_trusted_module(kind.__module__)
    )


def always(name: str) -> bool:
    """Say whether torch calls a method of this name, outside of what is recorded."""
    return (name.startswith("__") or name in _OF_MODULES) and name not in _OF_OWNERS


def class_parts(cls: type, looked: Looked, describer: Describer) -> Json:
    """Return the description of a class, without its bases, which are described by themselves.

    Raises:
        UnstableError: an attribute that is read has no stable value.
    """
    describer.again()
    written: dict[str, Json] = {}
    for place, name, value in own_attributes(cls):
        if place in looked.unread:
            written[place] = ["unread", type(value).__qualname__]
            continue
        try:
            written[place] = _attribute(place, name, value, looked, describer)
        except UnstableError as error:
            raise error.below(place) from None
    return {
        "bases": [*bases(cls), *called_otherwise(cls)],
        "meta": _meta(cls, describer),
        "attributes": written,
        "torch": _of_torch(cls, describer),
        "pytree": _nested(cls, describer),
    }


def _of_torch(cls: type, describer: Describer) -> Json:
    """Describe what somebody has put into bases that are torch's; those of modules are described with the model."""
    if issubclass(cls, torch.nn.Module):
        return None
    found = [one for base in cls.__mro__ if base.__module__.startswith("torch") for one in put_into(base)]
    return [[place, describer.of(value)] for place, _, value in found]


def brief(cls: type, describer: Describer) -> Json:
    """Return what is looked at of a class that was only named: its bases, its plain values, and names of the others.

    Raises:
        UnstableError: a plain value has something in it that has no stable value.
    """
    describer.again()
    written: list[Json] = []
    for name, value in vars(cls).items():
        if name not in _BOOKKEEPING:
            written.append([name, describer.of(value)] if type(value) in SIMPLE else name)
    return [*bases(cls), *called_otherwise(cls), _meta(cls, describer), written, _nested(cls, describer)]


def _meta(cls: type, describer: Describer) -> Json:
    """Describe the class of a class, and which others it was told to be a base of."""
    told = [one() for one in _abc._get_dump(cls)[0]] if isinstance(cls, abc.ABCMeta) else []
    return [describer.a_class(type(cls)), *sorted(f"{one.__module__}.{one.__qualname__}" for one in told if one)]


def _attribute(place: str, name: str, value: Any, looked: Looked, describer: Describer) -> Json:
    functions = functions_in(value)
    if functions:
        full = place in looked.ran or always(name)
        return [type(value).__name__, *(describer.of(one) if full else one.__qualname__ for one in functions)]
    if isinstance(value, (staticmethod, classmethod, property)):
        return [type(value).__name__]
    return describer.of(value)


def _nested(cls: type, describer: Describer) -> Json:
    """Describe how torch takes objects of a class apart, if it is told how."""
    node = pytree.SUPPORTED_NODES.get(cls)
    if node is None or is_trusted_module(cls.__module__):
        return None
    return [describer.of(one) for one in (node.flatten_fn, node.unflatten_fn, node.flatten_with_keys_fn)]


def looked_at(cls: type, ran: Collection[int], read: Collection[str], describer: Describer) -> Looked:
    """Say how closely a class is to be looked at, after what ran and which names were looked up.

    Raises:
        UnstableError: an attribute that is read has no stable value.
    """
    full: set[str] = set()
    unread: set[str] = set()
    for place, name, value in own_attributes(cls):
        functions = functions_in(value)
        if any(_ran(one, ran) for one in functions):
            full.add(place)
        elif not functions or always(name):
            try:
                describer.again()
                [describer.of(one) for one in functions or [value]]
            except UnstableError as error:
                if not functions and name in read and not name.startswith("__"):
                    raise error.below(place) from None
                unread.add(place)
    return Looked(frozenset(full), frozenset(unread))


def _ran(function: FunctionType, ran: Collection[int], depth: int = 0) -> bool:
    """Say whether a function ran, one inside it, or one that it wraps."""
    if any(id(one) in ran for one in within(function.__code__)):
        return True
    cells = [cell for cell in function.__closure__ or () if _full(cell)]
    inner = [cell.cell_contents for cell in cells if isinstance(cell.cell_contents, FunctionType)]
    return depth < 20 and any(_ran(one, ran, depth + 1) for one in inner)


def _full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
