"""What ``forward`` does that torch.export does not record: refused."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from trtcache.errors import ExportError
from trtcache.lowering.capture import export
from trtcache.lowering.unguarded_sizes import Decisions
from trtcache.lowering.unrecorded import reject_unrecorded

if TYPE_CHECKING:
    from collections.abc import Callable

X = torch.arange(12.0).reshape(3, 4)


def catches_a_branch(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Check for NaN."""
    try:
        return torch.nan_to_num(x) if torch.isnan(x).any() else x * 2
    except Exception:  # noqa: BLE001  # as users write it
        return x * 4


def suppresses_a_branch(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Check for NaN."""
    with contextlib.suppress(Exception):
        if x.sum() > 0:
            return x * 2
    return x


def catches_a_number(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Scale by a value."""
    try:
        return x * float(x.abs().max())
    except RuntimeError:
        return x * 4


def catches(method: str) -> Callable[[nn.Module, torch.Tensor], torch.Tensor]:
    """Return a function that calls a method of the argument."""

    def function(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        try:
            getattr(x, method)()
        except RuntimeError:
            return x * 4
        return x * 2

    function.__name__ = f"catches_{method}"
    return function


def assigns_a_buffer(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Keep a mean."""
    model.mean.data = model.mean * 0.5 + x[0]  # type: ignore[union-attr]  # a buffer
    return model.mean + x  # type: ignore[operator]  # a buffer


def assigns_a_weight(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Overwrite a weight."""
    model.weight.data = x[0] * 2  # type: ignore[union-attr]  # a parameter
    return model.weight + 1  # type: ignore[operator]  # a parameter


def assigns_an_argument(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Overwrite the argument."""
    x.data = x * 2
    return x + 1


class Called(nn.Module):
    """A model that calls a function with itself."""

    def __init__(self, function: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.ones(4))
        self.weight = nn.Parameter(torch.ones(4))
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call it."""
        return self.function(self, x)


@pytest.mark.parametrize(
    "function",
    [catches_a_branch, suppresses_a_branch, catches_a_number, catches("numpy"), catches("data_ptr")],
    ids=lambda function: function.__name__,
)
def test_a_caught_error_is_refused(function: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
    """With values there is none: the program would have the branch for errors."""
    with pytest.raises(ExportError, match="forward catches an error of torch's"):
        export(Called(function), (X,), {}, None)


@pytest.mark.parametrize(
    "function", [assigns_a_buffer, assigns_a_weight, assigns_an_argument], ids=lambda function: function.__name__
)
def test_assigned_data_is_refused(function: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
    """The program would have the old values."""
    with pytest.raises(ExportError, match="forward assigns data of a tensor"):
        export(Called(function), (X,), {}, None)


def test_a_torch_that_exports_in_another_way_is_refused() -> None:
    """Its forward would be watched by nothing."""
    with pytest.raises(ExportError, match="does not know how torch"), reject_unrecorded("M", Decisions()):
        pass


def test_errors_that_are_not_torchs_may_be_caught() -> None:
    """They are the same with values."""

    def forward(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
        try:
            return x * {"a": 2}["b"]
        except KeyError:
            return x * getattr(x, "factor", 3)

    program = export(Called(forward), (X,), {}, None)
    assert torch.equal(program.module()(X), X * 3)


def test_an_unregistered_module_is_as_before_after_a_failed_export() -> None:
    """Its buffers are constants for torch.export, which writes to them."""
    inner = nn.Module()
    inner.register_buffer("count", torch.zeros(()))
    held = [inner]

    def forward(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
        held[0].count.add_(1)
        return x * held[0].count

    model = Called(forward)
    model.held = held  # type: ignore[assignment]  # any attribute
    with contextlib.suppress(ExportError):
        export(model, (X,), {}, None)
    assert inner.count == 0


def test_a_transform_that_does_not_take_a_size_is_left() -> None:
    """Small sizes are tried by running the program, which fails within the transform."""
    from trtcache.lowering.stages import lower

    class Derived(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = torch.func.jvp(torch.sin, (x,), (x * 2,))[1]
            return result

    lower(Derived(), (X,), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    assert torch._C._functorch.maybe_current_level() is None
    nn.Linear(4, 2)(X).sum().backward()
