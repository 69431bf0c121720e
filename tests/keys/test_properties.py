"""Random programs: what must not change the key does not, and what changes the program does."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.effort import tries
from tests.keys import plans
from tests.keys.plans import Plan, Planned, graph_key
from trtcache.keys.graph_digest import graph_records
from trtcache.lowering import lower
from trtcache.lowering.stages import default_pipeline

# Not traced: thousands of the same calls would take longer to trace than to make.
pytestmark = [pytest.mark.torture, pytest.mark.no_cover]

PASSES = default_pipeline()
INPUTS = (torch.ones(4, 4),) * plans.INPUTS


def examples(count: int) -> settings:
    """Return settings for so many examples, the same ones on every run."""
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@examples(tries(600, 3000))
@given(st.data())
def test_the_key_is_the_meaning(data: st.DataObject) -> None:
    """Without passes, a changed program has the key of the first exactly if every result is the same expression."""
    plan = data.draw(plans.plans())
    other = data.draw(plans.changed(plan))
    assert (graph_key(plan) == graph_key(other)) == (plan.meaning() == other.meaning())


@examples(tries(250, 1000))
@given(plans.plans(), st.integers(0, 1 << 30))
def test_order_names_and_dead_code_are_not_in_the_key(plan: Plan, seed: int) -> None:
    """Reordering, renaming, and removing what no output depends on keep the key."""
    live = graph_key(_without_dead_code(plan), passes=PASSES)
    assert graph_key(plan, passes=PASSES, shuffled=random.Random(seed)) == live


@examples(tries(250, 1000))
@given(st.data())
def test_a_change_of_results_changes_the_key(data: st.DataObject) -> None:
    """After the passes, a changed program that computes something else has another key."""
    plan = data.draw(plans.plans())
    other = data.draw(plans.changed(plan))
    if not _same_results(plan, other):
        assert graph_key(plan, passes=PASSES) != graph_key(other, passes=PASSES)


@examples(tries(8, 25))
@given(st.data(), st.integers(0, 1 << 30))
def test_exported_again_it_has_the_key_again(data: st.DataObject, seed: int) -> None:
    """A program exported from code with other names and another order keeps its key; with a change it has another."""
    plan = data.draw(plans.plans())
    other = data.draw(plans.changed(plan))
    first, again, third = (_exported_key(one, seed + place) for place, one in enumerate((plan, plan, other)))
    assert first == again
    if not _same_results(plan, other):
        assert first != third


def _exported_key(plan: Plan, seed: int) -> str:
    return str(graph_records(lower(Planned(plan, random.Random(seed)), INPUTS))[1])


def _without_dead_code(plan: Plan) -> Plan:
    places = {place: index for index, place in enumerate(plan.live())}

    def moved(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(
            value if value < plans.SOURCES else plans.SOURCES + places[value - plans.SOURCES] for value in values
        )

    steps = (plan.steps[place] for place in places)
    kept = tuple(plans.Step(step.kind, moved(step.operands), step.params) for step in steps)
    return Plan(plan.constants, kept, moved(plan.outputs))


def _same_results(plan: Plan, other: Plan) -> bool:
    ours, theirs = plan.run(), other.run()
    return len(ours) == len(theirs) and all(map(_same, ours, theirs))


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)
