"""The choice of a backend, the check of other distributions' backends, and calls of backends.

A backend of another distribution may raise anything. What leaves these functions is a ``TrtcacheError``, so that
``on_build_failure`` applies and an entry that cannot be loaded is built again; or it is an error of the machine,
such as no memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trtcache.backends.protocol import Artifact, Backend, Capabilities, Engine, Parallel
from trtcache.config import backend_settings
from trtcache.config.backend_settings import BUILT_IN, BackendSettings
from trtcache.errors import (
    BackendUnavailableError,
    BuildError,
    FixedWeightsError,
    IncompatibleEngineError,
    SettingsError,
    TrtcacheError,
)
from trtcache.settings import AUTO, Settings

if TYPE_CHECKING:
    import torch

    from trtcache.lowering import LoweredProgram
    from trtcache.store.contract import Entry
    from trtcache.target import Target


log = logging.getLogger(__name__)

_AUTO_ORDER = {"torch": ("aot_inductor",), "onnx": ("tensorrt", "tensorrt_rtx")}
"""Backends tried by ``backend="auto"``, in order, for each form of program."""

_HOOKS = (
    *("target", "toolchain", "ambient", "check", "why_not", "frozen_slots", "bakes_weights", "freeze"),
    *("choose_weights", "takes_similar", "refused_sizes", "refit_artifact", "versions", "takes_weights", "why_misfit"),
    "rank",
)
"""Methods of a backend that are called outside of a build and a load."""


def find(name: str, device: str, *, form: str = "torch") -> Backend:
    """Return a backend by name, or for ``auto`` the first that can run on this device type.

    Args:
        name: the name of a backend, or ``auto``.
        device: a device type.
        form: the form of program that it has to accept: ``torch`` or ``onnx``.

    Raises:
        BackendUnavailableError: the name is unknown, or the backend cannot run here. A backend
            requested by name is never replaced by another.
    """
    if name != "auto":
        accepts = load_backend(name).capabilities.accepts
        if form not in accepts:
            remedy = f"; ONNX files need {' or '.join(_AUTO_ORDER['onnx'])}" if form == "onnx" else ""
            raise BackendUnavailableError(name, f"it builds {' and '.join(sorted(accepts))} programs only{remedy}")
        return _usable(name, device)
    reasons = []
    for candidate in _AUTO_ORDER[form]:
        try:
            backend = _usable(candidate, device)
        except BackendUnavailableError as error:
            reasons.append(str(error))
            continue
        _log_choice(candidate, form, device)
        return backend
    needs = "an ONNX file needs one of these: " if form == "onnx" else ""
    raise BackendUnavailableError("auto", needs + "; ".join(reasons))


@lru_cache(maxsize=16)  # one line in a process for each, which asks several times in a compile
def _log_choice(backend: str, form: str, device: str) -> None:
    log.info("backend auto: chose %s for %s on %s", backend, form, device)


def find_for_onnx(name: str) -> tuple[Backend, str]:
    """Return a backend for ONNX files, and the device type of its engines for them: the GPU if it has such engines.

    Raises:
        BackendUnavailableError: the name is unknown, or the backend does not take ONNX files or cannot run here.
    """
    device = "cuda"
    if name != "auto" and device not in (devices := load_backend(name).capabilities.devices):
        device = "cpu" if "cpu" in devices else min(devices)
    return find(name, device, form="onnx"), device


def import_default() -> None:
    """Import the first backend for programs of torch, so that a first call does not."""
    backend_settings.load_backend_class(_AUTO_ORDER["torch"][0])


def load_backend(name: str) -> Backend:
    """Return a backend by name, whether it can run here or not.

    Raises:
        BackendUnavailableError: the name is unknown, or its class cannot be imported or is not a backend.
    """
    backend_class = backend_settings.load_backend_class(name)
    if name in BUILT_IN:
        built_in: Backend = backend_class()
        return built_in
    require_contract(name, backend_class)
    with _translate_errors(_unavailable_error(name)):
        backend: Backend = backend_class()
    # An exception of these would leave ``compile`` as if it were the model's.
    for hook in _HOOKS:
        setattr(backend, hook, _wrap_hook(name, hook, getattr(backend, hook)))
    return backend


def _usable(name: str, device: str) -> Backend:
    backend = load_backend(name)
    with _translate_errors(_unavailable_error(name)):
        why = why_unavailable(backend, device)
    if why:
        raise BackendUnavailableError(name, why)
    return backend


def _unavailable_error(name: str, what: str = "it") -> Callable[[str], TrtcacheError]:
    return lambda why: BackendUnavailableError(name, f"{what} fails with {why}")


def _wrap_hook(name: str, hook: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of a backend that raises errors of ours only."""

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _translate_errors(_unavailable_error(name, f"its {hook}")):
            return method(*args, **kwargs)

    return call


def why_unavailable(backend: Backend, device: str) -> str | None:
    """Return why a backend cannot run on this device type here, or None."""
    if why := backend.unavailable(device):
        return why
    devices = sorted(backend.capabilities.devices)
    return None if device in devices else f"its engines run on {' and '.join(devices)}, not on {device}"


def check_settings(backend: Backend, settings: Settings) -> None:
    """Check that a backend takes the settings.

    Raises:
        SettingsError: settings belong to another backend, or the backend refuses them.
    """
    kind = backend.settings_class
    for name, section in settings.sections.items():
        if kind is None or name != kind.section:
            names = ", ".join(f"settings.{name}[{option!r}]" for option in section.explicit)
            own = f"; its settings are settings.{kind.section}" if kind else ""
            raise SettingsError(names, f"backend {backend.name!r} has no such settings{own}")
    if settings.weights not in {*backend.capabilities.weights, AUTO}:
        why = f"backend {backend.name!r} takes {' or '.join(map(repr, sorted(backend.capabilities.weights)))} only"
        raise SettingsError("settings.weights", f"{settings.weights!r}: {why}")
    backend.check(settings)


def require_contract(name: str, backend_class: type) -> None:
    """Check a backend of another distribution: it derives from ``Backend``, and nothing is missing or misnamed.

    A method with a wrong name would be ignored, and keys would lack what it returns.

    Raises:
        BackendUnavailableError: it violates the contract; the message names each violation.
    """
    from dataclasses import fields

    if not (isinstance(backend_class, type) and issubclass(backend_class, Backend)):
        raise BackendUnavailableError(name, f"{backend_class!r} is not a class that derives from trtcache's Backend")
    where = f"{backend_class.__module__}.{backend_class.__qualname__}"
    wrong = [f"method {method} is missing" for method in sorted(backend_class.__abstractmethods__)]
    for attribute, types in (("name", str), ("version", (int, str)), ("capabilities", Capabilities)):
        value = getattr(backend_class, attribute, None)
        if not isinstance(value, types) or value == "":
            wrong.append(f"attribute {attribute} is missing or has a wrong type")
    capabilities = getattr(backend_class, "capabilities", None)
    sets = [one.name for one in fields(Capabilities) if one.type == "frozenset[str]"]
    for ability in sets if isinstance(capabilities, Capabilities) else ():
        value = getattr(capabilities, ability)
        if not (isinstance(value, frozenset) and all(isinstance(text, str) for text in value)):
            wrong.append(f"capabilities.{ability} has to be a frozenset of text, and is {value!r}")
    if getattr(backend_class, "name", name) != name:
        wrong.append(f"attribute name is {backend_class.name!r}, and its entry point is {name!r}")
    own_settings = getattr(backend_class, "settings_class", None)
    if own_settings is not None and not (isinstance(own_settings, type) and issubclass(own_settings, BackendSettings)):
        wrong.append("attribute settings_class is not a class that derives from BackendSettings")
    elif own_settings is not None and getattr(own_settings, "section", "") != name:
        wrong.append(f"attribute section of {own_settings.__name__} has to be {name!r}")
    hooks = {hook for hook in vars(Backend) if not hook.startswith("_")} | set(Backend.__annotations__)
    wrong += _find_misspellings(backend_class, hooks)
    if wrong:
        raise BackendUnavailableError(name, f"{where}: {'; '.join(wrong)}")


def require_engine(backend: Backend, engine: object) -> None:
    """Check an engine of another distribution's backend: nothing is missing or misnamed.

    Raises:
        BackendUnavailableError: something is missing or misnamed; the message names each.
    """
    kind = type(engine)
    required = ("run", "refit") if backend.capabilities.refit else ("run",)
    wrong = []
    for method in required:
        found = getattr(engine, method, None)
        if not callable(found) or getattr(found, "__func__", None) is getattr(Engine, method):
            wrong.append(f"method {method} is missing")
    wrong += _find_misspellings(kind, {"run", "refit", "parallel", "check_sizes", "shares_weights"})
    if wrong:
        where = f"{kind.__module__}.{kind.__qualname__}"
        raise BackendUnavailableError(backend.name, f"{where}, which load returned: {'; '.join(wrong)}")


def _find_misspellings(kind: type, hooks: set[str]) -> list[str]:
    """Return what has a name so similar to a hook's that it was probably meant."""
    from difflib import get_close_matches  # 2 ms, needed for other distributions' backends only

    own = {name for parent in kind.__mro__ for name in vars(parent)} - hooks - set(dir(object))
    wrong = []
    for name in sorted(name for name in own if not name.startswith("_")):
        longer = [hook for hook in sorted(hooks) if hook.startswith(f"{name}_")]  # ``refit`` for ``refit_artifact``
        if meant := next(iter(longer or get_close_matches(name, hooks, 1, 0.8)), None):
            wrong.append(f"{name} has to be renamed: to {meant}, or to something less similar")
    return wrong


def build_artifact(
    backend: Backend, program: LoweredProgram, settings: Settings, target: Target, folder: Path
) -> Artifact:
    """Build an artifact into ``folder``.

    Raises:
        BuildError: the builder failed, or raised an exception of its own.
    """
    with _translate_errors(lambda why: BuildError(backend.name, why)):
        artifact = backend.build(program, settings, target, folder)
    if not isinstance(artifact, Artifact):
        raise BuildError(backend.name, f"its build returned {artifact!r}, not an Artifact")
    if not artifact.engine.is_file():
        raise BuildError(backend.name, f"its build wrote no file {artifact.engine.name}, which its Artifact names")
    return artifact


def load_engine(
    backend: Backend,
    entry: Entry,
    *,
    device: torch.device,
    constants: Mapping[str, torch.Tensor],
    weights: Mapping[str, torch.Tensor],
) -> Engine:
    """Return a live engine of a verified entry.

    Raises:
        IncompatibleEngineError: the entry cannot be loaded here, or the loader raised an exception of its own.
        BackendUnavailableError: the backend's engine lacks a method, or has one with a misspelt name.
    """
    import torch

    # A full disk or memory, or a GPU that fails, says nothing about the artifact.
    of_the_machine = (OSError, MemoryError, torch.OutOfMemoryError, torch.AcceleratorError)
    with _translate_errors(lambda why: IncompatibleEngineError(entry.key.digest, why), of_the_machine):
        engine = backend.load_entry(entry.read, device=device, constants=constants, weights=weights)
    if backend.name not in BUILT_IN:
        require_engine(backend, engine)
    return engine if backend.capabilities.refit else _refuse_refits(backend.name, engine)


@contextmanager
def _translate_errors(
    error: Callable[[str], TrtcacheError], not_translated: tuple[type[Exception], ...] = (MemoryError,)
) -> Iterator[None]:
    """Raise an error of ours for an exception of a backend's own."""
    try:
        yield
    except TrtcacheError:
        raise
    except not_translated:
        raise
    except Exception as foreign:
        raise error(f"{type(foreign).__name__}: {foreign}") from foreign


class _FixedEngine:
    """An engine of a backend without refit: it refuses other weights, and is otherwise the engine itself."""

    shares_weights: ClassVar[bool] = False

    def __init__(self, backend: str, engine: Engine) -> None:
        self._backend = backend
        self._engine = engine
        self.run: Callable[[Sequence[torch.Tensor]], list[torch.Tensor]] = engine.run

    def refit(self, weights: Mapping[str, torch.Tensor]) -> Engine:  # noqa: ARG002  # as the protocol
        raise FixedWeightsError(backend=self._backend)

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)


class _FixedParallelEngine(_FixedEngine):
    """One that accepts concurrent calls.

    ``isinstance`` finds a method of the class in all versions of Python, and what ``__getattr__`` returns only before
    3.12.
    """

    def parallel(self, calls: int) -> Engine:
        engine: Any = self._engine
        return _refuse_refits(self._backend, engine.parallel(calls))


def _refuse_refits(backend: str, engine: Engine) -> Engine:
    return (_FixedParallelEngine if isinstance(engine, Parallel) else _FixedEngine)(backend, engine)
