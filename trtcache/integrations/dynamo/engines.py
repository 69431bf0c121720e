"""Engines for a Dynamo graph, through the same preparing and compiling as ``trtcache.compile``."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch._dynamo.convert_frame import compile_lock
from torch._guards import tracing

from trtcache.compiler.compile import begin
from trtcache.errors import ExportError, InputError
from trtcache.integrations.dynamo.arguments import number, read_arguments
from trtcache.integrations.dynamo.flat import dynamic_shapes, flat_module
from trtcache.integrations.dynamo.instances import Instances
from trtcache.integrations.dynamo.remarks import remarks_aside
from trtcache.integrations.dynamo.results import read_results
from trtcache.runtime.memory import find_overlap

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from torch import fx

    from trtcache.cache import Cache
    from trtcache.compiler.compile import Compilation
    from trtcache.integrations.dynamo.arguments import Arguments
    from trtcache.integrations.dynamo.options import Options
    from trtcache.integrations.dynamo.reports import GraphReport
    from trtcache.lowering.interface import Interface
    from trtcache.runtime import CompiledModule

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Workshop:
    """What is needed to make engines for a graph.

    Attributes:
        graph_module: the graph, as Dynamo gave it.
        placeholders: its placeholders.
        options: what the user asked for.
        cache: where engines are kept.
        name: what people call the graph.
        report: where to note what was done.
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
            TrtcacheError: as ``trtcache.compile``; also ``CanonicalizationError`` for a graph that has no key.
        """
        return GraphEngine(self, call)

    def prepare(self, arguments: Arguments, call: Sequence[Any]) -> Compilation:
        """Begin to compile the graph as a module with the weights of a call in it."""
        results = read_results(self.graph_module, arguments)
        flat = flat_module(self.graph_module, arguments, call, results.computed)
        with remarks_aside(log):
            return begin(
                flat,
                # Other objects: torch.export takes the marks of mark_dynamic off its examples, and Dynamo guards them.
                # And as an engine gets them: with what torch has put off, conjugating and negating, done.
                tuple(call[place].detach().resolve_conj().resolve_neg() for place in arguments.inputs),
                dynamic_shapes=dynamic_shapes(self.graph_module, arguments),
                backend=self.options.backend,
                settings=self.options.settings,
                target=self.options.target,
                cache=self.cache,
                name=self._label(arguments, call),
            )

    def _label(self, arguments: Arguments, call: Sequence[Any]) -> str:
        """Return the graph's name, and the numbers that the engine is made for."""
        numbers = [f"{self.placeholders[place].name} = {number(call[place])}" for place in arguments.numbers]
        return f"{self.name} ({', '.join(numbers)})" if numbers else self.name


class GraphEngine:
    """A graph as an engine, with an instance for each set of weights that calls come with.

    Attributes:
        numbers: the places of numbers that the engine was made for.
        fixed: the dimensions of inputs, by place, that Dynamo lets vary and the engine does not.
    """

    def __init__(self, workshop: Workshop, call: Sequence[Any]) -> None:
        """Make the engine for a call, with that call's weights."""
        self._workshop = workshop
        self._arguments, compilation = _prepared(workshop, call)
        self.numbers = self._arguments.numbers
        self._results = read_results(workshop.graph_module, self._arguments)
        self._lends = bool(self._results.lent)
        interface = compilation.interface
        self.fixed = _fixed(workshop.placeholders, self._arguments, interface)
        self._changed = frozenset(
            self._arguments.inputs[one.target]
            for one in interface.results
            if one.kind == "input" and one.target is not None
        )
        self._first: Compilation | None = compilation
        self._instances = Instances(self._arguments.weights, self._made, workshop.report)
        self._instances.find(call)
        self._first = None

    def __call__(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Return the graph's results.

        Raises:
            InputError: the engine does not take these arguments; nothing was run.
        """
        if self._changed:
            self._check_apart(args)
        if self._lends:
            self._results.check_strides(args)
        module = self._instances.find(args)
        computed = module(*[args[place] for place in self._arguments.inputs])
        return computed if self._results.are_computed else self._results.make(args, computed)

    def _check_apart(self, args: Sequence[Any]) -> None:
        """Refuse a call that changes an argument in the memory of a weight, which the engine reads before."""
        if found := find_overlap(
            self._changed, {place: args[place] for place in (*self._changed, *self._arguments.weights)}
        ):
            changed, other = (self._workshop.placeholders[place].name for place in found)
            expected = f"memory of its own: a call changes argument {changed}"
            raise InputError(f"argument {other}", expected, "a tensor that shares it")

    def _made(self, call: Sequence[Any]) -> CompiledModule:
        start = time.perf_counter()
        with _outside_of_dynamo():
            compilation = self._first or self._workshop.prepare(self._arguments, call)
            module = compilation.module()
        report = module.report
        report.compile_s = time.perf_counter() - start
        self._workshop.report.engines.append(report)
        log.info("%s", report)
        return module


def _prepared(workshop: Workshop, call: Sequence[Any]) -> tuple[Arguments, Compilation]:
    """Return what the arguments are, and the graph as far as it is known; once more if calls change weights.

    Raises:
        ExportError: the graph cannot be lowered.
        CanonicalizationError: the graph has no key.
    """
    with _outside_of_dynamo():
        arguments, compilation = _begun(workshop, call)
        if changed := _changed(arguments, compilation.interface, call):
            fixed = set(arguments.numbers) & {place for place, one in enumerate(call) if isinstance(one, torch.Tensor)}
            arguments = read_arguments(workshop.placeholders, call, changed=changed, fixed=fixed)
            compilation = workshop.prepare(arguments, call)
    if compilation.keyless:
        raise compilation.keyless
    return arguments, compilation


def _begun(workshop: Workshop, call: Sequence[Any]) -> tuple[Arguments, Compilation]:
    """Begin with fractions as inputs; where that fails, as for one that is compared, for their values."""
    arguments = read_arguments(workshop.placeholders, call)
    try:
        return arguments, workshop.prepare(arguments, call)
    except ExportError:
        if not arguments.fractions:
            raise
    log.debug("%s: fractions cannot be inputs", workshop.name, exc_info=True)
    arguments = read_arguments(workshop.placeholders, call, fixed=arguments.fractions)
    return arguments, workshop.prepare(arguments, call)


def _changed(arguments: Arguments, interface: Interface, call: Sequence[Any]) -> Collection[int]:
    """Return the places of weights that calls change, and of those that lie in the same memory."""
    names = {name for slot in interface.slots if slot.mutated for name in slot.names}
    memories = {_memory(call[place]) for place, name in arguments.weights.items() if name in names}
    return [place for place in arguments.weights if _memory(call[place]) in memories]


def _memory(tensor: torch.Tensor) -> int:
    address: int = tensor.untyped_storage()._cdata
    return address


def _fixed(placeholders: Sequence[fx.Node], arguments: Arguments, interface: Interface) -> tuple[tuple[int, int], ...]:
    """Return which sizes Dynamo lets vary and the lowered program does not."""
    found = []
    for one in interface.inputs:
        place = arguments.inputs[one.leaf]
        given = placeholders[place].meta["example_value"].shape
        found += [
            (place, dim)
            for dim, (size, lowered) in enumerate(zip(given, one.shape, strict=True))
            if type(size) is not int and isinstance(lowered, int)
        ]
    return tuple(found)


@contextmanager
def _outside_of_dynamo() -> Iterator[None]:
    """Export without the fake tensors, the inference mode and the gradients of the compilation around it.

    And without one in another thread, by the lock that Dynamo has: an engine for another number, made while another
    thread compiled, made torch raise there that sizes are "not tracked with proxy".
    """
    with compile_lock, tracing(None), torch.inference_mode(False), torch.no_grad():
        yield
