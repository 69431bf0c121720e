"""Engines built for others: put into the cache, and not loaded."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trtcache.backends.members import ENGINE
from trtcache.cache import Cache
from trtcache.compiler.alias_lookup import Shortcut
from trtcache.compiler.lookup import entries_for, report_of
from trtcache.compiler.request import Request, program_of, refuse_examples, request_of, timed
from trtcache.config import logs
from trtcache.errors import PartitionError, SettingsError
from trtcache.frontends.onnx.file import is_onnx
from trtcache.frontends.pt2 import ProgramFile
from trtcache.partition.partitions import summarize_left
from trtcache.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.runtime import Report

log = logging.getLogger(__name__)


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
        from trtcache.compiler import onnx_compile as door

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
        from trtcache.compiler.kept_program import Asked, keep  # nobody else needs it

        keep(store, report, lambda: program_of(model), Asked.of(backend, wanted, target))
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
            program, load_s = timed(file.program)
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
        raise PartitionError(request.program.name, why, summarize_left(request.division.left))
    report = report_of(request)
    entry = next(iter(entries_for(request, cache, folder, report)), None)
    if output is not None and entry is not None:
        entry.write(ENGINE, output)
    return report
