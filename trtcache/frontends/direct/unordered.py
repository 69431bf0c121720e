"""Uses of sets in code: whether it could depend on their order, which differs between processes."""

from __future__ import annotations

import bisect
from types import CodeType
from typing import TYPE_CHECKING

from trtcache.frontends.direct.bytecode import (
    ATTRIBUTE,
    GLOBAL,
    NAMED,
    after_call,
    find_consumer,
    instructions,
    is_raised,
    operates,
)
from trtcache.frontends.direct.code import SET_METHODS, SET_OPERATORS, VIEWS, is_ordered, once, within
from trtcache.frontends.direct.ownership import file_is_installed

if TYPE_CHECKING:
    import dis
    from collections.abc import Iterator, Mapping

_MAKES_SETS = frozenset({"set", "frozenset", "keys", "items"})


def find_unordered_set(  # noqa: C901  # one case for each form of a set
    code: CodeType, steps: list[dis.Instruction], views: frozenset[int]
) -> str:
    """Return the creation of a set whose order could matter; membership, length and sorting do not depend on it."""
    if not has_set_or_view(steps):
        return ""
    names = {step.argval for step in steps if step.opname in NAMED}
    variables = [_find_unordered(inner) for inner in within(code)]
    free = frozenset(name for uses_ in variables for name, is_unordered in uses_.items() if is_unordered)
    free -= {name for uses_ in variables for name, is_unordered in uses_.items() if not is_unordered}
    free -= set(code.co_freevars)
    for place, step in enumerate(steps):
        if step.opname == "LOAD_CONST" and isinstance(step.argval, frozenset) and not is_ordered(step.argval):
            if steps[place + 1].opname not in {"CONTAINS_OP", "SET_UPDATE"}:
                return "a constant set"
        elif step.opname in GLOBAL and step.argval in {"set", "frozenset"}:
            end = after_call(steps, place)
            is_message = file_is_installed(code.co_filename) and is_raised(steps, step)
            if not is_message and not _is_without_order(steps, place, end, free):
                return f"{step.argval}()"
        elif step.opname == "BUILD_SET" and not (step.arg == 0 and code.co_name == "<setcomp>"):
            if not _is_without_order(steps, place, _after_set(steps, place), free):
                return "a set"
        elif step.opname == "LOAD_CONST" and isinstance(step.argval, CodeType) and step.argval.co_name == "<setcomp>":
            end = next((at + 2 for at in range(place, len(steps) - 1) if steps[at].opname == "GET_ITER"), len(steps))
            if not _is_without_order(steps, place, end, free):
                return "a set comprehension"
        elif place in views and (names & SET_OPERATORS or operates(steps[place + 1 : place + 6], "&|^-")):
            return f"an operation on {step.argval}()"
    return ""


def has_set_or_view(steps: list[dis.Instruction]) -> bool:
    """Return whether code has or creates a set, or gets a view of a dictionary."""
    for step in steps:
        if step.opname == "BUILD_SET" or (step.opname in NAMED and step.argval in _MAKES_SETS):
            return True
        is_comprehension = getattr(step.argval, "co_name", "") == "<setcomp>"
        if step.opname == "LOAD_CONST" and (isinstance(step.argval, frozenset) or is_comprehension):
            return True
    return False


ITERATE = frozenset(
    ("list", "tuple", "sorted", "dict", "len", "enumerate", "zip", "reversed", "any", "all", "sum", "min")
)
ITERATE |= {"max", "iter", "map", "filter", "next", "OrderedDict", "bool"}
"""Functions that iterate over a view of a dictionary, whose order is that of the dictionary, or ask for its length."""


def find_views(steps: list[dis.Instruction]) -> Iterator[int]:
    """Yield where code gets a view of a dictionary that it neither iterates over nor searches at once."""
    iterate = [place for place, step in enumerate(steps) if step.opname in GLOBAL and step.argval in ITERATE]
    ends = {after_call(steps, place) for place in iterate}
    for place, step in enumerate(steps):
        if step.opname in ATTRIBUTE and step.argval in VIEWS:
            end = after_call(steps, place)
            is_called = end > place + 1 and steps[end - 1].opname.startswith("CALL") and not steps[end - 1].arg
            user = find_consumer(steps, end) if is_called else len(steps)
            if not (user < len(steps) and (user + 1 in ends or steps[user].opname in {"GET_ITER", "CONTAINS_OP"})):
                yield place


def _after_set(steps: list[dis.Instruction], place: int) -> int:
    """Return the index after the creation of a set by ``BUILD_SET``.

    Python 3.12 and later have a comprehension's loop there, and then restore its variables.
    """
    if steps[place].arg or [step.opname for step in steps[place + 1 : place + 3]] != ["SWAP", "FOR_ITER"]:
        return place + 1
    end = bisect.bisect_left(steps, steps[place + 2].argval, key=lambda step: step.offset)
    names = [step.opname for step in steps[end:]]
    if names[:1] != ["END_FOR"]:
        return len(steps)
    after = 2 if names[1:2] in (["POP_TOP"], ["POP_ITER"]) else 1
    if names[after : after + 1] != ["SWAP"]:  # the set is stored first, then the variables are restored
        return end + after
    count = int(steps[end + after].arg or 0) - 1
    is_known = names[after + 1 : after + 1 + count] == ["STORE_FAST"] * count
    return end + after + 1 + count if is_known else len(steps)


def _is_without_order(steps: list[dis.Instruction], made: int, place: int, free: frozenset[str]) -> bool:
    """Return whether the use of the set on top of the stack does not depend on its order."""
    if place >= len(steps):
        return False
    step = steps[place]
    if step.opname in {"CONTAINS_OP", "POP_TOP", "COMPARE_OP"} or (step.opname == "STORE_FAST" and step.argval in free):
        return True
    if step.opname == "STORE_DEREF" and step.argval in free:
        return True
    if step.opname in ATTRIBUTE:
        return step.argval in SET_METHODS
    return step.opname.startswith("CALL") and step.arg == 1 and _is_unordered_call(steps, made)


def _is_unordered_call(steps: list[dis.Instruction], place: int) -> bool:
    before = steps[place - 1] if place else None
    return before is not None and before.opname == "LOAD_GLOBAL" and before.argval in {"len", "sorted", "bool", "any"}


@once
def _find_unordered(code: CodeType) -> Mapping[str, bool]:
    """Return for each variable whether no use of it depends on the order of a set."""
    steps = instructions(code)
    loads = dict.fromkeys((*code.co_varnames, *code.co_cellvars), True)
    for place, step in enumerate(steps[:-1]):
        if step.opname in {"LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF"}:
            after = steps[place + 1]
            is_fine = after.opname == "CONTAINS_OP" or (after.opname in ATTRIBUTE and after.argval in SET_METHODS)
            is_fine = is_fine or (
                after.opname.startswith("CALL") and after.arg == 1 and _is_unordered_call(steps, place)
            )
            loads[step.argval] = loads.get(step.argval, True) and is_fine
    return loads
