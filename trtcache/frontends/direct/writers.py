"""Descriptions of objects of exact types, as a table from a type to the function that writes them."""

from __future__ import annotations

import array
import collections
import contextvars
import datetime
import decimal
import functools
import gc
import logging
import operator
import os
import pathlib
import re
import struct
import sys
import threading
import types
import warnings
import weakref
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch

from trtcache.digests import hash_bytes
from trtcache.frontends.direct.classes import (
    C_FUNCTIONS,
    DERIVED,
    DESCRIPTORS,
    EXEMPT_NAMES,
    NOTHING,
    NUMBERS_AND_TEXT,
    SET_TYPES,
    UNORDERED_SETS,
    WRAPPERS,
    class_module,
    layout,
    plain_vars,
    text_digest,
)
from trtcache.frontends.direct.code import (
    CODE_OF,
    LOOK_UPS,
    METHODS_BY_IDENTITY,
    SET_METHODS,
    SET_OPERATORS,
    STATE_OF_LOGGERS,
    UNSEEN,
    VIEWS,
    code_digest,
    is_ordered,
)
from trtcache.frontends.direct.errors import UnstableError
from trtcache.frontends.direct.ownership import (
    file_is_versioned,
    is_impure,
    is_versioned_module,
    lookup,
)
from trtcache.frontends.direct.patches import (
    NAMESPACES,
    TORCH_OPERATORS,
    is_unversioned,
    operator_changes,
    refuse_unseen,
    refuse_unseen_state,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from trtcache.digests import Json
    from trtcache.frontends.direct.walk import Walk

    Writer = Callable[["Walk", Any], Json]


def base_items(walk: Walk, value: Any, base: Any, cls: type) -> tuple[list[Any], Json]:
    """Return the items of an instance of a built-in's subclass, and their description."""
    if issubclass(base, dict):
        ordered: Any = collections.OrderedDict if issubclass(base, collections.OrderedDict) else dict
        pairs = list(ordered.items(value))  # move_to_end is in none of dict's
        _refuse_other_hashes(value, pairs)
        return [one for pair in pairs for one in pair], walk.pairs(pairs, cls)
    if issubclass(base, (list, tuple)):
        values = list(base.__iter__(value))
        return values, walk.items(values)
    if issubclass(base, (set, frozenset)):
        values = list(base.__iter__(value))
        return values, _set(walk, base(values))
    readers: dict[Any, Any] = {int: int.__int__, str: str.__str__, float: float.__float__, bytes: bytes.__bytes__}
    return [], walk.value(readers[base](value))


def _set(walk: Walk, value: Any) -> Json:
    if is_ordered(value):
        walk.has_set = True
        walk.has_mutable_set |= type(value) is set
        return ["set", type(value).__name__, *walk.items(value)]
    raise UnstableError("a set of strings or objects, whose order differs in each process")


def _dict(walk: Walk, value: Any) -> Json:
    if value is sys.modules:
        raise UnstableError("all modules")
    more = [walk.value(value.default_factory)] if type(value) is collections.defaultdict else []
    if hasattr(value, "__dict__") and (own := plain_vars(value)):  # of an OrderedDict, such as state_dict()
        more.append(walk.pairs(own.items()))
    pairs = list(value.items())
    _refuse_other_hashes(value, pairs)
    return [type(value).__name__, *more, walk.pairs(pairs)]


def _refuse_other_hashes(value: dict[Any, Any], pairs: list[tuple[Any, Any]]) -> None:
    """Refuse a dictionary that does not find a key which is in it, as it had another hash.

    Raises:
        UnstableError: it does not find one.
    """
    for key, one in pairs:
        if type(type(key).__hash__) is FunctionType and dict.get(value, key, NOTHING) is not one:
            raise UnstableError("a dictionary whose keys had other hashes")


OUTPUTS = (print, warnings.warn, warnings.warn_explicit)
_BY_IDENTITY = (operator.is_, operator.is_not)
LOOK_UP_TYPES = frozenset({operator.attrgetter, operator.methodcaller, super})


def _builtin(walk: Walk, value: Any) -> Json:
    owner, module = value.__self__, getattr(value, "__module__", None)
    if value.__name__ in LOOK_UPS:
        walk.has_look_up = True
    if type(owner) is functools._lru_cache_wrapper:
        raise UnstableError(f"{value.__name__} of a function's cache")
    if type(owner) in NUMBERS_AND_TEXT and owner is not None:
        raise UnstableError(f"a method of {owner!r}, which is equal to itself alone")
    if value in _BY_IDENTITY or (type(owner) in SET_TYPES and value.__name__ not in SET_METHODS):
        raise UnstableError(f"{value.__qualname__}, which compares by identity or creates a set")
    refuse_unseen(value)
    if value in OUTPUTS:
        walk.has_output = True
    if is_impure(value):
        raise UnstableError(f"{value.__qualname__}, a function that depends on the process or the machine")
    _note_set_operators(walk, value)
    if module is not None and not is_versioned_module(module):
        raise UnstableError(f"{module}.{value.__qualname__}, a function of a C extension")
    is_method = type(value) is types.MethodWrapperType  # such as a module's __getattribute__
    if not is_method and (isinstance(owner, ModuleType) or owner is None or type(owner).__name__ == "PyCapsule"):
        return ["builtin", str(module), value.__qualname__]
    return ["builtin", str(module), value.__qualname__, walk.value(owner)]


def _note_set_operators(walk: Walk, value: Any) -> None:
    """Note functions that code could call to create a set: of views of dictionaries, and those that return a view."""
    name = value.__name__
    if name in VIEWS:
        walk.has_view = True
    if name in SET_OPERATORS or name in {"iand", "ior", "ixor", "isub", "difference", "intersection"}:
        walk.has_set_operator = True


def _slot(walk: Walk, value: Any) -> Json:
    if value.__name__ in _OF_OBJECTS:
        raise UnstableError(f"{value.__qualname__}, which depends on an object's identity")
    refuse_unseen(value)
    _note_set_operators(walk, value)
    if value.__name__ in LOOK_UPS:  # such as ModuleType.__getattribute__
        walk.has_look_up = True
    return describe_descriptor(walk, value)


_OF_OBJECTS = frozenset(("__hash__", "__eq__", "__ne__", "__repr__", "__str__", "__format__", "__mod__", "__rmod__"))
_OF_OBJECTS |= {"format", "format_map"}
"""Methods of objects, texts and numbers that show an address or a hash, or compare by identity."""


def describe_descriptor(walk: Walk, value: Any) -> Json:
    """Describe a method of a type in C by its name; as a class's attribute it is called by its protocol only."""
    return ["slot", walk.value(value.__objclass__), value.__name__]


_NOT_BY_NAME = UNSEEN | CODE_OF | EXEMPT_NAMES | UNORDERED_SETS | STATE_OF_LOGGERS | METHODS_BY_IDENTITY
"""Names that are not compared, or only where they are in code: an object must not look them up."""


def _getter(walk: Walk, value: operator.attrgetter[Any]) -> Json:
    names = value.__reduce__()[1]
    if unseen := {part for name in names for part in str(name).split(".")} & _NOT_BY_NAME:
        raise UnstableError(f"attrgetter of {min(unseen)}")
    return ["attrgetter", *walk.items(names)]


_FUNCTIONS_OF_PROPERTY: tuple[Any, ...] = (property.fget, property.fset, property.fdel)


def _referents(walk: Walk, value: Any) -> Json:
    """Describe an object of a C type by the objects that it reports to the garbage collector, in order."""
    written: list[Json] = [type(value).__name__]
    if isinstance(value, property):  # the collector leaves out what it does not have
        written.append([one.__get__(value) is not None for one in _FUNCTIONS_OF_PROPERTY])
    for found in gc.get_referents(value):
        if type(found) is str and type(value) is property:  # its documentation, mostly that of its function
            written.append(text_digest(found))
        elif type(found) is dict and type(value) is not types.MappingProxyType:
            has_keywords = isinstance(value, functools.partial)
            own = [pair for pair in found.items() if has_keywords or pair[0] not in DERIVED]
            written += [text_digest(text) for name, text in own if name == "__doc__" and type(text) is str]
            written.append(walk.pairs([pair for pair in own if pair[0] != "__doc__" or type(pair[1]) is not str]))
        else:
            written.append(walk.value(found))
    return written


_COPIED = frozenset({"__wrapped__", "__doc__", "__module__", "__name__", "__qualname__", "__annotations__"})


def _cached_function(walk: Walk, value: Any) -> Json:
    inner = getattr(value, "__wrapped__", None)
    if inner is None:
        raise UnstableError("a function with a cache whose __wrapped__ was deleted")
    if type(inner) is FunctionType and file_is_versioned(inner.__code__.co_filename):
        refuse_unseen_state(value)
    else:
        walk.caches.append(value)
    own = {name: one for name, one in plain_vars(value).items() if name not in _COPIED}
    return ["cached", walk.value(inner), value.cache_info().maxsize, walk.pairs(own.items())]


def _module_object(walk: Walk, value: ModuleType) -> Json:
    name = vars(value).get("__name__")
    if sys.modules.get(str(name)) is not value:
        raise UnstableError(f"module {name}, which cannot be found by its name")
    walk.visited_modules[str(name)] = value
    return ["module", str(name)]


_OF_LOGGER = frozenset({*vars(logging.Logger("any")), "manager"})


def _logger(walk: Walk, value: logging.Logger) -> Json:
    walk.loggers[value.name] = value
    own = [pair for pair in plain_vars(value).items() if pair[0] not in _OF_LOGGER]
    return ["logger", value.name, walk.items(value.filters), walk.value(type(value)), walk.pairs(own)]


def _context(walk: Walk, value: contextvars.ContextVar[Any]) -> Json:
    is_set = value in contextvars.copy_context()  # get(default) returns the variable's own default last
    try:
        return ["context", value.name, is_set, walk.value(value.get())]
    except LookupError:
        return ["context", value.name, is_set]


def _namespace(walk: Walk, value: Any) -> Json:
    walk.texts.add(str(value.__name__))  # code can look up operators in it
    space = {name: one for name, one in vars(value).items() if type(one) is not torch._ops.OpOverloadPacket}
    own = [pair for pair in space.items() if type(pair[1]) in NUMBERS_AND_TEXT or is_unversioned(pair[1])]
    return ["torch", str(value.__name__), walk.pairs([pair for pair in own if pair[0][:2] != "__"])]


def _operator(walk: Walk, value: Any) -> Json:
    if str(value).partition(".")[0] not in TORCH_OPERATORS:
        raise UnstableError(f"{value}, an operator that is not torch's own")
    return ["torch", type(value).__name__, str(value), walk.pairs(operator_changes(value))]


def _submodule(walk: Walk, value: torch.nn.Module) -> Json:
    path = walk.module_paths.get(id(value))
    if path is None:
        raise UnstableError(f"a {type(value).__name__} that is not a submodule")
    return ["submodule", path]


def _weak(walk: Walk, value: Any) -> Json:
    if value.__callback__ is not None:
        raise UnstableError("a weak reference with a callback")
    return ["weak", walk.value(value())]


def _environment(walk: Walk, value: Any) -> Json:
    if value is not os.environ:
        raise UnstableError("an environment of its own")
    # The variables that are read are recorded.
    return ["environment", walk.pairs([pair for pair in vars(value).items() if pair[0] != "_data"])]


def _array(walk: Walk, value: Any) -> Json:
    _refuse_dates(value.dtype)
    if value.dtype.metadata is not None or value.dtype.fields is not None or value.dtype.subdtype is not None:
        raise UnstableError("an array of fields, or with metadata")
    root = value
    while type(root.base) is type(value):
        root = root.base
    if root.base is not None and type(root.base) not in {bytes, torch.Tensor}:
        raise UnstableError("an array in the memory of another object")
    flags = [value.flags.writeable, value.flags.aligned, root.base is None, value.base is None]
    described: list[Json] = [list(value.shape), list(value.strides), *flags, walk.memory(id(root))]
    if value.dtype.hasobject:
        return ["array", value.dtype.str, *described, *(walk.items(one.ravel().tolist()) for one in (root, value))]
    if root is not value or root.base is not None:  # memory around a view can be read as well
        described += [hash_bytes(root.tobytes()).hex(), walk.value(root.base)]
    return ["array", value.dtype.str, value.dtype.char, *described, hash_bytes(value.tobytes()).hex()]


def _refuse_dates(dtype: Any) -> None:
    if dtype.kind == "M":
        raise UnstableError("a date of NumPy, whose type can read the clock")


def _dtype(_: Walk, value: Any) -> Json:
    _refuse_dates(value)
    if value.metadata is not None or value.hasobject or value.fields is not None:
        raise UnstableError("a dtype with fields or metadata")
    return ["dtype", repr(value), value.str, value.char]


def _numpy_scalar(_: Walk, value: Any) -> Json:
    _refuse_dates(value.dtype)
    return ["number", str(value.dtype), value.dtype.char, value.tobytes().hex()]


def _ufunc(_: Walk, value: Any) -> Json:
    name = str(value.__name__)
    if lookup("numpy", name) is not value:
        raise UnstableError("a ufunc that is not NumPy's own")
    return ["ufunc", name]


def _refuse(_: Walk, value: Any) -> Json:
    kind = type(value)
    raise UnstableError(f"type {kind.__module__}.{kind.__qualname__}")


def _show(_: Walk, value: Any) -> Json:
    return [type(value).__name__, repr(value)]


def _moment(walk: Walk, value: datetime.datetime | datetime.time) -> Json:
    return [type(value).__name__, repr(value.replace(tzinfo=None)), walk.value(value.tzinfo)]


def _typing(walk: Walk, value: Any) -> Json:
    if type(value) in {types.GenericAlias, types.UnionType}:  # list[int], which has the attributes of list, too
        return ["typing", repr(value), walk.value(getattr(value, "__origin__", None)), walk.items(value.__args__)]
    name = str(getattr(value, "_name", None))
    if lookup("typing", name) is value:
        return ["typing", name]
    if not hasattr(value, "__dict__"):
        return walk.instance(value)
    return ["typing", type(value).__name__, walk.pairs([pair for pair in vars(value).items() if pair[0] != "__doc__"])]


def _float(walk: Walk, value: float) -> Json:
    if value == value:
        return {"float": value.hex()}
    return ["nan", struct.pack("<d", value).hex(), walk.number(value)]  # `in` compares NaN by identity


def _complex(walk: Walk, value: complex) -> Json:
    return ["complex", struct.pack("<dd", value.real, value.imag).hex(), None if value == value else walk.number(value)]


def _decimal(walk: Walk, value: decimal.Decimal) -> Json:
    return ["Decimal", str(value), walk.number(value) if value.is_nan() else None]


_SHOWN_TYPES = (range, type(Ellipsis), type(NotImplemented), datetime.date, datetime.timedelta, datetime.timezone)
_SHOWN_TYPES += (type(sys.version_info), type(sys.flags))  # type: ignore[assignment]
_MOMENTS = (datetime.datetime, datetime.time)
_TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme, torch.finfo, torch.iinfo)

WRITERS: dict[type, Writer] = {
    float: _float,
    complex: _complex,
    decimal.Decimal: _decimal,
    bytes: lambda _, value: ["bytes", hash_bytes(value).hex()],
    bytearray: lambda _, value: ["bytearray", hash_bytes(value).hex()],
    array.array: lambda _, value: ["array.array", value.typecode, hash_bytes(value.tobytes()).hex()],
    list: lambda walk, value: ["list", *walk.items(value)],
    tuple: lambda walk, value: ["tuple", *walk.items(value)],
    torch.Size: lambda walk, value: ["size", *walk.items(tuple(value))],
    slice: lambda walk, value: ["slice", *walk.items((value.start, value.stop, value.step))],
    collections.deque: lambda walk, value: ["deque", value.maxlen, *walk.items(value)],
    **dict.fromkeys((dict, collections.OrderedDict, collections.defaultdict), _dict),
    **dict.fromkeys((set, frozenset), _set),
    object: lambda *_: ["object"],
    **dict.fromkeys((*C_FUNCTIONS, types.MethodWrapperType), _builtin),
    types.CodeType: lambda _, value: [  # two are equal only if they have the same line numbers
        *("code", code_digest(value), value.co_firstlineno, hash_bytes(value.co_linetable).hex()[:32]),
    ],
    operator.itemgetter: lambda walk, value: ["itemgetter", *walk.items(value.__reduce__()[1])],
    operator.attrgetter: _getter,
    types.SimpleNamespace: lambda walk, value: ["namespace", walk.pairs(vars(value).items())],
    functools._lru_cache_wrapper: _cached_function,
    type(collections.namedtuple("_", "a").a): lambda _, value: ["item", *map(str, value.__reduce__()[1])],  # type: ignore[attr-defined]
    **dict.fromkeys(
        (*WRAPPERS, functools.partial, types.MethodType, types.CellType, types.MappingProxyType), _referents
    ),
    **dict.fromkeys(
        (*DESCRIPTORS, types.ClassMethodDescriptorType),
        _slot,
    ),
    ModuleType: _module_object,
    os._Environ: _environment,
    logging.Logger: _logger,
    contextvars.ContextVar: _context,
    weakref.ref: _weak,
    re.Pattern: lambda walk, value: ["pattern", walk.value(value.pattern), value.flags],
    **dict.fromkeys(_SHOWN_TYPES, _show),
    **dict.fromkeys(_MOMENTS, _moment),
    **dict.fromkeys((types.GenericAlias, types.UnionType), _typing),
    **dict.fromkeys(_TORCH, lambda _, value: ["torch", type(value).__name__, str(value)]),
    **dict.fromkeys(NAMESPACES, _namespace),
    **dict.fromkeys((torch._ops.OpOverload, torch._ops.OpOverloadPacket), _operator),
    **dict.fromkeys(
        (type(threading.Lock()), type(threading.RLock())), lambda _, value: ["lock", repr(value).partition(" ")[0]]
    ),
    type(pathlib.Path()): lambda _, value: ["path", str(value)],
}
"""Writers of the descriptions of exact types; those of other types are found by their bases.

Those of classes, functions and tensors are methods of the walk, which adds them.
"""

WITHOUT_IDENTITY = {
    float,
    complex,
    decimal.Decimal,
    bytes,
    tuple,
    torch.Size,
    slice,
    frozenset,
    *_SHOWN_TYPES,
    *_MOMENTS,
    *_TORCH,
}
_UNIQUE = {torch.dtype, torch.layout, torch.memory_format, torch.qscheme, type(Ellipsis), type(NotImplemented)}
WITHOUT_IDENTITY |= {types.GenericAlias, types.UnionType, *C_FUNCTIONS, *DESCRIPTORS, types.MethodType, ModuleType}


def has_identity(value: Any) -> bool:
    """Return whether a description distinguishes an object from another one that is equal.

    It does for an object that is the only one of its value, such as a module, a dtype and ``torch.relu``.
    """
    kind = type(value)
    if kind in C_FUNCTIONS:  # a method of an object is another one whenever it is looked up
        owner = value.__self__
        is_looked_up = isinstance(owner, (ModuleType, type)) and getattr(owner, value.__name__, None) is value
        return is_looked_up or owner is None or type(owner).__name__ == "PyCapsule"
    return kind is ModuleType or kind in _UNIQUE or kind in DESCRIPTORS or kind not in WITHOUT_IDENTITY


@functools.lru_cache(maxsize=4096)
def find_writer(kind: type, instance: Writer) -> Writer:
    """Return the writer for a type that is not in the table; ``instance`` is that of Python classes."""
    bases: dict[type, Writer] = {
        torch.nn.Module: _submodule,
        type: WRITERS[type],
        ModuleType: _module_object,
        logging.Logger: _logger,
    }
    bases |= dict.fromkeys(WRAPPERS, _referents)
    writer: Writer | None = next((write for base, write in bases.items() if issubclass(kind, base)), None)
    module = str(class_module(kind))
    if writer is None and module == "typing" and layout(kind) is not None:
        writer = _typing  # typing caches some of its objects, so identity differs between processes
        WITHOUT_IDENTITY.add(kind)
    if writer is None and module.partition(".")[0] == "numpy":
        writer = _numpy_writer(kind)
    if writer is None and (module, kind.__name__) == ("pydantic_core._pydantic_core", "PydanticUndefinedType"):
        writer = _show  # the only object of its type
    if writer is None:
        writer = instance if layout(kind) is not None else _refuse
    return writer


def _dispatcher(walk: Walk, value: Any) -> Json:
    refuse_unseen(value)
    own = [pair for pair in plain_vars(value).items() if pair[0] not in _COPIED]
    return ["dispatched", walk.value(value._implementation), walk.pairs(own)]


def _numpy_writer(kind: type) -> Writer | None:
    names = [one.__name__ for one in kind.__mro__]
    if kind.__name__ == "ndarray":
        return _array
    if "dtype" in names:
        return _dtype
    if kind.__name__ == "ufunc":
        return _ufunc
    if kind.__name__ == "_ArrayFunctionDispatcher":  # numpy.prod and most functions of NumPy
        return _dispatcher
    if "generic" in names:
        return _numpy_scalar
    return None  # such as numpy.memmap and numpy.matrix
