"""Keys, lowered programs and outlines of models, ahead-of-time builds, and rebuilds of kept programs.

A key has the exact versions of the tools that built its engine (``Backend.versions``), and a request has those of this
process. After an upgrade no request has the key of an old entry.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtcache.backends import registry
from trtcache.cache import Cache
from trtcache.compiler.compile import build_source
from trtcache.compiler.program_file import (
    FLAGS,
    OPTIONS,
    PROGRAM,
    STRUCTURES,
    KeptOptions,
    keep,
    key_of,
    read_program,
    use_flags,
)
from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import CacheKey, canonical
from trtcache.errors import BackendUnavailableError, CanonicalizationError, SettingsError, StoreError
from trtcache.frontends.resolve import Model, resolve
from trtcache.frontends.source import CompileOptions
from trtcache.keys.alias_key import KIND as ALIAS
from trtcache.keys.alias_key import code_digest

if TYPE_CHECKING:
    import torch

    from trtcache.keys.stored_graph import StoredGraph
    from trtcache.lowering import LoweredProgram
    from trtcache.partition.outline import Outline
    from trtcache.runtime import Report
    from trtcache.settings import Settings
    from trtcache.store.contract import Entry
    from trtcache.store.disk import DiskStore
    from trtcache.store.record import Record


def lower(
    model: Model,
    args: tuple[Any, ...] | torch.Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    backend: str = "auto",
    settings: Settings | Mapping[str, object] | None = None,
    name: str | None = None,
    trace: bool = False,
) -> LoweredProgram:
    """Return the lowered program that ``compile`` would build from; ``.text`` shows it.

    With ``trace``, ``.runs`` has a diff of the changes of each pass.

    Raises:
        ExportError: the model cannot be exported.
        PassError: a lowering pass broke its contract.
        BackendUnavailableError: the backend is unknown or cannot run here.
        SettingsError: example inputs were passed for a program that has its own.
    """
    options = CompileOptions.of(backend, settings, None)
    with resolve(model, args, kwargs, dynamic_shapes, name=name) as source:
        return source.lower(options, trace=trace)


def key(
    model: Model,
    args: tuple[Any, ...] | torch.Tensor = (),
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

    Models of equal architecture have equal keys, regardless of their weights and of the names of their parameters.
    The arguments are those of ``compile``; no key depends on ``cache``, which is not opened.

    Raises:
        ExportError: the model cannot be exported.
        CanonicalizationError: something in the program has no stable description, or it is compiled in partitions.
        BackendUnavailableError: the backend is unknown or cannot run here.
        SettingsError: a setting or the target is unknown, or example inputs were passed for a program that has its own.
    """
    with resolve(model, args, kwargs, dynamic_shapes, name=name) as source:
        request = source.request(CompileOptions.of(backend, settings, target))
    if isinstance(request.key, CanonicalizationError):
        raise request.key
    return request.key


def outline(
    model: Model,
    *,
    backend: str = "auto",
    settings: Settings | Mapping[str, object] | None = None,
    name: str | None = None,
) -> Outline:
    """Return the partitions in which ``compile`` would run a program, for printing; nothing is built.

    Raises:
        ExportError: the model cannot be exported.
        BackendUnavailableError: the backend is unknown or cannot run here.
        PartitionError: the settings require one engine, and an operator would stay in torch.
        SettingsError: a setting is unknown.
    """
    from trtcache.partition.outline import make_outline

    with resolve(model, (), None, None, name=name) as source:
        options = CompileOptions.of(backend, settings, None)
        if not source.is_torch:
            source.lower(options)  # raises
        request = source.request(options)
    keys = {number: partition.key for number, partition in request.partitions.items()}
    return make_outline(request.program, request.division, request.backend.name, keys)


def key_and_graph(
    model: torch.export.ExportedProgram | str | os.PathLike[str],
    *,
    backend: str = "auto",
    target: str | None = None,
    name: str | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> tuple[CacheKey, StoredGraph]:
    """Return the key of an exported program or a program's file, and its graph in the form that entries store.

    Raises:
        ExportError: the file cannot be read, or the program has something that no engine supports.
        CanonicalizationError: something in the program has no stable description.
        BackendUnavailableError: the backend is unknown or cannot run here.
        SettingsError: the target is unknown.
    """
    with resolve(model, (), inputs, name=name) as source:
        request = source.request(CompileOptions.of(backend, None, target))
    if isinstance(request.key, CanonicalizationError):
        raise request.key
    return request.key, request.graph()


def rebuild(cache: Cache, entry: Entry) -> Report:
    """Build a kept program's engines for the installed versions unless they are stored, and store it under its new key.

    The old entry of the program is removed. The new one is pinned if the old one was.

    Raises:
        SettingsError: the entry is not a kept program, or has a setting, a target or a flag of torch that is unknown
            now.
        ExportError: torch cannot read the program any more.
        BackendUnavailableError: its backend cannot build here.
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``.
        BuildError: the build failed.
    """
    try:
        options = KeptOptions.read(bytes(entry.read(OPTIONS)))
    except (KeyError, ValueError) as error:
        raise SettingsError(f"entry {entry.key.digest[:16]}", f"it is not a kept program: {error}") from error
    with ExitStack() as stack:
        if FLAGS in entry.members:  # programs that were kept by older versions have none
            try:
                stack.enter_context(use_flags(json.loads(bytes(entry.read(FLAGS)))))
            except ValueError as error:
                raise SettingsError(f"entry {entry.key.digest[:16]}", str(error)) from error
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trtcache-program-"))) / PROGRAM
        entry.write(PROGRAM, path)
        has_classes = STRUCTURES in entry.members
        report = build(
            read_program(path, json.loads(bytes(entry.read(STRUCTURES)))) if has_classes else path,
            backend=options.backend,
            settings=options.settings,
            target=options.target,
            cache=cache,
            name=entry.name,
        )
    if any(partition.frozen for partition in report.partitions):
        why = "its engine cannot be built without values of weights, which a kept program does not have"
        raise SettingsError(f"entry {entry.key.digest[:16]}", why)
    key = key_of(report)
    if key is not None and key.digest != entry.key.digest:
        contents = {member: bytes(entry.read(member)) for member in entry.members}
        cache.keep(key, contents, build_s=entry.build_s, name=entry.name)
        store, old = cache.store, entry.key.digest
        if store is not None and store.contains(key.digest):
            if old in store.pins():
                store.pin(key.digest)
                store.unpin(old)
            cache.delete(entry.key)  # or the next rebuild would do this again
    return report


@frozen_dataclass
class Staleness:
    """Which entries are stale.

    Attributes:
        stale: digests of the entries that cannot be used with the installed versions.
        unchecked: why other entries were not checked, by backend and device: a backend that cannot run here may run on
            another machine.
    """

    stale: list[str] = field(default_factory=list)
    unchecked: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, store: DiskStore, records: Iterable[Record]) -> Staleness:
        """Check entries by the toolchain and the code in their keys.

        An entry that names no toolchain, or that cannot be read, is not stale.
        """
        staleness, installed = cls(), dict[tuple[str, str], Any]()
        for record in records:
            parts = _parts(store, record.digest)
            recorded, target = parts.get("toolchain"), parts.get("target")
            if not isinstance(recorded, dict):  # none, or a part of a caller's own key
                continue
            backend = str(parts.get("backend", "")) if record.kind == ALIAS else record.kind
            device = str(target.get("device", "cpu")) if isinstance(target, dict) else "cpu"
            try:
                if (backend, device) not in installed:
                    toolchain = registry.find(backend, device).versions(device)
                    installed[backend, device] = canonical(toolchain)
            except BackendUnavailableError as error:
                staleness.unchecked[f"{backend} for {device}"] = str(error)
                continue
            # A plan from an ONNX file records no versions of the exporters from torch.
            versions = installed[backend, device]
            is_other = any(versions.get(name) != version for name, version in recorded.items())
            if is_other or ("code" in parts and parts["code"] != canonical(code_digest())):
                staleness.stale.append(record.digest)
        return staleness


def _parts(store: DiskStore, digest: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = store.header(digest).key.document
    except (OSError, StoreError):
        return {}
    parts = document.get("parts", {})
    return parts if isinstance(parts, dict) else {}


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
            keep(store, report, source.program, options)
    report.compile_s = time.perf_counter() - start
    log.info("%s", report)
    return report
