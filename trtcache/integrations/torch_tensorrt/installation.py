"""Installation of the cache into torch_tensorrt in a running program, its removal, and counts for the line at exit.

Contracts are taken from the sources of every version (``dynamo/conversion/_conversion.py``,
``dynamo/_engine_cache.py``). A version that is not in the table, or that differs from its contract, is left alone: the
program runs as without trtcache.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

from trtcache.config.frozen import frozen_dataclass
from trtcache.config.units import format_duration
from trtcache.errors import BackendUnavailableError, TrtcacheError

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from trtcache.cache import Cache
    from trtcache.store.contract import Entry


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


@dataclass
class ConversionTally:
    """Counters of one process; a forked child starts at zero."""

    hits: int = 0
    built: int = 0
    uncached: int = 0
    hit_s: float = 0.0
    build_s: float = 0.0
    saved_s: float = 0.0
    pid: int = field(default_factory=os.getpid)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, entry: Entry, took_s: float) -> None:
        """Count an entry; ``took_s`` is the time of its hit, including the key."""
        if entry.outcome == "hit":
            self._add(hits=1, hit_s=took_s, saved_s=max(0.0, entry.build_s - took_s))
        else:
            self.add_built(entry.build_s)

    def add_built(self, build_s: float) -> None:
        """Count a build; also one in place of a hit."""
        self._add(built=1, build_s=build_s)

    def add_uncached(self) -> None:
        """Count a conversion that bypassed the cache."""
        self._add(uncached=1)

    def _add(self, **more: float) -> None:
        with self._lock:
            if self.pid != os.getpid():  # a forked child
                self.hits = self.built = self.uncached = 0
                self.hit_s = self.build_s = self.saved_s = 0.0
                self.pid = os.getpid()
            for name, value in more.items():
                setattr(self, name, getattr(self, name) + value)

    def line(self) -> str:
        """Return ``14 hits, 0.9 s, 311 s saved`` with builds, or an empty string if nothing happened."""
        if self.pid != os.getpid():
            return ""
        parts = []
        if self.hits:
            counted, saved = f"{self.hits} hit{'' if self.hits == 1 else 's'}", format_duration(self.saved_s)
            parts.append(f"{counted}, {format_duration(self.hit_s)}, {saved} saved")
        if self.built:
            parts.append(f"{self.built} built in {format_duration(self.build_s)}")
        if self.uncached:
            parts.append(f"{self.uncached} not cached")
        return "; ".join(parts)


_logger = logging.getLogger(__name__)

RUN = "TRTCACHE_RUN"
"""Set by ``trtcache run`` to its process ID, for that process and its children."""

_WRAPPED = ("interpret_module_to_result", "convert_module")


class _Loader(Loader):
    """Load with the original loader, restore it on the module, and call the hook."""

    def __init__(self, loader: Loader, then: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._then = then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._then(module)


def install(
    *, cache: Cache | str | os.PathLike[str] | None = None, operator_versions: Mapping[str, str] | None = None
) -> None:
    """Make torch_tensorrt use the cache, whether it is imported already or not.

    An unknown version of torch_tensorrt is left alone, with a warning. One line at exit summarises hits and builds. A
    second call replaces the first.

    Args:
        cache: a ``Cache``, a cache directory, or None for the ``TRTCACHE_*`` variables.
        operator_versions: versions of custom operators that plugins implement (``{"mylib::scale": "1"}``); without one,
            a partition that uses such an operator is not cached.

    Raises:
        SettingsError: a ``TRTCACHE_*`` variable has an invalid value.
        StoreError: ``cache`` names a directory that cannot be a cache.
    """
    from trtcache.cache import Cache

    uninstall()
    opened = cache if cache is None or isinstance(cache, Cache) else Cache(cache)
    Installation(opened, dict(operator_versions or {})).begin()


def uninstall() -> None:
    """Restore torch_tensorrt. Engines already served stay in use."""
    for finder in [finder_ for finder_ in sys.meta_path if isinstance(finder_, Installation)]:
        finder.end()


class Installation(MetaPathFinder):
    """The cache's import hook for torch_tensorrt, on ``sys.meta_path`` while installed."""

    def __init__(
        self,
        cache: Cache | None = None,
        operator_versions: Mapping[str, str] | None = None,
        *,
        always_reports: bool = False,
    ) -> None:
        """Prepare the installation; nothing changes before ``begin``.

        Args:
            cache: the cache; None to open the environment's on first use.
            operator_versions: versions of custom operators that plugins implement.
            always_reports: whether to print a line at exit even if nothing was converted.
        """
        self._cache = cache
        self._operator_versions = operator_versions or {}
        self._always_reports = always_reports
        self._tally = ConversionTally()
        self._is_left_alone = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return torch_tensorrt's own spec with its loader wrapped; None for any other module."""
        if fullname != PACKAGE:
            return None
        others = (finder for finder in sys.meta_path if not isinstance(finder, Installation))
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((one for one in found if one is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._wrap)
        return spec

    def begin(self) -> None:
        """Wrap torch_tensorrt now, or as soon as it is imported."""
        atexit.register(self._report)
        sys.meta_path.insert(0, self)
        package = sys.modules.get(PACKAGE)
        if package is not None:
            self._wrap(package)

    def end(self) -> None:
        """Undo ``begin``."""
        sys.meta_path.remove(self)
        atexit.unregister(self._report)
        for module in callers():
            for name in _WRAPPED:
                if getattr(getattr(module, name, None), "trtcache_installation", None) is self:
                    setattr(module, name, getattr(module, name).__wrapped__)

    def _wrap(self, package: Any) -> None:
        """Wrap an imported torch_tensorrt. This never breaks the program's import."""
        from trtcache.cache import Cache
        from trtcache.integrations.torch_tensorrt.adapter import Adapter

        try:
            library = TorchTensorrt.of(package)
            adapter = Adapter(library, self._cache or Cache(), self._tally, self._operator_versions)
        except TrtcacheError as error:
            self._is_left_alone = True
            _logger.warning("torch_tensorrt runs without trtcache: %s", error)
            return
        except Exception:  # an unforeseen form of torch_tensorrt
            self._is_left_alone = True
            _logger.warning("torch_tensorrt runs without trtcache", exc_info=True)
            return
        for name, method in zip(_WRAPPED, (adapter.interpret, adapter.convert), strict=True):
            original = getattr(library.conversion, name)
            wrapper = functools.wraps(original)(functools.partial(method, original))
            wrapper.trtcache_installation = self  # type: ignore[attr-defined]  # identifies the wrapper
            for module in callers():
                if getattr(module, name, None) is original:
                    setattr(module, name, wrapper)

    def _report(self) -> None:
        line = self._tally.line()
        if not line and self._always_reports and os.environ.get(RUN) == str(os.getpid()):
            line = f"torch_tensorrt {'converted nothing' if PACKAGE in sys.modules else 'was not imported'}"
            if self._is_left_alone:
                line = "nothing was cached: torch_tensorrt ran without trtcache"
        if line and sys.stderr is not None:
            with suppress(OSError, ValueError):  # a closed standard error
                sys.stderr.write(f"trtcache: {line}\n")


def install_for_run() -> None:
    """Install in a process started by ``trtcache run``, directly or indirectly."""
    Installation(always_reports=True).begin()
