"""Texts with the address of an object, such as ``<app.Option object at 0x7f...>``: no two processes have the same."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import threading
from collections import UserString
from enum import Enum
from types import CellType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch

from trtcache.frontends.direct.bytecode import (
    ATTRIBUTE,
    GLOBAL,
    NAMED,
    after_call,
    chain_start,
    find_consumer,
    is_raised,
)
from trtcache.frontends.direct.classes import HEAP, IMMUTABLE, NUMBERS_AND_TEXT, WRAPPERS, class_dict, instance_dict
from trtcache.frontends.direct.code import METHODS_BY_IDENTITY, methods_in_c
from trtcache.frontends.direct.ownership import is_versioned_module

if TYPE_CHECKING:
    import dis
    from collections.abc import Collection, Iterable, Iterator

    from trtcache.frontends.direct.walk import Walk

_BY_ADDRESS = frozenset({"hash", "__hash__", "__repr__", "__str__", "__format__"})
SHOWS = frozenset({"repr", "ascii", "pformat", "formatwarning"})
FORMATS = frozenset({"str", "format", "join", "dumps", "format_map", "str_", "bytes_", "UserString"})
FORMATS |= {"substitute", "safe_substitute", "mod", "imod", "__mod__", "redirect_stdout", "redirect_stderr"}
_PARSES = frozenset({"int", "float", "ord", "sorted", "len", "index", "find", "sum", "min", "max", "encode", "fromhex"})
_OF_TEXTS = _BY_ADDRESS | SHOWS | FORMATS | _PARSES


def find_formats(code: CodeType, steps: list[dis.Instruction]) -> tuple[str, str, frozenset[str]]:
    """Return how code formats values.

    Messages of exceptions that are raised do not count.

    Returns:
        An operation that could format an object, one that could use the address in such a text as a value, both empty
        if there is none, and the names of attributes in formatted strings.
    """
    known = [place for place, step in enumerate(steps) if step.opname in NAMED and step.argval in _OF_TEXTS]
    names = {str(steps[place].argval) for place in known if not is_raised(steps, steps[place])}
    if by_address := names & _BY_ADDRESS:
        return min(by_address), min(by_address), frozenset()
    places = [place for place, step in enumerate(steps) if step.opname in _FORMATTED and not is_raised(steps, step)]
    has_percent = any(step.opname == "BINARY_OP" and step.argrepr[:1] == "%" for step in steps)
    has_percent = has_percent and any("%" in str(value) for value in code.co_consts if type(value) in {str, bytes})
    counters = _counters(code, steps)
    unknown = [steps[place - 1] for place in places if not _is_number(steps, place, counters)]
    address = "a formatted text" if (names & (FORMATS | SHOWS) or unknown or has_percent) and names & _PARSES else ""
    attributes = frozenset(str(step.argval) for step in unknown if step.opname in ATTRIBUTE)
    called = {steps[place].argval for place in known if _may_be_called(steps, place)}
    has_file = "print" in code.co_names and any("file" in value for value in code.co_consts if type(value) is tuple)
    if (
        names & called & (FORMATS | SHOWS) - {"join"}
        or has_percent
        or has_file
        or any(step.opname not in ATTRIBUTE for step in unknown)
    ):
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
    if before.opname == "BINARY_SUBSCR" and steps[place - 2].opname == "LOAD_CONST":
        return steps[place - 3].opname in ATTRIBUTE and steps[place - 3].argval == "shape"
    is_call = before.opname.startswith("CALL")
    return is_call and any(
        step.opname in GLOBAL and step.argval in {"len", "int", "float"} and after_call(steps, at) == place
        for at, step in enumerate(steps[:place])
    )


def _may_be_called(steps: list[dis.Instruction], place: int) -> bool:
    """Return whether the value that an instruction loads is called, or an argument of a call."""
    if steps[place].opname != "LOAD_ATTR" or "NULL" in steps[place].argrepr:
        return True
    user = find_consumer(steps, place + 1)
    return user >= len(steps) or steps[user].opname.startswith("CALL")


_FORMATTED = frozenset({"FORMAT_VALUE", "CONVERT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC"})  # Python 3.13
_TYPE_ONLY = frozenset({"IS_OP", "COMPARE_OP", "CONTAINS_OP", "BINARY_SUBSCR", "POP_TOP"})


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


_METHODS = METHODS_BY_IDENTITY | methods_in_c(list, dict, set, bytearray)


def find_methods(steps: list[dis.Instruction]) -> Iterator[tuple[str, ...]]:
    """Yield names of attributes that are not called at once, and can be methods of built-in types.

    Each has the names before it that lead to its object from a global, if they do.
    """
    looks_up = any(step.opname in NAMED and step.argval in {"getattr", "attrgetter"} for step in steps)
    for place, step in enumerate(steps):
        if looks_up and step.opname == "LOAD_CONST" and type(step.argval) is str and step.argval in METHODS_BY_IDENTITY:
            yield (step.argval,)
        if step.opname == "LOAD_ATTR" and step.argval in _METHODS and "NULL" not in step.argrepr:
            user = find_consumer(steps, place + 1)
            if user >= len(steps) or steps[user].opname != "CALL_FUNCTION_EX":  # x.split(*sizes)
                start = chain_start(steps, place)
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
    return show is object.__repr__ and (kind is object or kind.__flags__ & (HEAP | IMMUTABLE) == HEAP)


def _is_unwatched(value: object) -> bool:
    """Return whether an object's text has its address, and a recording does not notice that code formats it."""
    kind = type(value)
    if kind in _LOCKS:
        return True
    is_versioned = is_versioned_module(kind.__module__) and value is not dataclasses.MISSING
    return is_versioned and shows_address(kind) and not isinstance(value, _NOT_SEARCHED)


def is_function(value: object) -> bool:
    """Return whether an object can be called and is no class and no module of a model: its text has its address."""
    return callable(value) and not isinstance(value, (type, torch.nn.Module))


def find_addresses(visited: Collection[object]) -> tuple[str, str]:
    """Find objects whose text has their address, and types or functions that format any object.

    Args:
        visited: the objects to search, with what they refer to.

    Returns:
        What the text of the first object shows, and what the first type or function is; empty if there is none.
    """
    shown = formats = ""
    notes = {id(value.__annotations__) for value in visited if type(value) is FunctionType}
    notes |= {id(class_dict(value).get("__annotations__")) for value in visited if isinstance(value, type)}
    for value in visited:
        if id(value) in notes:
            continue
        kind = type(value)
        if _is_unwatched(value):
            shown = shown or f"a {kind.__qualname__}"
        for held in _referents(value):
            if is_function(held):
                shown = shown or str(getattr(held, "__qualname__", type(held).__qualname__))
                if getattr(held, "__name__", "") in FORMATS | SHOWS:
                    formats = formats or f"{held.__name__}, which is kept,"
            elif isinstance(held, type) and held is not kind and _is_text_type(held):
                formats = formats or f"{held.__qualname__}, which is kept,"
    return shown, formats


def _is_text_type(kind: type) -> bool:
    """Return whether a class makes texts of any objects; an enum looks them up."""
    return issubclass(kind, (str, bytes, UserString)) and not issubclass(kind, Enum)


def find_text_type(kinds: Iterable[object]) -> str:
    """Return the name of a class among objects that makes texts of any objects; empty if there is none."""
    return next((kind.__qualname__ for kind in kinds if isinstance(kind, type) and _is_text_type(kind)), "")


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


def has_plain_values(walk: Walk, name: str) -> bool:
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
    return {name for name in found if name[:2] == "__" or not [*walk.attributes(name)]}


def find_created(chain: tuple[str, ...], space: dict[str, Any]) -> type | None:
    """Return the class that code calls by these names, if its instances are formatted with their address."""
    value = _value_of(chain[:-1], space) if chain[-1] == "()" else None
    return value if isinstance(value, type) and shows_address(value) else None


def find_function(chain: tuple[str, ...], space: dict[str, Any]) -> str:
    """Return the name of the function that chained names lead to, if it is passed on."""
    return ".".join(chain) if chain[-1] != "()" and is_function(_value_of(chain, space)) else ""
