"""Results lie in memory as the model's own do."""

from __future__ import annotations

import pytest
import torch

from trtcache.runtime.memory import has_layout, to_layout


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 0, 1), (1, 0, 2)])
def test_a_result_is_laid_out_in_an_order(order: tuple[int, ...]) -> None:
    """A copy has the same values, and its dimensions in the order asked for."""
    result = torch.randn(2, 3, 4)
    copy = to_layout(result, order)
    assert torch.equal(copy, result)
    assert has_layout(copy, order)
    steps = [copy.stride(dim) for dim in order]
    assert steps == sorted(steps, reverse=True)
    assert has_layout(result, order) == (order == (0, 1, 2))


def test_a_size_of_one_lies_in_any_place() -> None:
    """A dimension of size 1 does not decide the layout."""
    assert has_layout(torch.randn(1, 5), (1, 0))
    assert has_layout(torch.randn(5), (0,))
    assert has_layout(torch.tensor(1.0), ())
