"""What the model's modules held before an export: a value that the export changes is not known by what it is after.

Copies are kept, not descriptions: of all that a process has loaded an export reads little, and that is told afterwards.
"""

from __future__ import annotations

import functools
import sys
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from trtcache.direct.attributes import UnstableError
from trtcache.direct.codes import imported, reads
from trtcache.direct.origin import is_trusted_module, module_of

if TYPE_CHECKING:
    from types import CodeType

    from trtcache.digests import Json
    from trtcache.direct.tree import Tree

_DEEP = 4
_LARGE = 5000
_CONTAINERS = frozenset({dict, list, set})
_GONE: list[Any] = ["gone"]

Copy = tuple[Any, Any] | None
"""An object that can change, and what it held; None for one that cannot."""


class Before:
    """What globals and classes held when the first code that reads them began to run."""

    def __init__(self, tree: Tree) -> None:
        """Look at the model's own classes."""
        self._describer = tree.another()
        self._globals: dict[tuple[str, str], tuple[Any, Copy]] = {}
        self._classes: dict[type, dict[str, tuple[Any, Copy]]] = {}
        self._cached: dict[int, Json | UnstableError] = {}
        for cls in tree.classes:
            self._class(cls)

    def note(self, code: CodeType, space: dict[str, Any]) -> None:
        """Look at all that a code object reads outside of its function; it has not run yet."""
        module = module_of(space)
        if module is not None:
            read = reads(code)
            for chain in (*read.chains, *((name,) for name in read.sets)):
                self._chain(module, chain)
            for name, level, _ in read.imports:
                self.all_of(sys.modules.get(imported(name, level, space)))

    def _chain(self, module: ModuleType, chain: tuple[str, ...]) -> None:
        value: Any = module
        for step in chain:
            if not isinstance(value, ModuleType):
                return
            place, is_plain = (value.__name__, step), type(value) is ModuleType
            value = vars(value).get(step, _GONE) if is_plain else getattr(value, step, _GONE)
            if place not in self._globals:
                self._globals[place] = (value, self._copy(value))
                self._class(value if isinstance(value, type) else type(value))
        self.all_of(value)

    def all_of(self, module: Any) -> None:
        """Look at all of a module that is handed on: what is read of it is in no code."""
        if isinstance(module, ModuleType) and not is_trusted_module(module.__name__):
            for name, value in list(vars(module).items()):
                self._globals.setdefault((module.__name__, name), (value, self._copy(value)))

    def _class(self, cls: type) -> None:
        for one in cls.__mro__:
            if one not in self._classes and not is_trusted_module(one.__module__):
                self._classes[one] = {name: (value, self._copy(value)) for name, value in list(vars(one).items())}

    def _copy(self, value: Any) -> Copy:
        if type(value) is functools._lru_cache_wrapper:
            self._cached[id(value)] = self._described(value)
            return None
        return copied(value)

    def _described(self, value: Any) -> Json | UnstableError:
        self._describer.again()
        try:
            return self._describer.of(value)
        except UnstableError as error:
            return error

    def cached(self, value: Any) -> Json | UnstableError | None:
        """Return the description that a function with a cache had: the export fills the cache."""
        return self._cached.get(id(value))

    def changed(self, module: str, name: str, value: Any) -> bool:
        """Say whether a global is another than it was, or not sure to be the same."""
        known = self._globals.get((module, name))
        if known is None:
            return not is_trusted_module(module) and value != ["absent"] and copied(value) is not None
        return known[0] is not (_GONE if value == ["absent"] else value) or not unchanged(known[1])

    def changed_in(self, cls: type) -> str | None:
        """Return a class's own attribute that is another than it was, or not sure to be the same."""
        before = self._classes.get(cls)
        for name, value in vars(cls).items():
            if name[:2] == "__":
                continue
            known = before.get(name) if before is not None else (value, (value, None) if copied(value) else None)
            if known is None or known[0] is not value or not unchanged(known[1]):
                return f"{cls.__qualname__}.{name}"
        return None


def copied(value: Any, deep: int = 0) -> Copy:
    """Return a value with what it holds, as far as it could hold other things later; None where it could not."""
    kind = type(value)
    if kind in _CONTAINERS:
        if deep >= _DEEP or len(value) > _LARGE:
            return value, len(value)
        inside = value.items() if kind is dict else enumerate(value)
        return value, [(key, one, copied(one, deep + 1)) for key, one in inside]
    if kind is tuple:
        found = [copied(one, deep + 1) for one in value] if deep < _DEEP else []
        return (value, found) if any(found) else None
    if kind is FunctionType or isinstance(value, (type, ModuleType)) or is_trusted_module(kind.__module__):
        return None
    space = getattr(value, "__dict__", None)
    base = [*dict.items(value)] if isinstance(value, dict) else list(value) if isinstance(value, (list, set)) else []
    return value, (copied(space, deep + 1), [(one, one) for one in base])


def unchanged(copy: Copy) -> bool:
    """Say whether what was copied holds the same things now."""
    return copy is None or (copied(copy[0]) is not None and _same(copy, copied(copy[0])))


def _same(one: Any, other: Any) -> bool:
    """Compare copies: containers by what they hold, all else by identity."""
    if type(one) in {tuple, list} and type(one) is type(other):
        return len(one) == len(other) and all(map(_same, one, other))
    return one is other or (type(one) is int and type(other) is int and one == other)
