"""Look-ups of ``.pt2`` files without torch, and separate key aliases for processes without torch.

``compiler/alias_lookup.py`` does the same with torch. Its alias's key covers torch's state in the process, and its
content has pytree specs; both need torch. An alias of this kind is stored by a process with torch, if torch's state
there is the one that torch begins with. A process that has not imported torch has that state. The key covers whatever
else lowering and the build depend on: the file without its weights, torch's version, this package's code, settings,
target, and the environment variables of torch. No such alias is stored if another distribution registers passes
(``docs/without-torch.md``).

``FileLookup`` also looks up the aliases that ``alias_lookup`` stored, and loads nothing: an alias leads to a key. A
process that has not imported torch has the state of torch that torch begins with, unless an environment variable or an
extension of torch changes it; then, and wherever else the answer might differ from that of a process with torch,
``TorchNeeded`` is raised.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trtcache.backends import host, registry
from trtcache.backends.host import INITIAL_AMBIENT, environment, torch_environment, torch_versions
from trtcache.bundle.archive import BROKEN, HEADER, MODEL, content_of, directory
from trtcache.bundle.engines import report_engine
from trtcache.bundle.load_program import TorchNeeded, assemble, read_array
from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import CacheKey, Digest, Json, canonical, json_bytes
from trtcache.errors import (
    CanonicalizationError,
    IncompatibleEngineError,
    ModelFileError,
    ProgramFileError,
    RunError,
    WeightMapError,
)
from trtcache.keys.alias_key import INITIAL_STATE, KIND, MEMBER, code_digest, make_alias_key
from trtcache.lowering.passes import installed_passes
from trtcache.runtime.argument_order import UnknownContainerError
from trtcache.runtime.executable import parse_interface
from trtcache.runtime.report import Report
from trtcache.settings import Settings
from trtcache.target import Target, resolve_target
from trtcache.weights.files import (
    KNOWN_VERSION,
    SAVE_AGAIN,
    TensorRecord,
    digest_without_weights,
    read_records,
    weight_members,
)

if TYPE_CHECKING:
    from trtcache.backends.protocol import Backend
    from trtcache.cache import Cache
    from trtcache.frontends.pt2 import Pt2Source
    from trtcache.frontends.source import CompileOptions
    from trtcache.runtime import CompiledModule
    from trtcache.runtime.program import Program
    from trtcache.weights.arrays import HostArray


log = logging.getLogger(__name__)

_FILE_MEMBER = "file.json"
_FORMAT = 1
_BACKENDS = ("auto", host.NAME)


class MappedPt2File:
    """A file that ``torch.export.save`` wrote, read without torch.

    Attributes:
        path: its path.
        digest: the digest of the file without the bytes of its weights, as ``Pt2Source.digest``.
    """

    def __init__(self, path: Path) -> None:
        """Open and map a file.

        Raises:
            TorchNeeded: it does not exist, or has a form that is not read here.
        """
        self.path = path
        try:
            self._members = directory(content_of(path), str(path))
            if "byteorder" in self._members and bytes(self.content("byteorder")).decode().strip() != sys.byteorder:
                raise ValueError("another byte order")
            self._records = read_records(self.content)
            weights = weight_members(self._records)
        except (ProgramFileError, *BROKEN) as error:
            raise TorchNeeded(f"it is not a file that is read without torch ({error})") from error
        members = {name: (0, len(one.content), name) for name, one in self._members.items()}  # none is compressed
        self.digest = digest_without_weights(members, weights, self.content)

    @property
    def names(self) -> set[str]:
        """The names of its weights and constants."""
        return set(self._records)

    @property
    def devices(self) -> set[str]:
        """The device types of its weights and constants.

        Raises:
            LookupError, TypeError, AttributeError: a record has another form.
        """
        metas = [record.get("tensor_meta") for record in self._records.values()]
        return {str(meta["device"]["type"]) for meta in metas if meta}

    @property
    def is_program(self) -> bool:
        """Whether it is a program without engines, in the form of archive that ``Pt2Source`` reads."""
        marks = {"archive_format": "pt2", "archive_version": KNOWN_VERSION}
        is_known = all(bytes(self.content(name)).decode().strip() == text for name, text in marks.items())
        return is_known and MODEL in self._members and not self.has_engines

    @property
    def has_engines(self) -> bool:
        """Whether ``trtcache.export`` wrote it."""
        return HEADER in self._members

    def content(self, name: str) -> memoryview:
        """Return the bytes of a member."""
        return self._members[name].content

    def arrays(self, names: set[str]) -> dict[str, HostArray]:
        """Return weights and constants by name, after comparing their members with their checksums.

        Raises:
            ModelFileError: a member is damaged.
            ValueError: one is pickled, or not on the CPU; LookupError and TypeError are possible too.
        """
        found = {}
        intact: set[str] = set()
        for name in sorted(names):
            written = self._records[name]
            record = TensorRecord.parse(name, written, f"data/{written['folder']}/")
            member = self._members[record.member]
            if record.device.partition(":")[0] != "cpu":
                raise ValueError(f"weight {name} is not on the CPU")
            if record.member not in intact and zlib.crc32(member.content) != member.crc:
                why = f"it is damaged (its member {record.member} does not have its checksum)"
                raise ModelFileError(str(self.path), f"{why}; {SAVE_AGAIN}")
            intact.add(record.member)
            found[name] = read_array(record, self.content)
        return found


def file_alias_key(digest: Digest, settings: Settings, target: Target) -> CacheKey:
    """Return the key of the alias of a file with this digest.

    Raises:
        IncompatibleEngineError: the version of torch is unknown.
    """
    versions = torch_versions()
    return CacheKey.of(
        KIND,
        {
            "alias": "file",
            "format": _FORMAT,
            "file": digest,
            "settings": settings.document(),
            "target": target.document(),
            "backend": host.NAME,
            "toolchain": {name: versions[name] for name in ("torch", "torch_git")},
            "cuda": versions["cuda"],
            "code": code_digest(),
            "environment": torch_environment(os.environ),
        },
    )


def why_no_alias(options: CompileOptions) -> str:
    """Return why a compilation with these options has no alias of this kind; empty if it can have one.

    The text follows "torch is needed: ", so that "it" in it is torch.
    """
    settings = options.settings
    if options.backend not in _BACKENDS:
        return f"the backend {options.backend} needs it"
    if settings.may_partition or settings.torch_executed_modules:
        return "the settings leave parts to it"
    if settings.threads != Settings().threads:
        return "settings.threads needs it"
    return "passes of other distributions need it" if installed_passes() else ""


def store_alias(source: Pt2Source, module: CompiledModule, options: CompileOptions, cache: Cache) -> None:
    """Store the alias of a compiled file for processes without torch, where it can have one."""
    origin = module.origin
    entry = origin.entries.get(0) if origin is not None and origin.division.is_one_engine else None
    if entry is None or entry.key.kind != host.NAME or str(source.device) != "cpu" or why_no_alias(options):
        return
    key = file_alias_key(source.digest, options.settings, resolve_target(options.target, device="cpu"))
    if cache.store is None or key in cache:
        return
    # Not imported for a file that has its alias.
    from trtcache.bundle.formats import describe_program
    from trtcache.keys.key import process_state

    parts = entry.key.parts
    if parts.keys() & {"uncacheable", "operators", "frozen"}:
        return
    # Compare with the state in which the key was made: a build may have changed it since.
    if parts["ambient"] != canonical({**INITIAL_AMBIENT, "environment": environment(os.environ)}):
        return
    if canonical(process_state()) != canonical(INITIAL_STATE):
        return
    try:
        document = {"key": entry.key.document, **describe_program(*module.stored_form())}
    except ValueError as error:
        log.info("%s has no alias for processes without torch: %s", source.label, error)
        return
    cache.keep(key, {_FILE_MEMBER: json_bytes(document)}, build_s=module.report.alias_saved_s, name=module.report.name)


def find_program(
    path: Path, options: CompileOptions, cache: Cache, *, name: str | None, counted: bool = True
) -> Program:
    """Return the program of a file from the cache, without torch.

    Raises:
        TorchNeeded: there is no alias or no engine for it, or only torch can load it; the message says which.
        ModelFileError: a weight is damaged.
    """
    if why := why_no_alias(options):
        raise TorchNeeded(why)
    start = time.perf_counter()
    try:
        file = MappedPt2File(path)
        opened_s = time.perf_counter() - start
        target = resolve_target(options.target, device="cpu")
        alias_entry = cache.peek(file_alias_key(file.digest, options.settings, target), counted=False)
        if alias_entry is None:
            raise TorchNeeded("the cache has no alias of this file for processes without it")
        document = json.loads(bytes(alias_entry.read(_FILE_MEMBER)))
        key = CacheKey.of_document(document["key"])
        parts = key.parts
        if key.kind != host.NAME or parts["target"] != canonical(target.document()):
            raise ValueError("the alias leads to an engine for another target")
        entry = cache.peek(key, counted=False)
        if entry is None:
            raise TorchNeeded("its engine is not in the cache")
        alias_s = time.perf_counter() - start - opened_s
        interface = parse_interface(document["interface"], document["weight_map"], document["slots"])
        state = file.arrays({one for slot in interface.slots for one in slot.names})
        program = assemble(document, interface, entry, state, str(path), None)
    except (IncompatibleEngineError, UnknownContainerError, WeightMapError) as error:
        raise TorchNeeded(str(error)) from error
    except RunError:  # a RuntimeError, but the alias and the file are not its reason
        raise
    except BROKEN as error:
        raise TorchNeeded(f"its alias or the file cannot be read without it ({error!r:.200})") from error
    if counted:
        cache.count_hit(entry)  # not before: with torch it would be found again
    program.report = Report(
        name or path.stem,
        host.NAME,
        target.label,
        [report_engine(entry, "store", weights=len(interface.weights), load_s=program.load_s, path=str(path))],
        route="alias",
        file_s=opened_s,
        alias_s=alias_s,
        alias_saved_s=alias_entry.build_s,
        guards=program.guards,
        torch="not used",
    )
    return program


_EXTENSIONS: Final = "torch.backends"
"""The entry points of distributions that ``import torch`` loads: they may change torch's state."""


@frozen_dataclass
class _Device:
    """The CPU, for ``Backend.target`` in a process without torch."""

    type: str = "cpu"
    index: None = None

    def __str__(self) -> str:
        return self.type


def map_cpu_program(path: Path) -> MappedPt2File:
    """Open a file whose program runs on the CPU.

    Raises:
        TorchNeeded: it has another form, or cannot be read; a process with torch says why.
    """
    file = MappedPt2File(path)
    try:
        is_plain = file.is_program and file.devices <= {"cpu"}
    except BROKEN as error:
        raise TorchNeeded(f"{path.name} is not read without it: {error!r:.200}") from error
    if not is_plain:
        raise TorchNeeded(f"{path.name} is no program for the CPU")
    return file


@dataclass(slots=True)
class FileLookup:
    """The look-up of files with some options, in a cache.

    Attributes:
        cache: the cache.
        backend: the backend that builds.
    """

    cache: Cache
    backend: Backend
    _option_parts: dict[str, Json]
    _document: dict[str, Json]
    _aliases: dict[Digest, CacheKey] = field(default_factory=dict)
    _keys: dict[str, CacheKey | None] = field(default_factory=dict)

    @classmethod
    def of(cls, options: CompileOptions, cache: Cache) -> FileLookup:
        """Return the look-up for options.

        Raises:
            TorchNeeded: torch might be in another state, or the backend, the settings or a pass needs it.
            BackendUnavailableError: the backend is unknown or cannot run here.
            SettingsError: the target is unknown, or the backend does not take the settings.
        """
        _require_initial_state()
        settings = options.settings
        if not cache.layers.stores or settings.may_partition:
            raise TorchNeeded("the settings or the cache allow no alias")
        backend = registry.find(options.backend, "cpu")
        if "torch" in sys.modules or not backend.capabilities.without_torch or backend.bakes_weights(settings):
            raise TorchNeeded(f"the backend {backend.name} needs it")
        registry.check_settings(backend, settings)
        device: Any = _Device()
        try:
            versions = torch_versions()
            given = {
                "settings": settings.document(),
                "target": backend.target(options.target, device).document(),
                "toolchain": backend.versions("cpu"),
                "ambient": backend.ambient(),
            }
            key = make_alias_key(
                {},
                given,
                backend=backend,
                device_type="cpu",
                torch_executed_modules=settings.torch_executed_modules,
                torch=[versions["torch"], versions["torch_git"]],
                other_passes=[],
                process=INITIAL_STATE,
            )
        except (ValueError, OSError, CanonicalizationError, IncompatibleEngineError) as error:
            raise TorchNeeded(f"the key of an alias is not known without it: {error}") from error
        parts = key.parts
        return cls(cache, backend, {name: parts[name] for name in given}, key.document)

    def alias_key_of(self, file: MappedPt2File) -> CacheKey:
        """Return the key of a file's alias."""
        if file.digest not in self._aliases:
            parts: Any = self._document["parts"]
            document = {**self._document, "parts": {**parts, "file": canonical(file.digest)}}
            self._aliases[file.digest] = CacheKey.of_document(document)
        return self._aliases[file.digest]

    def find_key(self, alias: CacheKey) -> CacheKey | None:
        """Return the key that a stored alias leads to, without looking its entry up; None if it is not stored.

        Raises:
            TorchNeeded: the alias cannot be used without it.
        """
        if alias.digest not in self._keys:
            self._keys[alias.digest] = self._read(alias)
        return self._keys[alias.digest]

    def _read(self, alias: CacheKey) -> CacheKey | None:
        kept = self.cache.peek(alias, counted=False)
        if kept is None:
            return None
        try:
            written = json.loads(bytes(kept.read(MEMBER)))
            key = CacheKey.of_document(written["key"])
            parts = key.parts
            fits = all(parts[name] == part for name, part in self._option_parts.items())
            if not fits or key.kind != self.backend.name or written["device"] != "cpu":
                raise ValueError("its key has other parts")
        except BROKEN as error:  # a process with torch rejects the alias
            raise TorchNeeded(f"a key alias cannot be used: {error!r:.200}") from error
        if written.get("operators"):
            raise TorchNeeded("the program has custom operators, which have to be imported to know their versions")
        return key


def _require_initial_state() -> None:
    """Check that torch, if it were imported, would be in the state that it begins with."""
    from importlib.metadata import entry_points  # 20 ms

    if "torch" in sys.modules:
        raise TorchNeeded("this process has imported it, and may have changed its state")
    if names := torch_environment(os.environ).keys() - environment(os.environ).keys():
        raise TorchNeeded(f"{', '.join(sorted(names))} may change its state")
    if installed_passes() or entry_points(group=_EXTENSIONS):
        raise TorchNeeded("passes of other distributions, or extensions of torch, are imported with it")
