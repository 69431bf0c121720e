"""Code objects: their digest without lines and files, and which names outside a function they read."""

from __future__ import annotations

import dis
import functools
import marshal
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

from trtcache.values import hash_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NOTHING = frozenset({"CACHE", "PRECALL", "PUSH_NULL"})
_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_LOOKS_UP = frozenset({"getattr", "hasattr"})
_BY_VALUES = frozenset({"vars", "__dict__", "attrgetter", "methodcaller", "__getattribute__"})
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
    """

    chains: frozenset[tuple[str, ...]]
    imports: frozenset[tuple[str, int, tuple[str, ...]]]
    sets: frozenset[str]
    attributes: frozenset[str]
    cells: frozenset[str]
    texts: frozenset[str] = frozenset()
    by_values: bool = False


@functools.lru_cache(maxsize=4096)
def reads(code: CodeType) -> Reads:
    """Return what a code object reads and sets outside of its function."""
    instructions = list(dis.get_instructions(code))
    texts = {one for one in code.co_consts if isinstance(one, str) and one.isidentifier()}
    return Reads(
        frozenset(_chains(instructions)),
        frozenset(_imports(code, instructions)),
        frozenset(str(one.argval) for one in instructions if one.opname in _SETS),
        frozenset(code.co_names) | texts,
        frozenset(str(one.argval) for one in instructions if one.opname in _CELLS),
        frozenset(texts) if _LOOKS_UP & set(code.co_names) else frozenset(),
        bool(_BY_VALUES & set(code.co_names)) or any(map(_is_by_value, _lookups(instructions))),
    )


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
    return named.opname != "LOAD_CONST" or not after or after[0].opname.startswith(("FORMAT", "BUILD", "BINARY"))


def _is_load(one: dis.Instruction) -> bool:
    return one.opname not in _ATTRIBUTE


def _chains(instructions: list[dis.Instruction]) -> Iterator[tuple[str, ...]]:
    chain: tuple[str, ...] = ()
    for one in instructions:
        if chain and one.opname in _ATTRIBUTE:
            chain = (*chain, str(one.argval))
        elif chain and one.opname not in _NOTHING:
            yield chain
            chain = ()
        if one.opname in _GLOBAL:
            chain = (str(one.argval),)
    if chain:
        yield chain


def _imports(code: CodeType, instructions: list[dis.Instruction]) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    level = 0
    for one in instructions:
        if one.opname == "LOAD_CONST" and isinstance(one.argval, int):
            level = one.argval
        elif one.opname == "IMPORT_NAME":
            yield str(one.argval), level, _taken(code, one.offset)


def _taken(code: CodeType, offset: int) -> tuple[str, ...]:
    """Return the names that an import statement takes."""
    names: list[str] = []
    for one in dis.get_instructions(code):
        if one.offset <= offset or one.opname in {"STORE_FAST", "STORE_DEREF", "STORE_NAME", "EXTENDED_ARG"}:
            continue
        if one.opname != "IMPORT_FROM":
            break
        names.append(str(one.argval))
    return tuple(names)


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
