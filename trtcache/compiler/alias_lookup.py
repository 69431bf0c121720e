"""The short way from a program, in a file or in memory, to its engine: by a memo, without lowering.

Whatever is not as it must be for that (no memo, an entry that is gone, a file that only torch can read) leads to the
long way, which makes a memo for the next time; the log says why.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trtcache.backends import registry
from trtcache.backends.members import WEIGHT_MAP
from trtcache.backends.tuning_cache import learning
from trtcache.digests import CacheKey, canonical
from trtcache.errors import CanonicalizationError, IncompatibleEngineError, PassError, RefitError
from trtcache.keys.alias import KIND, MEMBER, Memo, Source, memo_key
from trtcache.lowering.contents import Content
from trtcache.runtime import CompiledModule, PartitionReport, Report
from trtcache.runtime.executable import Executable
from trtcache.runtime.provenance import Origin, held, parameters_of
from trtcache.runtime.signature import CallSignature
from trtcache.store.root import is_local
from trtcache.weights.slots import fit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from trtcache.backends.protocol import Backend
    from trtcache.cache import Cache
    from trtcache.config.stat_fingerprint import StatFingerprint
    from trtcache.lowering import LoweredProgram
    from trtcache.settings import Settings
    from trtcache.store.entry import Entry
    from trtcache.target import Target

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """What a memo led to. ``spared_s`` is what the long way took when it was made."""

    memo: Memo
    entry: Entry
    spared_s: float
    memo_s: float


class Shortcut:
    """The short way for one program and one request.

    Attributes:
        key: the memo's.
    """

    def __init__(self, source: Source, *, backend: Backend, settings: Settings, target: Target, cache: Cache) -> None:
        """Keep what was asked for, and make the memo's key.

        Raises:
            CanonicalizationError: a part of it has no stable value.
            PassError: a pass of another distribution cannot be had.
            OSError: our own code cannot be read.
            ValueError: the program has no digest, or its weights are on several devices.
        """
        start = time.perf_counter()
        self._source, self._backend, self._settings, self._target = source, backend, settings, target
        self._cache = cache
        self._asked = {
            "settings": settings.document(),
            "target": target.document(),
            "toolchain": backend.toolchain(source.device.type),
            "ambient": backend.ambient(),
        }
        modules = settings.torch_executed_modules
        self.key = memo_key(source, self._asked, backend=backend, torch_executed_modules=modules)
        self._kept: Entry | None = None
        self._key_s = time.perf_counter() - start

    @classmethod
    def of(
        cls, source: Source, *, backend: str, settings: Settings, target: str | None, cache: Cache
    ) -> Shortcut | None:
        """Return the short way for a program, or None where there can be none.

        Raises:
            BackendUnavailableError: the backend is unknown or cannot run here.
            SettingsError: the target is unknown.
        """
        if not cache.layers.stores or settings.divides:
            return None
        try:
            device = source.device
            chosen = registry.find(backend, device.type)
            chosen.check(settings)
            resolved = chosen.target(target, device)
            return cls(source, backend=chosen, settings=settings, target=resolved, cache=cache)
        except (ValueError, OSError, CanonicalizationError, PassError) as error:
            log.info("%s has no memo: %s", source.label, error)
            return None

    def find(self) -> Found | None:
        """Return the entry of the program's engine, or None if the long way has to be gone."""
        start = time.perf_counter()
        kept = self._cache.peek(self.key, counted=False)
        if kept is None:
            return None
        try:
            memo = Memo.read(bytes(kept.read(MEMBER)), self._source.specs)
            self._check(memo)
        except (ValueError, KeyError) as error:
            self._reject(kept, f"it cannot be followed: {error}")
            return None
        self._source.expect(memo.whole, memo.seen)
        self._kept = kept
        memo_s = self._key_s + time.perf_counter() - start
        entry = self._cache.peek(memo.key)
        if entry is None:
            log.info("the memo of %s leads to %s, which cannot be had", self._source.label, memo.key.digest[:16])
            return None
        return Found(memo, entry, kept.build_s, memo_s)

    def _check(self, memo: Memo) -> None:
        """Compare what a memo leads to with what was asked for: all of a key but what only lowering tells.

        Raises:
            ValueError: they differ.
        """
        parts = parts_of(memo.key)
        wrong = [name for name, value in self._asked.items() if parts[name] != canonical(value)]
        if wrong or memo.key.kind != self._backend.name or memo.device != self._source.device:
            raise ValueError(f"it leads to another {', '.join(wrong) or 'backend or device'}")

    def compiled(self, name: str) -> CompiledModule | None:
        """Return the compiled module, made from the stored entry and the program's weights, or None.

        Raises:
            ExportError: a weight is damaged, or the file was written to meanwhile.
        """
        found = self.find()
        if found is None:
            return None
        start = time.perf_counter()
        try:
            module, weights = self._module(found)
        except (IncompatibleEngineError, RefitError, ValueError) as error:
            log.warning(
                "%s is lowered again, since what its memo leads to cannot be used: %s", self._source.label, error
            )
            return None
        self._source.check(found.memo.whole)
        module.report = self._report(name, found, weights, time.perf_counter() - start)
        module.report.guards = module.guards
        return module

    def _module(self, found: Found) -> tuple[CompiledModule, int]:
        memo, entry = found.memo, found.entry
        executable = Executable.stored(
            entry, names=memo.names, known=memo.known, sources=memo.sources, device=memo.device
        )
        # An entry of an older version has none; the program's were found when the alias was written.
        executable = replace(executable, interface=replace(executable.interface, small_sizes=memo.small_sizes))
        state = self._source.tensors([name for names in memo.names for name in names])
        weights = fit(executable.interface.weights, state, known=memo.known, device=memo.device)
        try:
            with learning(self._cache):
                engine = self._backend.load_entry(
                    entry.read, device=memo.device, constants=executable.constants, weights=weights
                )
        except IncompatibleEngineError:
            self._cache.reject(entry, "load")
            raise
        call = CallSignature(memo.in_spec, memo.out_spec, self._source.forward)
        module = CompiledModule(executable, engine, weights, call)
        module.origin = self._origin(entry, parameters_of(state))
        return module, len(weights)

    def _origin(self, entry: Entry, parameters: frozenset[str]) -> Origin:
        parts = parts_of(entry.key)
        return Origin(
            backend=self._backend.name,
            target=parts["target"],
            label=self._target.label,
            toolchain=parts["toolchain"],
            entries={0: held(entry)},
            parameters=parameters | self._source.parameters,
            settings=self._settings,
        )

    def report(self, name: str, found: Found) -> Report:
        """Return the report on an entry that was found and is not loaded."""
        return self._report(name, found, len(json.loads(bytes(found.entry.read(WEIGHT_MAP)))), 0.0)

    def _report(self, name: str, found: Found, weights: int, load_s: float) -> Report:
        entry = found.entry
        partition = PartitionReport(
            key=entry.key,
            outcome=entry.outcome,
            reason="",
            weights=weights,
            fetch_s=entry.load_s,
            load_s=load_s,
            build_s=entry.build_s,
            path=str(entry.path) if entry.path else None,
        )
        return Report(
            name=name,
            backend=self._backend.name,
            target=self._target.label,
            partitions=[partition],
            route="memo",
            memo_s=found.memo_s,
            spared_s=found.spared_s,
        )

    def keep(
        self, exported: torch.export.ExportedProgram, program: LoweredProgram, key: CacheKey | Exception, took_s: float
    ) -> None:
        """Note what lowering gave, for the next time. A memo that says something else is refused and counted.

        Args:
            exported: the program.
            program: what became of it.
            key: its key, or why there is none.
            took_s: seconds that this took.
        """
        try:
            memo = self._memo(exported, program, key)
            data = memo.write()
        except ValueError as error:
            log.info("%s gets no memo: %s", self._source.label, error)
            return
        if self._kept is not None:
            kept = Memo.read(bytes(self._kept.read(MEMBER)), self._source.specs)
            if replace(kept, whole=memo.whole, seen=memo.seen).write() == data:
                return
            self._reject(self._kept, "it disagrees with what lowering gives")
        self._cache.keep(self.key, {MEMBER: data}, build_s=took_s, name=program.name)

    def _memo(self, exported: torch.export.ExportedProgram, program: LoweredProgram, key: CacheKey | Exception) -> Memo:
        """Return the memo of a program.

        Raises:
            ValueError: it can have none; the message says why.
        """
        if not isinstance(key, CacheKey):
            raise ValueError(f"it has no key: {key}")  # noqa: TRY004  # no wrong type, but a program without a key
        if program.device != self._source.device:
            raise ValueError(f"it runs on {program.device}, and its weights are on {self._source.device}")
        if foreign := sorted(set(_foreign(exported, self._settings.operator_versions))):
            raise ValueError(f"what its operators {', '.join(foreign)} compute is not in it")
        memo = Memo.of(program, key, self._source.whole, seen=self._seen())
        if memo.whole is None and "frozen" in parts_of(key):
            raise ValueError("an engine has values of its weights in it, which are not looked at")
        for name, tensor in self._source.tensors([name for names in memo.names for name in names]).items():
            if not self._is_one(tensor, program.state[name]):
                raise ValueError(f"weight {name} is read otherwise than torch does")
        return memo

    def _seen(self) -> StatFingerprint | None:
        """Return by what state its file is known again: none of a file system whose clock is another machine's."""
        seen = self._source.seen()
        return seen if seen and is_local(Path(self._source.label)) else None

    def _is_one(self, tensor: torch.Tensor, lowered: torch.Tensor) -> bool:
        """Say whether a weight is the one that was lowered: the very same, or in a file one of the same bytes."""
        return tensor is lowered or (self._source.whole is not None and Content.of(tensor) == Content.of(lowered))

    def _reject(self, kept: Entry, why: str) -> None:
        log.warning("the memo of %s is not used: %s", self._source.label, why)
        self._cache.reject(kept, KIND)


def parts_of(key: CacheKey) -> Any:
    """Return the parts of a key, by name."""
    return key.document["parts"]


def _foreign(exported: torch.export.ExportedProgram, declared: Collection[str]) -> Iterator[str]:
    """Yield the operators of a program that are neither torch's nor of a declared version.

    One that torch takes apart by code of this process leaves no trace in the lowered graph.
    """
    from trtcache.lowering.custom_operators import is_foreign

    for module in exported.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                if isinstance(node.target, torch._ops.OpOverload) and is_foreign(node.target, declared):
                    yield str(node.target._schema.name)
