"""Programs whose results depend on layouts, sizes and notations that a rewrite or a guard could lose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim

import trtcache
from tests.models import Calls
from trtcache.errors import ExportError, GuardError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = torch.arange(12.0).reshape(3, 4)
AUTO = Dim.AUTO


def compiled(interpreter: str, engines: Path, model: nn.Module, args: tuple[Any, ...], **more: Any) -> Any:
    """Compile with the interpreter and the session's cache."""
    return trtcache.compile(model.eval(), args, backend=interpreter, cache=engines, **more)


@pytest.mark.parametrize(
    "function",
    [
        lambda _, x: torch.as_strided(x.t().contiguous() * 2, (12,), (1,)),
        lambda _, x: torch.as_strided(x.t().contiguous().t(), (12,), (1,)),
        lambda _, x: (x.t().contiguous() * 2).view(torch.int16),
        lambda _, x: torch.view_as_real(torch.view_as_complex((x.t().contiguous() * 2).reshape(2, 3, 2))),
        lambda _, x: torch.as_strided(torch.cat([torch.cat([x.t(), x.t()]), x.t()]).sin(), (12,), (1,)),
        # torch 2.11 exports no view_copy of a tensor that has to be copied for it.
        *(
            [lambda _, x: torch.view_copy(x.t(), (2, 6)).as_strided((12,), (1,)) * 2]
            if torch.__version__ >= "2.13"
            else []
        ),
        lambda _, x: torch.permute_copy(x, (1, 0)).as_strided((12,), (1,)) * 2,
        lambda _, x: x[:, ::2].double().float().as_strided((4,), (1,)) * 2,
        lambda _, x: x[:1].expand(3, 4).double().float().as_strided((12,), (1,)) * 2,
        lambda _, x: (x.half()[:1].expand(3, 4).float() + x.t().reshape(3, 4)).as_strided((8,), (1,)) * 2,
        lambda _, x: (x.half()[:1].expand(3, 4).float() + (x * 2).t().contiguous().t()).as_strided((8,), (1,)) * 2,
        lambda _, x: torch.add(x, x, alpha=1e30),
        lambda _, x: torch.addmm(x.t() @ x, x.t(), x, beta=1e20),
        lambda _, x: torch.nn.functional.elu(x - 5, alpha=-0.0),
        lambda _, x: x.to(torch.float8_e4m3fn).to(torch.float8_e5m2fnuz).float(),
        lambda _, x: x.to(torch.float8_e5m2).to(torch.float8_e5m2fnuz).float(),
        lambda _, x: torch.view_as_real(torch.complex(x / 0, x * 0) * 1),
    ],
)
def test_results_are_those_of_eager(interpreter: str, engines: Path, function: Callable[..., Any]) -> None:
    """Layouts that are read further on, large factors, -0.0, casts that round, and complex infinities."""
    model = Calls(function)
    found, expected = compiled(interpreter, engines, model, (X + 1.125,))(X + 1.125), model(X + 1.125)
    assert found.dtype is expected.dtype
    assert torch.equal(found.nan_to_num(7), expected.nan_to_num(7))
    if expected.is_floating_point():
        assert torch.equal(found.isnan(), expected.isnan())
        assert torch.equal(torch.signbit(found)[~found.isnan()], torch.signbit(expected)[~expected.isnan()])


@pytest.mark.parametrize(
    "function",
    [
        lambda _, x: torch.view_copy(x, (4, 3)),
        lambda _, x: torch.ops.aten._reshape_copy(x, (4, 3)),
        lambda _, x: torch.permute_copy(x, (0, 1)),
        lambda _, x: while_loop(lambda i, y: i < 0, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x))[1],
    ],
)
def test_a_copy_keeps_the_values_of_before_a_change(
    interpreter: str, engines: Path, function: Callable[..., Any]
) -> None:
    """It does not share the input's memory."""

    def change(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
        copy: torch.Tensor = function(_, x)
        x.add_(1)
        return copy

    for model in (Calls(change), Calls(function)):
        mine, theirs = X.clone(), X.clone()
        found = compiled(interpreter, engines, model, (X.clone(),))(mine)
        assert torch.equal(found, model(theirs))
        assert torch.equal(mine, theirs)
        assert found.untyped_storage().data_ptr() != mine.untyped_storage().data_ptr()


def test_a_layout_that_is_read_has_another_key(interpreter: str) -> None:
    """Programs with and without the copy give different results."""
    functions = (
        lambda _, x: torch.as_strided(x.t().contiguous() * 2, (12,), (1,)),
        lambda _, x: torch.as_strided(x.t() * 2, (12,), (1,)),
    )
    keys = {str(trtcache.key(Calls(function), (X,), backend=interpreter)) for function in functions}
    assert len(keys) == 2


def test_scales_that_differ_have_other_keys(interpreter: str) -> None:
    """Also if they are near the default."""
    query = torch.randn(1, 2, 3, 16, dtype=torch.float64)
    attention = torch.nn.functional.scaled_dot_product_attention
    models = [Calls(lambda _, q, s=scale: attention(q, q, q, scale=s)) for scale in (None, 0.25, 0.25 * (1 + 5e-10))]
    default, same, other = (str(trtcache.key(model, (query,), backend=interpreter)) for model in models)
    assert default == same != other


class NamedArgs(nn.Module):
    """An argument that is named like torch's notation for all of them."""

    def forward(self, args: list[torch.Tensor], x: torch.Tensor) -> Any:
        """Branch by the size of a part of it."""
        return (args[1] * 2 if args[1].shape[0] == 1 else args[1] * 3), x.sum()


class NamedBeside(nn.Module):
    """A list, and an argument that is named like its first item."""

    def forward(self, xs: list[torch.Tensor], xs_0: torch.Tensor) -> Any:
        """Branch by the size of the first item."""
        return (xs[0] * 2 if xs[0].shape[0] == 1 else xs[0] * 3), xs_0.sum()


def test_guards_are_on_the_argument_that_they_name(interpreter: str, engines: Path) -> None:
    """Whatever it is called."""
    args = ([torch.randn(5, 5), torch.randn(3, 5)], torch.randn(4, 6))
    first = {0: AUTO}
    module = compiled(interpreter, engines, NamedArgs(), args, dynamic_shapes=([first, first], first))
    torch.testing.assert_close(module(*args), NamedArgs()(*args))
    with pytest.raises(GuardError):
        module([torch.randn(5, 5), torch.randn(1, 5)], torch.randn(4, 6))
    module([torch.randn(5, 5), torch.randn(3, 5)], torch.randn(1, 6))
    beside = ([torch.randn(3, 5)], torch.randn(4, 6))
    module = compiled(interpreter, engines, NamedBeside(), beside, dynamic_shapes=([first], first))
    with pytest.raises(GuardError):
        module([torch.randn(1, 5)], torch.randn(4, 6))
    module([torch.randn(2, 5)], torch.randn(1, 6))


def test_a_decision_that_cannot_be_checked_is_an_error_beside_others(interpreter: str, engines: Path) -> None:
    """It was dropped if torch had recorded any other guard."""

    def function(_: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        number = torch.sym_ite(x.shape[0] > 1, 2, 3)
        return x * 2 if number == 2 and x.shape[1] != y.shape[1] else x * 7

    sizes = {0: AUTO, 1: AUTO}
    with pytest.raises(ExportError, match="cannot be checked at a call"):
        compiled(interpreter, engines, Calls(function), (X, torch.randn(6, 5)), dynamic_shapes={"args": (sizes, sizes)})


def test_as_strided_of_a_constant_in_another_layout_is_refused(interpreter: str, engines: Path) -> None:
    """Its copy in the engine is contiguous."""
    constant = torch.arange(6.0).reshape(2, 3).t()
    model = Calls(lambda _, x: x + torch.as_strided(constant, (6,), (1,)))
    with pytest.raises(ExportError, match=r"\.contiguous\(\)"):
        compiled(interpreter, engines, model, (torch.ones(6),))


def test_an_input_that_torch_export_loses_is_an_error(interpreter: str, engines: Path) -> None:
    """A transform of ``torch.func`` over a closure with the input."""
    model = Calls(lambda _, x: torch.func.grad(lambda y: (y * y).sum())(x))
    with pytest.raises(ExportError, match=r"torch\.func" if torch.__version__ >= "2.13" else "Expected FakeTensor"):
        compiled(interpreter, engines, model, (X,))


def test_names_of_arguments_do_not_order_the_larger_of_two_sizes(interpreter: str) -> None:
    """A maximum is written in an order of its own."""
    source = "def forward(self, {0}, {1}): return torch.zeros(torch.sym_max({0}.shape[0], {1}.shape[0])) + {0}.sum()"
    keys = set()
    for one, other in (("a", "b"), ("b", "a"), ("x", "other"), ("q", "k"), ("first", "second")):
        space: dict[str, Any] = {"torch": torch}
        exec(source.format(one, other), space)  # noqa: S102  # a method with other names
        model = type("Model", (nn.Module,), {"forward": space["forward"]})()
        shapes = {one: {0: AUTO}, other: {0: AUTO}}
        args = (torch.randn(3, 2), torch.randn(5, 2))
        keys.add(str(trtcache.key(model, args, dynamic_shapes=shapes, backend=interpreter)))
    assert len(keys) == 1


def test_a_rounded_size_has_a_key(interpreter: str, engines: Path) -> None:
    """Python's ``round`` is arithmetic on sizes, too."""
    model = Calls(lambda _, x: x * round(x.shape[0] * 0.6))
    module = compiled(interpreter, engines, model, (torch.ones(10, 2),), dynamic_shapes={"args": ({0: AUTO},)})
    assert module.report.partitions[0].key is not None
    for size in (10, 5, 25):
        assert torch.equal(module(torch.ones(size, 2)), model(torch.ones(size, 2)))
