"""The partitioned engine: runs a program's engines and torch partitions in order or in parallel.

To a compiled module it is an engine like any other: it takes the program's inputs, returns its results, and is
refitted with the weights of the whole program.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from trtcache.backends.protocol import Engine, Parallel
from trtcache.config.frozen import frozen_dataclass
from trtcache.config.threads import Threads, run_with
from trtcache.errors import IncompatibleEngineError, RunError
from trtcache.lowering.interface import Interface, evaluate
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
from trtcache.runtime.checks import bind, bind_sizes
from trtcache.runtime.inputs import InputCheck
from trtcache.runtime.parallel import Call, InterOp, Precedence, TorchState

if TYPE_CHECKING:
    from trtcache.partition.division import PartitionedProgram


class PartitionedEngine:
    """An engine of several partitions, with weights.

    Attributes:
        at_once: the maximum number of a call's partitions that can run in parallel.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        engines: Mapping[int, Engine],
        weights: Mapping[str, torch.Tensor],
        constants: Mapping[str, torch.Tensor],
        inter_op: InterOp | None = None,
    ) -> None:
        """Combine the partitions.

        Args:
            plan: the execution plan.
            engines: live engines with weights, by partition number.
            weights: the whole program's weights.
            constants: the whole program's constants.
            inter_op: how partitions run in parallel; by default as set by ``trtcache.threads`` alone.
        """
        self._plan, self._engines, self._weights, self._constants = plan, engines, weights, constants
        self._inter_op = inter_op or InterOp(Threads())
        # Partitions that share an engine run one after the other: it may not accept two calls at once.
        sharing: dict[int, list[int]] = defaultdict(list)
        for number in sorted(engines):
            sharing[id(engines[number])].append(number)
        self._order = Precedence.of(plan.needs, [plan.turns, *sharing.values()])
        # Calls on a GPU are enqueued in the thread's own stream, and overlap anyway.
        self.at_once = self._order.at_once if plan.device.type == "cpu" else 1
        self._has_dropped_gil = False
        self.shares_weights = all(engine.shares_weights for engine in engines.values())
        self._template: list[Any] = [None] * plan.count
        for name, place in plan.weights:
            self._template[place] = weights[name].detach()
        for name, place in plan.constants:
            self._template[place] = constants[name]
        self._constant_memory = {_address(one) for one in constants.values() if one.numel()}
        self._calls = [self._call(number) for number in range(len(plan.division.parts))]
        self._stored = [(self._weights[name].detach(), place) for name, place in plan.stores]

    def _call(self, number: int) -> Callable[[Sequence[Any]], Sequence[Any]]:
        if number in self._engines:
            return self._engines[number].run
        call: Any = self._plan.division.parts[number].call  # type: ignore[union-attr]  # a torch partition
        return lambda taken: call(*taken)

    def refit(self, weights: Mapping[str, torch.Tensor]) -> PartitionedEngine:
        """Return the same partitions with other weights."""
        engines = {
            number: engine.refit(weights_of(self._plan.division, number, weights))
            for number, engine in self._engines.items()
        }
        return PartitionedEngine(self._plan, engines, weights, self._constants, self._inter_op)

    def parallel(self, calls: int) -> PartitionedEngine:
        """Return the same partitions, each of which accepts this many concurrent calls.

        Raises:
            IncompatibleEngineError: an engine does not.
        """
        engines: dict[int, Engine] = {}
        for number, engine in self._engines.items():
            if not isinstance(engine, Parallel):
                raise IncompatibleEngineError(f"part {number}", f"{type(engine).__name__} does not support it")
            engines[number] = engine.parallel(calls)
        inter_op = InterOp(self._inter_op.threads, calls=calls)
        return PartitionedEngine(self._plan, engines, self._weights, self._constants, inter_op)

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run all partitions."""
        plan = self._plan
        values = self._template.copy()
        values[: len(inputs)] = inputs
        with torch.no_grad():
            if plan.sizes or plan.carriers:
                self._put_sizes(values, inputs)
            pool = self._inter_op.pool(self.at_once) if self.at_once > 1 else None
            state = TorchState.here() if pool else None
            if pool is None or state is None:
                for step in plan.steps:
                    self._step(step, values)
                    for place in step.last_uses:
                        values[place] = None
            else:
                self._drop_gil()
                run_with(pool.intra, self._call_of(values, state).finish, pool)
            return self._collect_results(values)

    def check_sizes(self, inputs: Sequence[torch.Tensor]) -> None:
        """Check the sizes of inputs against those that the engines were compiled for, as far as they are known.

        Raises:
            GuardError: an engine was compiled for others.
        """
        for number, engine in self._engines.items():
            check = getattr(engine, "check_sizes", None)
            taken = None if check is None else self._plan.sized_inputs(number, inputs)
            if check is not None and taken is not None:
                check(taken)

    def _step(self, step: PlanStep, values: list[Any]) -> None:
        taken = [values[place] for place in step.takes]
        made = self._calls[step.part](taken if step.check is None else step.check(taken))
        for place, value in zip(step.gives, made, strict=True):
            values[place] = value

    def _call_of(self, values: list[Any], state: TorchState) -> Call:
        """Return a call that runs partitions in parallel; a value is freed after its last use."""
        steps, users = self._plan.steps, self._plan.users.copy()

        def release(number: int) -> None:
            for place in steps[number].freeable:
                users[place] -= 1
                if not users[place]:
                    values[place] = None

        def run(number: int) -> None:
            self._step(steps[number], values)

        return Call(self._order, run, release, state, self._inter_op.took_s)

    def _drop_gil(self) -> None:
        """Replace engines by ones that release the GIL, where possible.

        Without a lock, which a fork could copy while it is held: two threads may both replace them, which is harmless.
        """
        if not self._has_dropped_gil:
            self._engines = {number: _without_gil(engine) for number, engine in self._engines.items()}
            self._calls = [self._call(number) for number in range(len(self._plan.steps))]
            self._has_dropped_gil = True

    def _put_sizes(self, values: list[Any], inputs: Sequence[torch.Tensor]) -> None:
        sizes = bind_sizes(self._plan.interface.inputs, inputs)
        for written, place in self._plan.sizes:
            values[place] = evaluate(written, sizes)
        for written, place in self._plan.carriers:
            size = evaluate(written, sizes)
            assert size is not None  # noqa: S101  # checked by the partitioner
            values[place] = torch.empty((size, 0), device=self._plan.device, dtype=torch.float32)

    def _collect_results(self, values: list[Any]) -> list[torch.Tensor]:
        """Return the results, and write new contents of weights after all readers of the old ones have run.

        A result is copied out of memory that it must not share: that of constants, since the caller may write to
        results; that of weights and inputs which the call changes; and that of inputs whose values are a weight's new
        content, since the model returns the weight.
        """
        results = [values[place] for place in self._plan.results]
        results = [one.detach() if one.requires_grad else one for one in results]
        contents = [values[place] for _, place in self._stored]
        changed = [*(weight for weight, _ in self._stored), *(values[place] for place in self._plan.changed_inputs)]
        memory = self._constant_memory | set(map(_address, changed))
        if contents:
            memory |= set(map(_address, contents)) & set(map(_address, values[: self._plan.input_count]))
        if memory:
            results = [_clone_if_in(one, memory) for one in results]
            contents = [_clone_if_in(one, memory) for one in contents]
        for (weight, _), content in zip(self._stored, contents, strict=True):
            weight.copy_(content)
        return results


def _without_gil(engine: Engine) -> Engine:
    try:
        return engine.parallel(1) if isinstance(engine, Parallel) else engine
    except (IncompatibleEngineError, RunError):
        return engine


def _address(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's memory, which views share."""
    return tensor.untyped_storage().data_ptr()


def _clone_if_in(tensor: torch.Tensor, memory: set[int]) -> torch.Tensor:
    """Return a copy of a tensor if it is in this memory."""
    return tensor.clone() if _address(tensor) in memory else tensor


def weights_of(
    division: PartitionedProgram, number: int, weights: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return a partition's weights by its own names, from those of the whole program."""
    part = division.parts[number]
    names = part.weights if isinstance(part, EnginePartition) else {}
    return {own: weights[name] for own, name in names.items()}


@frozen_dataclass
class PlanStep:
    """A partition with the places of its values in the list of a call's values.

    Attributes:
        part: the partition's number.
        check: the input check of an engine; None in torch.
        takes, gives: the places of its inputs and outputs.
        freeable: of those, the places that can be freed at some time.
        last_uses: of those, the places that are freed after this step when the steps run in order.
    """

    part: int
    check: InputCheck | None
    takes: tuple[int, ...]
    gives: tuple[int, ...]
    freeable: tuple[int, ...] = ()
    last_uses: tuple[int, ...] = ()


class ExecutionPlan:
    """The weight-independent plan: which partition runs when, and where its values are.

    Attributes:
        division: the partitions.
        interface: the program's interface.
        device: the device that it runs on.
        steps: the partitions in order.
        results: the places of the program's results.
        stores: the weights that a call modifies, with the places of their new contents.
        input_count: the number of inputs, whose places come first.
        changed_inputs: the places of the inputs that a call modifies.
        needs: for each partition, those whose results it uses.
        turns: the partitions that run in sequence regardless of their inputs.
        users: for each place that can be freed, how many partitions write or read it.
        weights, constants: the names of weights and constants that partitions read, with their places.
        sizes: the expressions of sizes that partitions read, with their places.
        carriers: the expressions of sizes that engines read from the shape of an empty tensor, with its place.
        count: the number of places.
    """

    def __init__(self, division: PartitionedProgram, interface: Interface, device: torch.device) -> None:
        """Assign a place to each value."""
        self.division, self.interface = division, interface
        self.device = device
        parts = division.parts
        self.needs = tuple({wire.part for wire in part.takes if isinstance(wire, PartitionOutput)} for part in parts)
        self.turns: tuple[int, ...] = ()
        if len(parts) > 1:
            from trtcache.partition.extract import is_sequential  # imports sympy, which takes half a second

            self.turns = tuple(n for n, part in enumerate(parts) if any(map(is_sequential, part.cluster.nodes)))
        self.input_count = len(interface.inputs)
        changed = {one.target for one in interface.results if one.kind == "input"}
        self.changed_inputs = tuple(place for place, one in enumerate(interface.inputs) if one.leaf in changed)
        self._places: dict[Wire, int] = {InputWire(place): place for place in range(self.input_count)}
        self.results = tuple(map(self._place, division.results))
        self.stores = tuple((name, self._place(wire)) for name, wire in division.stores)
        self.steps = self._add_lifetimes([self._step(number) for number in range(len(parts))])
        self.users = Counter(place for step in self.steps for place in step.freeable)
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

    def _step(self, number: int) -> PlanStep:
        part = self.division.parts[number]
        check = None
        if isinstance(part, EnginePartition):
            check = InputCheck(
                part.program.interface, part.program.device, lambda leaf: f"input {leaf} of part {number}"
            )
        takes = tuple(map(self._place, part.takes))
        gives = tuple(self._place(PartitionOutput(number, place)) for place in range(part.gives))
        return PlanStep(number, check, takes, gives)

    def _add_lifetimes(self, steps: list[PlanStep]) -> tuple[PlanStep, ...]:
        """Record after which step each value can be freed."""
        kept = {*self.results, *(place for _, place in self.stores)}
        made = {place for wire, place in self._places.items() if isinstance(wire, PartitionOutput)} - kept
        seen: set[int] = set()
        freed = []
        for step in reversed(steps):
            freeable = tuple(dict.fromkeys(place for place in (*step.takes, *step.gives) if place in made))
            freed.append(replace(step, freeable=freeable, last_uses=tuple(one for one in freeable if one not in seen)))
            seen.update(freeable)
        return tuple(reversed(freed))

    def sized_inputs(self, number: int, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
        """Return tensors of the sizes that an engine's inputs will have; None if they depend on results."""
        part = self.division.parts[number]
        assert isinstance(part, EnginePartition)  # noqa: S101  # engines are of such parts
        sizes, own = bind_sizes(self.interface.inputs, inputs), dict[int, int]()
        specs = part.program.interface.inputs
        for spec in specs:
            wire = part.takes[spec.leaf]
            if isinstance(wire, InputWire):
                bind(spec, inputs[wire.place], own)
            elif isinstance(wire, SizeTensor):
                bind(spec, evaluate(json.loads(wire.size.text), sizes), own)
        shapes = [[evaluate(size, own) for size in spec.shape] for spec in specs]
        if any(None in shape for shape in shapes):
            return None
        return [torch.empty(shape, device="meta") for shape in shapes]
