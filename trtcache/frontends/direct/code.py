"""Code objects: digests without line numbers and file names, names in them, and uses of a set's order."""

from __future__ import annotations

import bisect
import dis
import functools
import marshal
import re
from types import CodeType, GetSetDescriptorType
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import hash_bytes
from trtcache.frontends.direct.ownership import file_is_installed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

T = TypeVar("T")
_REMEMBERED = 16_384  # code objects
IDENTIFIER = re.compile(r"[^\W\d]\w*")
_WORDS_APART = bytes(number if chr(number).isalnum() or chr(number) == "_" else ord(" ") for number in range(128))
_WORDS_APART += bytes(128)  # for ASCII

_OF_TENSORS = {name for name, one in vars(torch._C.TensorBase).items() if type(one) is GetSetDescriptorType}
_OF_TENSORS -= {"H", "T", "mH", "mT", "data", "device", "dtype", "imag", "itemsize", "layout", "name", "nbytes", "ndim"}
_OF_TENSORS -= {"real", "requires_grad", "shape", "volatile", *(name for name in _OF_TENSORS if name[:3] == "is_")}
_OF_CODE = {name for name in dir(CodeType) if name[:3] == "co_"}
_OF_CODE -= {"co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_flags", "co_nlocals", "co_consts"}
_OF_CODE -= {"co_name", "co_qualname", "co_names", "co_varnames", "co_freevars", "co_cellvars"}

UNSEEN = frozenset(
    (
        *("__annotations__", "__subclasses__", "__globals__", "__closure__", "__builtins__", "__loader__", "__spec__"),
        *("__cached__", "__hash__", "__sizeof__", "f_locals"),
        *("f_back", "f_globals", "f_code", "gi_frame", "tb_frame", "tb_lineno", "__file__", "__path__", "is_leaf"),
        *("data_ptr", "is_shared", "is_pinned"),
        *("untyped_storage", "storage", "is_inference", "__weakref__", "annotation", "annotations"),
        *("get_type_hints", "get_annotations", "ctypes", "__array_interface__", "__cuda_array_interface__"),
        *("getrefcount", "getweakrefcount", "getweakrefs", "cache_info"),
        *("_is_view", "_view_func", "_use_count", "_is_zerotensor"),
        *("get_cache_token", "hashvalue", "_hash", "MethodType", "ZoneInfo", "zoneinfo"),
        *("getcontext", "localcontext", "DefaultContext", "BasicContext", "ExtendedContext"),
    )
).union(_OF_TENSORS, _OF_CODE)
"""Names that direct mode does not track. An export whose code reads one is refused.

All properties that tensors and code objects have in C are among them, except those that are described.
"""

CODE_OF = frozenset({"__code__", "gi_code", "cr_code", "ag_code"})
"""Names of code objects, which are equal only if they have the same line numbers.

An export is refused if code in the user's own files reads one. The code of libraries may: transformers reads the
names of a function's variables there.
"""

ALL = "*"  # any name, for code that can compose names at run time
STATE_OF_LOGGERS = frozenset({"level", "disabled", "handlers", "parent", "propagate", "manager", "root"})
"""Names, in code or in its strings, that can lead to the state of a logger, which is compared then."""
OF_LOGGERS = frozenset(("isEnabledFor", "getEffectiveLevel", "hasHandlers", "get_verbosity", "getLevelName"))
"""Functions that read the state of a logger."""

_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_OF_GLOBALS = _GLOBAL | {"STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}
_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_NAMED = _GLOBAL | _ATTRIBUTE
_NO_EFFECT = frozenset(
    {"CACHE", "PRECALL", "PUSH_NULL", "EXTENDED_ARG", "NOP", "RESUME", "COPY_FREE_VARS", "NOT_TAKEN"}
)
_SINGLETONS = (None, True, False, Ellipsis, NotImplemented)
_TEXTS = (str, bytes, int, float, complex, tuple, frozenset)
IDENTITY = frozenset({"is_", "is_not", "__eq__", "__ne__"})  # of the module operator, and of object
SET_METHODS = frozenset(
    ("add", "discard", "remove", "update", "clear", "issubset", "issuperset", "isdisjoint", "__contains__")
)


def _once(describe: Callable[[CodeType], T]) -> Callable[[CodeType], T]:
    """Remember results by the identity of code objects, which are immutable; hashing one takes longer."""
    known: dict[int, tuple[CodeType, T]] = {}

    @functools.wraps(describe)
    def describe_once(code: CodeType) -> T:
        found = known.get(id(code))
        if found is None:
            result = describe(code)
            if len(known) >= _REMEMBERED:
                known.clear()
            found = known[id(code)] = (code, result)
        return found[1]

    return describe_once


@_once
def code_digest(code: CodeType) -> str:
    """Return the digest of a code object without its file name and line numbers."""
    shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    constants = code.co_consts
    if not _MARSHALLED.issuperset(map(type, constants)):  # marshal distinguishes the types of all others
        constants = ("nested", *map(_constant, constants))
    parts = (shape, names, code.co_code, code.co_exceptiontable, constants)
    return hash_bytes(marshal.dumps(parts, 2)).hex()[:32]


_MARSHALLED = frozenset({str, int, float, bool, type(None), bytes, complex})


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return ("code", code_digest(value))
    if isinstance(value, frozenset):  # iterates in the order of hashes, which have a seed for texts
        return ("set", *(map(repr, value) if is_ordered(value) else sorted(map(repr, value))))
    if isinstance(value, tuple):
        return ("tuple", *map(_constant, value))
    return value if type(value) in _MARSHALLED else (type(value).__name__, value)


def within(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all code objects inside it."""
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from within(value)


@_once
def codes_in(code: CodeType) -> dict[int, CodeType]:
    """Return a code object and all code objects inside it, by identity."""
    return {id(inner): inner for inner in within(code)}


def identifiers(texts: Iterable[str]) -> set[str]:
    """Return all identifiers in texts, which ``getattr(module, text)`` and ``"{m.NAME}".format`` could look up."""
    joined = "\n".join(texts)
    if not joined.isascii():
        return set(IDENTIFIER.findall(joined))
    words = set(joined.encode().translate(_WORDS_APART).decode().split())  # a tenth of the expression's time
    numbers = {word for word in words if word[0] in "0123456789"}
    return (words - numbers) | {word.lstrip("0123456789") for word in numbers} - {""}


def texts_of(code: CodeType) -> Iterator[str]:
    """Yield the strings among the constants of a code object."""
    pending: list[Any] = list(code.co_consts)
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, (tuple, frozenset)):
            pending += value


@frozen_dataclass
class Uses:
    """The values that a code object reads, and how it uses them.

    Attributes:
        names: globals and attributes that it looks up.
        globals: globals that it reads or sets.
        imports: modules that it imports, with the level of relative imports, and the names imported from each.
        texts: identifiers in its strings.
        compares: names that lead to what it compares by ``is``; ``()`` is among them if one is unknown.
        order: how it creates a set of strings that it may iterate over; empty if it does not.
        address: an operation that may format an object with its address and compute with the text; empty if none.
        merges: whether it may create a new set from another.
        changes: whether it may change a set, whose order depends on what was in it before.
        has_view: whether it keeps or passes on ``keys()`` or ``items()`` of a dictionary, of which sets can be created.
        subtracts: whether it has an operation that creates a set of such views.
        composes: whether it may look up attributes whose names are not constants in its code.
        chains: names that lead from globals to values; the last is ``()`` if the value is called at once.
    """

    names: frozenset[str]
    globals: frozenset[str]
    imports: tuple[tuple[str, int, tuple[str, ...]], ...]
    texts: frozenset[str]
    compares: frozenset[tuple[str, ...]]
    order: str
    address: str
    merges: bool
    changes: bool
    has_view: bool
    subtracts: bool
    composes: bool
    chains: frozenset[tuple[str, ...]]


@_once
def uses(code: CodeType) -> Uses:
    """Analyze a code object."""
    steps = [step for step in _normalize(dis.get_instructions(code)) if step.opname not in _NO_EFFECT]
    names = {*code.co_names, *(part for name in code.co_names if "." in name for part in name.split("."))}
    compares = {chain for place in range(len(steps)) if (chain := _compares(steps, place)) is not None}
    if names & IDENTITY or any(type(value) in {float, complex} and value != value for value in code.co_consts):
        compares.add(())  # `in` compares a NaN by identity
    own = frozenset(step.argval for step in steps if step.opname in _OF_GLOBALS)
    views = frozenset(_views(steps))
    imports = tuple(
        (str(step.argval), _level(steps, place), _imported_names(steps, place))
        for place, step in enumerate(steps)
        if step.opname == "IMPORT_NAME"
    )
    return Uses(
        names=frozenset(names),
        globals=own,
        imports=imports,
        texts=frozenset(identifiers(texts_of(code))),
        compares=frozenset(compares),
        order=_find_unordered_set(code, steps, views),
        address=_address(code, steps),
        merges=bool(names & _MERGES) or _operates(steps, "|^"),
        changes=bool(names & _CHANGES) or _operates(steps, "&|^-"),
        has_view=bool(views),
        subtracts=bool(names & SET_OPERATORS) or _operates(steps, "&|^-"),
        composes=_composes(steps),
        chains=frozenset(_chains(steps)),
    )


_SHOWS = frozenset({"repr", "ascii", "__repr__", "__str__", "__format__", "pformat", "hash", "__hash__"})
_FORMATS = frozenset({"str", "format", "join", "dumps", "format_map", "str_", "bytes_", "UserString"})
_FORMATS |= {"substitute", "safe_substitute"}
_PARSES = frozenset({"int", "float", "ord", "sorted", "len", "index", "find", "sum", "min", "max", "encode", "fromhex"})
_OF_TEXTS = _SHOWS | _FORMATS | _PARSES


def _address(code: CodeType, steps: list[dis.Instruction]) -> str:
    """Return an operation that could use an object's address as a value; messages of raised exceptions do not count."""
    known = [step for step in steps if step.opname in _NAMED and step.argval in _OF_TEXTS]
    names = {str(step.argval) for step in known if not _is_raised(steps, step)}
    if shows := names & _SHOWS:
        return min(shows)
    formatted = [step for step in steps if step.opname == "FORMAT_VALUE" and not _is_raised(steps, step)]
    if any((step.arg or 0) & 3 for step in formatted):
        return "!r"
    has_percent = any(step.opname == "BINARY_OP" and step.argrepr[:1] == "%" for step in steps)
    has_percent = has_percent and any("%" in str(value) for value in code.co_consts if type(value) in {str, bytes})
    return "a formatted text" if (names & _FORMATS or formatted or has_percent) and names & _PARSES else ""


LOOK_UPS = frozenset(("getattr", "hasattr", "setattr", "vars", "__dict__", "attrgetter", "methodcaller", "format"))
LOOK_UPS |= {"__getattribute__", "format_map", "vformat", "get_field", "getattr_static", "globals"}
_LOADS = frozenset({"LOAD_CONST", "LOAD_FAST", "LOAD_DEREF", "LOAD_GLOBAL"})


def _composes(steps: list[dis.Instruction]) -> bool:
    """Return whether a name that is looked up may not be a constant, as it is in ``getattr(x, "name", None)``.

    A pattern such as ``case Point(0)`` takes the names in ``__match_args__`` of the class.
    """
    if any(step.opname == "MATCH_CLASS" and step.arg for step in steps):
        return True
    for place, step in enumerate(steps):
        if step.opname not in _NAMED or step.argval not in LOOK_UPS:
            continue
        end = _after_call(steps, place)
        call, inside = steps[end - 1], steps[place:end]
        name = steps[end - call.arg] if call.opname == "CALL" and call.arg in {2, 3} else call
        is_constant = name.opname == "LOAD_CONST" and type(name.argval) is str and steps[end - 2].opname in _LOADS
        is_known = step.argval in {"getattr", "hasattr", "setattr"} and "NULL" in step.argrepr
        if not (is_known and is_constant) or any("JUMP" in other.opname for other in inside):
            return True
    return False


def _is_raised(steps: list[dis.Instruction], step: dis.Instruction) -> bool:
    """Return whether an instruction is followed only by raising an exception."""
    for after in steps[bisect.bisect_right(steps, step.offset, key=lambda other: other.offset) :]:
        if after.opname == "RAISE_VARARGS":
            return True
        if after.opname.startswith(("STORE", "RETURN", "POP_", "YIELD")) or "JUMP" in after.opname:
            return False
    return False


def _chains(steps: list[dis.Instruction]) -> Iterator[tuple[str, ...]]:
    """Yield chains of names from globals, with ``()`` at the end if their value is called at once."""
    place = 0
    while place < len(steps):
        start = place
        place += 1
        if steps[start].opname in _GLOBAL:
            while place < len(steps) and steps[place].opname in _ATTRIBUTE:
                place += 1
            last = steps[place - 1]
            is_called = last.opname == "LOAD_METHOD" or "NULL" in steps[start].argrepr or "NULL" in last.argrepr
            yield (*(str(step.argval) for step in steps[start:place]), *(["()"] if is_called else []))


def _level(steps: list[dis.Instruction], place: int) -> int:
    before = steps[place - 2]  # the level, then the names
    return before.argval if type(before.argval) is int else 0


def _imported_names(steps: list[dis.Instruction], place: int) -> tuple[str, ...]:
    names = steps[place - 1].argval
    return names if isinstance(names, tuple) else ()


def absolute_name(name: str, level: int, space: Mapping[str, Any]) -> str:
    """Return the absolute name of a module in an import statement of code with these globals."""
    if not level:
        return name
    package = str(space.get("__package__") or str(space.get("__name__", "")).rpartition(".")[0])
    parts = package.split(".")
    return ".".join(filter(None, (*parts[: len(parts) - level + 1], name)))


@functools.cache
def _is_new_form(opname: str) -> bool:
    return any(part in opname for part in ("_BORROW", "_CHECK", "_FAST_"))


def _normalize(steps: Iterable[dis.Instruction]) -> Iterator[dis.Instruction]:
    """Yield instructions in the form of Python 3.11: an instruction of 3.13 for two variables becomes two."""
    for step in steps:
        if not _is_new_form(step.opname):
            yield step
            continue
        first, is_double, second = step.opname.replace("_BORROW", "").partition("_FAST_")
        if is_double and isinstance(step.argval, tuple):
            for opname, name in zip((f"{first}_FAST", second), step.argval, strict=True):
                yield step._replace(opname=opname, argval=name)
        else:
            yield step._replace(opname=step.opname.replace("_BORROW", "").replace("_CHECK", ""))


def _compares(steps: list[dis.Instruction], place: int) -> tuple[str, ...] | None:
    """Return names that lead to what an instruction compares by ``is``, if that may be a string or a number."""
    if steps[place].opname != "IS_OP":
        return None
    before = steps[place - 1]
    if before.opname == "LOAD_CONST":
        return None if any(before.argval is one for one in _SINGLETONS) else ()
    chain: list[str] = []
    at = place - 1
    while at > 0 and steps[at].opname in _ATTRIBUTE:
        chain.insert(0, str(steps[at].argval))
        at -= 1
    return (steps[at].argval, *chain) if steps[at].opname in _GLOBAL | {"LOAD_DEREF"} else ()


def is_text_or_number(chain: tuple[str, ...], space: Mapping[str, Any]) -> bool:
    """Return whether names lead to a string or a number, or to nothing that is known.

    ``x is Kind.ONE`` does not if that is an object of another type.
    """
    if not chain or chain[0] not in space:
        return True
    value: Any = space[chain[0]]
    for name in chain[1:]:
        value = getattr(value, "__dict__", {}).get(name, "")
    return issubclass(type(value), _TEXTS)


SET_OPERATORS = frozenset(("and_", "or_", "xor", "sub", "__and__", "__or__", "__xor__", "__sub__", "__rsub__"))
_MERGES = frozenset(("type", "__class__", "union", "symmetric_difference", "copy", "__or__", "__xor__", "or_", "xor"))
_CHANGES = frozenset(("add", "discard", "remove", "pop", "update", "clear"))
_CHANGES |= {"difference_update", "intersection_update", "symmetric_difference_update"}
_MAKES_SETS = frozenset({"set", "frozenset", "keys", "items"})


def _operates(steps: list[dis.Instruction], signs: str) -> bool:
    """Return whether an instruction is a binary operation with one of some signs."""
    return any(step.opname == "BINARY_OP" and step.argrepr[:1] in signs for step in steps)


def _find_unordered_set(  # noqa: C901  # one case for each form of a set
    code: CodeType, steps: list[dis.Instruction], views: frozenset[int]
) -> str:
    """Return the creation of a set whose order could matter; membership, length and sorting do not depend on it."""
    names = {step.argval for step in steps if step.opname in _NAMED}
    constants = [step.argval for step in steps if step.opname == "LOAD_CONST"]
    has_set = any(isinstance(value, frozenset) or getattr(value, "co_name", "") == "<setcomp>" for value in constants)
    if not (has_set or names & _MAKES_SETS or any(step.opname == "BUILD_SET" for step in steps)):
        return ""
    variables = [_find_unordered(inner) for inner in within(code)]
    free = frozenset(name for uses_ in variables for name, is_unordered in uses_.items() if is_unordered)
    free -= {name for uses_ in variables for name, is_unordered in uses_.items() if not is_unordered}
    free -= set(code.co_freevars)
    for place, step in enumerate(steps):
        if step.opname == "LOAD_CONST" and isinstance(step.argval, frozenset) and not is_ordered(step.argval):
            if steps[place + 1].opname not in {"CONTAINS_OP", "SET_UPDATE"}:
                return "a constant set"
        elif step.opname in _GLOBAL and step.argval in {"set", "frozenset"}:
            end = _after_call(steps, place)
            is_message = file_is_installed(code.co_filename) and _is_raised(steps, step)
            if not is_message and not _is_without_order(steps, place, end, free):
                return f"{step.argval}()"
        elif step.opname == "BUILD_SET" and not (step.arg == 0 and code.co_name == "<setcomp>"):
            if not _is_without_order(steps, place, _after_set(steps, place), free):
                return "a set"
        elif step.opname == "LOAD_CONST" and isinstance(step.argval, CodeType) and step.argval.co_name == "<setcomp>":
            end = next((at + 2 for at in range(place, len(steps) - 1) if steps[at].opname == "GET_ITER"), len(steps))
            if not _is_without_order(steps, place, end, free):
                return "a set comprehension"
        elif place in views and (names & SET_OPERATORS or _operates(steps[place + 1 : place + 6], "&|^-")):
            return f"an operation on {step.argval}()"
    return ""


VIEWS = frozenset({"keys", "items"})
_ITERATE = frozenset(
    ("list", "tuple", "sorted", "dict", "len", "enumerate", "zip", "reversed", "any", "all", "sum", "min")
)
_ITERATE |= {"max", "iter", "map", "filter", "next", "OrderedDict"}
"""Functions that iterate over a view of a dictionary, whose order is that of the dictionary."""


def _views(steps: list[dis.Instruction]) -> Iterator[int]:
    """Yield where code gets a view of a dictionary that it neither iterates over nor searches at once."""
    iterate = [place for place, step in enumerate(steps) if step.opname in _GLOBAL and step.argval in _ITERATE]
    ends = {_after_call(steps, place) for place in iterate}
    for place, step in enumerate(steps):
        if step.opname in _ATTRIBUTE and step.argval in VIEWS:
            end = _after_call(steps, place)
            is_called = end > place + 1 and steps[end - 1].opname.startswith("CALL") and not steps[end - 1].arg
            user = _consumer(steps, end) if is_called else len(steps)
            if not (user < len(steps) and (user + 1 in ends or steps[user].opname in {"GET_ITER", "CONTAINS_OP"})):
                yield place


def _consumer(steps: list[dis.Instruction], start: int) -> int:
    """Return the index of the instruction that takes the value on top of the stack, if no jump is before it."""
    depth = 1
    for at in range(start, len(steps)):
        step = steps[at]
        if "JUMP" in step.opname:
            break
        effect = dis.stack_effect(step.opcode, step.arg if step.opcode >= dis.HAVE_ARGUMENT else None, jump=False)
        if 1 - effect >= depth:  # it takes so many values, and returns one
            return at
        depth += effect
    return len(steps)


def _after_set(steps: list[dis.Instruction], place: int) -> int:
    """Return the index after the creation of a set by ``BUILD_SET``.

    Python 3.12 and later have a comprehension's loop there, and then restore its variables.
    """
    if steps[place].arg or [step.opname for step in steps[place + 1 : place + 3]] != ["SWAP", "FOR_ITER"]:
        return place + 1
    end = bisect.bisect_left(steps, steps[place + 2].argval, key=lambda step: step.offset)
    names = [step.opname for step in steps[end:]]
    if names[:1] != ["END_FOR"]:
        return len(steps)
    after = 2 if names[1:2] in (["POP_TOP"], ["POP_ITER"]) else 1
    if names[after : after + 1] != ["SWAP"]:  # the set is stored first, then the variables are restored
        return end + after
    count = int(steps[end + after].arg or 0) - 1
    is_known = names[after + 1 : after + 1 + count] == ["STORE_FAST"] * count
    return end + after + 1 + count if is_known else len(steps)


def _after_call(steps: list[dis.Instruction], place: int) -> int:
    """Return the index after the call of the function that an instruction loads, found by the stack's depth."""
    depth = 1
    for at in range(place + 1, len(steps)):
        step = steps[at]
        if step.opname.startswith("CALL"):
            depth -= step.arg or 0
            if depth <= 1:
                return at + 1
        elif "JUMP" not in step.opname:
            effect = dis.stack_effect(step.opcode, step.arg if step.opcode >= dis.HAVE_ARGUMENT else None, jump=False)
            depth += effect - ("NULL" in step.argrepr or step.opname == "LOAD_METHOD")
    return len(steps)


def _is_without_order(steps: list[dis.Instruction], made: int, place: int, free: frozenset[str]) -> bool:
    """Return whether the use of the set on top of the stack does not depend on its order."""
    if place >= len(steps):
        return False
    step = steps[place]
    if step.opname in {"CONTAINS_OP", "POP_TOP", "COMPARE_OP"} or (step.opname == "STORE_FAST" and step.argval in free):
        return True
    if step.opname == "STORE_DEREF" and step.argval in free:
        return True
    if step.opname in _ATTRIBUTE:
        return step.argval in SET_METHODS
    return step.opname.startswith("CALL") and step.arg == 1 and _is_unordered_call(steps, made)


def _is_unordered_call(steps: list[dis.Instruction], place: int) -> bool:
    before = steps[place - 1] if place else None
    return before is not None and before.opname == "LOAD_GLOBAL" and before.argval in {"len", "sorted", "bool", "any"}


@_once
def _find_unordered(code: CodeType) -> Mapping[str, bool]:
    """Return for each variable whether no use of it depends on the order of a set."""
    steps = [step for step in _normalize(dis.get_instructions(code)) if step.opname not in _NO_EFFECT]
    loads = dict.fromkeys((*code.co_varnames, *code.co_cellvars), True)
    for place, step in enumerate(steps[:-1]):
        if step.opname in {"LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF"}:
            after = steps[place + 1]
            is_fine = after.opname == "CONTAINS_OP" or (after.opname in _ATTRIBUTE and after.argval in SET_METHODS)
            is_fine = is_fine or (
                after.opname.startswith("CALL") and after.arg == 1 and _is_unordered_call(steps, place)
            )
            loads[step.argval] = loads.get(step.argval, True) and is_fine
    return loads


def is_ordered(members: Iterable[Any]) -> bool:
    """Return whether a set of these values has the same order in every process: hashes of numbers have no seed."""
    kinds = [type(one) for one in members]
    return len(kinds) < 2 or all(kind in {int, bool, float} for kind in kinds)
