"""Values of a conversion's result as JSON and back: exact, and never code.

What JSON has not is a mapping with one name that begins with ``$``: ``{"$tuple": [...]}``, ``{"$dtype": "float16"}``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from trtcache.digests import Json

_DTYPE = re.compile(r"[a-z]\w{0,31}")


def written(value: Any) -> Json:
    """Return a value as JSON.

    Raises:
        TypeError: it is of a type that has no stored form.
    """
    if value is None or type(value) in {bool, int, str}:
        return value  # type: ignore[no-any-return]  # one of the JSON types just named
    match value:
        case float():
            return {"$float": value.hex()}
        case list():
            return [written(one) for one in value]
        case tuple():
            return {"$tuple": [written(one) for one in value]}
        case Mapping():
            return {"$dict": [[written(name), written(one)] for name, one in value.items()]}
        case torch.dtype():
            return {"$dtype": str(value).removeprefix("torch.")}
        case _:
            raise TypeError(f"a {type(value).__name__} has no stored form")


def read(value: Any) -> Any:
    """Return the value that JSON stands for.

    Raises:
        ValueError: it is nothing that ``written`` makes.
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
        raise ValueError(f"{name!r} is no dtype")  # noqa: TRY004  # of the right type and wrong
    return dtype


_FORMS: Mapping[str, Callable[[Any], Any]] = {
    "$float": float.fromhex,
    "$tuple": lambda content: tuple(read(one) for one in content),
    "$dict": lambda content: {read(name): read(one) for name, one in content},
    "$dtype": _dtype,
}
