"""What ``trtcache.export`` and ``trtcache export`` do: from a module or a program to a file for some targets."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trtcache.bundle.contents import of_module, of_request
from trtcache.bundle.payload import check_way
from trtcache.bundle.retarget import retargeted
from trtcache.bundle.save import save
from trtcache.cache import Cache
from trtcache.compiler.compile import provenance_of
from trtcache.compiler.entries import entries_for, report_request
from trtcache.config.atomic_write import require_file
from trtcache.config.environment import Config
from trtcache.config.signing_keys import SecretKey
from trtcache.frontends.exported import ExportedSource
from trtcache.frontends.source import CompileOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from trtcache.bundle.contents import Outgoing
    from trtcache.runtime import CompiledModule
    from trtcache.settings import Settings


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote. Printing it gives a line or two.

    Attributes:
        name: what the program is called.
        backend: whose engines they are.
        targets: what they are for.
        engines: how many there are for each target.
        files: the program's file, and those that go beside it.
        size_bytes: of all of them.
        signer: by whose key it is signed; empty if it is not.
        export_s: seconds of all of it.
    """

    name: str
    backend: str
    targets: tuple[str, ...]
    engines: int
    files: tuple[Path, ...]
    size_bytes: int
    signer: str
    export_s: float

    def __str__(self) -> str:
        whose = f"signed by {self.signer}" if self.signer else "not signed: load it with trust='local-file'"
        files = ", ".join(map(str, self.files))
        counted = "1 engine" if self.engines == 1 else f"{self.engines} engines"
        return f"{self.name}: {counted} for {'; '.join(self.targets)}\n  {files} ({whose})"


def export_module(
    compiled: CompiledModule,
    path: Path,
    *,
    engines: str,
    targets: Sequence[str],
    cache: Cache | str | os.PathLike[str] | None,
) -> Exported:
    """Write a compiled module, for its own target or for others.

    Raises:
        ProgramFileError: it has no stored engines, or something in it cannot be written.
        RefitError: weights that an engine's were made from are gone.
        SettingsError: ``engines`` or a target is unknown, or the signing key cannot be read.
        BuildError: an engine for another target could not be built.
        OSError: the file cannot be written.
    """
    start = time.perf_counter()
    check_way(engines)
    require_file(path)
    outgoing = of_module(compiled, str(path))
    if targets:
        store = cache if isinstance(cache, Cache) else Cache(cache)
        outgoing = replace(
            outgoing, origins=tuple(retargeted(outgoing, one, store, path) for one in dict.fromkeys(targets))
        )
    return _written(outgoing, path, engines, start)


def export_program(
    program: torch.export.ExportedProgram,
    path: Path,
    *,
    engines: str,
    targets: Sequence[str],
    backend: str,
    settings: Settings,
    cache: Cache,
    name: str | None,
) -> Exported:
    """Build a program's engines for each target, or take them from the cache, and write it; nothing is loaded.

    Raises:
        ExportError: an operator cannot be decomposed.
        BackendUnavailableError: the backend is unknown or cannot build here.
        ProgramFileError: something in the program cannot be written.
        SettingsError: ``engines``, a setting or a target is unknown, or the signing key cannot be read.
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``.
        BuildError: a build failed.
        OSError: the file cannot be written.
    """
    start = time.perf_counter()
    check_way(engines)
    require_file(path)
    source = ExportedSource(program, name or type(program).__name__)
    outgoing: Outgoing | None = None
    for target in dict.fromkeys(targets or (None,)):
        request = source.request(CompileOptions(backend, settings, target))
        with tempfile.TemporaryDirectory(prefix="trtcache-build-") as folder:
            found = entries_for(request, cache, Path(folder), report_request(request))
            numbers = [0] if request.division.is_whole else sorted(request.division.engines)
            origin = provenance_of(request, request.division, dict(zip(numbers, found, strict=True)))
        if outgoing is None:
            outgoing = of_request(request, origin)
        else:
            outgoing = replace(outgoing, origins=(*outgoing.origins, origin))
    assert outgoing is not None  # noqa: S101  # there is one target at least
    return _written(outgoing, path, engines, start)


def _written(outgoing: Outgoing, path: Path, engines: str, start: float) -> Exported:
    signing = Config.from_environ(os.environ).trust.signing_key
    key = SecretKey.read(signing) if signing is not None else None
    files = save(outgoing, path, engines=engines, key=key)
    return Exported(
        name=outgoing.name,
        backend=outgoing.backend,
        targets=tuple(one.label for one in outgoing.origins),
        engines=len(outgoing.origins[0].entries),
        files=tuple(files),
        size_bytes=sum(one.stat().st_size for one in files),
        signer=key.name if key else "",
        export_s=time.perf_counter() - start,
    )
