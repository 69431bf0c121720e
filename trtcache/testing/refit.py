"""The contract of refits, and comparison of outputs while a module is refitted."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from trtcache.errors import RefitError, VerifyError
from trtcache.runtime import refit as refitting

if TYPE_CHECKING:
    from trtcache import CompiledModule


def difference(expected: Any, found: Any, tolerance: float = 1e-5) -> str | None:
    """Return how two outputs differ: in structure, type, dtype, shape or by more than the tolerance; None if not."""
    wanted, wanted_spec = pytree.tree_flatten(expected)
    given, given_spec = pytree.tree_flatten(found)
    if wanted_spec != given_spec:
        return f"structure {given_spec}, not {wanted_spec}"
    for index, (one, other) in enumerate(zip(wanted, given, strict=True)):
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            if why := _apart(one.detach(), other, tolerance):
                return f"leaf {index}: {why}"
        elif type(one) is not type(other) or one != other:
            return f"leaf {index}: {other!r}, not {one!r}"
    return None


def mixed_results(compiled: Any, models: tuple[nn.Module, nn.Module], x: torch.Tensor, *, seconds: float) -> list[Any]:
    """Call a module in four threads while it is refitted, and return results that are neither model's."""
    expected = [model(x) for model in models]
    stop = threading.Event()
    mixed: list[Any] = []

    def call() -> None:
        while not stop.is_set() and not mixed:
            found = compiled(x)
            if all(difference(one, found) for one in expected):
                mixed.append(found)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        compiled.refit(models[1])
        compiled.refit(models[0].state_dict())
    stop.set()
    for thread in threads:
        thread.join()
    return mixed


def _apart(one: torch.Tensor, other: torch.Tensor, tolerance: float) -> str | None:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return f"{other.dtype} {tuple(other.shape)}, not {one.dtype} {tuple(one.shape)}"
    loose = max(tolerance, 2e-2 if one.dtype in {torch.bfloat16, torch.float16} else 0)
    if torch.allclose(one.resolve_conj(), other, rtol=loose, atol=loose):
        return None
    return f"off by {(one - other).abs().max()}"


class RefitModel(nn.Module):
    """A convolution and BatchNorm, of which recipes make weights, two layers with one weight, and a buffer."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        nn.init.uniform_(self.norm.get_buffer("running_mean"), -1, 1)
        nn.init.uniform_(self.norm.get_buffer("running_var"), 0.5, 2)
        self.fc = nn.Linear(8, 8)
        self.out = nn.Linear(8, 8, bias=False)
        self.out.weight = self.fc.weight
        self.register_buffer("scale", torch.rand(8) + 0.5)
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return rows of 8 (B, 8) for images (B, 3, 8, 8)."""
        hidden = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        result: torch.Tensor = self.out(torch.relu(self.fc(hidden))) * self.scale
        return result


class Other(RefitModel):
    """The same weights in another program."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return something else."""
        return super().forward(x) + 0.1


def image(device: str) -> torch.Tensor:
    """Return two images (2, 3, 8, 8)."""
    torch.manual_seed(7)
    return torch.randn(2, 3, 8, 8, device=device)


def in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let weights be written in place, however small they are."""
    monkeypatch.setattr(refitting, "BESIDE_BYTES", 0)


class RefitContract:
    """The tests. A subclass has a fixture ``compiled``: the network of seed 0, for ``image``; and a ``device``."""

    device = "cpu"
    tolerance = 1e-5
    shares_weights = True

    def network(self, seed: int) -> RefitModel:
        """Return another network of the same program."""
        return RefitModel(seed).to(self.device)

    def answers(self, compiled: CompiledModule, model: nn.Module) -> None:
        """Assert that a module answers as a model does."""
        x = image(self.device)
        with torch.no_grad():
            assert difference(model(x), compiled(x), self.tolerance) is None

    @pytest.mark.parametrize("where", ["beside", "in_place"])
    def test_there_and_back_is_exact(
        self, compiled: CompiledModule, where: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A to B gives B's results, and back to A gives A's bits, with new tensors and in place."""
        a, b, x = self.network(0), self.network(1), image(self.device)
        compiled.refit(a)
        before = compiled(x)
        if where == "in_place":
            in_place(monkeypatch)
        written = where == "in_place" and self.shares_weights
        assert compiled.refit(b.state_dict()).in_place == written
        self.answers(compiled, b)
        assert compiled.refit(a).in_place == written
        assert torch.equal(compiled(x), before)

    def test_weights_need_no_module(self, compiled: CompiledModule) -> None:
        """A state_dict of copies is enough, and a module that is gone afterwards is not missed."""
        compiled.refit({name: one.clone() for name, one in self.network(2).state_dict().items()})
        self.answers(compiled, self.network(2))

    @pytest.mark.parametrize("where", ["beside", "in_place"])
    def test_only_what_changed_is_reported_and_set(
        self, compiled: CompiledModule, where: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The same values again change nothing, a bias changes itself, and a BatchNorm's the weight made with it."""
        if where == "in_place":
            in_place(monkeypatch)
        compiled.refit(self.network(0))
        state = {name: one.clone() for name, one in self.network(0).state_dict().items()}
        assert compiled.refit(dict(state)).changed == ()
        state["fc.bias"] = state["fc.bias"] + 1
        assert compiled.refit(dict(state)).changed == ("fc.bias",)
        state["norm.bias"] = state["norm.bias"] + 1
        report = compiled.refit(dict(state))
        assert ["norm.bias" in one for one in report.changed] == [True]
        assert report.unchanged == report.weights - 1
        assert "norm.bias" in str(report)
        expected = self.network(0)
        expected.load_state_dict(state)
        self.answers(compiled, expected)

    @pytest.mark.parametrize(
        ("name", "put", "message"),
        [
            ("norm.bias", None, r"missing: norm\.bias"),
            ("what.is.this", torch.ones(1), r"unexpected: what\.is\.this"),
            ("conv.weight", torch.ones(8, 3, 3), r"conv\.weight \(shape \(8, 3, 3\), the engine has \(8, 3, 3, 3\)\)"),
            ("fc.bias", torch.ones(8, dtype=torch.float16), r"fc\.bias \(dtype float16, the engine has float32\)"),
            ("out.weight", torch.ones(8, 8), r"fc\.weight \(tied to out\.weight .* values differ"),
        ],
        ids=["missing", "extra", "misshapen", "dtype", "tied"],
    )
    def test_weights_that_do_not_fit_change_nothing(
        self, compiled: CompiledModule, name: str, put: torch.Tensor | None, message: str
    ) -> None:
        """What is wrong is named, and the engine goes on with all of the old weights."""
        compiled.refit(self.network(0))
        before = compiled(image(self.device))
        state = self.network(1).state_dict()
        state.pop(name, None)
        if put is not None:
            state[name] = put.to(self.device)
        with pytest.raises(RefitError, match=message):
            compiled.refit(state)
        assert torch.equal(compiled(image(self.device)), before)

    def test_one_name_of_a_tied_weight_is_enough(self, compiled: CompiledModule) -> None:
        """A file that has a shared weight once has all of it."""
        state = self.network(3).state_dict()
        del state["out.weight"]
        compiled.refit(state)
        self.answers(compiled, self.network(3))

    def test_weights_come_from_a_file(self, compiled: CompiledModule, tmp_path: Path) -> None:
        """A .safetensors file, which has a tied weight once, gives the bits that the model itself gives."""
        import safetensors.torch

        model, path = self.network(4), tmp_path / "model.safetensors"
        state = {name: one.cpu() for name, one in model.state_dict().items() if name != "out.weight"}
        safetensors.torch.save_file(state, path)
        compiled.refit(model)
        expected = compiled(image(self.device))
        compiled.refit(self.network(0))
        assert compiled.refit(path).changed
        assert torch.equal(compiled(image(self.device)), expected)
        safetensors.torch.save_file(
            {name: one for name, one in state.items() if name != "norm.bias"}, tmp_path / "less.safetensors"
        )
        with pytest.raises(RefitError, match=r"missing: norm\.bias"):
            compiled.refit(str(tmp_path / "less.safetensors"))
        assert torch.equal(compiled(image(self.device)), expected)

    def test_a_refit_can_be_verified(self, compiled: CompiledModule) -> None:
        """It is compared with the module that was given; where that is another program, the old weights stay."""
        x = image(self.device)
        report = compiled.refit(self.network(1), verify=True, args=(x,))
        assert report.off_by is not None
        assert report.off_by < 10 * self.tolerance
        before = compiled(x)
        with pytest.raises(VerifyError, match=r"nothing was changed: output: off by .* is allowed"):
            compiled.refit(Other(5).to(self.device), verify=True, args=(x,))
        assert torch.equal(compiled(x), before)
        assert compiled.refit(Other(5).to(self.device), verify=0.9, args=(x,)).off_by is not None
        self.answers(compiled, self.network(5))

    def test_no_call_sees_some_of_both(self, compiled: CompiledModule, monkeypatch: pytest.MonkeyPatch) -> None:
        """While weights are written in place, every result of four threads is of the old or of the new weights."""
        in_place(monkeypatch)
        a, b = self.network(0), self.network(1)
        compiled.refit(a)
        with torch.no_grad():
            assert mixed_results(compiled, (a, b), image(self.device), seconds=0.5) == []
