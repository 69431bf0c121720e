"""Manifests: the dependencies of an export beside the direct key, and the resulting exported program.

An entry of kind ``direct`` has the manifests of one direct key, newest first: the exported program of a model can
change with the state of globals, and change back.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
import threading
from dataclasses import asdict, field
from importlib import import_module
from operator import itemgetter
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import Digest
from trtcache.frontends.direct.classes import CONTAINERS, EXEMPT_NAMES, UNORDERED_SETS
from trtcache.frontends.direct.code import ALL, CODE_OF, IDENTITY, UNSEEN, identifiers, joined_names, within
from trtcache.frontends.direct.errors import UnstableError
from trtcache.frontends.direct.globals import CHANGING_IN_SYS, MODULE_ATTRIBUTES, Globals, attributes_of, digest_of
from trtcache.frontends.direct.ownership import is_user_module, lookup
from trtcache.frontends.direct.patches import (
    NAMESPACES,
    describe_changes,
    refuse_unseen_state,
)
from trtcache.frontends.direct.surroundings import describe_output_handlers
from trtcache.keys.program_digest import devices

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from torch.export import ExportedProgram

    from trtcache.digests import Json
    from trtcache.frontends.direct.recording import Recording
    from trtcache.frontends.direct.walk import Walk
    from trtcache.frontends.source import Specs

log = logging.getLogger(__name__)

KIND = "direct"
MEMBER, DETAILS = "direct.json", "details.json"
FORMAT = 15
MAX_MANIFESTS = 8

_PLAIN_REGIONS = frozenset({"wrap_with_set_grad_enabled", "wrap_with_autocast"})

# At the first of these checks torch sets a global of ``torch._opaque_base``. Its value is in manifests, so it has to be
# the same before the first export of a process as after it.
_ = isinstance(None, torch.Generator)

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
        caches: for each ``lru_cache`` function, ``[{key: [result, was_there]}, is_complete]``: digests of its keys,
            with those of what is equal to them, and results, whether they were there before the export, and whether
            the cache still has every key that the export looked up; only if it has not, other keys are a difference.
        environment: environment variables that the model read.
        hidden: imported modules whose names in their packages are those of a function or a class, with its name.
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


def make_manifest(program: ExportedProgram, digest: Digest, export_s: float, seen: Recording, why: str) -> Manifest:
    """Create the manifest of an export.

    Args:
        program: the exported program.
        digest: its digest before it was lowered: lowering adds sizes that depend on data to its environment.
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
    seen.refusals.check_combinations(recorded)
    seen.refuse_missing_imports()
    if walk.has_look_up:
        texts = identifiers(walk.texts)
        if unseen := texts & CODE_OF or (recorded.names | texts) & UNSEEN:
            raise ValueError(f"a function that is kept could read {min(unseen)}")
    unseen_names = UNSEEN | CODE_OF | UNORDERED_SETS | EXEMPT_NAMES | IDENTITY
    if ALL in recorded.names and (unseen := set(joined_names(unseen_names, walk.texts | recorded.names))):
        raise ValueError(f"code that puts together names could read {min(unseen)}")
    if unknown := [code for number, code in seen.ran.items() if number not in walk.codes]:
        raise UnstableError("code that no object leads to").below(unknown[0].co_qualname)
    _refuse_undescribed(recorded)
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


def _refuse_undescribed(recorded: Globals) -> None:
    """Refuse attributes of libraries that have no description, if code looks up their names or puts names together.

    Functions without a description do not count in the latter case: the export is refused if one of them runs.

    Raises:
        UnstableError: there is one.
    """
    names = recorded.names.union(*recorded.versioned.values())
    if found := [error for name, error in recorded.walk.unstable.items() if name in names]:
        raise found[0]
    if any(name.startswith(ALL) for name in recorded.names):
        for errors in (recorded.walk.unstable, *recorded.dropped.values()):
            if found := [error for error in errors.values() if not error.is_of_function]:
                raise found[0]


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
    changing = MODULE_ATTRIBUTES | (CHANGING_IN_SYS if module == "sys" else frozenset())
    found = [(name, space[name]) for name in names & space.keys() if name not in changing]
    # A cache such as re._cache differs in each process; code that reads one by a chain of names is refused.
    found = [pair for pair in found if pair[0][:1] != "_" or type(pair[1]) not in CONTAINERS]
    found = [pair for pair in found if not isinstance(pair[1], ModuleType) or isinstance(pair[1], NAMESPACES)]
    for name, value in found:
        if type(value) in {FunctionType, functools._lru_cache_wrapper}:
            refuse_unseen_state(value)
        if isinstance(value, threading.local):
            raise UnstableError("an object with other attributes in each thread").below(f"{module}.{name}")
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
        new = found.keys() - was.keys()
        if new and (not has_all or _finds_other(new, was)):
            raise DifferenceError("what is in a cache of a function")
        for key, (result, is_needed) in was.items():
            if found.get(key, [None if is_needed else result])[0] != result:
                raise DifferenceError("what is in a cache of a function")


def _finds_other(new: Iterable[str], was: Iterable[str]) -> bool:
    """Return whether one of some new keys could be found in place of a recorded one, as 1 is in place of 1.0."""
    forms, recorded = ({key.rpartition(":")[2] for key in keys} for keys in (new, was))
    return bool(recorded) and ("" in forms or "" in recorded or bool(forms & recorded))


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
