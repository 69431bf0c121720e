"""AOTInductor packages with their weights in them: ``settings={"weights": "frozen"}``."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import trtcache
from trtcache.backend import Artifact
from trtcache.backends.aot_inductor.backend import AotInductor
from trtcache.errors import BuildError, BuildForbiddenError, FixedWeightsError, RefitError, SettingsError
from trtcache.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

QUICK = {"inductor": {"cpp.vec_isa_ok": True}}
FROZEN: dict[str, Any] = {"weights": "frozen", **QUICK}
X, LARGER = torch.randn(2, 3, 8, 8), torch.randn(5, 3, 8, 8)
BATCH = ({0: torch.export.Dim.DYNAMIC},)


class Net(nn.Module):
    """Two convolutions, a norm and a linear layer; results that are computed from weights alone, and views of one."""

    def __init__(self, seed: int = 0) -> None:
        """Create it with random weights."""
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.second, self.last = nn.Conv2d(16, 16, 3, padding=1), nn.Linear(16, 4)
        self.register_buffer("scale", torch.rand(()))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return logits, and what weights alone give."""
        x = torch.relu(self.norm(self.first(x)))
        logits = self.last((self.second(x) + x).mean((2, 3))) * self.scale
        return logits, self.last.weight * 2, self.last.weight.t(), self.last.bias[1:]


def net(seed: int = 0) -> Net:
    """Return a model in eval mode."""
    return Net(seed).eval()


def compiled(model: nn.Module, root: Path, **options: Any) -> trtcache.CompiledModule:
    """Compile a model with its weights in the engine."""
    return trtcache.compile(model, (X,), **{"dynamic_shapes": BATCH, "cache": root, "settings": FROZEN, **options})


def assert_answers(module: Any, model: nn.Module) -> None:
    """Compare all results for two batch sizes."""
    for x in (X, LARGER):
        torch.testing.assert_close(tuple(module(x)), model(x), rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the engine of the first model."""
    folder: Path = tmp_path_factory.mktemp("cache")
    assert compiled(net(), folder).report.partitions[0].outcome == "built"
    return folder


@pytest.mark.slow
def test_each_set_of_weights_has_an_engine_of_its_own(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A, B, A: other weights are another key, and the first are a hit that answers bit by bit as before."""
    first = compiled(net(), root)
    assert_answers(first, net())
    (one,) = first.report.partitions
    assert (one.outcome, one.frozen) == ("hit", 11)
    assert "frozen: it has the values of 11 weights" in str(first.report)
    expected = [result.clone() for result in first(X)]
    monkeypatch.setenv("TRTCACHE_FORBID_BUILD", "1")
    with pytest.raises(BuildForbiddenError):
        compiled(net(1), root)
    monkeypatch.delenv("TRTCACHE_FORBID_BUILD")
    other = compiled(net(1), root)
    assert other.report.partitions[0].key != one.key
    assert_answers(other, net(1))
    for result, before in zip(compiled(net(), root)(X), expected, strict=True):
        assert torch.equal(result, before)


@pytest.mark.slow
def test_the_refittable_engine_is_another_one(root: Path) -> None:
    """The modes do not share a key or an alias, with direct mode too; a live model's frozen engine has no alias."""
    keys = {
        mode: trtcache.key(net(), (X,), dynamic_shapes=BATCH, settings={"weights": mode, **QUICK})
        for mode in ("refittable", "frozen")
    }
    assert keys["refittable"] == trtcache.key(net(), (X,), dynamic_shapes=BATCH, settings=QUICK)
    assert keys["refittable"] != keys["frozen"]
    for _ in range(2):
        module = compiled(net(), root, direct="on")
        assert module.report.partitions[0].key == keys["frozen"]
        assert module.report.route != "alias"


@pytest.mark.slow
def test_other_weights_are_refused(root: Path) -> None:
    """A refit, load_state_dict and copies with other weights name the setting; calls go on as before."""
    module = compiled(net(), root)
    for change in (lambda: module.refit(net(1)), lambda: module.refit(net(1).state_dict())):
        with pytest.raises(FixedWeightsError, match=r"settings=\{'weights': 'frozen'\} take no other weights"):
            change()
    with pytest.raises(RuntimeError, match=r"settings=\{'weights': 'frozen'\} take no other weights"):
        module.load_state_dict(net(1).state_dict())
    assert_answers(module, net())


@pytest.mark.slow
def test_results_that_weights_alone_give_are_copies(root: Path) -> None:
    """A caller who writes to them does not change the engine's constants, and they outlive the engine."""
    module = compiled(net(), root)
    results = module(X)
    kept = [result.clone() for result in results]
    del module
    for result, before in zip(results, kept, strict=True):
        assert torch.equal(result, before)
    module = compiled(net(), root)
    for result in module(X)[1:2]:
        result.mul_(7)
    assert_answers(module, net())


class Conjugated(nn.Module):
    """Weights of complex numbers that are conjugated or negated lazily, and such a constant and input."""

    scale: torch.Tensor

    def __init__(self) -> None:
        """Create it with random weights."""
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(4, 4, dtype=torch.complex64))
        self.register_buffer("scale", torch.randn(4, dtype=torch.complex64))
        self.constant = torch.randn(4, dtype=torch.complex64)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return products with them, and the weights themselves."""
        of_weights = self.scale.conj(), self.scale.conj().imag, self.weight.mH, self.constant.conj()
        return x @ self.weight.mH, x * self.scale.conj(), torch.vdot(self.scale, x[0]), x.conj(), *of_weights


@pytest.mark.slow
def test_conjugated_weights_keep_their_values(tmp_path: Path) -> None:
    """A package stores a tensor's bytes, without the bit that conjugates or negates it lazily."""
    model, x = Conjugated(), torch.randn(2, 4, dtype=torch.complex64)
    module = trtcache.compile(model, (x,), cache=tmp_path, settings=FROZEN)
    torch.testing.assert_close(tuple(module(x)), model(x), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_threads_and_runners_answer_as_one_call(root: Path) -> None:
    """Concurrent calls of a frozen engine answer bit by bit as one after the other, and refuse a refit as well."""
    module = compiled(net(), root)
    inputs = [torch.randn(2, 3, 8, 8) for _ in range(20)]
    expected = [module(x)[0].clone() for x in inputs]
    with module.runners(2, intra=1) as two:
        assert two.report.why_not == ""
        found = list(two.map(inputs))
    for result, before in zip(found, expected, strict=True):
        torch.testing.assert_close(result[0], before)
    with pytest.raises(FixedWeightsError):
        module.refit(net(1))


_LOAD = """
import json, sys, torch, trtcache
path, inputs, what = sys.argv[1:]
x = torch.load(inputs)
module = trtcache.load(path, trust="local-file")
torch.save([result.clone() for result in module(x)], inputs + ".out")
try:
    module.refit(torch.load(inputs + ".other"))
except Exception as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("quick_children")
def test_an_exported_engine_answers_elsewhere_and_refuses_other_weights(root: Path, tmp_path: Path) -> None:
    """Another process answers bit by bit the same; a file is not written with weights that the engine does not have."""
    model = net()
    module, path, inputs = compiled(model, root), tmp_path / "net.pt2", tmp_path / "x.pt"
    trtcache.export(module, path)
    torch.save(X, inputs)
    torch.save(net(1).state_dict(), f"{inputs}.other")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _LOAD, str(path), str(inputs), ""],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    kind, why = json.loads(done.stdout)
    assert (kind, "take no other weights" in why) == ("FixedWeightsError", True)
    for result, before in zip(torch.load(f"{inputs}.out"), module(X), strict=True):
        assert torch.equal(result, before)
    with torch.no_grad():
        model.last.weight.add_(1)
    with pytest.raises(RefitError, match=r"last.weight \(it has changed since the engine was built"):
        trtcache.export(module, tmp_path / "changed.pt2")


@pytest.mark.slow
def test_a_program_in_partitions(tmp_path: Path) -> None:
    """Engines have their weights in them while other operators run in torch; none of it takes other weights."""
    settings = {**FROZEN, "torch_executed_modules": ["norm"]}
    model = net()
    module = compiled(model, tmp_path / "cache", settings=settings)
    assert len(module.report.partitions) > 1
    assert any(one.frozen for one in module.report.partitions)
    assert_answers(module, model)
    with pytest.raises(FixedWeightsError):
        module.refit(net(1))
    assert_answers(module, model)
    trtcache.export(module, tmp_path / "parts.pt2")
    assert_answers(trtcache.load(tmp_path / "parts.pt2", trust="local-file"), model)


@pytest.mark.slow
def test_torch_compile_sees_changes_in_place(tmp_path: Path) -> None:
    """An optimizer's step on the model is another engine, not an answer with the old weights."""
    model = nn.Sequential(nn.Linear(4, 4)).eval()
    x = torch.randn(3, 4)
    call = torch.compile(model, backend="trtcache", options={"cache": str(tmp_path), **FROZEN})
    with torch.no_grad():
        torch.testing.assert_close(call(x), model(x))
        model[0].weight.add_(1.0)
        torch.testing.assert_close(call(x), model(x))


@pytest.mark.slow
def test_builds_that_cannot_have_the_weights_are_refused(tmp_path: Path) -> None:
    """Weights that calls change, and another target than this machine, are errors that name the reason."""

    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return x + self.count

    with pytest.raises(BuildError, match="calls change count"):
        trtcache.compile(Counter(), (X,), cache=tmp_path, settings=FROZEN)
    with pytest.raises(BuildError, match="it packs weights for this machine, not for"):
        compiled(net(), tmp_path, target="x86-64-v2")


def test_weights_that_change_during_the_build_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is stored under a key that has the values of before."""
    model = net()

    def build(self: AotInductor, program: Any, settings: Any, target: Any, folder: Path) -> Artifact:
        with torch.no_grad():
            model.last.bias.add_(1)
        (folder / "engine").write_bytes(b"engine")
        return Artifact(folder / "engine")

    monkeypatch.setattr(AotInductor, "build", build)
    with pytest.raises(BuildError, match="weights that the engine has in it changed meanwhile"):
        compiled(model, tmp_path)
    assert not list(tmp_path.rglob("*.trtc"))


def test_it_is_not_built_in_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights may change while calls run in torch: the caller's process builds, and sees what fails."""

    def build(self: AotInductor, *_: Any) -> Artifact:
        raise BuildError(self.name, "in this process")

    monkeypatch.setattr(AotInductor, "build", build)
    with pytest.raises(BuildError, match="in this process"):
        compiled(net(), tmp_path, on_miss="background")


def test_settings_that_do_not_exist(tmp_path: Path, interpreter: str) -> None:
    """Another word, and another backend, are errors; Inductor's own option names the setting."""
    with pytest.raises(SettingsError, match="expected 'refittable', 'packed', 'frozen' or 'auto', got 'baked'"):
        Settings.of({"weights": "baked"})
    with pytest.raises(SettingsError, match=r"settings=\{'weights': 'frozen'\} sets it"):
        Settings.of({"inductor": {"freezing": True}})
    with pytest.raises(SettingsError, match="takes 'refittable' only"):
        trtcache.compile(
            copy.deepcopy(net()), (X,), cache=tmp_path, backend=interpreter, settings={"weights": "frozen"}
        )
