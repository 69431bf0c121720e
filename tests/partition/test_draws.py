"""Random numbers: their order in a lowered program, and what stays in torch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

import trtcache
from tests import models
from trtcache.lowering.operators import operator_name
from trtcache.testing import Interpreter

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


X = torch.randn(3, 4)


def drawn(model: torch.nn.Module) -> list[str]:
    """Return the random operators of a lowered program in canonical order."""
    order = trtcache.lower(model, (X,)).order
    return [name for node in order if "rand" in (name := operator_name(node.target))]


def test_draws_keep_the_order_in_which_the_model_runs_them() -> None:
    """Whatever the order in which results use them."""
    model = models.Calls(lambda lin, x: (*(torch.rand(4), torch.randn(4), torch.rand(4))[::-1], x))
    assert drawn(model) == ["aten.rand.default", "aten.randn.default", "aten.rand.default"]


def test_an_unused_draw_stays_if_a_result_depends_on_another() -> None:
    """It moves the generator from which later draws of this call and the next come; otherwise nobody sees it."""

    def both(lin: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        torch.rand(7) < 0.5  # noqa: B015  # unused as a whole
        return x + torch.randn(4)

    def alone(lin: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        torch.rand(7)
        return x + 1

    assert drawn(models.Calls(both)) == ["aten.rand.default", "aten.randn.default"]
    assert drawn(models.Calls(alone)) == []


def test_the_order_of_draws_is_in_the_key() -> None:
    """Two programs that draw in another order are two programs."""
    one = models.Calls(lambda lin, x: (torch.rand(4), torch.randn(4) + x))
    other = models.Calls(lambda lin, x: (torch.randn(4) + x, torch.rand(4))[::-1])
    assert trtcache.key(one, (X,)) != trtcache.key(other, (X,))


def test_they_stay_in_torch_unless_the_backend_draws_torchs_numbers(
    interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engines of a backend that says nothing about random numbers have none; attention without dropout is no draw."""

    def call(lin: torch.nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = x[None, None]
        attended = torch.nn.functional.scaled_dot_product_attention(rows, rows, rows)
        return torch.rand(4), lin(attended), torch.randn(3, 4) * x

    model = models.Calls(call)
    left = []
    for number, operators in enumerate((frozenset({"aten.rand", "aten.randn"}), frozenset())):
        capabilities = replace(Interpreter.capabilities, random_operators=operators)
        monkeypatch.setattr(Interpreter, "capabilities", capabilities)
        module = trtcache.compile(model, (X,), backend=interpreter, cache=tmp_path / str(number))
        left.append({one.operator: one.why for one in module.report.left})
        torch.manual_seed(2)
        expected = model(X)
        torch.manual_seed(2)
        torch.testing.assert_close(module(X), expected)
    why = "it draws random numbers, and an engine of interpreter would draw others than torch"
    assert left == [{}, dict.fromkeys(("aten.rand.default", "aten.randn.default"), why)]
