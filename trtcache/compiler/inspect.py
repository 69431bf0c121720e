"""What ``compile`` would do: the lowered program, its key and its parts. Nothing is built."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trtcache.backends import registry
from trtcache.compiler.lookup import graph_of, requests_of
from trtcache.compiler.request import Model, device_kind, lowered, opened, refuse_examples, request_of
from trtcache.config import logs
from trtcache.errors import CanonicalizationError
from trtcache.frontends.onnx.file import is_onnx
from trtcache.frontends.torchscript.program import converted, script_of
from trtcache.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.cache import Cache
    from trtcache.digests import CacheKey
    from trtcache.keys.stored_graph import StoredGraph
    from trtcache.lowering import LoweredProgram
    from trtcache.partition.outline import Outline


def lower(
    model: Model,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    backend: str = "auto",
    settings: Settings | Mapping[str, object] | None = None,
    name: str | None = None,
    trace: bool = False,
) -> LoweredProgram:
    """Return the lowered program that ``compile`` would build from; ``.text`` shows it.

    With ``trace``, ``.runs`` has what each pass changed, as a diff.

    Raises:
        ExportError: the model cannot be exported.
        PassError: a lowering pass broke its contract.
        BackendUnavailableError: the backend is unknown or cannot run here.
        SettingsError: there are example inputs for a program that has its own.
    """
    logs.start(os.environ)
    if (script := script_of(model)) is not None:
        program = converted(script, args, kwargs, dynamic_shapes)
        return lower(program, backend=backend, settings=settings, name=name or script.original_name, trace=trace)
    model, name = opened(model, name)
    if isinstance(model, torch.export.ExportedProgram):
        refuse_examples(name, args, kwargs, dynamic_shapes)
    chosen, wanted = registry.find(backend, device_kind(model, args, kwargs)), Settings.of(settings)
    return lowered(model, args, kwargs, dynamic_shapes, chosen, wanted, name, trace=trace)


def key(
    model: Model,
    args: tuple[Any, ...] = (),
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

    Models of equal architecture have equal keys whatever their weights and the names of their parameters are. The
    arguments are those of ``compile``; no key depends on ``cache``, which is neither opened nor looked at.

    Raises:
        ExportError: the model cannot be exported.
        CanonicalizationError: something in the program has no stable description, or it is compiled in parts.
        BackendUnavailableError: the backend is unknown or cannot run here.
        SettingsError: a setting or the target is unknown, or there are example inputs for a program that has its own.
    """
    if (script := script_of(model)) is not None:
        program = converted(script, args, kwargs, dynamic_shapes)
        return key(program, backend=backend, settings=settings, target=target, name=name)
    made: CacheKey | CanonicalizationError
    if is_onnx(model):
        from trtcache.compiler import onnx_compile as door

        door.refuse_dynamic_shapes(dynamic_shapes)
        made = door.request_of(Path(model), args, kwargs, backend, Settings.of(settings), target, name).key
    else:
        made = request_of(model, args, kwargs, dynamic_shapes, backend, Settings.of(settings), target, name).key
    if isinstance(made, CanonicalizationError):
        raise made
    return made


def outline(
    model: Model,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    backend: str = "auto",
    settings: Settings | Mapping[str, object] | None = None,
    name: str | None = None,
) -> Outline:
    """Return in which parts ``compile`` would run a program, for people; nothing is built.

    Raises:
        ExportError: the model cannot be exported.
        BackendUnavailableError: the backend is unknown or cannot run here.
        PartitionError: the settings want one engine, and something would stay in torch.
        SettingsError: a setting is unknown, or there are example inputs for a program that has its own.
    """
    if (script := script_of(model)) is not None:
        program = converted(script, args, kwargs, dynamic_shapes)
        return outline(program, backend=backend, settings=settings, name=name or script.original_name)
    from trtcache.partition.outline import make_outline

    request = request_of(model, args, kwargs, dynamic_shapes, backend, Settings.of(settings), None, name)
    keys = {number: part.key for number, part in requests_of(request).items()}
    return make_outline(request.program, request.division, request.backend.name, keys)


def described(
    model: torch.export.ExportedProgram | str | os.PathLike[str],
    *,
    backend: str = "auto",
    target: str | None = None,
    name: str | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> tuple[CacheKey, StoredGraph]:
    """Return the key of an exported program, or of one in a file, and its graph in the form in which entries keep it.

    Raises:
        ExportError: the file cannot be read, or the program is something that no engine takes.
        CanonicalizationError: something in the program has no stable description.
        BackendUnavailableError: the backend is unknown or cannot run here.
        SettingsError: the target is unknown.
    """
    if is_onnx(model):
        from trtcache.compiler import onnx_compile as door

        return door.described(Path(model), inputs, backend=backend, target=target, name=name)
    request = request_of(model, (), inputs, None, backend, Settings(), target, name)
    if isinstance(request.key, CanonicalizationError):
        raise request.key
    return request.key, graph_of(request)
