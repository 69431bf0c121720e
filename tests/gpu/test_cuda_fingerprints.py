"""Fingerprints of weights on a GPU: the same as on the CPU, through a small buffer, remembered."""

from __future__ import annotations

import pytest
import torch

from trtcache.weights.fingerprints import Fingerprints, fingerprints

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU; torch sees none"),
]


@pytest.mark.parametrize("megabytes", [0, 1, 32, 33, 64, 100])
def test_the_device_has_no_say(megabytes: int) -> None:
    """Tensors smaller and larger than the buffer, whole numbers of it and not, contiguous and turned."""
    tensor = torch.randn(megabytes * (1 << 18) + 3)
    assert fingerprints([tensor.cuda()]) == fingerprints([tensor])
    square = torch.randn(300, 200)
    assert fingerprints([square.cuda().t()]) == fingerprints([square.t()])


def test_a_change_on_the_gpu_is_seen() -> None:
    """In place, and past the version counter."""
    known = Fingerprints()
    weight = torch.nn.Parameter(torch.randn(1 << 20, device="cuda"))
    first = known.of([weight])[0]
    assert known.of([weight])[0] is first
    weight.data[7] = 3
    assert known.of([weight])[0] == fingerprints([weight.cpu()])[0] != first
