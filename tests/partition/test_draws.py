"""Random numbers: their order in a lowered program, and what stays in torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

import trtcache
from tests import models
from trtcache.errors import PartitionError
from trtcache.keys.graph_digest import graph_records
from trtcache.lowering.operators import operator_name
from trtcache.lowering.rewriting import draws_random_numbers
from trtcache.partition.extract import RANDOM

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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


PAIRS: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[torch.Tensor], Any]]] = {
    "kind": (torch.rand_like, torch.randn_like),
    "once and twice": (lambda x: (r := torch.rand_like(x)) - r, lambda x: torch.rand_like(x) - torch.rand_like(x)),
    "which is drawn first": (
        lambda x: (torch.rand_like(x), torch.randn_like(x)),
        lambda x: (torch.randn_like(x), torch.rand_like(x))[::-1],
    ),
    "how rare": (lambda x: torch.dropout(x, 0.1, True), lambda x: torch.dropout(x, 0.5, True)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_programs_that_draw_otherwise_have_two_digests(name: str) -> None:
    """The digest covers what is drawn, how often, and in which order."""

    def digest(function: Callable[[torch.Tensor], Any]) -> object:
        return graph_records(trtcache.lower(models.Calls(lambda _, x: function(x)), (X,)))[1]

    one, other = PAIRS[name]
    assert digest(one) == digest(one)
    assert digest(one) != digest(other)


def test_a_layer_that_cannot_drop_draws_nothing() -> None:
    """An LSTM without dropout is a random operator to torch, also while it is trained."""
    program = trtcache.lower(torch.nn.LSTM(4, 5), (torch.randn(2, 3, 4),))
    assert not any(map(draws_random_numbers, program.order))


def test_they_stay_in_torch(interpreter: str, tmp_path: Path) -> None:
    """No engine has any; attention without dropout is no draw."""

    def call(lin: torch.nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = x[None, None]
        attended = torch.nn.functional.scaled_dot_product_attention(rows, rows, rows)
        return torch.rand(4), lin(attended), torch.randn(3, 4) * x

    model, drawn = models.Calls(call), []
    module = trtcache.compile(model, (X,), backend=interpreter, cache=tmp_path)
    assert [one.operator for one in module.report.left] == ["aten.rand.default", "aten.randn.default"]
    assert {one.why for one in module.report.left} == {RANDOM}
    for one in (model, module):
        torch.manual_seed(2)
        drawn.append(one(X))
    torch.testing.assert_close(*drawn)
    with pytest.raises(PartitionError, match="random numbers"):
        trtcache.compile(model, (X,), backend=interpreter, cache=tmp_path, settings={"require_full_compilation": True})


FORMAT = torch.channels_last
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a sum": lambda x: x.t().contiguous().t() + x,
    "behind operators": lambda x: torch.relu(x.t().contiguous().t() + x) * 2 - x.t().clone().t(),
    "a copy": lambda x: x.t().contiguous().t() * 2,
    "a product": lambda x: (x @ x.t()).t().contiguous().t() * 2,
    "a format": lambda x: x.view(1, 2, 1, 6).expand(2, 2, 3, 6).contiguous(memory_format=FORMAT) + 1,
    "a change of a dtype": lambda x: x.t().half().contiguous().t().float(),
    "a concatenation": lambda x: torch.cat([x.t().contiguous().t() + x, x.t().contiguous().t()], 1) + 1,
}
DRAWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.5, True),
    "rand_like": lambda x: torch.rand_like(x) + x,
    "bernoulli": lambda x: torch.bernoulli(torch.sigmoid(x)),
}


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("name", LAYOUTS)
def test_draws_fill_memory_in_the_layout_of_the_model(name: str, draw: str, interpreter: str, tmp_path: Path) -> None:
    """The same numbers in another order would be others: a copy that changes only the layout stays before a draw."""
    model = models.Calls(lambda _, x: DRAWS[draw](LAYOUTS[name](x)))
    module, found = trtcache.compile(model, (X,), backend=interpreter, cache=tmp_path), []
    for one in (model, module):
        torch.manual_seed(2)
        found.append(one(X))
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_a_copy_before_a_draw_that_keeps_the_layout_is_removed() -> None:
    """It changes no number."""
    program = trtcache.lower(models.Calls(lambda _, x: torch.rand_like((x * 2).clone()) + x), (X,))
    assert torch.ops.aten.clone.default not in {node.target for node in program.order}
