"""The fast path: from a source's fingerprint through a key alias to a stored engine, without export or lowering.

The slow path is taken if there is no alias, if a custom operator has changed, if the engine's entry was evicted or
cannot be loaded, or if a weight does not fit. It stores an alias for the next time. The reason is logged if the alias's
key cannot be made, or if a stored alias does not lead to a module.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trtcache.backends.protocol import WEIGHT_MAP, use_tuning_store
from trtcache.backends.registry import load_engine
from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import CacheKey
from trtcache.errors import CanonicalizationError, IncompatibleEngineError, PassError, RefitError
from trtcache.keys.alias_key import KIND, MEMBER
from trtcache.keys.key import EXAMPLE_SIZES, KeyAlias, alias_key
from trtcache.lowering.operators import operators_are_unchanged
from trtcache.runtime import CompiledModule, PartitionReport, Report
from trtcache.runtime.executable import Executable, Provenance, load_members, parameters_of
from trtcache.runtime.module_call import CallSignature
from trtcache.store.root import is_local

if TYPE_CHECKING:
    from trtcache.cache import Cache
    from trtcache.frontends.request import Request
    from trtcache.frontends.source import CompileOptions, Source
    from trtcache.store.contract import Entry

log = logging.getLogger(__name__)


@frozen_dataclass
class FoundEntry:
    """An entry that was found through a key alias.

    Attributes:
        alias: the alias.
        entry: the engine's entry.
        alias_saved_s: seconds that the slow path took when the alias was stored, without the export.
        alias_s: seconds that finding and reading the alias took.
    """

    alias: KeyAlias
    entry: Entry
    alias_saved_s: float
    alias_s: float


class AliasLookup:
    """The key alias of one source with some options.

    Attributes:
        key: the alias's own key.
        backend: the backend that builds the program.
    """

    def __init__(
        self, source: Source, fingerprint: Mapping[str, object], options: CompileOptions, cache: Cache
    ) -> None:
        """Make the key of the alias of a source with this fingerprint.

        The key has the fingerprint, settings, target and backend with its versions, torch's version and global state,
        the installed passes, and the digest of trtcache's own code. Values of weights are in it only if they are in the
        fingerprint, as an ONNX file's are, or if the backend may embed a file's weights in the engine.

        Raises:
            BackendUnavailableError: the backend is unknown or cannot run here.
            SettingsError: the target is unknown, or the backend does not take the settings.
            CanonicalizationError: a part of the key has no stable value.
            PassError: a pass of another distribution cannot be imported.
            OSError: the code of this package cannot be read.
            ValueError: the source's weights are on several devices.
        """
        self._source, self._cache, self._settings = source, cache, options.settings
        self.backend = backend = source.find_backend(options)
        self._target = backend.target(options.target, source.device)
        self._option_parts = source.option_parts(backend, options.settings, self._target)
        # A module in memory has no digest of its weights. If an engine has embedded weights, ``store`` stores no alias.
        self.key = alias_key(
            {**fingerprint, "weights": source.content_digest if backend.bakes_weights(options.settings) else None},
            self._option_parts,
            backend=backend,
            device_type=source.device.type,
            torch_executed_modules=options.settings.torch_executed_modules,
        )
        self._alias_entry: Entry | None = None  # set by ``_read_alias`` once the alias is usable
        self._key_s = 0.0

    @classmethod
    def of(cls, source: Source, options: CompileOptions, cache: Cache) -> AliasLookup | None:
        """Return the look-up for a source, or None if it has to be exported first or cannot have an alias.

        Raises:
            BackendUnavailableError: the backend is unknown or cannot run here.
            SettingsError: the target is unknown, or the backend does not take the settings.
        """
        if not cache.layers.stores or options.settings.may_partition:  # partitions have keys, and the program has none
            return None
        start = time.perf_counter()
        try:
            fingerprint = source.fingerprint()
            if fingerprint is None:  # the source has to be exported to know its program
                return None
            lookup = cls(source, fingerprint, options, cache)
        except (ValueError, OSError, CanonicalizationError, PassError) as error:
            log.info("%s has no key alias: %s", source.label, error)
            return None
        lookup._key_s = time.perf_counter() - start
        return lookup

    @property
    def is_stored(self) -> bool:
        """Whether the alias is in a store."""
        return self.key in self._cache

    def find_key(self) -> CacheKey | None:
        """Return the key that a stored alias leads to, without looking its entry up."""
        read = self._read_alias()
        return None if read is None else read[1].key

    def find(self) -> FoundEntry | None:
        """Return the entry of the program's engine, or None if the program has to be lowered."""
        start = time.perf_counter()
        read = self._read_alias()
        if read is None:
            return None
        alias_entry, alias = read
        self._source.expect_content(alias.content_digest, alias.file_stat)
        alias_s = self._key_s + time.perf_counter() - start
        entry = self._cache.peek(alias.key)
        if entry is None:
            missing = alias.key.digest[:16]
            log.info("the key alias of %s leads to %s, which is missing or damaged", self._source.label, missing)
            return None
        return FoundEntry(alias, entry, alias_entry.build_s, alias_s)

    def _read_alias(self) -> tuple[Entry, KeyAlias] | None:
        """Return the alias's own entry, which is remembered, and the alias; None if there is none, or it is unusable.

        Like engines, aliases are looked for in the stores and then in the remotes, but they are not counted as hits.
        """
        entry = self._cache.peek(self.key, counted=False)
        if entry is None:
            return None
        try:
            alias = KeyAlias.read(bytes(entry.read(MEMBER)), self._source.specs_of)
            self._check(alias)
        except (ValueError, KeyError) as error:
            self._reject(entry, f"it cannot be used: {error}")
            return None
        if alias.operators and not operators_are_unchanged(alias.operators):
            log.info("the key alias of %s was made with other versions of its custom operators", self._source.label)
            return None
        self._alias_entry = entry
        return entry, alias

    def _check(self, alias: KeyAlias) -> None:
        """Compare the key in an alias with the options: all parts but those that only lowering determines."""
        parts, own = alias.key.parts, self.key.parts
        wrong = [name for name in self._option_parts if parts[name] != own[name]]
        if wrong or alias.key.kind != self.backend.name or alias.device != self._source.device:
            raise ValueError(f"its key differs in {', '.join(wrong) or 'backend or device'}")

    def load(self) -> CompiledModule | None:
        """Return the compiled module, from the stored engine and the source's weights; None if it has to be lowered.

        Raises:
            ExportError: a weight is damaged, or the file was written to meanwhile.
        """
        found = self.find()
        if found is None:
            return None
        start = time.perf_counter()
        try:
            module = self._load_module(found)
        except (IncompatibleEngineError, RefitError, ValueError) as error:
            log.warning("%s is lowered: its key alias leads to an unusable entry: %s", self._source.label, error)
            return None
        self._source.check_content(found.alias.content_digest)
        module.report = self._report(found, len(module.interface.weights), time.perf_counter() - start)
        module.report.guards = module.guards
        self._source.report_direct(module.report, is_hit=True)
        return module

    def _load_module(self, found: FoundEntry) -> CompiledModule:
        """Return the module of an entry: parse its interface and constants, take the source's weights, load its engine.

        The backend loads the engine, with the weights set (``Backend.load_entry``).

        Raises:
            IncompatibleEngineError: the engine cannot run here, or torch or the backend cannot load it.
            RefitError: the source lacks a weight, or has it with another shape or dtype.
            ValueError: a member of the entry is invalid.
        """
        alias, source = found.alias, self._source
        # An ONNX module reads the entry again for refits, when it may have been evicted.
        entry = found.entry if source.is_torch else load_members(found.entry)
        executable = Executable.from_entry(entry, alias)
        # Entries of older versions lack the small sizes; an alias of this version has them.
        interface = source.interface_on_device(replace(executable.interface, small_sizes=alias.small_sizes))
        executable = replace(executable, interface=interface)
        state = source.weights([name for names in alias.names for name in names])
        weights = source.engine_weights(interface, alias, state)
        # If it cannot be loaded, the slow path builds another one, and decides whether this one is damaged.
        with use_tuning_store(self._cache):  # where TensorRT's kernels are cached
            constants = executable.constants
            engine = load_engine(self.backend, entry, device=alias.device, constants=constants, weights=weights)
        call = CallSignature(alias.in_spec, alias.out_spec, source.forward, source.input_names(entry.key))
        # A module of an ONNX file keeps no weights: refits read the file.
        module = CompiledModule(executable, engine, weights if source.is_torch else {}, call)
        module.weight_file = source.weight_file(entry.key, interface, entry)
        if source.is_torch:
            parts = entry.key.parts
            module.origin = Provenance(
                backend=self.backend.name,
                target=parts["target"],
                label=self._target.label,
                toolchain=parts["toolchain"],
                entries={0: load_members(entry)},
                parameters=parameters_of(state) | source.parameters,
                settings=self._settings,
                example_sizes=alias.example_sizes,
            )
        return module

    def report(self, found: FoundEntry) -> Report:
        """Return the report on an entry that is not loaded."""
        return self._report(found, len(json.loads(bytes(found.entry.read(WEIGHT_MAP)))), 0.0)

    def _report(self, found: FoundEntry, weight_count: int, load_s: float) -> Report:
        partition = PartitionReport.of(found.entry, key=found.entry.key, weights=weight_count, load_s=load_s)
        return Report(
            name=self._source.name,
            backend=self.backend.name,
            target=self._target.label,
            partitions=[partition],
            export_s=self._source.export_s,
            route="alias",
            alias_s=found.alias_s,
            alias_saved_s=found.alias_saved_s,
        )

    def store_after_build(self, request: Request, report: Report) -> None:
        """Store the alias, unless the engine of its key is not stored.

        It is not if its weights were frozen, if an engine for a similar GPU is used, or if its build failed.
        """
        keys = [partition.key for partition in report.partitions if partition.key is not None]
        # An engine that could not be built for all sizes was built for those of the example (``Request.for_example``).
        if len(keys) == 1 and EXAMPLE_SIZES in keys[0].parts:
            request = replace(request, key=keys[0])
        if isinstance(request.key, CacheKey) and request.key not in self._cache:
            log.info("%s gets no key alias: no engine of its key is stored", self._source.label)
        else:
            self.store(request)

    def store(self, request: Request) -> None:
        """Store the alias of a lowered program for the next time, in place of a stored one that differs."""
        key = request.key
        try:
            if why := self._why_not_storable(key):
                log.info("%s gets no key alias: %s", self._source.label, why)
                return
            assert isinstance(key, CacheKey)  # noqa: S101  # see _why_not_storable
            file_stat = self._source.stat_fingerprint()
            if file_stat is not None and not is_local(Path(self._source.label)):
                file_stat = None  # the clock of the file system is another machine's
            alias = KeyAlias.of(
                request.program,
                key,
                self._source.content_digest,
                file_stat=file_stat,
                operators=self._source.custom_operators(self._settings),
            )
            self._source.check_alias(alias, request)
            data = alias.write()
        except ValueError as error:
            log.info("%s gets no key alias: %s", self._source.label, error)
            return
        if self._alias_entry is not None:
            stored = KeyAlias.read(bytes(self._alias_entry.read(MEMBER)), self._source.specs_of)
            if replace(stored, content_digest=alias.content_digest, file_stat=alias.file_stat).write() == data:
                return
            self._reject(self._alias_entry, "it differs from the lowered program")
        took_s = request.took_s - self._source.export_s
        self._cache.keep(self.key, {MEMBER: data}, build_s=took_s, name=request.program.name)

    def _why_not_storable(self, key: CacheKey | CanonicalizationError) -> str:
        """Return why the alias of a program with this key cannot be stored; empty if it can.

        Raises:
            ValueError: the key is not that of a program of this kind.
        """
        if not isinstance(key, CacheKey):
            return f"it has no key: {key}"
        if self._source.content_digest is not None:
            return ""
        if self._source.is_torch and "frozen" in key.parts:
            return "its engine has embedded weights, whose values an alias does not compare"
        return "" if self._source.specs_of(key) else "neither the alias nor the source would have its pytree specs"

    def _reject(self, entry: Entry, why: str) -> None:
        log.warning("the key alias of %s is not used: %s", self._source.label, why)
        self._cache.reject(entry, KIND)  # the counters have one reason for all
