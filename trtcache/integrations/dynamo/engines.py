"""Engines for a Dynamo graph, compiled like ``trtcache.compile``: one instance for each set of weights that calls pass.

Dynamo compiles a graph once for all modules that share the same code, and passes the current module's weights to each
call. They are identified by object identity; by address, since ``weight.data = other`` changes neither the object nor
a Dynamo guard; by strides, whose guards a caller can disable; and, for weights that an engine copied, by value or
torch's version counter.
"""

from __future__ import annotations

import io
import itertools
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch._dynamo.convert_frame import compile_lock
from torch._guards import tracing

from trtcache.compiler.compile import Compilation, try_fast_path
from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import ExportError, InputError, RefitError
from trtcache.frontends.exported import ModuleSource
from trtcache.frontends.source import CompileOptions
from trtcache.integrations.dynamo.calls import (
    Arguments,
    dynamic_shapes,
    flat_module,
    number,
    read_arguments,
    read_results,
    regions,
    value_of,
)
from trtcache.runtime.inputs import find_overlap
from trtcache.weights.fingerprints import Snapshot
from trtcache.weights.slots import storage_id

if TYPE_CHECKING:
    from typing import TextIO

    from torch import fx

    from trtcache.cache import Cache
    from trtcache.integrations.torch_compile import GraphReport, Options
    from trtcache.runtime import CompiledModule

log = logging.getLogger(__name__)

MAX_INSTANCES = 256
"""Maximum number of instances per graph. With more identical blocks than this, each call of one loads an engine."""


class Instance:
    """A compiled module and the identity of its weights."""

    __slots__ = ("copied", "last_used", "module", "owners", "placements")

    def __init__(self, module: CompiledModule, weights: Sequence[torch.Tensor], names: Sequence[str]) -> None:
        """Record the identity of the weights, which are in the order of the graph's arguments."""
        self.module = module
        self.placements = placements_of(weights)
        copied = module.find_copied(dict(zip(names, weights, strict=True)))
        self.copied = Snapshot(weight for name, weight in zip(names, weights, strict=True) if name in copied)
        self.owners: list[weakref.ref[torch.Tensor]] = []
        self.last_used = 0

    def holds(self, weights: Sequence[torch.Tensor]) -> bool:
        """Return whether the engine has the current values of these weights; the caller compares object identity."""
        return placements_of(weights) == self.placements and self.copied.is_current()


def placements_of(weights: Sequence[torch.Tensor]) -> tuple[object, ...]:
    """Return addresses and strides. Every call does this, so ``map`` keeps the loops in C."""
    return (*map(torch.Tensor.data_ptr, weights), *map(torch.Tensor.stride, weights))


class Instances:
    """Find the instance that holds a call's weights, or create it."""

    def __init__(
        self, names: Mapping[int, str], make: Callable[[Sequence[Any]], CompiledModule], report: GraphReport
    ) -> None:
        """Start without instances.

        Args:
            names: the indices of weights among the arguments, with the module's names.
            make: compiles a module for the arguments of a call; called for the first one, and for weights that do not
                fit the last engine.
            report: the report that counts sets of weights.
        """
        self._places, self._names = tuple(names), tuple(names.values())
        self._make, self._report = make, report
        self._instances: dict[tuple[int, ...], Instance] = {}
        self._last: CompiledModule | None = None
        self._lock = threading.Lock()
        self._clock = itertools.count(1)

    def start_from(self, module: CompiledModule) -> None:
        """Derive the next instance from this module: the weights of a call replace its own."""
        with self._lock:
            self._last = module

    def find(self, args: Sequence[Any]) -> CompiledModule:
        """Return the module that holds the weights of a call."""
        weights = [args[place] for place in self._places]
        key = tuple(map(id, weights))
        instance = self._instances.get(key)
        if instance is None or not instance.holds(weights):
            instance = self._add(args, weights, key)
        instance.last_used = next(self._clock)
        return instance.module

    def _add(self, args: Sequence[Any], weights: list[torch.Tensor], key: tuple[int, ...]) -> Instance:
        with self._lock:
            previous = self._instances.get(key)
            if previous is not None and previous.holds(weights):  # another thread has added it
                return previous
            module = None
            if self._last is not None:
                with suppress(RefitError):
                    module = self._last.with_weights(dict(zip(self._names, weights, strict=True)))
            instance = Instance(self._make(args) if module is None else module, weights, self._names)
            instance.owners = [weakref.ref(weight, self._forget(key)) for weight in weights]
            if previous is None and len(self._instances) >= MAX_INSTANCES:
                self._instances.pop(min(list(self._instances.items()), key=lambda item: item[1].last_used)[0], None)
            self._instances[key] = instance
            # Keep an engine to derive others from when its weights die, as after load_state_dict(assign=True).
            self._last = instance.module
            self._report.weight_sets += 1
            return instance

    def _forget(self, key: tuple[int, ...]) -> Callable[[weakref.ref[torch.Tensor]], None]:
        instances = self._instances

        def forget(owner: weakref.ref[torch.Tensor]) -> None:
            instance = instances.get(key)
            if instance is not None and any(one is owner for one in instance.owners):
                instances.pop(key, None)

        return forget


@frozen_dataclass
class GraphCompiler:
    """Compiles engines for one graph."""

    graph_module: fx.GraphModule
    placeholders: Sequence[fx.Node]
    options: Options
    cache: Cache
    name: str
    report: GraphReport

    def prepare(self, arguments: Arguments, call: Sequence[Any]) -> Compilation:
        """Start to compile the graph as a module that contains the weights of a call."""
        results = read_results(self.graph_module, arguments)
        flat = flat_module(self.graph_module, arguments, call, results.computed)
        numbers = [f"{self.placeholders[place].name} = {number(call[place])}" for place in arguments.numbers]
        name = f"{self.name} ({', '.join(numbers)})" if numbers else self.name
        with capture_messages(log), regions():
            # Detach: torch.export removes mark_dynamic's marks from its examples, and Dynamo guards them.
            # Resolve lazy conjugation and negation, as for an engine's inputs.
            inputs = tuple(call[place].detach().resolve_conj().resolve_neg() for place in arguments.inputs)
            source = ModuleSource(flat, inputs, None, dynamic_shapes(self.graph_module, arguments), name=name)
            options = CompileOptions(self.options.backend, self.options.settings, self.options.target, is_subgraph=True)
            compilation = try_fast_path(source.export(options), options, self.cache)
            compilation.prepare()
            return compilation


class GraphEngine:
    """An engine for a graph, with an instance for each set of weights that calls pass.

    Attributes:
        numbers: the indices of numbers that the engine is specialised on.
        fixed: the input dimensions, by index, that are dynamic in Dynamo but not in the engine.
    """

    def __init__(self, compiler: GraphCompiler, call: Sequence[Any], fail: Callable[[str], None]) -> None:
        """Compile the engine for a call, with that call's weights; or start to build it in the background.

        Args:
            compiler: compiles the graph.
            call: the arguments of the call.
            fail: takes the reason why a build in the background failed.

        Raises:
            CanonicalizationError: the graph has no key.
        """
        self._compiler = compiler
        self._arguments, compilation = _prepare(compiler, call)
        self.numbers = self._arguments.numbers
        self._results = read_results(compiler.graph_module, self._arguments)
        self._shares_memory = bool(self._results.shared)
        modes = compiler.graph_module.graph.find_nodes(op="call_function", target=torch._C._set_grad_enabled)
        self._grad_mode = modes[-1].args[0] if modes else None
        interface = compilation.prepare()
        fixed = []
        for spec in interface.inputs:
            place = self._arguments.inputs[spec.leaf]
            given = value_of(compiler.placeholders[place]).shape
            fixed += [
                (place, dim)
                for dim, (size, lowered) in enumerate(zip(given, spec.shape, strict=True))
                if type(size) is not int and isinstance(lowered, int)
            ]
        self.fixed = tuple(fixed)
        self._changed = frozenset(
            self._arguments.inputs[result.target]
            for result in interface.results
            if result.kind == "input" and result.target is not None
        )
        self._first: Compilation | None = compilation
        self._instances = Instances(self._arguments.weights, self._compile_instance, compiler.report)
        on_miss = compiler.options.settings.on_miss or compiler.cache.config.on_miss
        self._is_built = on_miss != "background" or not self._start_worker(compilation, fail)
        if self._is_built:
            self._instances.find(call)
        self._first = None

    def _start_worker(self, compilation: Compilation, fail: Callable[[str], None]) -> bool:
        """Start a background build; return whether one is needed and possible."""
        from trtcache.compiler.background import BackgroundBuild, BuildThread  # a hit needs none of it

        build = BackgroundBuild(compilation.source, compilation.options, compilation.cache)
        if compilation.module is not None or build.why_not:
            return False

        def load(how: str) -> None:
            start = time.perf_counter()
            module = replace(compilation, cache=build.reading_cache()).finish()
            module.report.background = how
            build.correct(module.report)
            self._add_report(module, start)
            # Its weights are those of the first call: each call's are put into a module derived from it.
            self._instances.start_from(module)
            self._is_built = True

        BuildThread(build, load, fail, ExitStack()).start()
        return True

    def __call__(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Return the graph's results.

        Raises:
            InputError: the engine does not accept these arguments; nothing ran.
        """
        if not self._is_built:
            results: tuple[Any, ...] = self._compiler.graph_module(*args)
            return results
        if self._changed:
            # Reject a modified argument that overlaps a weight or another modified argument: the engine reads all of
            # them before it changes any.
            tensors = {place: args[place] for place in (*self._changed, *self._arguments.weights)}
            if overlap := find_overlap(self._changed, tensors):
                changed, other = (self._compiler.placeholders[place].name for place in overlap)
                expected = f"memory of its own: a call changes argument {changed}"
                raise InputError(f"argument {other}", expected, "a tensor that shares it")
        if self._shares_memory:
            self._results.check_strides(args)
        module = self._instances.find(args)
        computed = module(*[args[place] for place in self._arguments.inputs])
        results = self._results.make(args, computed)
        if self._grad_mode is not None:  # the graph may end in another mode than it began in
            torch._C._set_grad_enabled(self._grad_mode)
        return results

    def _compile_instance(self, call: Sequence[Any]) -> CompiledModule:
        start = time.perf_counter()
        with _outside_of_dynamo():
            compilation = self._first or self._compiler.prepare(self._arguments, call)
            module = compilation.finish()
        self._add_report(module, start)
        return module

    def _add_report(self, module: CompiledModule, start: float) -> None:
        module.report.compile_s = time.perf_counter() - start
        self._compiler.report.engines.append(module.report)
        log.info("%s", module.report)


def _prepare(compiler: GraphCompiler, call: Sequence[Any]) -> tuple[Arguments, Compilation]:
    """Return the arguments' roles and the started compilation."""
    with _outside_of_dynamo():
        # Start with fractions as inputs; if that fails, for example if one is compared, specialise on them.
        arguments = read_arguments(compiler.placeholders, call)
        try:
            compilation = compiler.prepare(arguments, call)
        except ExportError:
            if not arguments.fractions:
                raise
            log.debug("%s: fractions cannot be inputs", compiler.name, exc_info=True)
            arguments = read_arguments(compiler.placeholders, call, fixed=arguments.fractions)
            compilation = compiler.prepare(arguments, call)
        # If calls modify weights, start again: those and all weights that share their memory become inputs.
        names = {name for slot in compilation.prepare().slots if slot.mutated for name in slot.names}
        memories = {storage_id(call[place]) for place, name in arguments.weights.items() if name in names}
        if changed := [place for place in arguments.weights if storage_id(call[place]) in memories]:
            fixed = set(arguments.numbers) & {place for place, one in enumerate(call) if isinstance(one, torch.Tensor)}
            arguments = read_arguments(compiler.placeholders, call, changed=changed, fixed=fixed)
            compilation = compiler.prepare(arguments, call)
    if compilation.key_error:
        raise compilation.key_error
    return arguments, compilation


@contextmanager
def _outside_of_dynamo() -> Iterator[None]:
    """Export without the fake tensors, inference mode and gradients of the surrounding compilation.

    Hold Dynamo's lock, so that no other thread compiles: otherwise torch raised there that sizes are "not tracked with
    proxy".
    """
    with compile_lock, tracing(None), torch.inference_mode(False), torch.no_grad():
        yield


_LOGGERS = ("torch.export._trace", "torch.fx.experimental.symbolic_shapes")


class _Capture(io.TextIOBase):
    """Keep what one thread writes until the end, and forward the rest: others may keep this as their standard error."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._thread: int | None = threading.get_ident()
        self.kept: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)  # such as buffer

    @property
    def encoding(self) -> str:  # type: ignore[override]  # an attribute there
        return str(getattr(self._stream, "encoding", "utf-8"))

    def fileno(self) -> int:
        return super().fileno() if self._stream is None else self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def end(self) -> None:
        """Forward everything from now on."""
        self._thread = None

    def is_mine(self) -> bool:
        return threading.get_ident() == self._thread

    def write(self, text: str) -> int:
        if self.is_mine():
            self.kept.append(text)
        elif self._stream is not None:
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        if self._stream is not None:
            self._stream.flush()

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep a record of this thread as a line, and let others pass."""
        if self.is_mine():
            self.kept.append(f"{record.getMessage()}\n")
        return not self.is_mine()


@contextmanager
def capture_messages(log: logging.Logger) -> Iterator[None]:
    """Redirect this thread's messages of torch from standard error to a log at DEBUG."""
    capture = _Capture(sys.stderr)
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(capture.filter)
    try:
        with redirect_stderr(capture):
            yield
    finally:
        capture.end()
        for logger in loggers:
            logger.removeFilter(capture.filter)
        if messages := "".join(capture.kept).strip():
            log.debug("messages of torch: %s", messages)
