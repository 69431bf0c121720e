"""The canonical form of ONNX graphs: what has no say in it, and what has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from tests.frontends.onnx.graphs import BRANCHES, FUNCTION, HEAD, answers, canonical, model, saved, small
from trtcache.errors import OnnxFileError
from trtcache.frontends.onnx.file import OnnxFile
from trtcache.frontends.onnx.weights import make_parser_model
from trtcache.keys.graph_diff import graph_differences
from trtcache.keys.stored_graph import StoredGraph

if TYPE_CHECKING:
    from pathlib import Path

EQUAL = {
    "names of nodes, tensors and weights": (
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = Relu(x)\n y = Mul(a, w) }",
        "h (float[2] x) => (float[2] y) <float[2] v = {1, 2}> { [first] b = Relu(x)\n [second] y = Mul(b, v) }",
    ),
    "order of unrelated nodes": (
        "g (float[2] x) => (float[2] y) { a = Relu(x)\n b = Neg(x)\n y = Add(a, b) }",
        "g (float[2] x) => (float[2] y) { b = Neg(x)\n a = Relu(x)\n y = Add(a, b) }",
    ),
    "dead nodes and unused initializers": (
        "g (float[2] x) => (float[2] y) { y = Relu(x) }",
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { d = Neg(x)\n e = Mul(d, w)\n y = Relu(x) }",
    ),
    "names of sizes": (
        "g (float[N] x) => (float[N] y) { y = Relu(x) }",
        "g (float[batch] x) => (float[batch] y) { y = Relu(x) }",
    ),
    "defaults that are written out": (
        "g (float[2, 3] x) => (float[2, 3] y) { y = Softmax(x) }",
        "g (float[2, 3] x) => (float[2, 3] y) { y = Softmax <axis: int = -1> (x) }",
    ),
    "optional inputs that are left out": (
        "g (float[2] x) => (float[2] y) { y = Clip(x) }",
        'g (float[2] x) => (float[2] y) { y = Clip(x, "", "") }',
    ),
    "a constant as a node or as an initializer": (
        "g (float[2] x) => (float[2] y) <int64[1] s = {2}> { y = Reshape(x, s) }",
        "g (float[2] x) => (float[2] y) { s = Constant <value_ints: ints = [2]> ()\n y = Reshape(x, s) }",
    ),
    "forms of one constant": (
        "g (float[2] x) => (float[2] y) { k = Constant <value_float: float = 2.0> ()\n y = Mul(x, k) }",
        "g (float[2] x) => (float[2] y) { k = Constant <value: tensor = float {2}> ()\n y = Mul(x, k) }",
    ),
    "a node that is computed twice": (
        "g (float[2] x) => (float[2] y) { a = Relu(x)\n y = Add(a, a) }",
        "g (float[2] x) => (float[2] y) { a = Relu(x)\n b = Relu(x)\n y = Add(a, b) }",
    ),
    "names inside branches": (
        BRANCHES,
        BRANCHES.replace("(float[2] p) { p =", "(float[2] r) { r =")
        .replace("a = Relu", "v = Relu")
        .replace("Mul(a,", "Mul(v,")
        .replace("Neg(a)", "Neg(v)"),
    ),
    "names inside functions": (
        FUNCTION,
        FUNCTION.replace("(p) => (q)", "(s) => (t)").replace("q = Mul(p", "t = Mul(s"),
    ),
}
"""What is asked -> two models of one key."""

DIFFERENT = {
    "an operator": (
        "g (float[2] x) => (float[2] y) { y = Relu(x) }",
        "g (float[2] x) => (float[2] y) { y = Neg(x) }",
    ),
    "an attribute": (
        "g (float[2, 3] x) => (float[2, 3] y) { y = Softmax <axis: int = 0> (x) }",
        "g (float[2, 3] x) => (float[2, 3] y) { y = Softmax <axis: int = 1> (x) }",
    ),
    "a number in the last bit": (
        "g (float[2] x) => (float[2] y) { y = Elu <alpha: float = 1.0> (x) }",
        "g (float[2] x) => (float[2] y) { y = Elu <alpha: float = 1.0000001> (x) }",
    ),
    "order of operands": (
        "g (float[2] x, float[2] z) => (float[2] y) { y = Sub(x, z) }",
        "g (float[2] x, float[2] z) => (float[2] y) { y = Sub(z, x) }",
    ),
    "order of inputs": (
        "g (float[2] x, float[2] z) => (float[2] y) { y = Sub(x, z) }",
        "g (float[2] z, float[2] x) => (float[2] y) { y = Sub(x, z) }",
    ),
    "order of outputs": (
        "g (float[2] x) => (float[2] y, float[2] z) { y = Relu(x)\n z = Neg(x) }",
        "g (float[2] x) => (float[2] z, float[2] y) { y = Relu(x)\n z = Neg(x) }",
    ),
    "which output is used": (
        "g (float[4] x) => (float[2] y) <int64[2] s = {2, 2}> { y, b = Split(x, s) }",
        "g (float[4] x) => (float[2] y) <int64[2] s = {2, 2}> { a, y = Split(x, s) }",
    ),
    "how many outputs a split has": (
        "g (float[6] x) => (float[K] y) { y, b = Split(x) }",
        "g (float[6] x) => (float[K] y) { y, b, c = Split(x) }",
    ),
    "a constant that decides a shape": (
        "g (float[2, 3] x) => (float[A, B] y) <int64[2] s = {3, 2}> { y = Reshape(x, s) }",
        "g (float[2, 3] x) => (float[A, B] y) <int64[2] s = {6, 1}> { y = Reshape(x, s) }",
    ),
    "scales of a resize": (
        "g (float[1, 1, 2, 2] x) => (float[1, 1, A, B] y) <float[4] s = {1, 1, 2, 2}> { y = Resize(x, , s) }",
        "g (float[1, 1, 2, 2] x) => (float[1, 1, A, B] y) <float[4] s = {1, 1, 3, 3}> { y = Resize(x, , s) }",
    ),
    "a factor that a shape is computed with": (
        "g (float[2] x) => (float[A] y) <float[1] f = {2}> { s = Shape(x)\n d = Cast <to: int = 1> (s)\n"
        " m = Mul(d, f)\n n = Cast <to: int = 7> (m)\n o = ConstantOfShape(n)\n y = Add(o, o) }",
        "g (float[2] x) => (float[A] y) <float[1] f = {3}> { s = Shape(x)\n d = Cast <to: int = 1> (s)\n"
        " m = Mul(d, f)\n n = Cast <to: int = 7> (m)\n o = ConstantOfShape(n)\n y = Add(o, o) }",
    ),
    "a bound of a clip": (
        "g (float[2] x) => (float[2] y) <float a = {0}, float b = {1}> { y = Clip(x, a, b) }",
        "g (float[2] x) => (float[2] y) <float a = {0}, float b = {0.5}> { y = Clip(x, a, b) }",
    ),
    "a number of a formula": (
        "g (float[2] x) => (float[2] y) <float k = {2}> { y = Mul(x, k) }",
        "g (float[2] x) => (float[2] y) <float k = {3}> { y = Mul(x, k) }",
    ),
    "one weight twice, or two": (
        "g (float[2] x) => (float[2] y) <float[2] v = {1, 2}, float[2] w = {3, 4}> { a = Mul(x, v)\n y = Add(a, v) }",
        "g (float[2] x) => (float[2] y) <float[2] v = {1, 2}, float[2] w = {3, 4}> { a = Mul(x, v)\n y = Add(a, w) }",
    ),
    "the shape of a weight": (
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }",
        "g (float[2] x) => (float[1, 2] y) <float[1, 2] w = {1, 3}> { y = Mul(x, w) }",
    ),
    "inside a branch": (BRANCHES, BRANCHES.replace("Neg", "Abs")),
    "which branch is which": (
        BRANCHES,
        BRANCHES.replace("then_", "x_").replace("else_", "then_").replace("x_", "else_"),
    ),
    "what a branch takes from outside": (BRANCHES, BRANCHES.replace("Neg(a)", "Neg(x)")),
    "inside a function": (FUNCTION, FUNCTION.replace("q = Mul", "q = Add")),
    "an argument of a function": (FUNCTION, FUNCTION.replace("float = 2.0", "float = 3.0")),
    "the dtype of an input": (
        "g (float[2] x) => (float[2] y) { a = Cast <to: int = 1> (x)\n y = Floor(a) }",
        "g (int32[2] x) => (float[2] y) { a = Cast <to: int = 1> (x)\n y = Floor(a) }",
    ),
}
"""What differs -> two models of two keys, of which the reference gives two answers for the same inputs."""


@pytest.mark.parametrize("name", EQUAL)
def test_equivalent_models_have_one_canonical_form(tmp_path: Path, name: str) -> None:
    """Two models that differ only in form have one canonical form, and equal results with the reference."""
    first, second = (model(text) for text in EQUAL[name])
    one, other = canonical(saved(tmp_path / "a.onnx", first)), canonical(saved(tmp_path / "b.onnx", second))
    assert one.digest == other.digest
    assert one.opsets == other.opsets
    assert [slot.document() for slot in one.slots] == [slot.document() for slot in other.slots]
    for ours, theirs in zip(answers(first), answers(second), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_models_have_different_canonical_forms(tmp_path: Path, name: str) -> None:
    """Two models with different results have two canonical forms, with an explanation."""
    first, second = (model(text) for text in DIFFERENT[name])
    one, other = canonical(saved(tmp_path / "a.onnx", first)), canonical(saved(tmp_path / "b.onnx", second))
    assert one.digest != other.digest
    found = graph_differences(StoredGraph.of(one.document()), StoredGraph.of(other.document()))
    assert found or name in {"order of inputs", "the dtype of an input"}
    assert any(differ(answers(first, seed), answers(second, seed)) for seed in range(6))


def differ(ours: list[Any], theirs: list[Any]) -> bool:
    """Say whether two lists of arrays differ in shapes or values."""
    return any(a.shape != b.shape or not np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_values_of_weights_are_not_in_the_canonical_form(tmp_path: Path) -> None:
    """The values of weights do not change it, but those of a shape constant do."""
    one, other, third = (
        canonical(saved(tmp_path / f"{place}.onnx", made))
        for place, made in enumerate((small(0), small(1), small(0, (3, -1))))
    )
    assert one.digest == other.digest != third.digest
    assert [slot.names for slot in one.slots] == [("w",), ("b",)]


def test_metadata_is_not_in_the_canonical_form(tmp_path: Path) -> None:
    """Producer, documentation, inferred shapes, metadata, IR version and location of data change nothing."""
    made = small()
    noted = onnx.shape_inference.infer_shapes(made)
    noted.producer_name, noted.doc_string, noted.ir_version = "another", "what it is", 9
    noted.graph.doc_string = noted.graph.node[0].doc_string = "more"
    noted.metadata_props.add(key="author", value="somebody")
    noted.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 3]))  # as IR 3 wants it
    assert len(noted.graph.value_info)
    forms = [
        canonical(saved(tmp_path / "a.onnx", made)),
        canonical(saved(tmp_path / "b.onnx", noted)),
        canonical(saved(tmp_path / "c.onnx", noted, external=True)),
    ]
    assert len({one.digest for one in forms}) == 1


def test_a_constant_has_one_digest_in_every_field(tmp_path: Path) -> None:
    """Numbers as a list or as raw bytes, also 4-bit ones, are the same constant."""
    text = "g (float[2, 2] x) => (float[2, 2] y) { c = Cast <to: int = 1> (k)\n y = Mul(x, c) }"
    digests = set()
    for place, kind in enumerate((TensorProto.INT4, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT64)):
        array = helper.make_tensor("k", kind, [2, 2], [1, 2, 3, 1])
        raw = numpy_helper.from_array(numpy_helper.to_array(array), "k")
        forms = []
        for one in (array, raw):
            made = model('<ir_version: 10, opset_import: ["" : 21]>\n' + text)
            made.graph.initializer.append(one)
            forms.append(canonical(saved(tmp_path / f"{place}.onnx", made)).digest)
        assert forms[0] == forms[1]
        digests.add(forms[0])
    assert len(digests) == 4


def test_a_random_number_drawn_twice_is_not_one_drawn_once(tmp_path: Path) -> None:
    """Random nodes are numbered."""
    once = "g (float[2] x) => (float[2] y) { a = RandomNormalLike(x)\n y = Sub(a, a) }"
    twice = "g (float[2] x) => (float[2] y) { a = RandomNormalLike(x)\n b = RandomNormalLike(x)\n y = Sub(a, b) }"
    assert canonical(saved(tmp_path / "a.onnx", model(once))).digest != (
        canonical(saved(tmp_path / "b.onnx", model(twice))).digest
    )


def test_opset_versions_are_those_of_needed_nodes(tmp_path: Path) -> None:
    """Versions of the domains that only dead nodes use are left out."""
    text = "g (float[2] x) => (float[2] y) { y = Relu(x) }"
    newer = '<ir_version: 8, opset_import: ["" : 18, "unused" : 3]>\n'
    assert canonical(saved(tmp_path / "a.onnx", model(text))).opsets == {"ai.onnx": 17}
    assert canonical(saved(tmp_path / "b.onnx", model(newer + text))).opsets == {"ai.onnx": 18}


def test_the_two_names_of_the_domain_of_onnx_are_one(tmp_path: Path) -> None:
    """``ai.onnx`` and the empty name are the same domain."""
    text = "g (float[2] x) => (float[2] y) { y = Relu(x) }"
    long = '<ir_version: 8, opset_import: ["ai.onnx" : 17]>\n' + text.replace("Relu", "ai.onnx.Relu")
    one, other = (canonical(saved(tmp_path / f"{len(one)}.onnx", model(one))) for one in (text, long))
    assert (one.digest, one.opsets) == (other.digest, other.opsets)


def test_foreign_operators_are_listed(tmp_path: Path) -> None:
    """An operator that neither ONNX nor the file defines is listed, also inside a branch."""
    own = HEAD.replace('"" : 17', '"" : 17, "mylib" : 1')
    path = saved(
        tmp_path / "a.onnx", model(own + "g (float[2] x) => (float[2] y) { y = mylib.Scale <by: int = 2> (x) }")
    )
    assert canonical(path).foreign == ("mylib::Scale",)
    inner = model(own + BRANCHES.replace("Neg(", "mylib.Scale("))
    assert canonical(saved(tmp_path / "b.onnx", inner)).foreign == ("mylib::Scale",)


def test_a_loop_has_inputs_of_its_own(tmp_path: Path) -> None:
    """The inputs of a loop's body and tensors from outside are distinguished."""
    loop = """g (float[2] x) => (float[2] y) <int64 n = {3}, bool t = {1}>
    { y = Loop (n, t, x) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w)
      { d = Identity(c)
        w = Add(v, x) } > }"""
    other = loop.replace("Add(v, x)", "Add(v, v)")
    forms = [canonical(saved(tmp_path / f"{len(text)}.onnx", model(text))).digest for text in (loop, other)]
    assert forms[0] != forms[1]
    assert not np.array_equal(answers(model(loop))[0], answers(model(other))[0])


def test_weights_with_other_uses_are_constants(tmp_path: Path) -> None:
    """A tensor that a branch, an output or an LSTM uses is not a weight, nor are the statistics of a BatchNorm."""
    text = """g (float[1, 2, 4] x) => (float[1, 2, 4] y, float[2] m)
    <float[2] s = {1, 2}, float[2] b = {0, 1}, float[2] m = {1, 1}, float[2] v = {2, 3}, float[4] k = {1, 2, 3, 4}>
    { n = BatchNormalization(x, s, b, m, v)
      y = Mul(n, k) }"""
    found = canonical(saved(tmp_path / "a.onnx", model(text)))
    assert [slot.names for slot in found.slots] == [("k",)]


CONSTANTS = {
    "value_float": [1.0, 2.0],
    "value_floats": [[1.0], [1.0, 1.0]],
    "value_int": [1, 2],
    "value_ints": [[1], [1, 1]],
    "value_string": ["a", "b"],
    "value_strings": [["a"], ["a", "a"], ["aa"]],
    "sparse_value": [
        helper.make_sparse_tensor(
            helper.make_tensor("v", TensorProto.FLOAT, [1], [value]),
            helper.make_tensor("i", TensorProto.INT64, [1], [place]),
            [3],
        )
        for value, place in ((1.0, 0), (2.0, 0), (1.0, 1))
    ],
}
"""Form of a constant -> values that are all different."""


def test_arguments_of_functions_are_constants(tmp_path: Path) -> None:
    """A function may have the name of an ONNX operator, and use its arguments in any way."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"""
    assert len(canonical(saved(tmp_path / "a.onnx", model(text))).slots) == 1
    function = """<domain: "", opset_import: ["" : 17]> Add (p, q) => (r) { r = Clip(p, q) }"""
    assert canonical(saved(tmp_path / "b.onnx", model(text + function))).slots == ()


@pytest.mark.parametrize("form", CONSTANTS)
def test_a_constant_is_its_content_in_every_form(tmp_path: Path, form: str) -> None:
    """Each value in each form is another program, and the same value again is the same one."""
    digests = []
    for value in (*CONSTANTS[form], CONSTANTS[form][0]):
        made = model("g (float[2] x) => (float[2] y) { k = Shape(x)\n y = Reshape(x, k) }")
        made.graph.node[0].CopyFrom(helper.make_node("Constant", [], ["k"], **{form: value}))
        digests.append(canonical(saved(tmp_path / "a.onnx", made)).digest)
    assert digests[0] == digests[-1]
    assert len(set(digests)) == len(digests) - 1


def test_a_sparse_initializer_is_its_content(tmp_path: Path) -> None:
    """It is neither an input nor a weight."""
    digests = set()
    for value in (1.0, 2.0):
        made = model("g (float[3] x) => (float[3] y) { y = Mul(x, k) }")
        elements = helper.make_tensor("k", TensorProto.FLOAT, [1], [value])
        places = helper.make_tensor("i", TensorProto.INT64, [1], [0])
        made.graph.sparse_initializer.append(helper.make_sparse_tensor(elements, places, [3]))
        found = canonical(saved(tmp_path / "a.onnx", made))
        assert found.slots == ()
        digests.add(found.digest)
    assert len(digests) == 2


ATTRIBUTES = [
    {"a": 1},
    {"a": 1.0},
    {"a": "1"},
    {"a": b"\xff"},
    {"a": [1, 2]},
    {"a": [1.0, 2.0]},
    {"a": ["1", "2"]},
    {"a": helper.make_tensor("t", TensorProto.FLOAT, [1], [1.0])},
    {"a": helper.make_tensor("t", TensorProto.FLOAT, [1], [2.0])},
    {"a": [helper.make_tensor("t", TensorProto.FLOAT, [1], [1.0])]},
    {"a": helper.make_tensor_type_proto(TensorProto.FLOAT, [1])},
    {"a": helper.make_tensor_type_proto(TensorProto.FLOAT, None)},
    {"a": helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [1]))},
    {"a": helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, [1]))},
    {"a": CONSTANTS["sparse_value"][0]},
    {"b": 1},
    {},
]


def test_attributes_of_every_type_are_in_the_canonical_form(tmp_path: Path) -> None:
    """No two of them are confused."""
    digests = set()
    for place, attributes in enumerate(ATTRIBUTES):
        made = model(HEAD.replace('"" : 17', '"" : 17, "own" : 1') + "g (float[2] x) => (float[2] y) { y = own.Op(x) }")
        made.graph.node[0].CopyFrom(helper.make_node("Op", ["x"], ["y"], domain="own", **attributes))
        digests.add(canonical(saved(tmp_path / f"{place}.onnx", made)).digest)
    assert len(digests) == len(ATTRIBUTES)


def test_a_function_that_calls_itself_is_refused(tmp_path: Path) -> None:
    """Its digest would be infinite."""
    looped = FUNCTION.replace("q = Mul(p, k)", "q = own.twice <by: float = 1.0> (p)").replace(
        '["" : 17]>\ntwice', '["" : 17, "own" : 1]>\ntwice'
    )
    with pytest.raises(OnnxFileError, match="its function 'twice' calls itself"):
        canonical(saved(tmp_path / "a.onnx", model(looped)))


def test_too_many_nodes_of_functions_are_refused(tmp_path: Path) -> None:
    """Forty functions that each call the next one twice would be 2 ** 40 nodes; ten are inlined."""
    for count in (40, 10):
        made = model(HEAD.replace('"" : 17', '"" : 17, "own" : 1') + "g (float[2] x) => (float[2] y) { y = own.f0(x) }")
        opsets = list(made.opset_import)
        for at in range(count):
            nodes = [helper.make_node(f"f{at + 1}", [one], [other], domain="own") for one, other in ("pq", "qr")]
            made.functions.append(helper.make_function("own", f"f{at}", ["p"], ["r"], nodes, opsets))
        last = [helper.make_node("Relu", ["p"], ["r"])]
        made.functions.append(helper.make_function("own", f"f{count}", ["p"], ["r"], last, opsets))
        path = saved(tmp_path / "a.onnx", made)
        if count == 40:
            with pytest.raises(OnnxFileError, match="more than 1000000 nodes when they are inlined"):
                canonical(path)
        else:
            assert len(canonical(path).records) == 1024 + 2


def called(opsets: dict[str, int], node: str, *functions: str) -> Any:
    """Return a model of one node, ``y = node``, with functions as texts, and the versions of domains."""
    imports = ", ".join(f'"{name}" : {version}' for name, version in opsets.items())
    graph = f"g (float[2,3,4] a, float[2,3,4] b) => (float[2,3,4] y) {{ {node} }}"
    return onnx.parser.parse_model("".join((f"<ir_version: 10, opset_import: [{imports}]> ", graph, *functions)))


BODY = '<domain: "own", opset_import: ["" : 17, "own" : 1]> '
OURS = {"": 17, "own": 1}


@pytest.mark.parametrize(
    ("node", "functions", "same"),
    [
        ("y = own.f(b, a)", ["f (a, b) => (q) { t = Abs(a) q = Sub(t, b) }"], "t = Abs(b) y = Sub(t, a)"),
        ("y = own.f(a)", ["f <alpha> (x) => (q) { q = LeakyRelu <alpha: float = @alpha> (x) }"], "y = LeakyRelu(a)"),
        ("y = own.f(a)", ["f (x) => (q) { q = own.h(x) }", "h (x) => (q) { q = Neg(x) }"], "y = Neg(a)"),
        (
            "y = own.f <beta = 0.5> (a)",
            [
                "f <beta> (x) => (q) { q = own.h <alpha: float = @beta> (x) }",
                "h <alpha> (x) => (q) { q = LeakyRelu <alpha: float = @alpha> (x) }",
            ],
            "y = LeakyRelu <alpha = 0.5> (a)",
        ),
        (
            "y = own.f(a)",
            ["f <alpha: float = 0.25> (x) => (q) { q = LeakyRelu <alpha: float = @alpha> (x) }"],
            "y = LeakyRelu <alpha = 0.25> (a)",
        ),
        ("t = own.Relu(a) y = Relu(t)", ["Relu (x) => (q) { q = Abs(x) }"], "t = Abs(a) y = Relu(t)"),
        ("y = own.f(a)", ["f (x, z) => (q) { q = Clip(x, z) }"], "y = Clip(a)"),
    ],
)
def test_functions_are_inlined(tmp_path: Path, node: str, functions: list[str], same: str) -> None:
    """A call has the key and the parser's model of the nodes that the function is made of."""
    one, other = called(OURS, node, *(BODY + text for text in functions)), called(OURS, same)
    paths = [saved(tmp_path / f"{at}.onnx", made) for at, made in enumerate((one, other))]
    first, second = map(canonical, paths)
    assert first.digest == second.digest
    model_ = onnx.ModelProto.FromString(make_parser_model(OnnxFile(paths[0]), first.slots).content)
    assert not model_.functions
    assert [one.op_type for one in model_.graph.node] == [one.op_type for one in other.graph.node]


@pytest.mark.parametrize("operator", ["Softmax", "Hardmax", "LogSoftmax"])
def test_a_function_of_another_opset_is_refused(tmp_path: Path, operator: str) -> None:
    """ONNX Runtime and TensorRT read its body by the model's version, and ONNX's reference by its own."""
    function = f'<domain: "own", opset_import: ["" : 13]> f (x) => (q) {{ q = {operator}(x) }}'
    with pytest.raises(OnnxFileError, match=r"function 'f' has version 13 of domain '', and .* 11"):
        canonical(saved(tmp_path / "a.onnx", called({"": 11, "own": 1}, "y = own.f(a)", function)))
    alone = canonical(saved(tmp_path / "b.onnx", called({"own": 1}, "y = own.f(a)", function)))
    plain = canonical(saved(tmp_path / "c.onnx", called({"": 13}, f"y = {operator}(a)")))
    assert (alone.digest, alone.opsets) == (plain.digest, plain.opsets)


@pytest.mark.parametrize(
    ("node", "functions", "why"),
    [
        ("y = own.f(a, b)", ["f (x) => (q) { q = Abs(x) }"], "more inputs or outputs than the function"),
        (
            "y = own.f(a)",
            [
                "f <beta> (x) => (q) { q = own.h <alpha: float = @beta> (x) }",
                "h <alpha: float = 0.5> (x) => (q) { q = LeakyRelu <alpha: float = @alpha> (x) }",
            ],
            "a call of its function 'h' may leave out an attribute or not",
        ),
    ],
)
def test_calls_that_cannot_be_inlined_are_refused(tmp_path: Path, node: str, functions: list[str], why: str) -> None:
    """The error names the function."""
    with pytest.raises(OnnxFileError, match=why):
        canonical(saved(tmp_path / "a.onnx", called(OURS, node, *(BODY + text for text in functions))))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (FUNCTION.replace("q = Mul(p, k)", "q = Mul(p, z)"), "its graph uses 'z', which nothing produces"),
        ("g (float[2] x) => (float[2] y) { y = Add(x, z) }", "uses 'z', which nothing produces"),
        ("g (float[2] x) => (float[2] y) { a = Add(x, y)\n y = Relu(a) }", "depends on itself"),
        ("g (seq(float[2]) x) => (float[2] y) { y = ConcatFromSequence <axis: int = 0> (x) }", "a sequence_type"),
        ("g (string[2] x) => (string[2] y) { y = Identity(x) }", "is string, and plans take"),
        ("g (double[2] x) => (double[2] y) { y = Relu(x) }", "its input 'x' is float64, and plans take .*add a Cast"),
    ],
)
def test_an_incomplete_graph_is_refused(tmp_path: Path, text: str, why: str) -> None:
    """The error names the file and the fault."""
    with pytest.raises(OnnxFileError, match=why):
        canonical(saved(tmp_path / "a.onnx", model(text)))


def test_attributes_that_a_schema_does_not_have_are_in_the_canonical_form(tmp_path: Path) -> None:
    """Such a file is not valid, but a parser reads attributes by their names."""
    digests = []
    for place, attributes in enumerate(
        ({"axis": 1, "zzz": 2}, {"axis": 2, "aaa": 1}, {"axis": 2}, {"axis": 2, "aab": 1})
    ):
        made = model(HEAD + "g (float[2, 2, 2] x) => (float[2, 2, 2] y) { y = Softmax(x) }")
        made.graph.node[0].CopyFrom(helper.make_node("Softmax", ["x"], ["y"], **attributes))
        digests.append(canonical(saved(tmp_path / f"{place}.onnx", made)).digest)
    assert len(set(digests)) == len(digests)


def test_a_default_graph_of_a_function_is_in_the_canonical_form(tmp_path: Path) -> None:
    """Calls that do not give another one run it."""

    def branch(value: float) -> Any:
        constant = helper.make_node("Constant", [], ["c"], value_float=value)
        return helper.make_graph([constant], "b", [], [helper.make_tensor_value_info("c", TensorProto.FLOAT, [])])

    digests = set()
    for value in (1.0, 2.0):
        made = model(FUNCTION)
        choose = helper.make_node("If", ["k"], ["v"], else_branch=branch(0.0))
        choose.attribute.append(AttributeProto(name="then_branch", type=AttributeProto.GRAPH, ref_attr_name="body"))
        flag = helper.make_node("Constant", [], ["k"], value=helper.make_tensor("k", TensorProto.BOOL, [], [True]))
        nodes = [flag, choose, helper.make_node("Add", ["p", "v"], ["q"])]
        function = helper.make_function(
            "own",
            "chosen",
            ["p"],
            ["q"],
            nodes,
            [helper.make_opsetid("", 17)],
            [],
            [helper.make_attribute("body", branch(value))],
        )
        del made.functions[:]
        made.functions.append(function)
        made.graph.node[0].CopyFrom(helper.make_node("chosen", ["x"], [made.graph.output[0].name], domain="own"))
        del made.graph.node[1:]
        digests.add(canonical(saved(tmp_path / f"{value}.onnx", made)).digest)
    assert len(digests) == 2


def test_foreign_operators_and_their_attributes_are_told_apart(tmp_path: Path) -> None:
    """By domain and name, also with dots in them; an empty list has a type."""
    digests = []
    for place, (domain, name) in enumerate((("a", "b.c"), ("a.b", "c"))):
        made = called({"": 17, "a": 1, "a.b": 1}, "y = Relu(a)")
        made.graph.node[0].domain, made.graph.node[0].op_type = domain, name
        digests.append(canonical(saved(tmp_path / f"{place}.onnx", made)).digest)
    for kind in (AttributeProto.INTS, AttributeProto.FLOATS, AttributeProto.STRINGS):
        made = called({"": 17, "a": 1}, "y = a.op(a)")
        made.graph.node[0].attribute.append(AttributeProto(name="values", type=kind))
        digests.append(canonical(saved(tmp_path / f"{kind}.onnx", made)).digest)
    assert len(set(digests)) == len(digests)


def test_what_a_loop_hands_on_to_its_next_iteration_may_decide_sizes(tmp_path: Path) -> None:
    """The weight is added to a number that decides a size in the next iteration, so it is a constant."""
    made = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 17]>
        g (float[1] x) => (float[N] y)
        <float[1] w = {2}, int64 n = {2}, bool c = {1}> {
            last, y = Loop (n, c, x) <body = b (int64 i, bool d, float[1] s) => (bool e, float[1] t, float[1] u) {
                e = Identity(d)
                t = Add(s, w)
                k = Cast <to = 7> (s)
                u = Expand(x, k)
            }>
        }"""
    )
    made.graph.output[0].type.tensor_type.shape.dim[0].Clear()
    assert not canonical(saved(tmp_path / "a.onnx", made)).slots
