"""Refits on a CUDA device, for real: the contract, and weights that come from files and other devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import save_file

import trtcache
from tests.runtime.refit_contract import Network, RefitContract, image
from trtcache.errors import RefitError

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
    return trtcache.compile(Network(0).cuda(), (image("cuda"),), cache=tmp_path_factory.mktemp("refit"))


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
        with pytest.raises(RefitError, match="on cpu, the engine is on cuda"):
            compiled.refit(Network(1).state_dict())
        self.answers(compiled, self.network(0))
        state = {name: one for name, one in Network(1).state_dict().items() if name != "out.weight"}
        save_file(state, tmp_path / "weights.safetensors")
        assert compiled.refit(tmp_path / "weights.safetensors").shared == 0
        self.answers(compiled, self.network(1))
        assert compiled.refit(tmp_path / "weights.safetensors").changed == ()
