"""Results lie in memory as the model's own do."""

from __future__ import annotations

import pytest
import torch

from trtcache.runtime.layouts import laid_out, lies_in


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 0, 1), (1, 0, 2)])
def test_a_result_is_laid_out_in_an_order(order: tuple[int, ...]) -> None:
    """A copy has the same values, and its dimensions in the order asked for."""
    result = torch.randn(2, 3, 4)
    copy = laid_out(result, order)
    assert torch.equal(copy, result)
    assert lies_in(copy, order)
    steps = [copy.stride(dim) for dim in order]
    assert steps == sorted(steps, reverse=True)
    assert lies_in(result, order) == (order == (0, 1, 2))


def test_a_size_of_one_lies_in_any_place() -> None:
    """A dimension of size 1 does not decide the layout."""
    assert lies_in(torch.randn(1, 5), (1, 0))
    assert lies_in(torch.randn(5), (0,))
    assert lies_in(torch.tensor(1.0), ())
