"""BatchNorm in eval mode becomes weights that recipes make."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import trtcache
from tests.lowering.contract import only_with
from tests.lowering.lowered import digest, operators, outputs
from trtcache.errors import RefitError
from trtcache.lowering import lower
from trtcache.lowering.capture import export
from trtcache.lowering.decompositions import decompose
from trtcache.lowering.marked_graph import mark
from trtcache.lowering.rewrites.linear import BatchNorm
from trtcache.weights.recipes import Operation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

IMAGE = torch.randn(2, 4, 8, 8)
ROWS = torch.randn(3, 4)


def trained(model: nn.Module, seed: int = 0) -> Any:
    """Return the model in eval mode with statistics and weights that are not the defaults."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.5)
        if name.endswith("running_var"):
            tensor.abs_().add_(0.5)
    return model.eval()


class Block(nn.Module):
    """A residual block, in which one BatchNorm follows a convolution, one a sum and one a nonlinearity."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.Conv2d(4, 4, 1, groups=2)
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(4))
        self.out = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.norms[0](self.one(x)).relu()
        made = self.norms[2](self.norms[1](self.two(made)) + x)
        pooled: torch.Tensor = self.norms[3](made.relu()).mean((2, 3))
        result: torch.Tensor = self.out(pooled)
        return result


class Twice(nn.Module):
    """A convolution whose result is used twice, once by a BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.conv(x)
        normed: torch.Tensor = self.norm(made)
        return normed + made


class Functional(nn.Module):
    """A BatchNorm over what the caller gives, by any of torch's operators for it."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, self.mean, self.var)


class Product(nn.Module):
    """A product with a matrix as it lies, and a product of two inputs, before a BatchNorm."""

    def __init__(self, *, by_weight: bool) -> None:
        super().__init__()
        self.matrix, self.bias = nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.randn(3))
        self.norm, self.by_weight = nn.BatchNorm1d(3), by_weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = torch.addmm(self.bias, x, self.matrix) if self.by_weight else x @ x.t()
        normed: torch.Tensor = self.norm(made)
        return normed


FOLDED: dict[str, tuple[nn.Module, torch.Tensor, list[str]]] = {
    "convolution": (nn.Sequential(nn.Conv2d(4, 6, 3, stride=2), nn.BatchNorm2d(6)), IMAGE, ["convolution"]),
    "no_bias": (nn.Sequential(nn.Conv2d(4, 6, 3, bias=False), nn.BatchNorm2d(6)), IMAGE, ["convolution"]),
    "groups": (nn.Sequential(nn.Conv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6)), IMAGE, ["convolution"]),
    "one_dimension": (nn.Sequential(nn.Conv1d(4, 6, 3), nn.BatchNorm1d(6)), torch.randn(3, 4, 8), ["convolution"]),
    "transposed": (nn.Sequential(nn.ConvTranspose2d(4, 6, 3), nn.BatchNorm2d(6)), IMAGE, ["convolution"]),
    "transposed_groups": (
        nn.Sequential(nn.ConvTranspose2d(4, 6, 3, groups=2), nn.BatchNorm2d(6)),
        IMAGE,
        ["convolution", "mul", "add"],
    ),
    "twice_normed": (
        nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.BatchNorm2d(6, affine=False)),
        IMAGE,
        ["convolution"],
    ),
    "linear": (nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)), ROWS, ["permute", "addmm"]),
    "linear_no_bias": (nn.Sequential(nn.Linear(4, 6, bias=False), nn.BatchNorm1d(6)), ROWS, ["permute", "addmm"]),
    "product": (Product(by_weight=True), ROWS, ["addmm"]),
    "product_of_inputs": (Product(by_weight=False), ROWS, ["permute", "mm", "mul", "add"]),
    "used_twice": (Twice(), IMAGE, ["convolution", "mul", "add", "add"]),
    "alone": (nn.BatchNorm2d(4), IMAGE, ["mul", "add"]),
    "alone_in_rows": (nn.BatchNorm1d(4, affine=False), ROWS, ["mul", "add"]),
    "in_three_dimensions": (nn.BatchNorm3d(4), torch.randn(2, 4, 3, 5, 6), ["mul", "add"]),
    "block": (Block(), IMAGE, ["convolution", "relu", "convolution", "add", "mul", "add"]),
}


@pytest.mark.parametrize("name", FOLDED)
def test_folded_weights_keep_results(name: str) -> None:
    """No BatchNorm is left, what is left has the expected operators, and results are the model's."""
    model, x, expected = FOLDED[name]
    program = lower(trained(model), (x,))
    found = operators(program)
    assert "_native_batch_norm_legit_no_training" not in found
    assert set(expected) <= set(found)
    torch.testing.assert_close(outputs(program, x)[0], model(x), rtol=1e-5, atol=1e-5)


def test_a_convolution_takes_the_batch_norm_over_whole() -> None:
    """A convolution and a BatchNorm are one operator with two made weights, of the model's six."""
    model = trained(nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6)))
    program = lower(model, (IMAGE,))
    assert operators(program) == ["convolution"]
    assert [type(weight.recipe) for weight in program.interface.weights] == [Operation, Operation]
    assert len(program.interface.slots) == 6


@pytest.mark.parametrize("name", ["one_dimension", "linear", "alone", "block"])
def test_dynamic_batches_stay_dynamic(name: str) -> None:
    """With a symbolic batch the graph is folded as well and answers other batch sizes."""
    model, x, _ = FOLDED[name]
    x = torch.cat([x, x])
    program = lower(trained(model), (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=2, max=64)},))
    assert program.interface.ranges == ((2, 64),)
    more = torch.cat([x, x * 2])
    torch.testing.assert_close(outputs(program, more)[0], model(more), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions(dtype: torch.dtype) -> None:
    """In float16 and bfloat16 sums are made in float32 and rounded once; results keep their dtype."""
    model, x = trained(Block()).to(dtype), IMAGE.to(dtype)
    made = outputs(lower(model, (x,)), x)[0]
    assert made.dtype == dtype
    tolerance = {torch.float16: 5e-3, torch.bfloat16: 5e-2, torch.float64: 1e-10}[dtype]
    torch.testing.assert_close(made, model(x), rtol=tolerance, atol=tolerance)


def test_half_precision_alone_is_as_exact_as_torch() -> None:
    """A BatchNorm by itself in float16, over parameters in float16, gives torch's bits or their neighbours."""
    model, x = trained(nn.BatchNorm2d(4)).half(), IMAGE.half()
    torch.testing.assert_close(outputs(lower(model, (x,)), x)[0], model(x), rtol=1e-3, atol=1e-3)


def test_other_weights_give_the_other_model_and_the_first_ones_its_first_bits() -> None:
    """Weights A, then B, then A: each time the results are those of the model, the last time bit by bit."""
    one, two = trained(Block(), 1), trained(copy.deepcopy(Block()), 2)
    program = lower(one, (IMAGE,))
    first = outputs(program, IMAGE)[0]
    torch.testing.assert_close(outputs(program, IMAGE, state=two.state_dict())[0], two(IMAGE), rtol=1e-4, atol=1e-4)
    assert torch.equal(outputs(program, IMAGE, state=one.state_dict())[0], first)


@pytest.mark.parametrize(
    ("model", "operator"),
    [
        (nn.BatchNorm2d(4, track_running_stats=False).eval(), "_native_batch_norm_legit"),
        (nn.BatchNorm2d(4).train(), "_native_batch_norm_legit_functional"),
        (
            Functional(lambda x, mean, var: nn.functional.batch_norm(x, mean, var + 1)),
            "_native_batch_norm_legit_no_training",
        ),
        (
            Functional(lambda x, mean, var: nn.functional.batch_norm(x, mean.add_(1), var)),
            "_native_batch_norm_legit_no_training",
        ),
    ],
)
def test_what_is_not_made_of_weights_alone_is_left(model: nn.Module, operator: str) -> None:
    """Statistics of the batch, statistics that the program computes, and statistics that a call changes stay."""
    assert operator in operators(lower(model, (IMAGE,)))


def test_returned_statistics_keep_the_batch_norm() -> None:
    """A BatchNorm whose mean is a result as well is left, since nothing else makes it."""
    program = lower(
        Functional(lambda x, mean, var: torch.native_batch_norm(x, None, None, mean, var, False, 0.1, 1e-5)), (IMAGE,)
    )
    assert "_native_batch_norm_legit_no_training" in operators(program)


def test_a_batch_norm_that_calls_change_is_left() -> None:
    """In train mode running statistics change, so no recipe may be made of them."""
    program = lower(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).train(), (ROWS,))
    assert all(weight.slot for weight in program.interface.weights)


def test_momentum_means_nothing_in_eval_mode() -> None:
    """Only this pass makes models that differ in momentum alone one program; those that differ in eps are two."""
    plain = nn.BatchNorm2d(4).eval()
    only_with("batch_norm", plain, nn.BatchNorm2d(4, momentum=0.5).eval(), IMAGE)
    assert digest(lower(nn.BatchNorm2d(4, eps=1e-3).eval(), (IMAGE,))) != digest(lower(plain, (IMAGE,)))


def test_the_recipe_is_in_the_key() -> None:
    """A convolution with a BatchNorm folded in is not the convolution without it, and crossed statistics are others."""
    conv, norm = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4).eval()
    folded = digest(lower(nn.Sequential(conv, norm).eval(), (IMAGE,)))
    assert folded != digest(lower(conv, (IMAGE,)))
    apply = nn.functional.batch_norm
    one = Functional(lambda x, mean, var: apply(apply(x, mean, var), mean, var))
    other = Functional(lambda x, mean, var: apply(apply(x, mean, var), var, mean))
    assert digest(lower(one, (IMAGE,))) != digest(lower(other, (IMAGE,)))


def test_all_ways_to_say_it_are_one() -> None:
    """The module, the function and ``native_batch_norm`` without training are one program."""
    ways = [
        nn.BatchNorm2d(4, affine=False).eval(),
        Functional(lambda x, mean, var: nn.functional.batch_norm(x, mean, var)),
        Functional(lambda x, mean, var: torch.native_batch_norm(x, None, None, mean, var, False, 0.1, 1e-5)[0]),
    ]
    assert len({digest(lower(way, (IMAGE,))) for way in ways}) == 1


def test_one_layer_called_twice_has_its_weights_once() -> None:
    """Equal recipes are one engine weight."""
    layer = trained(nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)))
    program = lower(nn.Sequential(layer, layer), (IMAGE,))
    assert len(program.interface.weights) == 2
    torch.testing.assert_close(outputs(program, IMAGE)[0], layer(layer(IMAGE)), rtol=1e-5, atol=1e-5)


def test_the_pass_is_idempotent_and_says_what_it_did() -> None:
    """The second run changes nothing and says so, as does a run over a graph with no BatchNorm."""
    marked = mark(decompose(export(trained(Block()), (IMAGE,), {}, None), ()))
    assert BatchNorm()(marked.graph_module).modified
    nodes = [(node.target, node.args) for node in marked.graph_module.graph.nodes]
    assert not BatchNorm()(marked.graph_module).modified
    assert [(node.target, node.args) for node in marked.graph_module.graph.nodes] == nodes


@pytest.mark.parametrize("backend", ["interpreter", pytest.param("aot_inductor", marks=pytest.mark.slow)])
def test_an_engine_is_refitted_with_folded_weights(interpreter: str, engines: Path, backend: str) -> None:
    """Refitted with a second model and then with the first, it gives their results, the first one's to the bit."""
    one, two = trained(Block(), 1), trained(Block(), 2)
    module = trtcache.compile(one, (IMAGE,), backend=backend, cache=engines)
    first = module(IMAGE)
    torch.testing.assert_close(first, one(IMAGE), rtol=1e-5, atol=1e-5)
    module.refit(two)
    torch.testing.assert_close(module(IMAGE), two(IMAGE), rtol=1e-5, atol=1e-5)
    module.refit(one.state_dict())
    assert torch.equal(module(IMAGE), first)


def test_folded_weights_follow_a_refit_only(interpreter: str, engines: Path) -> None:
    """A change of the model in place does not reach weights that a recipe made; a refit does."""
    model = trained(Block(), 3)
    module = trtcache.compile(model, (IMAGE,), backend=interpreter, cache=engines)
    before = module(IMAGE)
    with torch.no_grad():
        model.norms[0].running_mean.add_(1)
    assert torch.equal(module(IMAGE), before)
    module.refit(model)
    torch.testing.assert_close(module(IMAGE), model(IMAGE), rtol=1e-5, atol=1e-5)


def test_a_refit_names_the_statistics_that_do_not_fit(interpreter: str, engines: Path) -> None:
    """Each weight that a recipe uses is checked under the model's name for it, before anything is computed."""
    model = trained(Block(), 4)
    module = trtcache.compile(model, (IMAGE,), backend=interpreter, cache=engines)
    before, state = module(IMAGE), model.state_dict()
    del state["norms.0.running_var"]
    state["norms.1.running_mean"] = torch.zeros(5)
    with pytest.raises(RefitError) as caught:
        module.refit(state)
    assert caught.value.missing == ("norms.0.running_var",)
    assert caught.value.mismatched == ("norms.1.running_mean (shape (5,), the engine has (4,))",)
    assert torch.equal(module(IMAGE), before)


def test_a_model_with_renamed_modules_has_the_same_recipes() -> None:
    """Recipes are over slots, so names have no say in the key."""

    class Renamed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.z_norm, self.a_conv = nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.z_norm(self.a_conv(x))
            return made

    plain = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4))
    assert digest(lower(Renamed().eval(), (IMAGE,))) == digest(lower(plain.eval(), (IMAGE,)))
