"""The ``compile`` function that uses torch. ``trtcache.compile`` calls it, unless a hit needs no torch.

It checks the arguments, makes a source, and calls ``compile_source`` (``compiler/compile.py``), where all look-ups
are. ``after_load`` completes the module.
"""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import platformdirs  # noqa: F401  # the first call needs it to find the settings file; its time is not the call's
import torch
from torch.utils import _pytree as pytree

from trtcache.backends import registry
from trtcache.cache import Cache
from trtcache.compiler.compile import compile_source
from trtcache.config.environment import DIRECT_MODES, ON_MISS, parse_choice
from trtcache.config.imports import take_import_s
from trtcache.config.units import parse_word
from trtcache.errors import ExportError, SettingsError
from trtcache.frontends.resolve import Model, as_args, resolve
from trtcache.frontends.source import CompileOptions, Source
from trtcache.keys.alias_key import code_digest
from trtcache.lowering import TORCH_LOCK
from trtcache.runtime.verify import AutocastState, Examples, Modes, modes_of
from trtcache.settings import ON_GUARD, Settings

if TYPE_CHECKING:
    from trtcache.runtime import CompiledModule
    from trtcache.runtime.on_guard import OnGuard

log = logging.getLogger(__name__)
registry.import_default()  # now, so that the first call of compile does not take the time
code_digest()  # computed now: the files on disk may change after they were imported


def compile(  # noqa: A001  # named like torch.compile
    model: Model,
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
) -> CompiledModule:
    """Compile a model with torch. Arguments and errors are those of ``trtcache.compile``."""
    start = time.perf_counter()
    cache = cache if isinstance(cache, Cache) else Cache(cache)
    options = CompileOptions.of(backend, settings, target)
    guard_policy = parse_word(on_guard, ON_GUARD, "on_guard")
    args = as_args(args)
    direct_mode = cache.config.direct if direct is None else parse_choice(direct, DIRECT_MODES, "direct")
    miss_policy = options.settings.on_miss if on_miss is None else parse_choice(on_miss, ON_MISS, "on_miss")
    with ExitStack() as stack:
        source = stack.enter_context(
            resolve(model, args, kwargs, dynamic_shapes, name=name, direct=direct_mode, cache=cache)
        )
        if not source.is_torch:
            _refuse_torch_options(source, guard_policy, miss_policy, keep_program=keep_program)

        # Read here: the caller may train the model while it is built.
        modes = modes_of(source.model)
        autocast = AutocastState.here()

        # Called once the engine is loaded: below, or later by the thread of a background build.
        def after_load(module: CompiledModule) -> None:
            module.threads = options.settings.threads
            module.report.file_s = source.file_s
            module.note_fixed_sizes(source.automatic_sizes(module.in_spec))
            with TORCH_LOCK:  # another thread that exports or replays the model has fake weights in it
                if source.model is not None:
                    module.examples = Examples.of(source.model, args, kwargs, modes, autocast)
                if isinstance(source.model, torch.nn.Module):
                    module.name_weights(source.model)
            if isinstance(model, (str, os.PathLike)):
                from trtcache.bundle.file_alias import store_alias  # not imported for a module
                from trtcache.frontends.pt2 import Pt2Source

                if isinstance(source, Pt2Source):
                    store_alias(source, module, options, cache)
            if keep_program:
                from trtcache.compiler.program_file import keep  # rarely needed

                keep(cache, module.report, source.program, options)
            if guard_policy != "error":
                compile_again = partial(
                    compile,
                    backend=backend,
                    settings=options.settings,
                    target=target,
                    cache=cache,
                    name=source.name,
                    direct=direct,
                    on_miss=on_miss,
                )
                module.on_guard = _make_on_guard(
                    guard_policy, model, source, module, dynamic_shapes, compile_again, modes, autocast
                )

        use_worker = (miss_policy or cache.config.on_miss) == "background" and source.is_torch
        if use_worker or cache.busy.policy == "eager":
            # Calls may run in torch for a while: a worker process builds (``use_worker``), or another process
            # already builds the same engine (``on_busy="eager"``).
            from trtcache.compiler.background import BackgroundBuild, compile_or_run_in_torch

            build = BackgroundBuild(source, options, cache, keep_program)
            module = compile_or_run_in_torch(source, build, after_load, stack, use_worker=use_worker)
        else:
            module = compile_source(source, options, cache)
            after_load(module)
    module.report.import_s, module.report.compile_s = take_import_s(), time.perf_counter() - start
    log.info("%s", module.report)
    return module


def _refuse_torch_options(source: Source, policy: str, on_miss: str | None, *, keep_program: bool) -> None:
    """Refuse options that do not apply to a source which torch cannot run."""
    if keep_program:
        raise SettingsError("keep_program", f"{source.label} is not a torch program: keep the file itself")
    if policy != "error":
        raise SettingsError("on_guard", f"torch can neither run nor export {source.label}: leave it at 'error'")
    if on_miss == "background":
        why = f"torch cannot run {source.label} while its engine is built"
        raise SettingsError("on_miss", f"{why}: leave it at 'build'")


def _make_on_guard(
    policy: str,
    model: Model,
    source: Source,
    module: CompiledModule,
    dynamic_shapes: Any,
    compile_again: Callable[..., CompiledModule],
    modes: Modes | None,
    autocast: AutocastState,
) -> OnGuard:
    """Return the handler for calls that fail a compiled module's guards.

    Raises:
        SettingsError: calls change the model's weights, and the engine has copies of them.
    """
    from trtcache.runtime.on_guard import OnGuard  # rarely needed

    if any(slot.mutated for slot in module.interface.slots):
        raise SettingsError("on_guard", f"calls of {module.report.name} change its weights: leave it at 'error'")
    torch_model = source.model
    if isinstance(torch_model, torch.nn.Module):
        compile_branch = partial(_compile_branch, torch_model, modes, compile_again, dynamic_shapes)
        return OnGuard(policy, module.report, lambda: torch_model, compile_branch, modes, autocast)

    @functools.cache
    def program() -> torch.nn.Module:
        with resolve(model) as opened:
            return opened.program().module()

    def one_branch(*_: object) -> CompiledModule:
        raise ExportError(module.report.name, "an exported program has one branch only: compile the torch.nn.Module")

    return OnGuard(policy, module.report, program, one_branch, autocast=autocast)


def _compile_branch(
    model: torch.nn.Module,
    modes: Modes | None,
    compile_again: Callable[..., CompiledModule],
    dynamic_shapes: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> CompiledModule:
    """Compile a model with example inputs that take another of its branches.

    In that branch, sizes that the caller named differently may be equal or fixed. torch then refuses
    ``dynamic_shapes``, and is left to infer which sizes vary (``Dim.AUTO``). The model may be in train mode by now.
    """
    if modes is not None:
        from trtcache.runtime.on_guard import in_modes

        model = in_modes(model, modes)
    try:
        return compile_again(model, args, kwargs, dynamic_shapes=dynamic_shapes)
    except ExportError:
        automatic = pytree.tree_map(
            lambda size: size if size is None or isinstance(size, int) else torch.export.Dim.AUTO, dynamic_shapes
        )
        return compile_again(model, args, kwargs, dynamic_shapes=automatic)
