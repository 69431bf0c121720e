"""Timing caches of TensorRT and runtime caches of TensorRT-RTX, for real: written before anybody could run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import trtcache
from tests.gpu.test_tensorrt_runner import missing
from trtcache.backends.tensorrt.flavour import TENSORRT, TENSORRT_RTX
from trtcache.backends.tensorrt.tuning import RUNTIME_CACHE as RUNTIME
from trtcache.backends.tensorrt.tuning import TIMING_CACHE as TIMING
from trtcache.store.disk import DiskStore

if TYPE_CHECKING:
    from pathlib import Path

    from trtcache.backends.tensorrt.flavour import Flavour


def _case(flavour: Flavour, kind: str) -> object:
    why = missing(flavour)
    return pytest.param(flavour.name, kind, id=flavour.name, marks=pytest.mark.skipif(why is not None, reason=str(why)))


pytestmark = [pytest.mark.gpu, pytest.mark.tensorrt, pytest.mark.slow]


@pytest.mark.parametrize(("backend", "kind"), [_case(TENSORRT, TIMING), _case(TENSORRT_RTX, RUNTIME)])
def test_what_was_learned_is_kept_and_taken(backend: str, kind: str, tmp_path: Path) -> None:
    """One entry after a build and a call, the same one after another model's, which has the first one's in it."""
    store = DiskStore.open(tmp_path)
    sizes = []
    for width in (64, 96):
        model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)).eval().cuda()
        x = torch.randn(4, width, device="cuda")
        module = trtcache.compile(model, (x,), backend=backend, cache=tmp_path)
        torch.testing.assert_close(module(x), model(x), rtol=2e-2, atol=2e-2)
        (kept,) = (one for one in store.scan() if store.header(one.digest).kind == kind)
        sizes.append(store.header(kept.digest).size_bytes)
    assert sizes[1] > sizes[0] > 0
