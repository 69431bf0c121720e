"""The aot_inductor backend on a CUDA device, for real."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import trtcache
from trtcache.errors import ExportError, InputError, RefitError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU; torch sees none"),
]

TOLERANCE = 1e-4  # float32 products on tensor cores are off by default; sums are in another order


class Block(nn.Module):
    """A normalised two-layer perceptron with a buffer, a constant and a tied weight."""

    def __init__(self, seed: int, width: int = 64) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width, bias=False)
        self.second.weight = self.first.weight
        self.norm = nn.LayerNorm(width)
        self.register_buffer("scale", torch.rand(width))
        self.register_buffer("offset", torch.arange(width).float() / width, persistent=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        h = self.second(torch.relu(self.first(x))) * self.scale + self.offset
        return {"sum": self.norm(h + y), "softmax": (x + y).softmax(-1)}


def inputs(rows: int = 8, width: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two inputs (rows, width) on the GPU."""
    torch.manual_seed(7)
    return torch.randn(rows, width, device="cuda"), torch.randn(rows, width, device="cuda")


def assert_like_eager(compiled: trtcache.CompiledModule, model: nn.Module, *args: torch.Tensor) -> None:
    """Assert that every output is eager's."""
    with torch.no_grad():
        expected = model(*args)
    for name, value in compiled(*args).items():
        assert (value - expected[name]).abs().max().item() < TOLERANCE, name


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> trtcache.Cache:
    """Return a cache of this module's own."""
    return trtcache.Cache(tmp_path_factory.mktemp("cuda"))


@pytest.fixture(scope="module")
def compiled(cache: trtcache.Cache) -> trtcache.CompiledModule:
    """Return the block of seed 0, compiled for 8 rows."""
    return trtcache.compile(Block(0).cuda().eval(), inputs(), cache=cache)


def test_a_model_on_cuda_is_built_then_found(cache: trtcache.Cache, compiled: trtcache.CompiledModule) -> None:
    """A second compile of the architecture with other weights is a hit with the other weights' results."""
    assert compiled.report.partitions[0].outcome == "built"
    other = Block(1).cuda().eval()
    again = trtcache.compile(other, inputs(), cache=cache)
    assert again.report.partitions[0].outcome == "hit"
    assert_like_eager(again, other, *inputs())


def test_cuda_and_cpu_have_different_keys() -> None:
    """The kind of device is in the key."""
    x, y = inputs()
    assert trtcache.key(Block(0).cuda(), (x, y)).digest != trtcache.key(Block(0), (x.cpu(), y.cpu())).digest


def test_refit_there_and_back_is_exact(compiled: trtcache.CompiledModule) -> None:
    """A to B gives B's results, and back to A gives A's bits."""
    a, b = Block(0).cuda().eval(), Block(2).cuda().eval()
    compiled.refit(a)
    before = compiled(*inputs())
    compiled.refit(b.state_dict())
    assert_like_eager(compiled, b, *inputs())
    compiled.refit(a)
    assert all(torch.equal(value, before[name]) for name, value in compiled(*inputs()).items())


def test_weights_on_another_device_are_refused(compiled: trtcache.CompiledModule) -> None:
    """A state_dict on the CPU is an error that names the weights, and changes nothing."""
    a = Block(0).cuda().eval()
    compiled.refit(a)
    with pytest.raises(RefitError, match="on cpu"):
        compiled.refit(Block(3).state_dict())
    assert_like_eager(compiled, a, *inputs())


def test_inputs_on_another_device_are_refused(compiled: trtcache.CompiledModule) -> None:
    """An input on the CPU is an error that says where it should be."""
    x, y = inputs()
    with pytest.raises(InputError, match="cuda:0"):
        compiled(x.cpu(), y)


@pytest.mark.parametrize("offset", [1, 2, 3, 4, 5])
def test_inputs_at_any_storage_offset_are_right(compiled: trtcache.CompiledModule, offset: int) -> None:
    """Inputs whose memory does not begin at a multiple of 16 bytes give eager's results."""
    a = Block(0).cuda().eval()
    compiled.refit(a)
    x, y = inputs()
    memory = torch.zeros(x.numel() + offset, device="cuda")
    moved = memory[offset:].view_as(x).copy_(x)
    assert_like_eager(compiled, a, moved, y)


@pytest.mark.parametrize("layout", ["transposed", "sliced", "expanded"])
def test_inputs_in_other_layouts_are_right(compiled: trtcache.CompiledModule, layout: str) -> None:
    """Transposed, sliced and expanded inputs give eager's results."""
    a = Block(0).cuda().eval()
    compiled.refit(a)
    x, y = inputs()
    moved = {
        "transposed": x.t().contiguous().t(),
        "sliced": torch.cat([x, x], 1)[:, :64],
        "expanded": x[:1].expand_as(x),
    }[layout]
    assert_like_eager(compiled, a, moved, y)


def test_weights_at_odd_offsets_and_in_other_layouts_are_right(compiled: trtcache.CompiledModule) -> None:
    """Weights in a flat buffer at an odd offset, and transposed ones, give eager's results after a refit."""
    model = Block(5).cuda().eval()
    flat = torch.zeros(64 * 64 + 1, device="cuda")
    model.first.weight.data = flat[1:].view(64, 64).copy_(model.first.weight.data)
    compiled.refit(model)
    assert_like_eager(compiled, model, *inputs())
    model.first.weight.data = model.first.weight.data.t().contiguous().t()
    compiled.refit(model)
    assert_like_eager(compiled, model, *inputs())


def test_dynamic_batch_on_cuda(cache: trtcache.Cache) -> None:
    """One engine answers every batch size in its range, and refuses others."""
    batch = torch.export.Dim("batch", min=2, max=64)
    model = Block(6).cuda().eval()
    shapes = {"x": {0: batch}, "y": {0: batch}}
    compiled = trtcache.compile(model, inputs(), dynamic_shapes=shapes, cache=cache)
    for rows in (2, 5, 64):
        assert_like_eager(compiled, model, *inputs(rows))
    with pytest.raises(InputError, match="2 to 64"):
        compiled(*inputs(65))


def test_half_precision_attention_on_cuda(cache: trtcache.Cache) -> None:
    """A float16 attention layer agrees with eager to half precision."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(64, 192)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.project(x).view(2, 16, 3, 4, 16).permute(2, 0, 3, 1, 4)
            return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    torch.manual_seed(3)
    model = Attention().cuda().half().eval()
    x = torch.randn(2, 16, 64, device="cuda", dtype=torch.float16)
    compiled = trtcache.compile(model, (x,), cache=cache)
    with torch.no_grad():
        assert torch.allclose(compiled(x), model(x), atol=2e-3)


def test_calls_follow_the_callers_stream(compiled: trtcache.CompiledModule) -> None:
    """A call under another CUDA stream sees what that stream wrote before it."""
    a = Block(0).cuda().eval()
    compiled.refit(a)
    x, y = inputs()
    with torch.no_grad():
        expected = a(x, y)["sum"]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        late = torch.zeros_like(x)
        torch.cuda._sleep(20_000_000)
        late.copy_(x)
        result = compiled(late, y)["sum"]
    stream.synchronize()
    assert (result - expected).abs().max().item() < TOLERANCE


class TwoDevices(nn.Module):
    """A model on the GPU with a scalar, a vector and an index on the CPU."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.weight = nn.Parameter(torch.rand(5, device="cuda"))
        self.register_buffer("scalar", torch.rand(()))
        self.register_buffer("vector", torch.rand(5))
        self.register_buffer("index", torch.tensor([seed, 4]))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x * self.weight * self.scalar,
            torch.where(x > 0, x, torch.tensor(0.5)),
            x + self.vector.to(x.device),
            x[:, self.index],
            x[:, torch.tensor([0, 2])],
            torch.arange(4) * 2,
            self.vector * self.scalar,
        )


def test_weights_and_constants_on_the_cpu_beside_the_gpu(cache: trtcache.Cache, tmp_path: Path) -> None:
    """The engine has copies on the GPU; the model's tensors stay where they are, and refits take them from there."""
    model, other = TwoDevices(0), TwoDevices(1)
    x = torch.randn(7, 5, device="cuda")

    def check(compiled: trtcache.CompiledModule, model: nn.Module) -> None:
        for value, expected in zip(compiled(x), model(x), strict=True):
            assert value.device == expected.device
            torch.testing.assert_close(value, expected)
        for name, tensor in model.state_dict().items():
            assert compiled.state_dict()[name].device == tensor.device, name
            assert torch.equal(compiled.state_dict()[name], tensor), name

    compiled = trtcache.compile(model, (x,), cache=cache)
    check(compiled, model)
    found = trtcache.compile(other, (x,), cache=cache)
    assert found.report.outcome == "hit"
    check(found, other)
    compiled.refit(other.state_dict())
    check(compiled, other)
    compiled.refit(model)
    check(compiled, model)
    trtcache.export(compiled, tmp_path / "program.pt2")
    check(trtcache.load(tmp_path / "program.pt2", trust="local-file"), model)


def test_a_buffer_on_the_cpu_that_calls_change_is_refused(cache: trtcache.Cache) -> None:
    """The error names it, and what to do."""

    class Counts(TwoDevices):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.scalar.add_(1)
            return x * self.scalar

    with pytest.raises(ExportError, match=r"its buffer scalar is on cpu, and a call changes it: move it to cuda:0"):
        trtcache.compile(Counts(0), (torch.randn(7, 5, device="cuda"),), cache=cache)
