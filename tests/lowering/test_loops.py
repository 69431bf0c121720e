"""Loops whose number of trips is known are written out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from tests.lowering.graphs import marked, run
from tests.lowering.lowered import digest, operators, outputs
from trtcache.errors import ExportError
from trtcache.lowering import lower
from trtcache.lowering.rewrites.constants import Loops

if TYPE_CHECKING:
    from collections.abc import Callable

X = torch.randn(3, 4)
ROWS = torch.randn(5, 3, 4)


class Looping(nn.Module):
    """A loop over one linear layer."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lin = nn.Linear(4, 4).requires_grad_(False)  # torch keeps no number in a loop that has gradients
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(self.lin, *args)


def counted(lin: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Apply a layer three times, counting in Python's numbers."""
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, lin(x).relu() + i), (0, x))[1]


def counted_in_a_tensor(lin: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Apply a layer three times, counting in a tensor."""
    start = torch.tensor(0)
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, lin(x).relu() * i), (start, x))[1]


def halved(lin: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Run as long as either of two numbers is above its limit."""

    def goes_on(a: torch.Tensor, b: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.logical_or(a > 4, (a > b).any())

    return while_loop(goes_on, lambda a, b, x: (a - 2, b + 1, lin(x)), (torch.tensor(9), torch.tensor(1), x))[2]


def never(lin: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Run no trip at all."""
    return lin(while_loop(lambda i, x: i > 0, lambda i, x: (i - 1, x.sin()), (0, x))[1])


def nested(lin: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Run one loop inside another."""

    def body(i: Any, x: torch.Tensor) -> tuple[Any, torch.Tensor]:
        inner = while_loop(lambda j, y: j < 2, lambda j, y: (j + 1, lin(y).tanh()), (torch.zeros(()), x))[1]
        return i + 1, inner + 1

    return while_loop(lambda i, x: i < 3, body, (torch.tensor(0), x))[1]


def with_a_constant(lin: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Use a constant tensor, and one that the body itself makes."""
    table = torch.tensor([1.0, 2.0, 3.0, 4.0])
    return while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, lin(x) * table + torch.arange(4)), (0, x))[1]


def number_after(lin: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Use the number that a loop ends with."""
    ended, made = while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, lin(x)), (0, x))
    return made * ended


def scanned_numbers(lin: nn.Module, rows: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scan over rows with a number as the result of each."""
    return scan(lambda state, row: (state + lin(row), (state * row).sum()), x, rows, dim=0)


def scanned(lin: nn.Module, rows: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Keep a state along rows, and give a result for each."""
    return scan(lambda state, row: ((state + lin(row)).tanh(), state * row), x, rows, dim=0)


def scanned_in_a_scan(lin: nn.Module, rows: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scan over rows, and for each over all rows."""

    def body(state: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ended, _ = scan(lambda inner, each: ((inner + lin(each)).tanh(), inner.sum()), state, rows, dim=0)
        return ended, ended * row

    return scan(body, x, rows, dim=0)


def scanned_backwards(lin: nn.Module, rows: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Go backwards along another dimension."""
    return scan(lambda state, row: ((state + lin(row)).tanh(), state * row), x, rows.movedim(0, 1), dim=1, reverse=True)


def written_out(lin: nn.Module, rows: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Do what ``scanned`` does with a loop of Python."""
    results = []
    for trip in range(5):
        row = rows[trip]
        results.append(state * row)
        state = (state + lin(row)).tanh()
    return state, torch.stack(results)


LOOPS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    **{
        one.__name__: (one, (X,))
        for one in (counted, counted_in_a_tensor, halved, never, nested, number_after, with_a_constant)
    },
    **{one.__name__: (one, (ROWS, X)) for one in (scanned, scanned_backwards, scanned_in_a_scan, scanned_numbers)},
}


@pytest.mark.parametrize("name", LOOPS)
def test_an_unrolled_loop_keeps_results(name: str) -> None:
    """No loop is left, and results are the model's."""
    function, args = LOOPS[name]
    model = Looping(function)
    program = lower(model, args)
    assert not {"while_loop", "scan"} & set(operators(program))
    expected = model(*args)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for made, wanted in zip(outputs(program, *args), expected, strict=True):
        torch.testing.assert_close(made, wanted, rtol=1e-5, atol=1e-5)


def test_a_loop_and_its_trips_written_out_are_one_program() -> None:
    """A ``while_loop`` of three trips has the key of three calls, and a ``scan`` that of a loop of Python."""
    thrice = lower(Looping(lambda lin, x: lin(lin(lin(x)))), (X,))
    looped = lower(
        Looping(lambda lin, x: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, lin(x)), (0, x))[1]), (X,)
    )
    assert digest(looped) == digest(thrice)
    assert digest(lower(Looping(scanned), (ROWS, X))) == digest(lower(Looping(written_out), (ROWS, X)))


def test_another_number_of_trips_is_another_program() -> None:
    """The limit of a loop is in the key."""

    def times(n: int) -> Any:
        return Looping(lambda lin, x: while_loop(lambda i, x: i < n, lambda i, x: (i + 1, lin(x)), (0, x))[1])

    assert digest(lower(times(2), (X,))) != digest(lower(times(3), (X,)))


def test_sizes_inside_a_loop_stay_symbolic() -> None:
    """A loop over a dynamic batch answers other batch sizes."""
    model = Looping(counted_in_a_tensor)
    program = lower(model, (X,), dynamic_shapes=(({0: torch.export.Dim("batch", min=2, max=9)},),))
    assert program.interface.ranges == ((2, 9),)
    more = torch.randn(7, 4)
    torch.testing.assert_close(outputs(program, more)[0], model(more), rtol=1e-5, atol=1e-5)


def test_a_constant_in_a_body_is_a_constant_of_the_program() -> None:
    """A body that holds a tensor, as programs of other versions of torch may, is written out with it."""
    graph = marked(Looping(counted), X)
    body = graph.graph_module.get_submodule("while_loop_body_graph_0")
    assert isinstance(body, torch.fx.GraphModule)
    body.register_buffer("table", torch.arange(4.0))
    (added,) = body.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor)
    with body.graph.inserting_before(added):
        added.args = (added.args[0], body.graph.get_attr("table"))
    assert Loops()(graph.graph_module).modified
    expected, lin = X, Looping(counted).lin
    for _ in range(3):
        expected = lin(expected).relu() + torch.arange(4.0)
    torch.testing.assert_close(run(graph, ((X,), {}))[0], expected, rtol=1e-5, atol=1e-5)


def test_rows_of_a_symbolic_batch_are_scanned() -> None:
    """The size that is scanned over is known, the batch is not."""
    model = Looping(scanned)
    batch = torch.export.Dim("batch", min=2, max=9)
    program = lower(model, (ROWS, X), dynamic_shapes=(({1: batch}, {0: batch}),))
    more = torch.randn(5, 7, 4), torch.randn(7, 4)
    for made, expected in zip(outputs(program, *more), model(*more), strict=True):
        torch.testing.assert_close(made, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "function",
    [
        lambda lin, x: while_loop(lambda x: x.sum() < 9, lambda x: (lin(x).abs() + 1,), (x,))[0],
        lambda lin, x: while_loop(lambda i, x: i < lin.bias[0], lambda i, x: (i + 1, lin(x)), (torch.tensor(0), x))[1],
        lambda lin, x: while_loop(lambda i, x: i > -1, lambda i, x: (i + 1, lin(x)), (torch.tensor(0), x))[1],
    ],
)
def test_a_loop_that_values_decide_or_that_is_too_long_is_refused(function: Callable[..., Any]) -> None:
    """Trips that depend on inputs or weights, or that do not end, are an error that says what was found."""
    with pytest.raises(ExportError, match="control flow"):
        lower(Looping(function), (X,))


@pytest.mark.parametrize("way", [scanned_in_a_scan, nested])
def test_loops_in_loops_are_counted_together(way: Callable[..., Any]) -> None:
    """Each alone would be short enough."""
    rows = torch.randn(40, 3, 4)
    args = (rows, X) if way is scanned_in_a_scan else (X,)
    graph = marked(Looping(way), *args)
    most = 1_500 if way is scanned_in_a_scan else 30
    Loops(most)(graph.graph_module)
    assert len(graph.graph_module.graph.nodes) < 2 * most
    assert {str(node.target) for node in graph.graph_module.graph.nodes} & {"scan", "while_loop"}


def test_the_pass_is_idempotent_and_says_what_it_did() -> None:
    """It reports a change when it unrolls, and none when it runs again or has to leave a loop."""
    graph = marked(Looping(nested), X)
    assert Loops()(graph.graph_module).modified
    assert not Loops()(graph.graph_module).modified
    for model, args in ((Looping(counted), (X,)), (Looping(scanned), (ROWS, X))):
        graph = marked(model, *args)
        before = str(graph.graph_module.graph)
        assert not Loops(max_nodes=1)(graph.graph_module).modified
        assert str(graph.graph_module.graph) == before
