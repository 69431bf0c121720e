"""Export and loading of programs with their engines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from trtcache.cache import Cache
from trtcache.config.environment import Config, start_logging
from trtcache.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trtcache.bundle.export import ExportReport
    from trtcache.runtime import CompiledModule


def export(
    compiled: CompiledModule,
    path: str | os.PathLike[str],
    *,
    engines: str = "embed",
    target: str | Sequence[str] | None = None,
    cache: Cache | str | os.PathLike[str] | None = None,
) -> ExportReport:
    """Write a compiled module to a file with its engines, weights and call signature.

    ``torch.export.load`` opens it as a program with an operator for each engine, once that operator's schema is
    declared; ``load`` runs it. The file is signed if a signing key is set (``TRTCACHE_SIGNING_KEY``).

    Args:
        compiled: the result of ``compile``; its current weights are written.
        path: the file, ``NAME.pt2``, written atomically.
        engines: ``embed``; ``sidecar`` for files in the same folder, which are mapped on load; ``reference`` for
            engines taken from a cache on load.
        target: other targets to run on, such as ``x86-64-v3``, one or several; their engines are built, or taken from
            the cache. If given, the file contains these targets only.
        cache: the cache for engines of other targets; by default that of the ``TRTCACHE_*`` variables.

    Returns:
        A report with ``targets`` and ``files``.

    Raises:
        ProgramFileError: the module has no stored engines, or something in it cannot be written.
        RefitError: model weights that an engine weight is computed from no longer exist: refit with the model.
        SettingsError: ``engines`` or a target is unknown, or the signing key cannot be read.
        BuildError: an engine for another target could not be built.
        OSError: the file cannot be written.
    """
    from trtcache.bundle.export import export_module

    targets = (target,) if isinstance(target, str) else tuple(target or ())
    return export_module(compiled, Path(path), engines=engines, targets=targets, cache=cache)


def load(
    path: str | os.PathLike[str],
    *,
    cache: Cache | str | os.PathLike[str] | None = None,
    trust: str | None = None,
    on_guard: str = "error",
) -> CompiledModule:
    """Load a compiled module from a file written by ``export``, after verifying it. Nothing is unpickled.

    It needs neither the model's code nor a cache, and accepts other weights through ``refit``. Its weights are the
    file's own memory: replace the file only by renaming a new one over it.

    Args:
        path: the file.
        cache: a cache to store its engines in, and to look up referenced engines.
        trust: None if it is signed by a key of ``TRTCACHE_TRUSTED_KEYS``; ``local-file`` if you wrote it or know who
            did, since an engine runs code; or public keys to trust, as ``NAME:HEX``.
        on_guard: ``error``: a call with sizes that the program was not exported for raises GuardError. The other
            policies of ``compile`` need the model, which is not in the file.

    Returns:
        The module; ``.report.target`` is the target chosen from the file.

    Raises:
        NotAProgramError: it is not a program file.
        DamagedProgramError: it is damaged; the class says how.
        ProgramVersionError: it has a later format.
        UntrustedProgramError: it has no trusted signature.
        NoFittingEngineError: none of its engines can run here; the message says why, and the simplest remedy.
        MissingEngineError: a referenced engine or sidecar file is missing.
        ProgramFileError: it cannot be read.
        SettingsError: ``trust`` is invalid, or ``on_guard`` is not ``error``.
        IncompatibleEngineError: an engine that fits cannot be loaded.
        StoreError: ``cache`` names a directory that cannot be a cache.
    """
    from trtcache.bundle.load import load as load_file
    from trtcache.runtime.on_guard import parse_on_guard

    if parse_on_guard(on_guard) != "error":
        raise SettingsError("on_guard", f"{on_guard!r} needs the model, which is not in the file; leave it at 'error'")
    start_logging(os.environ)
    store = cache if cache is None or isinstance(cache, Cache) else Cache(cache)
    keys = Config.from_environ(os.environ).trust.keys
    return load_file(Path(path), cache=store, keys=keys, trust=trust)
