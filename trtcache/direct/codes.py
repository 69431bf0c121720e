"""Code objects: their digest without lines and files, and which names outside a function they read."""

from __future__ import annotations

import dis
import functools
import marshal
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

from trtcache.digests import hash_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_NOTHING = frozenset({"CACHE", "PRECALL", "PUSH_NULL"})
_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_LOOKS_UP = frozenset({"getattr", "hasattr"})
_BY_VALUES = frozenset({"vars", "__dict__", "attrgetter", "methodcaller", "__getattribute__"})
_LOOKS_UP_BY_TEXT = _LOOKS_UP | _BY_VALUES
_CONSTANTS = frozenset({"LOAD_CONST", "LOAD_SMALL_INT"})  # 3.14 has the second for levels of relative imports
_OF_CODE = (
    *("__doc__", "__annotations__", "__abstractmethods__", "__subclasses__", "__globals__", "__closure__"),
    *("co_firstlineno", "co_code", "co_lines", "co_filename", "f_locals", "f_back", "f_globals", "f_code", "gi_frame"),
    *("tb_frame", "__hash__", "__builtins__", "__loader__", "__spec__", "__cached__", "__sizeof__"),
)
_OF_TENSORS = (
    *("_version", "grad", "grad_fn", "retains_grad", "_backward_hooks", "data_ptr", "is_shared", "is_pinned"),
    *("untyped_storage", "storage", "is_leaf", "is_inference", "output_nr"),
)
_UNSEEN = frozenset((*_OF_CODE, *_OF_TENSORS))
_CELLS = frozenset({"STORE_DEREF", "DELETE_DEREF"})
_SETS = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL"})


@functools.lru_cache(maxsize=16384)
def code_digest(code: CodeType) -> str:
    """Return the digest of what a code object does: not where it was written, and not its lines."""
    return hash_bytes(marshal.dumps(_parts(code), 2)).hex()[:32]


def _parts(code: CodeType) -> tuple[Any, ...]:
    shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    constants = tuple(map(_constant, code.co_consts))
    return (shape, names, code.co_code, code.co_exceptiontable, constants)


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return ("code", code_digest(value))
    if isinstance(value, frozenset):  # in the order of hashes, which differ from process to process
        return ("set", *sorted(map(repr, value)))
    if isinstance(value, tuple):
        return ("tuple", *map(_constant, value))
    return (type(value).__name__, value)


@dataclass(frozen=True, slots=True)
class Reads:
    """What a code object, without those inside it, reads and sets outside of its function.

    Attributes:
        chains: names of globals, each with the attributes that are read of it at once: ``("torch", "nn", "Linear")``.
        imports: modules imported inside, with what is taken from them.
        sets: globals that it sets.
        attributes: every name that it looks up on anything.
        cells: variables of closures, its own or of those around it, that it sets.
        texts: what it could look up with ``getattr`` or ``hasattr``.
        by_values: whether it looks up names that are not in the code.
        handed: those of the chains that it does not call at once.
        unseen: names that it looks up of what nobody describes: of code itself, and of tensors beside their values.
    """

    chains: frozenset[tuple[str, ...]]
    imports: frozenset[tuple[str, int, tuple[str, ...]]]
    sets: frozenset[str]
    attributes: frozenset[str]
    cells: frozenset[str]
    texts: frozenset[str] = frozenset()
    by_values: bool = False
    handed: frozenset[tuple[str, ...]] = frozenset()
    unseen: frozenset[str] = frozenset()


@functools.lru_cache(maxsize=4096)
def reads(code: CodeType) -> Reads:
    """Return what a code object reads and sets outside of its function."""
    instructions = instructions_of(code)
    texts = {one for one in code.co_consts if isinstance(one, str) and one.isidentifier()}
    return Reads(
        frozenset(_chains(instructions)),
        frozenset(_imports(instructions)),
        frozenset(str(one.argval) for one in instructions if one.opname in _SETS),
        frozenset(code.co_names) | texts,
        frozenset(str(one.argval) for one in instructions if one.opname in _CELLS),
        frozenset(texts) if _LOOKS_UP & set(code.co_names) else frozenset(),
        bool(_BY_VALUES & set(code.co_names)) or any(map(_is_by_value, _lookups(instructions))),
        frozenset(chain for chain, is_called in _chains_called(instructions) if not is_called),
        frozenset((_looked_up(instructions) | (texts if _LOOKS_UP_BY_TEXT & set(code.co_names) else set())) & _UNSEEN),
    )


@functools.lru_cache(maxsize=4096)
def instructions_of(code: CodeType) -> list[dis.Instruction]:
    """Return the instructions of a code object, each with one name; to take it apart costs more than to look."""
    return singly(dis.get_instructions(code))


def singly(instructions: Iterable[dis.Instruction]) -> list[dis.Instruction]:
    """Return instructions as Python 3.11 has them.

    One of 3.13 that loads or stores two variables is the two that it stands for, and what 3.12 loads to be called at
    once is a method.
    """
    found: list[dis.Instruction] = []
    for one in instructions:
        first, is_double, second = one.opname.replace("_BORROW", "").partition("_FAST_")
        if is_double and isinstance(one.argval, tuple):
            for opname, name in zip((f"{first}_FAST", second), one.argval, strict=True):
                found.append(one._replace(opname=opname, opcode=dis.opmap[opname], argval=name, argrepr=str(name)))
        elif one.opname == "LOAD_ATTR" and "NULL|self" in one.argrepr:
            found.append(one._replace(opname="LOAD_METHOD"))
        else:
            found.append(one)
    return found


def _looked_up(instructions: list[dis.Instruction]) -> set[str]:
    """Return the attributes that are looked up of anything but torch's own modules."""
    within_torch = {place for start, end in _spans(instructions) for place in range(start, end)}
    return {
        str(one.argval)
        for place, one in enumerate(instructions)
        if one.opname in _ATTRIBUTE and place not in within_torch
    }


def _spans(instructions: list[dis.Instruction]) -> Iterator[tuple[int, int]]:
    """Yield where chains of attributes of ``torch`` are."""
    for start, one in enumerate(instructions):
        if one.opname in _GLOBAL and one.argval == "torch":
            end = start + 1
            while end < len(instructions) and instructions[end].opname in _ATTRIBUTE | _NOTHING:
                end += 1
            yield start, end


def _lookups(instructions: list[dis.Instruction]) -> Iterator[list[dis.Instruction]]:
    """Yield what follows each mention of ``getattr`` or ``hasattr``."""
    for place, one in enumerate(instructions):
        if one.opname in _GLOBAL and one.argval in {"getattr", "hasattr"}:
            yield instructions[place + 1 : place + 20]


def _is_by_value(following: list[dis.Instruction]) -> bool:
    """Say whether the second argument is no text: ``getattr(object.of.any.kind, "name")`` loads it second."""
    loads = [place for place, one in enumerate(following) if one.opname.startswith("LOAD_") and _is_load(one)]
    if len(loads) < 2 or not isinstance(following[loads[1]].argval, str):
        return True
    named, after = following[loads[1]], following[loads[1] + 1 :]
    if any(one.opname == "PUSH_NULL" or _is_for_call(one) for one in following[: loads[1]]):
        return True  # the text is an argument of what gives the object
    return named.opname != "LOAD_CONST" or not after or after[0].opname.startswith(("FORMAT", "BUILD", "BINARY"))


def _is_load(one: dis.Instruction) -> bool:
    return one.opname not in _ATTRIBUTE


def _chains(instructions: list[dis.Instruction]) -> Iterator[tuple[str, ...]]:
    return (chain for chain, _ in _chains_called(instructions))


def _chains_called(instructions: list[dis.Instruction]) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yield chains of names, each with whether what they lead to is called at once."""
    chain: tuple[str, ...] = ()
    is_called = False
    for one in instructions:
        if chain and one.opname in _ATTRIBUTE:
            chain, is_called = (*chain, str(one.argval)), _is_for_call(one)
        elif chain and one.opname not in _NOTHING:
            yield chain, is_called
            chain = ()
        is_called = is_called or (one.opname == "PUSH_NULL" and bool(chain))
        if one.opname in _GLOBAL:
            chain, is_called = (str(one.argval),), _is_for_call(one)
    if chain:
        yield chain, is_called


def _is_for_call(one: dis.Instruction) -> bool:
    """Say whether a load makes ready for a call: the interpreter then leaves room for an object to bind to."""
    return one.opname == "LOAD_METHOD" or "NULL" in one.argrepr


def _imports(instructions: list[dis.Instruction]) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Yield what is imported, from how many levels above, and which names are taken of it.

    ``import a.b as c`` takes ``b`` too, by the same operation, but has no list of names: all of it is at hand then.
    """
    constants: list[Any] = [None, None]
    for one in instructions:
        if one.opname == "IMPORT_NAME":
            level, names = constants[-2:]
            yield str(one.argval), level if isinstance(level, int) else 0, tuple(names or ())
        elif one.opname in _CONSTANTS:
            constants.append(one.argval)


def within(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all those inside it."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from within(one)


def imported(name: str, level: int, space: Mapping[str, Any]) -> str:
    """Return the full name of a module that an import statement names, in code with these globals."""
    if not level:
        return name
    package = str(space.get("__package__") or str(space.get("__name__", "")).rpartition(".")[0])
    parts = package.split(".")
    return ".".join(filter(None, (*parts[: len(parts) - level + 1], name)))
