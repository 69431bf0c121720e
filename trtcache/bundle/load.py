"""Loading of program files: verify the file, and load it without torch where its engines need none."""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from trtcache.backends.host import preload
from trtcache.bundle.archive import LOCAL_FILE, ProgramArchive
from trtcache.config.environment import Config, require_torch_allowed, start_logging
from trtcache.config.signing_keys import parse_keys
from trtcache.errors import SettingsError
from trtcache.runtime.guards import parse_on_guard
from trtcache.runtime.program import parse_outputs

if TYPE_CHECKING:
    from trtcache.cache import Cache
    from trtcache.runtime import CompiledModule
    from trtcache.runtime.program import Program

log = logging.getLogger(__name__)


def load(
    path: str | os.PathLike[str],
    *,
    cache: Cache | str | os.PathLike[str] | None = None,
    trust: str | None = None,
    on_guard: str = "error",
    outputs: str | None = None,
) -> CompiledModule | Program:
    """Load a compiled program from a file written by ``export``, after verifying it. Nothing is unpickled.

    It needs neither the model's code nor a cache, and accepts other weights through ``refit``. Its weights are the
    file's own memory: replace the file only by renaming a new one over it.

    In a process that has not imported torch, and with ``outputs``, a program whose engines need no torch is loaded
    without it (``docs/without-torch.md``). Otherwise torch is imported, and ``report.torch`` says why.

    Args:
        path: the file.
        cache: a cache to store its engines in, and to look up referenced engines.
        trust: None if it is signed by a key of ``TRTCACHE_TRUSTED_KEYS``; ``local-file`` if you wrote it or know who
            did, since an engine runs code; or public keys to trust, as ``NAME:HEX``.
        on_guard: ``error``: a call with sizes that the program was not exported for raises GuardError. The other
            policies of ``compile`` need the model, which is not in the file.
        outputs: ``numpy``, ``torch`` or ``dlpack``: the library of outputs. By default that of the inputs.

    Returns:
        A ``CompiledModule`` if torch was imported, else a ``Program``, which takes arrays of any library as inputs;
        ``.report.target`` is the target chosen from the file.

    Raises:
        NotAProgramError: it is not a program file.
        DamagedProgramError: it is damaged; the class says how.
        ProgramVersionError: it has a later format.
        UntrustedProgramError: it has no trusted signature.
        NoFittingEngineError: none of its engines can run here; the message says why, and the simplest remedy.
        MissingEngineError: a referenced engine or sidecar file is missing.
        ProgramFileError: it cannot be read.
        SettingsError: ``trust`` or ``outputs`` is invalid, or ``on_guard`` is not ``error``; or the program needs
            torch, and outputs of another library were requested.
        TorchForbiddenError: it needs torch, and ``TRTCACHE_NO_TORCH=1``.
        IncompatibleEngineError: an engine that fits cannot be loaded.
        StoreError: ``cache`` names a directory that cannot be a cache.
    """
    if parse_on_guard(on_guard) != "error":
        raise SettingsError("on_guard", f"{on_guard!r} needs the model, which is not in the file; leave it at 'error'")
    parse_outputs(outputs)
    loading = preload() if outputs is not None or "torch" not in sys.modules else None
    try:
        return _load(Path(path), cache, trust, outputs)
    finally:
        if loading is not None:  # a process that forks meanwhile would inherit a lock
            loading.join()


def _load(
    path: Path, cache: Cache | str | os.PathLike[str] | None, trust: str | None, outputs: str | None
) -> CompiledModule | Program:
    """Open and verify a file, and load it."""
    start_logging(os.environ)
    store = _open_cache(cache)
    config = Config.from_environ(os.environ)
    keys = config.trust.keys
    start = time.perf_counter()
    if isinstance(trust, str) and ":" in trust:
        keys = (*keys, *parse_keys(trust, "trust"))
    elif trust is not None and trust != LOCAL_FILE:
        raise SettingsError("trust", f"{trust!r} is neither None, {LOCAL_FILE!r} nor public keys as NAME:HEX")
    archive = ProgramArchive(path, keys=keys, local=trust == LOCAL_FILE)
    opened = time.perf_counter()
    loaded = _choose(archive, store, outputs)
    loaded.report.file_s = opened - start
    loaded.report.compile_s = time.perf_counter() - start
    log.info("%s", loaded.report)
    return loaded


def _choose(archive: ProgramArchive, cache: Cache | None, outputs: str | None) -> CompiledModule | Program:
    """Load a program without torch if its engines need none and torch is not imported, or outputs were chosen."""
    why = ""
    if outputs is not None or "torch" not in sys.modules:
        from trtcache.bundle.load_program import TorchNeeded, load_program

        try:
            return load_program(archive, cache, outputs)
        except TorchNeeded as error:
            why = str(error)
            log.info("%s needs torch: %s", archive.path, why)
        require_torch_allowed(str(archive.path), why)
        if outputs not in {None, "torch"}:
            raise SettingsError("outputs", f"{outputs!r}: this program needs torch ({why}), whose outputs are tensors")
    from trtcache.bundle.load_module import load_module

    module = load_module(archive, cache)
    module.report.torch = why
    return module


def _open_cache(cache: Cache | str | os.PathLike[str] | None) -> Cache | None:
    if cache is None:
        return None
    from trtcache.cache import Cache as OpenedCache  # rarely needed

    return cache if isinstance(cache, OpenedCache) else OpenedCache(cache)
