"""While the garbage collector is paused nothing is collected; what was frozen stays so."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from trtcache.config import paused_collector

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _nothing_frozen() -> Iterator[None]:
    assert gc.get_freeze_count() == 0
    yield
    gc.unfreeze()


def is_oldest(wanted: object) -> bool:
    """Return whether an object is in the oldest generation."""
    return any(found is wanted for found in gc.get_objects(generation=2))


def test_many_new_objects_are_not_scanned_afterwards() -> None:
    """They are moved to the oldest generation; a few are left to the next collection."""
    with paused_collector():
        assert not gc.isenabled()
        made = [[number] for number in range(100_000)]
    assert gc.isenabled()
    assert is_oldest(made[-1])
    gc.collect(0)
    with paused_collector():
        made = [[number] for number in range(100)]
    assert not is_oldest(made[-1])


def test_frozen_objects_stay_frozen() -> None:
    """A server that forks has frozen what its children share."""
    gc.freeze()
    frozen = gc.get_freeze_count()
    with paused_collector():
        made = [[number] for number in range(100_000)]
    assert gc.get_freeze_count() >= frozen - 1000  # some were freed
    assert len(made) == 100_000


def test_a_disabled_collector_stays_disabled() -> None:
    """It is not enabled for a caller who has disabled it."""
    gc.disable()
    try:
        with paused_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
