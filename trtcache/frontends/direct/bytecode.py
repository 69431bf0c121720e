"""Instructions of code objects, in the form that Python 3.11 gives them."""

from __future__ import annotations

import bisect
import dis
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import CodeType

GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
NAMED = GLOBAL | ATTRIBUTE
_NO_EFFECT = frozenset(
    {"CACHE", "PRECALL", "PUSH_NULL", "EXTENDED_ARG", "NOP", "RESUME", "COPY_FREE_VARS", "NOT_TAKEN"}
)


def is_raised(steps: list[dis.Instruction], step: dis.Instruction) -> bool:
    """Return whether an instruction is followed only by raising an exception."""
    for after in steps[bisect.bisect_right(steps, step.offset, key=lambda other: other.offset) :]:
        if after.opname == "RAISE_VARARGS":
            return True
        if after.opname.startswith(("STORE", "RETURN", "POP_", "YIELD")) or "JUMP" in after.opname:
            return False
    return False


def catches_exceptions(code: CodeType, steps: list[dis.Instruction]) -> bool:
    """Return whether code catches exceptions, by ``except``, ``suppress`` or a method ``__exit__``."""
    for place, step in enumerate(steps):
        is_bare = step.opname == "PUSH_EXC_INFO" and steps[place + 1].opname == "POP_TOP"
        if is_bare or step.opname in {"CHECK_EXC_MATCH", "CHECK_EG_MATCH"}:
            return True
    return code.co_name in _EXITS or "suppress" in code.co_names


def reads_exception(code: CodeType, steps: list[dis.Instruction]) -> bool:
    """Return whether code catches an exception under a name, and does anything else with it than to raise it."""
    own = {*code.co_varnames[1:]} if code.co_name in _EXITS else set()
    for place, step in enumerate(steps):  # Python deletes the name at the end of the block
        is_end = step.opname.startswith("DELETE_") and steps[place - 1].argval == step.argval
        if is_end and steps[place - 2].opname == "LOAD_CONST" and steps[place - 2].argval is None:
            own.add(step.argval)
    found = (step for step in steps if step.opname.startswith("LOAD_") and step.argval in own)
    return "exc_info" in code.co_names or any(not is_raised(steps, step) for step in found)


_EXITS = frozenset({"__exit__", "__aexit__"})


def instructions(code: CodeType) -> list[dis.Instruction]:
    """Return the instructions of a code object, without those that have no effect.

    A jump to such a one leads to the next.
    """
    kept: list[dis.Instruction] = []
    is_target = False
    for step in _normalize(dis.get_instructions(code)):
        is_target |= step.is_jump_target
        if step.opname not in _NO_EFFECT:
            field: dict[str, Any] = {"label": 0} if "label" in step._fields else {"is_jump_target": True}  # Python 3.13
            kept.append(step._replace(**field) if is_target and not step.is_jump_target else step)
            is_target = False
    return kept


_SUPER = "LOAD_SUPER_ATTR"  # Python 3.12
_SMALL = "LOAD_SMALL_INT"  # Python 3.14


@functools.cache
def _is_new_form(opname: str) -> bool:
    return opname in {_SUPER, _SMALL, "BINARY_OP"} or any(part in opname for part in ("_BORROW", "_CHECK", "_FAST_"))


def _normalize(steps: Iterable[dis.Instruction]) -> Iterator[dis.Instruction]:
    """Yield instructions in the form of Python 3.11.

    An instruction of 3.13 for two variables becomes two, and one of 3.12 for an attribute of ``super()`` a call of
    ``super`` and the attribute's look-up. In 3.14 a small number is no constant, and ``[]`` a binary operation.
    """
    for step in steps:
        if not _is_new_form(step.opname):
            yield step
            continue
        if step.opname == _SMALL:
            yield step._replace(opname="LOAD_CONST", argval=step.arg)
            continue
        if step.opname == "BINARY_OP":
            yield step._replace(opname="BINARY_SUBSCR") if step.argrepr == "[]" else step
            continue
        if step.opname == _SUPER:
            yield step._replace(opname="CALL", opcode=dis.opmap["CALL"], arg=2, argval=2, argrepr="")
            is_method = (step.arg or 0) & 1
            yield step._replace(opname="LOAD_ATTR", opcode=dis.opmap["LOAD_ATTR"], arg=is_method)
            continue
        first, is_double, second = step.opname.replace("_BORROW", "").partition("_FAST_")
        if is_double and isinstance(step.argval, tuple):
            for opname, name in zip((f"{first}_FAST", second), step.argval, strict=True):
                yield step._replace(opname=opname, opcode=dis.opmap[opname], argval=name)
        else:
            yield step._replace(opname=step.opname.replace("_BORROW", "").replace("_CHECK", ""))


def operates(steps: list[dis.Instruction], signs: str) -> bool:
    """Return whether an instruction is a binary operation with one of some signs."""
    return any(step.opname == "BINARY_OP" and step.argrepr[:1] in signs for step in steps)


def chain_start(steps: list[dis.Instruction], place: int) -> int:
    """Return the index of the instruction that loads the object of a chain of attributes, which ends at an index."""
    while place > 0 and steps[place].opname in ATTRIBUTE:
        place -= 1
    return place


def find_consumer(steps: list[dis.Instruction], start: int) -> int:
    """Return the index of the instruction that takes the value on top of the stack, if no jump is before it."""
    depth = 1
    for at in range(start, len(steps)):
        step = steps[at]
        if "JUMP" in step.opname:
            break
        effect = _effect(step)
        if 1 - effect >= depth:  # it takes so many values, and returns one
            return at
        depth += effect
    return len(steps)


def value_start(steps: list[dis.Instruction], end: int) -> int:
    """Return the index of the first instruction of the value that is on top of the stack before an index.

    -1 if that depends on a jump.
    """
    missing = 1
    for at in range(end - 1, -1, -1):
        step = steps[at]
        if (
            steps[at + 1].is_jump_target
            or "JUMP" in step.opname
            or step.opname in {"CALL_FUNCTION_EX", "FOR_ITER", "SEND"}
        ):
            break
        missing -= _effect(step)
        if missing <= 0:
            return -1 if missing else at
    return -1


def _effect(step: dis.Instruction) -> int:
    """Return by how much an instruction changes the stack's depth; what ``PUSH_NULL`` adds does not count."""
    if step.opname == "CALL":
        return -(step.arg or 0)
    effect = dis.stack_effect(step.opcode, step.arg if step.opcode >= dis.HAVE_ARGUMENT else None, jump=False)
    return effect - ("NULL" in step.argrepr or step.opname == "LOAD_METHOD")


def is_called(steps: list[dis.Instruction], end: int) -> bool:
    """Return whether the value on top of the stack before an index is called, instead of passed on or kept."""
    depth = 1
    for step in steps[end:]:
        if "JUMP" in step.opname or step.opname == "CALL_FUNCTION_EX":
            return "JUMP" not in step.opname
        depth += _effect(step)
        if depth < 1 or (depth == 1 and step.opname == "CALL"):
            return depth == 1
    return False


_CALLS = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX"})


def after_call(steps: list[dis.Instruction], place: int) -> int:
    """Return the index after the call of the function that an instruction loads, found by the stack's depth."""
    depth = 1
    for at in range(place + 1, len(steps)):
        step = steps[at]
        if step.opname in _CALLS:
            depth -= (step.arg or 0) + (step.opname == "CALL_KW")  # the names of its arguments
            if depth <= 1:
                return at + 1
        elif "JUMP" not in step.opname:
            depth += _effect(step)
    return len(steps)
