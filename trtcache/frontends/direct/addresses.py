"""Texts with the address of an object, such as ``<app.Option object at 0x7f...>``: no two processes have the same."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import re
from collections import UserString
from enum import Enum
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import torch

from trtcache.frontends.direct.bytecode import (
    ATTRIBUTE,
    GLOBAL,
    NAMED,
    after_call,
    chain_start,
    find_consumer,
    is_called,
    is_raised,
    value_start,
)
from trtcache.frontends.direct.classes import (
    HEAP,
    IMMUTABLE,
    NUMBERS_AND_TEXT,
    WRAPPERS,
    annotations_of,
    class_dict,
    instance_dict,
)
from trtcache.frontends.direct.code import ALL, METHODS_BY_IDENTITY
from trtcache.frontends.direct.ownership import file_is_versioned, is_versioned_module

if TYPE_CHECKING:
    import dis
    from collections.abc import Collection, Iterable, Iterator

    from trtcache.frontends.direct.walk import Walk

BY_ADDRESS = frozenset({"hash", "__hash__", "__repr__", "__str__", "__format__"})
FORMATS = frozenset({"str", "format", "dumps", "format_map", "str_", "bytes_", "UserString"})
FORMATS |= {"substitute", "safe_substitute", "mod", "imod", "__mod__", "redirect_stdout", "redirect_stderr"}
FORMATS |= {"repr", "ascii", "pformat", "formatwarning", "format_exc", "format_exception", "format_exception_only"}
FORMATS |= {"formatannotation", "vformat", "format_field", "convert_field"}
_MAKES_TEXTS = FORMATS | {"__get__"}
_FORMATTED = frozenset({"FORMAT_VALUE", "CONVERT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC"})  # Python 3.13
_COMPARED = frozenset({"IS_OP", "COMPARE_OP", "CONTAINS_OP"})
_STARTS_COMPREHENSION = frozenset({"LOAD_FAST_AND_CLEAR", "SWAP", "BUILD_LIST", "BUILD_SET", "BUILD_MAP"})
_ENDS_COMPREHENSION = frozenset({"POP_TOP", "POP_ITER", "SWAP", "STORE_FAST"})
_GIVES_NUMBER = frozenset({"len", "int", "float", "round", "str"})
PERCENT = "%"
_TEMPLATE = re.compile(r"%[^%a-zA-Z]*[sra(]")
_LOGS = frozenset({"debug", "info", "warning", "error", "critical", "exception", "log", "warn"})


def find_formats(
    code: CodeType, steps: list[dis.Instruction], iterates: str = "", *, with_raised: bool = False
) -> tuple[str, frozenset[tuple[str, ...]]]:
    """Return how code formats values that may be other objects than numbers and texts.

    Args:
        code: the code.
        steps: its instructions.
        iterates: ``range`` or ``enumerate`` if it is a comprehension that iterates over such an object first.
        with_raised: whether messages of exceptions that are raised count.

    Returns:
        Such an operation, empty if there is none, and the attributes whose values are formatted: each by the names that
        lead to it from ``self`` or a global. ``%`` is among them if there is a ``%`` after a value that may be a text.
    """
    known = [place for place, step in enumerate(steps) if step.opname in NAMED and step.argval in BY_ADDRESS | FORMATS]
    known = [place for place in known if with_raised or not is_raised(steps, steps[place])]
    if by_address := {str(steps[place].argval) for place in known} & BY_ADDRESS:
        return min(by_address), frozenset()
    counters = _counters(code, steps, iterates)
    attributes: set[tuple[str, ...]] = set()
    for place, end, is_certain in _formatted_values(steps):
        if with_raised or not is_raised(steps, steps[place]):
            if "shape" in code.co_names:
                attributes.add(("shape",))
            if not _is_plain(steps, end, counters):
                names = _attribute(code, steps, end) if is_certain else (PERCENT,)
                if not names:
                    return "a formatted text", frozenset()
                attributes.add(names)
    used = [place for place in known if not _is_known_call(steps, place) and _may_be_called(steps, place)]
    has_file = "print" in code.co_names and any("file" in value for value in code.co_consts if type(value) is tuple)
    if used or has_file:
        return str(steps[used[0]].argval) if used else "print to a file", frozenset()
    calls_type = any(_calls_type(steps, place) for place in range(len(steps)))
    return "a type of an object" if calls_type else "", frozenset(attributes)


def find_counting(steps: list[dis.Instruction]) -> Iterator[tuple[CodeType, str]]:
    """Yield comprehensions and generators that iterate over a ``range`` or ``enumerate`` first, with its name."""
    for place, step in enumerate(steps):
        if step.opname == "LOAD_CONST" and isinstance(step.argval, CodeType) and step.argval.co_varnames[:1] == (".0",):
            start = place + 1
            while steps[start].opname in {"MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE"}:
                start += 1
            end = after_call(steps, start)
            if steps[start].opname in GLOBAL and end < len(steps) and steps[end].opname == "GET_ITER":
                yield step.argval, str(steps[start].argval)


def _formatted_values(steps: list[dis.Instruction]) -> Iterator[tuple[int, int, bool]]:
    """Yield the values that code formats.

    Yields:
        The index of the operation, that after the value, and whether it is certain: ``x % y`` formats a value only if x
        is a text.
    """
    for place, step in enumerate(steps):
        if step.opname in _FORMATTED:
            converts, has_format = (step.arg or 0) & 3, (step.arg or 0) & 4
            if not (has_format and step.opname == "FORMAT_VALUE") and step.opname != "FORMAT_WITH_SPEC":
                yield place, place, True
            elif converts or steps[place - 1].opname != "LOAD_CONST" or not steps[place - 1].argval:
                yield place, max(value_start(steps, place), 0), True  # object.__format__ accepts an empty format only
        elif _is_known_call(steps, place):
            call = after_call(steps, place) - 1
            yield from ((place, end, True) for end in _operands(steps, call, steps[call].arg or 0))
        elif step.opname == "BINARY_OP" and step.argrepr[:1] == "%":
            start = value_start(steps, place)
            is_known = start > 0 and steps[start - 1].opname == "LOAD_CONST"
            if not is_known or is_template(steps[start - 1].argval):
                is_tuple = steps[place - 1].opname == "BUILD_TUPLE"
                ends = _operands(steps, place - 1, steps[place - 1].arg or 0) if is_tuple else (place,)
                yield from ((place, end, is_known) for end in ends)


def is_template(value: object) -> bool:
    """Return whether a value is a text with a format for ``%`` that accepts other values than numbers."""
    return isinstance(value, (str, bytes)) and _TEMPLATE.search(str(value)) is not None


def has_template(steps: list[dis.Instruction]) -> bool:
    """Return whether code has a text with ``%``, and uses it for something else than this operation or a logger."""
    for place, step in enumerate(steps):
        values = step.argval if type(step.argval) is tuple else (step.argval,)
        is_constant = step.opname in {"LOAD_CONST", "RETURN_CONST"}  # Python 3.12
        if is_constant and any("%" in str(one) for one in values) and not is_raised(steps, step):
            user = find_consumer(steps, place + 1)
            named = [at for at in range(place) if steps[at].opname in NAMED and after_call(steps, at) == user + 1]
            is_message = bool(named) and steps[named[-1]].argval in _LOGS
            is_formatted = user < len(steps) and steps[user].argrepr[:1] == "%" and "%%" not in str(step.argval)
            if not (is_message or is_formatted):
                return True
    return False


def _operands(steps: list[dis.Instruction], end: int, count: int) -> Iterator[int]:
    """Yield the index after each of the topmost values on the stack before an index; 0 if it is not known."""
    for _ in range(count):
        yield max(end, 0)
        end = value_start(steps, end) if end > 0 else 0


def _is_known_call(steps: list[dis.Instruction], place: int) -> bool:
    """Return whether an instruction loads ``str``, or the method ``format``, for a call whose arguments are known."""
    step, end = steps[place], after_call(steps, place)
    is_known = step.argval == "str" if step.opname in GLOBAL else step.opname in ATTRIBUTE and step.argval == "format"
    is_call = "NULL" in step.argrepr or step.opname == "LOAD_METHOD"
    return is_known and is_call and end <= len(steps) and steps[end - 1].opname == "CALL"


def _counters(code: CodeType, steps: list[dis.Instruction], iterates: str) -> set[str]:
    """Return the variables that nothing sets but loops over ``range`` and ``enumerate``: they are integers."""
    counts = [
        place for place, step in enumerate(steps) if step.opname in GLOBAL and step.argval in {"range", "enumerate"}
    ]
    ends = {after_call(steps, place): steps[place].argval for place in counts}
    counters: set[str] = set()
    variable = (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS)
    given = code.co_argcount + code.co_kwonlyargcount + sum(bool(code.co_flags & flag) for flag in variable)
    others = {*code.co_varnames[:given]}
    inlined = {step.argval for step in steps if step.opname == "LOAD_FAST_AND_CLEAR"}  # comprehensions in Python 3.12
    is_after_loop = False
    for place, step in enumerate(steps):
        if step.opname == "STORE_FAST" and not (step.argval in inlined and (is_after_loop or _reraises(steps, place))):
            unpacked = steps[place - 1].opname == "UNPACK_SEQUENCE"
            loop = place - 1 - unpacked
            is_loop = loop > 0 and steps[loop].opname == "FOR_ITER"
            start = loop - 1
            while is_loop and steps[start].opname in _STARTS_COMPREHENSION:
                start -= 1
            is_first = is_loop and steps[start].opname == "LOAD_FAST" and steps[start].argval == ".0"
            iterated = iterates if is_first else ends.get(start)
            is_counter = is_loop and iterated == ("enumerate" if unpacked else "range")
            (counters if is_counter else others).add(step.argval)
        is_after_loop = step.opname == "END_FOR" or (is_after_loop and step.opname in _ENDS_COMPREHENSION)
    return counters - others


def _reraises(steps: list[dis.Instruction], place: int) -> bool:
    """Return whether an instruction and others that set variables come before an exception is raised again."""
    while steps[place].opname == "STORE_FAST":
        place += 1
    return steps[place].opname == "RERAISE"


def _attribute(code: CodeType, steps: list[dis.Instruction], end: int) -> tuple[str, ...]:
    """Return the names that lead from ``self`` or a global to the value on top of the stack before an index.

    Only the last name if any tensor, function or class has such an attribute. Empty if the value is another one.
    """
    if end <= 0 or steps[end].is_jump_target or value_start(steps, end) < 0 or steps[end - 1].opname not in ATTRIBUTE:
        return ()
    if steps[end - 1].argval in OF_TENSORS:
        return (str(steps[end - 1].argval),)
    start = chain_start(steps, end - 1)
    first = steps[start]
    is_self = first.argval == "self" and ("self" in code.co_freevars or code.co_varnames[:1] == ("self",))
    is_kept = all(step.argval != "self" or not step.opname.startswith("STORE") for step in steps)
    is_known = first.opname in GLOBAL or (first.opname in {"LOAD_FAST", "LOAD_DEREF"} and is_self and is_kept)
    return tuple(str(step.argval) for step in steps[start + 1 : end]) if is_known else ()


def _is_plain(steps: list[dis.Instruction], end: int, counters: set[str]) -> bool:
    """Return whether the value on top of the stack before an index is a number or a text, and no other object."""
    before, start = steps[end - 1], value_start(steps, end)
    if start < 0 or end == 0 or steps[end].is_jump_target:
        return False
    if before.opname == "LOAD_FAST":
        return before.argval in counters
    if before.opname == "BINARY_SUBSCR" and steps[end - 2].opname == "LOAD_CONST":
        return steps[end - 3].opname in ATTRIBUTE and steps[end - 3].argval == "shape"
    if before.opname == "BINARY_OP":
        return all(_is_plain(steps, one, counters) for one in _operands(steps, end - 1, 2))
    if before.opname == "CALL":
        return (
            steps[start].opname in GLOBAL and steps[start].argval in _GIVES_NUMBER and after_call(steps, start) == end
        )
    return before.opname in {"LOAD_CONST", "BUILD_STRING"} | _FORMATTED


def _may_be_called(steps: list[dis.Instruction], place: int) -> bool:
    """Return whether the value that an instruction loads is called, or passed on to what could call it."""
    if "NULL" in steps[place].argrepr or steps[place].opname == "LOAD_METHOD":
        return True
    user = find_consumer(steps, place + 1)
    while user < len(steps) and (steps[user].opname == "BUILD_TUPLE" or steps[user].argrepr[:1] == "|"):
        user = find_consumer(steps, user + 1)
    if user < len(steps) and steps[user].opname.startswith("CALL"):
        callers = [at for at in range(place) if steps[at].opname in GLOBAL and after_call(steps, at) == user + 1]
        return not callers or steps[callers[-1]].argval not in {"isinstance", "issubclass"}
    return steps[place].opname in GLOBAL and (user >= len(steps) or steps[user].opname not in _COMPARED)


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
    return user >= len(steps) or steps[user].opname not in _COMPARED | {"BINARY_SUBSCR", "POP_TOP"}


def find_methods(steps: list[dis.Instruction]) -> Iterator[tuple[str, ...]]:
    """Yield names of attributes that are not called at once, and can be methods of built-in types.

    Each has the names before it that lead to its object from a global, if they do. It is ``*`` for a look-up by a name
    that is not in the code.
    """
    looks_up = any(
        step.opname in NAMED and step.argval in {"getattr", "attrgetter", "__getattribute__"} for step in steps
    )
    for place, step in enumerate(steps):
        if looks_up and step.opname == "LOAD_CONST" and type(step.argval) is str and step.argval in METHODS_BY_IDENTITY:
            yield (step.argval,)
        if (
            step.opname in GLOBAL
            and step.argval == "getattr"
            and steps[(end := after_call(steps, place)) - 1].opname == "CALL"
        ):
            ends = [*_operands(steps, end - 1, steps[end - 1].arg or 0)]
            name = steps[ends[-2] - 1] if len(ends) > 1 else step
            if name.opname != "LOAD_CONST" and not is_called(steps, end) and steps[end].opname not in ATTRIBUTE:
                names = steps[place + 1 : ends[-1]]
                is_chain = [one.opname in (ATTRIBUTE if at else GLOBAL) for at, one in enumerate(names)]
                yield (*(str(one.argval) for one in names if all(is_chain)), ALL)
        elif step.opname in NAMED and step.argval in {"getattr", "__getattribute__", "attrgetter"}:
            yield (ALL,)
        if step.opname == "LOAD_ATTR" and step.argval in METHODS_BY_IDENTITY and "NULL" not in step.argrepr:
            user = find_consumer(steps, place + 1)
            if user >= len(steps) or steps[user].opname != "CALL_FUNCTION_EX":  # x.split(*sizes)
                start = chain_start(steps, place)
                start = start if steps[start].opname in GLOBAL else place
                yield tuple(str(one.argval) for one in steps[start : place + 1])


# Objects.

OF_TENSORS = frozenset({"shape", "ndim", "dtype", "device", "layout", "__name__", "__qualname__"})
_NOT_SEARCHED = (FunctionType, ModuleType, type, torch.Tensor, CellType, dataclasses.Field, *WRAPPERS)
_NOT_SEARCHED += (inspect.Parameter, inspect.Signature)
"""What refers to types by definition, as a function does in its annotations; ``field.type`` is known by the name."""


def shows_address(kind: type) -> bool:
    """Return whether instances of a class are formatted with their address, as it has no ``__repr__`` of its own."""
    show: Any = kind.__repr__
    return show is object.__repr__ and kind.__flags__ & (HEAP | IMMUTABLE) == HEAP


def find_text_type(visited: Collection[object], kinds: Collection[object]) -> str:
    """Return the name of a class or function that makes texts of any objects, and that code can reach as a value.

    Args:
        visited: the objects that were described.
        kinds: the classes that were described, and the values of globals.

    Returns:
        The first one's name; empty if there is none.
    """
    notes = {id(annotations_of(value)) for value in visited if type(value) is FunctionType or isinstance(value, type)}
    held = (one for value in visited if id(value) not in notes for one in _referents(value))
    methods = (value for one in kinds if isinstance(one, type) for value in _versioned_methods(one))
    found = (one for one in (*held, *kinds, *methods) if _makes_texts(one))
    return next((str(one.__name__) for one in found), "")


def _versioned_methods(cls: type) -> Iterator[FunctionType]:
    """Yield the functions of torch and Python that are methods of another class, such as its ``__format__``."""
    for value in class_dict(cls).values():
        function = getattr(value, "__func__", value)
        if type(function) is FunctionType and file_is_versioned(function.__code__.co_filename):
            yield function


def _makes_texts(value: Any) -> bool:
    """Return whether an object is a class of texts, other than an enum, or a function that formats values.

    Methods count that ``MethodType`` or a ``__get__`` binds to a text: equal ones differ in identity.
    """
    if value is MethodType:
        return True
    if isinstance(value, type):
        return issubclass(value, (str, bytes, UserString)) and not issubclass(value, Enum)
    is_function = callable(value) and not isinstance(value, torch.nn.Module)
    return is_function and getattr(value, "__name__", "") in _MAKES_TEXTS


def _referents(value: object) -> Iterator[Any]:
    """Yield what an object refers to, and the items of tuples in it, but not its class."""
    if isinstance(value, _NOT_SEARCHED):
        return
    pending: list[Any] = [*gc.get_referents(value), *instance_dict(value).values()]
    while pending:
        held = pending.pop()
        if held is not type(value):
            yield held
        if type(held) in {tuple, frozenset}:
            pending += held


def has_plain_values(walk: Walk, names: tuple[str, ...]) -> bool:
    """Return whether names lead to texts and numbers only, or to properties of tensors and functions.

    That is so if all attributes of the last name are such, and no property and no ``__getattr__`` of a class or a
    module can give another object under one of the names.
    """
    modules = [vars(one) for label, one in walk.visited_modules.items() if not is_versioned_module(label)]
    if any(
        "__getattr__" in space or "__getattribute__" in space for space in (*map(class_dict, walk.classes), *modules)
    ):
        return False
    values = [*walk.attributes(names[-1])]
    others = [[*walk.attributes(name)] for name in names[:-1]]
    is_kept = all(found and not any(hasattr(type(one), "__get__") for one in found) for found in others)
    is_plain = all(type(value) in NUMBERS_AND_TEXT for value in values)
    return is_plain and ((bool(values) and is_kept) or (not values and names[-1] in OF_TENSORS))


def value_of(chain: tuple[str, ...], space: dict[str, Any]) -> Any:
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
    found = {use[-1] for use in uses if not isinstance(value_of(use[:-1] or ("",), space), (ModuleType, type))}
    return {name for name in found if name[:2] == "__" or name == ALL or not [*walk.attributes(name)]}


def find_created(chain: tuple[str, ...], space: dict[str, Any]) -> type | None:
    """Return the class that code calls by these names, if its instances are formatted with their address."""
    value = value_of(chain[:-1], space) if chain[-1] == "()" else None
    return value if isinstance(value, type) and shows_address(value) else None
