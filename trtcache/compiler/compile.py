"""``compile_source``: from a source's fingerprint to a module with loaded engines. Start reading the package here.

A source is what is compiled: a module, an exported program, or a file. ``trtcache.compile`` (in ``__init__.py``) calls
``api.compile``, which checks the arguments, makes a source (``frontends.resolve``), and calls ``compile_source``. With
``on_miss="background"`` or ``on_busy="eager"``, ``compiler/background.py`` takes the same steps. A ``.pt2`` hit in a
process without torch does not come here.

Two kinds of small entries make a hit fast. A key alias maps the fingerprint of a source to the cache key of its engine,
so that nothing has to be lowered to know the key. A manifest of direct mode records the operations of a module and the
digest of its exported program, so that nothing has to be exported to know the fingerprint. Direct mode is off by
default: then a module is exported in each call, and the key alias of its program leads to the engine.

What to read next, after ``compile_source`` and the functions that it calls (``alias_lookup.py``, the docstring of
``Source`` in ``frontends/source.py``, and ``Cache.get_or_build_key`` in ``cache.py`` answer most questions):

- A direct hit: ``api.compile`` takes ``direct=``, or else ``TRTCACHE_DIRECT`` as it was when the cache was opened, and
  ``ModuleSource`` (``frontends/exported.py``) creates a ``DirectMode``. ``try_fast_path`` calls ``AliasLookup.of``
  (``alias_lookup.py``), which calls ``ModuleSource.fingerprint``, which calls ``DirectMode.find``
  (``frontends/direct/mode.py``). Manifests are stored under a direct key, which has what a program depends on beside
  its operations and code, such as the arguments and the layouts of weights. ``find`` reads those of this key. If there
  are any, it runs the model on fake tensors (``replay.py`` beside it; with dynamic sizes, or sizes that depend on
  values, ``program_trace.py``), under the locks of an export. A manifest fits if it has the operations of this run, in
  order, and the digests of the functions that ran: the user's, and torch's that they call (``executed_code.py``).
  Then the fingerprint is the digest of its program, and ``AliasLookup.load`` goes through the key alias to the engine,
  which gets the module's weights (``fit``, see below). If none fits, or the run fails, the fingerprint is None, and the
  module is exported.
- A miss: ``Compilation.prepare`` calls ``Source.request`` (``frontends/source.py``), which lowers the source,
  partitions it, and makes the key if it is one engine, with the functions of ``frontends/request.py``. For several
  partitions, ``Request.partitions`` makes a key for each. Then ``build_and_load`` in
  ``entries.py`` gets each engine's entry from ``Cache.get_or_build_key``, which looks in the stores, takes the build
  lock, looks again and in the remotes, and last builds with ``Request.build`` and stores the entry. ``build_and_load``
  loads the engine with the weights from ``Request.engine_weights``; if a stored engine cannot be loaded, it is built
  again (``Cache.replacing``). If only the alias is missing, ``Cache.get_or_build_key`` finds the stored engine. Before
  it, ``entries.py`` may use an entry with another key: one for a similar GPU, or one with the same weights frozen in
  it. No alias leads to such an entry. A program in partitions has no alias either: the backend supports only parts of
  it, or settings such as ``torch_executed_ops`` divide it. It is exported (a file: loaded) and lowered in each call,
  and its engines are hits.
- Other weights: values of weights are in no engine's key, unless the engine has them in it. On a hit the engine gets
  the weights of the given model: ``fit`` in ``weights/slots.py`` computes an engine's weights from a model's, by their
  slots.
  ``CompiledModule.refit`` does so later, with ``runtime/refit.py``; the weights come from a ``WeightSource``.
- An ONNX file: all its bytes are hashed in each process, external data and weights too; the digests are its
  fingerprint. Its plan's key has the canonical graph, and the weights that are embedded in the plan: those that
  TensorRT cannot refit, such as int64 ones; with ``settings={"tensorrt": {"refit": False}}``, the default of
  TensorRT-RTX, all of them. A file that was retrained misses its alias, is parsed, and finds the plan, unless an
  embedded weight has changed; with the default of TensorRT-RTX it is a miss. ``OnnxSource`` in
  ``frontends/onnx/source.py`` overrides ``request``, which parses the file in place of lowering a program; the rest is
  as above.
- A new kind of source: derive a class from ``Source`` in ``frontends/source.py``, and add a case to
  ``frontends/resolve.py``. Commands tell a file that does not exist from a key by ``PROGRAM_SUFFIXES``
  (``config/paths.py``); ``build``, ``refit``, ``tune`` and ``programs.py`` in ``cli/trtcache_cli`` also compare a
  suffix with ``.onnx``. If torch cannot run it, it also needs a subclass of ``Request`` (``frontends/request.py``) with
  ``is_torch = False``, ``partitions``, ``build``, ``members``, ``graph``, ``engine_weights`` and ``weight_file``, and a
  ``program`` like ``OnnxProgram`` (``frontends/onnx/source.py``). Backends
  then need a name for its form in ``Capabilities.accepts`` and a method that builds it, like ``build_onnx``
  (``backends/protocol.py``), and ``backends/registry.py`` an order of backends for ``auto`` and a function that finds
  one, like ``find_for_onnx``. Nothing in this file depends on the kind.
- A new kind of store that is only read, a lower layer: derive a class from ``Store`` in ``store/contract.py``, and put
  an instance into ``cache.layers``, as that file shows; ``Layers.of`` (``store/layers.py``) opens only the directories
  that settings name. The store that is written to is always a ``DiskStore``. What is written to and shared by hosts, as
  Redis would be, is a remote, which ``Cache`` asks after its stores. Add its scheme to ``PARAMETERS`` in
  ``config/remotes.py``, whose ``RemoteUrl.parse`` so far refuses passwords, and ports except with ``http`` and
  ``https``. Return its client from ``open_bucket`` (``remote/bucket.py``): an object with the attribute ``url`` and the
  methods of ``Bucket``, the only class so far.

What only a miss needs is imported on a miss: a hit must not take longer to import than to load its engine.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trtcache.backends.protocol import ENGINE
from trtcache.compiler.alias_lookup import AliasLookup
from trtcache.config import paused_collector
from trtcache.digests import CacheKey
from trtcache.errors import CanonicalizationError, PartitionError

if TYPE_CHECKING:
    from trtcache.cache import Cache
    from trtcache.frontends.request import Request
    from trtcache.frontends.source import CompileOptions, Source
    from trtcache.lowering.interface import Interface
    from trtcache.runtime import CompiledModule, Report


def compile_source(source: Source, options: CompileOptions, cache: Cache) -> CompiledModule:
    """Compile a source, or load its engines from the cache and set its weights.

    ``report.compile_s`` is left to the caller.

    Raises:
        ExportError: the model cannot be exported, or has something that no engine supports.
        BackendUnavailableError: the backend is unknown or cannot run here.
        SettingsError: a setting or the target is unknown.
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``; the message says why there was no hit.
        BuildError: the build failed.
        BusyError: another process is building the engine, ``on_busy`` is ``eager``, and torch cannot run the program
            or ``require_full_compilation`` is set.
        PartitionError: the settings require one engine, and an operator would stay in torch.
        PassError: a lowering pass broke its contract.
    """
    # 1 and 2. Look the source up; without a hit, export it and look its program up.
    compilation = find_or_export(source, options, cache)

    # 3. A hit has its module already. On a miss: lower, partition, make a key for each engine partition, get or build
    #    each engine, load it, set its weights, and store the key alias for the next time. An ONNX file is not lowered:
    #    it is parsed, and always one partition.
    module = compilation.finish()

    # 4. If a module was exported and direct mode is on (``TRTCACHE_DIRECT=on``), store a manifest, through which the
    #    next process finds the program's alias without an export.
    store_manifest_after_export(source, compilation, module)
    return module


def find_or_export(source: Source, options: CompileOptions, cache: Cache) -> Compilation:
    """Take the first steps of ``compile_source``: the fast path, or else the export and the fast path of its program.

    Raises:
        ExportError: the model cannot be exported.
        BackendUnavailableError: the backend is unknown or cannot run here.
        SettingsError: a setting or the target is unknown.
    """
    # 1. Fast path: fingerprint -> key alias -> entry. Nothing is exported or lowered. An ONNX file is parsed only for
    #    the weights of a refittable plan, or if its bytes do not show where its external data is. The fingerprint of a
    #    ``.pt2`` or ``.onnx`` file is made from its bytes. That of a module is known only with direct mode: if the
    #    module performs the operations of a stored manifest, it is the digest in that manifest. A direct hit returns
    #    here.
    compilation = try_fast_path(source, options, cache)
    if compilation.module is not None:
        return compilation

    # 2. A module's program is unknown until it is exported. The exported program is another source with its own fast
    #    path: an earlier process that exported the same program has stored its alias. A ``.pt2`` or ``.onnx`` file is
    #    not exported.
    exported = source.export(options)
    return compilation if exported is source else try_fast_path(exported, options, cache)


def store_manifest_after_export(source: Source, compilation: Compilation, module: CompiledModule) -> None:
    """Store a manifest of direct mode if a module was exported, and report the outcome of direct mode."""
    was_exported = compilation.source is not source  # find_or_export goes on with the exported program
    if was_exported:
        # Without the program's alias a manifest would be useless: it leads to the alias, not to the engine.
        source.store_manifest(compilation.source, has_alias=compilation.has_alias)
        source.report_direct(module.report, is_hit=False)


@dataclass(slots=True)
class Compilation:
    """A compilation after its fast path was tried.

    Attributes:
        source: the source to compile.
        options: the options of the compilation.
        cache: the cache of entries and aliases.
        lookup: the look-up of the source's key alias; None if the cache has no store, or the source cannot have an
            alias or has to be exported first.
        module: the module from the fast path; None if the source has to be exported or lowered.
        request: the request for the engines, with the lowered program; None before ``prepare``.
    """

    source: Source
    options: CompileOptions
    cache: Cache
    lookup: AliasLookup | None
    module: CompiledModule | None
    request: Request | None = None

    def prepare(self) -> Interface:
        """Lower the program unless the fast path found its engine, and return its interface; nothing is built.

        The integration with ``torch.compile`` calls it before ``finish``.
        """
        if self.module is not None:
            return self.module.interface
        if self.request is None:
            self.request = self.source.request(self.options)
        interface: Interface = self.request.program.interface
        return interface

    @property
    def has_alias(self) -> bool:
        """Whether the source's key alias is stored."""
        return self.lookup is not None and self.lookup.is_stored

    @property
    def key_error(self) -> CanonicalizationError | None:
        """The error of a prepared program that is one engine and has no key; None if it has one."""
        if self.request is None or not self.request.division.is_one_engine or isinstance(self.request.key, CacheKey):
            return None
        return self.request.key

    def finish(self) -> CompiledModule:
        """Return the module of a hit; otherwise build what is not stored, load the engines, and store the key alias."""
        if self.module is not None:
            return self.module
        from trtcache.compiler.entries import build_and_load  # a hit needs none of it

        self.prepare()
        assert self.request is not None  # noqa: S101  # set by prepare
        module = build_and_load(self.request, self.source, self.cache)
        if self.lookup is not None:
            self.lookup.store_after_build(self.request, module.report)
        return module


def try_fast_path(source: Source, options: CompileOptions, cache: Cache) -> Compilation:
    """Return a compilation whose ``module`` is set if the source's key alias led to an engine."""
    source.require_weights()  # raises ExportError for an exported program with fake weights
    with paused_collector():
        # Asks the source for its fingerprint: direct mode replays a module here.
        lookup = AliasLookup.of(source, options, cache)
        module = lookup.load() if lookup is not None else None
    return Compilation(source, options, cache, lookup, module)


def build_source(source: Source, options: CompileOptions, cache: Cache, output: Path | None = None) -> Report:
    """Put the engines of a source into the cache unless they are there, without loading them.

    The source is exported first; direct mode is not used.

    Args:
        source: the source to build.
        options: the options of the build.
        cache: the cache to put entries into.
        output: a file to write the engine to as well.

    Raises:
        ExportError: the model cannot be exported, or has something that no engine supports.
        BackendUnavailableError: the backend is unknown or cannot run here.
        SettingsError: a setting or the target is unknown.
        PartitionError: ``output`` was passed, and the program is not one engine.
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``.
        BuildError: the build failed.
        BusyError: another process is building the engine, and ``on_busy`` is ``eager``.
        OSError: ``output`` cannot be written.
    """
    source = source.export(options)
    lookup = AliasLookup.of(source, options, cache)
    found = lookup.find() if lookup is not None else None
    if lookup is not None and found is not None:
        source.check_content(found.alias.content_digest)
        if output is not None:
            found.entry.write(ENGINE, output)
        return lookup.report(found)
    from trtcache.compiler.entries import get_or_build_entries, new_report
    from trtcache.partition.division import summarize_left

    request = source.request(options)
    if output is not None and not request.division.is_one_engine:
        why = "an output file holds one engine; without an output, all engines are stored in the cache"
        raise PartitionError(request.program.name, why, summarize_left(request.division.left))
    report = new_report(request)
    with tempfile.TemporaryDirectory(prefix="trtcache-build-") as folder:
        entries = get_or_build_entries(request, cache, Path(folder), report)
        if output is not None and entries:
            entries[0].write(ENGINE, output)
    if lookup is not None:
        lookup.store_after_build(request, report)
    return report
