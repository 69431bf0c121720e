"""Engines for a Dynamo graph, compiled like ``trtcache.compile``."""

from __future__ import annotations

import io
import logging
import sys
import threading
import time
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch._dynamo.convert_frame import compile_lock
from torch._guards import tracing

from trtcache.compiler.compile import try_fast_path
from trtcache.errors import ExportError, InputError
from trtcache.frontends.exported import ModuleSource
from trtcache.frontends.source import CompileOptions
from trtcache.integrations.dynamo.arguments import dynamic_shapes, flat_module, number, read_arguments
from trtcache.integrations.dynamo.instances import Instances
from trtcache.integrations.dynamo.results import read_results
from trtcache.runtime.memory import find_overlap

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from typing import TextIO

    from torch import fx

    from trtcache.cache import Cache
    from trtcache.compiler.compile import Compilation
    from trtcache.integrations.dynamo.arguments import Arguments
    from trtcache.integrations.dynamo.options import GraphReport, Options
    from trtcache.lowering.interface import Interface
    from trtcache.runtime import CompiledModule

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GraphCompiler:
    """Compiles engines for one graph.

    Attributes:
        graph_module: the graph from Dynamo.
        placeholders: its placeholders.
        options: the user's options.
        cache: the cache.
        name: the graph's name.
        report: the graph's report.
    """

    graph_module: fx.GraphModule
    placeholders: Sequence[fx.Node]
    options: Options
    cache: Cache
    name: str
    report: GraphReport

    def engine(self, call: Sequence[Any]) -> GraphEngine:
        """Return an engine for calls like this one.

        Raises:
            TrtcacheError: see ``trtcache.compile``; also ``CanonicalizationError`` for a graph without a key.
        """
        return GraphEngine(self, call)

    def prepare(self, arguments: Arguments, call: Sequence[Any]) -> Compilation:
        """Start to compile the graph as a module that contains the weights of a call."""
        results = read_results(self.graph_module, arguments)
        flat = flat_module(self.graph_module, arguments, call, results.computed)
        with capture_messages(log):
            # Detach: torch.export removes mark_dynamic's marks from its examples, and Dynamo guards them.
            # Resolve lazy conjugation and negation, as for an engine's inputs.
            inputs = tuple(call[place].detach().resolve_conj().resolve_neg() for place in arguments.inputs)
            shapes = dynamic_shapes(self.graph_module, arguments)
            source = ModuleSource(flat, inputs, None, shapes, name=self._label(arguments, call))
            options = CompileOptions(self.options.backend, self.options.settings, self.options.target, is_subgraph=True)
            compilation = try_fast_path(source.export(options), options, self.cache)
            compilation.prepare()
            return compilation

    def _label(self, arguments: Arguments, call: Sequence[Any]) -> str:
        """Return the graph's name with the numbers that the engine is specialised on."""
        numbers = [f"{self.placeholders[place].name} = {number(call[place])}" for place in arguments.numbers]
        return f"{self.name} ({', '.join(numbers)})" if numbers else self.name


class GraphEngine:
    """An engine for a graph, with an instance for each set of weights that calls pass.

    Attributes:
        numbers: the indices of numbers that the engine is specialised on.
        fixed: the input dimensions, by index, that are dynamic in Dynamo but not in the engine.
    """

    def __init__(self, compiler: GraphCompiler, call: Sequence[Any]) -> None:
        """Compile the engine for a call, with that call's weights."""
        self._compiler = compiler
        self._arguments, compilation = _prepare(compiler, call)
        self.numbers = self._arguments.numbers
        self._results = read_results(compiler.graph_module, self._arguments)
        self._lends = bool(self._results.lent)
        interface = compilation.prepare()
        self.fixed = _specialized_dims(compiler.placeholders, self._arguments, interface)
        self._find_changed = frozenset(
            self._arguments.inputs[one.target]
            for one in interface.results
            if one.kind == "input" and one.target is not None
        )
        self._first: Compilation | None = compilation
        self._instances = Instances(self._arguments.weights, self._compile_instance, compiler.report)
        self._instances.find(call)
        self._first = None

    def __call__(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Return the graph's results.

        Raises:
            InputError: the engine does not accept these arguments; nothing ran.
        """
        if self._find_changed:
            self._check_apart(args)
        if self._lends:
            self._results.check_strides(args)
        module = self._instances.find(args)
        computed = module(*[args[place] for place in self._arguments.inputs])
        return computed if self._results.are_computed else self._results.make(args, computed)

    def _check_apart(self, args: Sequence[Any]) -> None:
        """Reject a call that modifies an argument sharing a weight's memory, which the engine reads before."""
        if found := find_overlap(
            self._find_changed, {place: args[place] for place in (*self._find_changed, *self._arguments.weights)}
        ):
            changed, other = (self._compiler.placeholders[place].name for place in found)
            expected = f"memory of its own: a call changes argument {changed}"
            raise InputError(f"argument {other}", expected, "a tensor that shares it")

    def _compile_instance(self, call: Sequence[Any]) -> CompiledModule:
        start = time.perf_counter()
        with _outside_of_dynamo():
            compilation = self._first or self._compiler.prepare(self._arguments, call)
            module = compilation.finish()
        report = module.report
        report.compile_s = time.perf_counter() - start
        self._compiler.report.engines.append(report)
        log.info("%s", report)
        return module


def _prepare(compiler: GraphCompiler, call: Sequence[Any]) -> tuple[Arguments, Compilation]:
    """Return the arguments' roles and the started compilation; start again if calls modify weights."""
    with _outside_of_dynamo():
        arguments, compilation = _begin(compiler, call)
        if changed := _find_changed(arguments, compilation.prepare(), call):
            fixed = set(arguments.numbers) & {place for place, one in enumerate(call) if isinstance(one, torch.Tensor)}
            arguments = read_arguments(compiler.placeholders, call, changed=changed, fixed=fixed)
            compilation = compiler.prepare(arguments, call)
    if compilation.why_no_key:
        raise compilation.why_no_key
    return arguments, compilation


def _begin(compiler: GraphCompiler, call: Sequence[Any]) -> tuple[Arguments, Compilation]:
    """Start with fractions as inputs; if that fails, for example if one is compared, specialise on them."""
    arguments = read_arguments(compiler.placeholders, call)
    try:
        return arguments, compiler.prepare(arguments, call)
    except ExportError:
        if not arguments.fractions:
            raise
    log.debug("%s: fractions cannot be inputs", compiler.name, exc_info=True)
    arguments = read_arguments(compiler.placeholders, call, fixed=arguments.fractions)
    return arguments, compiler.prepare(arguments, call)


def _find_changed(arguments: Arguments, interface: Interface, call: Sequence[Any]) -> Collection[int]:
    """Return the indices of weights that calls modify, and of those that share their memory."""
    names = {name for slot in interface.slots if slot.mutated for name in slot.names}
    memories = {_memory(call[place]) for place, name in arguments.weights.items() if name in names}
    return [place for place in arguments.weights if _memory(call[place]) in memories]


def _memory(tensor: torch.Tensor) -> int:
    address: int = tensor.untyped_storage()._cdata
    return address


def _specialized_dims(
    placeholders: Sequence[fx.Node], arguments: Arguments, interface: Interface
) -> tuple[tuple[int, int], ...]:
    """Return the sizes that are dynamic in Dynamo but not in the lowered program."""
    found = []
    for spec in interface.inputs:
        place = arguments.inputs[spec.leaf]
        given = placeholders[place].meta["example_value"].shape
        found += [
            (place, dim)
            for dim, (size, lowered) in enumerate(zip(given, spec.shape, strict=True))
            if type(size) is not int and isinstance(lowered, int)
        ]
    return tuple(found)


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
    """Keep what one thread writes, and forward what others write."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream, self._thread = stream, threading.get_ident()
        self.kept: list[str] = []

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
        for logger in loggers:
            logger.removeFilter(capture.filter)
        if messages := "".join(capture.kept).strip():
            log.debug("messages of torch: %s", messages)
