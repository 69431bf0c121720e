"""Damage to a file: flipped bits, other bytes, cuts, blocks that are lost, doubled or swapped, and additions."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TypeAlias

Mutation: TypeAlias = Callable[[bytearray, random.Random], str]

_BLOCK = 512


def flip(data: bytearray, chance: random.Random) -> str:
    """Flip one bit."""
    place, bit = chance.randrange(len(data)), chance.randrange(8)
    data[place] ^= 1 << bit
    return f"bit {bit} of byte {place}"


def overwrite(data: bytearray, chance: random.Random) -> str:
    """Overwrite one to eight bytes."""
    place, count = chance.randrange(len(data)), chance.randint(1, 8)
    data[place : place + count] = chance.randbytes(len(data[place : place + count]))
    return f"{count} bytes at {place}"


def extreme(data: bytearray, chance: random.Random) -> str:
    """Set eight bytes to the least or the greatest number, as a length would be forged."""
    place, value = chance.randrange(len(data)), chance.choice((b"\x00", b"\xff", b"\x7f"))
    data[place : place + 8] = value * len(data[place : place + 8])
    return f"eight times {value.hex()} at {place}"


def cut(data: bytearray, chance: random.Random) -> str:
    """Cut the end off."""
    size = chance.randrange(len(data))
    del data[size:]
    return f"cut to {size}"


def drop(data: bytearray, chance: random.Random) -> str:
    """Lose some bytes in the middle."""
    place, count = chance.randrange(len(data)), chance.randint(1, 64)
    del data[place : place + count]
    return f"{count} bytes lost at {place}"


def double(data: bytearray, chance: random.Random) -> str:
    """Have some bytes twice."""
    place, count = chance.randrange(len(data)), chance.randint(1, 64)
    data[place:place] = data[place : place + count]
    return f"{count} bytes twice at {place}"


def swap(data: bytearray, chance: random.Random) -> str:
    """Swap two blocks."""
    one, other = (chance.randrange(0, len(data), _BLOCK) for _ in range(2))
    first, second = data[one : one + _BLOCK], data[other : other + _BLOCK]
    if len(first) == len(second):
        data[one : one + _BLOCK], data[other : other + _BLOCK] = second, first
    return f"blocks {one} and {other} swapped"


def zero(data: bytearray, chance: random.Random) -> str:
    """Lose a block to zeros, as a file system does that was cut off from power."""
    place = chance.randrange(0, len(data), _BLOCK)
    data[place : place + _BLOCK] = bytes(len(data[place : place + _BLOCK]))
    return f"zeros at {place}"


def append(data: bytearray, chance: random.Random) -> str:
    """Add something to the end."""
    added = chance.randbytes(chance.randint(1, 600))
    data += added
    return f"{len(added)} bytes more"


KINDS: tuple[Mutation, ...] = (flip, flip, overwrite, extreme, cut, drop, double, swap, zero, append)


def mutations(whole: bytes, count: int, *, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """Yield ``count`` damaged forms of ``whole``, each with what was done to it."""
    chance, made = random.Random(seed), 0
    while made < count:
        data = bytearray(whole)
        what = chance.choice(KINDS)(data, chance)
        if data != whole:
            made += 1
            yield what, bytes(data)
