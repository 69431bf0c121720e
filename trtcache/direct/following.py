"""Finds out, after an export, all that it depended on beside what the direct key has: the contents of a manifest."""

from __future__ import annotations

import builtins
import sys
from dataclasses import dataclass
from types import BuiltinFunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch

from trtcache.direct.attributes import UnstableError
from trtcache.direct.classes import SIMPLE, brief, class_parts, functions_in, looked_at, own_bases
from trtcache.direct.codes import imported, reads, within
from trtcache.direct.manifest import OfClass, OfModule
from trtcache.direct.orders import goes_through, names_of_sets
from trtcache.direct.origin import found, is_trusted_module, module_of
from trtcache.direct.tree import digest_of
from trtcache.direct.writers import OF_TORCH

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import CodeType

    from trtcache.digests import Json
    from trtcache.direct.before import Before
    from trtcache.direct.recording import Recording
    from trtcache.direct.tree import Tree

ABSENT: list[Any] = ["absent"]


@dataclass(frozen=True, slots=True)
class Followed:
    """What an export depended on. ``details`` are the descriptions behind the digests."""

    classes: tuple[OfClass, ...]
    modules: Mapping[str, OfModule]
    files: frozenset[str]
    details: Mapping[str, Any]


class Following:
    """Follows the code that ran to all that it read."""

    def __init__(self, seen: Recording, tree: Tree, before: Before) -> None:
        """Keep what was seen."""
        self._seen, self._tree, self._before = seen, tree, before
        self._describer = tree.another()
        self._names = {name for code, _ in seen.ran.values() for name in reads(code).attributes}
        read = [reads(code) for code, _ in seen.ran.values()]
        self._texts = {name for one in read for name in one.texts}
        self._by_values = any(one.by_values for one in read)
        self._places: dict[str, dict[str, Json]] = {}
        self._files: set[str] = set()

    def followed(self) -> Followed:
        """Return all that the export depended on.

        Raises:
            UnstableError: something of it has no stable value, or cannot be found again.
        """
        for code, space in self._seen.ran.values():
            if unseen := reads(code).unseen:
                raise UnstableError(f"it looks at {min(unseen)}").below(code.co_qualname)
            self._read(code, space)
        classes, described = self._followed_classes()
        self._cover()
        self._refuse_orders({"model": self._tree.parts["model"], "modules": self._places, "classes": described})
        self._files |= {one.__module__ for cls in self._tree.classes for one in cls.__mro__[:-1]}
        modules = {name: OfModule(tuple(one), digest_of(list(one.values())).hex) for name, one in self._places.items()}
        files = frozenset(name for name in self._files if not is_trusted_module(name) and not is_namespace(name))
        details = {"modules": self._places, "classes": described}
        return Followed(classes, modules, files, details)

    def _followed_classes(self) -> tuple[tuple[OfClass, ...], dict[str, Json]]:
        """Follow classes and the modules that are values of anything, until there are no more."""
        done: set[str] = set()
        while True:
            classes, described = self._classes()
            spaces = {**self._tree.describer.spaces, **self._describer.spaces}
            more = {name for name in spaces if name not in done and not is_trusted_module(name)}
            if not more:
                return classes, described
            for name in sorted(more):
                self._escaped(spaces[name], self._names)
            done |= more

    def _read(self, code: CodeType, space: dict[str, Any]) -> None:
        module = module_of(space)
        if module is None:
            if str(space.get("__name__")) in sys.modules or "__file__" in space:
                raise UnstableError("globals of no module").below(code.co_qualname)
            return  # a function's own globals are written with it
        self._files.add(module.__name__)
        read = reads(code)
        for chain in sorted(read.chains):
            self._chain(module, chain, is_handed=chain in read.handed)
        for name, level, taken in sorted(read.imports):
            self._import(imported(name, level, space), taken, read.attributes)
        for name in read.sets:
            self._place(module, name)

    def _chain(self, module: ModuleType, chain: tuple[str, ...], *, is_handed: bool) -> None:
        value: Any = module
        for step in chain:
            if not isinstance(value, ModuleType):
                return
            if step == "__dict__":
                break
            if isinstance(value, torch._ops._OpNamespace):
                self._check_operators(value)
                return
            value = self._place(value, step)
        if isinstance(value, ModuleType):
            self._escaped(value, self._names)
        elif is_handed and type(value) is BuiltinFunctionType:
            self._describer.of(value)

    def _check_operators(self, space: torch._ops._OpNamespace) -> None:
        """Refuse operators that are not torch's own: what is run for them can be Python's, and no code names it."""
        if space.name not in OF_TORCH:
            raise UnstableError("an operator that is not torch's own").below(f"torch.ops.{space.name}")

    def _escaped(self, module: ModuleType, names: frozenset[str] | set[str]) -> None:
        """Note all that could be read of a module that was handed on."""
        own = not is_trusted_module(module.__name__)
        if own:
            self._files.add(module.__name__)
        wanted = names & set(vars(module))
        if own and self._by_values:
            wanted |= {name for name in vars(module) if name[:2] != "__"}
        if own:
            wanted |= self._texts - set(vars(builtins))
        for name in sorted(wanted):
            self._place(module, name)

    def _import(self, name: str, taken: tuple[str, ...], attributes: frozenset[str]) -> None:
        if (module := sys.modules.get(name)) is None:
            return  # the statement did not run: an import that fails is recorded
        self._files.add(name)
        for one in taken:
            if isinstance(inner := self._place(module, one), ModuleType):
                self._escaped(inner, attributes)
        if not taken:
            steps = name.split(".")
            for count in range(1, len(steps) + 1):
                self._escaped(sys.modules[".".join(steps[:count])], attributes)

    def _place(self, module: ModuleType, name: str) -> Any:
        """Note what a module has under a name, and return it."""
        label = module.__name__
        if sys.modules.get(label) is not module:
            raise UnstableError("a module that cannot be found by its name").below(label)
        places = self._places.setdefault(label, {})
        value = read(module, name)
        if value is ABSENT and module is not builtins and hasattr(builtins, name):
            places.setdefault(name, ABSENT)
            return self._place(builtins, name)
        if name not in places:
            places[name] = self._written(label, name, value)
        return value

    def _written(self, module: str, name: str, value: Any) -> Json:
        if self._before.changed(module, name, value):
            raise UnstableError("the export changes it, or nobody looked before").below(f"global {name} of {module}")
        if value is ABSENT:
            return list(ABSENT)
        if (named := in_brief(value)) is not None:
            return named
        written = self._before.cached(value)
        if isinstance(written, UnstableError):
            raise UnstableError(written.what).below(f"global {name} of {module}")
        self._describer.again()
        try:
            now: Json = self._describer.of(value)
        except UnstableError as error:
            raise error.below(f"global {name} of {module}") from None
        return now if written is None else written

    def _classes(self) -> tuple[tuple[OfClass, ...], dict[str, Json]]:
        numbers = {cls: number for number, cls in enumerate(self._tree.classes)}
        done: dict[type, OfClass] = {}
        described: dict[str, Json] = {}
        waiting = [*self._tree.classes, *self._describer.classes]
        in_full = set(self._tree.classes)
        while waiting:
            cls = waiting.pop(0)
            if cls in done and done[cls].in_full == (cls in in_full):
                continue
            if cls in in_full or self._matters(cls):
                in_full |= set(own_bases(cls))
            done[cls], described[f"{cls.__module__}.{cls.__qualname__}"] = self._class(cls, numbers, cls in in_full)
            waiting += [one for one in own_bases(cls) if one not in done or (one in in_full and not done[one].in_full)]
            waiting += [one for one in self._describer.classes if one not in done]
        return tuple(done.values()), described

    def _class(self, cls: type, numbers: Mapping[type, int], in_full: bool) -> tuple[OfClass, Json]:
        self._files.add(cls.__module__)
        number = numbers.get(cls)
        if number is None and found(cls.__module__, cls.__qualname__) is not cls:
            raise UnstableError("a class that cannot be found by its name").below(cls.__qualname__)
        place = (number, cls.__module__, cls.__qualname__, in_full)
        if not in_full:
            parts = brief(cls, self._describer)
            return OfClass(*place, (), (), digest_of(parts).hex), parts
        if changed := self._before.changed_in(cls):
            raise UnstableError("the export changes it, or nobody looked before").below(changed)
        looked = looked_at(cls, self._seen.ran.keys(), self._names, self._describer)
        parts = class_parts(cls, looked, self._describer)
        return OfClass(*place, tuple(sorted(looked.ran)), tuple(sorted(looked.unread)), digest_of(parts).hex), parts

    def _matters(self, cls: type) -> bool:
        """Say whether what ran is a method of a class itself, or could have read a value of it."""
        ran = self._seen.ran.keys()
        for name, value in vars(cls).items():
            functions = functions_in(value)
            if any(id(code) in ran for one in functions for code in within(one.__code__)):
                return True
            named = name in self._names or self._by_values
            if not functions and name[:2] != "__" and named and type(value) not in SIMPLE:
                return True
        return False

    def _cover(self) -> None:
        """Make sure that all code that ran is written somewhere.

        Raises:
            UnstableError: some of it cannot be found again.
        """
        covered = {id(code) for one in self._describer.functions for code in within(one.__code__)}
        covered |= {id(code) for one in self._tree.describer.functions for code in within(one.__code__)}
        for code, space in self._seen.ran.values():
            if code.co_name == "<module>":
                raise UnstableError("the export imports it").below(f"module {space.get('__name__')}")
            if id(code) not in covered:
                label = f"{space.get('__name__')}.{code.co_qualname}"
                raise UnstableError("code that ran, and that nothing leads to which is compared").below(label)
        self._refuse_changing()

    def _refuse_orders(self, described: Mapping[str, Any]) -> None:
        """Refuse code that could go through a set of which each process has another order."""
        names = set(names_of_sets(described))
        for code, _ in self._seen.ran.values():
            if goes_through(code, names):
                raise UnstableError("it could go through a set, in an order of this process").below(code.co_qualname)

    def _refuse_changing(self) -> None:
        """Refuse closures and defaults that an export could have changed before they were written."""
        for function in self._describer.functions:
            if not any(id(code) in self._seen.ran for code in within(function.__code__)):
                continue
            cells = [_content(cell) for cell in function.__closure__ or ()]
            for value in (*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
                if type(value) in {list, dict, set, bytearray} and value:
                    raise UnstableError(f"a {type(value).__name__} in its closure or defaults").below(
                        function.__qualname__
                    )
            ran = [code for code in within(function.__code__) if id(code) in self._seen.ran]
            if {name for code in ran for name in reads(code).cells} & set(function.__code__.co_freevars):
                raise UnstableError("it sets a variable of its closure").below(function.__qualname__)


def is_namespace(name: str) -> bool:
    """Say whether a module is a package without a file: it has no code, but only those that are in it."""
    module = sys.modules.get(name)
    return getattr(module, "__file__", None) is None and hasattr(module, "__path__")


def read(module: ModuleType, name: str) -> Any:
    """Return what a module has under a name, also if it is of a kind of its own, as torch's configurations are."""
    value = vars(module).get(name, ABSENT)
    return getattr(module, name, ABSENT) if value is ABSENT and type(module) is not ModuleType else value


def in_brief(value: Any) -> Json:
    """Describe a function in C by its name where code names it: what it asks is seen if it is called."""
    if type(value) is not BuiltinFunctionType or not (value.__self__ is None or isinstance(value.__self__, ModuleType)):
        return None
    return ["builtin", str(value.__module__), value.__qualname__]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None
