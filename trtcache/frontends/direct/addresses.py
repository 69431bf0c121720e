"""Texts with the address of an object, such as ``<app.Option object at 0x7f...>``: no two processes have the same."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import threading
from datetime import datetime, timedelta
from decimal import Decimal
from types import CellType, CodeType, FunctionType, MethodDescriptorType, ModuleType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

import torch

from trtcache.frontends.direct.bytecode import ATTRIBUTE, GLOBAL, NAMED, after_call, find_consumer, is_raised
from trtcache.frontends.direct.classes import HEAP, NUMBERS_AND_TEXT, WRAPPERS, instance_dict
from trtcache.frontends.direct.ownership import is_user_module

if TYPE_CHECKING:
    import dis
    from collections.abc import Iterable, Iterator

    from trtcache.frontends.direct.walk import Walk

SHOWS = frozenset({"repr", "ascii", "__repr__", "__str__", "__format__", "pformat", "hash", "__hash__"})
FORMATS = frozenset({"str", "format", "join", "dumps", "format_map", "str_", "bytes_", "UserString"})
FORMATS |= {"substitute", "safe_substitute"}
_PARSES = frozenset({"int", "float", "ord", "sorted", "len", "index", "find", "sum", "min", "max", "encode", "fromhex"})
_OF_TEXTS = SHOWS | FORMATS | _PARSES


def find_formats(code: CodeType, steps: list[dis.Instruction]) -> tuple[str, str, frozenset[str]]:
    """Return how code formats values.

    Messages of exceptions that are raised do not count.

    Returns:
        An operation that could format an object, one that could use the address in such a text as a value, both empty
        if there is none, and the names of attributes in formatted strings.
    """
    known = [step for step in steps if step.opname in NAMED and step.argval in _OF_TEXTS]
    names = {str(step.argval) for step in known if not is_raised(steps, step)}
    if shows := names & SHOWS:
        return min(shows), min(shows), frozenset()
    places = [place for place, step in enumerate(steps) if step.opname in _FORMATTED and not is_raised(steps, step)]
    if any((steps[place].arg or 0) & 3 for place in places if steps[place].opname in _CONVERTED):
        return "!r", "!r", frozenset()
    has_percent = any(step.opname == "BINARY_OP" and step.argrepr[:1] == "%" for step in steps)
    has_percent = has_percent and any("%" in str(value) for value in code.co_consts if type(value) in {str, bytes})
    counters = _counters(code, steps)
    unknown = [steps[place - 1] for place in places if not _is_number(steps, place, counters)]
    address = "a formatted text" if (names & FORMATS or unknown or has_percent) and names & _PARSES else ""
    attributes = frozenset(str(step.argval) for step in unknown if step.opname in ATTRIBUTE)
    called = {step.argval for step in known if step.opname != "LOAD_ATTR" or "NULL" in step.argrepr}
    if names & called & FORMATS - {"join"} or has_percent or any(step.opname not in ATTRIBUTE for step in unknown):
        return "a formatted text", address, attributes
    calls_type = any(_calls_type(steps, place) for place in range(len(steps)))
    return "a type of an object" if calls_type else "", address, attributes


def _counters(code: CodeType, steps: list[dis.Instruction]) -> set[str]:
    """Return the variables that nothing sets but loops over ``range`` and ``enumerate``: they are integers."""
    ends = {after_call(steps, place): step.argval for place, step in enumerate(steps) if step.opname in GLOBAL}
    counters: set[str] = set()
    variable = (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS)
    given = code.co_argcount + code.co_kwonlyargcount + sum(bool(code.co_flags & flag) for flag in variable)
    others = {*code.co_varnames[:given]}
    for place, step in enumerate(steps):
        if step.opname == "STORE_FAST":
            unpacked = steps[place - 1].opname == "UNPACK_SEQUENCE"
            loop = place - 1 - unpacked
            is_loop = loop > 0 and [one.opname for one in steps[loop - 1 : loop + 1]] == ["GET_ITER", "FOR_ITER"]
            is_counter = is_loop and ends.get(loop - 1) == ("enumerate" if unpacked else "range")
            (counters if is_counter else others).add(step.argval)
    return counters - others


def _is_number(steps: list[dis.Instruction], place: int, counters: set[str]) -> bool:
    """Return whether the value that an instruction formats is a number or a text, and no other object."""
    before = steps[place - 1]
    has_format = (steps[place].arg or 0) & 4 or steps[place].opname == "FORMAT_WITH_SPEC"
    if has_format and before.opname == "LOAD_CONST" and before.argval:
        return True  # object.__format__ accepts an empty format only
    if before.opname == "LOAD_FAST":
        return before.argval in counters
    is_call = before.opname.startswith("CALL")
    return is_call and any(
        step.opname in GLOBAL and step.argval in {"len", "int", "float"} and after_call(steps, at) == place
        for at, step in enumerate(steps[:place])
    )


_CONVERTED = frozenset({"FORMAT_VALUE", "CONVERT_VALUE"})
_FORMATTED = _CONVERTED | {"FORMAT_SIMPLE", "FORMAT_WITH_SPEC"}  # Python 3.13
_TYPE_ONLY = frozenset({"IS_OP", "COMPARE_OP", "CONTAINS_OP", "POP_TOP"})


def _calls_type(steps: list[dis.Instruction], place: int) -> bool:
    """Return whether an instruction may get an object's type, such as ``str``, in order to call it."""
    step = steps[place]
    if step.opname in GLOBAL and step.argval == "type":
        end = after_call(steps, place)
    elif step.opname in ATTRIBUTE and step.argval in {"__class__", "type"}:  # the second of a dataclass's field
        end = place + 1
    else:
        return False
    if end >= len(steps) or steps[end].opname in ATTRIBUTE:  # type(x).__name__
        return False
    user = find_consumer(steps, end)
    return user >= len(steps) or steps[user].opname not in _TYPE_ONLY


_IN_C = (MethodDescriptorType, WrapperDescriptorType)
_WITHOUT_IDENTITY = (str, bytes, int, float, complex, tuple, frozenset, slice, range, Decimal, datetime, timedelta)


def _methods_in_c(*kinds: type) -> frozenset[str]:
    return frozenset(name for kind in kinds for name in dir(kind) if type(getattr(kind, name)) in _IN_C)


METHODS_BY_IDENTITY = _methods_in_c(*_WITHOUT_IDENTITY)
"""Methods of values that can be equal and not identical: methods are equal only if their objects are identical."""

_METHODS = METHODS_BY_IDENTITY | _methods_in_c(list, dict, set, bytearray)


def find_methods(steps: list[dis.Instruction]) -> Iterator[tuple[str, ...]]:
    """Yield names of attributes that are not called at once, and can be methods of built-in types.

    Each has the names before it that lead to its object from a global, if they do.
    """
    for place, step in enumerate(steps):
        if step.opname == "LOAD_ATTR" and step.argval in _METHODS and "NULL" not in step.argrepr:
            user = find_consumer(steps, place + 1)
            if user >= len(steps) or steps[user].opname != "CALL_FUNCTION_EX":  # x.split(*sizes)
                start = place
                while start and steps[start].opname in ATTRIBUTE:
                    start -= 1
                start = start if steps[start].opname in GLOBAL else place
                yield tuple(str(one.argval) for one in steps[start : place + 1])


# Objects.

_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})
_GENERATES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_OF_TENSORS = frozenset({"shape", "ndim", "dtype", "device", "layout", "__name__", "__qualname__"})
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_NOT_SEARCHED = (FunctionType, ModuleType, type, torch.Tensor, CellType, dataclasses.Field, *WRAPPERS)
"""What refers to functions or types by definition; code that calls ``field.type`` is known by the name."""


def shows_address(kind: type) -> bool:
    """Return whether instances of a class are formatted with their address, as it has no ``__repr__`` of its own."""
    show: Any = kind.__repr__
    return show is object.__repr__ and (bool(kind.__flags__ & HEAP) or kind is object)


def is_function(value: object) -> bool:
    """Return whether an object can be called and is no class and no module of a model: its text has its address."""
    return callable(value) and not isinstance(value, (type, torch.nn.Module))


def find_addresses(visited: Iterable[object]) -> tuple[str, str]:
    """Find objects whose text has their address, and types or functions that format any object.

    Args:
        visited: the objects to search, with what they refer to.

    Returns:
        What the text of the first object shows, and what the first type or function is; empty if there is none.
    """
    shown = formats = ""
    for value in visited:
        kind = type(value)
        if (shows_address(kind) and value is not dataclasses.MISSING) or kind in _LOCKS:
            shown = shown or f"a {kind.__qualname__}"
        for held in _referents(value):
            if is_function(held):
                shown = shown or str(getattr(held, "__qualname__", type(held).__qualname__))
                if getattr(held, "__name__", "") in FORMATS | SHOWS:
                    formats = formats or f"{held.__name__}, which is kept,"
            elif isinstance(held, type) and issubclass(held, (str, bytes)) and held is not kind:
                formats = formats or f"{held.__qualname__}, which is kept,"
    return shown, formats


def _referents(value: object) -> Iterator[Any]:
    """Yield what an object refers to, and the items of tuples in it."""
    if isinstance(value, _NOT_SEARCHED):
        return
    pending: list[Any] = [*gc.get_referents(value), *instance_dict(value).values()]
    while pending:
        held = pending.pop()
        yield held
        if type(held) in {tuple, frozenset}:
            pending += held


def made_functions(code: CodeType) -> Iterator[str]:
    """Yield the functions, generators and coroutines that code creates; comprehensions are none of these."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType) and (inner.co_name not in _COMPREHENSIONS or inner.co_flags & _GENERATES):
            yield inner.co_qualname
    if code.co_flags & _GENERATES:
        yield code.co_qualname


def is_text_or_number(walk: Walk, name: str) -> bool:
    """Return whether all attributes of a name are texts or numbers, or properties of tensors and functions."""
    values = [*walk.attributes(name)]
    return all(type(value) in NUMBERS_AND_TEXT for value in values) and (bool(values) or name in _OF_TENSORS)


def _value_of(chain: tuple[str, ...], space: dict[str, Any]) -> Any:
    """Return the global that names lead to through modules; None if they do not."""
    value: Any = space.get(chain[0])
    for name in chain[1:]:
        value = vars(value).get(name) if issubclass(type(value), ModuleType) else None
    return value


def possible_methods(uses: Iterable[tuple[str, ...]], space: dict[str, Any], walk: Walk) -> set[str]:
    """Return the names of methods that code may take from objects of built-in types.

    Args:
        uses: names of attributes, each after those that lead to its object from a global.
        space: the globals of the code.
        walk: the walk that describes the model: a name that is an attribute of an object there does not count.
    """
    found = {use[-1] for use in uses if not isinstance(_value_of(use[:-1] or ("",), space), (ModuleType, type))}
    return {name for name in found if not [*walk.attributes(name)]}


def find_shown(chain: tuple[str, ...], space: dict[str, Any]) -> str:
    """Return what chained names lead to if that is a function that is passed on, or a class of such objects."""
    is_called = chain[-1] == "()"
    value = _value_of(chain[:-1] if is_called else chain, space)
    if is_called:
        is_shown = isinstance(value, type) and shows_address(value) and is_user_module(value.__module__)
        return f"a {value.__qualname__}" if is_shown else ""
    return ".".join(chain) if is_function(value) else ""
