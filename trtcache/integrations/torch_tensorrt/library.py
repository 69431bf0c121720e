"""The imported torch_tensorrt, and the interface of each of its versions that the adapter relies on.

Contracts are taken from the sources of every version (``dynamo/conversion/_conversion.py``,
``dynamo/_engine_cache.py``). A version that is not in the table, or that differs from its contract, is left alone: the
program runs as without trtcache.
"""

from __future__ import annotations

import functools
import inspect
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import BackendUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

ENGINE = "serialized_engine"
SHAPES = "symbolic_shape_expressions"
"""Output sizes as expressions over the current program's symbols: computed for each program, never stored."""


@frozen_dataclass
class Contract:
    """How one minor version converts a partition.

    Attributes:
        version: ``2.14``.
        parameters: the parameters of ``interpret_module_to_result``.
        result_type: the class name of its result.
        result: the fields of that class, in order.
        cached: the fields that ``BaseEngineCache.insert`` takes and ``check`` returns, in order.
    """

    version: str
    parameters: tuple[str, ...]
    result_type: str
    result: tuple[str, ...]
    cached: tuple[str, ...]

    @property
    def stored(self) -> tuple[str, ...]:
        """The fields of a result that an entry stores besides the engine."""
        return tuple(name for name in self.result if name not in {ENGINE, SHAPES})


_NAMES = f"{ENGINE} input_names output_names"
_OUTPUTS = "weight_name_map requires_output_allocator"
_DEVICES = "requires_native_multidevice"
_VERSIONS = {
    # version: further parameters, further fields of the result, further fields in the cache
    "2.8": ("arg_inputs kwarg_inputs engine_cache", _OUTPUTS, _OUTPUTS),
    "2.9": ("arg_inputs kwarg_inputs engine_cache", _OUTPUTS, _OUTPUTS),
    "2.10": ("engine_cache", _OUTPUTS, _OUTPUTS),
    "2.12": ("engine_cache", f"{_OUTPUTS} {SHAPES} {_DEVICES}", f"{_OUTPUTS} {_DEVICES}"),
    "2.13": (
        "engine_cache",
        f"requires_output_allocator {SHAPES} {_DEVICES}",
        f"requires_output_allocator {_DEVICES}",
    ),
    "2.14": (
        "engine_cache input_binding_names output_binding_names",
        f"requires_output_allocator {SHAPES} {_DEVICES} aliased_io",
        f"requires_output_allocator {_DEVICES} aliased_io",
    ),
}
CONTRACTS: Mapping[str, Contract] = {
    version: Contract(
        version=version,
        parameters=tuple(f"module inputs settings {parameters}".split()),
        # Before 2.10 the interpreter serialized the engine and used the cache itself.
        result_type="TRTInterpreterResult" if version in {"2.8", "2.9"} else "SerializedInterpreterResult",
        result=tuple(f"{_NAMES} {result}".split()),
        cached=tuple(f"{_NAMES} input_specs compilation_settings {cached}".split()),
    )
    for version, (parameters, result, cached) in _VERSIONS.items()
}
"""Minor version -> its contract."""


def contract_for(version: str) -> Contract | None:
    """Return the contract of a version such as ``2.14.0+cu130``, or None if it is unknown."""
    return CONTRACTS.get(".".join(version.split(".")[:2]))


def known_versions() -> str:
    """Return the range of known versions: ``2.8 to 2.14``."""
    versions = list(CONTRACTS)
    return f"{versions[0]} to {versions[-1]}"


def unknown_version(version: str) -> str:
    """Return why a version is left alone, and the remedy: ``version 2.7.1 is not known; 2.8 to 2.14 are; ...``."""
    why = f"version {version} is not known; {known_versions()} are"
    try:
        minor = tuple(map(int, version.split(".")[:2]))
    except ValueError:
        return why
    newest = tuple(map(int, list(CONTRACTS)[-1].split(".")))
    return f"{why}; upgrade {'trtcache' if minor > newest else 'torch_tensorrt'}"


def breach(contract: Contract, conversion: ModuleType) -> str | None:
    """Return how torch_tensorrt's ``_conversion`` module differs from its contract, or None."""
    interpret = getattr(conversion, "interpret_module_to_result", None)
    if interpret is None:
        return "interpret_module_to_result is gone"
    if (found := tuple(inspect.signature(interpret).parameters)) != contract.parameters:
        return f"interpret_module_to_result takes {', '.join(found)}"
    result = getattr(conversion, contract.result_type, None)
    if (fields := getattr(result, "_fields", None)) != contract.result:
        return f"{contract.result_type} has {', '.join(fields or ['no fields'])}"
    if SHAPES in contract.result and not hasattr(conversion, "extract_symbolic_shape_expressions"):
        return "extract_symbolic_shape_expressions is gone"
    return None


PACKAGE = "torch_tensorrt"
_CONVERSION = f"{PACKAGE}.dynamo.conversion"
_CALLERS = (f"{_CONVERSION}._conversion", _CONVERSION, f"{PACKAGE}.dynamo._compiler")
"""The modules that contain ``interpret_module_to_result`` and ``convert_module``."""


@frozen_dataclass
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
