"""The lowered program, key and partitions that ``compile`` would use, without building."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trtcache.errors import CanonicalizationError
from trtcache.frontends.resolve import Model, resolve
from trtcache.frontends.source import CompileOptions

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    import torch

    from trtcache.cache import Cache
    from trtcache.digests import CacheKey
    from trtcache.keys.stored_graph import StoredGraph
    from trtcache.lowering import LoweredProgram
    from trtcache.partition.outline import Outline
    from trtcache.settings import Settings


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
    args: tuple[Any, ...] | torch.Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    backend: str = "auto",
    settings: Settings | Mapping[str, object] | None = None,
    name: str | None = None,
) -> Outline:
    """Return the partitions in which ``compile`` would run a program, for printing; nothing is built.

    Raises:
        ExportError: the model cannot be exported.
        BackendUnavailableError: the backend is unknown or cannot run here.
        PartitionError: the settings require one engine, and an operator would stay in torch.
        SettingsError: a setting is unknown, or example inputs were passed for a program that has its own.
    """
    from trtcache.partition.outline import make_outline

    with resolve(model, args, kwargs, dynamic_shapes, name=name) as source:
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
