"""Programs that carry their engines: written and loaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from trtcache.cache import Cache
from trtcache.config import logs
from trtcache.config.environment import Config
from trtcache.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trtcache.bundle.export import Exported
    from trtcache.runtime import CompiledModule


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
    """Return the compiled module in a file that ``export`` wrote, after verifying it. Nothing of it is unpickled.

    It needs neither the model's code nor a cache, and takes other weights by ``refit``. Its weights are the file's own
    memory: replace the file by renaming a new one over it.

    Args:
        path: the file.
        cache: where its engines are stored as well, and where those that it only refers to are looked for.
        trust: None where it is signed by a key of ``TRTCACHE_TRUSTED_KEYS``; ``local-file`` if you made it or know who
            did, for an engine runs code; or public keys that count, as ``NAME:HEX``.
        on_guard: ``error``: a call with sizes that the program was not exported for raises GuardError. The other
            policies of ``compile`` need the model, which is not in the file.

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
        SettingsError: ``trust`` is none of those, or ``on_guard`` is not ``error``.
        IncompatibleEngineError: an engine that fits cannot be loaded.
        StoreError: ``cache`` names a directory that cannot be a cache.
    """
    from trtcache.bundle.load import load as load_file
    from trtcache.runtime.on_guard import parse_on_guard

    if parse_on_guard(on_guard) != "error":
        raise SettingsError("on_guard", f"{on_guard!r} needs the model, which is not in the file; leave it at 'error'")
    logs.start(os.environ)
    store = cache if cache is None or isinstance(cache, Cache) else Cache(cache)
    keys = Config.from_environ(os.environ).trust.keys
    return load_file(Path(path), cache=store, keys=keys, trust=trust)
