"""JSON format of a model's call signature: names, kinds and plain defaults; no annotations, and no code."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from trtcache.digests import canonical

if TYPE_CHECKING:
    from trtcache.digests import Json

_KINDS = {kind.name: kind for kind in inspect._ParameterKind}
_PLAIN = (bool, int, float, str)


class Default:
    """A default that JSON cannot represent: it equals no value that a caller passes."""

    def __repr__(self) -> str:
        return "the model's own default"


def write(signature: inspect.Signature | None) -> Json:
    """Return a signature as JSON; None without one."""
    if signature is None:
        return None
    return [[one.name, one.kind.name, _default(one.default)] for one in signature.parameters.values()]


def read(written: Any) -> inspect.Signature | None:
    """Parse a signature.

    Raises:
        ValueError: it is malformed.
    """
    if written is None:
        return None
    parameters = [inspect.Parameter(str(name), _KINDS[kind], default=_read(value)) for name, kind, value in written]
    return inspect.Signature(parameters)


def _default(value: object) -> Json:
    if value is inspect.Parameter.empty:
        return []
    if value is None or isinstance(value, _PLAIN):
        return [canonical(value)]
    return ["", "other"]


def _read(written: Any) -> object:
    match written:
        case []:
            return inspect.Parameter.empty
        case [None | bool() | int() | str() as value]:
            return value
        case [{"$float": str(text)}]:
            return float.fromhex(text)
        case [_, _]:
            return Default()
    raise ValueError(f"a default {written!r:.40}")
