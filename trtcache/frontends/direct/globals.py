"""Globals that code reads: their descriptions, by module and name, and the attributes of modules."""

from __future__ import annotations

import builtins
import decimal
import json
import marshal
import sys
from contextlib import nullcontext, suppress
from types import BuiltinFunctionType, ModuleType, NoneType
from typing import TYPE_CHECKING, Any

from trtcache.digests import file_bytes, hash_bytes
from trtcache.frontends.direct.classes import HEAP, PLAIN
from trtcache.frontends.direct.code import ALL, ALL_IN, STATE_OF_LOGGERS, identifiers
from trtcache.frontends.direct.errors import UnstableError
from trtcache.frontends.direct.ownership import is_impure, is_installed, is_user_module, is_versioned_module
from trtcache.frontends.direct.patches import (
    TORCH_OPERATORS,
    cache_items,
    replaced_operators,
    value_of_builtins,
)
from trtcache.frontends.direct.surroundings import CONFIGURATION

if TYPE_CHECKING:
    import logging
    from collections.abc import Container, Iterable, Iterator, Mapping

    from trtcache.digests import Json
    from trtcache.frontends.direct.walk import Walk

MODULE_ATTRIBUTES = frozenset({"__builtins__", "__file__", "__spec__", "__loader__", "__path__", "__cached__"})
CHANGING_IN_SYS = frozenset({"modules", "path", "path_importer_cache", "meta_path", "stdout", "stderr", "stdin"})
_REGISTRIES = frozenset({("transformers.utils.generic", "_registered_model_output_types")})
"""Sets of the classes that a library has registered as pytree nodes; the registrations themselves are described."""

_ANSWERS = "__getattr__"
"""The name of the function that a module asks for an attribute which it does not have."""

_NUMBERS = frozenset({int, bool, float, complex, decimal.Decimal})
"""Numbers of these classes, and ``Fraction``, have equal hashes if they are equal."""

_MAX_FORGOTTEN = 20_000
"""How many objects the attributes of modules may have, each described by itself; models of public libraries: 2,000."""

_GIVES_ORDER = frozenset({"vars", "__dict__", "globals", "locals"})
"""Names that give access to the attributes of a module in order."""


def digest_of(part: Json) -> str:
    """Return the digest of a description; ``marshal`` version 2 has no references, so equal ones have equal bytes."""
    try:
        return hash_bytes(marshal.dumps(part, 2)).hex()
    except ValueError:  # a text of a class that is derived from str
        return hash_bytes(json.dumps(part).encode()).hex()


def _with_parents(logger: logging.Logger | None) -> Iterator[logging.Logger]:
    while logger is not None:
        yield logger
        logger = logger.parent


def _logger_state(logger: logging.Logger) -> Json:
    state = [(name, one) for name, one in vars(logger).items() if type(one) in PLAIN]
    return [*map(list, sorted(state)), *(type(one).__qualname__ for one in logger.handlers)]


class Globals:
    """The globals that code reads, described in order by a walk that has described the model before.

    Attributes:
        walk: the walk.
        reads: modules and names that were described.
        names: names that code looks up.
        written: descriptions by module and name.
        versioned: names that code of torch, NumPy and Python looks up in its modules, by module.
        read_by_model: modules of torch, NumPy and Python that the model's code reads.
        before: identities of the keys of each ``lru_cache`` function, and its misses, when it was first described.
        composed: modules and names that only code of libraries can find, by names that it puts together.
        dropped: what has no description in modules of libraries, and matters if code can put together its name.
    """

    def __init__(self, walk: Walk) -> None:
        """Continue a walk that has described the model."""
        self.walk = walk
        self.reads: dict[tuple[str, str], None] = {}
        self.names: set[str] = set()
        self.written: dict[str, dict[str, Json]] = {}
        self.versioned: dict[str, set[str]] = {}
        self.read_by_model: dict[str, None] = {}
        self.before: dict[int, tuple[set[int], int]] = {}
        self.dropped: dict[str, dict[str, UnstableError]] = {}
        self.composed: set[tuple[str, str]] = set()
        self._note_caches()

    def read(self, module: str, name: str, *, is_tolerant: bool = False, is_composed: bool = False) -> None:
        """Describe a global.

        Args:
            module: the name of its module.
            name: its name there.
            is_tolerant: whether an object without a description is written by its type alone.
            is_composed: whether only code of libraries can find it, by a name that it puts together: then it is
                described, and nothing is refused for what it could do.

        Raises:
            UnstableError: it cannot be described.
        """
        if (module, name) in self.reads or (module, name) in _REGISTRIES:
            return
        space = vars(sys.modules[module])
        value = space.get(name)
        if name not in space:  # torch.export replaces some builtins meanwhile; other replacements are in the key
            known = vars(builtins).get(name)
            if type(known) is BuiltinFunctionType and is_impure(known):
                raise UnstableError(f"{name}, a function that depends on the process or the machine").below(
                    f"global {name}"
                )
        if is_versioned_module(module):  # attributes that others set there are described separately
            if isinstance(value, ModuleType):
                label = str(vars(value).get("__name__"))
                if sys.modules.get(label) is value:
                    self.walk.visited_modules.setdefault(label, value)
                else:  # as torch.ops.aten: a check does not read it, so it takes no number of this walk
                    self._visit_modules(value)
            return
        self.reads[module, name] = None
        if is_composed:
            self.composed.add((module, name))
        unstable = dict(self.walk.unstable)
        try:
            with self.walk.tolerant(is_tolerant=is_tolerant), self.walk.isolate() if is_composed else nullcontext():
                said = (
                    self.walk.value(value) if name in space else ["absent", name, *value_of_builtins(name, self.walk)]
                )
                self.written.setdefault(module, {})[name] = said
        except UnstableError as error:
            raise error.below(f"global {name} of {module}") from None
        if is_tolerant and is_installed(module):
            self.dropped.setdefault(module, {}).update(self.walk.unstable)
            self.walk.unstable = unstable

    def values(self) -> list[object]:
        """Return the values of the globals that were described, without those under composed names of libraries."""
        reads = [read for read in self.reads if read[0] in sys.modules and read not in self.composed]
        return [vars(sys.modules[module]).get(name) for module, name in reads]

    def _visit_modules(self, value: Any) -> None:
        """Visit the modules that an object leads to, without the object itself."""
        with self.walk.isolate():
            self.walk.value(value)
            found = {**self.walk.visited_modules}
        self.walk.visited_modules.update(found)

    def note(self, module: str | None, own: Iterable[str], names: set[str]) -> None:
        """Describe the values that code is about to read: globals by instruction, attributes of modules by name."""
        if module is not None:
            for name in sorted(own):
                self.read(module, name)
        self.names |= names
        self._look_in_modules(names, is_last=False)
        self._note_caches()

    def finish(self, imports: Iterable[str]) -> None:  # noqa: C901  # one case for each place of a value
        """Describe attributes of modules under all names in code, and tolerantly under all names in strings."""
        for label in imports:
            if label in sys.modules:
                described = self.walk.value(sys.modules[label])
                if not isinstance(sys.modules[label], ModuleType):  # an object that a module has put in its place
                    self.written.setdefault(label, {})["object in place of the module"] = described
        if self.walk.has_look_up:
            self.names.add(ALL)
        self._note_caches()
        for cached in list(self.walk.caches):  # a function that imports lazily keeps a module in its cache
            for key, result in cache_items(cached):
                if id(key) in self.before[id(cached)][0]:
                    with suppress(UnstableError):  # ``caches`` raises it
                        self._visit_modules(result)
        self._look_in_modules(self.names | identifiers(self.walk.texts), is_last=True)
        if composing := {name.removeprefix(ALL_IN) for name in self.names if name.startswith(ALL_IN)}:
            self._describe_all_attributes(composing)
            self._describe_own_modules(composing)
        for label in self._modules_of_user():
            self.walk.unstable = self.dropped.get(label, {}) | self.walk.unstable
        if ALL in self.names or self.names & STATE_OF_LOGGERS:
            found = {one.name: one for logger in self.walk.loggers.values() for one in _with_parents(logger)}
            self.written["loggers"] = {name: _logger_state(one) for name, one in sorted(found.items())}
        if operators := replaced_operators(self.names | (self.walk.texts & TORCH_OPERATORS)):
            self.written["operators"] = {name: self.walk.value(one) for name, one in operators}
        for label, module in list(self.walk.visited_modules.items()):
            if (kind := type(module)) is not ModuleType and not is_versioned_module(kind.__module__):
                self.written.setdefault(label, {})["class of the module"] = self.walk.value(kind)
        for label, module in list(self.walk.visited_modules.items()):  # hasattr tells whether a submodule is loaded
            if is_user_module(label):
                named = self.names & vars(module).keys()
                loaded = [name for name in named if vars(module)[name] is sys.modules.get(f"{label}.{name}")]
                self.written.setdefault(label, {})["submodules"] = [*sorted(loaded)]
        if self.names & _GIVES_ORDER:
            for label, module in list(self.walk.visited_modules.items()):
                if is_user_module(label):
                    self.written.setdefault(label, {})["order of attributes"] = list(vars(module))
        self._note_caches()

    def _describe_all_attributes(self, labels: set[str]) -> None:
        """Describe all other attributes of these modules and of those that were visited, with their submodules.

        A library can put together the names of attributes of modules that it is passed, or that it finds in a table.
        Its own other modules are left to ``_describe_own_modules``.
        """
        known = self.walk.visited_modules
        packages = {label.partition(".")[0] for label in labels}
        reached = labels.union(label for label in known if label.partition(".")[0] not in packages)
        done: set[str] = set()
        while pending := sorted((reached & sys.modules.keys()).union(filter(is_user_module, known)) - done):
            done.update(pending)
            for label in pending:
                if is_versioned_module(label):
                    continue
                for name, value in sorted(vars(sys.modules[label]).items()):
                    if name in MODULE_ATTRIBUTES or (label, name) in self.reads:
                        continue
                    if not isinstance(value, ModuleType):
                        self.read(label, name, is_tolerant=True, is_composed=True)
                        if self.walk.forgotten > _MAX_FORGOTTEN:  # each is described by itself, whatever they share
                            what = f"a library puts names together, and modules have more than {_MAX_FORGOTTEN} objects"
                            raise UnstableError(what).below(f"global {name} of {label}")
                    elif sys.modules.get(other := str(vars(value).get("__name__"))) is value:
                        self.written.setdefault(label, {}).setdefault(name, ["module", other])
                        known.setdefault(other, value)
                        if other.partition(".")[0] == label.partition(".")[0]:
                            reached.add(other)  # names in it can be put together, too

    def _describe_own_modules(self, labels: set[str]) -> None:
        """Describe the files and numbers of the other visited modules of libraries that put together names.

        Other values there differ in each process: they have names of sessions and threads.
        """
        packages = {label.partition(".")[0] for label in labels}
        pending = dict(self.walk.visited_modules)
        done: set[str] = set()
        while pending:
            label, module = pending.popitem()
            if label in done or label.partition(".")[0] not in packages or is_versioned_module(label):
                continue
            done.add(label)
            if label not in labels:
                self.written.setdefault(label, {})["file and numbers"] = _file_and_numbers(module)
            for name, value in vars(module).items():
                if isinstance(value, ModuleType) and sys.modules.get(f"{label}.{name}") is value:
                    pending[f"{label}.{name}"] = value

    def _modules_of_user(self) -> set[str]:
        """Return modules that are globals of the user's own modules and were read, and submodules that code names."""
        reads = [vars(sys.modules[module]).get(name) for module, name in self.reads if is_user_module(module)]
        found = {str(vars(one).get("__name__")) for one in reads if isinstance(one, ModuleType)}
        named: set[str] = set()
        for label in self.dropped:
            parts = label.split(".")
            ways = ((".".join(parts[:count]), parts[count:]) for count in range(1, len(parts)))
            if any(package in found and self.names.issuperset(names) for package, names in ways):
                named.add(label)
        return found | named

    def _look_in_modules(self, names: set[str], *, is_last: bool) -> None:
        """Describe attributes of the visited modules, in the order of the modules' names.

        A recording and a check visit the same modules in another order: a recording meets a submodule when code that
        names it runs, a check when it looks for all names. Where two modules have one object, the first has its
        description.
        """
        found: dict[str, list[str]] = {}
        done: set[str] = set()
        while True:
            while new := [label for label in self.walk.visited_modules if label not in found]:
                for label in new:
                    found[label] = self._find_attributes(label, names, is_last=is_last)
            if not (pending := sorted(found.keys() - done)):
                return
            done.update(pending)
            for label in pending:
                for name in found[label]:
                    is_named = name in self.names or (name == _ANSWERS and not is_installed(label))
                    self.read(label, name, is_tolerant=not is_named)

    def _find_attributes(self, label: str, names: set[str], *, is_last: bool) -> list[str]:
        """Return the attributes of a module that have one of some names, and visit its submodules among them."""
        space, is_versioned = attributes_of(self.walk.visited_modules[label]), is_versioned_module(label)
        if is_versioned:
            self.read_by_model[label] = None
        if is_last and is_versioned:
            return []
        found: list[str] = []
        is_all = is_last and ALL in self.names  # names can be composed at run time: then all attributes count
        for name in list(space) if is_all else sorted(names & space.keys()):
            if name in MODULE_ATTRIBUTES or (label == "sys" and name in CHANGING_IN_SYS):
                continue
            if isinstance(space[name], ModuleType) and sys.modules.get(f"{label}.{name}") is space[name]:
                self.walk.visited_modules.setdefault(f"{label}.{name}", space[name])  # the import system put it there
            else:
                found.append(name)
        return found if is_versioned or _ANSWERS in found else [*found, _ANSWERS]

    @property
    def digest(self) -> str:
        """The digest of all descriptions."""
        return digest_of(
            {module: [*map(list, sorted(found.items()))] for module, found in sorted(self.written.items())}
        )

    def _note_caches(self) -> None:
        for cached in self.walk.caches:
            if id(cached) not in self.before:
                self.before[id(cached)] = {id(key) for key, _ in cache_items(cached)}, cached.cache_info().misses

    def _has_all(self, cached: Any, ran: Container[int]) -> bool:
        """Return whether a cache has all keys still that were looked up since it was described first.

        Others were left out as it is full, or removed after the export, with fake tensors as their results.
        """
        keys, misses = self.before[id(cached)]
        info, left = cached.cache_info(), {id(key) for key, _ in cache_items(cached)}
        added = info.misses - misses
        code = getattr(cached.__wrapped__, "__code__", None)
        is_counted = added > 0 or (code is not None and id(code) not in ran)  # removing all sets the counts to 0
        return is_counted and keys <= left and added == info.currsize - len(keys)

    def _digest_isolated(self, value: Any) -> str:
        with self.walk.isolate():
            return digest_of(self.walk.value(value))

    def _digest_of_equal(self, key: Any) -> str:
        """Return a digest that keys have in common if they are equal; empty if a class of one's own compares them."""
        try:
            return digest_of(self._equal_form(key))
        except UnstableError:
            return ""

    def _equal_form(self, key: Any) -> Json:
        kind = type(key)
        compares: Any = kind.__eq__
        fraction = getattr(sys.modules.get("fractions"), "Fraction", None)  # a hit does not import it
        is_derived = any(issubclass(kind, one) and compares is one.__eq__ for one in (int, float, complex))
        if kind in _NUMBERS or kind is fraction or is_derived:
            return "nan" if key != key else ["number", hash(key)]  # NaN alone is not equal to itself
        if isinstance(key, str) and compares is str.__eq__:
            return ["str", str.__str__(key)]
        if isinstance(key, tuple) and compares is tuple.__eq__:
            return [*map(self._equal_form, tuple.__iter__(key))]
        if isinstance(key, frozenset) and compares is frozenset.__eq__:
            return [*sorted(digest_of(self._equal_form(one)) for one in frozenset.__iter__(key))]
        if kind.__flags__ & HEAP and compares is not object.__eq__:
            raise UnstableError("a key with a comparison of its own")
        return ["other", self._digest_isolated(key)]

    def caches(self, ran: Container[int] = ()) -> list[list[Any]]:
        """Describe the contents of the ``lru_cache`` functions that were described.

        Args:
            ran: code that ran, by identity.

        Raises:
            UnstableError: a key or a result cannot be described.
        """
        written: list[list[Any]] = []
        for cached in self.walk.caches:
            before, _ = self.before[id(cached)]
            found: dict[str, list[Any]] = {}
            for key, result in cache_items(cached):
                try:
                    described = self._digest_isolated(key), self._digest_isolated(result)
                except UnstableError as error:
                    raise error.below(f"cache of {cached.__qualname__}") from None
                found[f"{described[0]}:{self._digest_of_equal(key)}"] = [described[1], id(key) in before]
            written.append([found, self._has_all(cached, ran)])
        return written


def _file_and_numbers(module: ModuleType) -> Json:
    """Describe a module by the digest of its file, and by its attributes that are numbers or tables of numbers."""
    space = vars(module)
    described = [(name, _numbers_in(value)) for name, value in sorted(space.items()) if name not in MODULE_ATTRIBUTES]
    numbers: list[Json] = [[name, found] for name, found in described if found]
    try:
        return [hash_bytes(file_bytes(str(space.get("__file__")))).hex(), *numbers]
    except OSError:  # a namespace package
        return ["", *numbers]


def _numbers_in(value: Any) -> str:
    """Return the text of a number, a truth value, None, or a tuple, list or dictionary of these; empty for others."""
    kind = type(value)
    if kind in {bool, int, float, complex, NoneType}:
        return repr(value)
    if kind is dict and all(type(name) in PLAIN for name in value):
        found = [_numbers_in(one) for one in value.values()]
        return f"{{{list(value)}: {', '.join(found)}}}" if all(found) else ""
    if kind in {tuple, list}:
        found = [_numbers_in(one) for one in value]
        return f"{kind.__name__}({', '.join(found)})" if all(found) else ""
    return ""


def attributes_of(module: ModuleType) -> Mapping[str, Any]:
    """Return the attributes of a module.

    Those of torch's ``PropModule`` are in the module that it wraps. The defaults of a configuration's options are in a
    table; the direct key has the options that are set.

    Raises:
        UnstableError: it is versioned, and other code has set its class, which can answer for its attributes.
    """
    space, kind = vars(module), type(module)
    if kind is ModuleType:
        return space
    if is_versioned_module(space.get("__name__")) and not is_versioned_module(kind.__module__):
        raise UnstableError(f"module {space['__name__']} of another class ({kind.__qualname__})")
    if isinstance(wrapped := space.get("m"), ModuleType):
        return {**vars(wrapped), **space}
    if type(module).__name__ == CONFIGURATION:
        return {**space, **{name: option.default for name, option in space["_config"].items()}}
    return space
