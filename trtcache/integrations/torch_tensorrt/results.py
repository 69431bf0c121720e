"""A conversion's result as members of an entry, and caches that pass one engine to or from torch_tensorrt's own code.

The members are the engine's bytes, and the rest as JSON. Nothing is pickled. For a refittable engine torch_tensorrt
stores the engine without weights, and only it can set a partition's weights; so both are left to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from trtcache.digests import Json, json_bytes
from trtcache.errors import CorruptBlobError
from trtcache.integrations.torch_tensorrt.installation import ENGINE, Contract
from trtcache.keys.stored_graph import GRAPH_MEMBER

if TYPE_CHECKING:
    from trtcache.store.contract import Entry
    from trtcache.store.format import Content

ENGINE_MEMBER, RESULT_MEMBER = "engine", "result.json"


def make_members(fields: Mapping[str, Any], graph: Json) -> dict[str, Content]:
    """Return the members for the fields of a result, including ``serialized_engine``, and the partition's graph."""
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
        # torch_tensorrt would misread other values as names.
        for name in ("input_names", "output_names"):
            found = fields.get(name)
            if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
                raise ValueError(f"{name} are {found!r:.50}")  # noqa: TRY301  # handled below
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptBlobError(str(entry.path), "member", f"not a result of torch_tensorrt: {error!r:.200}") from error
    return fields


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


_WEIGHT_NAMES = "weight_name_map"
_HASH = "trtcache"  # the key was already computed and compared


class Catch:
    """An empty cache that records the engine that torch_tensorrt inserts."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self.fields: dict[str, Any] = {}

    def get_hash(self, *_described: Any) -> str:
        """Return the name of the only engine."""
        return _HASH

    def check(self, hash: str) -> None:  # noqa: A002  # torch_tensorrt's name for it
        """Return None: the cache is empty."""

    def insert(self, hash: str, entry: tuple[Any, ...]) -> None:  # noqa: A002, ARG002  # torch_tensorrt's signature
        """Record the fields of an engine."""
        self.fields = dict(zip(self._contract.cached, entry, strict=True))


class Serve:
    """A cache of one engine, whose key matches the current settings and inputs."""

    def __init__(self, contract: Contract, fields: Mapping[str, Any], inputs: Sequence[Any], settings: Any) -> None:
        given = {"input_specs": inputs, "compilation_settings": settings}
        self._entry = tuple({**fields, **given}[name] for name in contract.cached)

    def get_hash(self, *_described: Any) -> str:
        """Return the name of the only engine."""
        return _HASH

    def check(self, hash: str) -> tuple[Any, ...]:  # noqa: A002, ARG002  # torch_tensorrt's signature
        """Return the engine's fields."""
        return self._entry


def stored_fields(contract: Contract, source: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a result, or of an inserted engine, that an entry stores.

    The weight name map of versions before 2.13 is omitted: it was guessed from the values of one model's weights (two
    equal biases share a name), and weights missing in it silently keep old values. Without it torch_tensorrt rebuilds
    the map from the network, and each weight must be in it.
    """
    omitted = {_WEIGHT_NAMES: None} if _WEIGHT_NAMES in contract.result else {}
    return {**{name: source[name] for name in (ENGINE, *contract.stored)}, **omitted}
