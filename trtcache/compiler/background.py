"""Background builds: a worker process builds while calls run in torch (``on_miss="background"``).

The caller's thread exports the program, since a model must not be called while another thread exports it: of 145 calls
during an export, 32 returned fake tensors. A second thread sends the program to a worker without its weights, waits,
and loads the engine. If several processes of a host need the same program, only one starts a worker: it holds a lock
of the store, which the kernel releases when the worker ends, and the others wait for it.
"""

from __future__ import annotations

import atexit
import copy
import io
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trtcache.cache import Cache
from trtcache.compiler.alias_lookup import AliasLookup
from trtcache.compiler.background_worker import PROGRAM, REQUEST, kill_and_remove
from trtcache.compiler.compile import find_or_export, store_manifest_after_export, try_fast_path
from trtcache.compiler.program_file import KeptOptions, layouts_of, read_flags, without_classes
from trtcache.config.frozen import frozen_dataclass
from trtcache.config.units import ContentionPolicy, format_duration
from trtcache.digests import CacheKey
from trtcache.errors import BuildForbiddenError, CanonicalizationError, LockTimeoutError, TrtcacheError
from trtcache.lowering.operators import live_engines
from trtcache.runtime.background import BackgroundModule
from trtcache.runtime.on_guard import TorchCalls
from trtcache.runtime.report import Report
from trtcache.settings import FROZEN

if TYPE_CHECKING:
    from trtcache.frontends.source import CompileOptions, Source
    from trtcache.runtime import CompiledModule

log = logging.getLogger(__name__)

_POLL_S = 0.2
_HAND_OVER_S = 60.0
_LOCK = "background"
_CHANGES_WEIGHTS = "calls change its weights"


class WorkerError(Exception):
    """A worker did not build the engines; the text says why."""


@frozen_dataclass
class BackgroundBuild:
    """A build of a program's engines by a worker process.

    Attributes:
        source: the program; its model, if it has one, is not used.
        options: the options of the compilation.
        cache: the cache to put the engines into.
        keep_program: whether the worker keeps the program as well.
        handed_over: set once the build no longer needs this process, if it is detached.
        built: the engines that the worker has built, by the digests of their keys: the reason of each miss, and the
            nearest other entry.
    """

    source: Source
    options: CompileOptions
    cache: Cache
    keep_program: bool = False
    handed_over: threading.Event = field(default_factory=threading.Event, compare=False)
    built: dict[str, tuple[str, str]] = field(default_factory=dict, compare=False)

    @property
    def why_not(self) -> str:
        """Why the program cannot be built in the background, or an empty string."""
        if not self.source.is_torch:
            return "torch cannot run it"
        if torch._C._is_any_autocast_enabled():  # decompositions depend on it, and a worker has none
            return "it is compiled under torch.autocast"
        if self.cache.config.forbid_build:
            return "builds are forbidden"
        if self.cache.store is None or not self.cache.store.writable or not self.cache.store.can_store_builds:
            return "a worker needs a cache directory that it can write to"
        program = self.source.program()
        if live_engines(program.graph_module):
            return "it calls an engine of this process"
        if any(isinstance(getattr(spec.arg, "value", None), str) for spec in program.graph_signature.output_specs):
            return "it returns text, and torch cannot load a file of such a program"
        if self.options.settings.weights == FROZEN:
            return "its engine has the values of weights in it, and those may change during the build"
        try:
            read_flags()
        except ValueError as error:
            return str(error)
        return _CHANGES_WEIGHTS if changes_weights(program) else ""

    def run(self, busy: Sequence[str] = ()) -> str:
        """Return when the engines are stored, after a build by a worker unless another process builds them.

        Args:
            busy: key digests of engines that other processes build.

        Returns:
            How they were built.

        Raises:
            WorkerError: the worker failed, or was killed.
            OSError: the request cannot be written, or no process can be started.
        """
        start, has_waited = time.monotonic(), False
        for digest in busy:
            with ExitStack() as stack:
                has_waited |= self._acquire(stack, digest)[1]
        with ExitStack() as stack:
            lock, program = None, self._lock_digest()
            if program is not None:
                lock, waited = self._acquire(stack, program)
                has_waited |= waited
            if has_waited and self._is_stored(busy):
                return f"built by another process in {format_duration(time.monotonic() - start)}"
            return self._run_worker(lock)

    def _is_stored(self, busy: Sequence[str]) -> bool:
        """Return whether what another process has built is all that is needed."""
        cache = self.reading_cache()
        if busy:
            return all(digest in cache for digest in busy)
        lookup = AliasLookup.of(self.source, self.options, cache)
        return lookup is not None and lookup.find() is not None

    def reading_cache(self) -> Cache:
        """Return the cache for what the worker has stored: nothing is built in this process, and no hit is counted."""
        cache = Cache(config=replace(self.cache.config, forbid_build=True, recache=False))
        cache.counts_hits = False
        return cache

    def _lock_digest(self) -> str | None:
        """Return the digest that names the lock of the program and its options; None if its fingerprint fails."""
        try:
            fingerprint = self.source.fingerprint()
        except (ValueError, TrtcacheError):  # each process has its own worker; the locks of the engines remain
            return None
        options = KeptOptions.of(self.options).write().decode()
        parts = {"program": dict(fingerprint or {}), "options": options, "is_subgraph": self.options.is_subgraph}
        return CacheKey.of(_LOCK, parts).digest

    def _acquire(self, stack: ExitStack, digest: str) -> tuple[int | None, bool]:
        """Wait for a build lock and hold it until ``stack`` is closed.

        Returns:
            The lock's file descriptor, None if it cannot be locked; and whether another process held it.
        """
        store, waited = self.cache.store, False
        assert store is not None  # noqa: S101  # see why_not
        while True:
            try:
                return stack.enter_context(store.lock(digest)), waited
            except LockTimeoutError:
                waited = True
                self.handed_over.set()  # another process builds it
                time.sleep(_POLL_S)
            except OSError as error:
                log.warning("building %s without the lock of its worker: %s", self.source.name, error)
                return None, waited

    def _run_worker(self, lock: int | None) -> str:
        is_detached = str(int(self.options.settings.detach))
        worker = ["trtcache.compiler.background_worker", "supervise", str(os.getpid()), is_detached]
        folder, builder, answer = None, None, ""
        try:
            # The process has a session of its own, so that Ctrl-C in a terminal does not reach it.
            with subprocess.Popen(  # noqa: S603  # a module of this package
                [sys.executable, "-W", "ignore", "-m", *worker],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._environ(),
                pass_fds=() if lock is None else (lock,),
                start_new_session=True,
                text=True,
            ) as process:
                assert process.stdin is not None  # noqa: S101  # both are pipes
                assert process.stdout is not None  # noqa: S101
                with process.stdin:
                    line = process.stdout.readline()
                    if not line.endswith("\n"):
                        raise WorkerError("the worker cannot create a temporary folder")
                    folder = Path(line.rstrip("\n"))
                    self._write_request(folder)
                    process.stdin.write("build\n")
                self.handed_over.set()
                first = process.stdout.readline()
                builder = int(first) if first.rstrip().isdecimal() else None
                log.info("%s is built by process %s", self.source.name, builder)
                answer = first if builder is None else process.stdout.readline()
        finally:
            if folder is not None:
                kill_and_remove(folder, builder)  # if the supervisor was killed, it has not done so
        result: dict[str, Any] = json.loads(answer) if answer.endswith("\n") else {"error": "the worker was killed"}
        if "error" in result:
            raise WorkerError(result["error"])
        self.built.update(result["built"])
        return f"built by a worker in {format_duration(result['built_s'])}"

    def correct(self, report: Report) -> None:
        """Report engines that the worker has built as built: this process found them in the store."""
        for part in report.partitions:
            if part.key is not None and part.key.digest in self.built:
                part.outcome, (part.reason, part.why) = "built", self.built[part.key.digest]

    def _write_request(self, folder: Path) -> None:
        options, source = self.options, self.source
        file = source.path
        backend = source.find_backend(options)
        layouts = None
        program = source.program()
        try:
            sent, structures = without_classes(program)
        except CanonicalizationError as error:  # a class of its arguments or results has no stable description
            raise WorkerError(str(error)) from error
        if file is None or structures:  # the worker cannot read a file with classes that it lacks
            file = None
            if not backend.capabilities.can_freeze and all(map(_is_plain, sent.state_dict.values())):
                layouts = layouts_of(sent.state_dict)
            _save(sent, folder / PROGRAM, with_weights=layouts is None)
        request = {
            "name": source.name,
            "file": str(Path(file).absolute()) if file is not None else "",
            "layouts": layouts,
            "structures": structures,
            "flags": read_flags(),
            "export_s": source.export_s,
            "device_type": source.device_type,
            "backend": backend.name,
            "settings": {"build_processes": 1, **options.settings.explicit},
            "target": options.target,
            "is_subgraph": options.is_subgraph,
            "keep_program": self.keep_program,
        }
        (folder / REQUEST).write_text(json.dumps(request))

    def _environ(self) -> dict[str, str]:
        # The worker waits for other processes even if this one does not: no caller waits for the worker.
        config = replace(self.cache.config, busy=ContentionPolicy("wait", self.cache.busy.timeout_s), on_miss="build")
        threads = str(self.options.settings.build_processes or 1)
        return {
            **os.environ,
            **config.variables(),
            "OMP_NUM_THREADS": threads,
            "TORCHINDUCTOR_COMPILE_THREADS": threads,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "TRTCACHE_NO_TORCH": "0",
        }


def _save(program: torch.export.ExportedProgram, path: Path, *, with_weights: bool) -> None:
    """Write a program for the worker, with its weights or with a number for each of them."""
    from trtcache.lowering import TORCH_LOCK

    sent = copy.copy(program)
    sent._example_inputs = None  # users' data
    if not with_weights:
        sent._state_dict = {name: _placeholder(tensor) for name, tensor in program.state_dict.items()}
    data = io.BytesIO()
    try:
        with TORCH_LOCK:
            torch.export.save(sent, data)
    except (RuntimeError, ValueError, TypeError, NotImplementedError, AssertionError) as error:
        raise WorkerError(f"torch cannot send the program to a worker: {error}") from error
    path.write_bytes(data.getbuffer())  # torch's own writer aborts the process where the disk is full (torch 2.13)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return whether zeros of its layout can replace a weight: a plain tensor on the CPU."""
    is_dense = type(tensor) in {torch.Tensor, torch.nn.Parameter} and tensor.layout == torch.strided
    return is_dense and tensor.device.type == "cpu" and not (tensor.is_conj() or tensor.is_neg())


def changes_weights(program: torch.export.ExportedProgram) -> bool:
    """Return whether an operator of a program writes to a weight, or to a view of one.

    The signature of a program names such weights only after its decompositions. Operators that write without saying so
    in their schema, such as ``aten.batch_norm`` in training, are not found: lowering finds all.
    """
    signature = program.graph_signature
    weights = {*signature.inputs_to_parameters, *signature.inputs_to_buffers}
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.is_mutable and _inputs_of(_aliases_of(node, written=True)) & weights:
            return True
    return bool(signature.buffers_to_mutate)


def _inputs_of(values: list[object]) -> set[str]:
    """Return the names of the program's inputs that some values are, or may be views of."""
    waiting = [*values]
    seen: set[torch.fx.Node] = set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, (list, tuple)):
            waiting += value
        elif isinstance(value, torch.fx.Node) and value not in seen:
            seen.add(value)
            waiting += _aliases_of(value)
    return {node.name for node in seen if node.op == "placeholder"}


def _aliases_of(node: torch.fx.Node, *, written: bool = False) -> list[object]:
    """Return the arguments that the result of a node may share memory with, or only those that it writes to."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:  # getitem, or an operator with graphs of its own
        return [*node.all_input_nodes]
    found: list[object] = []
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and (argument.alias_info.is_write or not written):
            found.append(node.args[place] if place < len(node.args) else node.kwargs.get(argument.name))
    return found


def _placeholder(tensor: torch.Tensor) -> torch.Tensor:
    zeros = torch.zeros(1, dtype=tensor.dtype)
    return torch.nn.Parameter(zeros, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else zeros


def compile_or_run_in_torch(
    source: Source,
    build: BackgroundBuild,
    after_load: Callable[[CompiledModule], None],
    resources: ExitStack,
    *,
    use_worker: bool,
) -> CompiledModule:
    """Compile a source, or return a module that runs in torch until a worker or another process has built its engine.

    Args:
        source: the source to compile.
        build: the options of the build; its source is not used.
        after_load: called with the module once its engine is loaded.
        resources: what to close when the source is no longer needed; moved to the thread of a build if one starts.
        use_worker: whether a worker process builds what is missing; otherwise this process or another one does.

    Returns:
        The module of a hit or of a build; or one that runs in torch until its engine is built.

    Raises:
        Exception: as ``compile_source``.
    """
    compilation = find_or_export(source, build.options, build.cache)
    build = replace(build, source=compilation.source)
    why_not = "" if compilation.module is None else "it is a hit"
    why_not = why_not or build.why_not
    if use_worker and not why_not:
        backend = build.source.find_backend(build.options)
        report = Report(
            name=source.name,
            backend=backend.name,
            target=backend.target(build.options.target, build.source.device).label,
            export_s=build.source.export_s,
            route="exported",
            background="its engine is being built; calls run in torch",
        )
        model = _model_of(source, build)
        return _build_for(BackgroundModule(build.source.program(), model, report), source, build, after_load, resources)
    if use_worker:
        log.info("%s is not built in the background: %s", source.name, why_not)
    module = compilation.finish()
    busy = [part.key.digest for part in module.report.partitions if part.reason == "busy" and part.key is not None]
    waits = bool(busy) and not build.why_not
    if not waits:  # else when the engine is stored: only then does the program have a key alias
        store_manifest_after_export(source, compilation, module)
    after_load(module)
    if not waits:
        return module
    module.report.background = "another process builds its engine; calls run in torch"
    waiting = BackgroundModule(build.source.program(), _model_of(source, build), module.report, module)
    return _build_for(waiting, source, build, after_load, resources, busy)


def _model_of(source: Source, build: BackgroundBuild) -> TorchCalls:
    """Return the live model, or the program as a module."""
    is_live = isinstance(source.model, torch.nn.Module) and not isinstance(source.model, torch.jit.ScriptModule)
    model: Any = source.model if is_live else build.source.program().module()
    return TorchCalls(lambda: model)


def _build_for(
    module: BackgroundModule,
    source: Source,
    build: BackgroundBuild,
    after_load: Callable[[CompiledModule], None],
    resources: ExitStack,
    busy: Sequence[str] = (),
) -> BackgroundModule:
    """Start the build of a module's engine, which takes over when it is loaded."""

    def load(how: str) -> None:
        found = try_fast_path(build.source, build.options, build.reading_cache())
        loaded = found.finish()
        store_manifest_after_export(source, found, loaded)
        if any(slot.mutated for slot in loaded.interface.slots):  # which changes_weights has not found
            raise WorkerError(f"{_CHANGES_WEIGHTS}; use on_miss='build'")
        loaded.report.background = how
        build.correct(loaded.report)
        after_load(loaded)
        module.take_over(loaded)
        log.info("%s", module.report)

    BuildThread(build, load, module.fail, resources.pop_all(), busy).start()
    return module


class BuildThread(threading.Thread):
    """Waits for a build, and loads the engine. The process may end meanwhile, but not while it loads."""

    def __init__(
        self,
        build: BackgroundBuild,
        load: Callable[[str], None],
        fail: Callable[[str], None],
        resources: ExitStack,
        busy: Sequence[str] = (),
    ) -> None:
        """Store what to build, and to call with how it was built (``load``) or why it was not (``fail``)."""
        super().__init__(name=f"trtcache: {build.source.name}", daemon=True)
        self._build, self._load, self._fail, self._resources, self._busy = build, load, fail, resources, busy
        self._loading, self._is_ending, self._pid = threading.Lock(), False, os.getpid()
        self._context = copy_context()  # options of Inductor that were set in one thread hold there only (torch 2.13)

    def start(self) -> None:
        """Start the thread; a process that ends hands a detached build over before."""
        atexit.register(self._end)
        super().start()

    def run(self) -> None:
        """Build and load."""
        self._context.run(self._build_and_load)

    def _build_and_load(self) -> None:
        try:
            with self._resources:
                how = self._build.run(self._busy)
                with self._loading:
                    if not self._is_ending:
                        self._load(how)
        except WorkerError as error:
            self._fail(str(error))
        except BuildForbiddenError as error:
            self._fail(f"the worker built its engine under another key: {error.why or error}")
        except Exception as error:
            log.debug("a build in the background failed", exc_info=True)
            self._fail(f"{type(error).__name__}: {error}")
        finally:
            self._build.handed_over.set()
            atexit.unregister(self._end)

    def _end(self) -> None:
        if os.getpid() == self._pid:  # a forked process has no such thread
            self._is_ending = True
            if self._build.options.settings.detach:
                self._build.handed_over.wait(_HAND_OVER_S)
            with self._loading:
                pass
