"""Look-ups of ``.pt2`` files through their key aliases as ``compiler/alias_lookup.py`` makes them, without torch.

The alias's key has torch's state in the process. A process that has not imported torch has the state that torch begins
with, unless an environment variable or an extension of torch changes it; then, and wherever else the answer might
differ from that of a process with torch, ``TorchNeeded`` is raised. Nothing is loaded: an alias leads to a key.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from trtcache.backends import registry
from trtcache.backends.host import environment, torch_environment, torch_versions
from trtcache.bundle.archive import BROKEN
from trtcache.bundle.file_alias import MappedPt2File
from trtcache.bundle.load_program import TorchNeeded
from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import CacheKey, canonical
from trtcache.errors import CanonicalizationError, IncompatibleEngineError
from trtcache.keys.alias_key import INITIAL_STATE, MEMBER, make_alias_key
from trtcache.lowering.passes import installed_passes

if TYPE_CHECKING:
    from pathlib import Path

    from trtcache.backends.protocol import Backend
    from trtcache.cache import Cache
    from trtcache.digests import Digest, Json
    from trtcache.frontends.source import CompileOptions

_EXTENSIONS: Final = "torch.backends"
"""The entry points of distributions that ``import torch`` loads: they may change torch's state."""


@frozen_dataclass
class _Device:
    """The CPU, for ``Backend.target`` in a process without torch."""

    type: str = "cpu"
    index: None = None

    def __str__(self) -> str:
        return self.type


def open_file(path: Path) -> MappedPt2File:
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
    _given: dict[str, Json]
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
        if not cache.layers.stores or settings.divides:
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

    def alias_of(self, file: MappedPt2File) -> CacheKey:
        """Return the key of a file's alias."""
        if file.digest not in self._aliases:
            parts: Any = self._document["parts"]
            document = {**self._document, "parts": {**parts, "file": canonical(file.digest)}}
            self._aliases[file.digest] = CacheKey.of_document(document)
        return self._aliases[file.digest]

    def follow(self, alias: CacheKey) -> CacheKey | None:
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
            fits = all(parts[name] == part for name, part in self._given.items())
            if not fits or key.kind != self.backend.name or written["device"] != "cpu":
                raise ValueError("its key has other parts")
        except BROKEN as error:  # a process with torch rejects the alias
            raise TorchNeeded(f"a key alias cannot be used: {error!r:.200}") from error
        if written.get("operators"):
            raise TorchNeeded("the program has custom operators, which have to be imported to know their versions")
        return key


def _require_initial_state() -> None:
    """Check that torch, if it were imported, would be in the state that it begins with.

    Raises:
        TorchNeeded: it may be in another state.
    """
    from importlib.metadata import entry_points  # 20 ms

    if "torch" in sys.modules:
        raise TorchNeeded("this process has imported it, and may have changed its state")
    if names := torch_environment(os.environ).keys() - environment(os.environ).keys():
        raise TorchNeeded(f"{', '.join(sorted(names))} may change its state")
    if installed_passes() or entry_points(group=_EXTENSIONS):
        raise TorchNeeded("passes of other distributions, or extensions of torch, are imported with it")
