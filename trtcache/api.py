"""The front door: ``compile``, ``lower`` and ``key``. It arranges the parts and decides nothing."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import torch

import trtcache.backends.aot_inductor.backend  # noqa: F401  # the default one: its import is not the first call's
from trtcache import logs
from trtcache.backends import registry
from trtcache.backends.members import ENGINE
from trtcache.cache import Cache
from trtcache.compiling import compile_exported, entries_for, graph_of, report_of, requests_of
from trtcache.compiling import compile_request as compile_request
from trtcache.config import Config, parse_direct
from trtcache.direct.mode import Attempt
from trtcache.errors import CanonicalizationError, PartitionError, SettingsError
from trtcache.onnx.file import is_onnx
from trtcache.partition.division import in_words
from trtcache.pt2 import ProgramFile
from trtcache.request import (
    Model,
    collector_paused,
    device_kind,
    exported_of,
    lowered,
    opened,
    refuse_examples,
    request_of,
)
from trtcache.request import Request as Request
from trtcache.runtime.verification import Examples
from trtcache.settings import Settings
from trtcache.shortcut import Shortcut
from trtcache.torchscript import converted, script_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trtcache.keys.stored import StoredGraph
    from trtcache.lowering import LoweredProgram
    from trtcache.partition.outline import Outline
    from trtcache.portable.exporting import Exported
    from trtcache.runtime import CompiledModule, Report
    from trtcache.values import CacheKey

T = TypeVar("T")
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
) -> CompiledModule:
    """Compile a model for inference, or take its engine from the cache and put this model's weights in.

    Args:
        model: a module, a program that ``torch.export.export`` made (with its own example inputs), or the path of a
            ``.pt2`` file that ``torch.export.save`` wrote, or of an ``.onnx`` file, for TensorRT and TensorRT-RTX; or a
            TorchScript module or its file, with example inputs, whose sizes it then has. Of a ``.pt2`` or ``.onnx``
            file that has not changed since it was last compiled nothing is exported or lowered. Its weights are then
            the file's own memory: replace it by renaming. A module is not exported where direct mode knows it, and
            lowered once.
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
        direct: ``on``, ``verify`` or ``off``: whether a module that is known is not exported (``docs/direct-mode.md``);
            by default what ``TRTCACHE_DIRECT`` says. It is in no key.

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
    examples = (args, kwargs, dynamic_shapes)
    attempt = _attempt(model, examples, store, direct, name)
    found = _known(model, examples, attempt, backend, wanted, target, name) if attempt else None
    if found is None:
        start += 0.0 if isinstance(model, (str, os.PathLike)) else _timed(_import_stages)[1]
        found = _compiled(model, examples, store, backend, wanted, target, name, attempt)
    module, program = found
    module.threads = wanted.threads
    if keep_program:
        _keep(module.report, program, store, backend, wanted, target)
    module.report.compile_s = time.perf_counter() - start
    log.info("%s", module.report)
    return module


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
        program, convert_s = _timed(lambda: converted(script, *examples))
        module, of_program = _compiled(program, ((), None, None), cache, backend, settings, target, label)
        module.examples = Examples.of(script, args, kwargs)
        module.report.export_s += convert_s
        return module, of_program
    if is_onnx(model):
        from trtcache.onnx import door

        door.refuse_dynamic_shapes(dynamic_shapes)
        module = door.compile_file(
            Path(model), args, kwargs, cache=cache, backend=backend, settings=settings, target=target, name=name
        )
        return module, None
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        return _compile_file(path, examples, cache, backend, settings, target, name), lambda: _program_of(path)
    with attempt.watching() if attempt else nullcontext():
        exported = exported_of(model, args, kwargs, dynamic_shapes, backend, settings, name)
    module = compile_exported(exported, model, cache=cache, settings=settings, target=target)
    if attempt:
        attempt.keep(exported, module, settings, target)
    module.examples = Examples.of(model, args, kwargs)
    return module, lambda: exported.program


def _program_of(model: torch.export.ExportedProgram | str | os.PathLike[str]) -> torch.export.ExportedProgram:
    if isinstance(model, torch.export.ExportedProgram):
        return model
    with ProgramFile(Path(model)) as file:
        return file.program()


def _keep(
    report: Report, program: OfProgram | None, cache: Cache, backend: str, settings: Settings, target: str | None
) -> None:
    from trtcache.kept import Asked, keep  # nobody else needs it

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
            program, load_s = _timed(file.program)
            request = request_of(program, (), None, None, backend, settings, target, name or path.stem)
            module = compile_request(request, cache, program)
            module.report.export_s += load_s
            if shortcut:
                shortcut.keep(program, request.program, request.key, load_s + request.took_s)
    module.report.file_s = file_s
    return module


def _timed(action: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    result = action()
    return result, time.perf_counter() - start


def export(
    compiled: CompiledModule,
    path: str | os.PathLike[str],
    *,
    engines: str = "embed",
    target: str | Sequence[str] | None = None,
    cache: Cache | str | os.PathLike[str] | None = None,
) -> Exported:
    """Write a compiled module to a file that carries its engines, weights and call signature.

    ``torch.export.load`` opens it as a program with an operator for each engine, once that operator's schema is
    declared; ``load`` runs it. The file is signed where a signing key is set (``TRTCACHE_SIGNING_KEY``).

    Args:
        compiled: what ``compile`` returned, with the weights that it has now.
        path: the file, ``NAME.pt2``; it appears complete or not at all.
        engines: ``embed``; ``sidecar`` for files beside it, which are mapped when it is loaded; ``reference`` for
            engines that are taken from a cache when it is loaded.
        target: what else it is to run on, such as ``x86-64-v3``, or several; the engines for those are built, or taken
            from the cache. With one or more targets those alone are in the file.
        cache: where engines for other targets are kept; by default what the ``TRTCACHE_*`` variables say.

    Returns:
        What was written: ``targets`` and ``files``.

    Raises:
        ProgramFileError: the module has no stored engines, or something in it cannot be written.
        RefitError: weights that an engine's were made from are gone: refit the module with the model.
        SettingsError: ``engines`` or a target is unknown, or the signing key cannot be read.
        BuildError: an engine for another target could not be built.
        OSError: the file cannot be written.
    """
    from trtcache.portable.exporting import export_module

    targets = (target,) if isinstance(target, str) else tuple(target or ())
    return export_module(compiled, Path(path), engines=engines, targets=targets, cache=cache)


def load(
    path: str | os.PathLike[str],
    *,
    cache: Cache | str | os.PathLike[str] | None = None,
    trust: str | None = None,
) -> CompiledModule:
    """Return the compiled module in a file that ``export`` wrote, after verifying it. Nothing of it is unpickled.

    It needs neither the model's code nor a cache, and takes other weights by ``refit``. Its weights are the file's own
    memory: replace the file by renaming a new one over it.

    Args:
        path: the file.
        cache: where its engines are stored as well, and where those that it only refers to are looked for.
        trust: None where it is signed by a key of ``TRTCACHE_TRUSTED_KEYS``; ``local-file`` if you made it or know who
            did, for an engine runs code; or public keys that count, as ``NAME:HEX``.

    Returns:
        The module; ``.report.target`` says which of the file's targets was taken.

    Raises:
        NotAProgramError: it is no such file.
        DamagedProgramError: it is not as it was written; its class says in what way.
        ProgramVersionError: it is of a later format.
        UntrustedProgramError: nobody whose signature counts has signed it.
        NoFittingEngineError: none of its engines can run here; the message says why, and what is the least to do.
        MissingEngineError: an engine that it refers to, or the file of one, is not there.
        ProgramFileError: it cannot be read.
        SettingsError: ``trust`` is none of those.
        IncompatibleEngineError: an engine that fits cannot be loaded.
        StoreError: ``cache`` names a directory that cannot be a cache.
    """
    from trtcache.portable.loading import load as load_file

    logs.start(os.environ)
    store = cache if cache is None or isinstance(cache, Cache) else Cache(cache)
    keys = Config.from_environ(os.environ).trust.keys
    return load_file(Path(path), cache=store, keys=keys, trust=trust)


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


def build(
    model: torch.export.ExportedProgram | str | os.PathLike[str],
    *,
    backend: str = "auto",
    settings: Settings | Mapping[str, object] | None = None,
    target: str | None = None,
    cache: Cache | str | os.PathLike[str] | None = None,
    name: str | None = None,
    output: Path | None = None,
    inputs: Mapping[str, Any] | None = None,
    keep_program: bool = False,
) -> Report:
    """Put the engine of a program or its file into the cache if it is not there, and write it to ``output`` as well.

    The engine is not loaded: it may be for another machine. It has no weights in it, unless the settings say so.
    ``inputs`` are sizes for what an ONNX file leaves open, by name, and ``keep_program`` is as ``compile`` takes it.

    Raises:
        ExportError: the file cannot be read, or is no exported program.
        BackendUnavailableError: the backend is unknown or cannot build here.
        SettingsError: a setting or the target is unknown.
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``.
        BuildError: the build failed.
        BusyError: another process builds it, and ``on_busy`` is ``eager``.
        PartitionError: there is an ``output``, and the program is not one engine.
        StoreError: ``cache`` names a directory that cannot be a cache.
        OSError: ``output`` cannot be written.
    """
    logs.start(os.environ)
    start = time.perf_counter()
    store, wanted = cache if isinstance(cache, Cache) else Cache(cache), Settings.of(settings)
    if is_onnx(model):
        from trtcache.onnx import door

        if keep_program:
            raise SettingsError("keep_program", "an ONNX file is the program: keep the file")
        return door.build_file(
            Path(model), inputs, cache=store, backend=backend, settings=wanted, target=target, name=name, output=output
        )
    with tempfile.TemporaryDirectory(prefix="trtcache-build-") as folder:
        if isinstance(model, torch.export.ExportedProgram):
            request = request_of(model, (), inputs, None, backend, wanted, target, name)
            report = _build_request(request, store, Path(folder), output)
        else:
            refuse_examples(Path(model).name, (), inputs, None)
            report = _build_file(Path(model), store, Path(folder), backend, wanted, target, name, output)
    if keep_program:
        _keep(report, lambda: _program_of(model), store, backend, wanted, target)
    report.compile_s = time.perf_counter() - start
    log.info("%s", report)
    return report


def _build_file(
    path: Path,
    cache: Cache,
    folder: Path,
    backend: str,
    settings: Settings,
    target: str | None,
    name: str | None,
    output: Path | None,
) -> Report:
    start = time.perf_counter()
    with ProgramFile(path) as file:
        file_s, label = time.perf_counter() - start, name or path.stem
        shortcut = Shortcut.of(file, backend=backend, settings=settings, target=target, cache=cache)
        found = shortcut.find() if shortcut else None
        if shortcut and found:
            report = shortcut.report(label, found)
            file.check(found.memo.whole)
            if output is not None:
                found.entry.write(ENGINE, output)
        else:
            program, load_s = _timed(file.program)
            request = request_of(program, (), None, None, backend, settings, target, label)
            report = _build_request(request, cache, folder, output)
            report.export_s += load_s
            if shortcut:
                shortcut.keep(program, request.program, request.key, load_s + request.took_s)
    report.file_s = file_s
    return report


def _build_request(request: Request, cache: Cache, folder: Path, output: Path | None) -> Report:
    if output is not None and not request.division.is_whole:
        why = "a file has one; leave the output out"
        raise PartitionError(request.program.name, why, in_words(request.division.left))
    report = report_of(request)
    entry = next(iter(entries_for(request, cache, folder, report)), None)
    if output is not None and entry is not None:
        entry.write(ENGINE, output)
    return report


def lower(
    model: Model,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    backend: str = "auto",
    settings: Settings | Mapping[str, object] | None = None,
    name: str | None = None,
    trace: bool = False,
) -> LoweredProgram:
    """Return the lowered program that ``compile`` would build from; ``.text`` shows it.

    With ``trace``, ``.runs`` has what each pass changed, as a diff.

    Raises:
        ExportError: the model cannot be exported.
        PassError: a lowering pass broke its contract.
        BackendUnavailableError: the backend is unknown or cannot run here.
        SettingsError: there are example inputs for a program that has its own.
    """
    logs.start(os.environ)
    if (script := script_of(model)) is not None:
        program = converted(script, args, kwargs, dynamic_shapes)
        return lower(program, backend=backend, settings=settings, name=name or script.original_name, trace=trace)
    model, name = opened(model, name)
    if isinstance(model, torch.export.ExportedProgram):
        refuse_examples(name, args, kwargs, dynamic_shapes)
    chosen, wanted = registry.find(backend, device_kind(model, args, kwargs)), Settings.of(settings)
    return lowered(model, args, kwargs, dynamic_shapes, chosen, wanted, name, trace=trace)


def key(
    model: Model,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    backend: str = "auto",
    settings: Settings | Mapping[str, object] | None = None,
    target: str | None = None,
    cache: Cache | str | os.PathLike[str] | None = None,  # noqa: ARG001  # the same arguments as compile
    name: str | None = None,
) -> CacheKey:
    """Return the key that ``compile`` would use for these arguments, without building.

    Models of equal architecture have equal keys whatever their weights and the names of their parameters are. The
    arguments are those of ``compile``; no key depends on ``cache``, which is neither opened nor looked at.

    Raises:
        ExportError: the model cannot be exported.
        CanonicalizationError: something in the program has no stable description, or it is compiled in parts.
        BackendUnavailableError: the backend is unknown or cannot run here.
        SettingsError: a setting or the target is unknown, or there are example inputs for a program that has its own.
    """
    if (script := script_of(model)) is not None:
        program = converted(script, args, kwargs, dynamic_shapes)
        return key(program, backend=backend, settings=settings, target=target, name=name)
    made: CacheKey | CanonicalizationError
    if is_onnx(model):
        from trtcache.onnx import door

        door.refuse_dynamic_shapes(dynamic_shapes)
        made = door.request_of(Path(model), args, kwargs, backend, Settings.of(settings), target, name).key
    else:
        made = request_of(model, args, kwargs, dynamic_shapes, backend, Settings.of(settings), target, name).key
    if isinstance(made, CanonicalizationError):
        raise made
    return made


def outline(
    model: Model,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    backend: str = "auto",
    settings: Settings | Mapping[str, object] | None = None,
    name: str | None = None,
) -> Outline:
    """Return in which parts ``compile`` would run a program, for people; nothing is built.

    Raises:
        ExportError: the model cannot be exported.
        BackendUnavailableError: the backend is unknown or cannot run here.
        PartitionError: the settings want one engine, and something would stay in torch.
        SettingsError: a setting is unknown, or there are example inputs for a program that has its own.
    """
    if (script := script_of(model)) is not None:
        program = converted(script, args, kwargs, dynamic_shapes)
        return outline(program, backend=backend, settings=settings, name=name or script.original_name)
    from trtcache.partition.outline import outlined

    request = request_of(model, args, kwargs, dynamic_shapes, backend, Settings.of(settings), None, name)
    keys = {number: part.key for number, part in requests_of(request).items()}
    return outlined(request.program, request.division, request.backend.name, keys)


def described(
    model: torch.export.ExportedProgram | str | os.PathLike[str],
    *,
    backend: str = "auto",
    target: str | None = None,
    name: str | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> tuple[CacheKey, StoredGraph]:
    """Return the key of an exported program, or of one in a file, and its graph in the form in which entries keep it.

    Raises:
        ExportError: the file cannot be read, or the program is something that no engine takes.
        CanonicalizationError: something in the program has no stable description.
        BackendUnavailableError: the backend is unknown or cannot run here.
        SettingsError: the target is unknown.
    """
    if is_onnx(model):
        from trtcache.onnx import door

        return door.described(Path(model), inputs, backend=backend, target=target, name=name)
    request = request_of(model, (), inputs, None, backend, Settings(), target, name)
    if isinstance(request.key, CanonicalizationError):
        raise request.key
    return request.key, graph_of(request)
