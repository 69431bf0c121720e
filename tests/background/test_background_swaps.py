"""The moment when an engine takes over: no mix, and the weights of that moment."""

from __future__ import annotations

import copy
import logging
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import trtcache
from tests.effort import tries
from trtcache.errors import NotReadyError, RefitError, VerifyError
from trtcache.runtime.background import BackgroundModule
from trtcache.runtime.on_guard import TorchCalls
from trtcache.runtime.report import RefitReport, Report

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SWAPS, THREADS = tries(40, 200), 8
X = torch.randn(2, 3, 8, 8)


class Folded(nn.Module):
    """A convolution with the BatchNorm after it, whose weights an engine has to compute, and a layer that it shares."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.convolution, self.norm, self.linear = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(144, 5)
        nn.init.normal_(self.norm.weight)
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return five numbers for each image."""
        return self.linear(self.norm(self.convolution(x)).relu().flatten(1))


def answer(model: nn.Module) -> torch.Tensor:
    """Return what a model computes."""
    with torch.no_grad():
        found: torch.Tensor = model(X)
        return found


def pending(model: nn.Module) -> BackgroundModule:
    """Return a module whose engine is still to come."""
    program = torch.export.export(model, (X,))
    return BackgroundModule(program, TorchCalls(lambda: model), Report("folded", "aot_inductor", ""))


@pytest.fixture
def load(engines: Path) -> Callable[[nn.Module], trtcache.CompiledModule]:
    """Return a function that compiles a model with a real backend; all but the first time it is a hit."""
    settings = {"inductor": {"cpp.vec_isa_ok": True}}
    return lambda model: trtcache.compile(model, (X,), cache=engines, settings=settings)


@pytest.mark.slow
@pytest.mark.torture
def test_swaps_under_calls_and_refits(load: Callable[[nn.Module], trtcache.CompiledModule]) -> None:
    """Of 40 or 200 swaps under eight calling threads with refits beside them, no answer is a mix or an old one.

    No call waits as long as a build takes.
    """
    models = [Folded(0), Folded(1)]
    expected = [answer(model) for model in models]
    program = torch.export.export(models[0], (X,))
    engine = load(models[0])
    current: list[tuple[BackgroundModule, list[int]]] = []
    wrong: list[str] = []
    times_s: list[list[float]] = [[] for _ in range(THREADS)]
    ending = threading.Event()

    def call(number: int) -> None:
        while not ending.is_set():
            module, states = current[0]
            before, began_s = len(states), time.perf_counter()
            try:
                found = module(X)
            except Exception as error:  # noqa: BLE001  # whatever it is, it is wrong
                wrong.append(repr(error))
                return
            times_s[number].append(time.perf_counter() - began_s)
            # A call sees the weights of the last refit that returned before it, or of one that ran beside it.
            choices = (
                {states[before - 1], *states[before:]} if before % 2 else {states[before - 2], *states[before - 1 :]}
            )
            if type(found) is not torch.Tensor or not any(
                torch.allclose(found, expected[choice], atol=1e-5, rtol=1e-4) for choice in choices
            ):
                wrong.append(f"{before} {states} {found}")

    def fresh() -> tuple[BackgroundModule, list[int]]:
        module = BackgroundModule(program, TorchCalls(lambda: models[0]), Report("folded", "aot_inductor", ""))
        return module, [0]

    current.append(fresh())
    threads = [threading.Thread(target=call, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for swap in range(SWAPS):
        module, states = current[0] = fresh()
        loaded = copy.deepcopy(engine)
        refits = threading.Thread(target=_refit, args=(module, states, models, swap))
        refits.start()
        module.take_over(loaded)
        refits.join()
        assert module.ready
    ending.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert all(times_s)
    ordered, build_s = sorted(time_s for times in times_s for time_s in times), engine.report.partitions[0].build_s
    median_s, p99_s = (ordered[int(share * len(ordered))] for share in (0.5, 0.99))
    sys.stdout.write(f"{len(ordered)} calls: median {median_s:.4f} s, p99 {p99_s:.4f} s, most {ordered[-1]:.3f} s\n")
    assert ordered[-1] < build_s


def _refit(module: BackgroundModule, states: list[int], models: list[nn.Module], swap: int) -> None:
    """Refit three times; ``states`` gets the model's number when a refit begins, and again when it has returned."""
    for number in ((swap + 1) % 2, swap % 2, (swap + 1) % 2):
        states.append(number)
        module.refit(models[number])
        states.append(number)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["in place", "assigned", "a buffer", "refitted", "refitted in place"])
def test_an_engine_takes_over_with_the_weights_of_now(
    load: Callable[[nn.Module], trtcache.CompiledModule], how: str
) -> None:
    """Whatever the way in which they were changed after the engine was loaded."""
    model, new = Folded(0), Folded(1)
    module, loaded = pending(model), load(model)
    if how == "in place":
        model.load_state_dict(new.state_dict())
    elif how == "assigned":
        model.load_state_dict(copy.deepcopy(new.state_dict()), assign=True)
    elif how == "a buffer":
        model.norm.running_mean.fill_(0.5)
        new = copy.deepcopy(model)
    else:
        state = model.state_dict() if how == "refitted in place" else new.state_dict()
        state = {name: one.clone() for name, one in state.items()}
        assert bool(module.refit(state).changed) is (how == "refitted")
        for name, one in state.items():
            one.copy_(new.state_dict()[name])
    torch.testing.assert_close(module(X), answer(new))
    module.take_over(loaded)
    assert module.ready
    torch.testing.assert_close(module(X), answer(new), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(copy.deepcopy(module)(X), answer(new), atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_changes_that_torch_does_not_count_show_during_the_copies(
    load: Callable[[nn.Module], trtcache.CompiledModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A BatchNorm in training mode changes its statistics in this way: the copies are made again."""
    model, new = Folded(0), Folded(0)
    module, loaded, original = pending(model), load(model), trtcache.CompiledModule.refit
    new.norm.running_mean.fill_(0.5)

    def refit(self: trtcache.CompiledModule, *args: Any, **kwargs: Any) -> RefitReport:
        report = original(self, *args, **kwargs)
        model.norm.running_mean.data.fill_(0.5)
        return report

    monkeypatch.setattr(trtcache.CompiledModule, "refit", refit)
    module.take_over(loaded)
    torch.testing.assert_close(module(X), answer(new), atol=1e-5, rtol=1e-4)


def test_an_engine_takes_over_with_the_weights_of_the_calls_in_torch(
    load: Callable[[nn.Module], trtcache.CompiledModule],
) -> None:
    """Data that is assigned to the parameters of a refit's module later is in neither."""
    module, other = pending(Folded(0)), Folded(1)
    module.refit(other)
    before = module(X)
    for parameter in other.parameters():
        parameter.data = torch.zeros_like(parameter)
    torch.testing.assert_close(module(X), before)
    module.take_over(load(Folded(0)))
    torch.testing.assert_close(module(X), before)


def test_refits_that_do_not_fit_change_nothing() -> None:
    """All faults are named at once, before there is an engine."""
    model = Folded()
    module = pending(model)
    state = {name: one for name, one in model.state_dict().items() if name != "linear.bias"}
    state |= {"linear.weight": torch.zeros(3), "more": torch.zeros(1)}
    with pytest.raises(RefitError) as caught:
        module.refit(state)
    assert (caught.value.missing, caught.value.unexpected) == (("linear.bias",), ("more",))
    assert caught.value.mismatched == ("linear.weight (shape (3,), the engine has (5, 144))",)
    with pytest.raises(RefitError, match=r"linear\.bias \(a int, not a tensor\)"):
        module.refit({**model.state_dict(), "linear.bias": 3})
    with pytest.raises(VerifyError, match="not built yet"):
        module.refit(model, verify=True)
    torch.testing.assert_close(module(X), answer(model))


class Tied(nn.Module):
    """Has one weight in two layers, and a layer that it does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder, self.unused = (nn.Linear(8, 8, bias=False) for _ in "123")
        self.decoder.weight = self.encoder.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return rows of 8."""
        result: torch.Tensor = self.decoder(self.encoder(x).relu())
        return result


@pytest.mark.parametrize("name", ["encoder.weight", "decoder.weight"])
@pytest.mark.parametrize("kind", ["state", "file"])
def test_the_weights_that_a_program_uses_are_enough(tmp_path: Path, name: str, kind: str) -> None:
    """Before there is an engine as well: one name of a tied weight, and no weight that is not used."""
    model, new, weight = Tied(), Tied(), torch.randn(8, 8)
    module = pending(model)
    save_file({name: weight}, tmp_path / "weights.safetensors")
    report = module.refit(tmp_path / "weights.safetensors" if kind == "file" else {name: weight})
    new.encoder.weight.data = weight
    torch.testing.assert_close(module(X), answer(new))
    assert (report.weights, len(report.changed)) == (1, 1)
    state = module.state_dict()
    assert torch.equal(state["encoder.weight"], weight)
    assert torch.equal(state["decoder.weight"], weight)
    assert torch.equal(state["unused.weight"], model.unused.weight)
    with pytest.raises(RefitError, match=r"unused\.weight \(shape \(2,\), the model has \(8, 8\)\)"):
        module.refit({name: weight, "unused.weight": torch.ones(2)})


class Scaled(nn.Module):
    """Has a buffer that is in no state_dict."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("scale", torch.full((8,), scale), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return rows of 8."""
        result: torch.Tensor = self.linear(x) * self.get_buffer("scale")
        return result


def test_other_constants_are_refused() -> None:
    """In a mapping as in a module, before there is an engine; ``load_state_dict`` takes none, as torch does."""
    model, other = Scaled(2.0), Scaled(3.0)
    module = pending(model)
    module.refit({**model.state_dict(), "scale": model.scale})
    with pytest.raises(RefitError, match=r"scale .a constant of the program"):
        module.refit({**model.state_dict(), "scale": other.scale})
    found = module.load_state_dict({**model.state_dict(), "scale": other.scale}, strict=False)
    assert found.unexpected_keys == ["scale"]
    torch.testing.assert_close(module(X), answer(model))


def test_a_model_that_is_trained_meanwhile_answers_in_eval_mode() -> None:
    """As its engine will; its statistics stay as they are."""
    model = Folded()
    module, expected = pending(model), answer(model)
    model.train()
    torch.testing.assert_close(module(X), expected)
    assert int(model.norm.get_buffer("num_batches_tracked")) == 0
    assert model.norm.training
    module.refit(model)
    torch.testing.assert_close(module(X), expected)


def test_what_needs_an_engine_is_refused(tmp_path: Path) -> None:
    """With the name of the module and why."""
    module = pending(Folded())
    for use in (lambda: trtcache.export(module, tmp_path / "x.pt2"), module.runners, lambda: copy.copy(module)):
        with pytest.raises(NotReadyError, match="folded has no"):
            use()
    with pytest.raises(NotReadyError, match=r"no deepcopy: .* not built yet \(.*\); call wait\(\) first"):
        copy.deepcopy(module)
    with pytest.raises(NotReadyError, match="no with_weights"):
        module.with_weights(module.state_dict())
    assert not hasattr(module, "__getstate_for_tests__")
    assert module.takes("anything")
    module.fail("no compiler")
    with pytest.raises(NotReadyError, match=r"its build failed \(no compiler\); compile it again with on_miss='build'"):
        copy.copy(module)


def test_a_failure_is_one_warning_and_calls_go_on(caplog: pytest.LogCaptureFixture) -> None:
    """Callbacks of before and after are called, and an exception of one is logged."""
    model = Folded()
    module = pending(model)
    called: list[Any] = []
    module.add_done_callback(called.append)
    module.add_done_callback(lambda _: 1 / 0)
    assert not module.wait(0.01)
    module.fail("the compiler found an error")
    module.add_done_callback(called.append)
    assert called == [module, module]
    assert (module.wait(), module.ready, module.report.why) == (False, False, "the compiler found an error")
    assert "background: the compiler found an error" in str(module.report)
    torch.testing.assert_close(module(X), answer(model))
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["folded goes on in torch: the compiler found an error"]
    assert "ZeroDivisionError" in caplog.text


def test_a_forked_process_does_not_wait() -> None:
    """Its copy of the module has no thread that could make it ready."""
    module = pending(Folded())
    pid = os.fork()
    if not pid:
        os._exit(int(module.wait()))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_compiled_modules_are_ready(compiled: Callable[..., Any]) -> None:
    """So that code for both needs no case."""
    module, called = compiled(nn.Linear(8, 8), (torch.randn(2, 8),)), []
    module.add_done_callback(called.append)
    assert (module.ready, module.wait(0.0), called) == (True, True, [module])


class Holding(nn.Module):
    """A layer between tensors that the model holds in a list, in an object, and as a part of a weight."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 8)
        self.tables, self.named = [torch.rand(8)], {"bias": torch.rand(8)}
        self.row = self.linear.weight.detach()[1:2]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of all."""
        return self.linear(x) * self.tables[0] + self.named["bias"] + self.row


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.tables.__setitem__(0, torch.rand(8)),
        lambda model: model.named.update(bias=torch.rand(8)),
        lambda model: model.tables[0].add_(1),
        lambda model: setattr(model, "row", torch.rand(1, 8)),
        lambda model: setattr(model.linear, "weight", nn.Parameter(torch.rand(8, 8))),
    ],
    ids=["list", "mapping", "in place", "part", "weight of a part"],
)
def test_other_unregistered_tensors_leave_the_module_in_torch(engines: Path, change: Callable[[Any], object]) -> None:
    """The engine has those of the export. A refit of the pending module is refused for the same reason."""
    model = Holding().eval()
    engine = trtcache.compile(model, (X,), cache=engines, settings={"inductor": {"cpp.vec_isa_ok": True}})
    module = pending(model)
    with torch.no_grad():
        change(model)
    with pytest.raises(RefitError, match=r"not registered, and not as in the compiled model|a constant of the program"):
        module.refit(model)
    engine.name_weights(model)  # as after a build during which the model has changed
    with pytest.raises(RefitError, match="not registered, and not as in the compiled model"):
        module.take_over(engine)
    assert not module.ready
    assert torch.equal(answer(module), answer(model))


def test_a_weight_that_the_model_has_lost_is_named() -> None:
    """Calls go on; the weights of now cannot be read."""
    model = Folded()
    module = pending(model)
    model.linear = nn.Linear(144, 5, bias=False)
    for use in (module.state_dict, lambda: module.refit(model), lambda: module.to("cpu")):
        with pytest.raises(RefitError, match=r"missing: linear\.bias"):
            use()
    assert torch.equal(answer(module), answer(model))
