"""What other code has changed in torch, NumPy and Python: their modules, classes, functions, caches and operators."""

from __future__ import annotations

import builtins
import functools
import gc
import operator
import os
import re
import sys
import types
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from trtcache.frontends.direct.classes import (
    C_DESCRIPTORS,
    C_FUNCTIONS,
    CONTAINERS,
    DERIVED,
    FUNCTION_TYPES,
    HEAP,
    NUMBERS_AND_TEXT,
    PLAIN,
    UNORDERED_SETS,
    WRAPPERS,
    WatchedRepr,
    class_dict,
    full_name,
    text_digest,
)
from trtcache.frontends.direct.code import ALL, OF_LOGGERS, UNSEEN
from trtcache.frontends.direct.errors import UnstableError
from trtcache.frontends.direct.ownership import (
    MODEL,
    OURS,
    file_owner,
    is_in_its_module,
    is_versioned_module,
    lookup,
    module_owner,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from trtcache.digests import Json
    from trtcache.frontends.direct.walk import Walk


NAMESPACES = (torch._ops._OpNamespace, torch._ops._Ops)
TORCH_OPERATORS = frozenset({"aten", "prims", "prim", "higher_order"})
_MANY = 100  # attributes
_FX = torch.fx._symbolic_trace.__file__
_DYNAMO = tuple(f"{os.path.dirname(torch.__file__)}{os.sep}{name}" for name in ("_dynamo", "_compile.py"))  # noqa: PTH120

_builtins_of = operator.attrgetter("__builtins__")  # FunctionType.__builtins__, which mypy knows or not


def unwrap_fx(function: FunctionType) -> FunctionType:
    """Return the function inside torch.fx.wrap's wrapper, installed while torch traces."""
    if function.__code__.co_filename == _FX and type(vars(function).get("__wrapped__")) is FunctionType:
        wrapped: FunctionType = vars(function)["__wrapped__"]
        return wrapped
    return function


def refuse_other_builtins(function: FunctionType) -> None:
    """Refuse a function that finds ``len`` and the like elsewhere than in the module ``builtins``.

    Raises:
        UnstableError: it does.
    """
    own = _builtins_of(function)
    if own and own is not vars(builtins):  # the constructor of a named tuple has none
        raise UnstableError("a function with builtins of its own")


def unwrap(function: FunctionType) -> FunctionType:
    """Return the function inside torch._dynamo's wrappers, which its import installs on some functions of torch."""
    inner = function.__dict__.get("__wrapped__")
    if type(inner) is FunctionType and function.__code__.co_filename.startswith(_DYNAMO):
        return unwrap(inner)
    return function


def function_changes(function: FunctionType, walk: Walk) -> list[Json]:
    """Describe the defaults of a versioned function, and attributes that were set on it."""
    code, doc, space = function.__code__, function.__doc__, function.__dict__
    written: list[Json] = [code.co_firstlineno]
    if (values := function.__defaults__) is not None:
        written += map(_default, values)
    if function.__kwdefaults__:
        written += map(_default, function.__kwdefaults__.values())
    if doc is not None and not (code.co_consts and doc is code.co_consts[0]):
        written.append(text_digest(doc) if type(doc) is str else walk.value(doc))
    if function.__closure__ is not None:
        written += _cells(function, walk)
    if space:
        own = {name: one for name, one in space.items() if name[:2] != "__" and type(one) in _SETTABLE}
        if own := {name: one for name, one in own.items() if not name.startswith("_torch")}:
            written.append(walk.pairs(own.items()))
        if type(inner := space.get("__wrapped__")) is FunctionType:
            written += function_changes(inner, walk)
    return written


def _cells(function: FunctionType, walk: Walk) -> Iterator[Json]:
    """Yield the functions in the closure of a versioned function, which other code can replace.

    Those of trtcache are left out: a recording in another thread wraps calls of modules.
    """
    is_ours = function.__code__.co_filename.startswith(OURS)
    for cell in () if is_ours else function.__closure__ or ():
        value: Any = next(iter(gc.get_referents(cell)), None)  # an empty cell raises an exception when it is read
        if type(value) is FunctionType:
            yield walk.value(value) if is_unversioned(value) else [value.__code__.co_qualname, *_other_globals(value)]
        elif type(value) in C_FUNCTIONS or type(value) in C_DESCRIPTORS:
            yield value.__qualname__


def _default(value: Any) -> Json:
    kind = type(value)
    if kind is tuple:  # a list is state: logging.shutdown has that of all handlers
        return [*map(_default, value)]
    return repr(value) if kind in _SHOWN else kind.__qualname__


_SHOWN = frozenset({bool, int, float, str, type(None), torch.dtype, torch.device})
_SETTABLE = PLAIN | {float, list, dict, tuple, set, torch.Tensor, FunctionType}


class Owners(dict[str, str]):
    """Owners of versioned modules: one has thousands of attributes from a hundred modules."""

    def __missing__(self, name: str) -> str:
        owner = module_owner(name)
        if owner != MODEL:  # that of a module which is not loaded
            self[name] = owner
        return owner


def describe_changes(  # noqa: C901  # one case for each kind
    space: Mapping[str, Any], walk: Walk, owner: str = "", *, is_read: bool = False
) -> list[Json]:
    """Describe attributes of a versioned module or class that other code has added or replaced.

    Plain values, and the types of other objects, are always described.

    Args:
        space: its attributes.
        walk: describes values that other code has set.
        owner: the name of the class, whose functions under their own names are left out.
        is_read: whether code that ran reads these attributes, so that private ones count.
    """
    written: list[Json] = []
    owners = walk.owners
    pairs = list(space.items())  # another thread may import more of torch meanwhile
    if len(pairs) > _MANY:  # the module torch has 1,000 functions in C, under their own names
        homes = {value.__module__ for _, value in pairs if type(value) is types.BuiltinFunctionType}
        homes = {home for home in homes if home in C_OF_PYTHON or owners[str(home)] != MODEL}
        pairs = [
            pair
            for pair in pairs
            if type(pair[1]) is not types.BuiltinFunctionType
            or pair[1].__name__ != pair[0]
            or pair[1].__module__ not in homes
        ]
    for name, value in pairs:
        kind = type(value)
        if kind is WatchedRepr:
            continue
        if kind is FunctionType or kind in WRAPPERS or kind is functools._lru_cache_wrapper:
            parts = (value,) if kind is FunctionType else filter(None, _functions(value))
            said = [one for part in parts if (one := _function(part, walk, name, owner)) is not None]
            if said and kind is property:
                said.append([part is not None for part in _functions(value)])
            written += [[name, one] for one in said]
        elif kind in C_DESCRIPTORS:
            if getattr(value, "__module__", None) not in C_OF_PYTHON and owners[str(_home(value))] == MODEL:
                written.append([name, walk.value(value)])
            elif value.__name__ != name:
                written.append([name, value.__qualname__])
        elif kind in PLAIN or kind is float or kind is re.Pattern:
            if name == "__doc__" and owner:
                written.append([name, text_digest(value)])
            elif name[:1] != "_" or ((owner or is_read) and name[:2] != "__"):
                written.append([name, walk.value(value)])
        elif issubclass(kind, type):
            if owners[value.__module__] == MODEL:
                written.append([name, walk.value(value)])
            else:
                if value.__flags__ & HEAP and lookup(value.__module__, value.__qualname__) is not value:
                    written.append([name, [full_name(value), "not in its module", *sorted(vars(value))]])
                elif value.__name__ != name:
                    written.append([name, full_name(value)])
                if is_read and "_abc_impl" in class_dict(value):
                    written.append([name, walk.registry(value)])
                if not owner and value not in walk.unpatched:
                    if patched := list(patched_methods(value, walk)):
                        written.append([name, patched])
                    else:
                        walk.unpatched.add(value)
        elif kind in {tuple, list, dict}:
            if owner and (name[:2] != "__" or all(type(one) in PLAIN for one in value)) and name not in DERIVED:
                written.append([name, walk.value(value)])
            elif is_read:  # others are added to a table while torch and Python run
                written += [[name, walk.value(one)] for one in _own_among(value.values() if kind is dict else value)]
        elif issubclass(kind, ModuleType):
            if not _is_loaded(value):
                raise UnstableError(f"another module {value.__name__} than the one that is loaded").below(name)
            if owners[value.__name__] == MODEL:
                written.append([name, walk.value(value)])
            elif value.__name__.rpartition(".")[2] != name:
                written.append([name, value.__name__])
        elif kind in _PARTIALS or owners[kind.__module__] == MODEL:
            written.append([name, walk.value(value)])
        elif name[:1] != "_" or is_read:
            entry: list[Json] = [name, kind.__module__, kind.__qualname__]
            if (is_read or owner) and type(own := getattr(value, "__dict__", None)) is dict:
                more = {key: one for key, one in own.items() if type(one) in NUMBERS_AND_TEXT or is_unversioned(one)}
                entry += [walk.pairs(more.items())] if more else []
            written.append(entry)
    return written


def _function(part: Any, walk: Walk, name: str, owner: str) -> Json:
    """Describe a function in a versioned module or class; None if it is there under its own name in its class."""
    if type(part) is not FunctionType or file_owner(part.__code__.co_filename) == MODEL:
        return walk.value(part)
    part = unwrap(part)
    qualname = part.__code__.co_qualname
    if owner and qualname == f"{owner}.{name}" and not part.__defaults__ and not vars(part):
        return [*_cells(part, walk), *_other_globals(part)] or None
    return [qualname, *function_changes(part, walk), *_other_globals(part)]


def _other_globals(function: FunctionType) -> list[Json]:
    """Return a mark if a versioned function looks names up elsewhere than in its module."""
    return [] if is_in_its_module(function) else ["other globals"]


def patched_methods(cls: type, walk: Walk) -> Iterator[Json]:
    """Yield the methods of a versioned class that other files define."""
    space = vars(cls).copy()
    if FUNCTION_TYPES.isdisjoint(map(type, space.values())):  # most classes in C
        return
    code = [pair for pair in space.items() if type(pair[1]) in FUNCTION_TYPES]
    if _are_versioned([value for _, value in code if type(value) is FunctionType]):
        code = [pair for pair in code if type(pair[1]) is not FunctionType]
    for name, value in code:
        for part in _functions(value):
            if type(part) is FunctionType and is_unversioned(part):
                yield [name, walk.value(part)]


def is_unversioned(value: Any) -> bool:
    """Return whether a value is a function or a class that is not versioned."""
    if type(value) is FunctionType:
        return file_owner(value.__code__.co_filename) == MODEL
    return _is_code(type(value)) and not is_versioned_module(value.__module__)


def registered_nodes() -> list[tuple[Any, list[Any]]]:
    """Return versioned classes that other code has registered with pytree, with the functions that it gave."""
    found: list[tuple[Any, list[Any]]] = []
    for cls, node in list(pytree.SUPPORTED_NODES.items()):
        functions = [node.flatten_fn, node.unflatten_fn, node.flatten_with_keys_fn]
        if not isinstance(cls, type) or not is_versioned_module(cls.__module__):
            continue
        if any(type(one) is not FunctionType or is_unversioned(one) for one in functions if one is not None):
            found.append((cls, functions))
    return sorted(found, key=lambda one: full_name(one[0]))


def _are_versioned(functions: Iterable[FunctionType]) -> bool:
    """Return whether all functions are versioned; many are of a few files."""
    return all(file_owner(file) != MODEL for file in set(map(_FILE_OF, functions)))


def _is_loaded(module: ModuleType) -> bool:
    """Return whether a module is the one of its name, or of the name that it was imported by.

    ``_collections_abc`` calls itself ``collections.abc``; torch puts some modules inside of others, as ``m``.
    """
    known = sys.modules.get(module.__name__, module)
    spec = vars(module).get("__spec__")
    return module in {known, vars(known).get("m"), sys.modules.get(getattr(spec, "name", ""))}


def _is_code(kind: type) -> bool:
    """Return whether objects of a type are functions or classes."""
    return kind is FunctionType or issubclass(kind, type)


def _own_among(values: Collection[Any]) -> list[Any]:
    """Return the functions and classes among values that are not versioned."""
    kinds = {kind for kind in set(map(type, values)) if _is_code(kind)}
    if FunctionType in kinds and _are_versioned([one for one in values if type(one) is FunctionType]):
        kinds.discard(FunctionType)  # tables of decompositions have thousands
    return [one for one in values if type(one) in kinds and is_unversioned(one)] if kinds else []


_FILE_OF = operator.attrgetter("__code__.co_filename")
C_OF_PYTHON = frozenset({None, "builtins"})
"""Modules that functions in C of Python's types and builtins say they are of."""

_PARTIALS = frozenset({functools.partial, functools.partialmethod})


def _home(value: Any) -> object:
    owner = getattr(value, "__objclass__", None)
    return owner.__module__ if owner is not None else getattr(value, "__module__", None)


def _functions(value: Any) -> tuple[Any, ...]:
    if type(value) is property:
        return (value.fget, value.fset, value.fdel)
    if type(value) is functools._lru_cache_wrapper:
        return (value.__wrapped__,)
    return (value.__func__,) if type(value) in WRAPPERS else (value,)


def value_of_builtins(name: str, walk: Walk) -> Iterator[Json]:
    """Yield the description of a value that other code has set in ``builtins``, where a global is looked up last."""
    if name in vars(builtins):
        value = vars(builtins)[name]
        exporting = sys.modules.get("torch._export.non_strict_utils")  # it replaces max and min during an export
        if type(value) is functools.partial and value.func is getattr(exporting, "_tensor_min_max", ...):
            value = value.keywords["real_callable"]
        kind = type(value)
        if kind not in {types.BuiltinFunctionType, FunctionType} and not issubclass(kind, type):
            yield kind.__qualname__ if kind.__module__ == "_sitebuiltins" else walk.value(value)


REGISTERED_LATE = ("sqlite3.", "numpy.random.")
"""Modules that register their classes with Python's when they are imported, as torch's first export does."""


def refuse_unseen(value: Any) -> None:
    """Refuse a function of torch or Python that returns what is not compared, such as ``torch.Tensor.is_pinned``.

    Raises:
        UnstableError: it does.
    """
    if value.__name__ in UNORDERED_SETS or (value.__name__ in UNSEEN and value.__name__[:2] != "__"):
        raise UnstableError(f"{value.__qualname__}, which reads what is not compared")


def cache_items(value: Any) -> list[tuple[Any, Any]]:
    """Return keys and results in the cache of a ``functools.lru_cache`` function, from ``gc.get_referents``.

    See lru_cache_tp_traverse in CPython's Modules/_functoolsmodule.c: keys and results alternate, each pair with the
    type of its link, followed by the dictionary; without a limit, the dictionary has the results.

    Raises:
        UnstableError: the cache cannot be read.
    """
    inside, info = gc.get_referents(value), value.cache_info()
    if info.maxsize is None:
        caches = [one for one in inside[:2] if type(one) is dict and len(one) == info.currsize]
        if caches:
            return list(caches[0].items())
    rest = inside[1 : 1 + 3 * info.currsize]
    if info.maxsize is not None and all(getattr(one, "__name__", "") == "_lru_list_elem" for one in rest[2::3]):
        return list(zip(rest[0::3], rest[1::3], strict=True))
    raise UnstableError("a cache that cannot be read")


def refuse_unseen_state(value: Any) -> None:
    """Refuse a versioned function that reads a logger's state, or a cached container that other code may have changed.

    Raises:
        UnstableError: it reads a logger's state, or uses an ``lru_cache`` which has returned a list, set or dictionary.
    """
    if value.__module__ == "logging" and value.__name__ in OF_LOGGERS:
        raise UnstableError(f"{value.__qualname__}, which reads a logger's state")
    refuse_unseen(value)
    while type(inner := getattr(value, "__wrapped__", None)) is FunctionType and type(value) is FunctionType:
        value = inner
    kept = [value]
    if type(value) is FunctionType:
        space = value.__globals__
        kept = [space[name] for name in value.__code__.co_names if name in space]
    for function in kept:
        is_cached = type(function) is functools._lru_cache_wrapper
        if is_cached and any(_has_container(result) for _, result in cache_items(function)):
            raise UnstableError(f"{function.__qualname__}, which keeps a list, a set or a dictionary that it returned")


def _has_container(value: Any) -> bool:
    return type(value) in CONTAINERS or (type(value) is tuple and any(map(_has_container, value)))


def replaced_operators(names: set[str]) -> list[tuple[str, Any]]:
    """Return torch's operators that have another one's place, name or kernel, or attributes that torch does not set.

    Args:
        names: names that code looks up; operators under other names do not count, unless ``ALL`` is among them.
    """
    found: list[tuple[str, Any]] = []
    for label in sorted(TORCH_OPERATORS):
        space = vars(getattr(torch.ops, label))
        overloads = names if label in names else ()
        for name in sorted(space if ALL in names else names & space.keys()):
            one = space[name]
            is_packet = type(one) is torch._ops.OpOverloadPacket
            if is_packet and (one._qualified_op_name != f"{label}::{name}" or operator_changes(one, overloads)):
                found.append((f"{label}.{name}", one))
    return found


_OF_OPERATOR = frozenset({*vars(torch.ops.aten.relu), *vars(torch.ops.aten.relu.default)}) - {"default", "out"}
_OF_OPERATOR |= {
    name
    for kind in torch._ops.OpOverload.__mro__
    for name, one in vars(kind).items()
    if isinstance(one, functools.cached_property)
}
# What torch._prims sets on the operators that it makes.
_OF_PRIM = frozenset({"__doc__", "schema", "prim_impl", "prim_meta_impl", "impl_aten", "return_type"})


def operator_changes(value: Any, overloads: Collection[str] | None = None) -> list[tuple[str, Any]]:
    """Return the attributes of an operator or an overload that torch does not set, and a name that is not its own.

    Kernels are compared of all its overloads, or of those under some names.
    """
    space = vars(value)
    full = space.get("_overloadpacket", value)._qualified_op_name
    is_packet = "_overloadname" not in space
    name = full.rpartition("::")[2]
    own = name if is_packet else f"{name}.{space['_overloadname']}"
    changed = [] if space["__name__"] == own else [("__name__", space["__name__"])]
    overload = torch._ops.OpOverload
    is_called = not is_packet and (overloads is None or space["_overloadname"] in overloads)
    if is_called and str(space["_schema"]) not in (said := _schema_message(space["_op"])):
        changed.append(("_op", said))
    for key, one in [pair for pair in space.items() if pair[0] not in _OF_OPERATOR or type(pair[1]) is overload]:
        if type(one) is overload:
            if one._overloadpacket is not value or one._overloadname != key or operator_changes(one, overloads):
                changed.append((key, one))
        elif not (key in _OF_PRIM and full.startswith("prims::")):
            changed.append((key, one))
    return changed


def _schema_message(kernel: Any) -> str:
    """Return torch's message for a call of an overload without its arguments, which has the overload's schema in it."""
    try:
        kernel(**{"": None})  # no overload has an argument without a name
    except (RuntimeError, TypeError) as error:  # torch's, or one of a function in Python
        return str(error)
    return ""
