"""Modules that are to stay in torch are marked, and their operators untouched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops.while_loop import while_loop

import trtcache
from tests.lowering import graphs
from tests.lowering.lowered import digest, outputs
from tests.models import Calls
from trtcache.errors import CanonicalizationError, ExportError, SettingsError
from trtcache.lowering import LoweredProgram, lower
from trtcache.lowering.operators import operator_name
from trtcache.lowering.stages import TorchSelection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

X = torch.randn(3, 4)
GELU = "torch.nn.modules.activation.GELU"


class Inner(nn.Module):
    """Operators of which each would be rewritten."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.norm(self.lin(x.t().t().contiguous()))
        return made.view(12).view(3, 4)


def model() -> nn.Sequential:
    """Return two equal parts with an activation between them."""
    torch.manual_seed(0)
    return nn.Sequential(Inner(), nn.GELU(), Inner()).eval()


def marked(program: LoweredProgram) -> list[str]:
    """Return the operators that stay in torch."""
    return [operator_name(node.target) for node in program.order if "torch_executed" in node.meta]


@pytest.mark.parametrize("modules", [["0"], ["2"], [GELU], ["0", "1"], [f"{__name__}.Inner"], ["0.norm"]])
def test_results_are_kept(modules: list[str]) -> None:
    """Whatever stays in torch, results are the model's."""
    whole = model()
    program = lower(whole, (X,), torch_executed=TorchSelection(modules))
    assert marked(program)
    torch.testing.assert_close(outputs(program, X)[0], whole(X), rtol=1e-5, atol=1e-5)


def test_no_pass_touches_marked_operators() -> None:
    """A marked part keeps its BatchNorm, its copies and its views; the equal part that is not marked does not."""
    kept = marked(lower(model(), (X,), torch_executed=TorchSelection(["0"])))
    assert "aten._native_batch_norm_legit_no_training.default" in kept
    assert kept.count("aten.permute.default") >= 2
    assert "in torch" in lower(model(), (X,), torch_executed=TorchSelection(["0"])).text
    assert marked(lower(model(), (X,))) == []


def test_a_graph_with_hidden_operators_can_be_run_and_printed() -> None:
    """Between marking and the end of lowering a graph still says and does what it did."""
    whole = model()
    graph = graphs.marked(whole, X)
    TorchSelection(["0.norm"]).mark(graph.graph_module.graph)
    assert sum("torch_executed" in node.meta for node in graph.graph_module.graph.nodes) == 1
    assert "torch_executed" in graph.graph_module.graph.python_code("self").src
    torch.testing.assert_close(graphs.run(graph, ((X,), {}))[0], whole(X), rtol=1e-5, atol=1e-5)


def digests(modules: Iterable[str]) -> str:
    """Return the digest of the model with these modules in torch."""
    return digest(lower(model(), (X,), torch_executed=TorchSelection(list(modules)))).hex


def test_marks_are_in_the_key() -> None:
    """Other modules in torch are another program; other ways to name the same ones are not."""
    assert len({digests([]), digests(["0"]), digests(["1"]), digests(["2"]), digests(["0", "1"])}) == 5
    assert digests(["1"]) == digests([GELU])
    assert digests(["0", "2"]) == digests([f"{__name__}.Inner"])


def test_a_module_that_is_called_twice_is_marked_in_both_places() -> None:
    """torch.export numbers the calls of one module; a name means all of them."""
    twice = Calls(lambda lin, x: lin(lin(x).relu()))
    assert marked(lower(twice, (X,), torch_executed=TorchSelection(["lin"]))).count("aten.addmm.default") == 2


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (lambda _, x: (x.relu().flatten(), x.relu().flatten()), "aten.view"),
        (lambda _, x: (x.relu().unbind()[0], x.relu().unbind()[0]), "aten.unbind"),
        (lambda _, x: (x.relu().type_as(x), x.relu().type_as(x)), "aten.type_as"),
        (lambda _, x: (torch.einsum("ij->ji", x.relu()), torch.einsum("ij->ji", x.relu())), "aten.einsum"),
    ],
)
def test_results_behind_marked_views_stay_apart(function: Callable[..., Any], operator: str) -> None:
    """Each view shows a tensor of its own, as in torch, also if its schema does not declare that it is one."""
    program = lower(Calls(function), (X,), torch_executed=TorchSelection([], [operator]))
    assert len(marked(program)) == 2
    assert [operator_name(node.target) for node in program.order].count("aten.relu.default") == 2


def test_copies_before_and_behind_marked_views_stay() -> None:
    """A result that torch copied does not have the memory of an input, or of another result."""
    selection = TorchSelection([], ["aten.view"])
    program = lower(Calls(lambda _, x: x.double().float().flatten()), (X,), torch_executed=selection)
    assert "aten.clone.default" in [operator_name(node.target) for node in program.order]
    program = lower(Calls(lambda _, x: [(h := x.relu()).clone(), h.flatten()]), (X,), torch_executed=selection)
    assert "aten.clone.default" in [operator_name(node.target) for node in program.order]
    beside = Calls(lambda _, x: x[1:].clone().view(-1).as_strided((2,), (1,), 4) + 1)
    program = lower(beside, (X,), torch_executed=TorchSelection([], ["aten.as_strided"]))
    assert "aten.clone.default" in [operator_name(node.target) for node in program.order]


class Reaching(nn.Module):
    """Calls modules of a list and of a part that is never called itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.part = Inner()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.part.lin(self.layers[1](self.layers[0](x)))
        return made


@pytest.mark.parametrize(("module", "count"), [("layers", 2), ("layers.1", 1), ("part", 1)])
def test_the_path_of_what_has_modules_names_them(module: str, count: int) -> None:
    """A list of modules is never called, and neither need be what a model reaches into."""
    program = lower(Reaching().eval(), (X,), torch_executed=TorchSelection([module]))
    assert marked(program).count("aten.addmm.default") == count


def test_a_marked_loop_is_not_unrolled() -> None:
    """A loop of a module that is to stay in torch is refused like any loop that cannot be written out."""

    class Loop(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, x.sin()), (0, x))[1]
            return result

    looping = nn.Sequential(nn.ReLU(), Loop())
    assert marked(lower(looping, (X,), torch_executed=TorchSelection(["0"]))) == ["aten.relu.default"]
    with pytest.raises(ExportError, match="control flow"):
        lower(looping, (X,), torch_executed=TorchSelection(["1"]))


def test_an_unknown_module_is_an_error_with_the_nearest_name() -> None:
    """A name that no operator came from is refused."""
    with pytest.raises(SettingsError, match=r"'0.nrm'.*did you mean '0.norm'"):
        lower(model(), (X,), torch_executed=TorchSelection(["0.nrm"]))


def test_the_doors_take_it_as_a_setting(interpreter: str) -> None:
    """``lower`` marks what ``compile`` then leaves in torch, and names must be names."""
    settings = {"torch_executed_modules": ["1"]}
    assert marked(trtcache.lower(model(), (X,), backend=interpreter, settings=settings))
    with pytest.raises(CanonicalizationError, match="engines with keys of their own"):
        trtcache.key(model(), (X,), backend=interpreter, settings=settings)
    module = trtcache.compile(model(), (X,), backend=interpreter, settings=settings)
    assert {one.module for one in module.report.left} == {"1"}
    for wrong in ("1", [1]):
        with pytest.raises(SettingsError, match="expected names of modules"):
            trtcache.Settings.of({"torch_executed_modules": wrong})
