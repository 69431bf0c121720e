"""The contracts of trtcache on ONNX Runtime: pytest runs them."""

from pathlib import Path

import pytest
import torch

import trtcache
from trtcache.testing import BackendContract, RefitContract
from trtcache.testing.refit import RefitModel, image


class TestBackend(BackendContract):
    backend = "onnxruntime"


class TestRefit(RefitContract):
    @pytest.fixture
    def compiled(self, tmp_path: Path) -> trtcache.CompiledModule:
        return trtcache.compile(RefitModel(0), (image("cpu"),), backend="onnxruntime", cache=tmp_path)


def test_the_optimization_is_in_the_key() -> None:
    keys = set()
    for level in ("none", "basic", "all"):
        settings = {"onnxruntime": {"optimization": level}}
        key = trtcache.key(RefitModel(0), (image("cpu"),), backend="onnxruntime", settings=settings)
        keys.add(key.digest)
    assert len(keys) == 3


def test_dtypes_that_it_lacks_stay_in_torch(tmp_path: Path) -> None:
    model, x = RefitModel(0).to(torch.bfloat16), image("cpu").to(torch.bfloat16)
    module = trtcache.compile(model, (x,), backend="onnxruntime", cache=tmp_path)
    assert module.report.left
    torch.testing.assert_close(module(x), model(x), rtol=2e-2, atol=2e-2)
