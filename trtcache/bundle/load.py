"""The public ``load``: torch's libraries are loaded while what opens the file is imported."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trtcache.backends.host import preload

if TYPE_CHECKING:
    from trtcache.cache import Cache
    from trtcache.runtime import CompiledModule
    from trtcache.runtime.program import Program


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
            did, since an engine runs code; or public keys, as ``NAME:HEX``, one of which must have signed it.
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
    loading = preload() if outputs is not None or "torch" not in sys.modules else None
    try:
        from trtcache.bundle.open_file import open_file  # its imports take as long as half of torch's libraries

        return open_file(Path(path), cache, trust, on_guard=on_guard, outputs=outputs)
    finally:
        if loading is not None:  # a process that forks meanwhile would inherit a lock
            loading.join()
