"""Every kind of guard, for every kind of dimension: a call is right or refused, whatever its sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import trtcache
from tests.effort import tries
from tests.guards.cases import CASES, KINDS, Case, calls, outcomes
from trtcache.errors import ExportError, GuardError, InputError

if TYPE_CHECKING:
    from pathlib import Path

# Not traced: coverage of these lines is in the other files, and tracing takes longer than the exports.
pytestmark = [pytest.mark.torture, pytest.mark.no_cover]

# torch.export wants a range or a constant for these where a dimension has a name.
UNNAMED = {"named", "2*a", "a+1"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_a_call_is_right_or_refused(name: str, kind: str, interpreter: str, tmp_path: Path) -> None:
    """No size that a call can have is answered by the wrong branch, and each refusal is an ``InputError``."""
    case = CASES[name]
    if kind not in {"dynamic", "auto", "named"} and "b" not in case.letters:
        pytest.skip("it has one size")
    model, args = case.model(), case.inputs(case.example(kind))
    try:
        compiled = trtcache.compile(
            model, args, dynamic_shapes=case.dynamic_shapes(kind), backend=interpreter, cache=tmp_path
        )
    except ExportError:
        assert kind in UNNAMED
        pytest.skip("torch.export refuses these dimensions")
    found = outcomes(compiled, model, calls(case, kind, tries(20, 200), name))
    assert found["right"]


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("eq", {"a": 4, "b": 5, "c": 6, "d": 5}, r"x\.shape\[1\] != y\.shape\[1\]; both are 5"),
        ("remainder", {"a": 5, "b": 6}, r"x\.shape\[0\] % 2 == 0; x\.shape\[0\] is 5"),
        ("numel", {"a": 9, "b": 9}, r"x\.shape\[0\] \* x\.shape\[1\] <= 30; all are 9|both are 9"),
        ("one", {"a": 1, "b": 6}, r"x\.shape\[0\] != 1; x\.shape\[0\] is 1"),
    ],
)
def test_a_refusal_states_the_assumption_and_the_sizes(
    name: str, sizes: dict[str, int], message: str, interpreter: str, tmp_path: Path
) -> None:
    """The message has the condition in the caller's words, what the call has instead, and what to do."""
    case = CASES[name]
    model = Named(case) if len(case.shapes) == 2 else Single(case)
    shapes = case.dynamic_shapes("dynamic", spread=False)
    args = case.inputs(case.example())
    compiled = trtcache.compile(model, args, dynamic_shapes=shapes, backend=interpreter, cache=tmp_path)
    with pytest.raises(InputError, match=f"compiled for .*{message}") as caught:
        compiled(*case.inputs(sizes))
    assert isinstance(caught.value, GuardError)
    assert "compile" in caught.value.hint


class Named(torch.nn.Module):
    """A case of two tensors with names."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return what the case returns."""
        result: torch.Tensor = self.case.function(x, y)
        return result


class Single(Named):
    """A case of one tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # one fewer
        """Return what the case returns."""
        result: torch.Tensor = self.case.function(x)
        return result
