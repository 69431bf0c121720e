"""The way of one ``compile`` in direct mode: find a manifest, check it, go by it; or record an export and write one."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trtcache.compiler.alias_lookup import Shortcut
from trtcache.compiler.request import collector_paused
from trtcache.digests import CacheKey
from trtcache.direct import manifest as manifests
from trtcache.direct.attributes import UnstableError
from trtcache.direct.checking import DifferenceError, check
from trtcache.direct.manifest import DETAILS, KIND, MEMBER, Manifest
from trtcache.direct.sampling import Sample, is_sampled
from trtcache.direct.source import DirectSource
from trtcache.direct.surroundings import surroundings
from trtcache.direct.tree import Tree, described, digest_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import torch

    from trtcache.cache import Cache
    from trtcache.compiler.request import Exported
    from trtcache.digests import Json
    from trtcache.direct.recording import Recording
    from trtcache.runtime import CompiledModule
    from trtcache.settings import Settings
    from trtcache.store.entry import Entry

log = logging.getLogger(__name__)

ON, VERIFY, OFF = "on", "verify", "off"
Examples = tuple[tuple[Any, ...], "Mapping[str, Any] | None", Any]


class Attempt:
    """One ``compile`` of a module.

    Attributes:
        outcome: what came of direct mode: ``hit``, ``miss: ...`` or ``off: ...``; empty where there is no module.
        manifest: what led to the program, once one was found to hold.
        key: the direct key.
    """

    def __init__(self, model: torch.nn.Module, examples: Examples, cache: Cache, *, mode: str, name: str) -> None:
        """Describe the model, and make the direct key.

        Args:
            model: what is compiled.
            examples: positional and named arguments, and sizes that vary.
            cache: where manifests are.
            mode: ``on``, ``verify`` or ``off``.
            name: what people call the program.
        """
        start = time.perf_counter()
        self._model, self._examples, self._cache, self._mode, self._name = model, examples, cache, mode, name
        self.outcome = ""
        self.manifest: Manifest | None = None
        self.key: CacheKey | None = None
        self._tree: Tree | None = None
        self._parts: dict[str, Json] = {}
        self._kept: list[Manifest] = []
        self._entry: Entry | None = None
        self._seen: Recording | None = None
        self._before: Any = None
        if self._may():
            self._describe()
        self.took_s = time.perf_counter() - start

    def _may(self) -> bool:
        if self._mode == OFF:
            self.outcome = "off: TRTCACHE_DIRECT=off"
        elif not self._cache.layers.stores:
            self.outcome = "off: there is no cache to look in"
        return not self.outcome

    def _describe(self) -> None:
        args, kwargs, dynamic_shapes = self._examples
        try:
            self._tree = described(self._model, tuple(args), kwargs or {}, dynamic_shapes)
            around: Any = surroundings(self._tree.another())
            self._parts = {**self._tree.parts, "surroundings": around}
            digests = {name: digest_of(part) for name, part in self._parts.items()}
            self.key = CacheKey.of(KIND, {"format": manifests.FORMAT, **digests})
        except UnstableError as error:
            self.outcome = f"off: {_label(error)}"
        except Exception as error:  # an attribute of the model's can raise anything; it is compiled all the same
            log.debug("%s cannot be described", self._name, exc_info=True)
            self.outcome = f"off: the module cannot be described ({type(error).__name__}: {error})"
            self._tree = None

    def compiled(self, backend: str, settings: Settings, target: str | None) -> CompiledModule | None:
        """Return the compiled module, or None if the slow way has to be gone.

        Raises:
            BackendUnavailableError: the backend is unknown or cannot run here.
            SettingsError: the target is unknown.
        """
        with collector_paused():
            if not self.find() or self._mode == VERIFY:
                return None
            assert self.manifest is not None  # noqa: S101  # it was found
            start = time.perf_counter()
            found = self._shortcut(self.manifest, backend, settings, target)
            module = found.compiled(self._name) if found else None
        if module is None:
            self.outcome = "miss: no memo leads on from the program, with these settings on this machine"
            return None
        self.outcome = "hit"
        if is_sampled(self._cache.config.direct_sample):
            Sample.take(self._model, self._examples, self._cache, self._name)
        report = module.report
        report.route, report.direct, report.direct_s = "direct", "hit", self.took_s
        report.spared_s += self.manifest.took_s
        report.memo_s = min(report.memo_s, time.perf_counter() - start)
        return module

    def find(self) -> bool:
        """Find a manifest that holds, and say whether there is one."""
        start = time.perf_counter()
        try:
            return self._find()
        finally:
            self.took_s += time.perf_counter() - start

    def _find(self) -> bool:
        if self.key is None or self._tree is None:
            return False
        self._entry = self._cache.peek(self.key, counted=False)
        if self._entry is None:
            return False
        try:
            self._kept = manifests.read(bytes(self._entry.read(MEMBER)))
        except Exception as error:  # whatever lies in the store
            log.debug("the manifest of %s cannot be read", self._name, exc_info=True)
            self._reject(f"it cannot be followed: {error}")
            return False
        for place, one in enumerate(self._kept):
            try:
                check(one, self._tree)
            except DifferenceError as error:
                self.outcome = self.outcome or f"miss: {self._told(place, error)}"
            except Exception as error:
                log.debug("the manifest of %s cannot be checked", self._name, exc_info=True)
                self._reject(f"it cannot be followed: {error!r}")
                return False
            else:
                self.manifest = one
                return True
        return False

    def _told(self, place: int, error: DifferenceError) -> str:
        """Return a difference in words; details are read only now."""
        from trtcache.direct.differences import between

        if error.place is None or self._entry is None:
            return error.what
        try:
            details = manifests.details(bytes(self._entry.read(DETAILS)))["manifests"][place]
            kind, name = error.place
            label = {"modules": "global of", "classes": "class"}[kind]
            return between(f"{label} {name}", details[kind][name], error.now)
        except Exception:  # a remark for people, as the nearest manifest is
            log.debug("the details of %s cannot be read", self._name, exc_info=True)
            return f"{error.what} changed"

    def _shortcut(self, one: Manifest, backend: str, settings: Settings, target: str | None) -> Shortcut | None:
        assert self._tree is not None  # noqa: S101  # there is no manifest without
        try:
            source = DirectSource(one, self._tree, self._model, self._name)
        except Exception as error:  # a manifest can say anything of how arguments are nested
            log.info("%s: %s", self._name, error, exc_info=not isinstance(error, ValueError))
            return None
        return Shortcut.of(source, backend=backend, settings=settings, target=target, cache=self._cache)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record what runs meanwhile, if that can be of use: the module is exported.

        Raises:
            Exception: whatever the body raises.
        """
        store = self._cache.store
        if self._tree is None or self.key is None or store is None or not store.takes:
            yield
            return
        from trtcache.direct.before import Before
        from trtcache.direct.recording import recorded
        from trtcache.lowering.tracing_lock import ALONE

        seen: Recording | None = None
        with ALONE, ExitStack() as around:
            try:
                self._before = Before(self._tree)
                seen = around.enter_context(recorded(self._before))
            except Exception as error:  # an attribute of a class can raise anything, too
                log.debug("the export of %s cannot be watched", self._name, exc_info=True)
                self.outcome = f"off: the export cannot be watched ({type(error).__name__}: {error})"
            yield
        self._seen = seen

    def keep(self, exported: Exported, module: CompiledModule, settings: Settings, target: str | None) -> None:
        """Write a manifest for the next time, or say why there is none; compare what one says if that is asked for.

        Args:
            exported: the program that the model became.
            module: what was compiled of it.
            settings: with which settings.
            target: for what.
        """
        try:
            self._keep(exported, settings, target)
        except UnstableError as error:
            self.outcome = f"off: {_label(error)}"
        except Exception as error:  # no manifest is no reason for no module
            log.debug("%s gets no manifest", self._name, exc_info=True)
            self.outcome = f"off: {error}"
        self._before = self._seen = None
        module.report.direct = self.outcome or "miss: nothing is known of it"
        log.info("%s: direct mode: %s", self._name, module.report.direct)
        if self._mode != OFF:
            from trtcache.direct.nearest import keep_reason

            keep_reason(self._cache, self._name, module.report.direct)

    def _keep(self, exported: Exported, settings: Settings, target: str | None) -> None:
        from trtcache.direct.writing import Writing

        if self.manifest is not None and self._mode == VERIFY:
            self.verify(exported.program)
        elif self._seen is not None and self._tree is not None and self.key is not None:
            made = Writing(self._tree, self._seen, self._before).manifest(exported, self.explain())
            self._check_leads(made, exported, settings, target)
            self._store(made)

    def explain(self) -> str:
        """Return why there was no hit, by the nearest manifest of the same name where there is none of this key."""
        if not self.outcome:
            from trtcache.direct.nearest import nearest

            self.outcome = f"miss: {nearest(self._cache, self._name, self._parts)}"
        return self.outcome

    def _check_leads(self, made: Manifest, exported: Exported, settings: Settings, target: str | None) -> None:
        """Make sure that a memo leads on from what a manifest leads to.

        Raises:
            ValueError: none does.
        """
        found = self._shortcut(made, exported.backend.name, settings, target)
        if found is None or not self._cache.layers.holder(found.key.digest):
            raise ValueError("the program has no memo (TRTCACHE_LOG=keys says why)")

    def _store(self, made: Manifest) -> None:
        assert self.key is not None  # noqa: S101  # it was made before
        others = [one for one in self._kept if one != replace(made, why=one.why, took_s=one.took_s)]
        members = manifests.write([made, *others], self._parts)
        self._cache.keep(self.key, members, build_s=made.took_s, name=self._name)

    def verify(self, program: torch.export.ExportedProgram) -> None:
        """Compare a program with that of the manifest that was found, and refuse the manifest if it is another."""
        from trtcache.direct.verifying import disagreement

        assert self.manifest is not None  # noqa: S101  # it was found
        why = disagreement(self.manifest, program)
        if why is None:
            self.outcome = "verified"
            return
        self.outcome = f"refused: {why}"
        self._reject(why)

    def _reject(self, why: str) -> None:
        assert self._entry is not None  # noqa: S101  # it was read
        log.error("the manifest of %s is refused: %s", self._name, why)
        self._cache.reject(self._entry, KIND)


def _label(error: UnstableError) -> str:
    first = error.path[-1] if error.path else ""
    said = ("global ", "argument ", "module ", "dynamic_shapes", "the process")
    return f"{error}" if first.startswith(said) or not error.path else f"attribute {error}"
