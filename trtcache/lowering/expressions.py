"""Evaluation of sizes and guards in the JSON form of ``Symbols`` and ``input_guards``, without sympy."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from trtcache.digests import Json


def evaluate(written: Json, sizes: Mapping[int, int]) -> Any:
    """Evaluate an expression for given values of its symbols.

    Args:
        written: a size, or a guard whose value is a bool.
        sizes: the symbols' values by number: numbers, or a tracer's symbols.

    Returns:
        The value, or None if a symbol has no value, an operation is unknown, or it divides by zero.
    """
    if isinstance(written, int):
        return written
    if isinstance(written, dict):
        return sizes.get(int(str(written["sym"])))
    if not isinstance(written, list):
        return None
    if written[0] == "Number":
        return float.fromhex(str(written[1]))
    values = [evaluate(one, sizes) for one in written[1:]]
    if any(value is None for value in values):
        return None
    try:
        return _apply(str(written[0]), values)
    except (ArithmeticError, ValueError):
        return None


def bounds(written: Json, ranges: Sequence[tuple[int | None, int | None]]) -> tuple[float, float]:
    """Return the minimum and maximum of a sum or product over ranges of symbols; infinite if unbounded."""
    if isinstance(written, dict):
        number = int(str(written["sym"]))
        lower, upper = ranges[number] if number < len(ranges) else (None, None)
        return -math.inf if lower is None else lower, math.inf if upper is None else upper
    if isinstance(written, int):
        return written, written
    if not isinstance(written, list) or written[0] not in {"Add", "Mul"}:
        return -math.inf, math.inf
    low, high = bounds(written[1], ranges)
    for part in written[2:]:
        least, most = bounds(part, ranges)
        if written[0] == "Add":
            low, high = low + least, high + most
        else:
            corners = [one * other if one and other else 0 for one in (low, high) for other in (least, most)]
            low, high = min(corners), max(corners)
    return low, high


def affine(written: Json) -> tuple[int, int, int] | None:
    """Return ``(n, a, b)`` for an expression ``a * s + b`` of the symbol ``n``; None for any other."""
    match written:
        case {"sym": int(number)}:
            return number, 1, 0
        case ["Mul", int(factor), inner] | ["Mul", inner, int(factor)]:
            found = affine(inner)
            return found and (found[0], factor * found[1], factor * found[2])
        case ["Add", int(more), inner] | ["Add", inner, int(more)]:
            found = affine(inner)
            return found and (found[0], found[1], found[2] + more)
    return None


def _apply(head: str, values: list[Any]) -> Any:  # noqa: C901  # one case per operation
    match head:
        case "Add":
            return sum(values[1:], values[0])
        case "Mul":
            product = values[0]
            for value in values[1:]:
                product = product * value
            return product
        case "Pow" | "PowByNatural" if values[1] >= 0:
            return values[0] ** values[1]
        case "FloorDiv" | "CleanDiv":
            return values[0] // values[1]
        case "Mod" | "PythonMod":
            return values[0] % values[1]
        case "TrueDiv" | "IntTrueDiv":
            return values[0] / values[1]
        case "Max":
            return max(values)
        case "Min":
            return min(values)
        case "Abs":
            return abs(values[0])
        case "Float" | "ToFloat":
            return float(values[0])
        case "Sqrt":
            return math.sqrt(values[0])
        case "Floor" | "FloorToInt":
            return math.floor(values[0])
        case "Ceil" | "CeilToInt":
            return math.ceil(values[0])
        case "Trunc" | "TruncToInt":
            return math.trunc(values[0])
        case "Round":
            return round(*values)
        case _:
            return _decide(head, values)


def _decide(head: str, values: list[Any]) -> Any:
    match head:
        case "Eq":
            return values[0] == values[1]
        case "Ne":
            return values[0] != values[1]
        case "Le":
            return values[0] <= values[1]
        case "Lt":
            return values[0] < values[1]
        case "And":
            return all(values)
        case "Or":
            return any(values)
        case "Not":
            return not values[0]
        case _:
            return None


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
