"""``trtcache.compile``."""

from __future__ import annotations

import logging
import time
from functools import cache as once
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

import trtcache.backends.aot_inductor.backend  # noqa: F401  # the default one: its import is not the first call's
from trtcache.cache import Cache
from trtcache.compiler.compile import compile_source
from trtcache.config.environment import parse_direct
from trtcache.errors import ExportError, SettingsError
from trtcache.frontends.resolve import Model, resolve
from trtcache.frontends.source import CompileOptions
from trtcache.runtime.on_guard import OnGuard, parse_on_guard
from trtcache.runtime.verify import Examples

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from trtcache.frontends.source import Source
    from trtcache.runtime import CompiledModule
    from trtcache.settings import Settings

log = logging.getLogger(__name__)


def compile(  # noqa: A001  # the name that torch and every user of it has for this
    model: Model,
    args: tuple[Any, ...] = (),
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
) -> CompiledModule:
    """Compile a model for inference, or take its engine from the cache and put this model's weights in.

    Args:
        model: a module, a program that ``torch.export.export`` made (with its own example inputs), or the path of a
            ``.pt2`` file that ``torch.export.save`` wrote, or of an ``.onnx`` file, for TensorRT and TensorRT-RTX; or a
            TorchScript module or its file, with example inputs, whose sizes it then has. Of a ``.pt2`` or ``.onnx``
            file that has not changed since it was last compiled nothing is exported or lowered, and of a module that
            direct mode knows. A file's weights are then its own memory: replace it by renaming.
        args: example positional arguments. Their shapes, dtypes and layouts are what the engine is made for. Of a
            program, which has its own, there are none, and no ``kwargs`` and ``dynamic_shapes`` either. Of an ONNX file
            they say the sizes that the file leaves open, in its order; None stands for an input of known sizes.
        kwargs: example keyword arguments.
        dynamic_shapes: which sizes may vary, as ``torch.export.export`` takes it.
        backend: a backend's name, or ``auto``.
        settings: ``Settings`` or a mapping of its fields.
        target: what the engine is to run on; by default this machine.
        cache: a ``Cache``, a cache directory, or None for what the ``TRTCACHE_*`` variables say.
        name: what people call the program (``trtcache ls`` shows it); by default the model's class or the file's name.
        keep_program: keep the program beside its engines, without weights, for ``trtcache rebuild`` after an upgrade.
        direct: ``on``, ``verify`` or ``off`` (``docs/direct-mode.md``); by default what ``TRTCACHE_DIRECT`` says.
        on_guard: what a call does with sizes for which the model branches otherwise than for the example inputs
            (``docs/guards.md``): ``error`` raises GuardError, ``eager`` runs the call in torch, ``compile`` compiles
            the other branch as a further program, up to 8. With the last two the compiled module keeps the model.

    Returns:
        A callable with the model's signature and output structure; ``.report`` says what was done, and ``.report.why``
        why there was no hit. What no engine takes stays in torch (``.report.left``), with engines for the rest.

    Raises:
        ExportError: the model cannot be exported, or the file cannot be read or is no exported program.
        BackendUnavailableError: the backend is unknown or cannot run here.
        SettingsError: a setting or the target is unknown, or there are example inputs for a program that has its own.
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``; the message says why there was no hit.
        BuildError: the build failed.
        BuildCancelledError: who watches builds called this one off, or the wait for another's.
        BusyError: another process builds it, ``on_busy`` is ``eager``, and it cannot be run in torch.
        PartitionError: the settings want one engine, and something would stay in torch.
        StoreError: ``cache`` names a directory that cannot be a cache. Trouble with the default one is only a warning.
    """
    start = time.perf_counter()
    store, options = cache if isinstance(cache, Cache) else Cache(cache), CompileOptions.of(backend, settings, target)
    policy = parse_on_guard(on_guard)
    mode = store.config.direct if direct is None else parse_direct(direct, "direct")
    with resolve(model, args, kwargs, dynamic_shapes, name=name, direct=mode, cache=store) as source:
        if not source.is_torch and (keep_program or policy != "error"):
            setting = "keep_program" if keep_program else "on_guard"
            why = "an ONNX file is the program: keep the file" if keep_program else _NOT_IN_TORCH
            raise SettingsError(setting, why)
        module = compile_source(source, options, store)
        module.threads = options.settings.threads
        module.report.file_s = source.file_s
        if source.model is not None:
            module.examples = Examples.of(source.model, args, kwargs)
        if keep_program:
            from trtcache.compiler.kept_program import KeptOptions, keep  # nobody else needs it

            keep(store, module.report, source.program, KeptOptions.of(options))
        if policy != "error":
            again = partial(
                compile,
                backend=backend,
                settings=options.settings,
                target=target,
                cache=store,
                name=source.name,
                direct=direct,
            )
            module.on_guard = _on_guard(policy, model, source, module, dynamic_shapes, again)
    module.report.compile_s = time.perf_counter() - start
    log.info("%s", module.report)
    return module


_NOT_IN_TORCH = "torch can neither run nor export an ONNX file: leave it at 'error'"


def _on_guard(
    policy: str,
    model: Model,
    source: Source,
    module: CompiledModule,
    dynamic_shapes: Any,
    again: Callable[..., CompiledModule],
) -> OnGuard:
    """Return what answers the calls that a compiled module's guards refuse.

    Raises:
        SettingsError: calls change the model's weights, which the engine has copies of.
    """
    if any(slot.mutated for slot in module.interface.slots):
        raise SettingsError("on_guard", f"calls of {module.report.name} change its weights: leave it at 'error'")
    torch_model = source.model
    if isinstance(torch_model, torch.nn.Module):
        compile_branch = partial(_compile_branch, torch_model, again, dynamic_shapes)
        return OnGuard(policy, module.report, lambda: torch_model, compile_branch)

    @once
    def program() -> torch.nn.Module:
        with resolve(model) as opened:
            return opened.program().module()

    def one_branch(*_: object) -> CompiledModule:
        raise ExportError(module.report.name, "an exported program has one branch only: compile the torch.nn.Module")

    return OnGuard(policy, module.report, program, one_branch)


def _compile_branch(
    model: torch.nn.Module,
    again: Callable[..., CompiledModule],
    dynamic_shapes: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> CompiledModule:
    """Compile a model with other example inputs, which take another of its branches.

    In that branch sizes may be equal, or fixed, that the caller named apart: torch then refuses ``dynamic_shapes`` as
    it is, and finds out by itself which sizes vary (``Dim.AUTO``).

    Raises:
        ExportError: the model cannot be exported with these inputs.
    """
    try:
        return again(model, args, kwargs, dynamic_shapes=dynamic_shapes)
    except ExportError:
        automatic = pytree.tree_map(
            lambda one: one if one is None or isinstance(one, int) else torch.export.Dim.AUTO, dynamic_shapes
        )
        return again(model, args, kwargs, dynamic_shapes=automatic)
