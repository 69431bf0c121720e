"""In-place changes of weights, also those that torch does not count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from trtcache.weights.fingerprints import COMPARED_BYTES, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL, LARGE = COMPARED_BYTES // 4, COMPARED_BYTES // 4 + 1


def _step(weight: nn.Parameter, *, fused: bool, compiled: bool = False) -> None:
    optimizer = torch.optim.AdamW([weight], 0.1, fused=fused)
    weight.grad = torch.ones_like(weight)
    step: Callable[[], object] = torch.compile(optimizer.step, backend="aot_eager") if compiled else optimizer.step
    step()


def _add(weight: nn.Parameter) -> None:
    with torch.no_grad():
        weight.add_(1)


@pytest.mark.parametrize(
    "change",
    [
        _add,
        lambda weight: _step(weight, fused=False),
        lambda weight: _step(weight, fused=True),
        lambda weight: _step(weight, fused=True, compiled=True),
    ],
)
@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_changes_are_noticed(
    mode: Callable[[], torch.no_grad], size: int, change: Callable[[nn.Parameter], None]
) -> None:
    """Small weights and large ones, whether inference mode took the snapshot or not."""
    weight, other = nn.Parameter(torch.randn(size)), torch.randn(3)
    with mode():
        snapshot = Snapshot([other, weight])
    assert snapshot.is_current()
    change(weight)
    assert not snapshot.is_current()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.bool, torch.int8])
def test_small_weights_are_compared_by_value(dtype: torch.dtype) -> None:
    """No write bypasses that, and a write of the same values is no change."""
    weight = torch.zeros(2, 3, dtype=dtype)
    snapshot = Snapshot([torch.randn(0), weight, torch.tensor(float("nan"))])
    weight.zero_()
    assert snapshot.is_current()
    weight.data[1, 2] = 1
    assert not snapshot.is_current()


def test_weights_of_inference_mode() -> None:
    """Without a version counter a large one always counts as changed; a small one is compared."""
    with torch.inference_mode():
        small, large = torch.randn(4), torch.randn(LARGE)
        snapshot = Snapshot([small])
        assert snapshot.is_current()
        small.add_(1)
        assert not snapshot.is_current()
        assert not Snapshot([large]).is_current()


def test_other_tensors_are_counted() -> None:
    """Those that are not contiguous, those without memory, and those in oneDNN's layout."""
    turned, freed, packed = torch.randn(2, 3).t(), torch.randn(4), torch.randn(2, 2).to_mkldnn()
    freed.untyped_storage().resize_(0)
    snapshot = Snapshot([turned, freed, packed])
    assert snapshot.is_current()
    turned.add_(1)
    assert not snapshot.is_current()


def test_memory_can_be_freed() -> None:
    """A snapshot does not stop a program that frees the memory of its weights, as FSDP does."""
    weight = torch.randn(4)
    snapshot = Snapshot([weight])
    assert snapshot.is_current()
    weight.untyped_storage().resize_(0)
    assert weight.untyped_storage().nbytes() == 0
