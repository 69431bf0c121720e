"""Finds code that could go through a set: the order of one of texts or objects is another in each process.

What code does with a set is told from its instructions: asking whether something is in it, how long it is, or for it
sorted has no order. All else could have, and is taken to: handing a set on, returning it, going through it.
"""

from __future__ import annotations

import dis
from typing import TYPE_CHECKING, Any

from trtcache.direct.codes import instructions_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from types import CodeType

_SKIPPED = frozenset({"CACHE", "PRECALL", "PUSH_NULL", "EXTENDED_ARG", "NOP", "RESUME", "COPY", "SWAP", "NOT_TAKEN"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_WITHOUT_ORDER = frozenset({"CONTAINS_OP", "IS_OP", "COMPARE_OP", "POP_TOP", "UNARY_NOT", "TO_BOOL", "SET_UPDATE"})
_METHODS = frozenset(("add", "discard", "remove", "update", "issubset", "issuperset", "isdisjoint", "__contains__"))
_FUNCTIONS = frozenset({"len", "bool", "sorted", "any", "all", "set", "frozenset"})
_NAMED = frozenset({"LOAD_ATTR", "LOAD_GLOBAL", "LOAD_NAME"})
_OF_SETS = frozenset(dir(set))
_MADE = frozenset({"set", "frozenset"})
_VIEWS = frozenset({"keys", "items"})
_SEQUENCES = frozenset({"list", "tuple", "deque"})
_MAPPINGS = frozenset({"dict", "proxy", "OrderedDict", "defaultdict", "Counter"})
_CONTAINERS = frozenset({dict, list})
CLOSURE, ARGUMENT = "<closure>", "<argument>"


def is_ordered(members: Collection[Any]) -> bool:
    """Say whether a set of these goes through them in the order in which they were put in: numbers have no seed."""
    return len(members) < 2 or all(type(one) in {int, bool} for one in members)


def names_of_sets(written: Any, names: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the names under which a description has sets that have no order; with a star those of what such are in.

    Args:
        written: a description of values.
        names: names that lead to it.
    """
    if isinstance(written, dict):
        for key, one in written.items():
            if type(one) in _CONTAINERS:
                yield from names_of_sets(one, (str(key).rpartition(".")[2],))
    elif isinstance(written, list) and written:
        kind = written[0] if isinstance(written[0], str) else ""
        if kind == "set" and len(written) > 2 and not is_ordered(written[2:]):
            yield from names
        elif kind in {"object", "namespace"}:
            yield from _of_object(written, names)
        else:
            yield from _of_values(kind, written, names)


def _of_object(written: list[Any], names: tuple[str, ...]) -> Iterator[str]:
    """Yield those of an object: it can be a container itself, and its attributes come last."""
    yield from _pairs(written[-1], ())
    for one in written[1:-1]:
        if isinstance(one, list) and one and all(isinstance(pair, list) and len(pair) == 2 for pair in one):
            yield from _pairs(one, _starred(names))
        else:
            yield from names_of_sets(one, names)


def _of_values(kind: str, written: list[Any], names: tuple[str, ...]) -> Iterator[str]:
    if kind in _MAPPINGS:
        yield from _pairs(written[-1], _starred(names))
        return
    around = _starred(names) if kind in _SEQUENCES else names
    around = (*around, CLOSURE, ARGUMENT) if kind in {"function", "partial"} else around
    for one in written[1:] if kind else written:
        if type(one) in _CONTAINERS:
            yield from names_of_sets(one, around)


def _pairs(pairs: Any, names: tuple[str, ...]) -> Iterator[str]:
    for key, one in pairs:
        if type(key) in _CONTAINERS:
            yield from names_of_sets(key, names)
        if type(one) in _CONTAINERS:
            yield from names_of_sets(one, (*names, key) if isinstance(key, str) else names)


def _starred(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"*{one.lstrip('*')}" for one in names)


def goes_through(code: CodeType, names: Collection[str]) -> bool:
    """Say whether code could go through a set, one that it makes or one of those that these names lead to."""
    return _Code(code, names).goes_through()


class _Code:
    def __init__(self, code: CodeType, names: Collection[str]) -> None:
        self._names = set(names)
        self._steps = [one for one in instructions_of(code) if one.opname not in _SKIPPED]
        self._looks_up = "getattr" in code.co_names
        self._is_inner = code.co_name == "<setcomp>"
        if ARGUMENT in self._names:
            self._names |= {f"{ARGUMENT}{one}" for one in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]}

    def goes_through(self) -> bool:
        after = ((place, self._after(place)) for place in range(len(self._steps)))
        return any(used is not None and not self._is_without_order(used, made) for made, used in after)

    def _after(self, place: int) -> int | None:
        """Return where a set that an instruction puts on the stack is used; None if it puts none there."""
        one = self._steps[place]
        name, value = one.opname, one.argval
        if name == "LOAD_CONST":
            if isinstance(value, frozenset) and not is_ordered(value):
                return place + 1
            if isinstance(value, str) and self._looks_up and value in self._names:
                return len(self._steps)
            return self._after_inner(place) if getattr(value, "co_name", "") == "<setcomp>" else None
        if name in {"BUILD_SET", "SET_UPDATE"}:
            is_filled = place + 2 < len(self._steps) and self._steps[place + 2].opname == "SET_UPDATE"
            return place + 1 if name == "SET_UPDATE" or (value > 1 and not is_filled) else None
        if name == "SET_ADD":
            return None if self._is_inner else self._after_loop(place)
        if name == "LOAD_GLOBAL" and value in _MADE:
            return self._after_call(place) if "NULL" in one.argrepr else None
        if name in _ATTRIBUTES and value in _VIEWS and self._is_combined(place + 2):
            return len(self._steps)
        return place + 1 if self._is_named(name, value) else None

    def _is_combined(self, place: int) -> bool:
        """Say whether the keys of a dictionary are taken for a set: ``one.keys() & other``."""
        for one in self._steps[place : place + 8]:
            if one.opname == "BINARY_OP":
                return one.argrepr in {"&", "|", "^", "-"}
            if one.opname.startswith(("STORE", "GET_ITER", "RETURN", "POP")):
                return False
        return False

    def _is_named(self, name: str, value: object) -> bool:
        if name.startswith("LOAD_FAST"):
            return f"{ARGUMENT}{value}" in self._names
        if name == "LOAD_DEREF":
            return CLOSURE in self._names or value in self._names
        return name in _NAMED and (value in self._names or f"*{value}" in self._names)

    def _after_inner(self, place: int) -> int:
        """Return what comes after the call of a comprehension."""
        for at in range(place + 1, len(self._steps) - 1):
            if self._steps[at].opname == "GET_ITER" and self._steps[at + 1].opname.startswith("CALL"):
                return at + 2
        return len(self._steps)

    def _after_loop(self, place: int) -> int:
        """Return what comes after a comprehension that Python 3.12 has put into the code around it."""
        end = next((at for at in range(place, len(self._steps)) if self._opname(at) == "END_FOR"), len(self._steps))
        after = end + 1
        while self._opname(after) in {"POP_TOP", "POP_ITER"}:
            after += 1
        if self._opname(after).startswith("JUMP_BACKWARD"):
            return self._after_loop(after)  # the loop around it
        hidden = {one.argval for one in self._steps if one.opname == "LOAD_FAST_AND_CLEAR"}
        while self._opname(after) == "STORE_FAST" and self._steps[after].argval in hidden:
            hidden.discard(self._steps[after].argval)
            after += 1
        return after

    def _after_call(self, place: int) -> int:
        """Return what comes after the call of what an instruction loads: when the stack is as it was, and one more."""
        depth = 1
        for at in range(place + 1, len(self._steps)):
            one = self._steps[at]
            if one.opname.startswith("CALL"):
                depth -= one.arg or 0
                if depth <= 1:
                    return at + 1
            elif "JUMP" not in one.opname:
                depth += _effect(one)
        return len(self._steps)

    def _is_without_order(self, place: int, made: int) -> bool:
        """Say whether what is done at a place with the set on top of the stack, made at another, has no order."""
        if place >= len(self._steps):
            return False
        one = self._steps[place]
        if one.opname in _WITHOUT_ORDER or "JUMP_IF" in one.opname:
            return True
        if one.opname == "STORE_FAST":
            self._names.add(f"{ARGUMENT}{one.argval}")
            return True
        if one.opname in _ATTRIBUTES:
            is_inside = f"*{self._steps[place - 1].argval}" in self._names
            return one.argval in _METHODS or (one.argval not in _OF_SETS and not is_inside)
        if one.opname == "BINARY_SUBSCR":
            return True  # no set has items: what it leads to is named by the key
        if one.opname == "LOAD_CONST" and self._opname(place + 1) == "BINARY_SUBSCR":
            return self._is_without_order(place + 2, made)
        return one.opname.startswith("CALL") and one.arg == 1 and self._is_asked(made)

    def _opname(self, place: int) -> str:
        return self._steps[place].opname if place < len(self._steps) else ""

    def _is_asked(self, place: int) -> bool:
        """Say whether what is loaded at a place is the one argument of a function that knows no order."""
        while place > 0 and self._steps[place].opname in _ATTRIBUTES:
            place -= 1
        before = self._steps[place - 1] if place else None
        return before is not None and before.opname == "LOAD_GLOBAL" and before.argval in _FUNCTIONS - {"set"}


def _effect(one: dis.Instruction) -> int:
    effect = dis.stack_effect(one.opcode, one.arg if one.opcode >= dis.HAVE_ARGUMENT else None, jump=False)
    return effect - 1 if "NULL" in one.argrepr or one.opname == "LOAD_METHOD" else effect
