"""Compiled modules as ``torch.nn.Module``: its methods, called on the compiled module and on a parent module."""

from __future__ import annotations

import copy
import io
import pickle
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import trtcache
from trtcache.errors import RefitError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = torch.randn(2, 3, 8, 8)


class Net(nn.Module):
    """Weights that an engine takes as they are, computes from several, and does not use, and tied ones."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.unused = nn.Linear(2, 2)
        self.first = nn.Linear(4, 4)
        self.head = nn.Linear(4, 4)
        self.head.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return some features."""
        features: torch.Tensor = self.bn(self.conv(x)).relu().mean((2, 3))
        made: torch.Tensor = self.head(self.first(features))
        return made


class Outer(nn.Module):
    """A user's model, of which one part is compiled."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.inner: nn.Module = Net()
        self.post = nn.Linear(4, 2)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.running_mean)  # type: ignore[arg-type]  # it has one
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the head of the features."""
        made: torch.Tensor = self.post(self.inner(x))
        return made


@pytest.fixture
def compiled(interpreter: str, engines: Path) -> Callable[[int], Outer]:
    """A user's model with a compiled part; the part's own model is gone."""

    def compile_(seed: int = 0) -> Outer:
        outer = Outer(seed)
        outer.inner = trtcache.compile(outer.inner, X, backend=interpreter, cache=engines)
        return outer

    return compile_


def answers(outer: nn.Module, seed: int) -> bool:
    """Return whether a model answers as the eager one of a seed does."""
    return torch.allclose(outer(X), Outer(seed)(X), atol=1e-5)


def test_it_takes_the_place_of_the_model(compiled: Callable[[int], Outer]) -> None:
    """The outer model answers as before, and lists the same modules' weights in the same order."""
    outer, eager = compiled(0), Outer()
    assert answers(outer, 0)
    assert torch.equal(nn.Sequential(outer.inner)(X), outer.inner(X))
    assert not any(one.training for one in outer.modules())
    for listed in ("named_parameters", "named_buffers"):
        for (name, one), (other, wanted) in zip(getattr(outer, listed)(), getattr(eager, listed)(), strict=True):
            assert name == other
            assert torch.equal(one, wanted)
    state, wanted = outer.state_dict(), eager.state_dict()
    assert list(state) == list(wanted)
    assert all(torch.equal(state[name], wanted[name]) for name in wanted)
    assert not any(one.requires_grad for one in outer.inner.parameters())
    head = outer.inner.head
    assert isinstance(head, nn.Module)
    with pytest.raises(TypeError, match="part of its engine"):
        head(X)


def test_a_bare_tensor_is_the_only_argument(interpreter: str, engines: Path) -> None:
    """``compile(model, x)`` is ``compile(model, (x,))``, and so are ``key`` and ``lower``."""
    model = Outer().inner
    assert trtcache.key(model, X, backend=interpreter) == trtcache.key(model, (X,), backend=interpreter)
    assert trtcache.compile(model, X, backend=interpreter, cache=engines)(X).shape == (2, 4)


def test_a_state_dict_loaded_into_the_outer_model_is_a_refit(compiled: Callable[[int], Outer]) -> None:
    """The engine has the new weights, copies of them or with ``assign`` themselves."""
    outer, given = compiled(0), Outer(1).state_dict()
    outer.load_state_dict(given)
    assert answers(outer, 1)
    given["inner.head.bias"].add_(1)
    assert answers(outer, 1)
    given["inner.head.bias"].sub_(1)
    outer.load_state_dict({name: one.double() for name, one in Outer(2).state_dict().items()})  # torch converts
    assert answers(outer, 2)
    outer.load_state_dict(given, assign=True)
    assert answers(outer, 1)
    given["inner.head.bias"].add_(1)
    assert not answers(outer, 1)


def test_a_state_dict_that_does_not_fit_is_refused_as_torch_does(compiled: Callable[[int], Outer]) -> None:
    """Missing and unknown names are torch's, and a weight of another shape leaves all old ones of the engine."""
    outer, state = compiled(0), Outer(1).state_dict()
    with pytest.raises(RuntimeError, match=r"head.bias .shape"):
        outer.load_state_dict(state | {"inner.head.bias": torch.zeros(5)})
    assert torch.equal(outer.inner(X), compiled(0).inner(X))
    partial = {name: one for name, one in state.items() if name != "inner.first.bias"} | {"inner.strange": X}
    with pytest.raises(RuntimeError, match=r'(?s)Missing.*"inner.first.bias".*Unexpected.*"inner.strange"'):
        outer.load_state_dict(partial)
    found = outer.load_state_dict(partial, strict=False)
    assert (found.missing_keys, found.unexpected_keys) == (["inner.first.bias"], ["inner.strange"])
    assert torch.equal(outer.state_dict()["inner.first.bias"], Outer().state_dict()["inner.first.bias"])


def test_a_conversion_is_refused_and_none_changes_nothing(compiled: Callable[[int], Outer]) -> None:
    """Another dtype or device is an error with what to do; the same one, and shared memory, are not."""
    outer = compiled(0)
    for convert in (outer.half, outer.double, lambda: outer.to("meta"), lambda: outer.to_empty(device="meta")):
        with pytest.raises(RefitError, match="convert the model, then compile it again"):
            convert()
    assert answers(outer.to("cpu").float(), 0)
    assert answers(outer.share_memory(), 0)
    outer.inner._apply(lambda tensor: tensor * 2 if tensor.is_floating_point() else tensor)
    assert torch.equal(outer.state_dict()["inner.conv.weight"], 2 * Outer().state_dict()["inner.conv.weight"])


def test_it_stays_in_eval_mode(compiled: Callable[[int], Outer]) -> None:
    """``train`` warns, once for each call, and ``eval`` does not."""
    outer = compiled(0)
    with pytest.warns(UserWarning, match="Net is compiled for inference and stays in eval mode"):
        outer.train()
    assert not outer.inner.training
    assert outer.post.training
    outer.eval()


def test_a_weight_that_the_engine_would_not_use_is_refused(compiled: Callable[[int], Outer]) -> None:
    """Wherever torch or a user exchanges a parameter, the answer would be that of the old one."""
    outer = compiled(0)
    inner: Any = outer.inner
    with pytest.raises(TypeError, match="refit the module"):
        torch.func.functional_call(outer, {"inner.head.bias": torch.zeros(4)}, (X,))
    with pytest.raises(TypeError, match="refit the module"):
        inner.head.bias = nn.Parameter(torch.zeros(4))
    with pytest.raises(TypeError, match="no further parameters"):
        inner.more = nn.Linear(2, 2)
    with pytest.raises(TypeError, match="refit the compiled module"):
        inner.head.load_state_dict({})
    with pytest.raises(RefitError, match="compile it again"):
        inner.head.half()
    assert answers(outer, 0)


@pytest.mark.parametrize("listed", [False, True])
def test_no_way_of_torch_adds_or_exchanges_a_part(interpreter: str, engines: Path, listed: bool) -> None:
    """The engine would know nothing of it, and the state_dict would not be that of the answers."""
    for change in (
        lambda module: module.add_module("layer", nn.Linear(4, 4)),
        lambda module: module.register_module("more", nn.Linear(4, 4)),
        lambda module: module.set_submodule("layer", nn.Linear(4, 4)),
        lambda module: module.register_buffer("scale", torch.zeros(4)),
        lambda module: module.register_buffer("more", torch.zeros(4)),
        lambda module: module.register_parameter("more", nn.Parameter(torch.zeros(4))),
        lambda module: module.layer.register_parameter("weight", nn.Parameter(torch.zeros(4, 4))),
        lambda module: module._parameters.update(bias=nn.Parameter(torch.zeros(4))),
        lambda module: module._modules.pop("layer"),
        lambda module: module._buffers.clear(),
    ):
        model = Direct()
        module: Any = trtcache.compile(model, torch.ones(2, 4), backend=interpreter, cache=engines)
        if listed:
            module.state_dict()
        with pytest.raises(TypeError, match="compiled module"):
            change(module)
        assert list(module.state_dict()) == list(model.state_dict())
        assert torch.equal(module.state_dict()["layer.weight"], model.layer.weight)


def test_a_hook_of_a_part_is_not_called(compiled: Callable[[int], Outer]) -> None:
    """There is no such call, and a warning says so."""
    inner: Any = compiled(0).inner
    for register in (inner.head.register_forward_hook, inner.head.register_forward_pre_hook):
        with pytest.warns(UserWarning, match="its hooks are not called; compile the model with them"):
            register(lambda *_: pytest.fail("called"))
    inner(X)


class Direct(nn.Module):
    """A parameter, a buffer and a layer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.ones(4))
        self.register_buffer("scale", torch.full((4,), 2.0))
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return rows of 4."""
        result: torch.Tensor = self.layer(x) * self.get_buffer("scale") + self.bias
        return result


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("name", ["bias", "scale", "layer"])
def test_a_weight_is_not_replaced_or_deleted_by_its_name(
    interpreter: str, engines: Path, name: str, listed: bool
) -> None:
    """Whether the parameters were listed before or not; other attributes are set and deleted as ever."""
    model = Direct()
    module: Any = trtcache.compile(model, torch.ones(2, 4), backend=interpreter, cache=engines)
    if listed:
        module.state_dict()
    for value in (torch.zeros(4), None):
        with pytest.raises(TypeError, match=r"cannot (be replaced|assign)"):
            setattr(module, name, value)
    with pytest.raises(TypeError, match="cannot be deleted"):
        delattr(module, name)
    with pytest.raises(TypeError, match="cannot be deleted"):
        del module.layer.weight
    assert list(module.state_dict()) == list(model.state_dict())
    module.label = "mine"
    del module.label
    assert not hasattr(module, "label")


def test_copies_have_their_own_weights_and_hooks(compiled: Callable[[int], Outer]) -> None:
    """A deep copy keeps its weights, and those that it is computed from; a hook belongs to one module."""
    outer = compiled(0)
    other = copy.deepcopy(outer)
    called: list[nn.Module] = []
    outer.inner.register_forward_hook(lambda module, *_: called.append(module))
    outer.load_state_dict(Outer(1).state_dict())
    assert answers(outer, 1)
    assert answers(other, 0)
    assert called == [outer.inner]
    assert torch.equal(other.state_dict()["inner.conv.weight"], Outer().state_dict()["inner.conv.weight"])


def test_pickle_is_refused_with_what_to_do(compiled: Callable[[int], Outer]) -> None:
    """An engine is no pickle; a state_dict is saved as ever."""
    outer = compiled(0)
    with pytest.raises(pickle.PicklingError, match=r"trtcache\.export"):
        pickle.dumps(outer)
    with pytest.raises(pickle.PicklingError, match=r"trtcache\.export"):
        torch.save(outer, io.BytesIO())
    torch.save(outer.state_dict(), io.BytesIO())
    assert repr(outer.inner).startswith("CompiledModule(Net, ")


@pytest.mark.parametrize("strict", [False, True])
def test_the_outer_model_is_exported(compiled: Callable[[int], Outer], strict: bool) -> None:
    """The program has the engine as one operator, and the weights' names."""
    outer = compiled(0)
    program = torch.export.export(outer, (X,), strict=strict)
    assert answers(program.module(), 0)
    assert answers(outer, 0)
    assert str(program.graph).count("trtcache.execute_engine") == 1


def test_the_outer_model_is_compiled_and_follows_a_refit(compiled: Callable[[int], Outer]) -> None:
    """``torch.compile`` sees one graph without a break."""
    torch._dynamo.reset()
    outer = compiled(0)
    traced = torch.compile(outer, backend="aot_eager", fullgraph=True)
    assert answers(traced, 0)
    outer.load_state_dict(Outer(1).state_dict())
    assert answers(traced, 1)
    seen: list[int] = []
    outer.inner.register_forward_pre_hook(lambda *_: seen.append(1))
    outer(X)
    assert seen == [1]


def test_a_loaded_program_has_the_names_too(compiled: Callable[[int], Outer], tmp_path: Path) -> None:
    """A module of a file has the weights that the program uses, also those that others are computed from."""
    inner = compiled(0).inner
    assert isinstance(inner, trtcache.CompiledModule)
    trtcache.export(copy.deepcopy(inner), tmp_path / "net.pt2")
    loaded = trtcache.load(tmp_path / "net.pt2", trust="local-file")
    assert isinstance(loaded, nn.Module)
    state, wanted = loaded.state_dict(), Outer().inner.state_dict()
    assert state.keys() == {name for name in wanted if not name.startswith("unused") and "tracked" not in name}
    assert all(torch.equal(one, wanted[name]) for name, one in state.items())
    assert {name for name, _ in loaded.named_buffers()} == {"bn.running_mean", "bn.running_var"}


def test_one_name_of_a_tied_weight_is_enough(interpreter: str, engines: Path) -> None:
    """As of an ``nn.Module``, whose other names have the same weight."""
    model = Net().eval()
    module = trtcache.compile(model, (X,), backend=interpreter, cache=engines)
    module.load_state_dict({"head.weight": torch.eye(4)}, strict=False)
    assert torch.equal(module.state_dict()["first.weight"], torch.eye(4))
    model.load_state_dict({"head.weight": torch.eye(4)}, strict=False)
    torch.testing.assert_close(module(X), model(X).detach())


def test_hooks_do_not_see_the_calls_of_a_verification(interpreter: str, engines: Path) -> None:
    """``refit(verify=True)`` compares the engine, and calls no hook of the module."""
    model, called = Net().eval(), list[bool]()
    module = trtcache.compile(model, (X,), backend=interpreter, cache=engines)
    module.register_forward_hook(lambda *_: called.append(True))
    module.refit(model, verify=True)
    assert not called
