"""Direct mode is off, or misses, with a reason, for what has no trace, or none that an export confirms."""

from __future__ import annotations

import gc
import random
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.torch_version import TorchVersion
from torch.utils._python_dispatch import TorchDispatchMode

import trtcache

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("own_threads_only")
X = torch.randn(3, 4)


class Calls(nn.Module):
    """Does what a function does, with attributes of any kind."""

    def __init__(self, does: Callable[[Any, torch.Tensor], Any], **attributes: Any) -> None:
        super().__init__()
        self.does = does
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: torch.Tensor) -> Any:
        return self.does(self, x)


def _resized(_: Any, x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.resize_(2, 2)
    return y


def _exporting_only(_: Any, x: torch.Tensor) -> torch.Tensor:
    from torch.fx.experimental.proxy_tensor import get_proxy_mode

    return x * (2 if get_proxy_mode() is None else 3)


class EqualToAll(nn.Module):
    """A module that compares equal to others of its class."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EqualToAll)

    __hash__ = nn.Module.__hash__

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


_HISTORY = "forward asks for the gradient function, the base or the memory of a tensor"


def _with_attribute(model: Any, x: torch.Tensor) -> torch.Tensor:
    return x * (1 if model.weight.grad is None else 2)


OFF: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "code that knows whether it is exported": (
        lambda: Calls(_exporting_only),
        "the exported program performs other operations than the model",
    ),
    **{
        f"code that asks for {name}": (lambda ask=ask: Calls(lambda _, x: x * (1 if ask(x + 1) else 2)), _HISTORY)
        for name, ask in {
            "a gradient function": lambda y: y.grad_fn,
            "a base": lambda y: y._base,
            "a view": lambda y: y._is_view(),
            "a tensor's memory": lambda y: y.untyped_storage(),
        }.items()
    },
    **{
        f"code that asks for the {name} of single elements": (
            lambda ask=ask: Calls(lambda _, x: x * (1 if ask(x[:, None]) else 2)),
            "forward asks for the strides of single elements",
        )
        for name, ask in {
            "strides": lambda y: y.stride() == (2, 2, 1),
            "stride": lambda y: y.stride(1) == 2,
            "order": lambda y: y.dim_order() == (0, 1, 2),
        }.items()
    },
    "modules with equality of their own": (
        lambda: Calls(lambda model, x: model.part(x), part=EqualToAll()),
        "module part has a method __eq__ of its own",
    ),
    "a tensor that gets another size in place": (lambda: Calls(_resized), "changes the shape of a tensor in place"),
}


def compiled(model: nn.Module, args: Any, backend: str, root: Path, **options: Any) -> str:
    """Return the outcome of direct mode."""
    module = trtcache.compile(model, args, backend=backend, cache=root / "cache", direct="on", **options)
    assert module.report.direct == "hit" or module.report.route in {"lowered", "alias"}
    return module.report.direct


@pytest.mark.parametrize("name", OFF)
def test_unsupported_models_turn_direct_mode_off(name: str, interpreter: str, tmp_path: Path) -> None:
    """The model is compiled on the slow path, and the report has the reason."""
    made, word = OFF[name]
    outcome = compiled(made(), (X,), interpreter, tmp_path)
    assert outcome.startswith("off: "), outcome
    assert word in outcome


def test_a_clock_never_hits(interpreter: str, tmp_path: Path) -> None:
    """The recorded trace is not the program's."""
    models = [Calls(lambda _, x: x + time.time() % 1000) for _ in range(2)]
    outcomes = [compiled(model, (X,), interpreter, tmp_path) for model in models]
    assert outcomes == ["off: the exported program performs other operations than the model"] * 2


def test_a_random_number_hits_while_an_export_would_draw_it(interpreter: str, tmp_path: Path) -> None:
    """After another draw it is another number."""
    outcomes = []
    for seed in (3, 3, 4):
        random.seed(seed)
        outcomes.append(compiled(Calls(lambda _, x: x + random.random()), (X,), interpreter, tmp_path))
    assert outcomes[1] == "hit"
    assert [one.partition(":")[0] for one in outcomes] == ["miss", "hit", "miss"]


def test_arguments_with_gaps_are_exported(interpreter: str, tmp_path: Path) -> None:
    """Their layout in an export depends on what the model does with them."""
    model = Calls(lambda _, x: x + 1)
    assert (
        compiled(model, (torch.rand(3, 8)[:, ::2],), interpreter, tmp_path) == "off: argument 0 has gaps in its memory"
    )


def test_inputs_that_torch_tries_the_program_with_turn_it_off(interpreter: str, tmp_path: Path) -> None:
    """An export calls the program with each of them, and can refuse it."""
    model, shapes = Calls(lambda _, x: x + 1), torch.export.AdditionalInputs()
    shapes.add((torch.rand(5, 4),))
    outcome = compiled(model, (X,), interpreter, tmp_path, dynamic_shapes=shapes)
    assert outcome == "off: dynamic_shapes have an object of class AdditionalInputs"


def test_an_active_mode_turns_it_off(interpreter: str, tmp_path: Path) -> None:
    """A mode below an export's can do anything with its operators; one above is code of the model's."""

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    class Doubling(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            return result * 2 if func is torch.neg else result

    model = Calls(lambda _, x: torch.neg(x))
    with Mode():
        assert "a dispatch mode is active" in compiled(model, (X,), interpreter, tmp_path)
    assert compiled(model, (X,), interpreter, tmp_path).startswith("miss")
    with Doubling():
        assert compiled(model, (X,), interpreter, tmp_path).startswith("miss: operation 2")


def test_the_collector_is_paused_as_in_an_export(interpreter: str, tmp_path: Path) -> None:
    """Code that asks for it gets the same answer in both."""
    model = Calls(lambda _, x: x * (2 if gc.isenabled() else 3))
    assert [compiled(model, (X,), interpreter, tmp_path).split(":")[0] for _ in range(2)] == ["miss", "hit"]


def test_a_gradient_counts_where_it_is_read(interpreter: str, tmp_path: Path) -> None:
    """A weight without values has one as well: a trained model hits, unless its code asks."""
    model = Calls(_with_attribute, weight=nn.Parameter(torch.rand(4)))
    assert [compiled(model, (X,), interpreter, tmp_path).split(":")[0] for _ in range(2)] == ["miss", "hit"]
    other = Calls(lambda model, x: x * model.weight, weight=nn.Parameter(torch.rand(4)))
    assert compiled(other, (X,), interpreter, tmp_path).startswith("miss")
    for one in (model, other):
        one.weight.grad = torch.ones(4)
    assert compiled(other, (X,), interpreter, tmp_path) == "hit"
    assert "hit" not in compiled(model, (X,), interpreter, tmp_path)


def test_marks_for_dynamo_turn_it_off(interpreter: str, tmp_path: Path) -> None:
    """torch.export treats the sizes of such a tensor as they say."""
    x = torch.rand(3, 4)
    torch._dynamo.mark_dynamic(x, 0)
    outcome = compiled(Calls(lambda _, x: x + 1), (x,), interpreter, tmp_path)
    assert outcome.startswith("off: argument 0 has marks for Dynamo (_dynamo_dynamic_indices")


def test_a_newer_torch_turns_it_off(interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its exporter may differ from the ones that a replay imitates, in what no comparison shows."""
    monkeypatch.setattr(torch, "__version__", TorchVersion("2.15.0a0+git0"))
    for _ in range(2):
        module = trtcache.compile(nn.ReLU(), (X,), backend=interpreter, cache=tmp_path, direct="on")
        assert module.report.direct == "off: torch 2.15.0a0+git0 is newer than the versions that direct mode supports"
        torch.testing.assert_close(module(X), X.relu())
