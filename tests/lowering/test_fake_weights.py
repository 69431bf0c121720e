"""Weights and constants that are fake tensors: there is no value to compile or run with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import trtcache
from trtcache.errors import ExportError, RefitError

if TYPE_CHECKING:
    from pathlib import Path

X = torch.randn(3, 4)


class Shifted(nn.Module):
    """A constant that is an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = torch.ones(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.shift


@pytest.mark.parametrize("backend", ["interpreter", "aot_inductor"])
@pytest.mark.parametrize("given", ["module", "program"])
def test_fake_weights_are_one_clear_error(interpreter: str, engines: Path, backend: str, given: str) -> None:
    """It names them and says what to do."""
    assert interpreter
    with FakeTensorMode():
        model = nn.Linear(4, 4)
        program = torch.export.export(model, (torch.ones(3, 4),))
    args = (model, (X,)) if given == "module" else (program,)
    with pytest.raises(ExportError, match=r"weight, bias are fake tensors.*create the model outside FakeTensorMode"):
        trtcache.compile(*args, backend=backend, cache=engines)


def test_a_fake_constant_is_one_clear_error(interpreter: str, engines: Path) -> None:
    """Its value is part of the program and of the key."""
    with FakeTensorMode():
        model = Shifted()
    with pytest.raises(ExportError, match="shift is a fake tensor"):
        trtcache.compile(model, (X,), backend=interpreter, cache=engines)
    with pytest.raises(ExportError, match="shift is a fake tensor"):
        trtcache.key(model, (X,), backend=interpreter)


def test_a_key_needs_no_weights(interpreter: str) -> None:
    """Weights are no part of it but by dtype, shape and layout."""
    with FakeTensorMode():
        fake = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    found = trtcache.key(fake, (X,), backend=interpreter)
    real = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    assert found.digest == trtcache.key(real, (X,), backend=interpreter).digest


def test_a_refit_with_fake_weights_is_refused(interpreter: str, engines: Path) -> None:
    """The old ones stay."""
    model = nn.Linear(4, 4)
    module = trtcache.compile(model, (X,), backend=interpreter, cache=engines)
    with FakeTensorMode():
        fake = nn.Linear(4, 4)
    with pytest.raises(RefitError, match="a fake tensor, which has no values"):
        module.refit(fake)
    torch.testing.assert_close(module(X), model(X))
