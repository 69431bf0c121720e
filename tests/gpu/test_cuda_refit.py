"""Refits on a CUDA device, for real: the contract, and weights that come from files and other devices."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import save_file

import trtcache
from tests.comparing import difference
from trtcache.errors import RefitError
from trtcache.testing.refit import RefitContract, RefitModel, image

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU; torch sees none"),
]


@pytest.fixture(scope="module")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> trtcache.CompiledModule:
    """The network of seed 0 on the GPU; each test begins with a refit."""
    return trtcache.compile(RefitModel(0).cuda(), (image("cuda"),), cache=tmp_path_factory.mktemp("refit"))


class TestCuda(RefitContract):
    """The contract."""

    device = "cuda"
    tolerance = 1e-3

    @pytest.fixture
    def compiled(self, packaged: trtcache.CompiledModule) -> trtcache.CompiledModule:
        """The network of seed 0."""
        return packaged

    def test_a_state_dict_on_the_cpu_is_refused_and_a_file_is_not(
        self, compiled: trtcache.CompiledModule, tmp_path: Path
    ) -> None:
        """A file's weights are brought to the GPU one by one; the caller's are where he wants them."""
        compiled.refit(self.network(0))
        with pytest.raises(RefitError, match="on cpu, the engine expects it on cuda"):
            compiled.refit(RefitModel(1).state_dict())
        self.answers(compiled, self.network(0))
        state = {name: one for name, one in RefitModel(1).state_dict().items() if name != "out.weight"}
        save_file(state, tmp_path / "weights.safetensors")
        assert compiled.refit(tmp_path / "weights.safetensors").shared == 0
        self.answers(compiled, self.network(1))
        assert compiled.refit(tmp_path / "weights.safetensors").changed == ()

    def test_a_first_call_may_be_a_new_threads(self, compiled: trtcache.CompiledModule) -> None:
        """An engine that was just loaded runs in a thread that has not used the GPU before."""
        x, found = image("cuda"), list[torch.Tensor]()
        compiled.refit(self.network(2))
        thread = threading.Thread(target=lambda: found.append(compiled(x)))
        thread.start()
        thread.join()
        with torch.no_grad():
            assert difference(self.network(2)(x), found[0], self.tolerance) is None

    def test_weights_of_a_file_come_in_rows(self, tmp_path: Path) -> None:
        """No more than a few rows of a weight are on the GPU beside the engine's own."""
        layers = torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.Linear(2048, 2048)).cuda()
        module = trtcache.compile(layers, (torch.ones(2, 2048, device="cuda"),), cache=tmp_path / "cache")
        save_file({name: one + 1 for name, one in layers.state_dict().items()}, tmp_path / "w.safetensors")
        for _ in "12":
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            report = module.refit(tmp_path / "w.safetensors")
        assert report.in_place
        assert torch.cuda.max_memory_allocated() - before < 2048 * 2048 * 4
