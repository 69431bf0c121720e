"""A program as a module that ``torch.export`` can trace: engines as placeholder operators, all else as torch has it.

What torch then writes has the model's names, signature and structure, lifted weights, mutations and ranges, as of any
program that it exported. An engine is a call of ``trtcache::execute_engine``, whose arguments are short words while it
is traced: texts of megabytes would be part of the code that torch makes of a graph.
"""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from trtcache.lowering.expressions import evaluate
from trtcache.partition.partitions import EnginePartition
from trtcache.partition.wires import ConstantWire, InputWire, PartitionOutput, SizeWire, WeightWire
from trtcache.partition.wires import SizeTensor as SizeCarrier
from trtcache.runtime.inputs import bind_sizes, evaluate_size
from trtcache.runtime.operator import specs_of, with_carriers
from trtcache.weights.recipes import evaluate as evaluate_recipe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trtcache.bundle.contents import Outgoing
    from trtcache.lowering.interface import Interface
    from trtcache.partition.wires import Wire

_VARIABLE = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}

TOKEN = "engine:"  # noqa: S105  # what an engine's text is while a program is traced


class SizeTensor:
    """A program of engines and torch's own operators, with the model's weights under the model's names.

    Attributes:
        module: what torch traces. It has no attributes but the model's: any name may be that of a weight.
        constants: which name the program has for each constant (``c0``).
    """

    def __init__(self, outgoing: Outgoing, parcels: Mapping[int, torch.Tensor]) -> None:
        """Put weights and constants in their places.

        Args:
            outgoing: the program.
            parcels: engines that go as constants, by the numbers of their parts: tensors of their sizes.
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
                put(self.module, name, made, persistent=not slot.transient)
        for name in sorted(_constants_used(outgoing)):
            self.constants[name] = self._constant(name, outgoing)
        for number, parcel in parcels.items():
            self.module.register_buffer(parcel_name(number), parcel, persistent=False)
        self._parcels = frozenset(parcels)
        self.module.forward = self._signed()  # with the model's own signature

    def _constant(self, name: str, outgoing: Outgoing) -> str:
        """Keep a constant under the model's own name for it, if it has one."""
        place = list(outgoing.executable.constants).index(name)
        digest = self._interface.constants[place]
        own = [one for one, content in outgoing.executable.sources.items() if content.digest == digest]
        chosen = own[0] if own and not _is_taken(self.module, own[0]) else f"constant_{name}"
        put(self.module, chosen, outgoing.executable.constants[name], persistent=False)
        return chosen

    def _signed(self) -> Any:
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
        results = self._completed(outputs, leaves)
        for name, value in stores:
            self.tensor(name).copy_(value)
        return pytree.tree_unflatten(results, call.out_spec)

    def _completed(self, outputs: Sequence[torch.Tensor], leaves: Sequence[Any]) -> list[Any]:
        results: list[Any] = []
        remaining = iter(outputs)
        for one in self._interface.results:
            if one.kind == "value":
                results.append(one.value)
            elif one.kind == "size":
                inputs = self._interface.inputs
                sizes = bind_sizes(inputs, [leaves[taken.leaf] for taken in inputs])
                results.append(evaluate_size(one.value, sizes))
            elif one.kind == "number":
                results.append(next(remaining).item())
            elif one.kind == "input":
                leaves[one.target or 0].copy_(next(remaining))
            else:
                results.append(next(remaining))
        return results

    def _whole(self, inputs: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], list[tuple[str, torch.Tensor]]]:
        """Call the one engine; the new contents of weights that it changes follow its results."""
        outputs = self.engine(0, self._interface, inputs)
        changed = [slot for slot in self._interface.slots if slot.mutated]
        count = len(outputs) - len(changed)
        return outputs[:count], [(slot.names[0], one) for slot, one in zip(changed, outputs[count:], strict=True)]

    def engine(self, number: int, interface: Interface, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Call the placeholder of an engine."""
        weights = [self.tensor(slot.names[0]) for slot in interface.slots]
        if number in self._parcels:
            weights.append(self.tensor(parcel_name(number)))
        input_spec, output_spec = specs_of(interface, changed=True)
        made: list[torch.Tensor] = torch.ops.trtcache.execute_engine(
            list(inputs), weights, f"{TOKEN}{number}", "", "", input_spec, output_spec
        )
        return made

    def tensor(self, name: str) -> torch.Tensor:
        """Return a weight or constant by its name."""
        path, _, last = name.rpartition(".")
        found: torch.Tensor = getattr(self.module.get_submodule(path), last)
        return found


class _Run:
    """One call of a program in parts, value by value."""

    def __init__(self, carrier: SizeTensor, outgoing: Outgoing, inputs: Sequence[torch.Tensor]) -> None:
        self._carrier, self._outgoing = carrier, outgoing
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
                made: Sequence[Any] = self._carrier.engine(number, part.program.interface, taken)
            else:
                made = part.call(*taken)
            for place, value in enumerate(made):
                self._values[PartitionOutput(number, place)] = value
        stores = [(self._weights[name].slots[0].names[0], self._value(wire)) for name, wire in division.stores]
        return [self._value(wire) for wire in division.results], stores

    def _value(self, wire: Wire) -> Any:
        if wire not in self._values:
            self._values[wire] = self._found(wire)
        return self._values[wire]

    def _found(self, wire: Wire) -> Any:
        match wire:
            case WeightWire(name):
                weight = self._weights[name]
                return evaluate_recipe(
                    weight.recipe, {slot.index: self._carrier.tensor(slot.names[0]) for slot in weight.slots}
                )
            case ConstantWire(name):
                return self._carrier.tensor(self._carrier.constants[name])
            case SizeWire(text):
                return evaluate(json.loads(text), self._sizes)
            case SizeCarrier(size):
                count = evaluate(json.loads(size.text), self._sizes)
                return torch.empty((count, 0), device=self._outgoing.executable.device)
        raise AssertionError(wire)


def signature_of(outgoing: Outgoing) -> inspect.Signature:
    """Return the signature of the model, or one that has the same arguments where it is not known."""
    known = outgoing.call.signature
    if known is not None and not any(one.kind in _VARIABLE for one in known.parameters.values()):
        return known
    positional, named = outgoing.call.counts
    plain, keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(f"arg{place}", plain) for place in range(positional)]
    return inspect.Signature([*parameters, *(inspect.Parameter(name, keyword) for name in named)])


def parcel_name(number: int) -> str:
    """Return the name of the constant that an engine is."""
    return f"trtcache_engine_{number}"


def put(root: torch.nn.Module, name: str, tensor: torch.Tensor, *, persistent: bool) -> None:
    """Give a module a parameter or buffer by its whole name.

    Raises:
        ValueError: the name is none that a module can have.
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
        raise ValueError(f"a weight is called {name!r}, which torch does not take: {error}") from error


def _is_taken(root: torch.nn.Module, name: str) -> bool:
    module: Any = root
    for step in name.split("."):
        module = getattr(module, step, None)
        if module is None:
            return False
    return True


def _constants_used(outgoing: Outgoing) -> set[str]:
    wires = [wire for part in outgoing.division.parts for wire in part.takes]
    return {wire.name for wire in (*wires, *outgoing.division.results) if isinstance(wire, ConstantWire)}
