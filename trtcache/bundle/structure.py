"""JSON format of pytree structures, without a model's classes.

``torch.utils._pytree`` stores class names, and reads a structure only if those classes are registered, which needs the
model's library. Here each node also has the names of its children, so that a mapping with these names can replace a
missing class. Classes are looked up only among modules that are already imported. There are no annotations and no code.
"""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict, deque, namedtuple
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from trtcache.runtime.structure import DEPTH, FACTORIES, PLAIN, distinct, find_class, named_class, plain_key
from trtcache.runtime.structure import Output as Output

if TYPE_CHECKING:
    from trtcache.digests import Json

_KINDS = {kind: name for name, kind in PLAIN.items()}
_Context = tuple[str, tuple[str, ...], tuple[str, ...]]


def _flatten(output: Output) -> tuple[list[Any], _Context]:
    return list(output.values()), (output.kind, tuple(output), output.names)


def _unflatten(values: Any, context: _Context) -> Output:
    kind, keys, names = context
    made = Output(zip(keys, values, strict=True))
    made.kind, made.names = kind, names
    return made


def _flatten_with_keys(output: Output) -> tuple[list[tuple[Any, Any]], _Context]:
    values, context = _flatten(output)
    return [(pytree.MappingKey(key), value) for key, value in zip(output, values, strict=True)], context


pytree.register_pytree_node(
    Output,
    _flatten,
    _unflatten,
    flatten_with_keys_fn=_flatten_with_keys,
    serialized_type_name="trtcache.Output",
)


def write_structure(spec: pytree.TreeSpec) -> Json:
    """Return a structure as JSON: None for a leaf.

    Raises:
        ValueError: a file cannot name the factory of a ``defaultdict``.
    """
    if spec.is_leaf():
        return None
    children: list[Json] = [write_structure(child) for child in children_of(spec)]
    kind, context = spec.type, spec.context
    if kind in {tuple, list}:
        return {"kind": _KINDS[kind], "parts": children}
    if kind in {dict, OrderedDict}:
        return {"kind": _KINDS[kind], "keys": list(map(plain_key, context)), "parts": children}
    if kind is defaultdict:
        factories = [name for name, one in FACTORIES.items() if one is context[0]]
        if not factories:
            raise ValueError(f"a defaultdict has the factory {context[0]!r:.60}, which a file cannot name")
        return {"kind": "default", "of": factories[0], "keys": list(map(plain_key, context[1])), "parts": children}
    if kind is deque:
        return {"kind": "deque", "longest": context, "parts": children}
    if pytree.is_structseq_class(kind):
        return {"kind": "torch", "name": kind.__name__, "parts": children}
    if kind is namedtuple:
        return {"kind": "named", "name": _name(context), "keys": list(_fields(context)), "parts": children}
    return {**_class_node(spec), "parts": children}


def read_structure(written: Any, depth: int = 0) -> pytree.TreeSpec:
    """Parse a structure.

    Raises:
        ValueError: it is malformed, or nested more than 64 deep.
    """
    if written is None:
        return _leaf()
    if depth > DEPTH or not isinstance(written, dict):
        raise ValueError("not a structure of arguments")
    parts, keys = [read_structure(one, depth + 1) for one in written["parts"]], written.get("keys")
    if keys is not None and len(keys) != len(parts):
        raise ValueError("a structure with more names than parts")
    kind: Any
    context: Any
    match written["kind"]:
        case "tuple" | "list" | "dict" | "ordered" as name:
            kind, context = PLAIN[name], None if name in {"tuple", "list"} else distinct(keys)
        case "default":
            kind, context = defaultdict, [FACTORIES[written["of"]], distinct(keys)]
        case "deque":
            kind, context = deque, written["longest"]
        case "named":
            kind, context = namedtuple, named_class(written["name"], distinct(keys))
        case "torch" | "class":
            kind, context = _find_node_type(written)
        case other:
            raise ValueError(f"a structure of the kind {other!r:.40}")
    return pytree.TreeSpec(kind, context, parts)


def without_classes(spec: pytree.TreeSpec) -> pytree.TreeSpec:
    """Return a structure with tuples in place of classes that ``torch.export.save`` cannot write."""
    if spec.is_leaf():
        return spec
    children = children_of(spec)
    kind, context = spec.type, spec.context
    try:
        pytree.treespec_dumps(pytree.TreeSpec(kind, context, [_leaf() for _ in children]))
    except (TypeError, NotImplementedError, AttributeError):  # the last: a defaultdict without a factory
        kind, context = tuple, None
    return pytree.TreeSpec(kind, context, [without_classes(child) for child in children])


def children_of(spec: pytree.TreeSpec) -> list[pytree.TreeSpec]:
    """Return the children of a structure."""
    children = spec.children
    return list(children() if callable(children) else children)


def _leaf() -> pytree.TreeSpec:
    return pytree.tree_structure(0)  # LeafSpec() warns in torch 2.13


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _fields(kind: type) -> tuple[str, ...]:
    return tuple(getattr(kind, "_fields", ()))


def _class_node(spec: pytree.TreeSpec) -> dict[str, Json]:
    kind = spec.type
    if kind is Output:
        name, keys, names = spec.context
        return {"kind": "class", "name": name, "context": None, "keys": list(keys), "names": list(names)}
    known = pytree.SUPPORTED_SERIALIZED_TYPES.get(kind)
    serialized = getattr(known, "serialized_type_name", None)
    name = serialized if isinstance(serialized, str) and "NO_SERIALIZED" not in serialized else _name(kind)
    context: Json = None
    try:
        dumped = known.to_dumpable_context(spec.context) if known and known.to_dumpable_context else spec.context
        context = json.loads(json.dumps(dumped))
        is_whole = _same(context, dumped)  # JSON has no tuples and no keys but texts
    except Exception:  # noqa: BLE001  # the code of the class can raise anything
        context, is_whole = None, False
    fields = list(getattr(kind, "__dataclass_fields__", ()))
    written: dict[str, Json] = {"kind": "class", "name": name, "context": context, "keys": [*_keys(spec)]}
    return {**written, "names": fields, "is_whole": is_whole}


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are equal and of the same types throughout."""
    if type(one) is not type(other) or (isinstance(one, (dict, list)) and len(one) != len(other)):
        return False
    if isinstance(one, dict):
        return all(key in other and _same(value, other[key]) for key, value in one.items())
    return all(map(_same, one, other)) if isinstance(one, list) else bool(one == other)


def _keys(spec: pytree.TreeSpec) -> list[str]:
    """Return the names of a node's children, or their indices."""
    node, count, context = pytree.SUPPORTED_NODES[spec.type], len(children_of(spec)), spec.context
    keys: list[Any] = []
    if node.flatten_with_keys_fn is not None:
        with suppress(Exception):  # the code of the class can raise anything
            whole = node.unflatten_fn([()] * count, context)
            keys = [key for key, _ in node.flatten_with_keys_fn(whole)[0]]
    names = [str(getattr(key, "key", getattr(key, "name", place))) for place, key in enumerate(keys)]
    # Otherwise the context, or a list in it (of a dataclass's fields), may be the names.
    inside = [one for one in context if isinstance(one, list)] if isinstance(context, (list, tuple)) else []
    for known in (names, context, *inside):
        is_list = isinstance(known, (list, tuple)) and all(isinstance(name, str) for name in known)
        if is_list and len(known) == len(set(known)) == count:
            return list(known)
    return list(map(str, range(count)))


def _find_node_type(written: Any) -> tuple[type, Any]:
    """Return a class registered with torch and its context, or ``Output``."""
    name, kind = written["name"], None
    if written["kind"] == "torch":  # one of torch's classes for several results (torch.max)
        kind = vars(torch.return_types).get(name)
        if not isinstance(kind, type) or kind not in pytree.SUPPORTED_NODES:
            raise ValueError(f"torch has no return type {name!r:.40}")
        return kind, None
    context = written["context"]
    is_whole = written.get("is_whole", context is not None)  # files of before do not say whether None is the context
    kind = pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.get(name) or find_class(name)
    if isinstance(kind, type) and kind in pytree.SUPPORTED_NODES and kind is not Output and is_whole:
        read_context = getattr(pytree.SUPPORTED_SERIALIZED_TYPES.get(kind), "from_dumpable_context", None)
        return kind, read_context(context) if read_context else context
    return Output, (str(name), tuple(map(str, distinct(written["keys"]))), tuple(map(str, written["names"])))
