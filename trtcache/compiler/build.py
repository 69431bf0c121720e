"""Ahead-of-time builds: engines are put into the cache and not loaded."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from trtcache.cache import Cache
from trtcache.compiler.compile import build_source
from trtcache.errors import SettingsError
from trtcache.frontends.resolve import resolve
from trtcache.frontends.source import CompileOptions

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from pathlib import Path

    import torch

    from trtcache.runtime import Report
    from trtcache.settings import Settings

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
    """Build the engine of a program or of its file unless it is in the cache, and write it to ``output`` as well.

    The engine is not loaded: it may be for another machine. It contains no weights, unless the settings embed them.
    ``inputs`` gives the dynamic sizes of an ONNX file, by name; ``keep_program`` is that of ``compile``.

    Raises:
        ExportError: the file cannot be read, or is not an exported program.
        BackendUnavailableError: the backend is unknown or cannot build here.
        SettingsError: a setting or the target is unknown.
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``.
        BuildError: the build failed.
        BusyError: another process builds it, and ``on_busy`` is ``eager``.
        PartitionError: ``output`` was passed, and the program is not one engine.
        StoreError: ``cache`` names a directory that cannot be a cache.
        OSError: ``output`` cannot be written.
    """
    start = time.perf_counter()
    store, options = cache if isinstance(cache, Cache) else Cache(cache), CompileOptions.of(backend, settings, target)
    with resolve(model, (), inputs, name=name) as source:
        if keep_program and not source.is_torch:
            raise SettingsError("keep_program", f"{source.label} is not a torch program: keep the file itself")
        report = build_source(source, options, store, output)
        report.file_s = source.file_s
        if keep_program:
            from trtcache.compiler.kept_program import KeptOptions, keep  # rarely needed

            keep(store, report, source.program, KeptOptions.of(options))
    report.compile_s = time.perf_counter() - start
    log.info("%s", report)
    return report
