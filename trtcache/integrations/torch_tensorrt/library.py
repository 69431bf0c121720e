"""The imported torch_tensorrt, and the functions to wrap."""

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
"""The modules that contain ``interpret_module_to_result`` and ``convert_module``."""


@dataclass(frozen=True, slots=True)
class TorchTensorrt:
    """torch_tensorrt and its TensorRT, of a version that matches its contract."""

    package: Any
    tensorrt: Any
    conversion: Any
    contract: Contract

    @classmethod
    def of(cls, package: Any) -> TorchTensorrt:
        """Return the imported package with its contract.

        Raises:
            BackendUnavailableError: it is too old or too new, or differs from its contract.
        """
        version = str(getattr(package, "__version__", "of no version"))
        contract = contract_for(version)
        if contract is None:
            raise BackendUnavailableError(PACKAGE, unknown_version(version))
        conversion = import_module(f"{_CONVERSION}._conversion")
        if wrong := breach(contract, conversion):
            raise BackendUnavailableError(PACKAGE, f"version {version} differs from {contract.version}: {wrong}")
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
        """Return whether this TensorRT supports refit."""
        return bool(self.package.ENABLED_FEATURES.refit)

    def result(self, fields: dict[str, Any], module: Any) -> Any:
        """Return a result in this version's class; output sizes are those of the current partition."""
        if SHAPES in self.contract.result:
            fields = {**fields, SHAPES: self.conversion.extract_symbolic_shape_expressions(module)}
        return getattr(self.conversion, self.contract.result_type)(**fields)


def callers() -> Iterator[ModuleType]:
    """Yield the imported modules that call a conversion by name."""
    for name in _CALLERS:
        if name in sys.modules:
            yield sys.modules[name]
