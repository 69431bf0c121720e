"""The front door: ``compile``. It arranges the parts and decides nothing."""

from __future__ import annotations

import logging
import os
import time
from contextlib import nullcontext
from functools import cache as once
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.utils import _pytree as pytree

import trtcache.backends.aot_inductor.backend  # noqa: F401  # the default one: its import is not the first call's
from trtcache.cache import Cache
from trtcache.compiler.alias_lookup import Shortcut
from trtcache.compiler.compile import compile_exported, compile_request
from trtcache.compiler.request import (
    Model,
    Request,
    collector_paused,
    exported_of,
    program_of,
    refuse_examples,
    request_of,
    timed,
)
from trtcache.config import logs
from trtcache.config.environment import parse_direct
from trtcache.direct.mode import Attempt
from trtcache.errors import ExportError, SettingsError
from trtcache.frontends.onnx.file import is_onnx
from trtcache.frontends.pt2 import ProgramFile
from trtcache.frontends.torchscript.program import converted, script_of
from trtcache.runtime.on_guard import OnGuard, parse_on_guard
from trtcache.runtime.verify import Examples
from trtcache.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trtcache.runtime import CompiledModule, Report

OfProgram: TypeAlias = "Callable[[], torch.export.ExportedProgram]"

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
    store, wanted = cache if isinstance(cache, Cache) else Cache(cache), Settings.of(settings)
    policy = parse_on_guard(on_guard)
    examples = (args, kwargs, dynamic_shapes)
    attempt = _attempt(model, examples, store, direct, name)
    known = _known(model, examples, attempt, backend, wanted, target, name) if attempt else None
    if known is None and not isinstance(model, (str, os.PathLike)):
        start += timed(_import_stages)[1]
    module, program = known or _compiled(model, examples, store, backend, wanted, target, name, attempt)
    module.threads = wanted.threads
    if keep_program:
        _keep(module.report, program, store, backend, wanted, target)
    if policy != "error":
        again = partial(
            compile,
            backend=backend,
            settings=wanted,
            target=target,
            cache=store,
            name=name or module.report.name,
            direct=direct,
        )
        module.on_guard = _on_guard(policy, model, module, dynamic_shapes, again)
    module.report.compile_s = time.perf_counter() - start
    log.info("%s", module.report)
    return module


def _on_guard(
    policy: str, model: Model, module: CompiledModule, dynamic_shapes: Any, again: Callable[..., CompiledModule]
) -> OnGuard:
    """Return what answers the calls that a compiled module's guards refuse.

    Raises:
        SettingsError: there is no model to run, or calls change its weights, which the engine has copies of.
    """
    if is_onnx(model):
        raise SettingsError("on_guard", "an ONNX file is no model that torch can run or export: leave it at 'error'")
    if any(slot.mutated for slot in module.interface.slots):
        raise SettingsError("on_guard", f"calls of {module.report.name} change its weights: leave it at 'error'")
    script = script_of(model)
    source = model if script is None else script
    if isinstance(source, torch.nn.Module):
        return OnGuard(policy, module.report, lambda: source, partial(_compile_branch, source, again, dynamic_shapes))

    def one_branch(*_: object) -> CompiledModule:
        raise ExportError(module.report.name, "an exported program has one branch only: compile the torch.nn.Module")

    return OnGuard(policy, module.report, once(lambda: program_of(source).module()), one_branch)


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


def _known(
    model: Model,
    examples: tuple[tuple[Any, ...], Mapping[str, Any] | None, Any],
    attempt: Attempt,
    backend: str,
    settings: Settings,
    target: str | None,
    name: str | None,
) -> tuple[CompiledModule, OfProgram | None] | None:
    """Return the compiled module that direct mode finds, and how its program is made if somebody wants it."""
    module = attempt.compiled(backend, settings, target)
    if module is None:
        return None
    module.examples = Examples.of(model, *examples[:2])
    return module, lambda: exported_of(model, *examples, backend, settings, name).program


def _import_stages() -> None:
    """Import what exports and lowers: torch.export and sympy are as little a part of a compile as torch itself."""
    from trtcache.lowering import stages  # noqa: F401


def _attempt(
    model: Model,
    examples: tuple[tuple[Any, ...], Mapping[str, Any] | None, Any],
    cache: Cache,
    direct: str | None,
    name: str | None,
) -> Attempt | None:
    """Return the attempt of a module's ``compile`` in direct mode; None for what is no module of Python.

    Raises:
        SettingsError: ``direct`` is no mode.
    """
    mode = cache.config.direct if direct is None else parse_direct(direct, "direct")
    logs.start(os.environ)
    if not isinstance(model, torch.nn.Module) or isinstance(model, torch.jit.ScriptModule):
        return None
    with collector_paused():
        return Attempt(model, examples, cache, mode=mode, name=name or type(model).__name__)


def _compiled(
    model: Model,
    examples: tuple[tuple[Any, ...], Mapping[str, Any] | None, Any],
    cache: Cache,
    backend: str,
    settings: Settings,
    target: str | None,
    name: str | None,
    attempt: Attempt | None = None,
) -> tuple[CompiledModule, OfProgram | None]:
    args, kwargs, dynamic_shapes = examples
    if (script := script_of(model)) is not None:
        label = name or (script.original_name if script is model else Path(str(model)).stem)
        program, convert_s = timed(lambda: converted(script, *examples))
        module, of_program = _compiled(program, ((), None, None), cache, backend, settings, target, label)
        module.examples = Examples.of(script, args, kwargs)
        module.report.export_s += convert_s
        return module, of_program
    if is_onnx(model):
        from trtcache.compiler import onnx_compile as door

        door.refuse_dynamic_shapes(dynamic_shapes)
        module = door.compile_file(
            Path(model), args, kwargs, cache=cache, backend=backend, settings=settings, target=target, name=name
        )
        return module, None
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        return _compile_file(path, examples, cache, backend, settings, target, name), lambda: program_of(path)
    with attempt.watching() if attempt else nullcontext():
        exported = exported_of(model, args, kwargs, dynamic_shapes, backend, settings, name)
    module = compile_exported(exported, model, cache=cache, settings=settings, target=target)
    if attempt:
        attempt.keep(exported, module, settings, target)
    module.examples = Examples.of(model, args, kwargs)
    return module, lambda: exported.program


def _keep(
    report: Report, program: OfProgram | None, cache: Cache, backend: str, settings: Settings, target: str | None
) -> None:
    from trtcache.compiler.kept_program import Asked, keep  # nobody else needs it

    if program is None:
        raise SettingsError("keep_program", "an ONNX file is the program: keep the file")
    keep(cache, report, program, Asked.of(backend, settings, target))


def _compile_file(
    path: Path,
    examples: tuple[object, object, object],
    cache: Cache,
    backend: str,
    settings: Settings,
    target: str | None,
    name: str | None,
) -> CompiledModule:
    logs.start(os.environ)
    start = time.perf_counter()
    with ProgramFile(path) as file:
        file_s = time.perf_counter() - start
        refuse_examples(path.name, *examples)
        with collector_paused():
            shortcut = Shortcut.of(file, backend=backend, settings=settings, target=target, cache=cache)
            module = shortcut.compiled(name or path.stem) if shortcut else None
        if module is None:
            program, load_s = timed(file.program)
            request = request_of(program, (), None, None, backend, settings, target, name or path.stem)
            module = compile_request(request, cache, program)
            module.report.export_s += load_s
            if shortcut:
                shortcut.keep(program, request.program, request.key, load_s + request.took_s)
    module.report.file_s = file_s
    return module


def prepare(
    model: Model,
    args: tuple[Any, ...],
    *,
    dynamic_shapes: Any = None,
    backend: str = "auto",
    settings: Settings | None = None,
    target: str | None = None,
    name: str | None = None,
) -> Request:
    """Return the lowered program and the key that ``compile`` would use, for a door that decides by them.

    Raises:
        ExportError: the model cannot be exported.
        BackendUnavailableError: the backend is unknown or cannot run here.
        SettingsError: a setting or the target is unknown.
    """
    return request_of(model, args, None, dynamic_shapes, backend, settings or Settings(), target, name)
