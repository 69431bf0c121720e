"""Refits on the CPU: the contract, and what it does not say."""

from __future__ import annotations

import copy
import gc
import os
import signal
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import trtcache
from tests.comparing import difference
from tests.models import Affine, KeyValue
from trtcache.bundle.save import StorageRange
from trtcache.config.threads import fork_safe_lock
from trtcache.errors import InputError, RefitError, RefitStoppedError, SettingsError, VerifyError, WeightsFileError
from trtcache.runtime import verify as verification
from trtcache.runtime.refit import EngineSwap
from trtcache.testing.interpreter import Interpretation
from trtcache.testing.refit import RefitContract, RefitModel, image, in_place
from trtcache.weights.slots import SlotWeights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

X = torch.ones(3, 4)


@pytest.fixture(scope="module")
def interpreted(interpreter: str, engines: Path) -> trtcache.CompiledModule:
    """The network of seed 0 by the interpreter; each test begins with a refit."""
    return trtcache.compile(RefitModel(0), (image("cpu"),), backend=interpreter, cache=engines)


class TestInterpreter(RefitContract):
    """The contract on the tests' own backend."""

    @pytest.fixture
    def compiled(self, interpreted: trtcache.CompiledModule) -> trtcache.CompiledModule:
        """The network of seed 0."""
        return interpreted


@pytest.fixture(scope="module")
def packaged(engines: Path) -> trtcache.CompiledModule:
    """The network of seed 0 by AOTInductor; each test begins with a refit."""
    return trtcache.compile(RefitModel(0), (image("cpu"),), backend="aot_inductor", cache=engines)


@pytest.mark.slow
@pytest.mark.no_cover  # a build, traced, takes twice as long; the interpreter's tests cover the same lines
class TestAotInductor(RefitContract):
    """The contract on AOTInductor."""

    @pytest.fixture
    def compiled(self, packaged: trtcache.CompiledModule) -> trtcache.CompiledModule:
        """The network of seed 0."""
        return packaged


@pytest.fixture
def compile_with(interpreter: str, engines: Path) -> Callable[..., trtcache.CompiledModule]:
    """``trtcache.compile`` with the interpreter and the session's cache."""

    def compile_(model: nn.Module, *args: torch.Tensor) -> trtcache.CompiledModule:
        return trtcache.compile(model, args, backend=interpreter, cache=engines)

    return compile_


def test_the_model_that_was_compiled_verifies_a_state_dict(
    compile_with: Callable[..., trtcache.CompiledModule],
) -> None:
    """Example inputs and the model are those of ``compile``; its own weights stay as they are."""
    model = RefitModel(0)
    module, before = compile_with(model, image("cpu")), model.state_dict()["fc.bias"].clone()
    assert module.refit(RefitModel(1).state_dict(), verify=True).off_by is not None
    assert torch.equal(model.fc.bias, before)
    del model
    gc.collect()
    with pytest.raises(VerifyError, match="the compiled model no longer exists; give the module"):
        module.refit(RefitModel(1).state_dict(), verify=True)


class Trained(nn.Module):
    """Computes something else in train mode, and changes its buffers there."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.drop = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.9)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return rows of 4."""
        result: torch.Tensor = self.drop(self.norm(self.linear(x)))
        return result


@pytest.mark.parametrize("give", [lambda model: model, nn.Module.state_dict], ids=["module", "state_dict"])
def test_a_module_in_train_mode_is_compared_in_the_mode_of_the_compiled_one(
    compile_with: Callable[..., trtcache.CompiledModule], give: Callable[[nn.Module], Any]
) -> None:
    """Neither its modes nor its statistics change."""
    model, other = Trained().eval(), Trained().train()
    module = compile_with(model, X)
    model.train()
    before = [copy.deepcopy(one.state_dict()) for one in (model, other)]
    assert module.refit(give(other), verify=True).off_by is not None
    for one, state in zip((model, other), before, strict=True):
        assert one.training
        assert one.norm.training
        assert all(torch.equal(now, state[name]) for name, now in one.state_dict().items())


def test_a_verification_leaves_the_model_alone(compile_with: Callable[..., trtcache.CompiledModule]) -> None:
    """Other threads may call it meanwhile: it has its own weights all the time."""
    model, seen = RefitModel(0), []
    module = compile_with(model, image("cpu"))
    model.register_forward_pre_hook(lambda *_: seen.append(float(model.fc.bias[0])))
    before = float(model.fc.bias[0].detach())
    module.refit(RefitModel(1).state_dict(), verify=True)
    assert seen == [before]


def test_large_example_inputs_are_not_kept(
    compile_with: Callable[..., trtcache.CompiledModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then there is nothing to verify with, and the error says what to give."""
    monkeypatch.setattr(verification, "KEPT_BYTES", 16)
    module = compile_with(Affine(), X)
    with pytest.raises(VerifyError, match=r"no example inputs at hand; give some: refit\(\.\.\., verify=True, args"):
        module.refit(Affine(2.0), verify=True)
    module.refit(Affine(2.0), verify=True, args=(X,))
    assert difference(Affine(2.0)(X), module(X)) is None


def test_a_verified_refit_leaves_state_as_it_was(
    compile_with: Callable[..., trtcache.CompiledModule],
) -> None:
    """What the comparison does to a cache of keys and values is not there afterwards, in the engine and the module."""
    model, where = KeyValue(), torch.arange(3)
    module = compile_with(model, X, where)
    with torch.no_grad():
        model(X, where)
        module(X, where)
        module.refit(model, verify=True, args=(X * 5, where))
        assert difference(model(X, where + 3), module(X, where + 3)) is None


class Answers(nn.Module):
    """A program whose outputs are of several kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.arange(4.0))
        self.lie: Any = None

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return numbers of three dtypes."""
        given = {"float": self.w / 0 + x, "whole": (self.w * x).long(), "complex": torch.complex(self.w, x)}
        return given if torch.compiler.is_exporting() or self.lie is None else self.lie(given)


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        (lambda given: {**given, "whole": given["whole"] + 1}, r"output\['whole'\]: off by inf"),
        (lambda given: {**given, "float": given["float"].nan_to_num()}, r"output\['float'\]: off by inf"),
        (lambda given: {**given, "complex": given["complex"] * 1.1}, r"output\['complex'\]: off by 9\.1e-02"),
        (lambda given: {**given, "float": given["float"].double()}, r"output\['float'\]: off by inf"),
        (lambda given: {**given, "more": 3}, "another structure"),
    ],
    ids=["whole", "nan", "complex", "dtype", "structure"],
)
def test_every_kind_of_output_is_compared(
    compile_with: Callable[..., trtcache.CompiledModule], lie: Any, message: str
) -> None:
    """Whole numbers are equal, what is no number is none in both, and the rest is near."""
    model = Answers()
    module = compile_with(model, torch.ones(4))
    assert module.refit(model, verify=True).off_by == 0.0
    model.lie = lie
    with pytest.raises(VerifyError, match=message):
        module.refit(model, verify=True)


class Writes(nn.Module):
    """Writes into its input."""

    def __init__(self, scale: float, lie: float = 0.0) -> None:
        super().__init__()
        self.scale, self.lie = nn.Parameter(torch.tensor(scale)), lie

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what does not depend on what is written."""
        x.mul_(self.scale + (0.0 if torch.compiler.is_exporting() else self.lie))
        return torch.ones(2)


def test_what_a_call_writes_into_its_inputs_is_compared(
    compile_with: Callable[..., trtcache.CompiledModule],
) -> None:
    """The message says which input differs."""
    module = compile_with(Writes(2.0), torch.ones(4))
    assert module.refit(Writes(3.0), verify=True).off_by == 0.0
    with pytest.raises(VerifyError, match=r"input\[0\] after the call: off by 3\.3e-01"):
        module.refit(Writes(2.0, 1.0), verify=True)


@pytest.mark.parametrize("at_compile", [False, True])
def test_verification_has_the_autocast_of_compile(
    compile_with: Callable[..., trtcache.CompiledModule], at_compile: bool
) -> None:
    """The caller of a refit may have another one."""
    model = nn.Linear(4, 2).eval()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=at_compile):
        module = compile_with(model, torch.ones(3, 4))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not at_compile):
        assert module.refit(model, verify=True).off_by == 0.0
        assert torch.is_autocast_enabled("cpu") is not at_compile


@pytest.mark.parametrize("verify", [1, 1.0, 5.0, -1e-3, float("nan"), float("inf"), "1e-3", None])
def test_a_tolerance_that_would_allow_everything_is_refused(
    compile_with: Callable[..., trtcache.CompiledModule], verify: Any
) -> None:
    """1 would allow every output to be 0."""
    with pytest.raises(SettingsError, match="less than 1"):
        compile_with(Affine(), X).refit(Affine(2.0), verify=verify)


class TiedBuffers(nn.Module):
    """Two modules have one buffer."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.a, self.b = nn.Module(), nn.Module()
        for part in (self.a, self.b):
            part.register_buffer("scale", torch.tensor(scale) if part is self.a else self.a.scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.a.scale * self.b.scale


def test_a_buffer_with_two_names_is_verified_with_its_new_value(
    compile_with: Callable[..., trtcache.CompiledModule],
) -> None:
    """Eager torch has the new value under both names."""
    model = TiedBuffers(1.0)
    module = compile_with(model, X)
    assert module.refit(TiedBuffers(2.0).state_dict(), verify=True).off_by == 0.0
    assert difference(X * 4, module(X)) is None


def test_ctrl_c_lets_weights_be_written_to_the_end(
    compile_with: Callable[..., trtcache.CompiledModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt half way is raised when the engine has all of the new weights."""
    module, asked = compile_with(RefitModel(0), image("cpu")), []
    in_place(monkeypatch)
    pieces = SlotWeights.pieces

    def interrupted(sources: SlotWeights, weight: Any) -> Iterator[tuple[Any, torch.Tensor]]:
        asked.append(weight.name)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return pieces(sources, weight)

    monkeypatch.setattr(SlotWeights, "pieces", interrupted)
    with pytest.raises(KeyboardInterrupt):
        module.refit(RefitModel(1))
    with torch.no_grad():
        assert difference(RefitModel(1)(image("cpu")), module(image("cpu"))) is None


def test_a_failure_half_way_is_no_mixed_answer(
    compile_with: Callable[..., trtcache.CompiledModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where memory runs out between two weights the module refuses calls, until a refit gives it all of one model."""
    module, x = compile_with(RefitModel(0), image("cpu")), image("cpu")
    in_place(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(SlotWeights, "pieces", _out_of_memory(SlotWeights.pieces))
        with pytest.raises(MemoryError):
            module.refit(RefitModel(1))
    with pytest.raises(RefitStoppedError, match=r"part way \(MemoryError: .*refitted again"):
        module(x)
    with pytest.raises(RefitError, match="missing"):
        module.refit({})
    with pytest.raises(RefitStoppedError):
        module(x)
    module.refit(RefitModel(2))
    with torch.no_grad():
        assert difference(RefitModel(2)(x), module(x)) is None


@pytest.mark.parametrize(
    "use",
    [
        lambda module, _: module.runners(2),
        lambda module, _: copy.deepcopy(module),
        lambda module, _: module.load_state_dict({"c": torch.full((4,), 3.0)}, strict=False),
        lambda module, _: module.share_memory(),
        lambda module, path: trtcache.export(module, path / "mixed.pt2"),
        lambda module, _: module.with_weights(dict(module.named_parameters())),
        lambda module, _: module.state_dict(),
    ],
    ids=["runners", "deepcopy", "load_state_dict", "share_memory", "export", "with_weights", "state_dict"],
)
def test_a_failure_half_way_passes_on_no_weights(
    compile_with: Callable[..., trtcache.CompiledModule],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    use: Callable[[trtcache.CompiledModule, Path], object],
) -> None:
    """What copies, stores or completes the weights is refused, until all of them are given."""
    module = compile_with(Affine(), X)
    module.refit(_own_memory(Affine(1.0)))
    in_place(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(SlotWeights, "pieces", _out_of_memory(SlotWeights.pieces, "c"))
        with pytest.raises(MemoryError):
            module.refit(_own_memory(Affine(2.0)))
    with pytest.raises((RefitStoppedError, RuntimeError), match="part way"):
        use(module, tmp_path)
    with pytest.raises(RefitStoppedError):
        module(X)
    module.load_state_dict(Affine(3.0).state_dict())
    use(module, tmp_path)
    assert difference(Affine(3.0)(X), module(X)) is None


def _out_of_memory(pieces: Callable[..., Any], label: str = "norm.bias") -> Callable[..., Any]:
    def failing(sources: SlotWeights, weight: Any) -> Iterator[tuple[Any, torch.Tensor]]:
        if label in weight.label:
            raise MemoryError("no more")
        return pieces(sources, weight)

    return failing


class Slow:
    """An engine whose calls last until they are let go."""

    shares_weights = True

    def __init__(self) -> None:
        self.begun, self.let_go = threading.Event(), threading.Event()

    def refit(self, weights: object) -> Slow:
        """Return itself."""
        return self

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Wait, and return the inputs."""
        self.begun.set()
        assert self.let_go.wait(60)
        return list(inputs)


def test_an_engine_swap_waits_for_running_calls_and_holds_others() -> None:
    """A call that began before goes on undisturbed; one that comes while it is closed has the new engine's answer."""
    old, new = Slow(), Slow()
    new.let_go.set()
    swap, answers = EngineSwap(old), []
    threads = [threading.Thread(target=lambda: answers.append(swap.run([X]))) for _ in "12"]
    threads[0].start()
    assert old.begun.wait(60)
    assert not swap.pause(0.0)
    closing = threading.Thread(target=lambda: answers.append(swap.pause(10)))
    closing.start()
    while swap._target is old:
        time.sleep(1e-3)
    threads[1].start()
    old.let_go.set()
    closing.join(60)
    assert True in answers
    assert len(answers) == 2
    assert not new.begun.is_set()
    swap.swap_in(new)
    for thread in threads:
        thread.join(60)
    assert len(answers) == 3
    assert new.begun.is_set()


def test_ctrl_c_while_a_refit_waits_holds_no_call_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine answers again, with the old weights."""
    engine = Slow()
    swap, answers = EngineSwap(engine), []
    running = threading.Thread(target=lambda: answers.append(swap.run([X])))
    running.start()
    assert engine.begun.wait(60)

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", interrupted)
        with pytest.raises(KeyboardInterrupt):
            swap.pause(60)
    engine.let_go.set()
    running.join(60)
    assert swap._target is engine
    assert swap.run([X])
    assert len(answers) == 1


def test_ctrl_c_at_the_start_of_a_call_leaves_no_running_call() -> None:
    """The next refit would wait for it."""

    class Interrupted(deque[None]):
        def append(self, one: None) -> None:
            super().append(one)
            raise KeyboardInterrupt

    swap = EngineSwap(Slow())
    swap._inside = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        swap.run([X])
    assert swap.pause(0.0)


def test_a_fork_while_another_thread_refits_finds_open_locks(
    compile_with: Callable[..., trtcache.CompiledModule],
) -> None:
    """The child does not have that thread; locks of the thread that forked stay locked."""
    module = compile_with(Affine(), X)
    held, ending = threading.Event(), threading.Event()

    def hold() -> None:
        with module._refitting:
            held.set()
            ending.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    own = fork_safe_lock()
    with own:
        child = os.fork()
        if not child:
            signal.alarm(20)
            module.state_dict()
            own.release()
            own.acquire()
            os._exit(0)
    ending.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_a_fork_while_weights_are_written_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that writes them is in the parent only: a call in the child would wait forever."""
    swap = EngineSwap(Slow())
    assert swap.pause(0.0)
    monkeypatch.setattr(os, "getpid", lambda: 0)
    with pytest.raises(RefitStoppedError, match="forked while its parent overwrote"):
        swap.run([X])


def test_calls_that_never_end_are_not_waited_for(
    compile_with: Callable[..., trtcache.CompiledModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights are then made beside the old ones, and later calls have them."""
    module = compile_with(RefitModel(0), image("cpu"))
    in_place(monkeypatch)
    monkeypatch.setattr(EngineSwap, "pause", lambda *_: False)
    assert not module.refit(RefitModel(1)).in_place
    with torch.no_grad():
        assert difference(RefitModel(1)(image("cpu")), module(image("cpu"))) is None


def test_a_module_never_writes_into_weights_that_are_not_its_own(
    compile_with: Callable[..., trtcache.CompiledModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A weight that was the model's own memory is not written to when the next one has to be copied."""
    in_place(monkeypatch)
    one, other = Affine(1.0), Affine(2.0)
    module = compile_with(one, X)
    other.a.data, other.b.data, other.c.data = other.a.data.t(), *(torch.full((8,), 2.0)[::2] for _ in "bc")
    module.refit(other)
    assert difference(Affine(2.0)(X), module(X)) is None
    module.refit(Affine(3.0))
    assert difference(Affine(1.0)(X), one(X)) is None
    assert difference(Affine(2.0)(X), other(X)) is None


@pytest.mark.parametrize("overwriting", [False, True])
def test_weights_whose_memory_was_freed_are_not_read(
    compile_with: Callable[..., trtcache.CompiledModule], monkeypatch: pytest.MonkeyPatch, overwriting: bool
) -> None:
    """FSDP frees shared weights between calls: they count as changed, and copied ones are made again."""
    if overwriting:
        in_place(monkeypatch)
    module = compile_with(Affine(1.0), X)
    if overwriting:
        module.refit(_own_memory(Affine(1.0)))
    for one in module._weights.values():
        one.untyped_storage().resize_(0)
    done = module.refit(Affine(2.0))
    assert sorted(done.changed) == ["a", "b", "c"]
    assert difference(Affine(2.0)(X), module(X)) is None


def test_state_whose_memory_was_freed_is_told(compile_with: Callable[..., trtcache.CompiledModule]) -> None:
    """A refit cannot keep its value, and names it."""
    module = compile_with(KeyValue(), torch.randn(3, 4), torch.arange(3))
    kept = [weight for weight in module.interface.weights if weight.is_mutated]
    module._weights[kept[0].name].untyped_storage().resize_(0)
    with pytest.raises(RefitError, match="memory was freed"):
        module.refit(KeyValue())


def _own_memory(values: Affine) -> dict[str, torch.Tensor]:
    """Return weights in layouts that an engine copies."""
    one, two = (torch.stack((each, each), -1)[..., 0] for each in (values.b.detach(), values.c.detach()))
    return {"a": values.a.detach().t().contiguous().t(), "b": one, "c": two}


def test_weights_that_are_computed_from_the_engine_s_own_are_not_overwritten_first(
    compile_with: Callable[..., trtcache.CompiledModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refit with views of the module's state_dict reads the old values, as ``load_state_dict`` of a copy would."""
    in_place(monkeypatch)
    module = compile_with(Affine(), X)
    values = Affine(1.0)
    with torch.no_grad():
        values.a.copy_(torch.randn(4, 4))
        values.b.copy_(torch.arange(4.0))
        values.c.copy_(-torch.arange(4.0))
    module.refit(_own_memory(Affine(2.0)))
    other = copy.copy(module)
    assert module.refit(_own_memory(values)).in_place
    state = other.state_dict()  # the same memory
    module.refit({"a": state["a"].t(), "b": state["a"][:, 0], "c": state["b"]})
    with torch.no_grad():
        values.c.copy_(values.b)
        values.b.copy_(values.a[:, 0])
        values.a.copy_(values.a.t().clone())
    assert difference(values(X), module(X)) is None


class Counters(nn.Module):
    """Has two buffers that calls change."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.tensor([1.0, 1.0]))
        self.register_buffer("b", torch.tensor([2.0, 3.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.a.add_(1)
        self.b.mul_(2)
        return x + self.a - self.b


def test_an_input_in_the_memory_of_a_changed_buffer_is_refused(
    compile_with: Callable[..., trtcache.CompiledModule],
) -> None:
    """An engine reads its inputs before it changes the buffer, also after a refit; a copy of it is taken."""
    module = compile_with(Counters(), torch.ones(2))
    for _ in range(2):
        with pytest.raises(InputError, match="memory of its own: a call changes a, got a tensor that shares it"):
            module(module.a)
        assert torch.equal(module(module.a.clone()), torch.tensor([-1.0, -3.0]))
        module.refit(Counters())


class Running(nn.Module):
    """Has a sum that no state_dict has."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("sum", torch.zeros(()), persistent=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.sum.add_(1)
        return self.lin(x), self.sum


@pytest.mark.parametrize("verify", [False, True])
def test_no_change_of_state_is_lost_in_a_refit(
    compile_with: Callable[..., trtcache.CompiledModule], monkeypatch: pytest.MonkeyPatch, verify: bool
) -> None:
    """Calls that run while the new engine is made change the state that it begins with."""
    model = Running()
    module = compile_with(model, X)
    refit = Interpretation.refit

    def refit_and_call(engine: Interpretation, weights: dict[str, torch.Tensor]) -> Interpretation:
        made = refit(engine, weights)
        module(X)
        return made

    monkeypatch.setattr(Interpretation, "refit", refit_and_call)
    for _ in range(3):
        module.refit(model.state_dict(), verify=verify)
    monkeypatch.undo()
    assert float(module(X)[1]) == (7 if verify else 4)


def test_a_change_of_some_weights_loses_no_change_of_buffers(
    compile_with: Callable[..., trtcache.CompiledModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Buffers that are not given keep the values that calls meanwhile give them; those that are given are replaced."""
    module = compile_with(Counters(), torch.ones(2))
    outer, refit = nn.Sequential(module), Interpretation.refit

    def refit_and_call(engine: Interpretation, weights: dict[str, torch.Tensor]) -> Interpretation:
        made = refit(engine, weights)
        module(torch.ones(2))
        return made

    monkeypatch.setattr(Interpretation, "refit", refit_and_call)
    outer.load_state_dict({"0.b": torch.zeros(2)}, strict=False)
    assert module.a.tolist() == [2, 2]
    assert module.b.tolist() == [0, 0]
    outer.share_memory()
    assert module.a.tolist() == [3, 3]
    outer._apply(lambda tensor: tensor - 1)
    assert module.a.tolist() == [2, 2]


def test_a_copy_with_the_same_engine_has_the_state_of_all_calls(
    compile_with: Callable[..., trtcache.CompiledModule],
) -> None:
    """Whichever of the two is called and refitted."""
    model = Running()
    module = compile_with(model, X)
    other = copy.copy(module)
    found = []
    for one in (module, other, module):
        found += [float(module(X)[1]), float(other(X)[1])]
        one.refit(model.state_dict())
    assert found == [1, 2, 3, 4, 5, 6]


def test_weights_that_are_made_in_inference_mode_can_be_changed_outside_of_it(
    compile_with: Callable[..., trtcache.CompiledModule],
) -> None:
    """Calls write to them, also in memory that a refit kept or a copy got."""
    model = Counters()
    with torch.inference_mode():
        module = compile_with(model, torch.zeros(2))
    module(torch.zeros(2))
    with torch.inference_mode():
        module.refit(model)
        other = copy.deepcopy(module)
        running = compile_with(Running(), X)
        running.refit(Running())
    for one in (module, other):
        assert torch.equal(one(torch.zeros(2)), torch.tensor([-2.0, -4.0]))
    assert float(running(X)[1]) == 1


def test_a_copy_beside_a_refit_is_made(
    compile_with: Callable[..., trtcache.CompiledModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refit drops the tables of parameters, of which the copy has those of one time."""
    module = compile_with(Affine(), X)
    module.state_dict()
    plain = copy.copy

    def copy_and_refit(value: object) -> object:
        module.refit(Affine(2.0))
        return plain(value)

    with monkeypatch.context() as patched:
        patched.setattr("trtcache.runtime.module.copy.copy", copy_and_refit)
        other = module.__copy__()
    assert difference(Affine(2.0)(X), other(X)) is None


def test_state_can_be_exchanged(
    compile_with: Callable[..., trtcache.CompiledModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two buffers that calls modify take each other's values."""
    in_place(monkeypatch)
    module = compile_with(Counters(), torch.zeros(2))
    state = module.state_dict()
    module.refit({"a": state["b"], "b": state["a"]})
    assert [one.tolist() for one in module.state_dict().values()] == [[2.0, 3.0], [1.0, 1.0]]
    assert torch.equal(module(torch.zeros(2)), torch.tensor([1.0, 2.0]))


def test_a_module_made_of_a_state_dict_has_memory_of_its_own(
    compile_with: Callable[..., trtcache.CompiledModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``with_weights(module.state_dict())`` is a snapshot, which a later refit of the module does not change."""
    in_place(monkeypatch)
    module = compile_with(Affine(), X)
    module.refit(_own_memory(Affine(2.0)))
    snapshot = module.with_weights(module.state_dict())
    for value in (3.0, 4.0):
        module.refit(_own_memory(Affine(value)))
        assert difference(Affine(2.0)(X), snapshot(X)) is None
        assert difference(Affine(value)(X), module(X)) is None


@pytest.mark.parametrize("read", [nn.Module.state_dict, lambda module: dict(module.named_parameters())])
def test_weights_that_were_handed_out_are_not_overwritten(
    compile_with: Callable[..., trtcache.CompiledModule],
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[nn.Module], dict[str, torch.Tensor]],
) -> None:
    """The next refit makes new ones, so that a refit with the old state restores it; the one after that is in place."""
    in_place(monkeypatch)
    module = compile_with(Affine(), X)
    module.refit(_own_memory(Affine(1.0)))
    assert module.refit(_own_memory(Affine(2.0))).in_place
    old = {name.removeprefix("0."): one for name, one in read(nn.Sequential(module).eval()).items()}
    assert not module.refit(_own_memory(Affine(3.0))).in_place
    assert {float(one.flatten()[0]) for one in old.values()} == {2.0}
    assert module.refit(_own_memory(Affine(4.0))).in_place
    module.refit(old)
    assert difference(Affine(2.0)(X), module(X)) is None


def test_a_state_dict_that_is_loaded_hands_no_weights_out(
    compile_with: Callable[..., trtcache.CompiledModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``load_state_dict`` of a module around it goes on to overwrite weights in place."""
    in_place(monkeypatch)
    module, reports = compile_with(Affine(), X), []
    module.refit(_own_memory(Affine(1.0)))
    refit = module.refit
    monkeypatch.setattr(type(module), "refit", lambda _, state: reports.append(refit(state)))
    for value in (2.0, 3.0):
        state = {f"0.{name}": one for name, one in _own_memory(Affine(value)).items()}
        nn.Sequential(module).load_state_dict(state, assign=True)
        assert reports[-1].in_place
        assert difference(Affine(value)(X), module(X)) is None


def test_a_refit_during_an_export_changes_no_file(
    compile_with: Callable[..., trtcache.CompiledModule], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The file has the weights of its beginning, all of them."""
    in_place(monkeypatch)
    module = compile_with(Affine(), X)
    module.refit(_own_memory(Affine(1.0)))
    chunks, count = StorageRange.chunks, []

    def refitted(run: StorageRange) -> Iterator[memoryview]:
        count.append(run)
        if len(count) == 2:
            thread = threading.Thread(target=module.refit, args=(_own_memory(Affine(2.0)),))
            thread.start()
            thread.join(60)
        return chunks(run)

    monkeypatch.setattr(StorageRange, "chunks", refitted)
    trtcache.export(module, tmp_path / "weights.pt2")
    loaded = trtcache.load(tmp_path / "weights.pt2", trust="local-file")
    assert difference(Affine(1.0)(X), loaded(X)) is None
    assert difference(Affine(2.0)(X), module(X)) is None


class Unused(Affine):
    """Has a weight that it does not use."""

    def __init__(self, value: float = 1.0) -> None:
        super().__init__(value)
        self.unused = nn.Parameter(torch.full((3,), value))


@pytest.mark.parametrize("wrong", [3, torch.ones(7)], ids=["number", "shape"])
def test_an_unused_weight_that_does_not_fit_changes_nothing(
    compile_with: Callable[..., trtcache.CompiledModule], wrong: Any
) -> None:
    """It is refused before the engine has the others, as torch does."""
    module = compile_with(Unused(), X)
    state = {**Unused(2.0).state_dict(), "unused": wrong}
    for change in (module.refit, module.with_weights):
        with pytest.raises(RefitError, match="mismatched: unused"):
            change(state)
    with pytest.raises(RuntimeError, match="mismatched: unused"):
        module.load_state_dict(state)
    assert difference(Unused(1.0)(X), module(X)) is None
    assert torch.equal(module.state_dict()["unused"], torch.ones(3))


def test_a_file_that_is_no_weights_changes_nothing(
    compile_with: Callable[..., trtcache.CompiledModule], tmp_path: Path
) -> None:
    """The error has the file's name, and the old weights answer."""
    module = compile_with(Affine(), X)
    (tmp_path / "weights.safetensors").write_bytes(b"not weights at all")
    with pytest.raises(WeightsFileError, match=r"weights\.safetensors: cannot read weights"):
        module.refit(tmp_path / "weights.safetensors")
    assert difference(Affine()(X), module(X)) is None
