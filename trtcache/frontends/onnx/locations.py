"""The locations of external data in a serialized model, without protobuf.

A tensor names its file in an entry of strings, ``{1: "location", 2: NAME}``. Each occurrence of that word is followed
from the model through the fields around it. If all of them lie in such entries, the names in these are all locations;
if one does not, as in the name of a node, the model has to be parsed.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_WORD = b"location"
_ENTRY = b"\x0a\x08" + _WORD + b"\x12"
"""The first bytes of an entry; the length of the name, and the name, follow."""

_LONGEST = 127  # the length of a longer name takes two bytes
_DEEPEST = 100  # protobuf's limit


def find_locations(model: memoryview) -> list[str]:
    """Return the locations of external data in a serialized model, sorted, and maybe other names.

    Raises:
        ValueError: they cannot be found without parsing the model.
    """
    places = [match.start() for match in re.finditer(_WORD, model)]
    names = _names(model, 0, len(model), places, 0) if places else ()
    return sorted({name.decode("ascii") for name in names})


def _names(model: memoryview, start: int, end: int, places: Sequence[int], depth: int) -> Iterator[bytes]:
    """Yield the names in a message, in which the word is at some places.

    Raises:
        ValueError: one of them is not in an entry that consists of the word and a name.
    """
    name = start + len(_ENTRY) + 1
    if len(places) == 1 and name <= end and model[start : name - 1] == _ENTRY:
        if not model[name - 1] == end - name <= _LONGEST:
            raise ValueError("the entry has more than a name, or a long one")
        yield bytes(model[name:end])
        return
    if depth > _DEEPEST:
        raise ValueError("the messages are nested too deep")
    first = 0
    for begin, finish in _fields(model, start, end):
        after = bisect_left(places, finish, first)
        if after > first:
            if places[first] < begin:
                raise ValueError("the word is between two fields")
            yield from _names(model, begin, finish, places[first:after], depth + 1)
            first = after
            if first == len(places):
                return
    raise ValueError("the word is in no field")


def _fields(model: memoryview, at: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield where the fields that may be messages begin and end.

    Raises:
        ValueError: the bytes are no message, or have a group.
    """
    while at < end:
        tag, at = _varint(model, at, end)
        match tag & 7:
            case 0:
                _, at = _varint(model, at, end)
            case 1:
                at += 8
            case 2:
                length, at = _varint(model, at, end)
                if length > end - at:
                    raise ValueError("a field is longer than its message")
                yield at, at + length
                at += length
            case 5:
                at += 4
            case _:
                raise ValueError("a group, or no message")


def _varint(model: memoryview, at: int, end: int) -> tuple[int, int]:
    """Return a number and the place after it.

    Raises:
        ValueError: it has no end, or more than 10 bytes.
    """
    value = 0
    for place in range(at, min(at + 10, end)):
        byte = model[place]
        value |= (byte & 127) << 7 * (place - at)
        if byte < 128:
            return value, place + 1
    raise ValueError("a number without an end")
