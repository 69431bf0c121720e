"""The pipeline holds each pass to its contract, and each pass of the default one keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import torch
from torch import fx

import trtcache
from tests import models
from tests.comparing import difference
from tests.lowering.graphs import marked, run
from tests.partition.parts import double
from trtcache.errors import PassError, PostconditionError, PreconditionError, TrtcacheError
from trtcache.lowering.operators import operator_name
from trtcache.lowering.passes import Pass, PassResult, spec
from trtcache.lowering.rewrites.cleanup import CommonSubexpressions, DeadCode
from trtcache.lowering.rewrites.constants import FoldConstants
from trtcache.lowering.stages import Pipeline, default_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = torch.randn(3, 4)
PASSES = default_pipeline().passes


def _printed(graph_module: fx.GraphModule) -> list[Any]:
    """Return all of a graph that a pass could change."""
    roles = graph_module.graph.output_node().meta["roles"]
    return [*((node.name, operator_name(node.target), str(node.args)) for node in graph_module.graph.nodes), roles]


@pytest.mark.parametrize("name", sorted(models.cases()))
def test_each_pass_keeps_results_tells_the_truth_and_is_idempotent(name: str) -> None:
    """After each pass the graph answers as before, a second run changes nothing, and ``modified=False`` is true."""
    case = models.cases()[name]
    graph = marked(case.model, *case.args, **case.kwargs)
    leaves = (case.args, dict(case.kwargs))
    expected = run(graph, leaves)
    for one in PASSES:
        before = _printed(graph.graph_module)
        result = one(graph.graph_module)
        assert result.graph_module is graph.graph_module
        assert result.modified or _printed(graph.graph_module) == before
        graph.graph_module.graph.lint()
        if result.modified:
            assert difference(expected, run(graph, leaves), tolerance=1e-5) is None, one
        before = _printed(graph.graph_module)
        assert not one(graph.graph_module).modified, one
        assert _printed(graph.graph_module) == before


def test_sizes_that_vary_still_vary_after_every_pass() -> None:
    """The pipeline runs a graph of a symbolic batch without fixing it."""
    rows = torch.export.Dim("rows", max=64)
    model = models.Calls(lambda lin, x: (lin(x).softmax(-1), x.sum(0), torch.cat([x, x]), x.shape[0] * x))
    graph = marked(model, X, dynamic_shapes=(({0: rows},),))
    default_pipeline().run(graph.graph_module)
    for size in (1, 2, 7):
        x = torch.randn(size, 4)
        assert difference(list(model(x)), run(graph, ((x,), {}))) is None


@dataclass(frozen=True)
class Breaks(Pass):
    """A pass that breaks its contract in a way of the test's choice."""

    how: str
    name: ClassVar[str] = "breaks"
    version: ClassVar[int] = 3

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Break it."""
        graph, output = graph_module.graph, graph_module.graph.output_node()
        match self.how:
            case "raises":
                raise IndexError("no such node")
            case "returns another":
                return PassResult(fx.GraphModule(graph_module, graph), modified=True)
            case "adds in silence":
                with graph.inserting_before(output):
                    graph.call_function(torch.ops.aten.rand.default, ([1],))
            case "changes in silence":
                output.prev.target = torch.ops.aten.sub.Tensor
            case "describes nothing":
                with graph.inserting_before(output):
                    graph.call_function(torch.ops.aten.rand.default, ([1],))
                return PassResult(graph_module, modified=True)
            case "returns nothing":
                return None  # type: ignore[return-value]  # as somebody's pass does
            case "misorders":
                last = output.prev
                next(iter(graph.nodes)).prepend(last)
                return PassResult(graph_module, modified=True)
        return PassResult(graph_module, modified=False)

    def requires(self, graph_module: fx.GraphModule) -> str | None:
        """Refuse if asked to."""
        if self.how == "cannot say":
            raise KeyError("unknown")
        return "wants no graph at all" if self.how == "refuses" else None

    def ensures(self, graph_module: fx.GraphModule) -> str | None:
        """Break the promise if asked to."""
        return "a promise is broken" if self.how == "promises" else None


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ("refuses", PreconditionError, "wants no graph"),
        ("raises", PassError, "raised IndexError: no such node"),
        ("returns another", PostconditionError, "another graph module"),
        ("adds in silence", PostconditionError, "reported no change"),
        ("changes in silence", PostconditionError, "reported no change, but changed the graph"),
        ("describes nothing", PostconditionError, "gave rand_default no meta"),
        ("returns nothing", PostconditionError, "returned NoneType, not a PassResult"),
        ("cannot say", PassError, "raised KeyError: 'unknown'"),
        ("promises", PostconditionError, "a promise is broken"),
        ("misorders", PostconditionError, "not well formed"),
    ],
)
def test_a_broken_contract_names_the_pass_and_those_before_it(
    how: str, error: type[TrtcacheError], message: str
) -> None:
    """Whatever a pass does wrong, the error says which pass it was, what it did, and what ran before."""
    graph = marked(models.Affine(), X)
    with pytest.raises(error, match=message) as raised:
        Pipeline((DeadCode(), CommonSubexpressions(), Breaks(how))).run(graph.graph_module)
    assert type(raised.value) is error
    assert "pass breaks: " in str(raised.value)
    assert "(passes that ran before: dead_code@1, common_subexpressions@1)" in str(raised.value)


def test_a_run_tells_what_each_pass_did() -> None:
    """Each pass's spec, whether it changed the graph and its seconds are in the order of the passes."""
    graph = marked(models.Calls(lambda lin, x: (x.cos(), x.sin())[1]), X)
    runs = Pipeline((DeadCode(), DeadCode())).run(graph.graph_module)
    assert [(one.spec, one.modified) for one in runs] == [("dead_code@1", True), ("dead_code@1", False)]
    assert all(one.duration_s >= 0 for one in runs)


def test_options_and_versions_are_in_the_spec() -> None:
    """The spec of a pass is what the key holds of it."""
    assert spec(FoldConstants(max_bytes=5)) == f"fold_constants@{FoldConstants.version}{{max_bytes=5}}"
    assert spec(Breaks("no")) == "breaks@3{how='no'}"


def test_the_pipeline_is_in_the_key() -> None:
    """Every pass of the default pipeline, and what a backend keeps whole, stands in the program's spec."""
    program = trtcache.lower(models.Affine(), (X,))
    assert set(default_pipeline().spec) <= set(program.pipeline)
    assert "keep@1{aten.scaled_dot_product_attention}" in program.pipeline
    document = trtcache.key(models.Affine(), (X,)).document
    assert document["parts"]["pipeline"] == list(program.pipeline)  # type: ignore[index,call-overload]


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: torch.rand(3),
        lambda x: torch.randn(3),
        lambda x: torch.rand_like(x),
        lambda x: torch.randint(0, 9, (3,)),
        lambda x: torch.randperm(5),
        lambda x: torch.bernoulli(x.sigmoid()),
        lambda x: torch.multinomial(x.softmax(-1), 2),
        lambda x: torch.normal(x, 1.0),
        lambda x: torch.nn.functional.dropout(x, 0.5, training=True),
        lambda x: torch.empty(3),
        lambda x: torch.empty_like(x),
        lambda x: double(x),
    ],
)
def test_what_is_drawn_twice_stays_drawn_twice(draw: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Common subexpressions merge no random numbers, unset memory or custom operators, nor what is made of them."""
    graph = marked(models.Calls(lambda lin, x: (draw(x), draw(x), draw(x) + 1)), X)
    default_pipeline().run(graph.graph_module)
    results = graph.graph_module.graph.output_node().args[0]
    assert len(set(results)) == 3  # type: ignore[arg-type]


def test_equal_things_are_computed_once() -> None:
    """Equal operators over equal arguments are one node; ``2`` and ``2.0`` stay two, and so do two results."""
    model = models.Calls(lambda lin, x: ((x.sin() + 1).cos(), (x.sin() + 1).tan(), x * 2, x * 2.0, x.abs(), x.abs()))
    graph = marked(model, X)
    assert CommonSubexpressions()(graph.graph_module).modified
    one, two, three, four, five, six = graph.graph_module.graph.output_node().args[0]  # type: ignore[misc]
    assert one.args[0] is two.args[0]  # type: ignore[union-attr]
    assert three is not four
    assert five is not six


def test_items_of_two_operators_stay_two_results() -> None:
    """A caller may write to one of them; what else uses the operator's results is computed once."""

    def function(_: object, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.topk(2)[0], x.topk(2)[0], x.topk(2)[0] * 2, x.sort()[0] + 1, x.sort()[1]

    graph = marked(models.Calls(function), X)
    CommonSubexpressions()(graph.graph_module)
    DeadCode()(graph.graph_module)
    one, two, *_ = graph.graph_module.graph.output_node().args[0]  # type: ignore[misc]
    assert one.args[0] is not two.args[0]  # type: ignore[union-attr]
    called = [str(node.target) for node in graph.graph_module.graph.nodes]
    assert (called.count("aten.topk.default"), called.count("aten.sort.default")) == (2, 1)


def test_dead_code_keeps_effects_and_inputs() -> None:
    """What nothing uses goes; random draws, which move torch's generator, and inputs stay."""
    graph = marked(models.Calls(lambda lin, x, y: (lin(x), x.cos(), x.sin())[2]), X, X + 1)
    first = next(node for node in graph.graph_module.graph.nodes if node.op == "call_function")
    with graph.graph_module.graph.inserting_before(first):
        graph.graph_module.graph.call_function(torch.ops.aten.rand.default, ([2],))
        graph.graph_module.graph.call_function(torch.ops.aten.cos.default, (first.all_input_nodes[0],))
    assert DeadCode()(graph.graph_module).modified
    nodes = list(graph.graph_module.graph.nodes)
    names = [operator_name(node.target) for node in nodes if node.op == "call_function"]
    assert names == ["aten.rand.default", "aten.sin.default"]
    assert sum("input" in node.meta for node in nodes) == 2
    assert not any("weight" in node.meta for node in nodes)


class Stores(torch.nn.Module):
    """Writes to a persistent and to a transient buffer, and reads neither."""

    def __init__(self, write: Callable[[Any, torch.Tensor], object]) -> None:
        super().__init__()
        self.write = write
        self.register_buffer("saved", torch.zeros(4))
        self.register_buffer("transient", torch.zeros(4), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Write, and return something else."""
        self.write(self, x)
        return x * 2


def _relay(model: Any, x: torch.Tensor) -> None:
    model.saved.copy_(model.transient)
    model.transient.copy_(x)


def _assign(model: Any, x: torch.Tensor) -> None:
    model.saved = torch.zeros_like(model.saved) + x


WRITES: dict[str, tuple[Callable[[Any, torch.Tensor], object], list[str]]] = {
    "add": (lambda model, _: model.saved.add_(1), ["saved"]),
    "fill": (lambda model, _: model.saved.fill_(3.0), ["saved"]),
    "copy": (lambda model, x: model.saved.copy_(x), ["saved"]),
    "zero and add": (lambda model, x: model.saved.zero_().add_(x), ["saved"]),
    "assign": (_assign, ["saved"]),
    "transient": (lambda model, x: model.transient.zero_().add_(x), []),
    "relay": (_relay, ["saved", "transient"]),
}


@pytest.mark.parametrize("name", WRITES)
def test_new_contents_of_buffers_in_the_state_dict_are_kept(interpreter: str, engines: Path, name: str) -> None:
    """Also if the program never reads them; of other buffers only those that are read."""
    write, stored = WRITES[name]
    model = Stores(write).eval()
    graph = marked(model, X[0])
    default_pipeline().run(graph.graph_module)
    roles = graph.graph_module.graph.output_node().meta["roles"]
    assert sorted(role.target for role in roles if role.kind == "weight") == stored
    module = trtcache.compile(model, (X[0],), backend=interpreter, cache=engines)
    for x in (X[0], X[1]):
        assert torch.equal(module(x), model(x))
        assert torch.equal(module.state_dict()["saved"], model.saved)


def test_a_buffer_that_is_overwritten_before_it_is_read_has_a_slot(interpreter: str, engines: Path) -> None:
    """The program needs its shape alone."""

    def write(model: Any, x: torch.Tensor) -> None:
        model.transient.zero_()
        x.add_(model.transient.add_(x))

    model = Stores(write).eval()
    module = trtcache.compile(model, (X[0].clone(),), backend=interpreter, cache=engines)
    mine, theirs = X[0].clone(), X[0].clone()
    assert torch.equal(module(mine), model(theirs))
    assert torch.equal(mine, theirs)


class Relay(torch.nn.Module):
    """Hands a value on through two buffers: the second call after it sees it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("near", torch.zeros(4))
        self.register_buffer("far", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what came two calls ago."""
        result = self.far.clone()
        self.far.copy_(self.near)
        self.near.copy_(x)
        return result


def test_a_store_that_a_later_call_reads_through_another_is_kept() -> None:
    """A buffer that only feeds another buffer is read all the same."""
    graph = marked(Relay(), X[0])
    default_pipeline().run(graph.graph_module)
    roles = graph.graph_module.graph.output_node().meta["roles"]
    assert {role.target for role in roles if role.kind == "weight"} == {"near", "far"}


def test_folding_takes_constants_and_exact_operators_only() -> None:
    """Slices and products of constants are computed; what a weight, a sine or a large result is in is not."""
    constant = torch.arange(6.0)

    class Folded(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(6))
            self.register_buffer("c", constant, persistent=False)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x + self.c[1:5] * 2, self.c.sin() * x.sum(), self.w * 2 * x.sum(), x.sum() * self.c.repeat(1 << 15)

    graph = marked(Folded(), X)
    expected = run(graph, ((X,), {}))
    default_pipeline().run(graph.graph_module)
    names = [operator_name(node.target) for node in graph.graph_module.graph.nodes if node.op == "call_function"]
    assert "aten.slice.Tensor" not in names
    assert {"aten.sin.default", "aten.repeat.default"} <= set(names)
    assert difference(expected, run(graph, ((X,), {})), tolerance=1e-6) is None
    folded = [value for value in graph.graph_module.buffers() if value.tolist() == [2.0, 4.0, 6.0, 8.0]]
    assert len(folded) == 1


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (lambda c: torch.add(c, c, alpha=3).abs(), "aten.add.Tensor"),
        (lambda c: torch.view_as_real(c.to(torch.complex64) * c.to(torch.complex64)).abs(), "aten.mul.Tensor"),
        (lambda c: (c * 1e30).to(torch.int32).abs(), "aten._to_copy.default"),
    ],
)
def test_what_rounds_in_another_way_on_each_processor_is_not_folded(
    function: Callable[[Any], Any], operator: str
) -> None:
    """A folded constant is in the key: its bits must be the same on every machine."""
    constant = torch.tensor([0.1, 0.2, 0.3])
    graph = marked(models.Calls(lambda _, x: (x.sin(), function(constant))), X)
    FoldConstants()(graph.graph_module)
    DeadCode()(graph.graph_module)
    calls = [node for node in graph.graph_module.graph.nodes if node.op == "call_function"]
    assert operator in [operator_name(node.target) for node in calls]
