"""Whether two tensors share memory."""

from __future__ import annotations

import pytest
import torch

from trtcache.runtime.memory import find_overlap, overlap

WHOLE = torch.zeros(8, 6)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (WHOLE, WHOLE, True),
        (WHOLE, WHOLE.t(), True),
        (WHOLE[:4], WHOLE[4:], False),
        (WHOLE[:5], WHOLE[4:], True),
        (WHOLE[::2], WHOLE[1::2], False),
        (WHOLE[:, 0], WHOLE[:, 1], False),
        (WHOLE[:, :3], WHOLE[:, 2:], True),
        (WHOLE[2:3].expand(4, 6), WHOLE[2], True),
        (WHOLE.view(torch.int16), WHOLE, True),
        (WHOLE[:4], torch.zeros(8, 6), False),
        (WHOLE[:0], WHOLE, False),
        (WHOLE[0, 0], WHOLE, True),
        (WHOLE, WHOLE.to("meta"), False),
    ],
)
def test_overlap_is_exact(one: torch.Tensor, other: torch.Tensor, expected: bool) -> None:
    """Views that share an element overlap, interleaved and adjacent ones do not, in either order."""
    assert overlap(one, other) is expected
    assert overlap(other, one) is expected


def test_the_default_device_does_not_matter() -> None:
    """Addresses are compared on the CPU."""
    with torch.device("meta"):
        assert overlap(WHOLE[:, :3], WHOLE[:, 2:])
        assert not overlap(WHOLE[:, 0], WHOLE[:, 1])


@pytest.mark.parametrize(
    ("changed", "expected"), [({2}, None), ({0}, (0, 1)), ({1}, (1, 0)), ({3, 2}, (3, 1)), (set(), None)]
)
def test_only_what_is_changed_must_lie_apart(changed: set[int], expected: tuple[int, int] | None) -> None:
    """Of several tensors a pair is found that shares memory, one of the two changed; the rest may overlap."""
    tensors = {0: WHOLE[0], 1: WHOLE[:5], 2: WHOLE[6:], 3: WHOLE[4, 2:], 4: WHOLE[:0], 5: torch.zeros(3)}
    assert find_overlap(changed, tensors) == expected
