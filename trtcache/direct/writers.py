"""How values of each type are written."""

from __future__ import annotations

import collections
import contextvars
import datetime
import decimal
import functools
import gc
import logging
import os
import pathlib
import re
import sys
import threading
import types
import weakref
from typing import TYPE_CHECKING, Any

import torch

from trtcache.digests import hash_bytes
from trtcache.direct.attributes import Describer, UnstableError, is_module_object
from trtcache.direct.codes import code_digest
from trtcache.direct.orders import is_ordered
from trtcache.direct.origin import is_trusted
from trtcache.direct.outside import asks
from trtcache.lowering.contents import Content

if TYPE_CHECKING:
    from collections.abc import Callable

    from trtcache.digests import Json

OF_TORCH = frozenset({"aten", "prims", "prim", "higher_order"})
"""Namespaces of operators whose kernels are torch's."""

TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})


def _list(self: Describer, value: list[Any]) -> Json:
    return ["list", *self.items(value)]


def _tuple(self: Describer, value: tuple[Any, ...]) -> Json:
    return ["tuple", *self.items(value)]


def _dict(self: Describer, value: dict[Any, Any]) -> Json:
    if value is sys.modules:
        raise UnstableError("all modules")
    return ["dict", self.pairs(value)]


def _set(self: Describer, value: Any) -> Json:
    made = self.items(value)
    return ["set", type(value).__name__, *(made if is_ordered(value) else sorted(made, key=str))]


def _proxy(self: Describer, value: Any) -> Json:
    return ["proxy", self.pairs(dict(value))]


def _ordered(self: Describer, value: Any) -> Json:
    kind = type(value).__name__
    more = self.of(value.default_factory) if isinstance(value, collections.defaultdict) else None
    return [kind, more, self.pairs(value)]


def _deque(self: Describer, value: collections.deque[Any]) -> Json:
    return ["deque", value.maxlen, *self.items(value)]


def _said(self: Describer, value: Any) -> Json:  # noqa: ARG001  # every writer is called alike
    return [type(value).__name__, repr(value)]


def _float(self: Describer, value: float) -> Json:  # noqa: ARG001
    return {"float": value.hex()}


def _bytes(self: Describer, value: Any) -> Json:  # noqa: ARG001
    return [type(value).__name__, hash_bytes(bytes(value)).hex()]


def _slice(self: Describer, value: slice) -> Json:
    return ["slice", *self.items((value.start, value.stop, value.step))]


def _class(self: Describer, value: type) -> Json:
    return self.a_class(value)


def _function(self: Describer, value: types.FunctionType) -> Json:
    return self.a_function(value)


def _method(self: Describer, value: types.MethodType) -> Json:
    return ["method", self.of(value.__self__), self.of(value.__func__)]


def _builtin(self: Describer, value: Any) -> Json:
    if asks(value):
        raise UnstableError(f"{value.__qualname__}, a function that asks the process or the machine")
    owner = value.__self__
    whose: Json = None
    if owner is not None and not isinstance(owner, types.ModuleType):
        whose = self.of(owner) if type(owner).__name__ != "PyCapsule" else None
    return ["builtin", str(value.__module__), value.__qualname__, whose]


def _property(self: Describer, value: property) -> Json:
    return ["property", self.of(value.fget), self.of(value.fset), self.of(value.fdel)]


def _slot(self: Describer, value: Any) -> Json:
    return ["slot", self.a_class(value.__objclass__), value.__name__]


def _partial(self: Describer, value: functools.partial[Any]) -> Json:
    again = self.once(value)
    return again or ["partial", self.of(value.func), self.items(value.args), self.pairs(value.keywords)]


def _module(self: Describer, value: types.ModuleType) -> Json:
    if not is_module_object(value):
        raise UnstableError(f"module {value.__name__}, which cannot be found by its name")
    self.spaces[value.__name__] = value
    return ["module", value.__name__]


def _logger(self: Describer, value: logging.Logger) -> Json:  # noqa: ARG001
    return ["logger", value.name, value.getEffectiveLevel(), value.disabled, value.manager.disable]


def _context(self: Describer, value: contextvars.ContextVar[Any]) -> Json:
    try:
        return ["context", value.name, self.of(value.get())]
    except LookupError:
        return ["context", value.name]


def _lock(self: Describer, value: Any) -> Json:  # noqa: ARG001
    return ["lock", repr(value).partition(" ")[0]]


def _reference(self: Describer, value: weakref.ref[Any]) -> Json:
    return ["weak", self.of(value())]


def _pattern(self: Describer, value: re.Pattern[Any]) -> Json:
    return ["pattern", self.of(value.pattern), value.flags]


def _path(self: Describer, value: pathlib.PurePath) -> Json:
    return ["path", self.a_class(type(value)), str(value)]


def _code(self: Describer, value: types.CodeType) -> Json:  # noqa: ARG001
    return ["code", code_digest(value)]


def _named(self: Describer, value: Any) -> Json:  # noqa: ARG001
    return ["torch", type(value).__name__, str(value)]


def _operator(self: Describer, value: Any) -> Json:
    """Describe an operator of torch's own by its name; what is run for another can be Python's, which no code names."""
    if str(value).partition(".")[0] not in OF_TORCH:
        raise UnstableError(f"{value}, an operator that is not torch's own")
    return _named(self, value)


def _size(self: Describer, value: torch.Size) -> Json:
    return ["size", *self.items(tuple(value))]


def tensor(self: Describer, value: torch.Tensor) -> Json:
    """Describe a tensor: one of the model's weights by its name, another by its content."""
    name = self.weight(value)
    if value.layout != torch.strided or value.device.type == "meta" or type(value).__torch_dispatch__ is not _PLAIN:
        raise UnstableError("a tensor without values or strides")
    if name is not None:  # outside of its own place it is a constant to torch.export, with its values
        return ["weight", name, Content.of(value).digest]
    whose = self.memory(value.untyped_storage()._cdata)
    return self.once(value) or ["tensor", whose, *like(value), Content.of(value).digest, *_marks(self, value)]


_PLAIN = torch.Tensor.__torch_dispatch__


def like(value: torch.Tensor) -> list[Json]:
    """Describe all of a tensor but its values and its place in memory."""
    flags: Json = [type(value).__name__, value.requires_grad, value.is_conj(), value.is_neg()]
    sizes: list[Json] = [list(value.shape), list(value.stride()), int(value.storage_offset())]
    return [str(value.dtype), str(value.device), *sizes, flags]


def _marks(self: Describer, value: torch.Tensor) -> list[Json]:
    return [self.pairs(vars(value))] if vars(value) else []


def _nn_module(self: Describer, value: torch.nn.Module) -> Json:
    path = self.module(value)
    if path is None:
        raise UnstableError(f"a {type(value).__name__} that is no submodule")
    return ["submodule", path]


def _cached(self: Describer, value: Any) -> Json:
    """Describe a function with a cache by the function and what is in the cache now."""
    code = getattr(value.__wrapped__, "__code__", None)
    if code is not None and is_trusted(code.co_filename):
        return ["cached", self.of(value.__wrapped__)]
    if (again := self.once(value)) is not None:
        return again
    kept: list[Json] = []
    for key, result in _kept(value):
        try:
            kept.append([self.of(key), self.of(result)])
        except UnstableError as error:
            raise error.below(f"cache of {value.__qualname__}") from None
    return ["cached", self.of(value.__wrapped__), sorted(kept, key=str)]


def _kept(value: Any) -> list[tuple[Any, Any]]:
    """Return what is in the cache of ``functools.lru_cache``: the garbage collector is shown it.

    CPython's Modules/_functoolsmodule.c, lru_cache_tp_traverse: keys and results in turn, each with the type of a
    link, then the dictionary; in one without a limit the dictionary has the results.
    """
    inside, info = gc.get_referents(value), value.cache_info()
    if info.maxsize is None:
        caches = [one for one in inside[:2] if type(one) is dict and len(one) == info.currsize]
        if caches:
            return list(caches[0].items())
    rest = inside[1 : 1 + 3 * info.currsize]
    if info.maxsize is not None and all(getattr(one, "__name__", "") == "_lru_list_elem" for one in rest[2::3]):
        return list(zip(rest[0::3], rest[1::3], strict=True))
    raise UnstableError("a cache that cannot be looked into")


def _environment(self: Describer, value: Any) -> Json:  # noqa: ARG001
    """Describe the environment as itself: which variables are asked for is recorded."""
    if value is not os.environ:
        raise UnstableError("an environment of its own")
    return ["environment"]


def _sentinel(self: Describer, value: object) -> Json:
    return self.once(value) or ["sentinel"]


def _array(self: Describer, value: Any) -> Json:
    if value.dtype.hasobject:
        raise UnstableError("an array of objects")
    root = value
    while type(root.base) is type(value):
        root = root.base
    said: list[Json] = [list(value.shape), list(value.strides), value.flags.writeable, self.memory(id(root))]
    return self.once(value) or ["array", str(value.dtype), *said, hash_bytes(value.tobytes()).hex()]


def _number(self: Describer, value: Any) -> Json:  # noqa: ARG001
    return ["number", str(value.dtype), value.tobytes().hex()]


_EXACT: dict[type, Callable[[Describer, Any], Json]] = {
    float: _float,
    list: _list,
    tuple: _tuple,
    dict: _dict,
    set: _set,
    frozenset: _set,
    object: _sentinel,
    os._Environ: _environment,
    types.MappingProxyType: _proxy,
    collections.OrderedDict: _ordered,
    collections.defaultdict: _ordered,
    collections.Counter: _ordered,
    collections.deque: _deque,
    types.SimpleNamespace: lambda self, value: self.once(value) or ["namespace", self.pairs(vars(value))],
    bytes: _bytes,
    bytearray: _bytes,
    slice: _slice,
    types.FunctionType: _function,
    types.MethodType: _method,
    types.BuiltinFunctionType: _builtin,
    property: _property,
    types.MethodDescriptorType: _slot,
    types.WrapperDescriptorType: _slot,
    types.GetSetDescriptorType: _slot,
    types.MemberDescriptorType: _slot,
    types.ClassMethodDescriptorType: _slot,
    functools.partial: _partial,
    functools._lru_cache_wrapper: _cached,
    types.ModuleType: _module,
    types.CodeType: _code,
    contextvars.ContextVar: _context,
    weakref.ref: _reference,
    re.Pattern: _pattern,
    torch.Size: _size,
    torch.Tensor: tensor,
    torch.nn.Parameter: tensor,
}

_SAID = (complex, range, type(Ellipsis), type(NotImplemented), decimal.Decimal, datetime.date, datetime.datetime)
_ALSO_SAID = (datetime.time, datetime.timedelta, types.UnionType, types.GenericAlias, type(sys.version_info))
_TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme, torch.finfo, torch.iinfo)
_OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
_LOCKS = (type(threading.Lock()), type(threading.RLock()))

WRITERS: dict[type, Callable[[Describer, Any], Json] | None] = {
    **_EXACT,
    **dict.fromkeys((*_SAID, *_ALSO_SAID), _said),
    **dict.fromkeys((*_TORCH, torch._ops._OpNamespace, torch._ops._Ops), _named),
    **dict.fromkeys(_OPERATORS, _operator),
    **dict.fromkeys(_LOCKS, _lock),
}
"""For each type that was met what writes its values; None where nothing does."""

_BASES: tuple[tuple[type, Callable[[Describer, Any], Json]], ...] = (
    (type, _class),
    (torch.nn.Module, _nn_module),
    (types.ModuleType, _module),
    (logging.Logger, _logger),
    (pathlib.PurePath, _path),
)


def by_bases(kind: type) -> Callable[[Describer, Any], Json] | None:
    """Return what writes values of a type by what it derives from."""
    for base, writer in _BASES:
        if issubclass(kind, base):
            return writer
    if kind.__module__ == "typing":
        return _said
    if kind.__module__ == "numpy":
        return _of_numpy(kind)
    return None


def _of_numpy(kind: type) -> Callable[[Describer, Any], Json] | None:
    if kind.__name__ == "ndarray":
        return _array
    if kind.__name__ == "ufunc":
        return lambda _, value: ["ufunc", value.__name__]
    if kind.__name__ == "_ArrayFunctionDispatcher":  # what numpy.prod and most of its functions are
        return lambda self, value: ["dispatched", self.of(value._implementation)]
    if any(one.__name__ == "ndarray" for one in kind.__mro__):
        return None  # numpy.memmap and numpy.matrix
    return _number if hasattr(kind, "dtype") and hasattr(kind, "tobytes") else None
