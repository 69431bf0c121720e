"""Files of programs for processes that lack the classes of their arguments and results.

Such a process is the worker of a background build, or ``trtcache rebuild``. ``torch.export.load`` reads a structure
only if its classes are registered there, as the outputs of transformers and users' dataclasses are where the model is.
So a structure with classes is written as a tuple of its leaves. Beside the program it is described as JSON, from which
the reader makes it again with a stand-in for each class: a class of the same name, so that the key is the same.
"""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict, deque
from contextlib import suppress
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from trtcache.errors import ExportError
from trtcache.frontends.torch_archive import capture_logged_error
from trtcache.keys.key import structure
from trtcache.lowering import TORCH_LOCK
from trtcache.lowering.arguments import children, module_class
from trtcache.lowering.devices import keep_device_guard

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch.export import ExportedProgram

    from trtcache.digests import Json

_PLAIN = {f"builtins.{kind.__name__}": kind for kind in (tuple, list, dict)}
_KNOWN = frozenset({*_PLAIN.values(), OrderedDict, defaultdict, deque})  # torch reads them in every process


def without_classes(program: ExportedProgram) -> tuple[ExportedProgram, dict[str, Json]]:
    """Return a program without classes in its structures, and a description of the structures that had some.

    Module arguments stay, since torch reads them. The given program is not changed.

    Raises:
        CanonicalizationError: a structure has no stable description.
    """
    entry, *others = program.module_call_graph
    assert entry.signature is not None  # noqa: S101  # set by torch.export
    flat: dict[str, Any] = {}
    described: dict[str, Json] = {}
    for name, spec in (("in_spec", entry.signature.in_spec), ("out_spec", entry.signature.out_spec)):
        if _has_classes(spec) and not _has_modules(spec):
            leaves = (0,) * spec.num_leaves
            flat[name] = pytree.tree_structure((leaves, {}) if name == "in_spec" else leaves)
            described[name] = _describe(spec)
    if not flat:
        return program, {}
    changed = copy.copy(program)
    changed._module_call_graph = [replace(entry, signature=replace(entry.signature, **flat)), *others]
    return changed, described


def read_program(file: Path | IO[bytes], structures: Mapping[str, Json]) -> ExportedProgram:
    """Read a program that ``torch.export.save`` has written after ``without_classes``.

    Raises:
        ExportError: torch cannot read it; the message has the cause, which torch only logs.
    """
    keep_device_guard()
    logged = None
    try:
        with TORCH_LOCK, capture_logged_error("torch.export") as logged:
            program: ExportedProgram = torch.export.load(file)
    except Exception as error:
        cause = (logged and logged.error) or error
        why = f"{type(cause).__name__}: {cause}".split("\n", 1)[0][:300]
        raise ExportError("the program", f"torch.export.load cannot read it ({why})") from error
    signature = program.module_call_graph[0].signature
    for name, described in structures.items():
        setattr(signature, name, _with_stand_ins(described))
    return program


def _has_classes(spec: pytree.TreeSpec) -> bool:
    return not spec.is_leaf() and (spec.type not in _KNOWN or any(map(_has_classes, children(spec))))


def _has_modules(spec: pytree.TreeSpec) -> bool:
    return not spec.is_leaf() and (module_class(spec) is not None or any(map(_has_modules, children(spec))))


def _describe(spec: pytree.TreeSpec) -> Json:
    if spec.is_leaf():
        return None
    kind, context, *_ = structure(spec)
    is_plain = spec.type in {tuple, list} or (spec.type is dict and all(type(key) is str for key in context))
    parts = [_describe(child) for child in children(spec)]
    return {"type": kind, "context": context, "keys": None if is_plain else _keys(spec), "parts": parts}


def _keys(spec: pytree.TreeSpec) -> list[Json]:
    """Return how torch writes the children of a node in the path of a leaf; empty if it cannot."""
    node = pytree.SUPPORTED_NODES[spec.type]
    with suppress(Exception):  # the code of the class can raise anything
        whole = node.unflatten_fn([0] * spec.num_children, spec.context)
        if node.flatten_with_keys_fn is not None:
            return [str(key) for key, _ in node.flatten_with_keys_fn(whole)[0]]
    return []


def _with_stand_ins(described: Any) -> pytree.TreeSpec:
    if described is None:
        return pytree.tree_structure(0)
    kind, context, keys = described["type"], described["context"], described["keys"]
    parts = [_with_stand_ins(part) for part in described["parts"]]
    if keys is None:
        return pytree.TreeSpec(_PLAIN[kind], context, parts)
    return pytree.TreeSpec(_stand_in(kind, keys, context), context, parts)


def _stand_in(name: str, keys: Any, context: Any) -> type:
    """Return a new class of a name, which torch can flatten unless it cannot write the paths of the named class."""
    module, _, qualified = name.partition(".")
    stand_in = type(qualified.rpartition(".")[2], (list,), {"__module__": module, "__qualname__": qualified})
    if keys:
        pytree.register_pytree_node(
            stand_in,
            lambda values: (list(values), context),
            lambda values, _: stand_in(values),
            flatten_with_keys_fn=lambda values: (list(zip(keys, values, strict=True)), context),
        )
    return stand_in
