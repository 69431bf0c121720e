"""A conversion's result as members of an entry: the engine's bytes, and the rest as JSON. Nothing is pickled."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trtcache.digests import json_bytes
from trtcache.errors import CorruptBlobError
from trtcache.integrations.torch_tensorrt.codec import read, written
from trtcache.integrations.torch_tensorrt.contracts import ENGINE
from trtcache.keys.stored_graph import GRAPH_MEMBER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.digests import Json
    from trtcache.store.entry import Entry
    from trtcache.store.format import Content

ENGINE_MEMBER, RESULT_MEMBER = "engine", "result.json"


def make_members(fields: Mapping[str, Any], graph: Json) -> dict[str, Content]:
    """Return the members for the fields of a result, ``serialized_engine`` among them, and the partition's graph.

    Raises:
        TypeError: a field has no stored form.
    """
    rest = {name: written(value) for name, value in fields.items() if name != ENGINE}
    return {ENGINE_MEMBER: bytes(fields[ENGINE]), RESULT_MEMBER: json_bytes(rest), GRAPH_MEMBER: json_bytes(graph)}


def fields_of(entry: Entry, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the named fields of the result that an entry keeps, and ``serialized_engine``.

    Raises:
        CorruptBlobError: the entry holds something else, as only one that was made by hand can.
    """
    try:
        stored = json.loads(bytes(entry.read(RESULT_MEMBER)))
        fields = {name: read(stored[name]) for name in names}
        fields[ENGINE] = bytes(entry.read(ENGINE_MEMBER))
        _check(fields)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptBlobError(str(entry.path), "member", f"no result of torch_tensorrt: {error!r:.200}") from error
    return fields


def _check(fields: Mapping[str, Any]) -> None:
    """Refuse what torch_tensorrt would take for names and is none."""
    for name in ("input_names", "output_names"):
        names = fields.get(name)
        if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
            raise ValueError(f"{name} are {names!r:.50}")
