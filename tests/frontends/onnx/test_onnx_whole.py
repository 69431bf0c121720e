"""ONNX files that say a thing twice, or in a way that readers take differently: none of them has a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx
import pytest
from onnx import TensorProto, helper

import trtcache
from tests.frontends.onnx.graphs import BRANCHES, FUNCTION, canonical, model, saved, small
from trtcache.errors import BuildError, OnnxFileError
from trtcache.frontends.onnx.file import OnnxFile
from trtcache.frontends.onnx.weights import make_parser_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SOFTMAX = "g (float[2, 4] x) => (float[2, 4] y) { y = Softmax <axis: int = 0> (x) }"
WEIGHTED = "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }"
WANTED = {"backend": "tensorrt_rtx", "target": "sm_89"}


def axis(made: onnx.ModelProto) -> Any:
    """Return the attribute of the only node."""
    return made.graph.node[0].attribute[0]


def as_float(made: onnx.ModelProto) -> None:
    """Say that the number is a float, and leave it where it is."""
    axis(made).type, axis(made).f = onnx.AttributeProto.FLOAT, 0.0


def another_function(made: onnx.ModelProto) -> None:
    """Define the same function once more, with another operator."""
    made.functions.append(made.functions[0])
    made.functions[1].node[1].op_type = "Add"


def node(made: Any, *names: str) -> None:
    """Add a node that takes the first name and makes the second."""
    made.node.append(helper.make_node("Neg", [names[0]], [names[1]]))


FAULTS: dict[str, tuple[str, Callable[[Any], object], str]] = {
    "opset": (SOFTMAX, lambda one: one.opset_import.append(helper.make_opsetid("", 9)), "two versions of domain ''"),
    "opset by its other name": (
        SOFTMAX,
        lambda one: one.opset_import.append(helper.make_opsetid("ai.onnx", 9)),
        "two versions of domain ''",
    ),
    "opset of a function": (
        FUNCTION,
        lambda one: one.functions[0].opset_import.append(helper.make_opsetid("", 9)),
        "a function in it has two versions",
    ),
    "function": (FUNCTION, another_function, "two functions .*twice"),
    "attribute": (
        SOFTMAX,
        lambda one: one.graph.node[0].attribute.append(helper.make_attribute("axis", 1)),
        "two attributes 'axis'",
    ),
    "reference": (
        SOFTMAX,
        lambda one: setattr(axis(one), "ref_attr_name", "q"),
        "refers to .*, but is not in a function",
    ),
    "type": (SOFTMAX, as_float, "of type 1, and the operator's is 2"),
    "value": (SOFTMAX, lambda one: setattr(axis(one), "f", 1.0), "a value of another type"),
    "input": (SOFTMAX, lambda one: one.graph.input.append(one.graph.input[0]), "two inputs 'x'"),
    "no output": (SOFTMAX, lambda one: one.graph.ClearField("output"), "no outputs"),
    "tensor": (SOFTMAX, lambda one: node(one.graph, "x", "y"), "two of its nodes produce 'y'"),
    "made input": (SOFTMAX, lambda one: node(one.graph, "y", "x"), "produces 'x', which is an input"),
    "made initializer": (WEIGHTED, lambda one: node(one.graph, "x", "w"), "produces 'w', which is an input or an init"),
    "in a branch": (
        BRANCHES,
        lambda one: node(one.graph.node[1].attribute[0].g, "a", "p"),
        "two of its nodes produce 'p'",
    ),
    "in a function": (FUNCTION, lambda one: node(one.functions[0], "p", "q"), "two of its nodes produce 'q'"),
    "sizes below zero": (
        WEIGHTED,
        lambda one: one.graph.initializer[0].dims.extend([-1, -1]),
        r"a negative size: \[2, -1, -1\]",
    ),
}


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_ambiguous_models_are_refused(tmp_path: Path, fault: str) -> None:
    """A parser may read them differently, and the plan would be stored under the key of a valid file."""
    text, spoil, why = FAULTS[fault]
    made = model(text)
    canonical(saved(tmp_path / "good.onnx", made))
    spoil(made)
    (tmp_path / "bad.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(OnnxFileError, match=why):
        canonical(tmp_path / "bad.onnx")


def test_an_attribute_without_a_type_has_that_of_its_operator(tmp_path: Path) -> None:
    """Files of the first versions have none: the key and the parser's model are those with the type."""
    made = model(SOFTMAX)
    good = canonical(saved(tmp_path / "good.onnx", made))
    axis(made).ClearField("type")
    (tmp_path / "old.onnx").write_bytes(made.SerializeToString())
    assert canonical(tmp_path / "old.onnx").digest == good.digest
    converted = onnx.ModelProto.FromString(make_parser_model(OnnxFile(tmp_path / "old.onnx"), ()).content)
    assert axis(converted).type == onnx.AttributeProto.INT


def test_dead_nodes_are_not_in_the_parsers_model(tmp_path: Path) -> None:
    """They are not in the key, so a foreign operator among them does not fail the build."""
    made = model(SOFTMAX)
    made.graph.node.append(helper.make_node("Banana", ["y"], ["z"]))
    path = saved(tmp_path / "dead.onnx", made)
    converted = onnx.ModelProto.FromString(make_parser_model(OnnxFile(path), ()).content)
    assert [one.op_type for one in converted.graph.node] == ["Softmax"]


def test_too_deep_calls_of_functions_are_refused(tmp_path: Path) -> None:
    """Python would raise RecursionError."""
    made = model("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    for at in range(300):
        inner = helper.make_node(f"f{at + 1}", ["a"], ["b"], domain="own") if at < 299 else None
        nodes = [inner or helper.make_node("Relu", ["a"], ["b"])]
        made.functions.append(helper.make_function("own", f"f{at}", ["a"], ["b"], nodes, opsets))
    made.opset_import.append(opsets[1])
    made.graph.node[0].op_type, made.graph.node[0].domain = "f0", "own"
    with pytest.raises(OnnxFileError, match="more than 50 deep"):
        canonical(saved(tmp_path / "deep.onnx", made))
    made.graph.node[0].op_type = "f260"
    canonical(saved(tmp_path / "shallow.onnx", made))


@pytest.mark.parametrize(
    ("external", "why"),
    [
        ({"location": "a" * 5000}, "too long for a file"),
        ({"location": "a/" * 2500}, "too long for a file"),
        ({"location": "w", "offset": "9" * 5000}, "offset '9{40}', which is not a number"),
        ({"location": "w", "length": "9" * 5000}, "length '9{40}', which is not a number"),
    ],
    ids=["name", "path", "offset", "length"],
)
def test_too_long_numbers_and_names_of_external_data_are_refused(
    tmp_path: Path, external: dict[str, str], why: str
) -> None:
    """Neither errors of the system nor Python's for long numbers are raised."""
    made = small()
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for name, value in external.items():
        tensor.external_data.add(key=name, value=value)
    (tmp_path / "w").write_bytes(bytes(48))
    (tmp_path / "long.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(OnnxFileError, match=why):
        trtcache.key(tmp_path / "long.onnx", (trtcache.Input(min_shape=(1, 4), max_shape=(8, 4)),), **WANTED)


@pytest.mark.slow
def test_a_plan_with_other_outputs_than_declared_is_not_stored(tmp_path: Path) -> None:
    """Neither its dtype nor its sizes may differ: other files of the same graph would get them."""
    text = "g (float[2, 4] x) => (%s y) { y = Relu(x) }"
    for said in ("float16[2, 4]", "float[2, 5]", "float[8]"):
        path = saved(tmp_path / "liar.onnx", model(text % said))
        with pytest.raises(BuildError, match="output y"):
            trtcache.compile(path, cache=tmp_path / "cache", **WANTED)
    assert not list((tmp_path / "cache").glob("entries/*/*"))


def test_declared_outputs_are_in_the_key(tmp_path: Path) -> None:
    """A parser cannot infer dynamic sizes, so files that declare them differently share nothing."""
    text = "g (float[N, M] x) => (float[%s] y) { y = Relu(x) }"
    sizes = (trtcache.Input(min_shape=(1, 1), max_shape=(4, 4)),)
    ours, theirs, alike = (
        trtcache.key(saved(tmp_path / "m.onnx", model(one)), sizes, **WANTED)
        for one in (text % "N, M", text % "M, N", (text % "a, b").replace("N, M", "a, b"))
    )
    assert ours == alike
    assert ours != theirs
