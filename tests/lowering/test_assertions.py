"""Assertions removes what the graph proves and words the rest alike; Guards removes what always holds."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops.effects import has_effects

from tests.lowering.contract import DYNAMIC, Calls, keeps_its_promise, only_with, operators
from tests.lowering.graphs import marked
from trtcache.errors import ExportError
from trtcache.lowering.rewrites.sizes import Assertions, Guards

X = torch.randn(4, 4)


def _counted(model: Calls, x: torch.Tensor) -> torch.Tensor:
    count = x.sum().int().item()
    torch._check(count >= 2)
    torch._check(count < 50)
    return torch.zeros(count) + 1


def test_dtypes_are_not_asserted() -> None:
    """A cast needs no assertion of what it casts."""
    graph = marked(Calls(lambda _, x: x.half() * 2), X)
    assert "_assert_tensor_metadata" in operators(graph)
    assert Assertions()(graph.graph_module).modified
    assert operators(graph) == ["_to_copy", "mul"]


def test_an_assertion_on_a_computed_number_stays_under_one_message() -> None:
    """The range of a number from ``item`` is still checked; its message names no node."""
    graph = keeps_its_promise(Guards(), Calls(_counted), torch.ones(4))
    checks = graph.graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten._assert_scalar.default)
    assert len(checks) >= 2
    assert len({check.args[1] for check in checks}) == 1


def test_a_guard_is_checked_once() -> None:
    """``n <= 49`` and ``n < 50`` are one guard."""
    graph = marked(Calls(_counted), torch.ones(4))
    before = operators(graph).count("_assert_scalar")
    assert Guards()(graph.graph_module).modified
    assert operators(graph).count("_assert_scalar") < before
    assert not Guards()(graph.graph_module).modified


def test_a_guard_on_the_size_of_an_input_is_left_to_the_interface() -> None:
    """Ranges of input sizes are checked when a module is called, so the graph has no guard on them."""

    def checked(_: object, x: torch.Tensor) -> torch.Tensor:
        torch._check(x.shape[0] >= 3)
        return x * 2

    graph = keeps_its_promise(Guards(), Calls(checked), X, dynamic=({0: DYNAMIC, 1: None},))
    assert operators(graph) == ["mul"]


def test_guards_that_say_the_same_make_no_difference() -> None:
    """Only this pass gives programs that check a number once and in two ways the same key."""

    def once(model: Calls, x: torch.Tensor) -> torch.Tensor:
        count = x.sum().int().item()
        torch._check(count >= 2)
        torch._check(count <= 49)
        return torch.zeros(count) + 1

    only_with("guards", Calls(_counted), Calls(once), torch.ones(4))


@pytest.mark.skipif(
    not has_effects(torch.ops.aten._linalg_check_errors.default),
    reason="this torch leaves out such checks",
)
def test_checks_of_linear_algebra_stay() -> None:
    """Those of unused results, too; torch's tokens that keep them in order are removed."""

    def inverts(_: object, x: torch.Tensor) -> torch.Tensor:
        torch.linalg.inv(x)
        return x + torch.inverse(x + 1)

    graph = keeps_its_promise(Assertions(), Calls(inverts), X)
    assert operators(graph).count("_linalg_check_errors") == 2


def test_other_effects_are_refused_by_name() -> None:
    """An engine has no effect besides its results."""

    def prints(_: object, x: torch.Tensor) -> torch.Tensor:
        torch.ops.aten._print("a text")
        return torch.linalg.inv(x)

    with pytest.raises(ExportError, match=r"aten\._print\.default has an effect besides its results"):
        marked(Calls(prints), X)
