"""onnxruntime's TensorRT cache: ``*.engine`` with ``*.profile`` beside it, ``*.timing``, and ``*_ctx.onnx`` over them.

An engine's name has the subgraph's, made of the model's file name and the names of its inputs and nodes, and says the
precision and the compute capability (``_fp16_sm89``, ``_sm80+``). With ``ep_context_embed_mode`` the engine is in the
``EPContext`` model itself.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import replace
from typing import TYPE_CHECKING

from trtcache.integrations.foreign_caches.ep_context import contexts_in
from trtcache.integrations.foreign_caches.find import ENGINE, Find, engine_of, label, looked_at
from trtcache.integrations.foreign_caches.pickled import Span

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trtcache.integrations.foreign_caches.ep_context import Context

_CAPABILITY = re.compile(r"_sm(\d{2,3})(\+?)(?:\.stripped)?\.engine$")
_ARCHITECTURE = re.compile(r"(\d{2,3})(\+?)")
_PLAIN_NAME = re.compile(r"[^/\\\0]{1,255}")
_BESIDE = {
    ".timing": ("timing", "measurements of kernels, for a builder"),
    ".profile": ("profile", "the ranges of the sizes of an engine's inputs"),
    ".encrypted": ("encrypted", "an encrypted engine: only who has the key can say what it is"),
}


def finds(root: Path) -> Iterator[Find]:
    """Yield what the cache in a directory holds, by name.

    Raises:
        OSError: the directory cannot be read.
    """
    names = sorted(os.listdir(root))  # noqa: PTH208  # names alone are wanted
    for name in names:
        path = root / name
        try:
            is_folder = stat.S_ISDIR(path.lstat().st_mode)
        except FileNotFoundError:  # its tool is running, and has removed it
            continue
        if is_folder:
            yield Find(label(name), path, "folder", why="folders are not looked into")
        elif name.endswith(".engine"):
            yield _engine(Find(label(name), path, ENGINE))
        elif name.endswith(".onnx"):
            yield from _model(Find(label(name), path, "context"), names)
        else:
            yield _beside(Find(label(name), path, "other", why="it is not of this layout"), names)


def _engine(find: Find) -> Find:
    find, file = looked_at(find)
    if file is None:
        return find
    try:
        found = engine_of(find, file, Span(0, file.size_bytes))
    finally:
        file.close()
    if found.keyed and not found.capabilities and (said := _CAPABILITY.search(found.name)):
        found = replace(found, capabilities=(_dotted(said),), told_by="name")
    if found.keyed and found.name.endswith(".stripped.engine"):
        found = replace(found, why="its weights are not in it: onnxruntime refits it from the ONNX file")
    return found


def _beside(find: Find, names: list[str]) -> Find:
    what, why = _BESIDE.get(find.path.suffix, (find.what, find.why))
    found, file = looked_at(replace(find, what=what, why=why))
    if file is not None:
        file.close()
    if what == "profile" and f"{find.path.stem}.engine" not in names and found.state != "unsafe":
        return found.refused("orphan", "there is no engine of its name")
    return found


def _model(find: Find, names: list[str]) -> Iterator[Find]:
    found, file = looked_at(find)
    if file is None:
        yield found
        return
    try:
        contexts = contexts_in(file)
        if not contexts:
            yield replace(found, what="other", why="a model without an EPContext node")
        for number, context in enumerate(contexts):
            one = found if len(contexts) == 1 else replace(found, name=f"{found.name}#{number}")
            if context.embedded is None:
                yield _reference(one, context, names)
            else:
                yield _told(engine_of(replace(one, what=ENGINE), file, context.embedded), context)
    except ValueError as error:
        yield found.refused("damaged", f"it is no ONNX file: {error}")
    finally:
        file.close()


def _reference(find: Find, context: Context, names: list[str]) -> Find:
    if not context.file or not _PLAIN_NAME.fullmatch(context.file):
        return find.refused("unsafe", f"it names {context.file!r:.80}, which is no file of this directory")
    if context.file not in names:
        return find.refused("orphan", f"it names {context.file!r}, which is not here")
    return replace(find, why=f"it names {context.file}")


def _told(find: Find, context: Context) -> Find:
    said = _ARCHITECTURE.fullmatch(context.capability or "")
    if find.keyed and not find.capabilities and said:
        return replace(find, capabilities=(_dotted(said),), told_by="context")
    return find


def _dotted(said: re.Match[str]) -> str:
    return f"{said[1][:-1]}.{said[1][-1]}{said[2]}"
