"""A conversion's result as members of an entry: the engine's bytes, and the rest as JSON. Nothing is pickled."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from trtcache.digests import json_bytes
from trtcache.errors import CorruptBlobError
from trtcache.integrations.torch_tensorrt.contracts import ENGINE
from trtcache.keys.stored_graph import GRAPH_MEMBER

if TYPE_CHECKING:
    from trtcache.digests import Json
    from trtcache.store.entry import Entry
    from trtcache.store.format import Content

ENGINE_MEMBER, RESULT_MEMBER = "engine", "result.json"


def make_members(fields: Mapping[str, Any], graph: Json) -> dict[str, Content]:
    """Return the members for the fields of a result, including ``serialized_engine``, and the partition's graph.

    Raises:
        TypeError: a field has no stored form.
    """
    rest = {name: to_json(value) for name, value in fields.items() if name != ENGINE}
    return {ENGINE_MEMBER: bytes(fields[ENGINE]), RESULT_MEMBER: json_bytes(rest), GRAPH_MEMBER: json_bytes(graph)}


def fields_of(entry: Entry, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the named fields of an entry's result, and ``serialized_engine``.

    Raises:
        CorruptBlobError: the entry holds something else, which only a hand-made one can.
    """
    try:
        stored = json.loads(bytes(entry.read(RESULT_MEMBER)))
        fields = {name: read(stored[name]) for name in names}
        fields[ENGINE] = bytes(entry.read(ENGINE_MEMBER))
        _check(fields)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptBlobError(str(entry.path), "member", f"not a result of torch_tensorrt: {error!r:.200}") from error
    return fields


def _check(fields: Mapping[str, Any]) -> None:
    """Reject values that torch_tensorrt would misread as names."""
    for name in ("input_names", "output_names"):
        names = fields.get(name)
        if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
            raise ValueError(f"{name} are {names!r:.50}")


_DTYPE = re.compile(r"[a-z]\w{0,31}")


def to_json(value: Any) -> Json:
    """Return a value as JSON.

    Raises:
        TypeError: its type has no stored form.
    """
    if value is None or type(value) in {bool, int, str}:
        return value  # type: ignore[no-any-return]  # one of the JSON types above
    match value:
        case float():
            return {"$float": value.hex()}
        case list():
            return [to_json(one) for one in value]
        case tuple():
            return {"$tuple": [to_json(one) for one in value]}
        case Mapping():
            return {"$dict": [[to_json(name), to_json(one)] for name, one in value.items()]}
        case torch.dtype():
            return {"$dtype": str(value).removeprefix("torch.")}
        case _:
            raise TypeError(f"a {type(value).__name__} has no stored form")


def read(value: Any) -> Any:
    """Return the value of a JSON document.

    Raises:
        ValueError: ``to_json`` does not produce it.
        TypeError: likewise.
    """
    if isinstance(value, list):
        return [read(one) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise ValueError("a mapping with several names")
    tag, content = next(iter(value.items()))
    if tag not in _FORMS:
        raise ValueError(f"unknown form {tag!r}")
    return _FORMS[tag](content)


def _dtype(name: Any) -> torch.dtype:
    dtype = getattr(torch, name, None) if isinstance(name, str) and _DTYPE.fullmatch(name) else None
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name!r} is not a dtype")  # noqa: TRY004  # of the right type and wrong
    return dtype


_FORMS: Mapping[str, Callable[[Any], Any]] = {
    "$float": float.fromhex,
    "$tuple": lambda content: tuple(read(one) for one in content),
    "$dict": lambda content: {read(name): read(one) for name, one in content},
    "$dtype": _dtype,
}
