"""A program as a module that ``torch.export`` can trace: engines as placeholder operators, everything else as in torch.

The exported program then has the model's names, signature and structure, lifted weights, mutations and ranges like any
other. An engine is a call of ``trtcache::execute_engine``, with short tokens as arguments during tracing: strings of
megabytes would become part of the code that torch generates for a graph.
"""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from trtcache.lowering.interface import evaluate
from trtcache.partition.partitions import (
    ConstantWire,
    EnginePartition,
    InputWire,
    PartitionOutput,
    SizeTensor,
    SizeWire,
    WeightWire,
)
from trtcache.runtime.inputs import bind_sizes, evaluate_size
from trtcache.runtime.operator import specs_of, with_carriers
from trtcache.weights.recipes import evaluate as evaluate_recipe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trtcache.bundle.contents import ProgramContents
    from trtcache.lowering.interface import Interface
    from trtcache.partition.partitions import Wire

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
