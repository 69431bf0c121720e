"""Weights under ``torch.compile``: each call answers with those that its model has at that moment."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from tests.comparing import difference
from tests.models import ConvNorm, Weights, retrained
from trtcache.integrations.dynamo import engines

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integrations.dynamo.conftest import CompileModel, Made

pytestmark = pytest.mark.usefixtures("_without_gradients")


@pytest.fixture(name="_without_gradients", autouse=True)
def _fixture_without_gradients() -> object:
    """Run a test as programs for inference do."""
    with torch.no_grad():
        yield


def test_equal_blocks_are_one_engine_with_weights_of_their_own(compile_model: CompileModel, made: Made) -> None:
    """Three layers of one class, compiled one by one, have one graph, one engine and three sets of weights."""
    model, x = nn.Sequential(*(nn.Linear(4, 4) for _ in range(3))), torch.randn(3, 4)
    expected = model(x)
    for layer in model:
        layer.forward = compile_model(layer.forward)
    for _ in range(2):
        assert difference(expected, model(x)) is None
    assert made() == [(1, 3)]


class Block(nn.Module):
    """A layer and an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()


class Blocks(nn.Module):
    """Three equal blocks with breaks between them."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
            torch._dynamo.graph_break()
        return x


def test_equal_blocks_of_a_model_are_one_engine(compile_model: CompileModel, made: Made) -> None:
    """Blocks between breaks of one compiled model share an engine, call after call."""
    model, x = Blocks(), torch.randn(3, 4)
    compiled = compile_model(model)
    for _ in range(2):
        assert difference(model(x), compiled(x)) is None
    assert made() == [(1, 3)]


def test_assigned_weights_are_used_and_the_old_ones_freed(compile_model: CompileModel, made: Made) -> None:
    """After ``load_state_dict(assign=True)`` the new weights answer, without a build, and the old ones are freed."""
    model, other, x = nn.Linear(4, 4), nn.Linear(4, 4), torch.randn(3, 4)
    compiled = compile_model(model)
    compiled(x)
    old = weakref.ref(model.weight.untyped_storage()), weakref.ref(model.weight)
    model.load_state_dict(copy.deepcopy(other.state_dict()), assign=True)
    assert difference(other(x), compiled(x)) is None
    gc.collect()
    assert [one() for one in old] == [None, None]
    assert made() == [(1, 2)]


def test_parameters_can_be_swapped_after_a_reset(compile_model: CompileModel) -> None:
    """``swap_tensors`` refuses weights that an engine watches; after a reset of Dynamo none does."""
    model, x = nn.Linear(4, 4), torch.randn(3, 4)
    compiled = compile_model(model)
    compiled(x)
    torch._dynamo.reset()
    gc.collect()
    torch.utils.swap_tensors(model.weight, nn.Parameter(torch.randn(4, 4)))
    assert difference(model(x), compiled(x)) is None


def _new_values(model: Weights) -> None:
    model.w.copy_(torch.randn(4, 4))


def _new_memory(model: Weights) -> None:
    model.w.data = torch.randn(4, 4)


def _same_memory_turned(model: Weights) -> None:
    model.w.data = model.w.data.t()


def _new_object(model: Weights) -> None:
    model.w = torch.randn(4, 4)


def _other_layout(model: Weights) -> None:
    model.w.data = torch.randn(6, 10)[1:5, 2:6]


def _in_place_in_that_layout(model: Weights) -> None:
    _other_layout(model)
    model(torch.ones(3, 4))
    model.w.mul_(2)


# Dynamo guards strides, so another layout is another graph; that of torch 2.11 does not guard those of a weight.
_LAYOUTS = 2 if torch.__version__ >= "2.13" else 1


@pytest.mark.parametrize(
    ("change", "graphs"),
    [
        (_new_values, 1),
        (_new_memory, 1),
        (_new_object, 1),
        (_same_memory_turned, _LAYOUTS),
        (_other_layout, _LAYOUTS),
        (_in_place_in_that_layout, _LAYOUTS),
    ],
)
def test_a_changed_weight_is_noticed(
    compile_model: CompileModel, made: Made, change: Callable[[Weights], None], graphs: int
) -> None:
    """Whichever way a weight changes, object and memory included, the next call answers with it, by the same engine."""
    model, x = Weights(torch.randn(4, 4)), torch.randn(3, 4)
    compiled = compile_model(model)
    for _ in range(2):
        assert difference(model(x), compiled(x)) is None
        change(model)
    assert difference(model(x), compiled(x)) is None
    assert [engines for engines, _ in made()] == [1] * graphs


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_weights_that_an_engine_has_a_copy_of_follow_the_model(
    compile_model: CompileModel, made: Made, mode: Callable[[], torch.no_grad]
) -> None:
    """A folded BatchNorm is folded again after a change in place, also where tensors have no version counter."""
    with mode():
        model, x = ConvNorm().eval(), torch.randn(2, 3, 8, 8)
        compiled = compile_model(model)
        for _ in range(3):
            assert difference(model(x), compiled(x)) is None
            retrained(model)
        model.load_state_dict(ConvNorm().state_dict())
        assert difference(model(x), compiled(x)) is None
    ((engines, _),) = made()
    assert engines == 1


def _train(model: ConvNorm) -> None:
    model.train()(torch.randn(8, 3, 8, 8))
    model.eval()


def _fused_step(model: ConvNorm) -> None:
    for one in model.parameters():
        one.grad = torch.ones_like(one)
    torch.optim.AdamW(model.parameters(), 0.1, fused=True).step()


def _data(model: ConvNorm) -> None:
    model.norm.weight.data.mul_(2)


def _numpy(model: ConvNorm) -> None:
    model.norm.running_mean.numpy()[:] += 1


@pytest.mark.parametrize("change", [_train, _fused_step, _data, _numpy])
def test_changes_that_torch_does_not_count_are_noticed(
    compile_model: CompileModel, made: Made, change: Callable[[ConvNorm], None]
) -> None:
    """Fused optimizers, a BatchNorm in training mode and writes that bypass torch do not change version counters."""
    model, x = ConvNorm().eval(), torch.randn(2, 3, 8, 8)
    compiled = compile_model(model)
    for _ in range(3):
        assert difference(model(x), compiled(x)) is None
        change(model)
    assert difference(model(x), compiled(x)) is None
    assert made() == [(1, 4)]


def test_fused_steps_are_noticed_for_large_weights(compile_model: CompileModel, made: Made) -> None:
    """A convolution of 65 KB is not compared by value; another optimizer's step changes nothing."""
    model, x = ConvNorm().eval(), torch.randn(2, 128, 8, 8) / 10  # sums of 2,048 products are off by 2e-5 otherwise
    model.conv, other = nn.Conv2d(128, 8, 4, padding=1), nn.Linear(4, 4)
    compiled = compile_model(model)
    for one, sets in ((model, 2), (other, 2), (model, 3)):
        compiled(x)
        for parameter in one.parameters():
            parameter.grad = torch.ones_like(parameter)
        torch.optim.SGD([*one.parameters()][:1], 0.1, fused=True).step()
        assert difference(model(x), compiled(x)) is None
        assert made() == [(1, sets)]


class Counted(nn.Module):
    """A layer, a count of calls that its result has, and a table that is neither a parameter nor a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.table = ConvNorm(), torch.randn(1)
        self.register_buffer("calls", torch.zeros(1))
        torch._dynamo.mark_static_address(self.table, guard=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls.add_(1)
        return self.layer(x) * self.calls + self.table + torch.tensor([3.0]), self.calls


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"prepare_freezing": True},
        {"install_free_tensors": True},
    ],
)
@pytest.mark.parametrize("freezing", [False, True])
def test_tensors_that_dynamo_puts_into_a_graph_are_followed(
    compile_model: CompileModel, made: Made, options: dict[str, bool], freezing: bool
) -> None:
    """With settings for freezing, too, calls change buffers, and use the weights of now."""
    model, x = Counted().eval(), torch.randn(2, 3, 8, 8)
    same = copy.deepcopy(model)
    with torch._dynamo.config.patch(options), torch._inductor.config.patch(freezing=freezing):
        compiled = compile_model(model)
        for _ in range(3):
            assert difference(same(x), compiled(x)) is None
            assert model.calls == same.calls
            for one in (model, same):
                one.layer.conv.weight.mul_(2)
                one.table.add_(1)
                one.layer.norm.running_mean.data = torch.ones(8)
        assert compiled(x)[1] is model.calls
        assert made() == [(1, 4)]  # the BatchNorm is folded


def test_weights_that_lie_where_others_did_are_told_apart(compile_model: CompileModel, made: Made) -> None:
    """A weight that is taken away to save memory and put back is found changed, though it may have the old address."""
    model, x = ConvNorm().eval(), torch.randn(2, 3, 8, 8)
    compiled = compile_model(model)
    (convolution,) = (one for one in model.modules() if isinstance(one, nn.Conv2d))
    for _ in range(10):
        assert difference(model(x), compiled(x)) is None
        values = torch.randn_like(convolution.weight)
        convolution.weight.data = torch.empty(0)
        convolution.weight.data = values.clone()
    ((engines, _),) = made()
    assert engines == 1


def test_weights_that_come_apart_are_two(compile_model: CompileModel, made: Made) -> None:
    """Two weights in one memory, of which one gets its own later, are told apart from then on."""
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), torch.randn(3, 4)
    model[1].weight.data = model[0].weight.data
    compiled = compile_model(model)
    assert difference(model(x), compiled(x)) is None
    model[1].weight.data = torch.randn(4, 4)
    assert difference(model(x), compiled(x)) is None
    assert [engines for engines, _ in made()] == [1]


def test_weights_that_do_not_fit_are_compiled_anew(compile_model: CompileModel, made: Made) -> None:
    """Weights of another type, where the guards of modules are switched off, get an engine of their own."""
    layer = nn.Linear(4, 4)
    compiled = compile_model(
        lambda: layer.weight * 2, guard_filter_fn=torch.compiler.skip_guard_on_inbuilt_nn_modules_unsafe
    )
    for _ in range(2):
        assert difference(layer.weight * 2, compiled()) is None
        layer.weight.data = layer.weight.data.double()
    assert made() == [(2, 2)]


def test_no_more_sets_of_weights_are_kept_than_the_limit(
    compile_model: CompileModel, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the limit the set that was used longest ago makes place, and comes back without a build."""
    monkeypatch.setattr(engines, "MAX_INSTANCES", 2)
    models, x = [nn.Linear(4, 4) for _ in range(3)], torch.randn(3, 4)
    compiled = [compile_model(model) for model in models]
    for place in (0, 1, 0, 2, 0, 1):
        assert difference(models[place](x), compiled[place](x)) is None
    assert made() == [(1, 4)]


def test_threads_with_different_weights_do_not_mix_them(compile_model: CompileModel, made: Made) -> None:
    """Threads that call equal models, one of them with ever new weights, get their own models' results."""
    models = [nn.Linear(4, 4) for _ in range(4)]
    compiled = [compile_model(model) for model in models]
    x, wrong = torch.randn(3, 4), []
    compiled[0](x)

    def call(place: int) -> None:
        with torch.no_grad():
            for _ in range(50):
                if place == 0:
                    models[0].load_state_dict(nn.Linear(4, 4).state_dict(), assign=True)
                if why := difference(models[place](x), compiled[place](x)):
                    wrong.append((place, why))

    threads = [threading.Thread(target=call, args=(place,)) for place in range(len(models))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    ((engines, _),) = made()
    assert engines == 1
