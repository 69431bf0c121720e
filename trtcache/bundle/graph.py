"""The graph of a program file: a module of engines and torch operators, exported by ``torch.export``.

The module calls engines as placeholder operators, and everything else as in torch. So the exported program has the
model's names, signature and structure, lifted weights, mutations and ranges like any other. An engine is a call of
``trtcache::execute_engine``, with short tokens as arguments during tracing: strings of megabytes would become part of
the code that torch generates for a graph.
"""

from __future__ import annotations

import inspect
import io
import json
import logging
import random
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.export import Dim
from torch.utils import _pytree as pytree

from trtcache.bundle.formats import without_classes
from trtcache.errors import ProgramFileError
from trtcache.frontends.weight_files import register_tensor
from trtcache.lowering import export_lock
from trtcache.lowering.guard_checks import failed_guard
from trtcache.lowering.interface import Interface, affine, evaluate, look_up
from trtcache.partition.partitions import (
    ConstantWire,
    EnginePartition,
    InputWire,
    PartitionOutput,
    SizeTensor,
    SizeWire,
    WeightWire,
    Wire,
)
from trtcache.runtime.checks import bind_sizes, evaluate_size
from trtcache.runtime.operator import specs_of, with_carriers
from trtcache.weights.files import OF_ALL_BYTES
from trtcache.weights.recipes import evaluate as evaluate_recipe
from trtcache.weights.slots import contiguous, weight_map

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from trtcache.bundle.engines import EnginePayload
    from trtcache.bundle.export import ProgramContents

log = logging.getLogger(__name__)

_VARIABLE = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}

TOKEN = "engine:"  # noqa: S105  # prefix of an engine's placeholder text during tracing


class TracedProgram:
    """A program of engines and torch operators, with the model's weights under the model's names.

    Attributes:
        module: the module to trace. It has only the model's attributes: any name may be a weight's.
        constants: the name in the module of each constant (``c0``).
    """

    def __init__(self, contents: ProgramContents, payloads: Mapping[int, torch.Tensor]) -> None:
        """Register weights and constants; ``payloads`` are tensors of the sizes of engines stored as constants."""
        self.module = torch.nn.Module()
        self._contents = contents
        self._interface: Interface = contents.executable.interface
        self.constants: dict[str, str] = {}
        for slot in self._interface.slots:
            tensor = contents.weights[slot.index]
            is_parameter = bool(contents.parameters & set(slot.names)) and not slot.mutated
            weight = torch.nn.Parameter(tensor, requires_grad=False) if is_parameter else tensor
            for name in slot.names:
                register_tensor(self.module, name, weight, persistent=not slot.transient)
        executable, division = contents.executable, contents.division
        wires = [*(wire for part in division.parts for wire in part.takes), *division.results]
        for name in sorted({wire.name for wire in wires if isinstance(wire, ConstantWire)}):
            # A constant has the model's own name if it has one, and that is free.
            digest = self._interface.constants[list(executable.constants).index(name)]
            own = [one for one, content in executable.constant_contents.items() if content.digest == digest]
            chosen = own[0] if own and look_up(self.module, own[0]) is None else f"constant_{name}"
            register_tensor(self.module, chosen, executable.constants[name], persistent=False)
            self.constants[name] = chosen
        for number, payload in payloads.items():
            self.module.register_buffer(payload_name(number), payload, persistent=False)
        self._payloads = frozenset(payloads)

        def forward(*args: Any, **kwargs: Any) -> Any:
            return self._forward(args, kwargs)

        vars(forward)["__signature__"] = signature_of(contents)  # the model's own
        self.module.forward = forward

    def _forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        interface, call = self._interface, self._contents.call
        numbers = [(one.leaf, one.device) for one in interface.inputs if one.number]
        leaves = with_carriers(call.flatten(args, kwargs), numbers)
        inputs = [leaves[one.leaf] for one in interface.inputs]
        if self._contents.division.is_one_engine:
            # The only engine returns new contents of modified weights after its results.
            outputs = self._call_engine(0, interface, inputs)
            changed = [slot.names[0] for slot in interface.slots if slot.mutated]
            count = len(outputs) - len(changed)
            outputs, stores = outputs[:count], list(zip(changed, outputs[count:], strict=True))
        else:
            outputs, stores = self._run(inputs)
        results: list[Any] = []
        remaining = iter(outputs)
        for result in interface.results:
            if result.kind == "value":
                results.append(result.value)
            elif result.kind == "size":
                results.append(evaluate_size(result.value, bind_sizes(interface.inputs, inputs)))
            elif result.kind == "number":
                results.append(next(remaining).item())
            elif result.kind == "input":
                leaves[result.target or 0].copy_(next(remaining))
            else:
                results.append(next(remaining))
        for name, value in stores:
            self._tensor(name).copy_(value)
        return pytree.tree_unflatten(results, call.out_spec)

    def _run(  # noqa: C901  # one case per kind of wire
        self, inputs: Sequence[torch.Tensor]
    ) -> tuple[list[torch.Tensor], list[tuple[str, torch.Tensor]]]:
        """Run all partitions; return the results, and the new contents of weights by the model's names."""
        interface, division = self._interface, self._contents.division
        values: dict[Wire, Any] = {InputWire(place): one for place, one in enumerate(inputs)}
        sizes = bind_sizes(interface.inputs, inputs)
        weights = {one.name: one for one in interface.weights}

        def compute(wire: Wire) -> Any:
            match wire:
                case WeightWire(name):
                    slots: dict[str | int, torch.Tensor] = {
                        slot.index: self._tensor(slot.names[0]) for slot in weights[name].slots
                    }
                    return evaluate_recipe(weights[name].recipe, slots)
                case ConstantWire(name):
                    return self._tensor(self.constants[name])
                case SizeWire(text):
                    return evaluate(json.loads(text), sizes)
                case SizeTensor(size):
                    count = evaluate(json.loads(size.text), sizes)
                    return torch.empty((count, 0), device=self._contents.executable.device, dtype=torch.float32)
            raise AssertionError(wire)

        def value(wire: Wire) -> Any:
            if wire not in values:
                values[wire] = compute(wire)
            return values[wire]

        for number, part in enumerate(division.parts):
            arguments = [value(wire) for wire in part.takes]
            if isinstance(part, EnginePartition):
                results: Sequence[Any] = self._call_engine(number, part.program.interface, arguments)
            else:
                results = part.call(*arguments)
            values |= {PartitionOutput(number, place): one for place, one in enumerate(results)}
        changes = bool(division.stores) or any(one.kind == "input" for one in interface.results)

        def old_value(wire: Wire) -> Any:
            """Return a value that the changes at the end of a call do not reach."""
            return value(wire).clone() if changes and isinstance(wire, (WeightWire, InputWire)) else value(wire)

        stores = [(weights[name].slots[0].names[0], old_value(wire)) for name, wire in division.stores]
        return [old_value(wire) for wire in division.results], stores

    def _call_engine(self, number: int, interface: Interface, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        weights = [self._tensor(slot.names[0]) for slot in interface.slots]
        if number in self._payloads:
            weights.append(self._tensor(payload_name(number)))
        input_spec, output_spec = specs_of(interface, changed=True)
        outputs: list[torch.Tensor] = torch.ops.trtcache.execute_engine(
            list(inputs), weights, f"{TOKEN}{number}", "", "", input_spec, output_spec
        )
        return outputs

    def _tensor(self, name: str) -> torch.Tensor:
        path, _, last = name.rpartition(".")
        found: torch.Tensor = getattr(self.module.get_submodule(path), last)
        return found


def signature_of(contents: ProgramContents) -> inspect.Signature:
    """Return the model's signature, or one with the same arguments if it is unknown."""
    known = contents.call.signature
    if known is not None and not any(one.kind in _VARIABLE for one in known.parameters.values()):
        return known
    plain, keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(f"arg{place}", plain) for place in range(contents.call.count)]
    return inspect.Signature([*parameters, *(inspect.Parameter(name, keyword) for name in contents.call.names)])


def payload_name(number: int) -> str:
    """Return the name of the constant that contains an engine."""
    return f"trtcache_engine_{number}"


def export_graph(
    contents: ProgramContents, payloads: Mapping[int, Sequence[EnginePayload]], path: str
) -> tuple[ExportedProgram, list[int], dict[str, str]]:
    """Return a program exported by torch, with an operator for each engine.

    Returns:
        The program, the partitions of its engines in the order of their calls, and torch's names of the constants that
        stay in torch, by the program's names.

    Raises:
        ProgramFileError: torch cannot trace what stays in torch; the message includes torch's.
    """
    interface = contents.executable.interface
    mutates = any(slot.mutated for slot in interface.slots) or any(one.kind == "input" for one in interface.results)
    sizes = {number: sum(one.constant_bytes for one in each) for number, each in payloads.items()}
    empty = {number: torch.empty(size, dtype=torch.uint8) for number, size in sizes.items() if size}
    try:
        traced = TracedProgram(contents, empty)
        with export_lock(), warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = _trace(traced.module, contents)
            if mutates:
                program = program.run_decompositions({})
    except Exception as error:
        raise ProgramFileError(path, f"torch.export cannot trace the program: {_describe_error(error)}") from error
    calls = _label_engine_calls(program, contents, payloads)
    if missing := sorted(set(payloads) - set(calls)):
        raise ProgramFileError(path, f"the program does not use the outputs of the engines of partitions {missing}")
    program._example_inputs = None  # generated, and torch would pickle them
    return program, calls, traced.constants


def torch_members(program: ExportedProgram, path: str) -> dict[str, bytes]:
    """Return the members that torch writes for a program, without their folder, weights and constants.

    torch only compares names of weights: small tensors replace them.

    Raises:
        ProgramFileError: torch cannot write it.
    """
    if not program.graph_signature.output_specs:
        raise ProgramFileError(path, "the model returns nothing, and torch.export.save needs at least one result")
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
        return {name: archive.read(info) for name, info in names.items() if name != OF_ALL_BYTES}


def _describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip()[:600]


def _trace(traced: torch.nn.Module, contents: ProgramContents) -> ExportedProgram:
    interface, spec, device = contents.executable.interface, contents.call.in_spec, contents.executable.device
    # The arguments of a call: example tensors, and the values that the program was compiled for.
    sizes = hints(interface)
    leaves: dict[int, Any] = {one.leaf: one.value for one in interface.values}
    for tensor_spec in interface.inputs:
        place = device if tensor_spec.device == device.type else torch.device(tensor_spec.device)
        shape = tuple(evaluate(size, sizes) or 0 for size in tensor_spec.shape)
        stride = tuple(evaluate(step, sizes) for step in tensor_spec.stride)
        known = tuple(step for step in stride if step is not None)
        strides = known if len(known) == len(stride) else contiguous(shape)
        tensor = torch.empty_strided(shape, strides, dtype=getattr(torch, tensor_spec.dtype), device=place).zero_()
        leaves[tensor_spec.leaf] = tensor.shape[0] if tensor_spec.number else tensor
    args, kwargs = pytree.tree_unflatten([leaves.get(leaf) for leaf in range(spec.num_leaves)], spec)
    args, kwargs = tuple(args), dict(kwargs)
    shapes = _shapes(contents)
    if shapes is None:
        return torch.export.export(traced, args, kwargs, strict=False)
    try:
        return torch.export.export(traced, args, kwargs, dynamic_shapes=shapes, strict=False)
    except (torch._dynamo.exc.UserError, RuntimeError, ValueError) as error:
        log.info("torch infers the dynamic sizes of %s: %s", contents.name, error)
        automatic = pytree.tree_map(
            lambda one: Dim.AUTO if isinstance(one, Dim) else one, shapes, is_leaf=lambda one: isinstance(one, Dim)
        )
        return torch.export.export(traced, args, kwargs, dynamic_shapes=automatic, strict=False)


def hints(interface: Interface) -> dict[int, int]:
    """Return an example size for each symbol: in its range, all different if possible.

    If guards exclude these sizes, others near them are tried, small ones first.

    Raises:
        ValueError: none of 100,000 combinations of sizes satisfies the guards.
    """
    preferred = []
    for number, (least, most) in enumerate(interface.ranges):
        wanted = max(least or 0, 2) + number
        preferred.append(wanted if most is None or wanted <= most else most)
    generator = random.Random(0)  # noqa: S311  # the same examples each time
    sizes = preferred
    for attempt in range(100_001):
        found = dict(enumerate(sizes))
        if failed_guard(interface.conditions, found) is None:
            return found
        reach, sizes = 8 if attempt < 50_000 else 512, []
        for (least, most), wanted in zip(interface.ranges, preferred, strict=True):
            low = min(max(least or 0, 2), wanted)
            sizes.append(generator.randint(low, wanted + reach if most is None else min(most, wanted + reach)))
    raise ValueError("no example sizes satisfy the guards of the program")


def _shapes(contents: ProgramContents) -> Any:
    """Return the dynamic sizes in torch.export's format; None without any."""
    interface, spec = contents.executable.interface, contents.call.in_spec
    if not any(type(size) is not int for one in interface.inputs for size in one.shape):
        return None
    dims = [Dim(f"s{number}", min=least, max=most) for number, (least, most) in enumerate(interface.ranges)]
    found: dict[int, Any] = {}
    for tensor_spec in interface.inputs:
        dynamic: dict[int, Any] = {}
        for place, size in enumerate(tensor_spec.shape):
            if type(size) is int:
                continue
            number, factor, more = affine(size) or (0, 0, 0)
            dynamic[place] = Dim.AUTO
            if factor > 0:  # the form a * s + b, which a Dim can express
                scaled = dims[number] if factor == 1 else factor * dims[number]
                dynamic[place] = scaled + more if more else scaled
        # torch does not accept a named Dim for an int.
        found[tensor_spec.leaf] = Dim.AUTO if tensor_spec.number else dynamic
    args, kwargs = pytree.tree_unflatten([found.get(leaf) for leaf in range(spec.num_leaves)], spec)
    parameters = list(signature_of(contents).parameters)[: len(args)]
    return dict(zip([*parameters, *kwargs], [*args, *kwargs.values()], strict=True)) if parameters else None


def _label_engine_calls(
    program: ExportedProgram, contents: ProgramContents, payloads: Mapping[int, Sequence[EnginePayload]]
) -> list[int]:
    """Set the text arguments of engine calls: engine, key and weight map. Return their partitions in graph order."""
    operator, calls = torch.ops.trtcache.execute_engine.default, []
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of this machine, and lines of the traced module
        if node.target is not operator:
            continue
        inputs, weights, token, *_, input_spec, output_spec = node.args
        number = int(str(token).removeprefix(TOKEN))
        part = contents.executable if contents.division.is_one_engine else contents.division.engines[number].program
        keys = json.dumps([origin.entries[number].key.document for origin in contents.origins], sort_keys=True)
        recipes = json.dumps(weight_map(part.interface.weights), sort_keys=True)
        engine = ",".join(one.text for one in payloads[number])
        node.args = (inputs, weights, engine, keys, recipes, input_spec, output_spec)
        calls.append(number)
    return calls
