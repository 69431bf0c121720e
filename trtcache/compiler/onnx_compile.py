"""What the front door does with ONNX files. It arranges; the parts are elsewhere in this package."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtcache.backends.members import ENGINE
from trtcache.compiler.onnx_engine import Order, device_here
from trtcache.config import logs
from trtcache.errors import CanonicalizationError, IncompatibleEngineError, SettingsError
from trtcache.frontends.onnx.asked import Asked
from trtcache.frontends.onnx.file import OnnxFile
from trtcache.frontends.onnx.request import OnnxRequest
from trtcache.keys.stored_graph import StoredGraph
from trtcache.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trtcache.cache import Cache
    from trtcache.compiler.onnx_module import OnnxModule
    from trtcache.digests import CacheKey
    from trtcache.runtime import Report

log = logging.getLogger(__name__)


def refuse_dynamic_shapes(given: object) -> None:
    """Refuse what only ``torch.export`` understands.

    Raises:
        SettingsError: it is not None.
    """
    if given is not None:
        how = "args=(trtcache.Input(min_shape=..., opt_shape=..., max_shape=...),)"
        raise SettingsError("dynamic_shapes", f"an ONNX file says which sizes vary; say how far with {how}")


def request_of(
    path: Path,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    backend: str,
    settings: Settings,
    target: str | None,
    name: str | None,
) -> OnnxRequest:
    """Read a file and make its key.

    Raises:
        OnnxFileError: the file is none, or is damaged.
        BackendUnavailableError: the backend does not read ONNX, is unknown, or cannot build here.
        SettingsError: a setting or the target is unknown.
        InputError: the sizes that were given are not the file's.
        ProfileError: the file leaves a size open, and the caller too.
    """
    logs.start(os.environ)
    file = OnnxFile(path)
    return OnnxRequest.of(file, Asked.of(backend, settings, target, device_here(), args, kwargs), name or path.stem)


def compile_file(
    path: Path,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    *,
    cache: Cache,
    backend: str,
    settings: Settings,
    target: str | None,
    name: str | None,
) -> OnnxModule:
    """Return the compiled module of a file; ``report.compile_s`` is left to the caller.

    Raises:
        OnnxFileError: the file is none, or is damaged, or was written to meanwhile.
        BackendUnavailableError: the backend does not read ONNX, is unknown, or cannot build here.
        SettingsError: a setting or the target is unknown.
        InputError: the sizes that were given are not the file's.
        ProfileError: the file leaves a size open, and the caller too.
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``.
        BuildError: the build failed.
    """
    file = OnnxFile(path)
    asked = Asked.of(backend, settings, target, device_here(), args, kwargs)
    with tempfile.TemporaryDirectory(prefix="trtcache-build-") as folder:
        order = Order(file, asked, cache, name=name or path.stem, folder=Path(folder))
        order.obtain()
        try:
            module = order.module()
        except IncompatibleEngineError as error:
            if order.entry.outcome == "built":
                raise
            log.warning("%s cannot be loaded and is built again: %s", order.entry.key.digest[:16], error)
            cache.reject(order.entry, "load")
            order.obtain()
            module = order.module()
    return module


def build_file(
    path: Path,
    inputs: Mapping[str, Any] | None,
    *,
    cache: Cache,
    backend: str,
    settings: Settings,
    target: str | None,
    name: str | None,
    output: Path | None,
) -> Report:
    """Put the plan of a file into the cache if it is not there, and write it to ``output`` as well.

    Raises:
        OnnxFileError: the file is none, or is damaged, or was written to meanwhile.
        BackendUnavailableError: the backend does not read ONNX, is unknown, or cannot build here.
        SettingsError: a setting or the target is unknown.
        InputError: the sizes that were given are not the file's.
        ProfileError: the file leaves a size open, and the caller too.
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``.
        BuildError: the build failed.
        OSError: ``output`` cannot be written.
    """
    start = time.perf_counter()
    file = OnnxFile(path)
    asked = Asked.of(backend, settings, target, device_here(), (), inputs)
    with tempfile.TemporaryDirectory(prefix="trtcache-build-") as folder:
        order = Order(file, asked, cache, name=name or path.stem, folder=Path(folder))
        entry = order.obtain()
        if output is not None:
            entry.write(ENGINE, output)
    report = order.report()
    report.compile_s = time.perf_counter() - start
    log.info("%s", report)
    return report


def described(
    path: Path, inputs: Mapping[str, Any] | None, *, backend: str, target: str | None, name: str | None
) -> tuple[CacheKey, StoredGraph]:
    """Return the key of a file, and its graph in the form in which entries keep it.

    Raises:
        OnnxFileError: the file is none, or is damaged.
        CanonicalizationError: something in it has no stable description.
        BackendUnavailableError: the backend does not read ONNX, is unknown, or cannot build here.
        SettingsError: the target is unknown.
        InputError: the sizes that were given are not the file's.
        ProfileError: the file leaves a size open, and the caller too.
    """
    request = request_of(path, (), inputs, backend, Settings(), target, name)
    if isinstance(request.key, CanonicalizationError):
        raise request.key
    return request.key, StoredGraph.of(request.graph.document())
