"""The parts of a program in order, with a place for each value."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from trtcache.partition.capability import is_sequential
from trtcache.partition.partitions import EnginePartition
from trtcache.partition.wires import ConstantWire, InputWire, PartitionOutput, SizeTensor, SizeWire, WeightWire
from trtcache.runtime.inputs import InputCheck, bind_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trtcache.lowering.interface import Interface
    from trtcache.partition.partitions import PartitionedProgram
    from trtcache.partition.wires import Wire


@dataclass(frozen=True, slots=True)
class Step:
    """A part with the places of its values.

    Attributes:
        part: its number.
        check: what an engine's inputs have to be.
        takes, gives: what it takes and makes.
        lets_go: of those, what is not needed for ever.
        frees: of those, what no later part needs.
    """

    part: int
    check: InputCheck | None
    takes: tuple[int, ...]
    gives: tuple[int, ...]
    lets_go: tuple[int, ...] = ()
    frees: tuple[int, ...] = ()


class Plan:
    """What is the same for all weights: which part runs when, and where its values are.

    Attributes:
        division: the parts.
        interface: the program's border.
        device: where it runs.
        steps: the parts in order.
        results: the places of what the program gives.
        stores: the weights that a call changes, and the places of their new contents.
        needs: for each part those whose values it takes.
        turns: the parts that run one after the other, whatever they need.
        users: for each place that is not needed for ever, how many parts make or take it.
    """

    def __init__(self, division: PartitionedProgram, interface: Interface, device: torch.device) -> None:
        """Give each value a place."""
        self.division, self.interface = division, interface
        self.device = device
        parts = division.parts
        self.needs = tuple({wire.part for wire in part.takes if isinstance(wire, PartitionOutput)} for part in parts)
        self.turns = tuple(number for number, part in enumerate(parts) if any(map(is_sequential, part.cluster.nodes)))
        self._places: dict[Wire, int] = {InputWire(place): place for place in range(len(interface.inputs))}
        self.results = tuple(map(self._place, division.results))
        self.stores = tuple((name, self._place(wire)) for name, wire in division.stores)
        self.steps = self._freed([self._step(number) for number in range(len(parts))])
        self.users = Counter(place for step in self.steps for place in step.lets_go)
        places = self._places.items()
        self.weights = tuple((wire.name, place) for wire, place in places if isinstance(wire, WeightWire))
        self.constants = tuple((wire.name, place) for wire, place in places if isinstance(wire, ConstantWire))
        self.sizes = tuple((json.loads(wire.text), place) for wire, place in places if isinstance(wire, SizeWire))
        self.carriers = tuple(
            (json.loads(wire.size.text), place) for wire, place in places if isinstance(wire, SizeTensor)
        )
        self.count = len(self._places)

    def _place(self, wire: Wire) -> int:
        return self._places.setdefault(wire, len(self._places))

    def _step(self, number: int) -> Step:
        part = self.division.parts[number]
        check = None
        if isinstance(part, EnginePartition):
            check = InputCheck(
                part.program.interface, part.program.device, lambda leaf: f"input {leaf} of part {number}"
            )
        takes = tuple(map(self._place, part.takes))
        gives = tuple(self._place(PartitionOutput(number, place)) for place in range(part.gives))
        return Step(number, check, takes, gives)

    def _freed(self, steps: list[Step]) -> tuple[Step, ...]:
        """Note after which step each made value is needed no more."""
        kept = {*self.results, *(place for _, place in self.stores)}
        made = {place for wire, place in self._places.items() if isinstance(wire, PartitionOutput)} - kept
        seen: set[int] = set()
        freed = []
        for step in reversed(steps):
            lets_go = tuple(dict.fromkeys(place for place in (*step.takes, *step.gives) if place in made))
            freed.append(replace(step, lets_go=lets_go, frees=tuple(one for one in lets_go if one not in seen)))
            seen.update(lets_go)
        return tuple(reversed(freed))

    def sizes_of(self, inputs: Sequence[torch.Tensor]) -> dict[int, int]:
        """Return the program's symbols for the inputs of a call."""
        return bind_sizes(self.interface.inputs, inputs)

    def empty(self, size: int) -> torch.Tensor:
        """Return a tensor that has a size and nothing else."""
        return torch.empty((size, 0), device=self.device)
