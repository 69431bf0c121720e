"""Code objects: digests without line numbers and file names, names in them, and names that are not compared."""

from __future__ import annotations

import functools
import marshal
import re
from datetime import datetime, timedelta
from decimal import Decimal
from types import CodeType, GetSetDescriptorType, MethodDescriptorType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from trtcache.digests import hash_bytes
from trtcache.frontends.direct.classes import DERIVED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

T = TypeVar("T")
_REMEMBERED = 16_384  # code objects
IDENTIFIER = re.compile(r"[^\W\d]\w*")
_WORDS_APART = bytes(number if chr(number).isalnum() or chr(number) == "_" else ord(" ") for number in range(128))
_WORDS_APART += bytes(128)  # for ASCII
_OF_TENSORS = {name for name, one in vars(torch._C.TensorBase).items() if type(one) is GetSetDescriptorType}
_OF_TENSORS -= {"H", "T", "mH", "mT", "data", "device", "dtype", "imag", "itemsize", "layout", "name", "names"}
_OF_TENSORS -= {"nbytes", "ndim", "real", "requires_grad", "shape", "volatile"}
_OF_TENSORS -= {name for name in _OF_TENSORS if name[:3] == "is_"}
_OF_CODE = {name for name in dir(CodeType) if name[:3] == "co_"}
_OF_CODE -= {"co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_flags", "co_nlocals", "co_consts"}
_OF_CODE -= {"co_name", "co_qualname", "co_names", "co_varnames", "co_freevars", "co_cellvars"}
_SPACES = (torch.Tensor, torch.UntypedStorage, torch.TypedStorage, torch, torch._C, torch.storage, torch.Generator)
_OF_MEMORY = {name for one in _SPACES for name in dir(one) if "data_ptr" in name or "_storage" in name}
UNSEEN = frozenset(
    (
        *("__subclasses__", "__globals__", "__closure__", "__builtins__", "__loader__", "__spec__"),
        *("__cached__", "__hash__", "__sizeof__", "f_locals"),
        *("f_back", "f_globals", "f_code", "gi_frame", "tb_frame", "tb_lineno", "__file__", "__path__", "is_leaf"),
        *("is_shared", "is_pinned", "byte_bounds", "const_data_ptr", "_weak_ref", "shares_memory", "may_share_memory"),
        *("untyped_storage", "storage", "is_inference"),
        *("annotation", "annotations", "return_annotation"),
        *("get_type_hints", "get_annotations", "annotationlib"),
        *("ctypes", "__array_interface__", "__cuda_array_interface__"),
        *("getrefcount", "getweakrefcount", "getweakrefs", "cache_info"),
        *("_is_view", "_view_func", "_use_count", "_is_zerotensor"),
        *("get_cache_token", "hashvalue", "_hash", "MethodType", "ZoneInfo", "zoneinfo"),
        *("getcontext", "localcontext", "DefaultContext", "BasicContext", "ExtendedContext"),
    )
).union(_OF_TENSORS, _OF_CODE, _OF_MEMORY, DERIVED - {"__dict__"})
"""Names that direct mode does not track. An export whose code reads one is refused.

All properties that tensors and code objects have in C are among them, except those that are described.
"""
CODE_OF = frozenset({"__code__", "gi_code", "cr_code", "ag_code"})
"""Names of code objects, which are equal only if they have the same line numbers.

An export is refused if code in the user's own files reads one. The code of libraries may: transformers reads the
names of a function's variables there.
"""
_IN_C = (MethodDescriptorType, WrapperDescriptorType)
_WITHOUT_IDENTITY = (str, bytes, int, float, complex, tuple, frozenset, slice, range, Decimal, datetime, timedelta)
_WITHOUT_IDENTITY += (torch.Size,)  # type: ignore[assignment]  # another type


METHODS_BY_IDENTITY = frozenset(
    name for kind in _WITHOUT_IDENTITY for name in dir(kind) if type(getattr(kind, name)) in _IN_C
)
"""Methods in C of values that can be equal and not identical: methods are equal only if their objects are identical."""

ALL = "*"  # any name, for code in the user's own files that can compose names at run time
ALL_IN = "*."  # before the name of a module: any attribute of it and of the user's modules, for code of libraries
STATE_OF_LOGGERS = frozenset({"level", "disabled", "handlers", "parent", "propagate", "manager", "root"})
"""Names, in code or in its strings, that can lead to the state of a logger, which is compared then."""
OF_LOGGERS = frozenset(("isEnabledFor", "getEffectiveLevel", "hasHandlers", "get_verbosity", "getLevelName"))
"""Functions that read the state of a logger."""
IDENTITY = frozenset({"is_", "is_not", "__eq__", "__ne__"})  # of the module operator, and of object
SET_METHODS = frozenset(
    ("add", "discard", "remove", "update", "clear", "issubset", "issuperset", "isdisjoint", "__contains__")
)


def once(describe: Callable[[CodeType], T]) -> Callable[[CodeType], T]:
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


@once
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
    if isinstance(value, slice):  # Python 3.14
        return ("slice", *map(_constant, (value.start, value.stop, value.step)))
    return value if type(value) in _MARSHALLED else (type(value).__name__, value)


def within(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all code objects inside it."""
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from within(value)


@once
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


def joined_names(names: Iterable[str], texts: Collection[str]) -> Iterator[str]:
    """Yield those of some names that are among texts, also between double underscores, or a pair of them joined."""
    for name in names:
        for one in {name, name.strip("_")}:
            if one in texts or any(one[:at] in texts and one[at:] in texts for at in range(1, len(one))):
                yield name
                break


LOOK_UPS = frozenset(("getattr", "hasattr", "setattr", "vars", "__dict__", "attrgetter", "methodcaller", "format"))
LOOK_UPS |= {"__getattribute__", "format_map", "vformat", "get_field", "getattr_static", "globals"}
SET_OPERATORS = frozenset(("and_", "or_", "xor", "sub", "__and__", "__or__", "__xor__", "__sub__", "__rsub__"))
VIEWS = frozenset({"keys", "items"})


def is_ordered(members: Iterable[Any]) -> bool:
    """Return whether a set of these values has the same order in every process: hashes of numbers have no seed."""
    kinds = [type(one) for one in members]
    return len(kinds) < 2 or all(kind in {int, bool, float} for kind in kinds)
