"""Compiled modules whose program calls another compiled module, which has its own engine and weights."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import trtcache
from trtcache.errors import ProgramFileError, RefitError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = torch.randn(3, 4)
OTHER = "e.0.weight, e.0.bias .other values for e, which was compiled by itself: refit that first"

Compile = "Callable[..., trtcache.CompiledModule]"


class Net(nn.Module):
    """A model with an encoder and a head."""

    e: Any

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.e = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.h = nn.Linear(4, 2)
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return two numbers for each row."""
        made: torch.Tensor = self.h(self.e(x))
        return made


@pytest.fixture
def compiled(interpreter: str, engines: Path) -> Compile:
    """``trtcache.compile`` with the interpreter and the session's cache."""

    def compile_(model: Any, **options: Any) -> trtcache.CompiledModule:
        args = None if isinstance(model, torch.export.ExportedProgram) else (X,)
        return trtcache.compile(model, args, backend=interpreter, cache=engines, **options)

    return compile_


@pytest.fixture
def portable(interpreter: str) -> str:
    """Install the backend whose artifacts run in every process."""
    assert interpreter
    return "portable"


@pytest.fixture
def net(compiled: Compile) -> Net:
    """A model whose encoder is compiled."""
    made = Net()
    made.e = compiled(made.e)
    return made


def answers(model: nn.Module, other: nn.Module) -> bool:
    """Return whether two models agree."""
    with torch.no_grad():
        return torch.equal(model(X), other(X))


@pytest.mark.parametrize("refit", ["module", "state_dict", "load_state_dict", "assign", "with_weights"])
def test_other_weights_of_a_part_are_refused(compiled: Compile, net: Net, refit: str) -> None:
    """The part has its own engine, which would go on with the old weights; nothing is changed."""
    fast, new = compiled(net), Net(1)
    given = {name: one.clone() for name, one in new.state_dict().items()}
    ways: dict[str, Callable[[], object]] = {
        "module": lambda: fast.refit(new),
        "state_dict": lambda: fast.refit(given),
        "load_state_dict": lambda: fast.load_state_dict(given),
        "assign": lambda: fast.load_state_dict(given, assign=True),
        "with_weights": lambda: fast.with_weights(given),
    }
    error = RuntimeError if "load_state_dict" in refit or refit == "assign" else RefitError
    with pytest.raises(error, match=OTHER):
        ways[refit]()
    assert answers(fast, Net())
    net.e.refit(new.e)
    made = ways[refit]()
    assert answers(made if isinstance(made, nn.Module) else fast, new)


def test_a_refit_of_a_part_reaches_the_outer_module(compiled: Compile, net: Net) -> None:
    """Its calls and its state_dict, parameters and buffers have the new weights."""
    fast, new = compiled(net), Net(1)
    fast.h.weight  # noqa: B018  # the parameters are created
    net.load_state_dict(new.state_dict())
    assert answers(fast, new)
    assert all(torch.equal(one, new.state_dict()[name]) for name, one in fast.state_dict().items())
    net.e.refit(Net().e)
    assert torch.equal(dict(fast.named_parameters())["e.0.weight"], Net().e[0].weight)
    kept = fast.state_dict()["e.0.weight"]
    net.e.refit(new.e)
    assert torch.equal(kept, Net().e[0].weight)


def test_weights_of_the_outer_part_alone(compiled: Compile, net: Net) -> None:
    """They can be loaded after the part was refitted, and converted to the same dtype."""
    fast, new = compiled(net), Net(1)
    net.e.refit(new.e)
    fast.float().load_state_dict({"h.weight": new.h.weight, "h.bias": new.h.bias}, strict=False)
    assert answers(fast, new)
    with pytest.raises(RefitError, match="convert the model"):
        fast.half()


def test_a_constant_of_a_part(compiled: Compile) -> None:
    """A module with another constant in the part is refused."""

    def model(value: float) -> Net:
        made = Net()
        made.e[0].register_buffer("scale", torch.tensor(value), persistent=False)
        made.e[0].forward = lambda x: x * made.e[0].scale  # the model's own, which the program has as a constant
        return made

    net, other = model(2.0), model(3.0)
    net.e = compiled(net.e)
    with pytest.raises(RefitError, match=r"scale .a constant"):
        compiled(net).refit(other)


def test_a_part_of_a_part(compiled: Compile, net: Net) -> None:
    """The same holds for a compiled module in a compiled module in a third."""
    middle, new = compiled(net), Net(1)
    outer = compiled(nn.Sequential(middle))
    state = {f"0.{name}": one for name, one in new.state_dict().items()}
    with pytest.raises(RefitError, match=r"e\.0\.weight, e\.0\.bias"):
        outer.refit(state)
    net.e.refit(new.e)
    with pytest.raises(RefitError, match=r"0\.h\.weight, 0\.h\.bias"):
        outer.refit(state)
    middle.refit(new)
    outer.refit(state)
    assert answers(outer, new)
    assert torch.equal(outer.state_dict()["0.e.0.weight"], new.e[0].weight)


def test_the_part_outlives_its_model(compiled: Compile, net: Net) -> None:
    """A compiled module keeps the engines that its program calls."""
    fast = compiled(net)
    net.e = nn.Identity()
    assert answers(fast, Net())


@pytest.mark.parametrize("trace", [torch.export.export, torch.jit.trace])
def test_a_traced_program_does_not_say_whose_weights_it_has(
    compiled: Compile, net: Net, trace: Callable[..., Any]
) -> None:
    """Names that its own engine does not use are unknown."""
    fast, new = compiled(trace(net, (X,))), Net(1)
    with pytest.raises(RefitError, match=r"unexpected: e\.0\.bias, e\.0\.weight"):
        fast.refit(new.state_dict())
    fast.load_state_dict({"h.weight": new.h.weight, "h.bias": new.h.bias}, strict=False)
    net.e.refit(new.e)
    assert answers(fast, new)


def test_it_is_not_copied_or_exported(compiled: Compile, net: Net, tmp_path: Path) -> None:
    """A copy would share the part's engine, and a file would not have it."""
    fast = compiled(net)
    with pytest.raises(TypeError, match="e was compiled by itself, and the copy would call the same engine"):
        copy.deepcopy(fast)
    with pytest.raises(ProgramFileError, match="a part of it was compiled by itself"):
        trtcache.export(fast, tmp_path / "net.pt2")
    new = Net(1)
    copied = copy.deepcopy(net)
    other = compiled(copied)
    net.e.refit(new.e)
    assert answers(other, Net())


@pytest.mark.parametrize("policy", ["eager", "compile"])
def test_calls_of_other_sizes_follow_the_part(compiled: Compile, net: Net, policy: str) -> None:
    """``on_guard`` answers them with the weights that the part has now."""
    new, wide = Net(1), torch.randn(7, 4)
    net.e = compiled(Net().e, dynamic_shapes=({0: torch.export.Dim("n", max=9)},))
    fast = compiled(net, dynamic_shapes=({0: torch.export.Dim("n", max=5)},), on_guard=policy)
    fast(wide)
    net.e.refit(new.e)
    fast.refit(new)
    net.e.refit(Net().e)
    with torch.no_grad():
        assert torch.equal(fast(wide), new.h(Net().e(wide)))


def test_it_is_built_at_once(compiled: Compile, net: Net) -> None:
    """A worker process could not run the part."""
    assert compiled(net, on_miss="background").ready


def test_verify(compiled: Compile, net: Net) -> None:
    """A refit is compared with eager torch, where the part runs too."""
    fast, new = compiled(net), Net(1)
    net.e.refit(new.e)
    assert fast.refit(new.state_dict(), verify=True).off_by == 0


class Counter(nn.Module):
    """Counts its calls."""

    def __init__(self, start: int = 0) -> None:
        super().__init__()
        self.register_buffer("n", torch.tensor(float(start)))

    n: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x times the number of calls."""
        self.n.add_(1)
        return x * self.n


def test_verify_with_a_model_of_which_a_part_changes_its_weights(compiled: Compile) -> None:
    """The calls in eager torch change a copy of the part, not the part."""
    fast, new = compiled(nn.Sequential(Counter()).eval()), nn.Sequential(Counter(3)).eval()
    new[0] = compiled(new[0])
    fast.refit(new, verify=True)
    assert fast.state_dict()["0.n"] == new[0].state_dict()["n"] == 3


def test_dynamo_leaves_a_part_alone_whose_calls_change_its_weights(compiled: Compile) -> None:
    """It is called as it is, between compiled graphs; Dynamo traces some of the checks of its memory."""
    part = compiled(Counter())
    outer = torch.compile(nn.Sequential(part, nn.ReLU()), backend="eager")
    with torch.no_grad():
        for count in (1, 2, 3):
            assert torch.equal(outer(X), (X * count).relu())


def test_a_part_that_was_not_ready(compiled: Compile, portable: str, tmp_path: Path) -> None:
    """A part in torch is recorded as the model itself: it is refitted with the outer module."""
    net, new, wide = Net(), Net(1), torch.randn(7, 4)
    sizes = {"dynamic_shapes": ({0: torch.export.Dim("n", max=9)},)}
    net.e = trtcache.compile(net.e, (X,), backend=portable, cache=tmp_path, on_miss="background", **sizes)
    assert not net.e.ready
    fast = compiled(net, dynamic_shapes=({0: torch.export.Dim("n", max=5)},), on_guard="eager")
    assert net.e.wait(60)
    fast.refit(new)
    assert answers(fast, new)
    with torch.no_grad():
        assert torch.equal(fast(wide), new(wide))
        assert torch.equal(net(X), net.h(Net().e(X)))
