"""Runs a program in its parts: engines and what stays in torch, one after the other.

To a compiled module it is an engine like any other: it takes the program's inputs, gives its results, and is refitted
with the weights of the whole program.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from trtcache.backends.protocol import Engine, Parallel
from trtcache.errors import IncompatibleEngineError
from trtcache.lowering.expressions import evaluate
from trtcache.partition.division import EnginePart
from trtcache.partition.wires import Carrier, Constant, Input, Made, Size, Weight
from trtcache.runtime.inputs import InputCheck, bind_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trtcache.lowering.interface import Interface
    from trtcache.partition.division import Division
    from trtcache.partition.wires import Wire


@dataclass(frozen=True, slots=True)
class Step:
    """A part with the places of what it takes, of what it makes, and of what nobody needs after it."""

    part: int
    check: InputCheck | None
    takes: tuple[int, ...]
    gives: tuple[int, ...]
    frees: tuple[int, ...]


class Plan:
    """What is the same for all weights: which part runs when, and where its values are.

    Attributes:
        division: the parts.
        interface: the program's border.
        steps: the parts in order.
        results: the places of what the program gives.
        stores: the weights that a call changes, and the places of their new contents.
    """

    def __init__(self, division: Division, interface: Interface, device: torch.device) -> None:
        """Give each value a place."""
        self.division, self.interface = division, interface
        self._device = device
        self._places: dict[Wire, int] = {Input(place): place for place in range(len(interface.inputs))}
        self.results = tuple(map(self._place, division.results))
        self.stores = tuple((name, self._place(wire)) for name, wire in division.stores)
        self.steps = self._freed([self._step(number) for number in range(len(division.parts))])
        places = self._places.items()
        self.weights = tuple((wire.name, place) for wire, place in places if isinstance(wire, Weight))
        self.constants = tuple((wire.name, place) for wire, place in places if isinstance(wire, Constant))
        self.sizes = tuple((json.loads(wire.text), place) for wire, place in places if isinstance(wire, Size))
        self.carriers = tuple(
            (json.loads(wire.size.text), place) for wire, place in places if isinstance(wire, Carrier)
        )
        self.count = len(self._places)

    def _place(self, wire: Wire) -> int:
        return self._places.setdefault(wire, len(self._places))

    def _step(self, number: int) -> Step:
        part = self.division.parts[number]
        check = None
        if isinstance(part, EnginePart):
            check = InputCheck(
                part.program.interface, part.program.device, lambda leaf: f"input {leaf} of part {number}"
            )
        takes = tuple(map(self._place, part.takes))
        gives = tuple(self._place(Made(number, place)) for place in range(part.gives))
        return Step(number, check, takes, gives, ())

    def _freed(self, steps: list[Step]) -> tuple[Step, ...]:
        """Note after which step each made value is needed no more."""
        kept = {*self.results, *(place for _, place in self.stores)}
        made = {place for wire, place in self._places.items() if isinstance(wire, Made)}
        freed = []
        for step in reversed(steps):
            frees = tuple(place for place in (*step.takes, *step.gives) if place not in kept and place in made)
            kept.update(frees)
            freed.append(Step(step.part, step.check, step.takes, step.gives, tuple(dict.fromkeys(frees))))
        return tuple(reversed(freed))

    def sizes_of(self, inputs: Sequence[torch.Tensor]) -> dict[int, int]:
        """Return the program's symbols for the inputs of a call."""
        return bind_sizes(self.interface.inputs, inputs)

    def empty(self, size: int) -> torch.Tensor:
        """Return a tensor that has a size and nothing else."""
        return torch.empty((size, 0), device=self._device)


class Schedule(Engine):
    """A program in parts, with weights in it."""

    def __init__(
        self,
        plan: Plan,
        engines: Mapping[int, Engine],
        weights: Mapping[str, torch.Tensor],
        constants: Mapping[str, torch.Tensor],
    ) -> None:
        """Put the parts together.

        Args:
            plan: what runs when.
            engines: live engines with weights in them, by the numbers of their parts.
            weights: the whole program's weights.
            constants: its constants.
        """
        self._plan, self._engines, self._weights, self._constants = plan, engines, weights, constants
        self.shares_weights = all(engine.shares_weights for engine in engines.values())
        self._template: list[Any] = [None] * plan.count
        for name, place in plan.weights:
            self._template[place] = weights[name].detach()
        for name, place in plan.constants:
            self._template[place] = constants[name]
        self._calls = [self._call(number) for number in range(len(plan.division.parts))]
        self._stored = [(self._weights[name].detach(), place) for name, place in plan.stores]

    def _call(self, number: int) -> Callable[[Sequence[Any]], Sequence[Any]]:
        if number in self._engines:
            return self._engines[number].run
        call: Any = self._plan.division.parts[number].call  # type: ignore[union-attr]  # one without an engine
        return lambda taken: call(*taken)

    def refit(self, weights: Mapping[str, torch.Tensor]) -> Schedule:
        """Return the same parts with other weights."""
        engines = {
            number: engine.refit(weights_of(self._plan.division, number, weights))
            for number, engine in self._engines.items()
        }
        return Schedule(self._plan, engines, weights, self._constants)

    def parallel(self, calls: int) -> Schedule:
        """Return the same parts, of which each can have this many calls in it at once.

        Raises:
            IncompatibleEngineError: one cannot.
        """
        engines: dict[int, Engine] = {}
        for number, engine in self._engines.items():
            if not isinstance(engine, Parallel):
                raise IncompatibleEngineError(f"part {number}", f"{type(engine).__name__} has no way for it")
            engines[number] = engine.parallel(calls)
        return Schedule(self._plan, engines, self._weights, self._constants)

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the parts."""
        plan, values = self._plan, self._template.copy()
        values[: len(inputs)] = inputs
        with torch.no_grad():
            if plan.sizes or plan.carriers:
                self._put_sizes(values, inputs)
            for step in plan.steps:
                taken = [values[place] for place in step.takes]
                made = self._calls[step.part](taken if step.check is None else step.check(taken))
                for place, value in zip(step.gives, made, strict=True):
                    values[place] = value
                for place in step.frees:
                    values[place] = None
            return self._finished(values)

    def _put_sizes(self, values: list[Any], inputs: Sequence[torch.Tensor]) -> None:
        sizes = self._plan.sizes_of(inputs)
        for written, place in self._plan.sizes:
            values[place] = evaluate(written, sizes)
        for written, place in self._plan.carriers:
            size = evaluate(written, sizes)
            assert size is not None  # noqa: S101  # the partitioner has tried it
            values[place] = self._plan.empty(size)

    def _finished(self, values: list[Any]) -> list[torch.Tensor]:
        """Return the results, and write new contents of weights once all that read the old ones have run."""
        results = [values[place] for place in self._plan.results]
        results = [one.detach() if one.requires_grad else one for one in results]
        if self._stored:
            memory = {weight.untyped_storage().data_ptr() for weight, _ in self._stored}
            results = [_apart(one, memory) for one in results]
            contents = [_apart(values[place], memory) for _, place in self._stored]
            for (weight, _), content in zip(self._stored, contents, strict=True):
                weight.copy_(content)
        return results


def _apart(tensor: torch.Tensor, memory: set[int]) -> torch.Tensor:
    """Return a tensor that does not lie in some memory, which is to be written."""
    return tensor.clone() if tensor.untyped_storage().data_ptr() in memory else tensor


def weights_of(division: Division, number: int, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the weights of a part, by its own names, of those of the whole program."""
    part = division.parts[number]
    names = part.weights if isinstance(part, EnginePart) else {}
    return {own: weights[name] for own, name in names.items()}
