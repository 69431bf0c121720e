"""Guard checks at a call: one compiled Python function for all of a program's guards.

A guard's JSON becomes a Python expression over integers, about 0.1 us each; ``interface.evaluate`` takes 2 to 5 us
for the same JSON. The source contains only operations of ``interface.OPERATIONS`` and numbers, whatever an entry
contains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from trtcache.lowering.interface import OPERATIONS, evaluate

if TYPE_CHECKING:
    from trtcache.digests import Json

SIZES_HINT = "compile with example inputs of these sizes, or choose what such calls do: on_guard='eager' or 'compile'"
"""What to do where a call has sizes that a guard refuses."""

_FUNCTIONS = {head: one.apply for head, one in OPERATIONS.items() if not one.sign}


def compile_guards(guards: Iterable[Json]) -> Callable[[Sequence[int] | Mapping[int, int]], bool] | None:
    """Return a function of the symbols' values, by number, that returns whether all guards hold; None without guards.

    It raises ArithmeticError or ValueError if a guard divides by zero.

    Raises:
        ValueError: a guard has an unknown operation.
    """
    texts = [_source(guard) for guard in guards]
    if not texts:
        return None
    code = compile(f"lambda s: {' and '.join(texts)}", "<guards>", "eval")
    names = {"__builtins__": {}, "float": float, **_FUNCTIONS}
    holds: Callable[[Sequence[int] | Mapping[int, int]], bool] = eval(code, names)  # noqa: S307  # built from the table
    return holds


def failed_guard(guards: Iterable[Json], sizes: Mapping[int, int]) -> Json:
    """Return the first guard that is false or cannot be evaluated; None if all hold."""
    return next((guard for guard in guards if evaluate(guard, sizes) is not True), None)


def _source(part: Json) -> str:
    if isinstance(part, (bool, int)):
        return f"({part!r})"
    if isinstance(part, dict):
        return f"s[{int(str(part['sym']))}]"
    if isinstance(part, list) and part:
        head, *args = part
        if head == "Number":
            number = float.fromhex(str(args[0]))
            return f"({number!r})" if math.isfinite(number) else f"float({str(number)!r})"
        if head in _FUNCTIONS and args:
            return f"({head}({', '.join(map(_source, args))}))"
        if head in OPERATIONS and len(args) > 1:
            return f"({f' {OPERATIONS[str(head)].sign} '.join(map(_source, args))})"
    raise ValueError(f"{part!r} is not a guard")
