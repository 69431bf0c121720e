"""Whether two tensors share memory, and the calls that are refused for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import trtcache
from trtcache.errors import InputError
from trtcache.runtime.inputs import Memory, find_overlap, overlap

if TYPE_CHECKING:
    from pathlib import Path

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


def test_of_two_changed_tensors_the_later_one_is_named() -> None:
    """The order of arguments decides, not that of addresses."""
    assert find_overlap({0, 1}, {0: WHOLE[4:], 1: WHOLE[:5]}) == find_overlap({0, 1}, {0: WHOLE[:5], 1: WHOLE[4:]})


def test_tensors_are_found_by_their_memory() -> None:
    """Also after it has moved; interleaved tensors and empty ones share none."""
    columns, moving = torch.zeros(4, 3), torch.zeros(5)
    memory = Memory({"first": columns[:, 0], "moving": moving, "empty": WHOLE[:0]})
    leaves = [columns[:, 1], columns[2], WHOLE, moving[:0], moving[4:]]
    assert memory.find_shared(leaves, (0, 2, 3)) is None
    assert memory.find_shared(leaves, (0, 1)) == (1, "first")
    assert memory.find_shared(leaves, (3, 4)) == (4, "moving")
    moving.share_memory_()
    assert memory.find_shared(leaves, (3, 4)) == (4, "moving")


class Adding(torch.nn.Module):
    """Changes its first argument before it reads its weights and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(4))
        self.constant = torch.randn(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x + self.w * self.constant


def test_an_input_that_a_call_changes_in_the_memory_of_a_weight_is_refused(interpreter: str, engines: Path) -> None:
    """An engine reads both before it writes. After a refit the new weight's memory counts, whatever has it."""
    model = Adding()
    module = trtcache.compile(model, (torch.zeros(4),), backend=interpreter, cache=engines)
    array = torch.randn(4).numpy()
    first, refitted = model.w.detach(), torch.from_numpy(array)
    for weight in (first, module._executable.constants["c0"]):
        with pytest.raises(InputError, match=r"x: expected memory of its own: a call changes it, .* with a weight"):
            module(weight)
        assert not module.takes(weight)
    module.refit({"w": refitted})
    with pytest.raises(InputError, match="with a weight"):
        module(torch.from_numpy(array))
    x = first.clone()
    assert torch.equal(module(first), x + 1 + refitted * model.constant)
    assert torch.equal(first, x + 1)


def test_tensors_that_share_parts_of_elements_overlap() -> None:
    """Addresses of elements that differ by less than an element."""
    data = bytearray(40)
    one, other = (torch.frombuffer(data, dtype=torch.float32, count=8, offset=at) for at in (0, 2))
    assert overlap(one, other)
    assert overlap(one[::2], other[::2])
