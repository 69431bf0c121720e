"""Guards as Python expressions, for messages and reports."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trtcache.lowering.expressions import affine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from trtcache.digests import Json


_BY_POSITION = re.compile(r"^(\d+)")  # an argument of a program without a model has an index and no name


def describe(guard: Json, sizes: Mapping[int, str]) -> str:
    """Return a guard as a Python expression; ``sizes`` are the symbols' names, such as ``x.shape[0]``."""
    return _text(guard, sizes, 0)


_INFIX = {
    "Or": (" or ", 1),
    "And": (" and ", 2),
    "Eq": (" == ", 4),
    "Ne": (" != ", 4),
    "Le": (" <= ", 4),
    "Lt": (" < ", 4),
    "Add": (" + ", 5),
    "Mul": (" * ", 6),
    "FloorDiv": (" // ", 6),
    "CleanDiv": (" // ", 6),
    "Mod": (" % ", 6),
    "PythonMod": (" % ", 6),
    "TrueDiv": (" / ", 6),
    "Pow": (" ** ", 8),
}


def _text(part: Json, sizes: Mapping[int, str], outer: int) -> str:
    if isinstance(part, dict):
        number = int(str(part["sym"]))
        return sizes.get(number, f"s{number}")
    if not isinstance(part, list):
        return str(part)
    head, *args = part
    if head == "Number":
        return f"{float.fromhex(str(args[0])):g}"
    if head == "Not":
        return f"not {_text(args[0], sizes, 3)}"
    if head not in _INFIX:
        return f"{str(head).lower()}({', '.join(_text(one, sizes, 0) for one in args)})"
    sign, level = _INFIX[str(head)]
    if head == "Add":  # a + -1 * b reads as a - b
        args = sorted(args, key=_place_in_sum)
    if head in {"Eq", "Ne"} and isinstance(args[0], int):
        args = args[::-1]
    text = sign.join(_text(one, sizes, level + (place > 0)) for place, one in enumerate(args))
    text = text.replace(" + -1 * ", " - ").replace(" + -", " - ")
    return f"({text})" if level < outer else text


def _place_in_sum(part: Json) -> int:
    """Sort subtracted terms after added ones, and a number last."""
    if isinstance(part, int):
        return 2
    return 1 if isinstance(part, list) and part[:1] == ["Mul"] and isinstance(part[1], int) and part[1] < 0 else 0


def symbol_names(inputs: Iterable[tuple[int, Sequence[Json], bool]], label: Callable[[int], str]) -> dict[int, str]:
    """Return each symbol in terms of the caller's arguments: ``x.shape[0]``, ``n``, or ``(x.shape[0] - 1) // 2``.

    Args:
        inputs: the leaf and the shape of each input, and whether it represents a dynamic int.
        label: returns the caller's name for a leaf, ``argument x``.
    """
    names: dict[int, str] = {}
    derived: dict[int, str] = {}
    for leaf, shape, is_number in inputs:
        argument = _BY_POSITION.sub(r"args[\1]", label(leaf).removeprefix("argument "))
        for dim, size in enumerate(shape):
            text = argument if is_number else f"{argument}.shape[{dim}]"
            number, factor, more = affine(size) or (-1, 0, 0)
            if (factor, more) == (1, 0):
                names.setdefault(number, text)
            elif factor:
                text = f"{text} {'-' if more > 0 else '+'} {abs(more)}" if more else text
                derived.setdefault(number, f"({text}) // {factor}" if factor != 1 else f"({text})")
    return derived | names


def guard_symbols(guard: Json) -> list[int]:
    """Return the numbers of the symbols in a guard, in order, without duplicates."""
    if isinstance(guard, dict):
        return [int(str(guard["sym"]))]
    found = [number for part in guard[1:] for number in guard_symbols(part)] if isinstance(guard, list) else []
    return list(dict.fromkeys(found))
