"""Key aliases of programs in memory: their uses, and programs without one."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import trtcache
from tests import models
from tests.comparing import differ, difference
from tests.models import Affine, Case
from trtcache import lowering
from trtcache.errors import ExportError
from trtcache.keys import alias_key as key_alias
from trtcache.keys.program_digest import exported_digest
from trtcache.lowering.model_state import quiet
from trtcache.store.disk import DiskStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = torch.randn(3, 4)
CASES = sorted(set(models.cases()) - {"no_outputs"})


def exported(model: nn.Module, args: tuple[Any, ...] = (X,), **how: Any) -> torch.export.ExportedProgram:
    """Export a model."""
    with quiet():
        return torch.export.export(model, args, strict=False, **how)


def routes(compile_: Callable[..., trtcache.CompiledModule], *args: Any, **kwargs: Any) -> list[str]:
    """Return the routes of two compiles of the same."""
    return [compile_(*args, **kwargs).report.route for _ in range(2)]


@pytest.mark.parametrize("name", CASES)
def test_a_model_that_is_compiled_again_is_not_lowered(
    compiled: Callable[..., trtcache.CompiledModule], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """For every kind of model the second compile uses the key alias, with equal results and refits."""
    case: Case = models.cases()[name]
    first = compiled(case.model, case.args, case.kwargs)
    monkeypatch.setenv("TRTCACHE_FORBID_BUILD", "1")
    monkeypatch.setattr(lowering, "lower", None)
    second = compiled(case.model, case.args, case.kwargs)
    assert (first.report.route, second.report.route) == ("lowered", "alias")
    assert differ(first, second, case) is None


def test_a_retrained_model_uses_the_same_alias(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """No weight is read, and results are those of the retrained model; a model with other names is lowered."""
    compiled(Affine(), (X,))
    other = compiled(Affine(2.0), (X,))
    assert other.report.route == "alias"
    assert difference(Affine(2.0)(X), other(X)) is None
    renamed = compiled(nn.Sequential(Affine(3.0)), (X,))
    assert (renamed.report.route, renamed.report.partitions[0].outcome) == ("lowered", "hit")
    assert difference(Affine(3.0)(X), renamed(X)) is None


def test_dynamic_sizes_work_through_an_alias(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """Dynamic sizes stay dynamic; other ranges or other examples have another alias."""
    model, given = nn.Linear(4, 4), {"dynamic_shapes": ({0: torch.export.Dim("batch", min=2, max=9)},)}
    assert routes(compiled, model, (X,), **given) == ["lowered", "alias"]
    module = compiled(model, (X,), **given)
    for batch in (2, 9):
        assert difference(model(X[:1].expand(batch, 4)), module(X[:1].expand(batch, 4))) is None
    with pytest.raises(trtcache.errors.InputError, match="size 2 to 9"):
        module(X[:1])
    wider = {"dynamic_shapes": ({0: torch.export.Dim("batch", min=2, max=10)},)}
    assert compiled(model, (X,), **wider).report.route == "lowered"


def test_the_report_has_the_time_saved_by_the_alias(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """The report has the seconds of export, and none of decomposition, lowering and key; so has the printed table."""
    first, second = (compiled(Affine(), (X,)).report for _ in range(2))
    assert second.export_s > 0
    assert (second.decompose_s, second.lower_s, second.key_s) == (0, 0, 0)
    assert second.alias_saved_s == pytest.approx(first.decompose_s + first.lower_s + first.key_s)
    assert "of decompositions and lowering" in str(second)


def test_an_exported_program_and_its_model_share_an_alias(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """The alias depends on the graph, not on its export; named arguments need the model's signature."""
    model = models.Keywords()
    compiled(model, (X,))
    program = compiled(exported(model))
    assert program.report.route == "alias"
    again = compiled(model, (X,))
    assert difference(model(x=X), again(x=X)) is None
    with pytest.raises(trtcache.errors.InputError):
        program(x=X)


class Kept(nn.Module):
    """A constant of some value, and a buffer that no state_dict has."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.register_buffer("kept", torch.full((4,), value), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.kept + torch.tensor([1.0, 2.0, 3.0, 4.0])


def test_values_of_constants_are_in_the_digest() -> None:
    """Engines contain constants, so a model with other constants is another program."""
    assert len({str(exported_digest(exported(Kept(value)))) for value in (1.0, 2.0, 2.0)}) == 2


def _tied() -> nn.Module:
    model = nn.ModuleDict({"one": nn.Linear(4, 4), "two": nn.Linear(4, 4)})
    model["two"].weight = model["one"].weight
    return model


def _one_memory() -> nn.Module:
    model = nn.ModuleDict({"one": nn.Linear(4, 4), "two": nn.Linear(4, 4)})
    values = torch.randn(4, 4).numpy()
    for layer in model.values():
        layer.weight = nn.Parameter(torch.from_numpy(values))
    return model


def _turned() -> nn.Module:
    model = nn.ModuleDict({"one": nn.Linear(4, 4), "two": nn.Linear(4, 4)})
    model["one"].weight = nn.Parameter(torch.randn(4, 4).t())
    return model


class Two(nn.Module):
    """Two layers, whose weights are what they are."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers["two"](self.layers["one"](x))


def test_layout_and_sharing_of_weights_are_in_the_digest() -> None:
    """Tied weights and weights of another layout make another program, since engines are built for them."""
    plain = nn.ModuleDict({"one": nn.Linear(4, 4), "two": nn.Linear(4, 4)})
    others = (_tied(), _turned(), _one_memory())
    found = [str(exported_digest(exported(Two(layers)))) for layers in (plain, copy.deepcopy(plain), *others)]
    assert found[0] == found[1]
    assert len(set(found)) == 4


class Halved(torch.Tensor):
    """A weight that is no plain tensor."""


def test_a_program_without_digest_is_lowered(
    compiled: Callable[..., trtcache.CompiledModule], caplog: pytest.LogCaptureFixture
) -> None:
    """A program with a weight of an unsupported type is compiled without key alias, and the log has the reason."""
    model = nn.Linear(4, 4)
    program = exported(model)
    name = next(iter(program.state_dict))
    program._state_dict[name] = nn.Parameter(program.state_dict[name].detach().as_subclass(Halved))
    with pytest.raises(ValueError, match="weight is a "):
        exported_digest(program)
    with caplog.at_level("INFO"):
        assert routes(compiled, program) == ["lowered", "lowered"]
    assert "has no key alias" in caplog.text


@pytest.fixture(scope="module")
def library() -> Any:
    """A library with an operator that torch takes apart when it decomposes."""
    made = torch.library.Library("livelib", "DEF")
    made.define("composite(Tensor x, float by) -> Tensor")
    made.impl("composite", lambda x, by: x * by + 1, "CompositeImplicitAutograd")
    return made


class Scaled(nn.Module):
    """A model with an operator that is not torch's."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.livelib.composite(x, 2.0)


def test_custom_operators_need_versions_for_an_alias(
    compiled: Callable[..., trtcache.CompiledModule], library: Any
) -> None:
    """A custom operator is code of this process, which no key covers without its version."""
    assert routes(compiled, Scaled(), (X,)) == ["lowered", "lowered"]
    settings = {"operator_versions": {"livelib::composite": "1"}}
    assert routes(compiled, Scaled(), (X,), settings=settings) == ["lowered", "alias"]


@pytest.mark.parametrize("settings", [None, {"freezer": {"refit": False}}])
def test_an_engine_with_embedded_weights_is_found_by_their_values(
    compiled: Callable[..., trtcache.CompiledModule], settings: Any
) -> None:
    """Its key has the values, which aliases in memory do not compare: other weights need another engine."""
    given = {"backend": "freezer", "settings": settings}
    assert routes(compiled, Affine(), (X,), **given) == ["lowered", "lowered"]
    other = compiled(Affine(2.0), (X,), **given)
    assert other.report.partitions[0].outcome == "built"
    assert difference(Affine(2.0)(X), other(X)) is None


def test_an_alias_of_another_program_is_rejected_and_counted(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path
) -> None:
    """It does not fit the program; it is quarantined, and the next one is used again."""
    compiled(nn.Linear(4, 4), (X,))
    store = DiskStore.open(tmp_path / "cache")
    (other,) = _alias_digests(store)
    content = bytes(store.get(store.header(other).key).read("alias.json"))  # type: ignore[union-attr]  # it is there
    store.remove(other)
    compiled(Affine(), (X,))
    (mine,) = _alias_digests(store)
    store.put(store.header(mine).key, {"alias.json": content}, kind=key_alias.KIND)
    module = compiled(Affine(), (X,))
    assert module.report.route == "lowered"
    assert difference(Affine()(X), module(X)) is None
    assert compiled(Affine(), (X,)).report.route == "alias"
    assert [event.reason for event in store.events.read() if event.event == "reject"] == ["alias"]


def _alias_digests(store: DiskStore) -> list[str]:
    return [one.digest for one in store.scan() if store.header(one.digest).kind == key_alias.KIND]


def test_an_example_that_is_a_view_has_dynamic_sizes(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """A view of another tensor is an example like its copy, and calls may pass views and others."""
    model, dynamic = nn.Linear(4, 4), ({0: torch.export.Dim("batch", min=2, max=9)},)
    module = compiled(model, (torch.linspace(-2.0, 2.0, 12).view(3, 4),), dynamic_shapes=dynamic)
    for given in (torch.randn(7, 4), torch.randn(9, 8)[1:5, :4], torch.randn(4, 5).t()[:, :4]):
        torch.testing.assert_close(module(given), model(given))


def _graph() -> torch.fx.GraphModule:
    return torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))


def test_a_graph_module_that_is_not_its_graph_is_refused(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """torch.export runs the graph, without the generated code and forward hooks: another program than the module."""
    model = _graph()
    assert difference(model(X), compiled(model, (X,))(X)) is None
    next(node for node in model.graph.nodes if node.op == "output").args[0].replace_all_uses_with(
        next(node for node in model.graph.nodes if node.op == "placeholder")
    )
    with pytest.raises(ExportError, match=r"recompile\(\)"):
        compiled(model, (X,))
    model.recompile()
    assert difference(X, compiled(model, (X,))(X)) is None
    hooked = _graph()
    hooked.register_forward_hook(lambda _, __, out: out + 1)
    with pytest.raises(ExportError, match="hooks"):
        compiled(hooked, (X,))
    inside = nn.Sequential(hooked)
    assert difference(inside(X), compiled(inside, (X,))(X)) is None


def test_the_module_of_an_exported_program_is_compiled(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """It is a GraphModule with a forward hook of torch's own."""
    module = exported(Affine()).module()
    assert difference(module(X), compiled(module, (X,))(X)) is None


class _Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((4,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


def test_a_frozen_script_inside_of_a_module(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """It has no attribute ``training``."""
    model = nn.Sequential(torch.jit.freeze(torch.jit.script(_Scaled().eval())))
    assert difference(model(X), compiled(model, (X,))(X)) is None
