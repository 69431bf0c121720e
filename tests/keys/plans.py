"""Small random programs: what they are, what they compute, and lowered graphs made from them without an export."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from hypothesis import strategies as st
from torch import fx
from torch._subclasses import FakeTensorMode
from torch.utils import _pytree as pytree

from trtcache.keys.graph_digest import graph_records
from trtcache.lowering.interface import Content, Result
from trtcache.lowering.marked_graph import MarkedGraph
from trtcache.lowering.program import finish

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator, Mapping

    from trtcache.lowering.stages import Pipeline

aten = torch.ops.aten

INPUTS, WEIGHTS, CONSTANTS = 2, 3, 2
SOURCES = INPUTS + WEIGHTS + CONSTANTS
"""Every value is a 4 by 4 matrix; the first ones are inputs, weights and constants, and each step makes one more."""


@dataclass(frozen=True, slots=True)
class Kind:
    """An operator, how many matrices it takes, and what else it may be given."""

    target: Any
    arity: int
    params: tuple[tuple[Any, ...], ...] = ((),)


_UNARY = (aten.sin, aten.cos, aten.relu, aten.neg, aten.tanh, aten.abs, aten.clone)
KINDS = (
    *(Kind(packet.default, 1) for packet in _UNARY),
    *(Kind(target, 2) for target in (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.atan2.default)),
    *(Kind(target, 2) for target in (aten.maximum.default, aten.minimum.default, aten.mm.default)),
    Kind(aten.mul.Tensor, 1, ((2.0,), (0.5,), (0.5000001,))),
    Kind(aten.add.Tensor, 1, ((0.0,), (-0.0,), (1.0,))),
    Kind(aten._softmax.default, 1, ((0, False), (1, False), (-1, False))),
    Kind(aten.cumsum.default, 1, ((0,), (1,), (-2,))),
    Kind(aten.flip.default, 1, (([0],), ([1],), ([0, 1],))),
    Kind(aten.permute.default, 1, (([1, 0],), ([0, 1],))),
    Kind(aten.leaky_relu.default, 1, ((0.01,), (0.1,), (0.2,))),
    Kind(aten.clamp.default, 1, ((0.0, 0.5), (-0.5, 0.5), (None, 0.5), (-0.5, None))),
    Kind(aten.pow.Tensor_Scalar, 1, ((2,), (3,))),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One operator: its kind, which values it takes, and its other arguments."""

    kind: Kind
    operands: tuple[int, ...]
    params: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A program: the numbers of its constants, its steps, and which values it returns."""

    constants: tuple[int, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    def meaning(self) -> object:
        """Return what the program computes, as nested tuples; weights are numbered by first use from the outputs."""
        numbers: dict[int, int] = {}
        known: dict[int, object] = {}

        def of(value: int) -> object:
            if value not in known:
                known[value] = self._leaf(value, numbers) if value < SOURCES else called(self.steps[value - SOURCES])
            return known[value]

        def called(step: Step) -> object:
            return (str(step.kind.target), repr(step.params), tuple(of(one) for one in step.operands))

        return tuple(of(one) for one in self.outputs)

    def _leaf(self, value: int, numbers: dict[int, int]) -> object:
        if value < INPUTS:
            return ("input", value)
        if value < INPUTS + WEIGHTS:
            return ("weight", numbers.setdefault(value, len(numbers)))
        return ("constant", self.constants[value - INPUTS - WEIGHTS])

    def live(self) -> list[int]:
        """Return the places of the steps that the outputs depend on."""
        found: set[int] = set()
        stack = list(self.outputs)
        while stack:
            value = stack.pop()
            if value >= SOURCES and value not in found:
                found.add(value)
                stack += self.steps[value - SOURCES].operands
        return sorted(value - SOURCES for value in found)

    def run(self) -> list[torch.Tensor]:
        """Return what the program computes on random inputs, with a value for each weight by the order of its use."""
        numbers: dict[int, int] = {}
        values: dict[int, torch.Tensor] = {}

        def of(value: int) -> torch.Tensor:
            if value not in values:
                if value < SOURCES:
                    values[value] = _matrix(*self._leaf(value, numbers))  # type: ignore[misc]  # a pair
                else:
                    step = self.steps[value - SOURCES]
                    values[value] = step.kind.target(*(of(one) for one in step.operands), *step.params)
            return values[value]

        with torch.no_grad():
            return [of(one) for one in self.outputs]


@functools.cache
def _matrix(kind: str, number: int) -> torch.Tensor:
    seed = {"input": 100, "weight": 200, "constant": 300}[kind] + number
    return torch.randn(4, 4, generator=torch.Generator().manual_seed(seed))


@functools.cache
def _content(number: int) -> Content:
    return Content.of(_matrix("constant", number))


@st.composite
def steps(draw: st.DrawFn, place: int, kind: Kind | None = None) -> Step:
    """Draw the step at a place."""
    chosen = kind or draw(st.sampled_from(KINDS))
    operands = tuple(draw(st.integers(0, SOURCES + place - 1)) for _ in range(chosen.arity))
    return Step(chosen, operands, draw(st.sampled_from(chosen.params)))


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Draw a program of up to eight steps."""
    count = draw(st.integers(1, 8))
    made = tuple(draw(steps(place)) for place in range(count))
    others = draw(st.lists(st.integers(0, SOURCES + count - 1), max_size=2))
    numbers = draw(st.tuples(*[st.integers(0, 3)] * CONSTANTS))
    return Plan(numbers, made, (SOURCES + count - 1, *others))


@st.composite
def changed(draw: st.DrawFn, plan: Plan) -> Plan:
    """Draw a plan that differs from another in one operator, argument, edge, constant or output."""
    what = draw(st.sampled_from(("operator", "argument", "edge", "constant", "output")))
    if what == "constant":
        place = draw(st.integers(0, CONSTANTS - 1))
        number = draw(st.integers(0, 3).filter(lambda one: one != plan.constants[place]))
        return replace(plan, constants=_with(plan.constants, place, number))
    if what == "output":
        return replace(plan, outputs=draw(_outputs(plan)))
    place = draw(st.sampled_from(plan.live() or [0]))
    step = draw(_changed_step(plan.steps[place], place, what))
    return replace(plan, steps=_with(plan.steps, place, step))


@st.composite
def _outputs(draw: st.DrawFn, plan: Plan) -> tuple[int, ...]:
    other = draw(st.integers(0, SOURCES + len(plan.steps) - 1))
    place = draw(st.integers(0, len(plan.outputs) - 1))
    return draw(st.sampled_from((_with(plan.outputs, place, other), (*plan.outputs, other), plan.outputs[::-1])))


@st.composite
def _changed_step(draw: st.DrawFn, step: Step, place: int, what: str) -> Step:
    if what == "operator":
        kinds = [kind for kind in KINDS if kind.arity == step.kind.arity and kind is not step.kind]
        kind = draw(st.sampled_from(kinds))
        return Step(kind, step.operands, draw(st.sampled_from(kind.params)))
    others = [params for params in step.kind.params if params != step.params]
    if what == "argument" and others:
        return replace(step, params=draw(st.sampled_from(others)))
    operand = draw(st.integers(0, SOURCES + place - 1))
    return replace(step, operands=_with(step.operands, draw(st.integers(0, step.kind.arity - 1)), operand))


def _with(items: tuple[Any, ...], place: int, item: Any) -> tuple[Any, ...]:
    return (*items[:place], item, *items[place + 1 :])


@dataclass(frozen=True, slots=True)
class _Call:
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec


@dataclass(frozen=True, slots=True)
class _Exported:
    """What ``finish`` asks of an exported program."""

    call_spec: _Call
    state_dict: Mapping[str, torch.Tensor]
    range_constraints: Mapping[Any, Any]


_FAKE = FakeTensorMode()


@functools.cache
def _made(target: Any, params: str, strides: tuple[tuple[int, ...], ...]) -> torch.Tensor:
    """Return the fake value of a step; its params are text, which can be remembered and tells -0.0 from 0.0."""
    with _FAKE:
        operands = [torch.empty_strided((4, 4), one) for one in strides]
        value: torch.Tensor = target(*operands, *eval(params))  # noqa: S307  # the repr of numbers above
        return value


def graph_key(plan: Plan, *, passes: Pipeline | None = None, shuffled: random.Random | None = None) -> str:
    """Return the digest of a plan's graph, its statements and names shuffled, after passes.

    Without passes, which drop dead code, only the steps that outputs depend on are put in the graph.
    """
    marked = _marked(plan, shuffled, range(len(plan.steps)) if passes else plan.live())
    if passes:
        passes.run(marked.graph_module)
    specs = (pytree.tree_structure(((0,) * INPUTS, {})), pytree.tree_structure((0,) * len(plan.outputs)))
    exported: Any = _Exported(_Call(*specs), marked.state, {})
    program = finish(exported, marked, name="plan", pipeline=(), runs=())
    return str(graph_records(program)[1])


def _marked(plan: Plan, shuffled: random.Random | None, places: Iterable[int]) -> MarkedGraph:
    module = fx.GraphModule(torch.nn.Module(), fx.Graph())
    names = [f"w{number}" for number in range(WEIGHTS)]
    if shuffled:
        shuffled.shuffle(names)
    values = _sources(module, plan, names)
    for place in _ordered(plan, places, shuffled):
        step = plan.steps[place]
        operands = [values[one] for one in step.operands]
        name = f"n{shuffled.randrange(1000)}" if shuffled else None
        node = module.graph.create_node("call_function", step.kind.target, (*operands, *step.params), {}, name)
        strides = tuple(one.meta["val"].stride() for one in operands)
        node.meta["val"] = _made(step.kind.target, repr(step.params), strides)
        values[SOURCES + place] = node
    output = module.graph.output(tuple(values[one] for one in plan.outputs))
    output.meta["roles"] = (Result("result"),) * len(plan.outputs)
    state = {name: torch.empty(4, 4) for name in names}
    return MarkedGraph(module, state, {}, {})


def _sources(module: fx.GraphModule, plan: Plan, names: list[str]) -> dict[int, fx.Node]:
    values: dict[int, fx.Node] = {}
    for value in range(SOURCES - CONSTANTS):
        node = values[value] = module.graph.placeholder(f"p{value}")
        key, mark = ("input", value) if value < INPUTS else ("weight", names[value - INPUTS])
        node.meta |= {key: mark, "val": _made(aten.empty.memory_format, "([4, 4],)", ())}
    for value, number in enumerate(plan.constants, start=SOURCES - CONSTANTS):
        name = f"c{value}"
        module.register_buffer(name, _matrix("constant", number), persistent=False)
        node = values[value] = module.graph.create_node("get_attr", name)
        node.meta |= {"val": _made(aten.empty.memory_format, "([4, 4],)", ()), "content": _content(number)}
    return values


def _ordered(plan: Plan, places: Iterable[int], shuffled: random.Random | None) -> Iterator[int]:
    """Yield steps in an order in which each comes after those that it uses."""
    left = list(places)
    done = set(range(SOURCES))
    while left:
        ready = [place for place in left if done.issuperset(plan.steps[place].operands)]
        place = shuffled.choice(ready) if shuffled else ready[0]
        left.remove(place)
        done.add(SOURCES + place)
        yield place


class Planned(torch.nn.Module):
    """A plan as a module, for a real export; its statements and names are shuffled."""

    def __init__(self, plan: Plan, shuffled: random.Random) -> None:
        super().__init__()
        self.plan = plan
        self.order = list(_ordered(plan, plan.live(), shuffled))
        self.names = [f"w{number}" for number in range(WEIGHTS)]
        shuffled.shuffle(self.names)
        for name in sorted(self.names):
            self.register_parameter(name, torch.nn.Parameter(torch.randn(4, 4)))
        for place, number in enumerate(plan.constants):
            self.register_buffer(f"c{place}", _matrix("constant", number), persistent=False)

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        values = [*inputs, *(getattr(self, name) for name in self.names), self.c0, self.c1]
        known = dict(enumerate(values))
        for place in self.order:
            step = self.plan.steps[place]
            known[SOURCES + place] = step.kind.target(*(known[one] for one in step.operands), *step.params)
        return [known[one] for one in self.plan.outputs]
