"""What is shown of each step of lowering."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pytest
import torch

import trtcache
from tests.lowering.graphs import marked
from trtcache.errors import PassError
from trtcache.lowering.passes import Pass
from trtcache.lowering.rewrites.cleanup import DeadCode
from trtcache.lowering.stages import Pipeline

if TYPE_CHECKING:
    from torch import fx

    from trtcache.lowering.passes import PassResult

X = torch.randn(3, 4)


class Wasteful(torch.nn.Module):
    """Computes something twice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu() + x.relu()


@dataclass(frozen=True, slots=True)
class Failing(Pass):
    """Raises."""

    name: ClassVar[str] = "failing"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Raise."""
        raise ZeroDivisionError("oops")


def test_a_trace_has_what_each_pass_changed() -> None:
    """A unified diff of the graph's text for those that changed something; without a trace there is none."""
    runs = trtcache.lower(Wasteful(), (X,), trace=True).runs
    assert all(bool(one.diff) == one.modified for one in runs)
    (change,) = [one.diff for one in runs if one.spec.startswith("common_subexpressions@") and one.modified]
    assert change.startswith("--- before\n+++ after common_subexpressions\n")
    assert "-relu_1: f32[3,4] = aten.relu.default(x)" in change.splitlines()
    assert not any(one.diff for one in trtcache.lower(Wasteful(), (X,)).runs)


def test_a_failed_pass_leaves_the_graph_for_people_to_see() -> None:
    """In the error's field, in the traceback's notes, and in another process; the message stays one line."""
    with pytest.raises(PassError) as caught:
        Pipeline((DeadCode(), Failing())).run(marked(Wasteful(), X).graph_module)
    error = caught.value
    assert "relu: f32[3,4] = aten.relu.default(x)" in error.graph.splitlines()
    assert error.__notes__ == [error.graph]
    assert str(error) == (
        "pass failing: raised ZeroDivisionError: oops (passes that ran before: dead_code@1); "
        "TRTCACHE_LOG=lowering shows what each pass changes"
    )
    assert pickle.loads(pickle.dumps(error)).graph == error.graph  # noqa: S301  # its own bytes


def test_calls_have_names_by_operator() -> None:
    """The text of a program numbers the calls of an operator in canonical order."""
    text = trtcache.lower(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh(), torch.nn.ReLU()), (X,)).text
    names = [line.partition(":")[0] for line in text.splitlines()]
    assert names == ["in0", "relu", "tanh", "relu_1", "return result relu_1"]
