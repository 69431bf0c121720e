"""Plans of TensorRT and TensorRT-RTX on a GPU, for real: written before anybody could run it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import trtcache
from trtcache.backends.fitness import gpu_here
from trtcache.backends.tensorrt.flavour import TENSORRT, TENSORRT_RTX
from trtcache.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from trtcache.backends.tensorrt.flavour import Flavour

TOLERANCE = 2e-2  # TensorRT may round factors of float32 products to TF32


def missing(flavour: Flavour) -> str | None:
    """Return why nothing of a flavour runs here."""
    gpu = gpu_here()
    if not flavour.installed or gpu is None:
        return f"needs {flavour.title} and its GPU"
    if flavour.capabilities and gpu.capability not in flavour.capabilities:
        return f"{flavour.title} does not run on {gpu.product}"
    return None


def _flavour(flavour: Flavour) -> object:
    why = missing(flavour)
    return pytest.param(flavour.name, id=flavour.name, marks=pytest.mark.skipif(why is not None, reason=str(why)))


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.tensorrt,
    pytest.mark.slow,
    pytest.mark.parametrize("backend", [_flavour(TENSORRT), _flavour(TENSORRT_RTX)]),
]


class Block(nn.Module):
    """A convolution with its norm, a product, a softmax and an input of whole numbers."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.norm.running_mean.uniform_(-1, 1)  # type: ignore[union-attr]  # it has one
        self.lin, self.table = nn.Linear(8, 5), nn.Embedding(10, 5)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        pooled = self.norm(self.conv(x)).relu().mean((2, 3))
        made = (self.lin(pooled) + self.table(ids)).softmax(-1)
        return made, made.t()


def args(batch: int, device: str = "cuda") -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs of so many rows."""
    torch.manual_seed(batch)
    return torch.randn(batch, 3, 8, 8, device=device), torch.randint(0, 10, (batch,), device=device)


def compiled(backend: str, model: nn.Module, root: Path, device: str = "cuda") -> trtcache.CompiledModule:
    """Compile for batches from 1 to 16."""
    batch = torch.export.Dim("batch", min=1, max=16)
    shapes = {"x": {0: batch}, "ids": {0: batch}}
    return trtcache.compile(model, args(4, device), dynamic_shapes=shapes, backend=backend, cache=root)


def off(model: nn.Module, found: tuple[torch.Tensor, ...], given: tuple[torch.Tensor, ...]) -> float:
    """Return the largest difference from eager."""
    with torch.no_grad():
        return max(float((one - two).abs().max()) for one, two in zip(found, model(*given), strict=True))


@pytest.fixture
def root(tmp_path_factory: pytest.TempPathFactory, backend: str) -> Path:
    """A cache for each flavour."""
    return tmp_path_factory.getbasetemp() / f"plans-{backend}"


def test_a_plan_answers_as_eager_does(backend: str, root: Path) -> None:
    """For the least, the usual and the most rows, results on the model's GPU; one row more is refused."""
    model = Block(0).cuda().eval()
    module = compiled(backend, model, root)
    for batch in (1, 4, 16):
        found = module(*args(batch))
        assert found[0].is_cuda
        assert off(model, found, args(batch)) < TOLERANCE
    with pytest.raises(InputError, match="1 to 16"):
        module(*args(17))


def test_a_model_on_the_cpu_runs_on_the_gpu(backend: str, root: Path) -> None:
    """Inputs and results are on the CPU, as the model is."""
    model = Block(0).eval()
    found = compiled(backend, model, root, "cpu")(*args(3, "cpu"))
    assert not found[0].is_cuda
    assert off(model, found, args(3, "cpu")) < TOLERANCE


def test_inputs_of_any_layout_and_address_are_right(backend: str, root: Path) -> None:
    """Channels last, and memory that begins anywhere."""
    model = Block(0).cuda().eval()
    module = compiled(backend, model, root)
    x, numbers = args(4)
    moved = torch.empty(x.numel() + 1, device="cuda")[1:].view_as(x).copy_(x)
    for given in (x.contiguous(memory_format=torch.channels_last), moved):
        assert off(model, module(given, numbers), (given, numbers)) < TOLERANCE


def test_calls_follow_the_callers_stream(backend: str, root: Path) -> None:
    """What another stream writes late is seen by a call on that stream, and one thread may change streams."""
    model = Block(0).cuda().eval()
    module, (x, numbers), stream = compiled(backend, model, root), args(4), torch.cuda.Stream()
    late = torch.zeros_like(x)
    module(x, numbers)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        late.copy_(x)
        found = module(late, numbers)
    stream.synchronize()
    assert off(model, found, (x, numbers)) < TOLERANCE


def test_threads_run_at_once(backend: str, root: Path) -> None:
    """Four threads on streams of their own all have eager's results."""
    model = Block(0).cuda().eval()
    module, wrong = compiled(backend, model, root), []

    def work(number: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for turn in range(20):
                given = args(1 + (number + turn) % 16)
                if off(model, module(*given), given) >= TOLERANCE:
                    wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_hit_has_the_weights_of_the_model_at_hand(backend: str, root: Path) -> None:
    """Where plans take other weights a second model hits, and anyhow it answers with its own."""
    first, second = Block(0).cuda().eval(), Block(1).cuda().eval()
    for model in (first, second, first):
        module = compiled(backend, model, root)
        assert off(model, module(*args(4)), args(4)) < TOLERANCE
    assert module.report.partitions[0].outcome == "hit"
