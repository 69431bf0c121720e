"""Programs that must have different keys, and programs that must have one; their outputs prove which they are."""

from __future__ import annotations

import pytest

from tests.keys.pairs import equal, interfaces, joined, layers, tensors
from tests.keys.pairs.pair import Pair, digests, key, observed, same, takes

# Not traced: thousands of the same calls would take longer to trace than to make.
pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

DIFFERENT = [*layers.pairs(), *tensors.pairs(), *interfaces.pairs()]
EQUAL = [*equal.pairs(), *joined.pairs()]


@pytest.mark.parametrize("pair", DIFFERENT, ids=lambda pair: pair.name)
def test_programs_that_differ_have_two_keys(pair: Pair) -> None:
    """Programs of which outputs, or the inputs they take, differ have different keys and different key aliases."""
    if pair.probe is None:
        assert not same(*(observed(side, pair.inputs) for side in pair.sides))
    else:
        assert len({takes(side, pair.inputs, pair.probe) for side in pair.sides}) == 2
    one, other = (digests(side, pair.inputs) for side in pair.sides)
    assert one[0] != other[0]
    assert one[1] != other[1]  # or the alias of one would lead to the engine of the other


@pytest.mark.parametrize("pair", EQUAL, ids=lambda pair: pair.name)
def test_programs_that_mean_the_same_have_one_key(pair: Pair) -> None:
    """Programs with equal outputs, written in two ways, have one key."""
    assert same(*(observed(side, pair.inputs) for side in pair.sides))
    one, other = (key(side, pair.inputs) for side in pair.sides)
    assert one == other


def test_there_are_enough_pairs() -> None:
    """There are at least 80 pairs that differ and 40 that are equal, each under a name of its own."""
    names = [pair.name for pair in (*DIFFERENT, *EQUAL)]
    assert len(DIFFERENT) >= 80
    assert len(EQUAL) >= 40
    assert len(set(names)) == len(names)
