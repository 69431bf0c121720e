"""``resolve``: the source of a model, a program or a file.

Commands tell the path of a program from a key by its suffix: add that of a new kind of file to ``PROGRAM_SUFFIXES`` in
``trtcache/config/paths.py``, and see where commands compare a suffix with ``.onnx``.
"""

from __future__ import annotations

import logging
import os
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from trtcache.config.environment import start_logging
from trtcache.config.paths import PROGRAM_SUFFIXES
from trtcache.errors import SettingsError
from trtcache.frontends.exported import ExportedSource, ModuleSource
from trtcache.frontends.source import Source, refuse_examples

if TYPE_CHECKING:
    from trtcache.cache import Cache

log = logging.getLogger(__name__)

Model = torch.nn.Module | torch.export.ExportedProgram | str | os.PathLike[str]
"""A module, an exported program, or the path of a program's file."""

_SCRIPT_MEMBER = "/constants.pkl"
"""The member that only a TorchScript archive has."""


def resolve(
    model: Model,
    args: tuple[Any, ...] | torch.Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    *,
    name: str | None = None,
    direct: str | None = None,
    cache: Cache | None = None,
) -> Source:
    """Create the source of a model. Use it in a ``with`` block, which closes the file of a source that has one.

    Args:
        model: a module, an exported program, or the path of a ``.pt2``, ``.onnx`` or TorchScript file.
        args: example positional arguments, or one tensor; none for an exported program, which has its own.
        kwargs: example keyword arguments.
        dynamic_shapes: sizes that vary, as ``torch.export.export`` takes them.
        name: the program's name in reports; by default the class's or the file's.
        direct: direct mode for a module (``docs/direct-mode.md``); None: direct mode is neither tried nor reported.
        cache: the cache of direct mode's manifests, which record what an export depended on.

    Raises:
        ExportError: the file cannot be read, or is not a program.
        SettingsError: example inputs were passed for a program that has its own.
    """
    start_logging(os.environ)
    register_transformers_cache()
    args = as_args(args)
    if isinstance(model, torch.export.ExportedProgram):
        refuse_examples(name or "the model", args, kwargs, dynamic_shapes)
        return ExportedSource(model, name or type(model).__name__)
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        if path.suffix == ".onnx":
            from trtcache.frontends.onnx.source import OnnxSource

            return OnnxSource(path, args, kwargs, dynamic_shapes, name)
        if is_script_file(path):
            from trtcache.frontends.torchscript import ScriptSource, load_script

            return ScriptSource(load_script(path), args, kwargs, dynamic_shapes, name=name or path.stem)
        from trtcache.frontends.pt2 import Pt2Source

        # Open it before the examples are checked: that a file is of another kind is the more helpful error.
        program = Pt2Source(path, name)
        try:
            refuse_examples(path.name, args, kwargs, dynamic_shapes)
        except SettingsError:
            program.close()
            raise
        return program
    if isinstance(model, torch.jit.ScriptModule):
        from trtcache.frontends.torchscript import ScriptSource

        return ScriptSource(model, args, kwargs, dynamic_shapes, name=name)
    return ModuleSource(model, args, kwargs, dynamic_shapes, name=name, direct=direct, cache=cache)


def is_script_file(path: Path) -> bool:
    """Return whether ``torch.jit.save`` wrote a file, by its members."""
    if path.suffix in PROGRAM_SUFFIXES:
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith(_SCRIPT_MEMBER) and name.count("/") == 1 for name in archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def as_args(args: object) -> tuple[Any, ...]:
    """Return positional arguments as a tuple; a bare tensor is the only one.

    Raises:
        SettingsError: they are something else, such as a single array.
    """
    if isinstance(args, torch.Tensor):
        return (args,)
    if args is not None and not isinstance(args, (tuple, list)):
        why = f"expected a tuple of example inputs, got {type(args).__name__}; write (x,) for a single one"
        raise SettingsError("args", why)
    return tuple(args or ())


def register_transformers_cache() -> None:
    """Register transformers' ``DynamicCache`` as a pytree node if transformers' models are imported.

    Causal language models return one; ``torch.export`` refuses an output of an unregistered class.
    """
    caches = sys.modules.get("transformers.cache_utils") if "transformers.modeling_utils" in sys.modules else None
    if caches is None or getattr(caches, "DynamicCache", None) in pytree.SUPPORTED_NODES:
        return
    try:
        from transformers.integrations.executorch import register_dynamic_cache_export_support
    except ImportError as error:
        log.info("transformers' DynamicCache is not registered: %s", error)
        return
    register_dynamic_cache_export_support()  # type: ignore[no-untyped-call]  # transformers has no type for it
