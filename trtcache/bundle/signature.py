"""JSON format of a model's signature: names, kinds and plain defaults of its parameters."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from trtcache.digests import canonical

if TYPE_CHECKING:
    from trtcache.digests import Json

_UNSTORED = ["", "other"]
"""The default of a parameter whose value is not in the file."""

_PARAMETER_KINDS = {kind.name: kind for kind in inspect._ParameterKind}


class UnstoredDefault:
    """A default that is not in the file. No argument is equal to it."""

    def __repr__(self) -> str:
        return "the model's own default"


def write_signature(signature: inspect.Signature | None) -> Json:
    """Return a signature as JSON; None without one."""
    if signature is None:
        return None
    written: list[Json] = []
    for one in signature.parameters.values():
        default: list[Json] = [*_UNSTORED]
        if one.default is inspect.Parameter.empty:
            default = []
        elif one.default is None or type(one.default) in (bool, int, float, str):  # an enum is none of them
            default = [canonical(one.default)]
        written.append([one.name, one.kind.name, default])
    return written


def read_signature(written: Any) -> inspect.Signature | None:
    """Parse a signature.

    Raises:
        ValueError: it is malformed.
        LookupError: likewise.
    """
    if written is None:
        return None
    parameters = [
        inspect.Parameter(str(name), _PARAMETER_KINDS[kind], default=_read(value)) for name, kind, value in written
    ]
    return inspect.Signature(parameters)


def _read(written: Any) -> object:
    match written:
        case []:
            return inspect.Parameter.empty
        case [None | bool() | int() | str() as value]:
            return value
        case [{"$float": str(text)}]:
            return float.fromhex(text)
        case [_, _]:
            return UnstoredDefault()
    raise ValueError(f"the signature has a default in an unknown form: {written!r:.40}")
