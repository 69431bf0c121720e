"""Runs a program in its parts: engines and what stays in torch, one after the other or side by side.

To a compiled module it is an engine like any other: it takes the program's inputs, gives its results, and is refitted
with the weights of the whole program.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import torch

from trtcache.backends.protocol import Engine, Parallel
from trtcache.config.threads import Threads, run_with
from trtcache.errors import IncompatibleEngineError, RunError
from trtcache.lowering.expressions import evaluate
from trtcache.partition.partitions import EnginePartition
from trtcache.runtime.parallel import Call, InterOp, TorchState
from trtcache.runtime.precedence import Precedence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trtcache.partition.partitions import PartitionedProgram
    from trtcache.runtime.steps import Plan, Step


class Schedule(Engine):
    """A program in parts, with weights in it.

    Attributes:
        at_once: how many parts of a call can run side by side at most.
    """

    def __init__(
        self,
        plan: Plan,
        engines: Mapping[int, Engine],
        weights: Mapping[str, torch.Tensor],
        constants: Mapping[str, torch.Tensor],
        inter_op: InterOp | None = None,
    ) -> None:
        """Put the parts together.

        Args:
            plan: what runs when.
            engines: live engines with weights in them, by the numbers of their parts.
            weights: the whole program's weights.
            constants: its constants.
            inter_op: how parts run side by side; by default as ``trtcache.threads`` alone says.
        """
        self._plan, self._engines, self._weights, self._constants = plan, engines, weights, constants
        self._inter_op = inter_op or InterOp(Threads())
        self._order = Precedence.of(plan.needs, [plan.turns, *_shared(engines)])
        # A GPU's calls are enqueued in its thread's own stream, and run side by side as it is.
        self.at_once = self._order.at_once if plan.device.type == "cpu" else 1
        self._is_unlocked = False
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
        return Schedule(self._plan, engines, weights, self._constants, self._inter_op)

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
        inter_op = InterOp(self._inter_op.threads, calls=calls)
        return Schedule(self._plan, engines, self._weights, self._constants, inter_op)

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the parts."""
        plan, values = self._plan, self._template.copy()
        values[: len(inputs)] = inputs
        with torch.no_grad():
            if plan.sizes or plan.carriers:
                self._put_sizes(values, inputs)
            crew = self._inter_op.crew(self.at_once) if self.at_once > 1 else None
            state = TorchState.here() if crew else None
            if crew is None or state is None:
                for step in plan.steps:
                    self._step(step, values)
                    for place in step.frees:
                        values[place] = None
            else:
                self._unlock()
                run_with(crew.intra, self._call_of(values, state).finish, crew)
            return self._finished(values)

    def _step(self, step: Step, values: list[Any]) -> None:
        taken = [values[place] for place in step.takes]
        made = self._calls[step.part](taken if step.check is None else step.check(taken))
        for place, value in zip(step.gives, made, strict=True):
            values[place] = value

    def _call_of(self, values: list[Any], state: TorchState) -> Call:
        """Return a call whose parts run side by side; a value is forgotten when the last that has it is done."""
        steps, users = self._plan.steps, self._plan.users.copy()

        def release(number: int) -> None:
            for place in steps[number].lets_go:
                users[place] -= 1
                if not users[place]:
                    values[place] = None

        def run(number: int) -> None:
            self._step(steps[number], values)

        return Call(self._order, run, release, state, self._inter_op.took_s)

    def _unlock(self) -> None:
        """Exchange the engines for such as run without the interpreter's lock, where there are such.

        No lock, which a fork could find locked: threads that come at once may exchange them twice.
        """
        if not self._is_unlocked:
            self._engines = {number: _unlocked(engine) for number, engine in self._engines.items()}
            self._calls = [self._call(number) for number in range(len(self._plan.steps))]
            self._is_unlocked = True

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


def _shared(engines: Mapping[int, Engine]) -> list[list[int]]:
    """Return the parts that one and the same engine runs, which nobody promises to have room for two of them."""
    found: dict[int, list[int]] = defaultdict(list)
    for number in sorted(engines):
        found[id(engines[number])].append(number)
    return list(found.values())


def _unlocked(engine: Engine) -> Engine:
    try:
        return engine.parallel(1) if isinstance(engine, Parallel) else engine
    except (IncompatibleEngineError, RunError):
        return engine


def _apart(tensor: torch.Tensor, memory: set[int]) -> torch.Tensor:
    """Return a tensor that does not lie in some memory, which is to be written."""
    return tensor.clone() if tensor.untyped_storage().data_ptr() in memory else tensor


def weights_of(
    division: PartitionedProgram, number: int, weights: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return the weights of a part, by its own names, of those of the whole program."""
    part = division.parts[number]
    names = part.weights if isinstance(part, EnginePartition) else {}
    return {own: weights[name] for own, name in names.items()}
