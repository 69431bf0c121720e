"""What a call does whose sizes the program was not exported for."""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.export import Dim

import trtcache
from trtcache.errors import GuardError, InputError, RefitError, RunError, SettingsError
from trtcache.runtime.background import BackgroundModule
from trtcache.runtime.on_guard import TorchCalls
from trtcache.runtime.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DYNAMIC = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, {0: Dim.DYNAMIC, 1: Dim.DYNAMIC})


class Branches(nn.Module):
    """Doubles where two sizes are equal, and triples elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.5]))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        factor = 2 if x.shape[1] == y.shape[1] else 3
        return x * factor * self.scale + y.sum()


class Steps(nn.Module):
    """Has a branch for each of many sizes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for size in range(2, 14):
            if x.shape[0] == size:
                return x * size
        return x


def call(*sizes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs of these sizes."""
    return torch.randn(sizes[:2]), torch.randn(sizes[2:])


EXAMPLE, OTHER = call(4, 6, 5, 7), call(4, 7, 5, 7)


def test_a_refused_call_states_the_assumption_and_the_sizes(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """By default a call of the other branch is a GuardError, which is an InputError, and names arguments and remedy."""
    module = compiled(Branches(), EXAMPLE, dynamic_shapes=DYNAMIC)
    with pytest.raises(GuardError) as raised:
        module(*OTHER)
    assert isinstance(raised.value, InputError)
    assert str(raised.value).startswith("compiled for x.shape[1] != y.shape[1]; both are 7; ")
    assert "on_guard" in str(raised.value)


def test_eager_answers_in_torch(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """With ``eager`` such a call runs the model, with the weights of now, and builds nothing."""
    model = Branches()
    module = compiled(model, EXAMPLE, dynamic_shapes=DYNAMIC, on_guard="eager")
    torch.testing.assert_close(module(*OTHER), model(*OTHER).detach())
    assert not module(*OTHER).requires_grad
    with torch.no_grad():
        model.scale.fill_(4.0)
    torch.testing.assert_close(module(*OTHER), model(*OTHER).detach())
    torch.testing.assert_close(module(*EXAMPLE), model(*EXAMPLE).detach())
    assert module.report.programs == []


def test_eager_has_the_weights_of_a_refit(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """After a refit with a state_dict, calls in torch have its weights as calls of the engine do."""
    model, other = Branches(), Branches()
    with torch.no_grad():
        other.scale.fill_(-2.0)
    module = compiled(model, EXAMPLE, dynamic_shapes=DYNAMIC, on_guard="eager")
    module.refit(other.state_dict())
    torch.testing.assert_close(module(*OTHER), other(*OTHER).detach())
    torch.testing.assert_close(module(*EXAMPLE), other(*EXAMPLE).detach())


def test_compile_makes_a_program_for_the_other_branch(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """With ``compile`` the other branch becomes a second program, which later calls and refits go to as well."""
    model, other = Branches(), Branches()
    module = compiled(model, EXAMPLE, dynamic_shapes=DYNAMIC, on_guard="compile")
    for sizes in ((4, 7, 5, 7), (3, 6, 2, 6), (3, 5, 2, 6)):
        inputs = call(*sizes)
        torch.testing.assert_close(module(*inputs), model(*inputs).detach())
    assert [one.guards for one in module.report.programs] == [()]
    assert "for other sizes" in str(module.report)
    with torch.no_grad():
        other.scale.fill_(-2.0)
    module.refit(other)
    torch.testing.assert_close(module(*OTHER), other(*OTHER).detach())
    assert len(module.report.programs) == 1


def test_a_program_that_is_compiled_after_a_refit_has_the_new_weights(
    compiled: Callable[..., trtcache.CompiledModule],
) -> None:
    """A further program is refitted as the first one was."""
    model, other = Branches(), Branches()
    with torch.no_grad():
        other.scale.fill_(-2.0)
    module = compiled(model, EXAMPLE, dynamic_shapes=DYNAMIC, on_guard="compile")
    module.refit(other.state_dict())
    torch.testing.assert_close(module(*OTHER), other(*OTHER).detach())


@pytest.mark.parametrize("kind", ["file", "module"])
def test_a_refit_reads_its_argument_once(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path, kind: str
) -> None:
    """A program compiled later has the weights of the refit, whatever happened to the file or the module since."""
    model, other = Branches(), Branches()
    other.scale.data = torch.tensor([-2.0])
    expected = other(*OTHER).detach()
    module = compiled(model, EXAMPLE, dynamic_shapes=DYNAMIC, on_guard="compile")
    file = tmp_path / "weights.safetensors"
    save_file(other.state_dict(), file)
    module.refit(file if kind == "file" else other)
    file.unlink()
    other.scale.data = torch.tensor([7.0])
    torch.testing.assert_close(module(*OTHER), expected)


class Layers(nn.Module):
    """Uses two tied layers for few rows, and another one for many."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.many = (nn.Linear(4, 4, bias=False) for _ in "123")
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.second(self.first(x))
        return self.many(y) if x.shape[0] > 5 else y


FEW, MANY = torch.randn(3, 4), torch.randn(8, 4)


@pytest.mark.parametrize("policy", ["eager", "compile"])
@pytest.mark.parametrize("name", ["first.weight", "second.weight"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_refit_needs_only_the_weights_of_the_program(
    compiled: Callable[..., trtcache.CompiledModule], policy: str, name: str, when: str
) -> None:
    """One name of a tied weight reaches all branches, and weights that only others use keep their values."""
    model, other = Layers(), Layers()
    module = compiled(model, (FEW,), dynamic_shapes=({0: Dim.AUTO},), on_guard=policy)
    if when == "before":
        module(MANY)
    module.refit(other)
    other.first.weight.data = torch.randn(4, 4)
    module.refit({name: other.first.weight})
    for x in (FEW, MANY):
        torch.testing.assert_close(module(x), other(x).detach())


def test_a_refit_waits_for_no_program_that_is_built(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """A program of another branch that is still built has the new weights; where they do not fit, nothing changes."""
    model, other = Layers(), Layers()
    module = compiled(model, (FEW,), dynamic_shapes=({0: Dim.AUTO},), on_guard="compile")
    program = torch.export.export(model, (MANY,), dynamic_shapes=({0: Dim.AUTO},))
    pending = BackgroundModule(program, TorchCalls(lambda: model), Report("layers", "interpreter", ""))
    assert module.on_guard is not None
    module.on_guard.programs = [pending]
    module.refit({"first.weight": other.first.weight})
    other.many.weight = model.many.weight
    for x in (FEW, MANY):
        torch.testing.assert_close(module(x), other(x).detach())
    with pytest.raises(RefitError, match=r"many\.weight"):
        module.refit({**Layers().state_dict(), "many.weight": torch.ones(2)})
    for x in (FEW, MANY):
        torch.testing.assert_close(module(x), other(x).detach())


class Trained(nn.Module):
    """Computes something else in train mode."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(4), nn.Dropout(0.9)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.drop(self.norm(x))
        return y * 2 if x.shape[0] > 5 else y


@pytest.mark.parametrize("policy", ["eager", "compile"])
def test_a_model_that_is_trained_later_answers_in_the_mode_of_then(
    compiled: Callable[..., trtcache.CompiledModule], policy: str
) -> None:
    """Calls of another branch run in eval mode, with the weights of now, and leave modes and statistics as they are."""
    model = Trained().eval()
    module = compiled(model, (FEW,), dynamic_shapes=({0: Dim.AUTO},), on_guard=policy)
    model.train()
    for value in (2.0, 3.0) if policy == "eager" else (2.0,):  # a program folds it into another weight
        model.norm.weight.data.fill_(value)
        before = copy.deepcopy(model.state_dict())
        expected = copy.deepcopy(model).eval()(MANY)
        torch.testing.assert_close(module(MANY), expected.detach())
        assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert all(part.training for part in model.modules())
    if policy == "eager":
        model.norm.weight = nn.Parameter(torch.full((4,), 4.0))
        torch.testing.assert_close(module(MANY), copy.deepcopy(model).eval()(MANY).detach())
    module.refit(model)
    torch.testing.assert_close(module(MANY), copy.deepcopy(model).eval()(MANY).detach())


def test_a_trained_model_that_cannot_be_copied_says_so(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """It is not run in the wrong mode."""
    model = Locked().eval()
    module = compiled(model, EXAMPLE, dynamic_shapes=DYNAMIC, on_guard="eager")
    module(*OTHER)
    model.train()
    with pytest.raises(RunError, match=r"another mode .* cannot be copied"):
        module(*OTHER)


class Locked(Branches):
    """A model that cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


@pytest.mark.parametrize("policy", ["eager", "compile"])
def test_a_refit_is_done_as_a_whole_or_not_at_all(
    compiled: Callable[..., trtcache.CompiledModule], policy: str
) -> None:
    """Where the model cannot be copied with other weights, the engine keeps the old ones as well."""
    model = Locked()
    module = compiled(model, EXAMPLE, dynamic_shapes=DYNAMIC, on_guard=policy)
    with pytest.raises(RefitError, match="cannot be copied"):
        module.refit({"scale": torch.tensor([-2.0])})
    for inputs in (EXAMPLE, OTHER):
        torch.testing.assert_close(module(*inputs), model(*inputs).detach())
    assert torch.equal(module.state_dict()["scale"], model.scale)


def test_a_program_that_refuses_a_call_is_not_taken_again(
    compiled: Callable[..., trtcache.CompiledModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine may refuse sizes that the check of arguments takes: those become a program of their own."""
    model = Steps()
    module = compiled(model, (torch.randn(20),), dynamic_shapes=({0: Dim.AUTO},), on_guard="compile")
    module(torch.randn(3))
    monkeypatch.setattr(trtcache.CompiledModule, "takes", lambda *_: True)
    torch.testing.assert_close(module(x := torch.randn(2)), model(x))
    assert len(module.report.programs) == 2


def test_a_call_with_a_program_does_not_wait_for_the_build_of_another(
    compiled: Callable[..., trtcache.CompiledModule],
) -> None:
    """A build takes minutes."""
    model = Steps()
    module = compiled(model, (torch.ones(20, 3),), dynamic_shapes=({0: Dim.DYNAMIC},), on_guard="compile")
    assert torch.equal(module(torch.ones(3, 3)), torch.full((3, 3), 3.0))
    assert module.on_guard is not None
    begun, go, compile_for = threading.Event(), threading.Event(), module.on_guard._compile_for

    def slow(*given: Any) -> trtcache.CompiledModule:
        begun.set()
        assert go.wait(60)
        return compile_for(*given)

    module.on_guard._compile_for = slow
    with ThreadPoolExecutor(2) as pool:
        other = pool.submit(module, torch.ones(4, 3))
        assert begun.wait(60)
        try:
            ready = pool.submit(module, torch.ones(3, 3))
            assert torch.equal(ready.result(60), torch.full((3, 3), 3.0))
        finally:
            go.set()
        assert torch.equal(other.result(60), torch.full((4, 3), 4.0))


def test_a_module_keeps_eight_programs(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """The program that was used longest ago makes room, and comes back from the cache without a build."""
    model = Steps()
    module = compiled(model, (torch.randn(20),), dynamic_shapes=({0: Dim.DYNAMIC},), on_guard="eager")
    module = compiled(model, (torch.randn(20),), dynamic_shapes=({0: Dim.AUTO},), on_guard="compile")
    for size in (*range(2, 14), 2, 30):
        x = torch.randn(size)
        torch.testing.assert_close(module(x), model(x))
    assert len(module.report.programs) == 7
    assert module.report.programs[-1].partitions[0].outcome == "hit"


def test_a_program_has_one_branch_only(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """Of an exported program neither policy can answer for the other branch: the call is refused, with the reason."""
    program = torch.export.export(Branches(), EXAMPLE, dynamic_shapes=DYNAMIC, strict=False)
    for policy in ("eager", "compile"):
        module = compiled(program, on_guard=policy)
        torch.testing.assert_close(module(*EXAMPLE), program.module()(*EXAMPLE))
        with pytest.raises(GuardError, match=r"args\[0\]\.shape\[1\] != args\[1\]\.shape\[1\]"):
            module(*OTHER)


def test_unknown_policies_and_sources_without_a_model_are_refused(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path
) -> None:
    """The nearest policy is named, and what has no model at hand takes ``error`` alone."""
    with pytest.raises(SettingsError, match="eager"):
        compiled(Branches(), EXAMPLE, on_guard="eagr")
    with pytest.raises(SettingsError, match="on_guard"):
        trtcache.load(tmp_path / "program.pt2", on_guard="eager")


def test_copies_raise(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """A copy with other weights does not answer with the first one's model."""
    module = compiled(Branches(), EXAMPLE, dynamic_shapes=DYNAMIC, on_guard="eager")
    other = module.with_weights({"scale": torch.tensor([9.0])})
    with pytest.raises(GuardError):
        other(*OTHER)


@pytest.mark.parametrize("policy", ["eager", "compile"])
@pytest.mark.parametrize("at_compile", [False, True])
def test_calls_of_another_branch_have_the_autocast_of_compile(
    compiled: Callable[..., trtcache.CompiledModule], policy: str, at_compile: bool
) -> None:
    """An answer has one dtype, whichever branch gives it and whatever the caller has switched on."""

    class Products(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x.t() @ y * (2 if x.shape[1] == y.shape[1] else 3)

    first, second = call(4, 6, 4, 7), call(4, 7, 4, 7)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=at_compile):
        module = compiled(Products(), first, dynamic_shapes=({1: Dim.DYNAMIC},) * 2, on_guard=policy)
        wanted = [Products()(*one) for one in (first, second)]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not at_compile):
        found = [module(*one) for one in (first, second)]
        assert torch.is_autocast_enabled("cpu") is not at_compile
    assert [one.dtype for one in found] == [torch.bfloat16 if at_compile else torch.float32] * 2
    torch.testing.assert_close(found, wanted)


class Counted(nn.Module):
    """Changes a buffer for large inputs, which it reads for small ones."""

    def __init__(self, *, assigns: bool) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.assigns = assigns

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 8:
            if self.assigns:
                self.count = self.count + 1
            else:
                self.count.add_(1)
            return x * 2
        return x + self.count


@pytest.mark.parametrize("assigns", [False, True])
@pytest.mark.parametrize("policy", ["eager", "compile"])
def test_a_branch_that_changes_a_weight_is_refused(interpreter: str, policy: str, assigns: bool) -> None:
    """The engine of the other branch has a copy of it: the call is an error, not later ones wrong."""
    auto = torch.export.Dim.AUTO
    module = trtcache.compile(
        Counted(assigns=assigns).eval(),
        (torch.ones(4, 3),),
        dynamic_shapes=({0: auto},),
        on_guard=policy,
        backend=interpreter,
    )
    with pytest.raises((GuardError, RunError), match="the model changes count"):
        module(torch.ones(9, 3))
    assert torch.equal(module(torch.ones(4, 3)), torch.ones(4, 3)) or policy == "eager"
