"""An engine cache for inference: ccache for TensorRT, TensorRT-RTX and AOTInductor.

To read how ``compile`` works, start at ``compiler/compile.py``. This file only decides whether torch is needed (a
hit of a ``.pt2`` file returns from here without it), and imports the public names when they are first used.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from typing import Protocol, TypeVar

    import torch

    from trtcache import errors as errors
    from trtcache.bundle.export import export as export
    from trtcache.bundle.load import load as load
    from trtcache.cache import Cache as Cache
    from trtcache.compiler.build import key as key
    from trtcache.compiler.build import lower as lower
    from trtcache.config.threads import threads as threads
    from trtcache.digests import CacheKey as CacheKey
    from trtcache.digests import Digest as Digest
    from trtcache.digests import digest as digest
    from trtcache.errors import TrtcacheError as TrtcacheError
    from trtcache.integrations.torch_tensorrt import install as install
    from trtcache.integrations.torch_tensorrt import uninstall as uninstall
    from trtcache.lowering.arguments import Input as Input
    from trtcache.progress import Step as Step
    from trtcache.progress import watching as watching
    from trtcache.remote.uploads import flush as flush
    from trtcache.runtime import CompiledModule as CompiledModule
    from trtcache.runtime.program import Program as Program
    from trtcache.settings import Settings as Settings
    from trtcache.store.contract import Entry as Entry

    __version__: str

    Output = TypeVar("Output", covariant=True)

    class HasForward(Protocol[Output]):
        """A ``torch.nn.Module``, by the type that its ``forward`` returns."""

        def forward(self, *args: Any, **kwargs: Any) -> Output:
            """Return the model's output."""
            ...


# Loaded when first used: a program that only hits needs neither SQLAlchemy nor, behind its own builder, torch.
_EXPORTS = {
    "Cache": "trtcache.cache",
    "CacheKey": "trtcache.digests",
    "CompiledModule": "trtcache.runtime",
    "Digest": "trtcache.digests",
    "Entry": "trtcache.store.contract",
    "Input": "trtcache.lowering.arguments",
    "Program": "trtcache.runtime.program",
    "Settings": "trtcache.settings",
    "Step": "trtcache.progress",
    "TrtcacheError": "trtcache.errors",
    "digest": "trtcache.digests",
    "export": "trtcache.bundle.export",
    "flush": "trtcache.remote.uploads",
    "install": "trtcache.integrations.torch_tensorrt",
    "key": "trtcache.compiler.build",
    "load": "trtcache.bundle.load",
    "lower": "trtcache.compiler.build",
    "threads": "trtcache.config.threads",
    "uninstall": "trtcache.integrations.torch_tensorrt",
    "watching": "trtcache.progress",
}

_NEEDS_TORCH = frozenset({"CompiledModule", "Input", "export", "key", "lower"})

__all__ = ["__version__", "compile", "errors", *sorted(_EXPORTS)]


@overload
def compile(  # noqa: A001  # named like torch.compile
    model: HasForward[Output],
    args: tuple[Any, ...] | torch.Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    backend: str = "auto",
    settings: Settings | Mapping[str, object] | None = None,
    target: str | None = None,
    cache: Cache | str | os.PathLike[str] | None = None,
    name: str | None = None,
    keep_program: bool = False,
    direct: str | None = None,
    on_guard: str = "error",
    on_miss: str | None = None,
) -> CompiledModule[Output]: ...


@overload
def compile(  # noqa: A001  # named like torch.compile
    model: torch.export.ExportedProgram,
    args: tuple[Any, ...] | torch.Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    backend: str = "auto",
    settings: Settings | Mapping[str, object] | None = None,
    target: str | None = None,
    cache: Cache | str | os.PathLike[str] | None = None,
    name: str | None = None,
    keep_program: bool = False,
    direct: str | None = None,
    on_guard: str = "error",
    on_miss: str | None = None,
) -> CompiledModule: ...


@overload
def compile(  # noqa: A001  # named like torch.compile
    model: str | os.PathLike[str],
    args: tuple[Any, ...] | torch.Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    backend: str = "auto",
    settings: Settings | Mapping[str, object] | None = None,
    target: str | None = None,
    cache: Cache | str | os.PathLike[str] | None = None,
    name: str | None = None,
    keep_program: bool = False,
    direct: str | None = None,
    on_guard: str = "error",
    on_miss: str | None = None,
) -> CompiledModule | Program: ...


def compile(  # noqa: A001  # named like torch.compile
    model: Any,
    args: tuple[Any, ...] | torch.Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    backend: str = "auto",
    settings: Settings | Mapping[str, object] | None = None,
    target: str | None = None,
    cache: Cache | str | os.PathLike[str] | None = None,
    name: str | None = None,
    keep_program: bool = False,
    direct: str | None = None,
    on_guard: str = "error",
    on_miss: str | None = None,
) -> CompiledModule | Program:
    """Compile a model for inference, or load its engine from the cache and set this model's weights.

    Args:
        model: a module; an ``ExportedProgram`` (with its own example inputs); the path of a ``.pt2`` file that
            ``torch.export.save`` wrote, or of an ``.onnx`` file, for TensorRT and TensorRT-RTX; or a TorchScript
            module or file with example inputs, whose sizes it is compiled for. A ``.pt2`` or ``.onnx`` file that is
            unchanged since it was last compiled, or a module that direct mode recognizes, is neither exported nor
            lowered. The weights of a file are mapped: replace the file by renaming, never in place.
        args: example positional arguments, or one tensor. The engine is built for their shapes, dtypes and layouts. A
            program has its own and takes none, nor ``kwargs`` or ``dynamic_shapes``. For an ONNX file they give the
            dynamic sizes, in the order of its inputs; pass None for an input whose sizes are known.
        kwargs: example keyword arguments.
        dynamic_shapes: the sizes that may vary, as ``torch.export.export`` takes them.
        backend: the name of a backend, or ``auto``.
        settings: ``Settings`` or a mapping of its fields.
        target: the device that the engine will run on; this machine by default.
        cache: a ``Cache``, a cache directory, or None for the cache that the ``TRTCACHE_*`` variables configure.
        name: the name that ``trtcache ls`` shows; the model's class or the file's name by default.
        keep_program: keep the program beside its engines, without weights, for ``trtcache rebuild`` after an upgrade.
        direct: ``on``, ``verify`` or ``off`` (``docs/direct-mode.md``); the value of ``TRTCACHE_DIRECT`` by default.
        on_guard: how to handle a call with sizes for which the model takes another branch than for the example inputs
            (``docs/guards.md``): ``error`` raises GuardError, ``eager`` runs the call in torch, ``compile`` compiles
            the other branch as a further program, up to 8. With the last two the compiled module keeps the model.
        on_miss: ``build``, or ``background``: return at once, and run in torch while a worker process builds
            (``docs/background.md``); by default ``settings.on_miss``, or else the value of ``TRTCACHE_ON_MISS``.

    Returns:
        A callable with the model's signature and output structure: a ``CompiledModule``, which is a
        ``torch.nn.Module`` and may take the model's place in another one; or for a ``.pt2`` file in a process that has
        not imported torch a ``Program``, which needs no torch once its engine is in the cache
        (``docs/without-torch.md``).
        ``.report`` has what was done, and ``.report.why`` why there was no hit. Operators that no engine supports stay
        in torch (``.report.left``).

    Raises:
        ExportError: the model cannot be exported, or the file cannot be read or is not an exported program.
        BackendUnavailableError: the backend is unknown or cannot run here.
        SettingsError: a setting or the target is unknown, or example inputs were passed for a program that has its own.
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``; the message says why there was no hit.
        BuildError: the build failed.
        BuildCancelledError: a progress callback cancelled the build, or the wait for another process's build.
        BusyError: another process is building the engine, ``on_busy`` is ``eager``, and torch cannot run the program.
        PartitionError: the settings require one engine, and an operator would stay in torch.
        TorchForbiddenError: torch is not imported and needed, and ``TRTCACHE_NO_TORCH=1``.
        StoreError: ``cache`` names a directory that cannot be a cache. For the default cache this is only a warning.
    """
    why_torch, load_without_torch = "", None
    if "torch" not in sys.modules:
        from functools import partial
        from pathlib import Path

        from trtcache.config.environment import require_torch_allowed

        is_given = args is not None and (not isinstance(args, tuple) or len(args) > 0)
        needs_torch = is_given or bool(kwargs or dynamic_shapes or keep_program) or on_guard != "error"
        if isinstance(model, (str, os.PathLike)) and Path(model).suffix == ".pt2" and not needs_torch:
            load_without_torch = partial(_load_without_torch, Path(model), backend, settings, target, cache, name)
            program, why_torch = load_without_torch()
            if program is not None:
                return program
        what = str(model) if isinstance(model, (str, os.PathLike)) else f"a {type(model).__name__}"
        require_torch_allowed(what, why_torch or "only a hit of a .pt2 file does without it")
    _import("trtcache.api")
    from trtcache.api import compile as compile_with_torch

    module = compile_with_torch(
        model,
        args,
        kwargs,
        dynamic_shapes=dynamic_shapes,
        backend=backend,
        settings=settings,
        target=target,
        cache=cache,
        name=name,
        keep_program=keep_program,
        direct=direct,
        on_guard=on_guard,
        on_miss=on_miss,
    )
    module.report.torch = why_torch
    if load_without_torch is None:
        return module
    # A hit returns a Program. Return one after a miss as well, or a caller who passes NumPy arrays would get tensors
    # the first time.
    program, _ = load_without_torch(counted=False)
    if program is None:
        return module
    program.report = module.report
    return program


def _load_without_torch(
    path: Path,
    backend: str,
    settings: Settings | Mapping[str, object] | None,
    target: str | None,
    cache: Cache | str | os.PathLike[str] | None,
    name: str | None,
    *,
    counted: bool = True,
) -> tuple[Program | None, str]:
    """Return the program of a file from the cache, or None and why it needs torch.

    ``counted``: whether the look-up is counted in the cache's statistics.
    """
    import logging

    from trtcache.backends.host import preload

    log = logging.getLogger("trtcache.api")
    start = time.perf_counter()
    libraries = preload()  # a thread loads torch's libraries during the look-up
    try:
        from trtcache.bundle.file_alias import find_program
        from trtcache.bundle.load_program import TorchNeeded
        from trtcache.cache import Cache as OpenedCache
        from trtcache.frontends.source import CompileOptions

        opened = cache if isinstance(cache, OpenedCache) else OpenedCache(cache)
        try:
            options = CompileOptions.of(backend, settings, target)
            program = find_program(path, options, opened, name=name, counted=counted)
        except TorchNeeded as error:
            log.info("%s needs torch: %s", path, error)
            return None, str(error)
    finally:
        libraries.join()  # a process that forks during the load would inherit a lock
    program.report.compile_s = time.perf_counter() - start
    if counted:
        log.info("%s", program.report)
    return program, ""


def _import(name: str) -> ModuleType:
    """Import a module of this package with the collector paused, and count the seconds (``report.import_s``)."""
    if name not in sys.modules:
        from trtcache.config import paused_collector
        from trtcache.config.imports import timed_imports

        with paused_collector(), timed_imports():
            import_module(name)
    return import_module(name)  # waits for a thread that is importing it


def __getattr__(name: str) -> object:
    if name == "__version__":
        from trtcache.config.environment import installed_version

        value: object = installed_version()
    elif name == "errors":
        value = import_module("trtcache.errors")
    elif name in _EXPORTS:
        if name in _NEEDS_TORCH:
            from trtcache.config.environment import require_torch_allowed

            require_torch_allowed(f"trtcache.{name}", "trtcache.load and trtcache.compile of files do without it")
        value = getattr(_import(_EXPORTS[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
