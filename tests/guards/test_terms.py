"""Terms of sizes that torch simplifies as if sizes were at least 2, and numbers that operators check in torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional

import trtcache
from tests.guards.cases import Calls, outcomes
from trtcache import Input
from trtcache.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TERMS: dict[str, Callable[[Any], Any]] = {
    "largest": lambda x: x.sum(0) / torch.sym_max(x.shape[0], 1),  # type: ignore[no-untyped-call]  # torch's
    "smallest": lambda x: torch.arange(torch.sym_min(x.shape[0], 1)) + 1,  # type: ignore[no-untyped-call]
    "largest of a product": lambda x: x + torch.sym_max(x.shape[0] * x.shape[1], 7),  # type: ignore[no-untyped-call]
    "chosen": lambda x: x * 0 + torch.sym_ite(x.shape[0] == 0, x.shape[1] + 1, x.shape[1] + 2),  # type: ignore[no-untyped-call]
    "quotient": lambda x: x.sum(0) * (x.numel() // x.shape[0]),
    "quotient of a number": lambda x: x * (1 // x.shape[0]),
    "quotient in a shape": lambda x: x.reshape(x.shape[0], x.numel() // x.shape[0]),
    "remainder": lambda x: x.sum(0) + x.numel() % x.shape[0],
    "remainder of a difference": lambda x: x.sum() + 12 % (x.shape[0] - 3),
    "reciprocal": lambda x: x.sum(0) * (1.0 / x.shape[0]),
    "largest element": lambda x: x.max(0)[0],
    "smallest of all": lambda x: x - x.min(),
    "median": lambda x: x.median(0)[0],
    "least index": lambda x: x.argmin(0),
    "resized": lambda x: functional.interpolate(x[None], size=x.shape[0], mode="linear"),
}


def test_a_size_is_less_than_infinity(interpreter: str, tmp_path: Path) -> None:
    """A condition that each size meets is not checked."""
    model = Calls(lambda x: x + 1 if x.shape[0] < float("inf") else x - 1)
    module = trtcache.compile(
        model, (torch.rand(6, 4),), dynamic_shapes=(({0: Dim.AUTO},),), backend=interpreter, cache=tmp_path
    )
    found = outcomes(module, model, [(torch.rand(size, 4),) for size in range(8)])
    assert found["right"] == 8


@pytest.mark.parametrize("kind", [Dim.DYNAMIC, Dim.AUTO, Dim("rows")], ids=["dynamic", "auto", "named"])
@pytest.mark.parametrize("name", TERMS)
def test_terms_of_small_sizes(name: str, kind: Any, interpreter: str, tmp_path: Path) -> None:
    """A call is right or refused where torch raises, or where a simplified term has another value."""
    model = Calls(TERMS[name])
    module = trtcache.compile(
        model, (torch.rand(6, 4),), dynamic_shapes=(({0: kind},),), backend=interpreter, cache=tmp_path
    )
    found = outcomes(module, model, [(torch.rand(size, 4),) for size in (*range(8), 30)])
    assert found["right"] >= 7


READ: dict[str, tuple[Callable[..., Any], int]] = {
    "index": (lambda x, n: x[n.item()] * 2, 9),
    "index of columns": (lambda x, n: x[:, n.item()] * 2, 9),
    "quotient": (lambda x, n: x * (12 // n.item()), 13),
    "remainder": (lambda x, n: x * (12 % n.item()), 13),
    "division": (lambda x, n: x * (12 / n.item()), 13),
    "squeezed": (lambda x, n: x.new_zeros(n.item(), 1).squeeze() + 1, 8),
    "squeezed dimension": (lambda x, n: x.new_zeros(n.item(), 4).squeeze(0) + x[0], 8),
}


@pytest.mark.parametrize("name", READ)
def test_numbers_that_are_read(name: str, interpreter: str, tmp_path: Path) -> None:
    """What a kernel of torch raises for a number, an assertion of the program raises."""
    function, right = READ[name]
    model = Calls(function)
    args = (torch.rand(5, 4), torch.tensor(3))
    module = trtcache.compile(model, args, backend=interpreter, cache=tmp_path)
    calls = [(torch.rand(5, 4), torch.tensor(number)) for number in range(-6, 9)]
    found = outcomes(module, model, calls, refused=Exception)
    assert found["right"] >= min(right, 4)
    assert found["refused"] <= len(calls) - 4


@pytest.mark.parametrize(("dims", "right"), [((), 2), ((1,), 3), ((-1,), 3), ((0,), 2)])
def test_the_positions_of_one_element(dims: tuple[int, ...], right: int, interpreter: str, tmp_path: Path) -> None:
    """``squeeze`` of positions that are read drops a dimension if there is one: such a call is refused."""
    model = Calls(lambda mask: (mask > 0).nonzero().squeeze(*dims))
    module = trtcache.compile(model, (torch.tensor([1.0, 1, 0, 1]),), backend=interpreter, cache=tmp_path)
    calls = [(torch.tensor(values),) for values in ([1.0, 0, 1, 1], [0.0, 0, 0, 0], [0.0, 1, 0, 0])]
    found = outcomes(module, model, calls, refused=Exception)
    assert found["right"] == right


@pytest.mark.parametrize("usual", [1, 4])
def test_an_input_from_one_on(usual: int, interpreter: str, tmp_path: Path) -> None:
    """A range that begins at 1 is taken whole, whatever the usual size."""
    model = Calls(lambda x: (x.mean(1) * 2, x[:3], x.softmax(0)))
    example = Input(min_shape=(1, 4), opt_shape=(usual, 4), max_shape=(8, 4))
    module = trtcache.compile(model, (example,), backend=interpreter, cache=tmp_path)
    found = outcomes(module, model, [(torch.rand(size, 4),) for size in range(1, 9)])
    assert found["right"] == 8


@pytest.mark.parametrize("layout", ["channels_last", "permuted"])
def test_a_copy_that_is_none_for_one_channel(layout: str, interpreter: str, tmp_path: Path) -> None:
    """``contiguous`` of one channel is the tensor itself, so that a write to it is a write to the input."""

    def add_to_copy(x: torch.Tensor) -> torch.Tensor:
        y = (x if layout == "channels_last" else x.permute(0, 3, 1, 2)).contiguous()
        y.add_(1)
        return x.sum() + y

    def example(channels: int) -> torch.Tensor:
        if layout == "permuted":
            return torch.rand(2, 3, 5, channels)
        return torch.rand(2, channels, 3, 5).to(memory_format=torch.channels_last)

    model, dim = Calls(add_to_copy), 1 if layout == "channels_last" else 3
    module = trtcache.compile(
        model, (example(4),), dynamic_shapes=(({dim: Dim.AUTO},),), backend=interpreter, cache=tmp_path
    )
    for channels in (2, 3, 4):
        x = example(channels)
        torch.testing.assert_close(module(x), model(x.clone()))
    with pytest.raises(InputError):
        module(example(1))


SAVED: dict[str, Callable[[], nn.Module]] = {
    "a layer": lambda: nn.Linear(4, 4),
    "a sequence": lambda: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU(), nn.Softmax(1)),
    "columns": lambda: nn.Sequential(Calls(lambda x: x.unsqueeze(1).expand(-1, 3, -1).reshape(-1, 4) @ x.t())),
}


@pytest.mark.parametrize("kind", [Dim.DYNAMIC, Dim.AUTO, Dim("rows")], ids=["dynamic", "auto", "named"])
@pytest.mark.parametrize("name", SAVED)
def test_a_program_from_a_file_supports_the_sizes_of_its_model(
    name: str, kind: Any, interpreter: str, tmp_path: Path
) -> None:
    """``torch.export.load`` gives sizes another range than they have in an export."""
    model = SAVED[name]().eval()
    program = torch.export.export(model, (torch.rand(3, 4),), dynamic_shapes=({0: kind},))
    torch.export.save(program, tmp_path / "model.pt2")
    options: dict[str, Any] = {"backend": interpreter, "cache": tmp_path / "cache"}
    module = trtcache.compile(tmp_path / "model.pt2", **options)
    assert module.guards == trtcache.compile(program, **options).guards == ()
    for size in (0, 1, 2, 7):
        x = torch.rand(size, 4)
        torch.testing.assert_close(module(x), model(x))


MASKED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "elements": lambda x: x[x > 0] * 2,
    "places": lambda x: x.nonzero(),
    "rows": lambda x: torch.cat([x, x[x[:, 0] > 0]]),
    "places of rows": lambda x: x[(x[:, 0] > 0).nonzero().squeeze(1)],
    "product": lambda x: x[x[:, 0] > 0] @ x.t(),
}


@pytest.mark.parametrize("name", MASKED)
def test_a_mask_is_no_reason_to_refuse_a_batch_of_one(name: str, interpreter: str, tmp_path: Path) -> None:
    """The size of a result depends on values, also for a batch of one and an empty batch."""
    model = Calls(MASKED[name])
    shapes = (({0: Dim("rows")},),)
    module = trtcache.compile(model, (torch.rand(3, 4),), dynamic_shapes=shapes, backend=interpreter, cache=tmp_path)
    assert module.guards == ()
    for x in (torch.rand(0, 4), torch.rand(1, 4), -torch.rand(1, 4), torch.randn(5, 4)):
        torch.testing.assert_close(module(x), model(x))
