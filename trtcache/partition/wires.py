"""Where a value comes from that a part of a program takes, or that the program returns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from trtcache.digests import Json


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor that the program is called with, by its place among them."""

    place: int


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight, by the name that the whole program has for it as an engine (``w3``)."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant, by the name that the whole program has for it (``c0``)."""

    name: str


@dataclass(frozen=True, slots=True)
class Made:
    """What a part makes, by the part's number and the place among all that it makes."""

    part: int
    place: int


@dataclass(frozen=True, slots=True)
class Size:
    """A number: an expression of the sizes of the program's inputs, as ``Symbols`` writes it, in JSON."""

    text: str


@dataclass(frozen=True, slots=True)
class Carrier:
    """A tensor without elements that has a size as its first dimension: engines take nothing but tensors."""

    size: Size


Wire: TypeAlias = Input | Weight | Constant | Made | Size | Carrier


def size_of(written: Json) -> Size:
    """Return the wire of a size."""
    return Size(json.dumps(written))
