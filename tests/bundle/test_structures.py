"""How arguments and outputs are nested, signatures, and what torch computes, as JSON and back."""

from __future__ import annotations

import inspect
import json
import warnings
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import fx
from torch.utils import _pytree as pytree
from transformers.modeling_outputs import BaseModelOutput

from trtcache.bundle.archive import read_signature, write_signature
from trtcache.bundle.formats import (
    MissingOperator,
    Output,
    read_graph,
    read_structure,
    without_classes,
    write_graph,
    write_structure,
)
from trtcache.runtime.argument_order import make_output, read_nodes, type_without_torch, unflatten

X = torch.ones(2)


class Pair(NamedTuple):
    first: Any
    second: Any


class Within:
    class Pair(NamedTuple):
        """One within another class."""

        one: Any
        other: Any


class Typed:
    def __init__(self, value: Any) -> None:
        self.value = value


pytree.register_pytree_node(
    Typed,
    lambda typed: ([typed.value], Typed),
    lambda values, kind: kind(*values),  # type: ignore[operator]
    serialized_type_name="tests.Typed",
    to_dumpable_context=lambda kind: kind.__name__,
    from_dumpable_context=lambda _: Typed,
)


@dataclass
class Boxes:
    corners: Any
    score: Any
    label: Any = None


torch.export.register_dataclass(Boxes)

STRUCTURES = {
    "leaf": X,
    "plain": (X, [X, {"a": X, 3: (X, None)}]),
    "ordered": OrderedDict(b=X, a=X),
    "default": defaultdict(list, a=[X]),
    "default of nothing": defaultdict(None, a=X),
    "named within": Within.Pair(X, X),
    "class with a type": Typed(X),
    "torch's own": torch.return_types.max((X, X)),
    "deque": deque([X, X], maxlen=3),
    "named": Pair(X, Pair(X, X)),
    "model output": BaseModelOutput(last_hidden_state=X, hidden_states=(X, X)),
    "dataclass": Boxes(X, [X, X]),
    "nothing": ((), {}),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_structure_comes_back(name: str) -> None:
    """Here, where every class is known, it is the same structure."""
    spec = pytree.tree_structure(STRUCTURES[name])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_structure(json.loads(json.dumps(write_structure(spec)))) == spec
        without_classes(spec)


def test_what_cannot_be_named_is_refused_when_it_is_written() -> None:
    """A mapping whose missing values a function makes would be a file that nothing loads."""
    with pytest.raises(ValueError, match="which a file cannot name"):
        write_structure(pytree.tree_structure(defaultdict(lambda: X, a=X)))


def test_a_class_that_is_not_here_is_an_output_with_its_names() -> None:
    """Parts are had by attribute, by name and by place; attributes that the model left out are None."""
    written: Any = write_structure(pytree.tree_structure(STRUCTURES["model output"]))
    written["name"] = "far.away.Output"
    spec = read_structure(written)
    output = pytree.tree_unflatten([1, 2, 3], spec)
    assert isinstance(output, Output)
    assert (output.last_hidden_state, output["hidden_states"], output[0], output[1:]) == (1, (2, 3), 1, ((2, 3),))
    assert output.attentions is None
    named = make_output([1, 2], ("far.away.Output", ("kind", "flatten"), ("kind", "flatten")))
    assert (named.kind, named.flatten) == (1, 2)
    with pytest.raises(AttributeError, match="it has last_hidden_state, hidden_states"):
        output.other  # noqa: B018
    assert pytree.tree_structure(output) == spec
    assert read_structure(write_structure(spec)) == spec


def test_a_namedtuple_that_is_not_here_is_one_of_its_fields() -> None:
    """It has the same fields in the same order."""
    written: Any = write_structure(pytree.tree_structure(Pair(X, X)))
    written["name"] = "far.away.Pair"
    made = pytree.tree_unflatten([1, 2], read_structure(written))
    assert (made.first, made.second, type(made).__name__) == (1, 2, "Pair")


def test_a_key_that_json_has_not_is_refused() -> None:
    """A mapping by tuples cannot be written."""
    with pytest.raises(ValueError, match=r"has the key \(1, 2\)"):
        write_structure(pytree.tree_structure({(1, 2): X}))


BROKEN_STRUCTURES = {
    "number": 3,
    "kind": {"kind": "module", "parts": []},
    "names": {"kind": "dict", "keys": ["a"], "parts": []},
    "twice": {"kind": "dict", "keys": ["a", "a"], "parts": [None, None]},
    "code": {"kind": "named", "name": "x.y", "keys": ["a", "import os"], "parts": [None]},
}


@pytest.mark.parametrize("name", BROKEN_STRUCTURES)
def test_what_is_no_structure_is_refused(name: str) -> None:
    """Other kinds and names that do not fit are errors."""
    with pytest.raises(ValueError, match=r"structure|mapping"):
        read_structure(BROKEN_STRUCTURES[name])


def test_a_structure_is_nested_so_deep_and_no_deeper() -> None:
    """A file cannot make a reader go down for ever."""
    written: Any = None
    for _ in range(100):
        written = {"kind": "list", "parts": [written]}
    with pytest.raises(ValueError, match="not a structure"):
        read_structure(written)


class Bare:
    """A class without a context."""

    def __init__(self, value: Any) -> None:
        self.value = value


pytree.register_pytree_node(
    Bare, lambda bare: ([bare.value], None), lambda values, _: Bare(*values), serialized_type_name="tests.Bare"
)


def test_a_context_can_be_none() -> None:
    """A size has none, nor has an object of some classes, which in a file of before is ``Output``."""
    kinds: list[tuple[Any, type]] = [(torch.Size((2, 3)), tuple), (Bare(X), Output)]
    for value, in_files_of_before in kinds:
        leaves, spec = pytree.tree_flatten((X, value))
        written: Any = json.loads(json.dumps(write_structure(spec)))
        assert read_structure(written) == spec
        del written["parts"][1]["is_whole"]
        found = pytree.tree_unflatten(leaves, read_structure(written))
        assert isinstance(found[1], in_files_of_before)
    written = json.loads(json.dumps(write_structure(pytree.tree_structure(torch.Size((2, 3))))))
    assert unflatten(iter([2, 3]), read_nodes(written, type_without_torch)) == (2, 3)  # without torch


class Sided:
    """A class whose context is a tuple of texts, which are no names of its parts."""

    def __init__(self, parts: Any, context: Any) -> None:
        self.parts, self.context = parts, context


pytree.register_pytree_node(
    Sided,
    lambda sided: (list(sided.parts), sided.context),
    lambda parts, context: Sided(parts, context),
    serialized_type_name="tests.Sided",
)


@pytest.mark.parametrize("context", [("float32", "float32"), ("x", "y"), {1: "a"}, float("nan"), ["a", "b"]], ids=str)
def test_a_context_that_json_changes_is_not_in_the_file(context: Any) -> None:
    """Then the structure is read as ``Output``, whose names differ from each other."""
    leaves, spec = pytree.tree_flatten(Sided((X, X + 1), context))
    found = pytree.tree_unflatten(leaves, read_structure(json.loads(json.dumps(write_structure(spec)))))
    if context == ["a", "b"]:
        assert (type(found), found.context) == (Sided, context)
    else:
        assert isinstance(found, Output)
        assert list(found) == (["x", "y"] if context == ("x", "y") else ["0", "1"])


def test_a_signature_comes_back() -> None:
    """Names, kinds and plain defaults; another default is one that nothing else is."""

    def forward(x: Any, /, y: Any, z: Any = 2.5, *more: Any, flag: bool = True, kind: Any = X, **rest: Any) -> None: ...

    def choose(x: Any, mode: Any = inspect.Parameter.POSITIONAL_ONLY) -> None: ...  # an enum of integers

    assert str(read_signature(json.loads(json.dumps(write_signature(inspect.signature(choose)))))) == (
        "(x, mode=the model's own default)"
    )

    written = json.loads(json.dumps(write_signature(inspect.signature(forward))))
    found = read_signature(written)
    assert found is not None
    assert str(found) == "(x, /, y, z=2.5, *more, flag=True, kind=the model's own default, **rest)"
    assert read_signature(write_signature(None)) is None


def _graph(build: Any) -> fx.GraphModule:
    graph = fx.Graph()
    inputs = [graph.placeholder(name) for name in "ab"]
    graph.output(tuple(build(graph, *inputs)))
    return fx.GraphModule(torch.nn.Module(), graph)


aten = torch.ops.aten


def _every_argument(graph: fx.Graph, a: fx.Node, b: fx.Node) -> list[fx.Node]:
    total = graph.call_function(aten.add.Tensor, (a, b), {"alpha": 2})
    filled = graph.call_function(
        aten.full.default, ([2], float("inf")), {"dtype": torch.float64, "device": torch.device("cpu")}
    )
    laid = graph.call_function(aten.clone.default, (total,), {"memory_format": torch.contiguous_format})
    values = graph.call_function(aten.max.dim, (laid, 0))
    first = graph.call_function(torch.sym_max, (1, 2))
    item = graph.call_function(__import__("operator").getitem, (values, 0))
    return [graph.call_function(aten.mul.Scalar, (item, -0.0)), filled, first]


def test_what_torch_computes_comes_back() -> None:
    """Operators, numbers (infinite ones and negative zero too), dtypes, devices and layouts."""
    call = _graph(_every_argument)
    again = read_graph(json.loads(json.dumps(write_graph(call))))
    given = torch.tensor([1.0, 5.0]), torch.tensor([2.0, 3.0])
    for one, other in zip(call(*given), again(*given), strict=True):
        assert str(one) == str(other)


OPERATORS = {
    "function": "os.system",
    "library": "torch.ops.load_library",
    "loader": "load_library.x.y",
    "number": 7,
}


@pytest.mark.parametrize("name", OPERATORS)
def test_only_operators_are_called(name: str) -> None:
    """Nothing else can be named; what has the form of an operator has to be one."""
    written = {"takes": 0, "nodes": [[OPERATORS[name], ["x"], {}]], "gives": []}
    with pytest.raises((ValueError, MissingOperator), match=r"is not an operator|is not registered"):
        read_graph(written)


ARGUMENTS: dict[str, Any] = {
    "later": {"$node": 5},
    "negative": {"$node": -1},
    "module": {"$torch": "torch.load"},
    "path": {"$torch": "torch.os.path"},
    "kind": {"$code": "x"},
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_only_values_are_arguments(name: str) -> None:
    """A node that is not made yet, and a name in torch that is no dtype, are refused."""
    written = {"takes": 1, "nodes": [["aten.relu.default", [ARGUMENTS[name]], {}]], "gives": []}
    with pytest.raises(ValueError, match=r"not computed yet|of the kind"):
        read_graph(written)
