"""Verify a program file, and load it without torch where its engines need none."""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from trtcache.bundle.archive import LOCAL_FILE, ProgramArchive
from trtcache.config.environment import Config, require_torch_allowed, start_logging
from trtcache.config.signing_keys import parse_keys
from trtcache.config.units import parse_word
from trtcache.errors import SettingsError
from trtcache.runtime.program import Program, parse_outputs
from trtcache.settings import ON_GUARD

if TYPE_CHECKING:
    from trtcache.cache import Cache
    from trtcache.runtime import CompiledModule

log = logging.getLogger(__name__)


def open_file(
    path: Path,
    cache: Cache | str | os.PathLike[str] | None,
    trust: str | None,
    *,
    on_guard: str,
    outputs: str | None,
) -> CompiledModule | Program:
    """Check the arguments, verify a program file and load it. Arguments and errors are those of ``trtcache.load``."""
    if parse_word(on_guard, ON_GUARD, "on_guard") != "error":
        raise SettingsError("on_guard", f"{on_guard!r} needs the model, which is not in the file; leave it at 'error'")
    parse_outputs(outputs)
    start_logging(os.environ)
    store = None
    if cache is not None:
        from trtcache.cache import Cache  # needed only for a cache that is passed

        store = cache if isinstance(cache, Cache) else Cache(cache)
    config = Config.from_environ(os.environ)
    keys = config.trust.keys
    start = time.perf_counter()
    if isinstance(trust, str) and ":" in trust:
        keys = parse_keys(trust, "trust")
    elif trust is not None and trust != LOCAL_FILE:
        raise SettingsError("trust", f"{trust!r} is neither None, {LOCAL_FILE!r} nor public keys as NAME:HEX")
    archive = ProgramArchive(path, keys=keys, local=trust == LOCAL_FILE)
    opened = time.perf_counter()
    loaded = _load(archive, store, outputs)
    loaded.report.file_s = opened - start
    loaded.report.compile_s = time.perf_counter() - start
    log.info("%s", loaded.report)
    return loaded


def _load(archive: ProgramArchive, cache: Cache | None, outputs: str | None) -> CompiledModule | Program:
    """Load a program without torch if torch is not imported or ``outputs`` is given; with torch if it needs torch."""
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
