"""TorchScript modules and files: what is converted, and what is said of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import trtcache
from tests.keys.architectures import voice_encoder
from tests.models import retrained
from trtcache.errors import ExportError, SettingsError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")  # torch's own


class Last(nn.Module):
    """The last state of an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 8, batch_first=True)
        self.out = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(x)
        return self.out(states[:, -1])


class Chooses(nn.Module):
    """What it does depends on values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            return x + 1
        return torch.cat([x, x])


class Remembers(nn.Module):
    """Keeps what it was given last, if there was anything."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.zeros(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            self.last = x
        return x + self.last


class Counts(nn.Module):
    """Loops as often as a value says."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(int(x.sum())):
            x = torch.cat([x, x])
        return x


def models() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    """A model of each kind, with its input."""
    convolutions = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    )
    return {
        "mlp": (nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), torch.randn(2, 4)),
        "cnn": (convolutions, torch.randn(2, 3, 8, 8)),
        "lstm": (Last(), torch.randn(2, 5, 4)),
    }


def scripted(model: nn.Module, x: torch.Tensor, how: str) -> Any:
    """Return a model as TorchScript."""
    return torch.jit.script(model) if how == "script" else torch.jit.trace(model, x)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("how", ["script", "trace"])
@pytest.mark.parametrize("name", ["mlp", "cnn", "lstm"])
def test_a_torchscript_module_answers_as_it_did_and_is_refitted(
    interpreter: str, engines: Path, name: str, how: str
) -> None:
    """Scripted and traced; a retrained one of the same architecture hits, and goes in by a refit."""
    model, x = models()[name]
    first = scripted(model.eval(), x, how)
    module = trtcache.compile(first, (x,), backend=interpreter, cache=engines)
    assert torch.allclose(module(x), model(x), atol=1e-6)
    other = scripted(retrained(model), x, how)
    again = trtcache.compile(other, (x,), backend=interpreter, cache=engines)
    assert again.report.partitions[0].outcome == "hit"
    module.refit(other.state_dict())
    assert torch.equal(module(x), again(x))
    assert torch.allclose(module(x), other(x), atol=1e-6)


def test_a_torchscript_file_is_known_by_what_is_in_it(interpreter: str, engines: Path, tmp_path: Path) -> None:
    """Whatever its name; key and lower take it too."""
    model, x = models()["mlp"]
    script = scripted(model.eval(), x, "script")
    script.save(str(tmp_path / "net.jit"))
    module = trtcache.compile(tmp_path / "net.jit", (x,), backend=interpreter, cache=engines)
    assert torch.allclose(module(x), model(x), atol=1e-6)
    assert module.report.name == "net"
    assert module.report.partitions[0].key == trtcache.key(tmp_path / "net.jit", (x,), backend=interpreter)
    assert "relu" in trtcache.lower(script, (x,), backend=interpreter).text
    torch.save({"x": x}, tmp_path / "weights.pt")
    with pytest.raises(ExportError, match=r"what torch.save writes"):
        trtcache.compile(tmp_path / "weights.pt", (x,), backend=interpreter, cache=engines)


def test_the_voice_encoder_traced(interpreter: str, engines: Path) -> None:
    """resemblyzer's, with its own weights."""
    model, args = voice_encoder()
    traced = torch.jit.trace(model.eval(), args)  # type: ignore[no-untyped-call]
    module = trtcache.compile(traced, args, backend=interpreter, cache=engines)
    assert torch.allclose(module(*args), model(*args), atol=1e-5)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Remembers(), r"Remembers cannot be exported: .*prim::SetAttr.*: it changes an attribute of itself; make that"),
        (
            Chooses(),
            r"Chooses cannot be exported: node cond has branches or a loop: it chooses by values of tensors; compile",
        ),
        (Counts(), r"Counts cannot be exported: .*prim::Loop.*: it loops by values of tensors"),
    ],
    ids=["attribute", "branch", "loop"],
)
def test_control_flow_that_depends_on_data_is_told_with_what_to_do(
    interpreter: str, model: nn.Module, message: str
) -> None:
    """By the node that cannot be converted."""
    with pytest.raises(ExportError, match=message):
        trtcache.compile(torch.jit.script(model), (torch.ones(2),), backend=interpreter)


def test_a_torchscript_module_needs_example_inputs_and_keeps_their_sizes(interpreter: str) -> None:
    """Both are told, not guessed."""
    script = torch.jit.script(nn.Linear(2, 2))
    with pytest.raises(SettingsError, match="no example inputs; give some"):
        trtcache.compile(script, backend=interpreter)
    with pytest.raises(SettingsError, match="has the sizes of its examples"):
        trtcache.key(script, (torch.ones(2, 2),), dynamic_shapes=({0: torch.export.Dim("b")},), backend=interpreter)
