"""Uses of values by code: names that it looks up, and operations that depend on what is not compared."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from trtcache.config.frozen import frozen_dataclass
from trtcache.frontends.direct.addresses import OF_TENSORS, find_counting, find_formats, find_methods, has_template
from trtcache.frontends.direct.bytecode import (
    ATTRIBUTE,
    GLOBAL,
    NAMED,
    after_call,
    catches_exceptions,
    chain_start,
    instructions,
    operates,
    reads_exception,
)
from trtcache.frontends.direct.code import IDENTITY, LOOK_UPS, SET_OPERATORS, identifiers, once, texts_of
from trtcache.frontends.direct.unordered import find_unordered_set, find_views, has_set_or_view
from trtcache.frontends.direct.writers import has_identity

if TYPE_CHECKING:
    import dis
    from collections.abc import Iterator, Mapping
    from types import CodeType

_OF_GLOBALS = GLOBAL | {"STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}
_SINGLETONS = (None, True, False, Ellipsis, NotImplemented)
_TEXTS = (str, bytes, int, float, complex, tuple, frozenset)


@frozen_dataclass
class Uses:
    """The values that a code object reads, and how it uses them.

    Attributes:
        names: globals and attributes that it looks up.
        globals: globals that it reads or sets.
        imports: modules that it imports, with the level of relative imports, and the names imported from each.
        texts: identifiers in its strings.
        compares: names that lead to what it compares by ``is``; ``()`` is among them if one is unknown.
        order: how it creates a set of strings that it may iterate over; empty if it does not.
        has_set: whether it has or creates a set, or gets a view of a dictionary.
        formats: an operation that reads the address of an object, or formats an object that could show it; empty if
            there is none.
        formatted: attributes whose values it formats, by the names that lead to them from ``self`` or a global; ``%``
            if there is a ``%`` after what may be a text.
        raises: whether messages of exceptions that it raises may have other values than numbers and texts.
        catches: whether it catches exceptions.
        reads_exception: whether it does anything else with one than to raise it.
        has_template: whether a text in it is a format for ``%``, used elsewhere.
        stores: names of attributes that it sets.
        counting: its comprehensions that iterate over a ``range`` or ``enumerate`` first, with the name of that.
        methods: names of attributes that it does not call, and that can be methods of built-in types; each after
            the names that lead to its object from a global.
        merges: whether it may create a new set from another.
        changes: whether it may change a set, whose order depends on what was in it before.
        has_view: whether it keeps or passes on ``keys()`` or ``items()`` of a dictionary, of which sets can be created.
        subtracts: whether it has an operation that creates a set of such views.
        composes: whether it may look up attributes whose names are not constants in its code.
        chains: names that lead from globals to values; the last is ``()`` if the value is called at once.
    """

    names: frozenset[str]
    globals: frozenset[str]
    imports: tuple[tuple[str, int, tuple[str, ...]], ...]
    texts: frozenset[str]
    compares: frozenset[tuple[str, ...]]
    order: str
    has_set: bool
    formats: str
    formatted: frozenset[tuple[str, ...]]
    raises: bool
    catches: bool
    reads_exception: bool
    has_template: bool
    stores: frozenset[str]
    counting: tuple[tuple[CodeType, str], ...]
    methods: frozenset[tuple[str, ...]]
    merges: bool
    changes: bool
    has_view: bool
    subtracts: bool
    composes: bool
    chains: frozenset[tuple[str, ...]]


@once
def uses(code: CodeType) -> Uses:
    """Analyze a code object."""
    steps = instructions(code)
    names = {*code.co_names, *(part for name in code.co_names if "." in name for part in name.split("."))}
    compares = {chain for place in range(len(steps)) if (chain := _compares(steps, place)) is not None}
    if names & IDENTITY or any(type(value) in {float, complex} and value != value for value in code.co_consts):
        compares.add(())  # `in` compares a NaN by identity
    own = frozenset(step.argval for step in steps if step.opname in _OF_GLOBALS)
    views = frozenset(find_views(steps))
    formats, formatted = find_formats(code, steps)
    raised, in_raised = find_formats(code, steps, with_raised=True)
    imports = tuple(
        (str(step.argval), _level(steps, place), _imported_names(steps, place))
        for place, step in enumerate(steps)
        if step.opname == "IMPORT_NAME"
    )
    return Uses(
        names=frozenset(names),
        globals=own,
        imports=imports,
        texts=frozenset(identifiers(texts_of(code))),
        compares=frozenset(compares),
        order=find_unordered_set(code, steps, views),
        has_set=has_set_or_view(steps),
        formats=formats,
        formatted=formatted,
        raises=raised != formats or any(names[-1] not in OF_TENSORS for names in in_raised - formatted),
        catches=catches_exceptions(code, steps),
        reads_exception=reads_exception(code, steps),
        has_template=has_template(steps),
        stores=frozenset(step.argval for step in steps if step.opname == "STORE_ATTR"),
        counting=tuple(find_counting(steps)),
        methods=frozenset(find_methods(steps)),
        merges=bool(names & _MERGES) or operates(steps, "|^"),
        changes=bool(names & _CHANGES) or operates(steps, "&|^-"),
        has_view=bool(views),
        subtracts=bool(names & SET_OPERATORS) or operates(steps, "&|^-"),
        composes=_composes(steps),
        chains=frozenset(_chains(steps)),
    )


_LOOKS_UP = re.compile(r"\{[^}:!]*[.\[]")  # as in "{0.name}".format(x)
_LOADS = frozenset({"LOAD_CONST", "LOAD_FAST", "LOAD_DEREF", "LOAD_GLOBAL"})


def _composes(steps: list[dis.Instruction]) -> bool:
    """Return whether a name that is looked up may not be a constant, as it is in ``getattr(x, "name", None)``.

    A pattern such as ``case Point(0)`` takes the names in ``__match_args__`` of the class.
    """
    if any(step.opname == "MATCH_CLASS" and step.arg for step in steps):
        return True
    for place, step in enumerate(steps):
        if step.opname not in NAMED or step.argval not in LOOK_UPS:
            continue
        template = steps[place - 1].argval if steps[place - 1].opname == "LOAD_CONST" else None
        if step.argval == "format" and type(template) is str and _LOOKS_UP.search(template) is None:
            continue
        end = after_call(steps, place)
        call, inside = steps[end - 1], steps[place:end]
        name = steps[end - call.arg] if call.opname == "CALL" and call.arg in {2, 3} else call
        is_constant = name.opname == "LOAD_CONST" and type(name.argval) is str and steps[end - 2].opname in _LOADS
        is_known = step.argval in {"getattr", "hasattr", "setattr"} and "NULL" in step.argrepr
        if not (is_known and is_constant) or any("JUMP" in other.opname for other in inside):
            return True
    return False


def _chains(steps: list[dis.Instruction]) -> Iterator[tuple[str, ...]]:
    """Yield chains of names from globals, with ``()`` at the end if their value is called at once."""
    place = 0
    while place < len(steps):
        start = place
        place += 1
        if steps[start].opname in GLOBAL:
            while place < len(steps) and steps[place].opname in ATTRIBUTE:
                place += 1
            last = steps[place - 1]
            is_called = last.opname == "LOAD_METHOD" or "NULL" in steps[start].argrepr or "NULL" in last.argrepr
            yield (*(str(step.argval) for step in steps[start:place]), *(["()"] if is_called else []))


def _level(steps: list[dis.Instruction], place: int) -> int:
    before = steps[place - 2]  # the level, then the names
    return before.argval if type(before.argval) is int else 0


def _imported_names(steps: list[dis.Instruction], place: int) -> tuple[str, ...]:
    names = steps[place - 1].argval
    return names if isinstance(names, tuple) else ()


def absolute_name(name: str, level: int, space: Mapping[str, Any]) -> str:
    """Return the absolute name of a module in an import statement of code with these globals."""
    if not level:
        return name
    package = str(space.get("__package__") or str(space.get("__name__", "")).rpartition(".")[0])
    parts = package.split(".")
    return ".".join(filter(None, (*parts[: len(parts) - level + 1], name)))


def _compares(steps: list[dis.Instruction], place: int) -> tuple[str, ...] | None:
    """Return names that lead to what an instruction compares by ``is``, if that may be a string or a number."""
    if steps[place].opname != "IS_OP":
        return None
    before = steps[place - 1]
    if before.opname == "LOAD_COMMON_CONSTANT":  # in Python 3.14, all(...) of a generator compares the function
        return None
    if before.opname == "LOAD_CONST":
        return None if any(before.argval is one for one in _SINGLETONS) else ()
    start = chain_start(steps, place - 1)
    is_known = steps[start].opname in GLOBAL | {"LOAD_DEREF"}
    return tuple(str(step.argval) for step in steps[start:place]) if is_known else ()


def is_text_or_number(chain: tuple[str, ...], space: Mapping[str, Any]) -> bool:
    """Return whether names lead to a value whose identity is not compared, such as a string, or to nothing known.

    ``x is Kind.ONE`` does not if that is an object of another type.
    """
    if not chain or chain[0] not in space:
        return True
    value: Any = space[chain[0]]
    for name in chain[1:]:
        value = getattr(value, "__dict__", {}).get(name, "")
    return issubclass(type(value), _TEXTS) or not has_identity(value)


_MERGES = frozenset(("type", "__class__", "union", "symmetric_difference", "copy", "__or__", "__xor__", "or_", "xor"))
_CHANGES = frozenset(("add", "discard", "remove", "pop", "update", "clear"))
_CHANGES |= {"difference_update", "intersection_update", "symmetric_difference_update"}
