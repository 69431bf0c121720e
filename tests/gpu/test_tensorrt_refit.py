"""Refits of plans, for real: they need TensorRT, or TensorRT-RTX with torch for CUDA, and their GPU."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pytest
import torch

import trtcache
from trtcache.errors import RefitError
from trtcache.testing.refit import RefitContract, RefitModel, image

if TYPE_CHECKING:
    from pathlib import Path

HAS_GPU = torch.cuda.is_available()
IS_RTX = HAS_GPU and torch.cuda.get_device_capability() in {(7, 5), (8, 0), (8, 6), (8, 9), (12, 0), (12, 1)}

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.tensorrt,
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_GPU, reason="needs a CUDA GPU; torch sees none"),
]


def network(backend: str, root: Path) -> trtcache.CompiledModule:
    """Compile the network of seed 0 into a plan that takes other weights."""
    settings = {"tensorrt": {"refit": True}}
    return trtcache.compile(RefitModel(0).cuda(), (image("cuda"),), backend=backend, cache=root, settings=settings)


class _Plan(RefitContract):
    """What is the same for both."""

    device = "cuda"
    tolerance = 1e-2  # TF32
    shares_weights = False
    backend = ""

    @pytest.fixture(scope="class")
    @classmethod
    def cache(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Keep the plan of the class."""
        return tmp_path_factory.mktemp(cls.backend)

    @pytest.fixture
    def compiled(self, cache: Path) -> trtcache.CompiledModule:
        """The network of seed 0."""
        return network(self.backend, cache)

    def test_a_hit_has_the_weights_of_its_own_model(self, cache: Path) -> None:
        """A plan that was built with one model's weights answers for the next model with that one's."""
        network(self.backend, cache)
        other = self.network(6)
        settings = {"tensorrt": {"refit": True}}
        found = trtcache.compile(other, (image("cuda"),), backend=self.backend, cache=cache, settings=settings)
        assert found.report.partitions[0].outcome == "hit"
        self.answers(found, other)

    def test_a_plan_for_one_set_of_weights_takes_no_others(self, tmp_path: Path) -> None:
        """It says so, and goes on."""
        settings = {"tensorrt": {"refit": False}}
        module = trtcache.compile(
            self.network(0), (image("cuda"),), backend=self.backend, cache=tmp_path, settings=settings
        )
        with pytest.raises(RefitError, match="the plan is not refittable"):
            module.refit(self.network(1))
        self.answers(module, self.network(0))


@pytest.mark.skipif(importlib.util.find_spec("tensorrt") is None, reason="needs TensorRT: pip install tensorrt")
class TestTensorRT(_Plan):
    """The contract on TensorRT."""

    backend = "tensorrt"


@pytest.mark.skipif(importlib.util.find_spec("tensorrt_rtx") is None, reason="needs TensorRT-RTX")
@pytest.mark.skipif(not IS_RTX, reason="needs a GPU that TensorRT-RTX runs on: SM 75, 80, 86, 89, 120 or 121")
class TestTensorRTRtx(_Plan):
    """The contract on TensorRT-RTX."""

    backend = "tensorrt_rtx"
