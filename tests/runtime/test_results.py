"""What a compiled module returns that is no plain tensor: None, sizes, and numbers read from tensors."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.utils import _pytree as pytree

import trtcache
from tests.models import Calls, Pair
from trtcache.errors import ExportError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def compiled(interpreter: str, engines: Path) -> Callable[..., trtcache.CompiledModule]:
    """``trtcache.compile`` with the interpreter and the session's cache."""

    def compile_(*args: Any, **kwargs: Any) -> trtcache.CompiledModule:
        return trtcache.compile(*args, cache=engines, **{"backend": interpreter, **kwargs})

    return compile_


class Attention(nn.Module):
    """Multi-head attention by torch's fused operator, whose second output is None without weights."""

    def __init__(self, need_weights: bool) -> None:
        super().__init__()
        self.inward, self.outward = nn.Linear(8, 24), nn.Linear(8, 8)
        self.need_weights = need_weights

    def forward(self, x: torch.Tensor) -> Any:
        weights = (self.inward.weight, self.inward.bias, self.outward.weight, self.outward.bias)
        return torch._native_multi_head_attention(x, x, x, 8, 2, *weights, need_weights=self.need_weights)


@pytest.mark.parametrize("backend", ["interpreter", "aot_inductor"])
def test_an_output_that_an_operator_gives_as_none_is_none(
    compiled: Callable[..., trtcache.CompiledModule], backend: str
) -> None:
    """Its fake implementation says an empty tensor."""
    model, x = Attention(need_weights=False).eval(), torch.randn(2, 3, 8)
    module = compiled(model, (x,), backend=backend)
    found, nothing = module(x)
    torch.testing.assert_close(found, model(x)[0])
    assert nothing is None
    traced = torch.export.export(Calls(lambda _, x: module(x)), (x,)).module()(x)
    assert traced[1] is None


def test_attention_weights_that_are_asked_for_are_returned(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """The second output is a tensor then."""
    model, x = Attention(need_weights=True).eval(), torch.randn(2, 3, 8)
    torch.testing.assert_close(compiled(model, (x,))(x), model(x))


class Sized(nn.Module):
    """Numbers made of sizes, beside a tensor."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        n, m = x.shape
        return torch.softmax(x, -1) + y.sum(), n, {"twice": n * 2 + 1, "rest": (n * m) % 7}, m


class Read(nn.Module):
    """Numbers that are read from tensors."""

    def forward(self, x: torch.Tensor) -> Any:
        count = x.nonzero().shape[0]
        return x * 2, x.flatten().argmax().item(), (x.sum() > 3).item(), count, count * 2 + 1, x.max().item()


SIZED = (torch.randn(3, 4), torch.randn(2))
OTHERS = ((torch.randn(7, 2), torch.randn(5)), (torch.randn(1, 9), torch.randn(2)))
VARYING = {"x": {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, "y": {0: Dim.DYNAMIC}}


def check(model: nn.Module, module: Any, *calls: tuple[torch.Tensor, ...]) -> None:
    """Compare outputs, whose numbers must be of the same types."""
    for args in calls:
        wanted, found = pytree.tree_flatten(model(*args)), pytree.tree_flatten(module(*args))
        assert found[1] == wanted[1]
        for one, other in zip(wanted[0], found[0], strict=True):
            assert type(one) is type(other)
            torch.testing.assert_close(other, one)


@pytest.mark.parametrize("backend", ["interpreter", "aot_inductor"])
def test_a_size_is_returned_as_the_number_of_this_call(
    compiled: Callable[..., trtcache.CompiledModule], backend: str, tmp_path: Path
) -> None:
    """After a build, an alias, from a file, after export and load, and in parts."""
    model = Sized()
    for _ in range(2):
        module = compiled(model, SIZED, dynamic_shapes=VARYING, backend=backend)
        check(model, module, SIZED, *OTHERS)
    torch.export.save(torch.export.export(model, SIZED, dynamic_shapes=VARYING), tmp_path / "model.pt2")
    for _ in range(2):
        check(model, compiled(tmp_path / "model.pt2", backend=backend), SIZED, *OTHERS)
    divided = compiled(
        model, SIZED, dynamic_shapes=VARYING, backend=backend, settings={"torch_executed_ops": ["aten.softmax.int"]}
    )
    assert divided.report.left
    check(model, divided, SIZED, OTHERS[0])
    check(model, copy.deepcopy(module), SIZED)


def test_programs_that_return_other_sizes_have_other_keys(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """What is returned is part of the program, though no engine computes it."""
    keys = set()
    for number in (
        lambda x: x.shape[0],
        lambda x: x.shape[1],
        lambda x: x.shape[0] * 2,
        lambda x: x.shape[0] / 2,
        lambda x: x.shape[0] > x.shape[1],
        lambda x: x.shape[0] >= x.shape[1],
        lambda x: x.shape[0] == x.shape[1],
    ):
        model = Calls(lambda _, x, number=number: (x * 2, number(x)))
        for _ in range(2):
            module = compiled(model, SIZED[:1], dynamic_shapes={"args": ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},)})
            check(model, module, SIZED[:1], OTHERS[0][:1], (torch.randn(5, 5),))
        keys.add(module.report.partitions[0].key.digest)
    assert len(keys) == 7


@pytest.mark.parametrize("backend", ["interpreter", "aot_inductor"])
def test_a_number_that_is_read_from_a_tensor_is_returned_as_a_number(
    compiled: Callable[..., trtcache.CompiledModule], backend: str
) -> None:
    """The engine gives a tensor of one element for it."""
    x = torch.tensor([[0.5, 0.0, 2.0], [1.0, 0.0, 0.25]])
    for _ in range(2):
        module = compiled(Read(), (x,), dynamic_shapes=({0: Dim.DYNAMIC},), backend=backend)
        check(Read(), module, (x,), (torch.zeros(4, 3),), (torch.ones(5, 3),))


@pytest.mark.parametrize(
    ("number", "what"),
    [
        (lambda x: x.shape[0] * 0.1, "a float"),
        (lambda x: x.sum().item() * 2, "a float"),
        (lambda x: x.nonzero().shape[0] > 3, "a truth value"),
    ],
)
def test_a_number_that_could_be_off_by_a_bit_is_refused(
    compiled: Callable[..., trtcache.CompiledModule], number: Callable[[torch.Tensor], Any], what: str
) -> None:
    """A tracer rearranges arithmetic on floats when it traces; and no tensor has a computed truth value."""
    model = Calls(lambda _, x: (x * 2, number(x)))
    with pytest.raises(ExportError, match=f"it returns {what} that is computed at the call.*return a tensor"):
        compiled(model, SIZED[:1], dynamic_shapes={"args": ({0: Dim.DYNAMIC},)})


def test_a_size_that_cannot_be_computed_is_an_input_error(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """Eager torch raises ZeroDivisionError there."""
    model = Calls(lambda _, x: (x * 2, x.shape[0] // (x.shape[1] - 5)))
    module = compiled(model, SIZED[:1], dynamic_shapes={"args": ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},)})
    check(model, module, SIZED[:1], (torch.randn(3, 7),))
    with pytest.raises(InputError):
        module(torch.randn(3, 5))


def test_numbers_are_seen_by_a_tracer(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """torch.export of a module with such an engine in it returns numbers as the model does."""
    engine = compiled(Sized(), SIZED, dynamic_shapes=VARYING)
    shapes = {"args": ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, {0: Dim.DYNAMIC})}
    traced = torch.export.export(Calls(lambda _, *args: engine(*args)), SIZED, dynamic_shapes=shapes, strict=False)
    check(Sized(), lambda *args: traced.module()(*args), SIZED, OTHERS[0])
    reading = compiled(Read(), (torch.ones(2, 3),), dynamic_shapes=({0: Dim.DYNAMIC},))
    traced = torch.export.export(Calls(lambda _, x: reading(x)), (torch.ones(2, 3),), strict=False)
    check(Read(), lambda x: traced.module()(x), (torch.ones(2, 3),), (torch.eye(2, 3),))


class Caches(nn.Module):
    """A model that returns new caches, and equal tensors that are computed twice."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, 4))

    def forward(self, x: torch.Tensor) -> Any:
        """Return tensors that share no memory."""
        caches = [torch.zeros(1, 4) for _ in range(3)]
        return caches, x + 1, (x + 1).view(2, 2), self.weight.clone(), self.weight.clone(), x.clone(), x.clone(), x * 2


@pytest.mark.parametrize("backend", ["interpreter", "aot_inductor"])
def test_equal_results_have_memory_of_their_own(backend: str, compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """A caller may write to one of several new caches, and does not change another."""
    x = torch.arange(4.0).view(1, 4)
    module = compiled(Caches().eval(), (x,), backend=backend)
    leaves = pytree.tree_leaves(module(x))
    expected = [leaf.detach() for leaf in pytree.tree_leaves(Caches()(x))]
    assert len({leaf.untyped_storage().data_ptr() for leaf in leaves}) == len(expected)
    for place, leaf in enumerate(leaves):
        leaf.fill_(7)
        assert all(
            torch.equal(one, other) for one, other in zip(leaves[place + 1 :], expected[place + 1 :], strict=True)
        )


def _without_grad(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return x[:]


VIEWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "detach": lambda x: x.detach(),
    "slice": lambda x: x[:],
    "slice of a dimension": lambda x: x[:, 0:4],
    "squeeze": lambda x: x.squeeze(0),
    "expand": lambda x: x.expand(3, 4),
    "narrow": lambda x: x.narrow(0, 0, 3),
    "view": lambda x: x.view(3, 4),
    "permute": lambda x: x.permute(0, 1),
    "twice transposed": lambda x: x.t().t(),
    "viewed back": lambda x: x.view(12).view(3, 4),
    "a dimension added and removed": lambda x: x.unsqueeze(0).squeeze(0),
    "a part of one": lambda x: x.split(3)[0],
    "unbound": lambda x: x.unsqueeze(0).unbind(0)[0],
    "view_as": lambda x: x.view_as(x),
    "detached slice": lambda x: x[:].detach(),
    "slice without gradient": _without_grad,
    "itself": lambda x: x,
    "itself beside views": lambda x: (x, x[:], x.detach(), x.view(3, 4)),
    "views of a result": lambda x: (y := x * 2, y[:], y.view(3, 4), y.detach()),
    "one result twice": lambda x: (y := x * 2, y),
    "beside a number": lambda x: (x[:], 3, x.shape[0], x * 2),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_a_tensor_of_its_own(
    compiled: Callable[..., trtcache.CompiledModule], name: str, grad: bool, tmp_path: Path
) -> None:
    """A caller that changes the shape of a result does not change that of its argument, or of another result."""
    model = Calls(lambda _, x: VIEWS[name](x))
    module = compiled(model, (torch.ones(3, 4),))
    again = compiled(model, (torch.ones(3, 4),))
    trtcache.export(module, tmp_path / "program.pt2")
    for one in (module, again, trtcache.load(tmp_path / "program.pt2", trust="local-file")):
        x = torch.ones(3, 4, requires_grad=grad)
        made, expected = pytree.tree_leaves(one(x)), pytree.tree_leaves(model(x))
        tensors = [(a, b) for a, b in zip(made, expected, strict=True) if isinstance(b, torch.Tensor)]
        for result, eager in tensors:
            assert (result is x) is (eager is x)
            if eager.untyped_storage()._cdata == x.untyped_storage()._cdata:
                # torch lets a view that is made without gradients say that it requires them.
                assert result.requires_grad is (eager.requires_grad and name != "slice without gradient")
                assert result.data_ptr() == x.data_ptr()
        assert len({id(a) for a, _ in tensors}) == len({id(b) for _, b in tensors})
        for result, eager in tensors:
            if eager is not x:
                with torch.no_grad():
                    result.unsqueeze_(0)
        assert x.shape == (3, 4)


def test_a_view_has_a_key_of_its_own(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """``x`` and ``x[:]`` are one lowered graph, and two programs; a program without views has the key of before."""
    functions = (VIEWS[name] for name in ("itself", "slice", "detach"))
    modules = [compiled(Calls(lambda _, x, f=function: f(x)), (torch.ones(3, 4),)) for function in functions]
    keys = [one.report.partitions[0].key for one in modules]
    assert len(set(keys)) == 3
    assert ["views" in one.parts for one in keys if one is not None] == [False, True, True]


class Shapes(nn.Module):
    """The shape of the argument, in several containers."""

    def forward(self, x: torch.Tensor) -> Any:
        return x * 2, {"shape": x.shape, "pair": Pair(x.shape, [x.size()])}, torch.max(x, 0), tuple(x.shape)


@pytest.mark.parametrize("model", [Shapes(), Calls(lambda _, x: x.shape)], ids=["nested", "alone"])
@pytest.mark.parametrize("shapes", [None, {0: Dim.DYNAMIC}], ids=["fixed", "dynamic"])
def test_a_shape_is_a_size(
    compiled: Callable[..., trtcache.CompiledModule], model: nn.Module, shapes: Any, tmp_path: Path
) -> None:
    """Not a tuple, which has no ``numel``."""
    given = shapes and (((shapes,),) if isinstance(model, Calls) else (shapes,))
    module = compiled(model, (torch.ones(3, 4),), dynamic_shapes=given)
    trtcache.export(module, tmp_path / "program.pt2")
    for one in (module, trtcache.load(tmp_path / "program.pt2", trust="local-file")):
        for x in (torch.ones(3, 4), torch.ones(5, 4))[: 1 + bool(shapes)]:
            made, expected = one(x), model(x)
            assert repr(made) == repr(expected)
