"""The torch_tensorrt of this process, and the places in it where trtcache takes hold."""

from __future__ import annotations

import functools
import inspect
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trtcache.errors import BackendUnavailableError
from trtcache.integrations.torch_tensorrt.contracts import (
    SHAPES,
    Contract,
    breach,
    contract_for,
    unknown_version,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

PACKAGE = "torch_tensorrt"
_CONVERSION = f"{PACKAGE}.dynamo.conversion"
_CALLERS = (f"{_CONVERSION}._conversion", _CONVERSION, f"{PACKAGE}.dynamo._compiler")
"""The modules that have ``interpret_module_to_result`` and ``convert_module`` under these names."""


@dataclass(frozen=True, slots=True)
class Library:
    """torch_tensorrt and its TensorRT, of a version whose contract is known and kept."""

    package: Any
    tensorrt: Any
    conversion: Any
    contract: Contract

    @classmethod
    def of(cls, package: Any) -> Library:
        """Return the imported package with what it is known to promise.

        Raises:
            BackendUnavailableError: it is too old or too new, or is not as its version was.
        """
        version = str(getattr(package, "__version__", "of no version"))
        contract = contract_for(version)
        if contract is None:
            raise BackendUnavailableError(PACKAGE, unknown_version(version))
        conversion = import_module(f"{_CONVERSION}._conversion")
        if wrong := breach(contract, conversion):
            raise BackendUnavailableError(PACKAGE, f"version {version} is not as {contract.version} was: {wrong}")
        return cls(package, import_module("tensorrt"), conversion, contract)

    @property
    def is_debugging(self) -> bool:
        """Whether torch_tensorrt's ``Debugger`` is on, which builds engines of another kind."""
        interpreter = getattr(self.conversion, "TRTInterpreter", None)
        return isinstance(inspect.getattr_static(interpreter, "__init__", None), functools.partialmethod)

    @property
    def converters(self) -> Any:
        """The registry of converters."""
        return import_module(f"{_CONVERSION}._ConverterRegistry").DYNAMO_CONVERTERS

    def has_refit(self) -> bool:
        """Say whether this TensorRT can give an engine other weights."""
        return bool(self.package.ENABLED_FEATURES.refit)

    def result(self, fields: dict[str, Any], module: Any) -> Any:
        """Return a result as this version makes it; sizes of outputs are those of the partition at hand."""
        if SHAPES in self.contract.result:
            fields = {**fields, SHAPES: self.conversion.extract_symbolic_shape_expressions(module)}
        return getattr(self.conversion, self.contract.result_type)(**fields)


def callers() -> Iterator[ModuleType]:
    """Yield the imported modules in which a conversion is called by name."""
    for name in _CALLERS:
        if name in sys.modules:
            yield sys.modules[name]
