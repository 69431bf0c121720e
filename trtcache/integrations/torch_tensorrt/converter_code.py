"""What identifies a converter that is not torch_tensorrt's own: its code, and all that its code can refer to.

A name and a file do not: a function that another one returned has the same of both for every value in its closure.
"""

from __future__ import annotations

import enum
import functools
import inspect
import logging
import sys
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import torch

from trtcache.digests import Digest, encode
from trtcache.errors import CanonicalizationError
from trtcache.lowering.operators import identify_file, is_standard_library

if TYPE_CHECKING:
    from trtcache.digests import Json

_VERSIONED = frozenset({"torch", "torch_tensorrt", "tensorrt", "tensorrt_rtx", "builtins"})
"""Packages whose versions are in every key of a partition."""

_PLAIN = frozenset({type(None), type(...), bool, int, float, complex, str, bytes, slice})
_TORCHS = (torch.dtype, torch.layout, torch.memory_format, torch._ops.OpOverload, torch._ops.OpOverloadPacket)


def converter_digest(converter: object) -> Digest:
    """Return a digest of a converter's code, closure, defaults and globals, and of those of all functions in them.

    Raises:
        CanonicalizationError: it has no source file, or refers to a value that has no stable description.
    """
    try:
        Path(inspect.getfile(inspect.unwrap(converter))).stat()  # type: ignore[arg-type]  # any object: see the error
    except (TypeError, OSError) as error:
        raise CanonicalizationError(f"converter {converter!r}", f"no source file: {error}") from error
    try:
        document = _Writer().write(converter)
    except ValueError as error:
        raise CanonicalizationError(f"converter {converter!r}", f"it has no digest: {error}") from error
    return Digest.of(encode(document))


class _Writer:
    """Write values as JSON; a function that was written before by its number."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def write(self, value: Any) -> Json:  # noqa: C901  # one case for each type
        """Return a value as JSON.

        Raises:
            ValueError: it has no stable description.
        """
        match value:
            case enum.Enum():
                return ["enum", f"{type(value).__module__}.{value!s}"]
            case _ if type(value) in _PLAIN:
                return [type(value).__name__, repr(value)]
            case list() | tuple():
                return [type(value).__name__, *map(self.write, value)]
            case set() | frozenset():
                return [type(value).__name__, *sorted(map(self.write, value), key=encode)]
            case dict():
                return ["dict", *([self.write(name), self.write(one)] for name, one in value.items())]
            case _ if isinstance(value, _TORCHS):
                return ["torch", str(value)]
            case logging.Logger():
                return ["logger", value.name]
            case ModuleType():
                return ["module", value.__name__, _origin(value.__name__)]
            case type():
                return ["class", f"{value.__module__}.{value.__qualname__}", _origin(value.__module__)]
            case FunctionType():
                return self._write_function(value)
            case MethodType():
                return ["method", self.write(value.__func__), self.write(value.__self__)]
            case BuiltinFunctionType() if not isinstance(value.__self__, ModuleType | None):
                raise ValueError(f"{value!r} belongs to an object")
            case BuiltinFunctionType():
                return ["builtin", f"{value.__module__}.{value.__qualname__}", _origin(value.__module__ or "builtins")]
            case functools.partial():
                return ["partial", self.write(value.func), self.write(value.args), self.write(value.keywords)]
        raise ValueError(f"a {type(value).__name__} has no stable description: {value!r}")

    def _write_function(self, function: FunctionType) -> Json:
        if id(function) in self._numbers:
            return ["again", self._numbers[id(function)]]
        self._numbers[id(function)] = len(self._numbers)
        code, names = function.__code__, function.__globals__
        closure = [_content(cell) for cell in function.__closure__ or ()]
        document: list[Json] = [
            "function",
            f"{names.get('__name__')}.{code.co_qualname}",
            *map(self.write, (function.__defaults__, function.__kwdefaults__, closure)),
        ]
        if not _is_versioned(str(names.get("__name__")), code.co_filename):
            document += [self._write_code(code), self.write({one: names[one] for one in _globals(code, names)})]
        return document

    def _write_code(self, code: CodeType) -> Json:
        constants = [self._write_code(one) if isinstance(one, CodeType) else self.write(one) for one in code.co_consts]
        variables = [*code.co_varnames, "", *code.co_freevars, "", *code.co_cellvars]
        return [code.co_code.hex(), code.co_flags, code.co_argcount, list(code.co_names), list(variables), constants]


def _content(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return ...


def _globals(code: CodeType, names: dict[str, Any]) -> list[str]:
    """Return the globals that code and the code in it may refer to; a name of an attribute may be among them."""
    found, left = set[str](), [code]
    while left:
        one = left.pop()
        found.update(one.co_names)
        left += [constant for constant in one.co_consts if isinstance(constant, CodeType)]
    return sorted(found & names.keys())


def _is_versioned(module: str, file: str = "") -> bool:
    package = module.partition(".")[0]
    return package in _VERSIONED or package in sys.stdlib_module_names or (bool(file) and is_standard_library(file))


def _origin(module: str) -> Json:
    """Return what identifies the code of a module: nothing for those whose versions are in the key anyway.

    Raises:
        ValueError: it is in no installed distribution.
    """
    if _is_versioned(module):
        return None
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        raise ValueError(f"module {module} has no file")
    return identify_file(file)
