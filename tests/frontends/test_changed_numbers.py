"""What ``forward`` changes besides tensors is not in a program: a warning says so."""

from __future__ import annotations

import random
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import trtcache
from tests.models import Calls

if TYPE_CHECKING:
    from collections.abc import Callable

X = torch.ones(2, 4)


def counts(state: Any) -> Callable[..., torch.Tensor]:
    """Return a function that counts its calls in an attribute."""

    def function(_: object, x: torch.Tensor) -> torch.Tensor:
        state.count += 1
        return x * state.count

    return function


def counts_in(numbers: Any, key: Any) -> Callable[..., torch.Tensor]:
    """Return a function that counts its calls in a container."""

    def function(_: object, x: torch.Tensor) -> torch.Tensor:
        numbers[key] += 0.5
        return x * numbers[key]

    return function


def draws(draw: Callable[[], Any]) -> Callable[..., torch.Tensor]:
    """Return a function that draws a number in Python."""
    return lambda _, x: x + float(draw())


CHANGES: dict[str, tuple[Any, Callable[[Any], Callable[..., torch.Tensor]], str]] = {
    "attribute": (SimpleNamespace(count=0), counts, "the number count of a SimpleNamespace from 0 to 1"),
    "item": ({"n": 1}, lambda numbers: counts_in(numbers, "n"), "the number n of a dict from 1 to 1.5"),
    "element": ([1.0, 2.0], lambda numbers: counts_in(numbers, 1), "the number 1 of a list from 2.0 to 2.5"),
    "Python": (random.random, draws, "draws from Python's"),
    "NumPy": (np.random.random, draws, "draws from Python's or NumPy's"),
    "seed": (lambda: torch.manual_seed(3) and 1, draws, "seeds a generator"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_warning_says_what_an_engine_lacks(interpreter: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """The model itself is as before."""
    state, make, message = CHANGES[name]
    model = Calls(make(state))
    model.state = state
    before = str(state)
    with torch.random.fork_rng(), caplog.at_level("WARNING", "trtcache.lowering"):
        trtcache.key(model, (X,), backend=interpreter)
    assert message in caplog.text
    assert str(state) == before


def test_results_that_are_kept_for_later_calls_are_no_change(caplog: pytest.LogCaptureFixture) -> None:
    """A size that was not there before, and random operators of torch."""
    kept: dict[Any, Any] = {}

    def function(_: object, x: torch.Tensor) -> torch.Tensor:
        kept["size"] = x.shape[1]
        return x + torch.rand_like(x)

    model = Calls(function)
    model.kept = kept
    with caplog.at_level("WARNING", "trtcache.lowering"):
        trtcache.lower(model, (X,))
    assert "forward" not in caplog.text
    assert kept == {}


def test_the_first_export_of_a_process_warns_of_no_generator() -> None:
    """NumPy's generators are imported by it, which is no draw from them."""
    lines = "import torch, trtcache\ntrtcache.lower(torch.nn.ReLU(), (torch.ones(2),))"
    found = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True)
    assert "generator" not in found.stderr
