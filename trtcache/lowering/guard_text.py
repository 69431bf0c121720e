"""Guards as Python expressions, for messages and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.values import Json


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
        args = [one for one in args if not isinstance(one, int)] + [one for one in args if isinstance(one, int)]
    if head in {"Eq", "Ne"} and isinstance(args[0], int):
        args = args[::-1]
    text = sign.join(_text(one, sizes, level + (place > 0)) for place, one in enumerate(args))
    text = text.replace(" + -1 * ", " - ").replace(" + -", " - ")
    return f"({text})" if level < outer else text
