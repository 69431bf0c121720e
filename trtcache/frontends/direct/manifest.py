"""Manifests: the dependencies of an export beside the direct key, and the resulting exported program.

An entry of kind ``direct`` has the manifests of one direct key, newest first: the exported program of a model can
change with the state of globals, and change back.
"""

from __future__ import annotations

import builtins
import functools
import json
import logging
import marshal
import os
import sys
from contextlib import suppress
from dataclasses import asdict, field
from importlib import import_module
from operator import itemgetter
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import Digest, hash_bytes
from trtcache.frontends.direct.classes import CONTAINERS, EXEMPT_NAMES, PLAIN, UNORDERED_SETS
from trtcache.frontends.direct.code import ALL, CODE_OF, IDENTITY, STATE_OF_LOGGERS, UNSEEN, identifiers, within
from trtcache.frontends.direct.errors import UnstableError
from trtcache.frontends.direct.ownership import is_impure, is_installed, is_user_module, is_versioned_module, lookup
from trtcache.frontends.direct.patches import (
    NAMESPACES,
    TORCH_OPERATORS,
    cache_items,
    describe_changes,
    refuse_unseen_state,
    replaced_operators,
)
from trtcache.frontends.direct.surroundings import CONFIGURATION, describe_output_handlers
from trtcache.keys.program_digest import devices

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    from torch.export import ExportedProgram

    from trtcache.digests import Json
    from trtcache.frontends.direct.recording import Recording
    from trtcache.frontends.direct.walk import Walk
    from trtcache.frontends.source import Specs

log = logging.getLogger(__name__)

KIND = "direct"
MEMBER, DETAILS = "direct.json", "details.json"
FORMAT = 12
MAX_MANIFESTS = 8

_PLAIN_REGIONS = frozenset({"wrap_with_set_grad_enabled", "wrap_with_autocast"})
_MODULE_ATTRIBUTES = frozenset({"__builtins__", "__file__", "__spec__", "__loader__", "__path__", "__cached__"})
_CHANGING_IN_SYS = frozenset({"modules", "path", "path_importer_cache", "meta_path", "stdout", "stderr", "stdin"})
_REGISTRIES = frozenset({("transformers.utils.generic", "_registered_model_output_types")})
"""Sets of the classes that a library has registered as pytree nodes; the registrations themselves are described."""

_GIVES_ORDER = frozenset({"vars", "__dict__", "globals", "locals"})
"""Names that give access to the attributes of a module in order."""

_ = isinstance(None, torch.Generator)
# At the first of these checks torch sets a global of ``torch._opaque_base``. Its value is in manifests, so it has to be
# the same before the first export of a process as after it.

_NOT_COMPARED = (
    *("trtcache.", "logging", "warnings", "linecache", "traceback", "tokenize"),
    # torch's arithmetic of symbolic sizes: contexts and counters that change while it runs, and classes of sympy
    *("torch._guards", "torch.fx.experimental.sym", "torch.utils._sympy"),
)


@frozen_dataclass
class Manifest:
    """The dependencies of an export, and the exported program.

    Attributes:
        program: the digest of the exported program, which has a key alias, and its size in bytes.
        device: the device that it runs on.
        in_spec, out_spec: the pytree specs of arguments and output.
        reads: modules and names of the globals that code read, in the order of first use.
        imports: modules that the model imports when it is called.
        names: names that code looks up: attributes of these names count in modules that are used as objects.
        globals: the digest of the descriptions of all those globals.
        versioned: for each module of torch and Python whose code ran, the names that such code looks up there, by the
            class that they are looked up in (the empty name for the module), and the digest of their values.
        read_by_model: for each module of torch and Python that the model's code reads, the digest of the values of
            ``names`` there.
        caches: for each ``lru_cache`` function, ``[{key: [result, was_there]}, is_complete]``: digests of its keys and
            results, whether they were there before the export, and whether the cache still has every key that the
            export looked up; only if it has not, other keys are a difference.
        environment: environment variables that the model read.
        hidden: modules that the model imports in whose place their package has a function or a class, with its name.
        outputs: the loggers that it calls, and the digest of the code that handles what it prints, warns and logs;
            empty if it does not.
        took_s: seconds that exporting took.
        why: the reason of the miss before.
        details: the descriptions behind ``globals``, for explanations; they are not compared.
    """

    program: list[Any]
    device: str
    in_spec: str
    out_spec: str
    reads: list[list[str]]
    imports: list[str]
    names: list[str]
    globals: str
    versioned: dict[str, list[Any]]
    read_by_model: dict[str, str]
    caches: list[list[Any]]
    environment: dict[str, str | None]
    hidden: dict[str, str]
    outputs: list[Any]
    took_s: float = field(default=0.0, compare=False)
    why: str = field(default="", compare=False)
    details: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def document(self) -> dict[str, Any]:
        """Return this as JSON, without details."""
        return {name: value for name, value in asdict(self).items() if name != "details"}

    @property
    def digest(self) -> Digest:
        """The digest of the exported program."""
        return Digest(str(self.program[0]), int(self.program[1]))

    def torch_device(self) -> torch.device:
        """Return the device of the program.

        Raises:
            ValueError: torch does not know it.
        """
        try:
            return torch.device(self.device)
        except (RuntimeError, TypeError) as error:
            raise ValueError(f"its device is unknown here: {error}") from error

    def specs(self) -> Specs:
        """Return the pytree specs of arguments and output.

        Raises:
            ValueError: a type among them is not registered with torch in this process.
        """
        try:
            return pytree.treespec_loads(self.in_spec), pytree.treespec_loads(self.out_spec)
        except Exception as error:  # they can contain anything
            log.debug("%s", self.in_spec, exc_info=True)
            raise ValueError(f"its pytree specs cannot be loaded here: {error}") from error


class DifferenceError(Exception):
    """A dependency of an export has changed.

    Attributes:
        what: the dependency, in words.
        now: the current globals, if they differ.
    """

    def __init__(self, what: str, now: Json = None) -> None:
        super().__init__(what)
        self.what, self.now = what, now


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
        self._note_caches()

    def read(self, module: str, name: str, *, is_tolerant: bool = False) -> None:
        """Describe a global.

        Args:
            module: the name of its module.
            name: its name there.
            is_tolerant: whether an object without a description is written by its type alone.

        Raises:
            UnstableError: it cannot be described.
        """
        if (module, name) in self.reads or (module, name) in _REGISTRIES:
            return
        space = vars(sys.modules[module])
        value = space.get(name)
        if name not in space:  # torch.export replaces some builtins meanwhile; other replacements are in the key
            value, known = ["absent", name], vars(builtins).get(name)
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
        unstable = dict(self.walk.unstable)
        try:
            with self.walk.tolerant(is_tolerant=is_tolerant):
                self.written.setdefault(module, {})[name] = self.walk.value(value)
        except UnstableError as error:
            raise error.below(f"global {name} of {module}") from None
        if is_tolerant and is_installed(module):
            self.walk.unstable = unstable  # composed names are looked up in modules of own files

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
                self.walk.value(sys.modules[label])
        if self.walk.has_look_up:
            self.names.add(ALL)
        self._note_caches()
        for cached in list(self.walk.caches):  # a function that imports lazily keeps a module in its cache
            for key, result in cache_items(cached):
                if id(key) in self.before[id(cached)][0]:
                    with suppress(UnstableError):  # ``caches`` raises it
                        self._visit_modules(result)
        self._look_in_modules(self.names | identifiers(self.walk.texts), is_last=True)
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
                    self.read(label, name, is_tolerant=name not in self.names)

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
            if name in _MODULE_ATTRIBUTES or (label == "sys" and name in _CHANGING_IN_SYS):
                continue
            if isinstance(space[name], ModuleType) and sys.modules.get(f"{label}.{name}") is space[name]:
                self.walk.visited_modules.setdefault(f"{label}.{name}", space[name])  # the import system put it there
            else:
                found.append(name)
        return found

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
                found[described[0]] = [described[1], id(key) in before]
            written.append([found, self._has_all(cached, ran)])
        return written


def make_manifest(program: ExportedProgram, digest: Digest, export_s: float, seen: Recording, why: str) -> Manifest:
    """Create the manifest of an export.

    Args:
        program: the exported program.
        digest: its digest before it was lowered, which adds sizes that depend on data to its environment.
        export_s: seconds that exporting took.
        seen: the recording of the export.
        why: the reason of the miss.

    Raises:
        UnstableError: a dependency of the export cannot be described, or cannot be found again.
        ValueError: the export cannot have a manifest; the message says why.
    """
    if seen.why_not:
        raise ValueError(seen.why_not)
    recorded = seen.globals
    refuse_regions(program)
    walk = recorded.walk
    for name, tensor in program.state_dict.items():
        if walk.state.get(name) is not tensor:
            raise UnstableError("the program has another tensor for it").below(f"weight {name}")
    seen.note_methods()
    reads, imports = [[module, name] for module, name in recorded.reads], [*seen.imported]
    recorded.finish(imports)
    seen.refuse_combinations()
    seen.refuse_missing_imports()
    if walk.has_look_up:
        texts = identifiers(walk.texts)
        if unseen := texts & CODE_OF or (recorded.names | texts) & UNSEEN:
            raise ValueError(f"a function that is kept could read {min(unseen)}")
    if ALL in recorded.names and (unseen := set(_joined_names(walk.texts | recorded.names))):
        raise ValueError(f"code that puts together names could read {min(unseen)}")
    if unknown := [code for number, code in seen.ran.items() if number not in walk.codes]:
        raise UnstableError("code that no object leads to").below(unknown[0].co_qualname)
    names = recorded.names.union(*recorded.versioned.values())
    if unstable := [error for name, error in walk.unstable.items() if name in names]:
        raise unstable[0]
    own = {tensor.device for tensor in walk.state.values()} - {torch.device("cpu")}
    if len(devices(program) | own) > 1:
        raise ValueError("it runs on other devices than those of its weights")
    return Manifest(
        program=[digest.hex, digest.size_bytes],
        device=str(next(iter(own), torch.device("cpu"))),
        in_spec=_spec_text(program.call_spec.in_spec),
        out_spec=_spec_text(program.call_spec.out_spec),
        reads=reads,
        imports=imports,
        names=sorted(recorded.names),
        globals=recorded.digest,
        versioned=_versioned_of(seen, walk),
        read_by_model=_read_by_model_of(seen, walk),
        caches=recorded.caches(seen.ran),
        environment=dict(sorted(seen.environment.items())),
        hidden=_hidden_modules([*imports, *recorded.read_by_model]),
        outputs=_outputs_of(seen, walk),
        took_s=export_s,
        why=why,
        details={"globals": recorded.written},
    )


def _joined_names(texts: set[str]) -> Iterator[str]:
    """Yield names that direct mode does not compare and that are among texts, or a pair of them joined."""
    for name in UNSEEN | CODE_OF | UNORDERED_SETS | EXEMPT_NAMES | IDENTITY:
        if name in texts or any(name[:at] in texts and name[at:] in texts for at in range(1, len(name))):
            yield name


def _outputs_of(seen: Recording, walk: Walk) -> list[Any]:
    if not (seen.has_output or seen.loggers or walk.has_output):
        return []
    loggers = sorted(seen.loggers)
    return [loggers, _digest_of_outputs(loggers, walk)]


def _digest_of_outputs(loggers: list[str], walk: Walk) -> str:
    with walk.isolate():
        return digest_of(describe_output_handlers(loggers, walk))


def _versioned_of(seen: Recording, walk: Walk) -> dict[str, list[Any]]:
    """Return names that code of torch and Python looks up in its modules, with the digest of their values."""
    found: dict[str, list[Any]] = {}
    for module, names in sorted(seen.globals.versioned.items()):
        if module in sys.modules and not module.startswith(_NOT_COMPARED):
            looked_up = _by_owner(names)
            found[module] = [looked_up, _digest_of_looked_up(module, looked_up, walk)]
    return found


def _read_by_model_of(seen: Recording, walk: Walk) -> dict[str, str]:
    """Return modules of torch and Python that the model's code reads, with the digest of what it reads there."""
    read = sorted(seen.globals.read_by_model)
    return {module: _digest_of_read(module, seen.globals.names, walk) for module in read if module in sys.modules}


def _by_owner(names: Iterable[str]) -> dict[str, list[str]]:
    """Return names without the class before the last dot, sorted, by that class."""
    owners: dict[str, list[str]] = {"": []}
    for name in sorted(names):
        owner, _, last = name.rpartition(".")
        owners.setdefault(owner, []).append(last)
    return owners


def _digest_of_looked_up(module: str, looked_up: Mapping[str, list[str]], walk: Walk) -> str:
    """Return the digest of the values that code of torch and Python looks up in one of its modules."""
    with walk.isolate(), walk.tolerant():
        return digest_of([*_looked_up(module, attributes_of(sys.modules[module]), looked_up, walk)])


def _digest_of_read(module: str, names: set[str], walk: Walk) -> str:
    """Return the digest of the values that the model's code can read in a module of torch or Python."""
    with walk.isolate(), walk.tolerant():
        return digest_of(_read_by_model(module, attributes_of(sys.modules[module]), names, walk))


def _read_by_model(module: str, space: Mapping[str, Any], names: set[str], walk: Walk) -> Json:
    """Describe the attributes of a module of torch or Python under the names in the model's code."""
    rest: list[Json] = []
    if ALL in names:  # names can be composed at run time: replaced values count under any name
        others = {name: value for name, value in space.items() if name not in names}
        rest = describe_changes(others, walk, is_read=True)
        public = {name: value for name, value in others.items() if name[:1] != "_"}
        if module != "sys":
            rest += [[name, walk.value(value)] for name, value in sorted(public.items()) if type(value) in CONTAINERS]
    changing = _MODULE_ATTRIBUTES | (_CHANGING_IN_SYS if module == "sys" else frozenset())
    found = [(name, space[name]) for name in names & space.keys() if name not in changing]
    # A cache such as re._cache differs in each process; code that reads one by a chain of names is refused.
    found = [pair for pair in found if pair[0][:1] != "_" or type(pair[1]) not in CONTAINERS]
    found = [pair for pair in found if not isinstance(pair[1], ModuleType) or isinstance(pair[1], NAMESPACES)]
    for _, value in found:
        if type(value) in {FunctionType, functools._lru_cache_wrapper}:
            refuse_unseen_state(value)
    found = sorted(found, key=itemgetter(0))
    return [*([name, walk.value(value)] for name, value in found), *rest]


def _looked_up(module: str, space: Mapping[str, Any], looked_up: Mapping[str, list[str]], walk: Walk) -> Iterator[Json]:
    """Yield what other code has set under the names that code of torch and Python looks up in a module and its classes.

    The names below classes are those of methods that ran. Names that are absent count as soon as they are set.
    """
    names = looked_up[""]
    found = {name: space[name] for name in names if name in space}
    yield from describe_changes(found, walk, is_read=True)
    classes = {name for name, one in found.items() if issubclass(type(one), type) and one.__module__ == module}
    for qualname in sorted(classes.union(looked_up)):
        cls = lookup(module, qualname)
        if isinstance(cls, type) and cls.__module__ == module:
            own = vars(cls)
            more = sorted(own.keys() & {*names, *looked_up.get(qualname, ())})
            yield [qualname, *describe_changes({name: own[name] for name in more}, walk, qualname, is_read=True)]


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


def refuse_regions(program: ExportedProgram) -> None:
    """Refuse programs with operators that take functions, whose code may run where it is not recorded.

    Raises:
        ValueError: the program has one.
    """
    for module in program.graph_module.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            if isinstance(node.target, torch._ops.HigherOrderOperator) and node.target._name not in _PLAIN_REGIONS:
                raise ValueError(f"it has the operator {node.target._name}, which takes functions")


def _spec_text(spec: pytree.TreeSpec) -> str:
    try:
        return str(pytree.treespec_dumps(spec))
    except (TypeError, NotImplementedError, ValueError) as error:
        raise ValueError(f"a type among arguments or results is not registered with torch: {error}") from error


def check(manifest: Manifest, walk: Walk) -> None:  # noqa: C901  # one case for each part of a manifest
    """Check that the dependencies in a manifest are unchanged, the cheapest first.

    Args:
        manifest: the manifest.
        walk: a walk that has described the model.

    Raises:
        DifferenceError: one has changed.
    """
    for name, value in manifest.environment.items():
        if (given := os.environ.get(name)) != value:
            raise DifferenceError(f"environment variable {name}: {value!r} -> {given!r}")
    for name in manifest.imports:
        if name not in sys.modules:
            _import_module(name, walk)
    try:
        hidden = _hidden_modules([*manifest.imports, *manifest.read_by_model])
    except ValueError as error:
        raise DifferenceError(str(error)) from None
    if hidden != manifest.hidden:
        raise DifferenceError("modules that an attribute of their package hides")
    if missing := [name for name, _ in manifest.reads if name not in sys.modules]:
        raise DifferenceError(f"module {missing[0]} is not loaded")
    now = Globals(walk.fork())
    now.names = set(manifest.names)
    try:
        for module, name in manifest.reads:
            now.read(module, name)
        now.finish(manifest.imports)
        if now.digest != manifest.globals:
            raise DifferenceError("globals", {**now.written})
        for name, (looked_up, digest) in manifest.versioned.items():
            if name in sys.modules and _digest_of_looked_up(name, looked_up, now.walk) != digest:
                raise DifferenceError(f"a function or an object in module {name}")
        for name, digest in manifest.read_by_model.items():
            if name in sys.modules and _digest_of_read(name, now.names, now.walk) != digest:
                raise DifferenceError(f"a function or an object in module {name}")
        if manifest.outputs and _digest_of_outputs(manifest.outputs[0], now.walk) != manifest.outputs[1]:
            raise DifferenceError("the code that handles printed texts, warnings and records of loggers")
        _check_caches(manifest, now.caches())
    except UnstableError as error:
        raise DifferenceError(str(error)) from None


def _hidden_modules(modules: Iterable[str]) -> dict[str, str]:
    """Return those of the modules in whose place their package has a function or a class of a library, with its name.

    ``import package.module as m`` takes the attribute of the package, and the loaded module only if that is absent.

    Raises:
        ValueError: a package has another object there.
    """
    found: dict[str, str] = {}
    pending = [*modules]
    while pending:
        name = pending.pop()
        package, _, last = name.rpartition(".")
        module = sys.modules.get(name)
        if not package or module is None or package not in sys.modules:
            continue
        pending.append(package)
        space = vars(sys.modules[package])
        value = space.get(last, space.get("__getattr__", module))  # a package that has no attribute asks this function
        if value is module:
            continue
        if last not in space:
            raise ValueError(f"a function of its package answers for module {name}")
        home = str(getattr(value, "__module__", ""))
        if not isinstance(value, (FunctionType, BuiltinFunctionType, type)) or is_user_module(home):
            raise ValueError(f"an attribute of its package hides module {name}")
        found[name] = f"{home}.{value.__qualname__}"
    return found


def _check_caches(manifest: Manifest, now: list[list[Any]]) -> None:
    """Compare the caches of ``lru_cache`` functions: results from before the export have to be there."""
    if len(now) != len(manifest.caches):
        raise DifferenceError("functions with a cache")
    for (was, has_all), (found, _) in zip(manifest.caches, now, strict=True):
        if not has_all and found.keys() - was.keys():
            raise DifferenceError("what is in a cache of a function")
        for key, (result, is_needed) in was.items():
            if found.get(key, [None if is_needed else result])[0] != result:
                raise DifferenceError("what is in a cache of a function")


def _import_module(name: str, walk: Walk) -> None:
    """Import a module that the model imports when it is called, if it is the model's own or named in its code."""
    own = {cls.__module__.partition(".")[0] for cls in walk.classes}
    named = {name for code in walk.codes.values() for inner in within(code) for name in inner.co_names}
    if name.partition(".")[0] not in own and name not in named:
        raise DifferenceError(f"module {name} is not loaded")
    try:
        import_module(name)
    except Exception as error:  # a module can raise anything
        raise DifferenceError(f"module {name} cannot be imported ({type(error).__name__})") from error


def write(manifests: list[Manifest], parts: Mapping[str, Any]) -> dict[str, bytes]:
    """Serialize manifests as the members of an entry: the checked part, and the details that explain differences."""
    kept = manifests[:MAX_MANIFESTS]
    return {
        MEMBER: _bytes({"format": FORMAT, "manifests": [one.document() for one in kept]}),
        DETAILS: _bytes({"parts": parts, "manifests": [one.details for one in kept]}),
    }


def _bytes(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def read(data: bytes) -> list[Manifest]:
    """Parse manifests that ``write`` serialized.

    Raises:
        ValueError: the data is something else.
    """
    written = json.loads(data)
    if not isinstance(written, dict) or written.get("format") != FORMAT:
        raise ValueError("it is of another version")
    try:
        return [_manifest(one) for one in written["manifests"]]
    except (LookupError, TypeError, AttributeError, OverflowError) as error:  # JSON has an Infinity here
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _manifest(written: Any) -> Manifest:
    manifest = Manifest(**written)
    texts = [manifest.device, manifest.in_spec, manifest.out_spec, manifest.globals, manifest.why]
    texts += [*manifest.names, *manifest.imports, *manifest.versioned, *manifest.read_by_model]
    texts += [*(digest for _, digest in manifest.versioned.values()), *manifest.read_by_model.values()]
    texts += [name for read in manifest.reads for name in read]
    if not all(type(text) is str for text in texts) or type(manifest.took_s) not in {float, int} or not manifest.digest:
        raise ValueError("it has values of other types")
    pairs = [*manifest.caches, *(pair for cache, _ in manifest.caches for pair in cache.values())]
    if any(len(one) != 2 for one in (*manifest.reads, *pairs)):
        raise ValueError("it has other lengths")
    return manifest


def details(data: bytes) -> dict[str, Any]:
    """Parse the descriptions behind the digests of an entry's manifests.

    Raises:
        ValueError: the data is something else.
    """
    written = json.loads(data)
    if not isinstance(written, dict):
        raise ValueError("it is not an object")  # noqa: TRY004  # the data is wrong, not its type
    return written
