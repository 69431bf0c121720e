"""AOTInductor packages that take packed weights: ``settings={"weights": "packed"}``."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import trtcache
from tests.comparing import mixed_results
from trtcache.backends.aot_inductor import container, packing
from trtcache.backends.aot_inductor.container import ProcessContainer
from trtcache.backends.aot_inductor.loader import Aliases
from trtcache.backends.aot_inductor.packing import use_packed_weights
from trtcache.backends.program_forms import to_module_with_weights
from trtcache.errors import SettingsError
from trtcache.settings import PACKING_VERSION, WEIGHTS, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from trtcache.backends.aot_inductor.loader import PackageEngine

aten = torch.ops.aten

PACKED: dict[str, Any] = {"weights": "packed"}
X = torch.randn(2, 4, 12, 12)


class Net(nn.Module):
    """Convolutions with and without a norm, a bias, groups, strides, dilation; linear layers; some are not packed."""

    def __init__(self, seed: int = 0) -> None:
        """Create it with random weights."""
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.norm = nn.Conv2d(4, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.grouped = nn.Conv2d(16, 16, 3, padding=2, dilation=2, groups=4)
        self.depthwise = nn.Conv2d(16, 16, (3, 1), padding=(1, 0), groups=16)
        self.strided = nn.Conv2d(16, 8, 3, stride=(2, 1), padding="valid")
        self.twice = nn.Conv2d(8, 8, 1)
        self.back = nn.ConvTranspose2d(8, 8, 2)
        self.line = nn.Conv1d(8, 8, 3)
        self.up, self.up_bias = nn.Parameter(torch.randn(8, 24)), nn.Parameter(torch.randn(24))  # as in GPT-2
        self.down, self.last = nn.Linear(24, 8), nn.Linear(8, 4, bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return logits, and results of weights that are packed as well."""
        x = torch.relu(self.norm(self.first(x)))
        x = torch.relu(self.grouped(x)) + self.depthwise(x)
        x = self.strided(x)
        x = self.twice(self.twice(x))
        x = self.back(x).sum(3)
        x = self.line(x).transpose(1, 2)
        wide = torch.addmm(self.up_bias, x.reshape(-1, 8), self.up).view(*x.shape[:-1], 24)
        x = x + self.down(nn.functional.gelu(wide))
        return self.last(self.last.weight + self.last(x).mean((0, 1))[:, None]), self.last.weight * 2


def net(seed: int = 0) -> Net:
    """Return a model in eval mode, with statistics of its own."""
    model = Net(seed)
    with torch.no_grad():
        model.train()(torch.randn(8, 4, 12, 12))
    return model.eval()


def compiled(model: nn.Module, root: Path, **options: Any) -> trtcache.CompiledModule:
    """Compile a model for packed weights."""
    return trtcache.compile(model, (X,), **{"cache": root, "settings": PACKED, **options})


def assert_answers(module: Any, model: nn.Module, x: torch.Tensor = X) -> None:
    """Compare all results."""
    torch.testing.assert_close(tuple(module(x)), model(x), rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module", autouse=True)
def _small_layers() -> Iterator[None]:
    """Pack the weights of small linear layers too, as those of these models are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "LEAST_PRODUCTS", 1)
        yield


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the engine of the model."""
    folder: Path = tmp_path_factory.mktemp("cache")
    module = compiled(net(), folder)
    assert module.report.partitions[0].outcome == "built"
    assert "packed: it takes packed copies of weights" in str(module.report)
    return folder


@pytest.mark.slow
def test_one_engine_serves_every_set_of_weights(root: Path) -> None:
    """Another model hits; A, B, A by refits is bit for bit A again; packed weights are really packed."""
    module = compiled(net(), root)
    engine: PackageEngine = module._swap.engine
    packed = engine._loaded.given
    assert packed.are_packed
    assert sum(tensor.is_mkldnn for tensor in packed.tensors.values()) == 5 + 4
    assert module.report.partitions[0].outcome == "hit"
    assert_answers(module, net())
    first = [result.clone() for result in module(X)]
    other = compiled(net(1), root)
    assert other.report.partitions[0].key == module.report.partitions[0].key
    assert_answers(other, net(1))
    module.refit(net(1))
    assert_answers(module, net(1))
    module.refit(net().state_dict())
    assert all(map(torch.equal, module(X), first))


@pytest.mark.slow
def test_a_change_in_place_shows_in_the_next_call(root: Path) -> None:
    """Packed copies follow the model, by its version counters: in calls one by one, in runners, and after a refit."""
    model = net()
    module = compiled(model, root)
    with module.runners(2, intra=1) as two:
        assert two.report.why_not == ""
        for change in (2.0, 0.5, 3.0):
            with torch.no_grad():
                model.grouped.weight.mul_(change)
                model.grouped.bias.add_(1)
            assert_answers(module, model)
            with torch.no_grad():
                model.up.mul_(change)
                model.last.weight.mul_(change)
            assert_answers(module, model)
            for result in two.map([X, X, X]):
                torch.testing.assert_close(tuple(result), model(X), rtol=1e-4, atol=1e-5)
    model.load_state_dict(net(1).state_dict())
    module.refit(model)
    assert_answers(module, model)
    with torch.no_grad():
        model.strided.weight.zero_()
    assert_answers(module, model)
    assert "grouped.weight" in module.find_copied(model.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_steps_of_optimizers_show_in_the_next_call(root: Path, mode: Callable[[], Any]) -> None:
    """Fused optimizers do not count their changes; weights that inference mode has packed are followed, too."""
    model = net()
    with mode():
        module = compiled(model, root)
    weights = [model.grouped.weight, model.last.weight]
    for optimizer in (torch.optim.SGD(weights, 0.1), torch.optim.Adam(weights, 0.1, fused=True)):
        for one in weights:
            one.grad = torch.ones_like(one)
        optimizer.step()
        assert_answers(module, model)


@pytest.mark.slow
def test_a_call_during_the_packing_of_another_has_the_new_weights(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that comes while another call packs changed weights again does not run with the old ones."""
    model = net()
    engine = compiled(model, root)._swap.engine.parallel(2)
    found: list[torch.Tensor] = []

    class Interrupted(ProcessContainer):
        def __init__(self, make: Any) -> None:
            super().__init__(make)
            if not found:
                found.append(torch.empty(()))  # the call below packs without another one
                found[0] = engine.run([X])[0]

    before = engine.run([X])[0].clone()
    with torch.no_grad():
        model.grouped.weight.mul_(2)
    monkeypatch.setattr(container, "ProcessContainer", Interrupted)
    after = engine.run([X])[0]
    assert torch.equal(found[0], after)
    assert not torch.equal(after, before)


@pytest.mark.slow
def test_weights_of_inference_mode_are_not_packed(root: Path) -> None:
    """They have no version counter: the engine takes them as they are, so that changes show."""
    with torch.inference_mode():
        model = net()
        module = compiled(model, root)
        assert module.report.partitions[0].outcome == "hit"
        assert_answers(module, model)
        model.grouped.weight.mul_(2)
        assert_answers(module, model)


@pytest.mark.parametrize("is_inference", [False, True])
def test_an_alias_in_another_layout_is_emptied_in_every_mode(is_inference: bool) -> None:
    """Garbage of a packed engine is also collected while inference mode is on, and the other way around."""
    with torch.inference_mode(is_inference):
        aliases = [Aliases({"w": torch.ones(2, 2).to_mkldnn()}) for _ in range(2)]
    for one, in_inference_mode in zip(aliases, (not is_inference, is_inference), strict=True):
        with torch.inference_mode(in_inference_mode):
            one.empty()
        assert one.tensors["w"].numel() == 0


@pytest.mark.slow
def test_threads_see_one_set_of_weights_during_refits(root: Path) -> None:
    """Every call has the old weights or the new ones, never a mix of both."""
    one, two = net(), net(1)
    module = compiled(one, root)
    assert mixed_results(module, (one, two), X, seconds=1.0) == []


_LOAD = """
import json, sys, torch, trtcache
path, inputs = sys.argv[1:]
x, other = torch.load(inputs)
module = trtcache.load(path, trust="local-file")
first = [result.clone() for result in module(x)]
module.refit(other)
torch.save((first, [result.clone() for result in module(x)]), inputs + ".out")
"""
_LOAD_WITHOUT = """
import sys, numpy, trtcache
program = trtcache.load(sys.argv[1], trust="local-file")
x = numpy.load(sys.argv[2])
numpy.savez(sys.argv[2] + ".out", *program(x))
program.refit(sys.argv[3])
numpy.savez(sys.argv[2] + ".other", *program(x))
print("torch" in sys.modules)
"""


@pytest.mark.slow
def test_an_exported_program_packs_where_it_is_loaded(root: Path, tmp_path: Path, python: str) -> None:
    """Another process answers and refits bit by bit the same; one without torch takes the weights as they are."""
    module, path, inputs = compiled(net(), root), tmp_path / "net.pt2", tmp_path / "x.pt"
    trtcache.export(module, path)
    torch.save((X, net(1).state_dict()), inputs)
    subprocess.run([python, "-W", "ignore", "-c", _LOAD, str(path), str(inputs)], check=True)
    first, second = torch.load(f"{inputs}.out")
    assert all(map(torch.equal, first, module(X)))
    module.refit(net(1))
    assert all(map(torch.equal, second, module(X)))
    np.save(tmp_path / "x.npy", X.numpy())
    save_file(dict(net(1).state_dict()), tmp_path / "other.safetensors")
    files = [str(tmp_path / name) for name in ("net.pt2", "x.npy", "other.safetensors")]
    without = {**os.environ, "TRTCACHE_NO_TORCH": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _LOAD_WITHOUT, *files],
        env=without,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False"
    for suffix, seed in (("out", 0), ("other", 1)):
        with np.load(tmp_path / f"x.npy.{suffix}.npz") as found:
            results = tuple(torch.from_numpy(found[name]) for name in found.files)
        torch.testing.assert_close(results, net(seed)(X), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_dynamic_sizes_and_partitions(tmp_path: Path) -> None:
    """With a dynamic batch linear layers are packed, for any batch, and convolutions are not; so are partitions'."""
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(2), nn.Linear(64, 5)).eval()
    module = compiled(model, tmp_path, dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    packed = module._swap.engine._loaded.given
    assert [name for name, tensor in packed.tensors.items() if tensor.is_mkldnn] == ["packed0"]
    for batch in (1, 2, 5, 64):
        x = torch.randn(batch, 4, 12, 12)
        torch.testing.assert_close(module(x), model(x), rtol=1e-4, atol=1e-5)
    parts = compiled(model, tmp_path, settings={**PACKED, "torch_executed_ops": ["aten.relu"]})
    assert len(parts.report.partitions) == 2
    torch.testing.assert_close(parts(X), model(X), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        model[2].weight.mul_(2)
        model[4].weight.mul_(2)
    torch.testing.assert_close(parts(X), model(X), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(module(X), model(X), rtol=1e-4, atol=1e-5)


class Layers(nn.Module):
    """Linear layers of all kinds."""

    def __init__(self) -> None:
        """Create it."""
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.out = nn.Linear(16, 50, bias=False)
        self.out.weight = self.table.weight
        self.up, self.down, self.one = nn.Linear(16, 32), nn.Linear(32, 16), nn.Linear(16, 3)
        self.register_buffer("count", torch.zeros(16, 16))
        self.wide = nn.Parameter(torch.randn(16, 2, dtype=torch.float64))

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return what each kind computes."""
        x = self.table(ids)
        x = x + self.down(nn.functional.gelu(self.up(x)))
        self.count += 1
        again = self.down(self.up(x)) @ self.count
        return self.out(x), self.one(x[0, :1]), x.double() @ self.wide, again


def replaced(dynamic: bool = False) -> tuple[torch.fx.GraphModule, dict[str, list[Any]]]:
    """Return a program's graph with packed weights, and how they are packed."""
    shapes = ({0: torch.export.Dim.DYNAMIC},) if dynamic else None
    program = trtcache.lower(Layers().eval(), (torch.randint(0, 50, (2, 7)),), dynamic_shapes=shapes)
    module, _ = to_module_with_weights(program)
    mutated = {weight.name for weight in program.interface.weights if weight.is_mutated}
    return module, use_packed_weights(module, mutated)


def test_which_linear_layers_are_packed() -> None:
    """Those of float32 and several rows, whose weight no call changes; a tied weight stays a constant as well."""
    module, found = replaced()
    shapes = sorted(tuple(getattr(module, name).shape) for name in found)
    assert shapes == [(16, 32), (32, 16), (50, 16)]
    assert {(kind, rows, transposed) for kind, _, rows, transposed in found.values()} == {("linear", 14, False)}
    targets = [node.target for node in module.graph.nodes if node.op == "call_function"]
    assert targets.count(torch.ops.mkldnn._linear_pointwise.default) == 5
    assert sum(target in {aten.mm.default, aten.addmm.default} for target in targets) == 3
    tied = next(name for _, name, *_ in found.values() if hasattr(module, name))
    assert getattr(module, tied).shape == (50, 16)
    # No reshape is between a layer and what Inductor computes in its operator.
    layers = module.graph.find_nodes(op="call_function", target=torch.ops.mkldnn._linear_pointwise.default)
    users = {user.target for node in layers for user in node.users}
    assert {aten.gelu.default, aten.add.Tensor} <= users
    assert aten.reshape.default not in users
    assert {rows for _, _, rows, _ in replaced(dynamic=True)[1].values()} == {None}


@pytest.mark.parametrize("dynamic", [False, True])
def test_small_linear_layers_are_not_packed(monkeypatch: pytest.MonkeyPatch, dynamic: bool) -> None:
    """The call of oneDNN's operator takes longer than what it saves; with a dynamic batch 16 rows count."""
    monkeypatch.setattr(packing, "LEAST_PRODUCTS", (16 if dynamic else 14) * 16 * 50)
    _, found = replaced(dynamic)
    assert len(found) == 1
    monkeypatch.setattr(packing, "LEAST_PRODUCTS", packing.LEAST_PRODUCTS + 1)
    assert replaced(dynamic)[1] == {}


@pytest.mark.slow
def test_auto_packs_on_a_cpu(tmp_path: Path, interpreter: str) -> None:
    """The engine takes packed weights, is refitted, and the report says so; a backend without a choice takes it too."""
    module = compiled(net(), tmp_path, settings={"weights": "auto"})
    assert module._swap.engine._loaded.given.are_packed
    assert "packed: it takes packed copies of weights" in str(module.report)
    module.refit(net(1))
    assert_answers(module, net(1))
    other = compiled(net(), tmp_path, settings={"weights": "auto"}, backend=interpreter)
    assert not other.report.partitions[0].packed
    assert_answers(other, net())


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["refittable", "packed"])
def test_tuned_products_take_weights(tmp_path: Path, weights: str) -> None:
    """With ``max_autotune`` Inductor's own code for a product would have the weight's values in another layout."""
    torch.manual_seed(0)
    model, other, x = nn.Linear(64, 64).eval(), nn.Linear(64, 64).eval(), torch.randn(8, 64)
    module = trtcache.compile(
        model, (x,), cache=tmp_path, settings={"weights": weights, "inductor": {"max_autotune": True}}
    )
    torch.testing.assert_close(module(x), model(x))
    module.refit(other)
    torch.testing.assert_close(module(x), other(x))


def test_the_key_has_the_setting(tmp_path: Path, interpreter: str) -> None:
    """Packed is another key than refittable, and no other backend takes it."""
    keys = {mode: trtcache.key(net(), (X,), settings={"weights": mode}).digest for mode in ("refittable", "packed")}
    assert keys["refittable"] == trtcache.key(net(), (X,)).digest != keys["packed"]
    assert [Settings.of({"weights": mode}).document().get("packing") for mode in WEIGHTS] == [
        None,
        PACKING_VERSION,
        None,
        PACKING_VERSION,
    ]
    with pytest.raises(SettingsError, match="takes 'refittable' only"):
        compiled(net(), tmp_path, backend=interpreter)
