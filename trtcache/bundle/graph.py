"""The graph of a program file: a module of engines and torch operators, exported by ``torch.export``.

The module calls engines as placeholder operators, and everything else as in torch. So the exported program has the
model's names, signature and structure, lifted weights, mutations and ranges like any other. An engine is a call of
``trtcache::execute_engine``, with short tokens as arguments during tracing: strings of megabytes would become part of
the code that torch generates for a graph.
"""

from __future__ import annotations

import inspect
import io
import itertools
import json
import logging
import random
import warnings
import zipfile
from typing import TYPE_CHECKING, Any

import torch
from torch.export import Dim
from torch.utils import _pytree as pytree

from trtcache.bundle.signature import without_classes
from trtcache.errors import ProgramFileError
from trtcache.lowering.expressions import affine, evaluate
from trtcache.lowering.tracing_lock import ALONE
from trtcache.partition.partitions import EnginePartition
from trtcache.partition.wires import ConstantWire, InputWire, PartitionOutput, SizeTensor, SizeWire, WeightWire
from trtcache.runtime.guards import failed_guard
from trtcache.runtime.inputs import bind_sizes, evaluate_size
from trtcache.runtime.operator import specs_of, with_carriers
from trtcache.weights.recipes import evaluate as evaluate_recipe
from trtcache.weights.slots import contiguous, weight_map

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch.export import ExportedProgram

    from trtcache.bundle.engines import EnginePayload
    from trtcache.bundle.export import ProgramContents
    from trtcache.digests import Json
    from trtcache.lowering.interface import Interface, TensorInput
    from trtcache.partition.wires import Wire

_VARIABLE = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}

TOKEN = "engine:"  # noqa: S105  # prefix of an engine's placeholder text during tracing


class TracedProgram:
    """A program of engines and torch operators, with the model's weights under the model's names.

    Attributes:
        module: the module to trace. It has only the model's attributes: any name may be a weight's.
        constants: the name in the module of each constant (``c0``).
    """

    def __init__(self, outgoing: ProgramContents, payloads: Mapping[int, torch.Tensor]) -> None:
        """Register weights and constants.

        Args:
            outgoing: the program.
            payloads: placeholders of engines stored as constants, by partition number: tensors of their sizes.
        """
        self.module = torch.nn.Module()
        self._outgoing = outgoing
        self._interface: Interface = outgoing.executable.interface
        self.constants: dict[str, str] = {}
        for slot in self._interface.slots:
            tensor = outgoing.weights[slot.index]
            is_parameter = bool(outgoing.parameters & set(slot.names)) and not slot.mutated
            made = torch.nn.Parameter(tensor, requires_grad=False) if is_parameter else tensor
            for name in slot.names:
                register_tensor(self.module, name, made, persistent=not slot.transient)
        for name in sorted(_constants_used(outgoing)):
            self.constants[name] = self._constant(name, outgoing)
        for number, payload in payloads.items():
            self.module.register_buffer(payload_name(number), payload, persistent=False)
        self._payloads = frozenset(payloads)
        self.module.forward = self._make_forward()  # with the model's own signature

    def _constant(self, name: str, outgoing: ProgramContents) -> str:
        """Register a constant, under the model's own name if it has one."""
        place = list(outgoing.executable.constants).index(name)
        digest = self._interface.constants[place]
        own = [one for one, content in outgoing.executable.sources.items() if content.digest == digest]
        chosen = own[0] if own and not _is_taken(self.module, own[0]) else f"constant_{name}"
        register_tensor(self.module, chosen, outgoing.executable.constants[name], persistent=False)
        return chosen

    def _make_forward(self) -> Any:
        def forward(*args: Any, **kwargs: Any) -> Any:
            return self._answer(args, kwargs)

        vars(forward)["__signature__"] = signature_of(self._outgoing)
        return forward

    def _answer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = self._outgoing.call
        numbers = [(one.leaf, one.device) for one in self._interface.inputs if one.number]
        leaves = with_carriers(call.flatten(args, kwargs), numbers)
        inputs = [leaves[one.leaf] for one in self._interface.inputs]
        if self._outgoing.division.is_whole:
            outputs, stores = self._whole(inputs)
        else:
            outputs, stores = _Run(self, self._outgoing, inputs).outputs()
        results = self._collect_results(outputs, leaves)
        for name, value in stores:
            self.tensor(name).copy_(value)
        return pytree.tree_unflatten(results, call.out_spec)

    def _collect_results(self, outputs: Sequence[torch.Tensor], leaves: Sequence[Any]) -> list[Any]:
        results: list[Any] = []
        remaining = iter(outputs)
        for result in self._interface.results:
            if result.kind == "value":
                results.append(result.value)
            elif result.kind == "size":
                inputs = self._interface.inputs
                sizes = bind_sizes(inputs, [leaves[taken.leaf] for taken in inputs])
                results.append(evaluate_size(result.value, sizes))
            elif result.kind == "number":
                results.append(next(remaining).item())
            elif result.kind == "input":
                leaves[result.target or 0].copy_(next(remaining))
            else:
                results.append(next(remaining))
        return results

    def _whole(self, inputs: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], list[tuple[str, torch.Tensor]]]:
        """Call the only engine; new contents of modified weights follow its results."""
        outputs = self.engine(0, self._interface, inputs)
        changed = [slot for slot in self._interface.slots if slot.mutated]
        count = len(outputs) - len(changed)
        return outputs[:count], [(slot.names[0], one) for slot, one in zip(changed, outputs[count:], strict=True)]

    def engine(self, number: int, interface: Interface, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Call the placeholder of an engine."""
        weights = [self.tensor(slot.names[0]) for slot in interface.slots]
        if number in self._payloads:
            weights.append(self.tensor(payload_name(number)))
        input_spec, output_spec = specs_of(interface, changed=True)
        made: list[torch.Tensor] = torch.ops.trtcache.execute_engine(
            list(inputs), weights, f"{TOKEN}{number}", "", "", input_spec, output_spec
        )
        return made

    def tensor(self, name: str) -> torch.Tensor:
        """Return a weight or constant by name."""
        path, _, last = name.rpartition(".")
        found: torch.Tensor = getattr(self.module.get_submodule(path), last)
        return found


class _Run:
    """One call of a partitioned program, value by value."""

    def __init__(self, traced: TracedProgram, outgoing: ProgramContents, inputs: Sequence[torch.Tensor]) -> None:
        self._traced, self._outgoing = traced, outgoing
        self._interface = outgoing.executable.interface
        self._values: dict[Wire, Any] = {InputWire(place): one for place, one in enumerate(inputs)}
        self._sizes = bind_sizes(self._interface.inputs, inputs)
        self._weights = {one.name: one for one in self._interface.weights}

    def outputs(self) -> tuple[list[torch.Tensor], list[tuple[str, torch.Tensor]]]:
        """Return results, and the new contents of weights by the model's names."""
        division = self._outgoing.division
        for number, part in enumerate(division.parts):
            taken = [self._value(wire) for wire in part.takes]
            if isinstance(part, EnginePartition):
                made: Sequence[Any] = self._traced.engine(number, part.program.interface, taken)
            else:
                made = part.call(*taken)
            for place, value in enumerate(made):
                self._values[PartitionOutput(number, place)] = value
        stores = [(self._weights[name].slots[0].names[0], self._value(wire)) for name, wire in division.stores]
        return [self._value(wire) for wire in division.results], stores

    def _value(self, wire: Wire) -> Any:
        if wire not in self._values:
            self._values[wire] = self._compute(wire)
        return self._values[wire]

    def _compute(self, wire: Wire) -> Any:
        match wire:
            case WeightWire(name):
                weight = self._weights[name]
                return evaluate_recipe(
                    weight.recipe, {slot.index: self._traced.tensor(slot.names[0]) for slot in weight.slots}
                )
            case ConstantWire(name):
                return self._traced.tensor(self._traced.constants[name])
            case SizeWire(text):
                return evaluate(json.loads(text), self._sizes)
            case SizeTensor(size):
                count = evaluate(json.loads(size.text), self._sizes)
                return torch.empty((count, 0), device=self._outgoing.executable.device)
        raise AssertionError(wire)


def signature_of(outgoing: ProgramContents) -> inspect.Signature:
    """Return the model's signature, or one with the same arguments if it is unknown."""
    known = outgoing.call.signature
    if known is not None and not any(one.kind in _VARIABLE for one in known.parameters.values()):
        return known
    positional, named = outgoing.call.counts
    plain, keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(f"arg{place}", plain) for place in range(positional)]
    return inspect.Signature([*parameters, *(inspect.Parameter(name, keyword) for name in named)])


def payload_name(number: int) -> str:
    """Return the name of the constant that contains an engine."""
    return f"trtcache_engine_{number}"


def register_tensor(root: torch.nn.Module, name: str, tensor: torch.Tensor, *, persistent: bool) -> None:
    """Register a parameter or buffer by its full name.

    Raises:
        ValueError: a module cannot have this name.
    """
    *path, last = name.split(".")
    module = root
    for step in path:
        inner = module._modules.get(step)
        if inner is None:
            inner = torch.nn.Module()
            module.add_module(step, inner)
        module = inner
    try:
        if isinstance(tensor, torch.nn.Parameter):
            module.register_parameter(last, tensor)
        else:
            module.register_buffer(last, tensor, persistent=persistent)
    except (KeyError, TypeError) as error:
        raise ValueError(f"a weight has the name {name!r}, which torch does not accept: {error}") from error


def _is_taken(root: torch.nn.Module, name: str) -> bool:
    module: Any = root
    for step in name.split("."):
        module = getattr(module, step, None)
        if module is None:
            return False
    return True


def _constants_used(outgoing: ProgramContents) -> set[str]:
    wires = [wire for part in outgoing.division.parts for wire in part.takes]
    return {wire.name for wire in (*wires, *outgoing.division.results) if isinstance(wire, ConstantWire)}


log = logging.getLogger(__name__)

_OF_ALL_BYTES = ".data/serialization_id"  # torch's hash over all members, invalid with ours added


def export_graph(
    outgoing: ProgramContents, payloads: Mapping[int, Sequence[EnginePayload]], path: str
) -> tuple[ExportedProgram, list[int]]:
    """Return a program exported by torch, with an operator for each engine, and the engines' partitions.

    Args:
        outgoing: the program.
        payloads: the payloads of each partition's engines, one for each target.
        path: the file, for messages.

    Raises:
        ProgramFileError: torch cannot trace what stays in torch; the message includes torch's.
    """
    sizes = {number: sum(one.constant_bytes for one in each) for number, each in payloads.items()}
    empty = {number: torch.empty(size, dtype=torch.uint8) for number, size in sizes.items() if size}
    try:
        traced = TracedProgram(outgoing, empty)
        with ALONE, warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = _trace(traced.module, outgoing)
            if _mutates(outgoing):
                program = program.run_decompositions({})
    except Exception as error:
        raise ProgramFileError(path, f"torch.export cannot trace the program: {_describe_error(error)}") from error
    calls = engine_calls(program)
    if missing := sorted(set(payloads) - set(calls)):
        raise ProgramFileError(path, f"nothing uses what the engines of parts {missing} make")
    _label(program, outgoing, payloads)
    program._example_inputs = None  # generated, and torch would pickle them
    return program, calls


def torch_members(program: ExportedProgram, path: str) -> dict[str, bytes]:
    """Return the members that torch writes for a program, without their folder, weights and constants.

    torch only compares names of weights: small tensors replace them.

    Raises:
        ProgramFileError: torch cannot write it.
    """
    stand_in = torch.zeros(1)
    state = program.state_dict
    program._state_dict = {
        name: torch.nn.Parameter(stand_in, requires_grad=False) if isinstance(one, torch.nn.Parameter) else stand_in
        for name, one in state.items()
    }
    constants = program.constants
    program._constants = dict.fromkeys(constants, stand_in)
    entry = program.module_call_graph[0].signature
    assert entry is not None  # noqa: S101  # set by torch.export
    entry.in_spec, entry.out_spec = without_classes(entry.in_spec), without_classes(entry.out_spec)
    written = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.export.save(program, written)
    except Exception as error:
        raise ProgramFileError(path, f"torch.export.save cannot write the program: {_describe_error(error)}") from error
    finally:
        program._state_dict, program._constants = state, constants
    with zipfile.ZipFile(written) as archive:
        names = {info.filename.partition("/")[2]: info for info in archive.infolist()}
        return {name: archive.read(info) for name, info in names.items() if name != _OF_ALL_BYTES}


def _describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip()[:600]


def _trace(traced: torch.nn.Module, outgoing: ProgramContents) -> ExportedProgram:
    interface = outgoing.executable.interface
    args, kwargs = _arguments(outgoing, _examples(interface, outgoing.executable.device))
    shapes = _shapes(outgoing)
    if shapes is None:
        return torch.export.export(traced, args, kwargs, strict=False)
    try:
        return torch.export.export(traced, args, kwargs, dynamic_shapes=shapes, strict=False)
    except (torch._dynamo.exc.UserError, RuntimeError, ValueError) as error:
        log.info("torch infers the dynamic sizes of %s: %s", outgoing.name, error)
        automatic = pytree.tree_map(
            lambda one: Dim.AUTO if isinstance(one, Dim) else one, shapes, is_leaf=lambda one: isinstance(one, Dim)
        )
        return torch.export.export(traced, args, kwargs, dynamic_shapes=automatic, strict=False)


def _arguments(outgoing: ProgramContents, tensors: Mapping[int, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call, with the values that the program was compiled for."""
    spec = outgoing.call.in_spec
    values = {one.leaf: one.value for one in outgoing.executable.interface.values}
    leaves = [tensors[leaf] if leaf in tensors else values.get(leaf) for leaf in range(spec.num_leaves)]
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    return tuple(args), dict(kwargs)


def hints(interface: Interface) -> dict[int, int]:
    """Return an example size for each symbol: in its range, all different if possible.

    If guards exclude these sizes, others near them are tried.

    Raises:
        ValueError: none of 100,000 combinations of sizes satisfies the guards.
    """
    preferred = []
    for number, (least, most) in enumerate(interface.ranges):
        wanted = max(least or 0, 2) + number
        preferred.append(wanted if most is None or wanted <= most else most)
    for sizes in itertools.chain((preferred,), _other_sizes(interface.ranges, preferred)):
        found = dict(enumerate(sizes))
        if failed_guard(interface.conditions, found) is None:
            return found
    raise ValueError("no example sizes satisfy the guards of the program")


def _other_sizes(ranges: Sequence[tuple[int | None, int | None]], preferred: Sequence[int]) -> Iterator[list[int]]:
    """Yield combinations of sizes in their ranges, small ones first."""
    generator = random.Random(0)  # noqa: S311  # the same examples each time
    for attempt in range(100_000):
        reach = 8 if attempt < 50_000 else 512
        sizes = []
        for (least, most), wanted in zip(ranges, preferred, strict=True):
            low = min(max(least or 0, 2), wanted)
            sizes.append(generator.randint(low, wanted + reach if most is None else min(most, wanted + reach)))
        yield sizes


def _examples(interface: Interface, device: torch.device) -> dict[int, Any]:
    sizes = hints(interface)
    found = {one.leaf: _example(one, sizes, device) for one in interface.inputs}
    return {one.leaf: found[one.leaf].shape[0] if one.number else found[one.leaf] for one in interface.inputs}


def _example(spec: TensorInput, sizes: Mapping[int, int], device: torch.device) -> torch.Tensor:
    place = device if spec.device == device.type else torch.device(spec.device)
    shape = tuple(evaluate(size, sizes) or 0 for size in spec.shape)
    stride = tuple(evaluate(step, sizes) for step in spec.stride)
    known = tuple(step for step in stride if step is not None)
    laid = known if len(known) == len(stride) else contiguous(shape)
    return torch.empty_strided(shape, laid, dtype=getattr(torch, spec.dtype), device=place).zero_()


def _shapes(outgoing: ProgramContents) -> Any:
    """Return the dynamic sizes in torch.export's format; None without any."""
    interface = outgoing.executable.interface
    if not any(type(size) is not int for one in interface.inputs for size in one.shape):
        return None
    dims = [_dim(number, *bounds) for number, bounds in enumerate(interface.ranges)]
    shapes_: dict[int, Any] = {
        one.leaf: {place: _size(size, dims) for place, size in enumerate(one.shape) if type(size) is not int}
        for one in interface.inputs
    }
    shapes_ |= {
        one.leaf: Dim.AUTO for one in interface.inputs if one.number
    }  # torch does not accept a named Dim for an int
    spec = outgoing.call.in_spec
    args, kwargs = pytree.tree_unflatten([shapes_.get(leaf) for leaf in range(spec.num_leaves)], spec)
    positional, names = len(args), list(kwargs)
    parameters = list(_parameters(outgoing, positional))
    return dict(zip([*parameters, *names], [*args, *kwargs.values()], strict=True)) if parameters else None


def _parameters(outgoing: ProgramContents, positional: int) -> list[str]:
    """Return the names of the positional arguments."""
    return list(signature_of(outgoing).parameters)[:positional]


def _dim(number: int, least: int | None, most: int | None) -> Any:
    return Dim(f"s{number}", min=least, max=most)


def _size(written: Json, dims: Sequence[Any]) -> Any:
    """Return a size in torch.export's format: ``a * s + b``, or automatic."""
    number, factor, more = affine(written) or (0, 0, 0)
    if factor <= 0:
        return Dim.AUTO
    scaled = dims[number] if factor == 1 else factor * dims[number]
    return scaled + more if more else scaled


def _mutates(outgoing: ProgramContents) -> bool:
    interface = outgoing.executable.interface
    return any(slot.mutated for slot in interface.slots) or any(one.kind == "input" for one in interface.results)


def engine_calls(program: ExportedProgram) -> list[int]:
    """Return the partitions whose engines a program calls, in graph order, before they are labelled."""
    calls = [node for node in program.graph.nodes if node.target is torch.ops.trtcache.execute_engine.default]
    return [int(str(node.args[2]).removeprefix(TOKEN)) for node in calls]


def _label(
    program: ExportedProgram, outgoing: ProgramContents, payloads: Mapping[int, Sequence[EnginePayload]]
) -> None:
    """Set the text arguments of engine calls: the engine, its key, its weight map."""
    operator = torch.ops.trtcache.execute_engine.default
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of this machine, and lines of the traced module
        if node.target is not operator:
            continue
        inputs, weights, token, *_, input_spec, output_spec = node.args
        number = int(str(token).removeprefix(TOKEN))
        keys = json.dumps([origin.entries[number].key.document for origin in outgoing.origins], sort_keys=True)
        recipes = json.dumps(weight_map(_interface(outgoing, number).weights), sort_keys=True)
        engine = ",".join(one.text for one in payloads[number])
        node.args = (inputs, weights, engine, keys, recipes, input_spec, output_spec)


def _interface(outgoing: ProgramContents, number: int) -> Interface:
    if outgoing.division.is_whole:
        return outgoing.executable.interface
    return outgoing.division.engines[number].program.interface
