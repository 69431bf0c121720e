"""Ints among the arguments that vary from call to call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.export import Dim

import trtcache
from tests.models import Calls
from trtcache.errors import ExportError, GuardError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X, Y = torch.randn(3, 4), torch.randn(7, 4)
VARYING = {"x": {0: Dim.DYNAMIC}, "n": Dim.DYNAMIC}


@pytest.fixture
def compiled(interpreter: str, engines: Path) -> Callable[..., trtcache.CompiledModule]:
    """``trtcache.compile`` with the interpreter and the session's cache."""

    def compile_(*args: Any, **kwargs: Any) -> trtcache.CompiledModule:
        return trtcache.compile(*args, cache=engines, **{"backend": interpreter, **kwargs})

    return compile_


class Scaled(nn.Module):
    """An int as a number, as a size and as a result."""

    def forward(self, x: torch.Tensor, n: int) -> Any:
        return torch.softmax(x, -1) * n, torch.arange(n) + x.sum(), n * 2 + x.shape[0]


class Sliced(nn.Module):
    """An int that is held to a size."""

    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        return x[:n] * 2


def check(model: nn.Module, module: Any, *calls: tuple[Any, ...]) -> None:
    """Compare with eager torch."""
    for args in calls:
        torch.testing.assert_close(module(*args), model(*args))


@pytest.mark.parametrize("dim", [Dim.DYNAMIC, Dim.AUTO], ids=["dynamic", "auto"])
@pytest.mark.parametrize("backend", ["interpreter", "aot_inductor"])
def test_an_int_varies(
    compiled: Callable[..., trtcache.CompiledModule], backend: str, dim: Any, tmp_path: Path
) -> None:
    """After a build, an alias, from a file, and in parts."""
    model, shapes = Scaled(), {"x": {0: dim}, "n": dim}
    calls = ((X, 5), (Y, 2), (X, 100), (X[:2], 7))
    for _ in range(2):
        module = compiled(model, (X, 5), dynamic_shapes=shapes, backend=backend)
        check(model, module, *calls)
    torch.export.save(torch.export.export(model, (X, 5), dynamic_shapes=shapes), tmp_path / "model.pt2")
    for _ in range(2):
        check(model, compiled(tmp_path / "model.pt2", backend=backend), *calls)
    settings = {"torch_executed_ops": ["aten.softmax.int"]}
    divided = compiled(model, (X, 5), dynamic_shapes=shapes, backend=backend, settings=settings)
    assert divided.report.left
    check(model, divided, *calls)


@pytest.mark.parametrize("backend", ["interpreter", "aot_inductor"])
def test_a_large_int_is_exact(compiled: Callable[..., trtcache.CompiledModule], backend: str) -> None:
    """It is an int64 in the engine, and a float where it meets floats, as in eager torch."""
    model = Calls(lambda _, x, n: (x * n, (x * 100).long() + n, n + 1))
    shapes = {"args": ({0: Dim.DYNAMIC}, Dim.DYNAMIC)}
    module = compiled(model, (X, 3), dynamic_shapes=shapes, backend=backend)
    for n in (0, 1, 2**24 + 1, 2**31 - 1, 2**31 + 7, 2**53 + 1, 2**62 + 3):
        check(model, module, (Y, n))


def test_an_int_of_another_type_or_sign_is_refused(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """A bool is no int, and the engine knows an int as a size."""
    module = compiled(Scaled(), (X, 5), dynamic_shapes=VARYING)
    for wrong in (True, 2.0, torch.tensor(3), None):
        with pytest.raises(InputError, match="argument n: expected an int, got"):
            module(X, wrong)
    for wrong in (-1, 2**63):
        with pytest.raises(InputError, match=r"argument n: expected an int from 0 to 2\*\*63 - 1, got"):
            module(X, wrong)
    with pytest.raises(ExportError, match="a dynamic int cannot be negative"):
        compiled(Calls(lambda _, x, n: x * n), (X, -3), dynamic_shapes={"args": ({}, Dim.DYNAMIC)})


def test_what_export_assumed_about_an_int_is_checked(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """The error names the argument."""
    model = Sliced()
    module = compiled(model, (X, 2), dynamic_shapes=VARYING)
    check(model, module, (X, 3), (Y, 5))
    with pytest.raises(GuardError, match=r"n <= x.shape\[0\]; n is 5, x.shape\[0\] is 3"):
        module(X, 5)
    shapes = {"args": ({}, Dim.AUTO)}
    branching = compiled(Calls(lambda _, x, n: x * 2 if n > 4 else x * 3), (X, 5), dynamic_shapes=shapes)
    with pytest.raises(GuardError, match="expected an int from 5 to any, got 4"):
        branching(X, 4)
    fixed = compiled(Calls(lambda _, x, n: x * n if n == 3 else x), (X, 3), dynamic_shapes=shapes)
    assert torch.equal(fixed(X, 3), X * 3)
    with pytest.raises(InputError, match="expected 3, got 4"):
        fixed(X, 4)


def test_a_fixed_int_and_one_that_varies_are_two_programs(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """No alias leads from one to the other."""
    model = Scaled()
    for _ in range(2):
        varying = compiled(model, (X, 5), dynamic_shapes=VARYING)
        fixed = compiled(model, (X, 5), dynamic_shapes={"x": {0: Dim.DYNAMIC}, "n": None})
        check(model, varying, (X, 6))
        with pytest.raises(InputError, match="argument n: expected 5, got 6"):
            fixed(X, 6)


def test_a_tracer_sees_an_int_that_varies(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """It may be a symbol there."""
    engine = compiled(Scaled(), (X, 5), dynamic_shapes=VARYING)
    shapes = {"args": ({0: Dim.DYNAMIC}, Dim.DYNAMIC)}
    program = torch.export.export(Calls(lambda _, *args: engine(*args)), (X, 5), dynamic_shapes=shapes, strict=False)
    check(Scaled(), lambda *args: program.module()(*args), (X, 5), (Y, 9))
    with pytest.raises(InputError, match="expected an int, got"):
        torch.export.export(Calls(lambda _, *args: engine(*args)), (X, torch.tensor(5)), strict=False)


@pytest.mark.parametrize("settings", [{}, {"torch_executed_ops": ["aten.softmax.int"]}], ids=["whole", "divided"])
def test_a_program_with_such_an_int_is_exported_and_loaded(
    engines: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """The file says that it is an int."""
    model, path = Scaled(), tmp_path / "program.pt2"
    trtcache.export(trtcache.compile(model, (X, 5), dynamic_shapes=VARYING, cache=engines, settings=settings), path)
    loaded = trtcache.load(path, trust="local-file")
    check(model, loaded, (X, 5), (Y, 9))
    with pytest.raises(InputError, match="argument n: expected an int, got True"):
        loaded(X, True)
