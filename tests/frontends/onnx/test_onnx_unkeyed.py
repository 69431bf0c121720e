"""What a file has beside its key: none of it reaches a builder, and all external data comes from the model's folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import trtcache
from tests.frontends.onnx.graphs import BRANCHES, FUNCTION, canonical, model, saved
from trtcache.backends.protocol import ENGINE
from trtcache.errors import OnnxFileError
from trtcache.frontends.onnx.file import OnnxFile, tensors_in
from trtcache.frontends.onnx.weights import make_parser_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

WANTED: dict[str, Any] = {"backend": "tensorrt_rtx", "target": "sm_89"}
ADD = "g (float[2, 4] x) => (float[2, 4] y) { y = Add(x, k) }"
CHOOSE = """g (float[2, 4] x, bool c) => (float[2, 4] y)
{ y = If (c) <then_branch = t () => (float[2, 4] p) { p = Add(x, k) },
              else_branch = e () => (float[2, 4] q) { q = Neg(x) }> }"""
CALL = """<ir_version: 9, opset_import: ["" : 18, "own" : 1]>
g (float[2, 4] x) => (float[2, 4] y) { y = own.f(x) }
<domain: "own", opset_import: ["" : 18]> f (a) => (o) { k = Constant <value_float: float = 1.0> ()
  o = Add(a, k) }"""


def converted(path: Path) -> onnx.ModelProto:
    """Return the model that a builder gets."""
    parsed = onnx.ModelProto()
    parsed.ParseFromString(make_parser_model(OnnxFile(path), canonical(path).slots).content)
    return parsed


def sparse(name: str = "k") -> onnx.SparseTensorProto:
    """Return a sparse tensor of shape (2, 4)."""
    values = numpy_helper.from_array(np.array([1, 2, 3], "f4"), name)
    return helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([0, 5, 7]), "places"), [2, 4])


def dense() -> onnx.TensorProto:
    """Return a tensor of shape (2, 4)."""
    return numpy_helper.from_array(np.arange(8, dtype="f4").reshape(2, 4), "k")


def written(path: Path, made: onnx.ModelProto, tensors: Iterable[onnx.TensorProto]) -> Path:
    """Write a model with external data, a file for each of these tensors of it."""
    for at, tensor in enumerate(tensors):
        path.with_name(f"{at}.bin").write_bytes(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=f"{at}.bin")
    path.write_bytes(made.SerializeToString())
    return path


def constant(made: Any, **attributes: Any) -> None:
    """Make the constant ``k`` of a graph or function from these attributes."""
    for node in [one for one in made.node if one.op_type == "Constant"]:
        made.node.remove(node)
    made.node.insert(0, helper.make_node("Constant", [], ["k"], **attributes))


def in_branch(made: onnx.ModelProto) -> Any:
    """Return the first graph inside the last node."""
    return made.graph.node[-1].attribute[0].g


def as_default(made: onnx.ModelProto) -> None:
    """Make the constant of a function the default of its attribute."""
    function = made.functions[0]
    constant(function)
    reference = onnx.AttributeProto(name="value", type=onnx.AttributeProto.TENSOR, ref_attr_name="by")
    function.node[0].attribute.append(reference)
    function.attribute_proto.append(helper.make_attribute("by", dense()))


PLACES: dict[str, tuple[str, Callable[[Any], object]]] = {
    "a sparse initializer": (ADD, lambda one: one.graph.sparse_initializer.append(sparse())),
    "a sparse constant": (ADD, lambda one: constant(one.graph, sparse_value=sparse())),
    "a sparse initializer of a branch": (CHOOSE, lambda one: in_branch(one).sparse_initializer.append(sparse())),
    "a sparse constant of a function": (CALL, lambda one: constant(one.functions[0], sparse_value=sparse())),
    "a default of a function": (CALL, as_default),
}
"""Where a tensor is -> a model, and what puts the tensor there."""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("word", ["n", "allocation"])
def test_external_data_is_embedded_wherever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, word: str
) -> None:
    """The builder gets the data of the model's folder, not that of the working directory, and the file is known."""
    text, put = PLACES[place]
    made = model(text)
    put(made)
    made.graph.node[-1].name = word
    whole = saved(tmp_path / "whole.onnx", made)
    path = written(tmp_path / "spread.onnx", made, tensors_in(made))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    names = ["0.bin", "1.bin"] if "sparse" in place else ["0.bin"]
    assert OnnxFile(path).locations == OnnxFile(path).scan_locations() == names
    assert canonical(path).digest == canonical(whole).digest
    assert converted(path).SerializeToString() == converted(whole).SerializeToString()
    (tmp_path / "0.bin").unlink()
    with pytest.raises(OnnxFileError, match="belongs beside the model"):
        trtcache.key(path, **WANTED)


def test_external_data_without_elements_is_embedded(tmp_path: Path) -> None:
    """The builder would open its file in the working directory."""
    made = model("g (float[2, 0] x) => (float[2, 0] y) { y = Mul(x, w) }", {"w": np.ones((2, 0), "f4")})
    path = written(tmp_path / "model.onnx", made, made.graph.initializer)
    assert [one.data_location for one in tensors_in(converted(path))] == [TensorProto.DEFAULT]


def test_external_data_that_is_not_passed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor that is not embedded is an error, whatever the reason."""
    made = model(ADD)
    constant(made.graph, value=dense())
    path = written(tmp_path / "model.onnx", made, tensors_in(made))
    slots = canonical(path).slots
    found = iter([[], list(tensors_in(OnnxFile(path).model))])
    monkeypatch.setattr("trtcache.frontends.onnx.weights.tensors_in", lambda _: next(found))
    with pytest.raises(OnnxFileError, match="'k' has external data that cannot be passed to the builder"):
        make_parser_model(OnnxFile(path), slots)


def test_the_scan_does_not_parse_usual_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for tensors of the graph, nor for those inside nodes and functions."""
    files = []
    for at, (text, put) in enumerate([*PLACES.values(), (ADD, lambda one: one.graph.initializer.append(dense()))]):
        made = model(text)
        put(made)
        (tmp_path / str(at)).mkdir()
        path = written(tmp_path / str(at) / "model.onnx", made, tensors_in(made))
        files.append((OnnxFile(path).locations, path))
    monkeypatch.setattr(OnnxFile, "model", None)
    for locations, path in files:
        assert OnnxFile(path).scan_locations() == locations


def info(name: str, *shape: int | str | None) -> onnx.ValueInfoProto:
    """Return the declaration of a tensor."""
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def resized(value: onnx.ValueInfoProto, *shape: int | str | None) -> None:
    """Declare other sizes of a tensor."""
    value.CopyFrom(info(value.name, *shape))


def trained(made: onnx.ModelProto) -> None:
    """Add a graph for training."""
    made.training_info.add().algorithm.initializer.append(dense())


def noted(made: onnx.ModelProto) -> None:
    """Add fields that a newer version of ONNX may have."""
    made.graph.MergeFromString(b"\xfa\x3f\x03new")


CLAIMS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "sizes in the graph": (BRANCHES, lambda one: one.graph.value_info.append(info("a", 3))),
    "sizes in a branch": (BRANCHES, lambda one: in_branch(one).value_info.append(info("p", 3))),
    "sizes in a function": (FUNCTION, lambda one: one.functions[0].value_info.append(info("k", 3))),
    "a size of a branch's output": (BRANCHES, lambda one: resized(in_branch(one).output[0], 3)),
    "a size's name of a branch's output": (BRANCHES, lambda one: resized(in_branch(one).output[0], "N")),
    "an initializer as input": (BRANCHES, lambda one: one.graph.input.append(info("k", 7))),
    "ranges": (BRANCHES, lambda one: one.graph.quantization_annotation.add(tensor_name="a")),
    "a graph for training": (BRANCHES, trained),
    "metadata": (BRANCHES, lambda one: one.metadata_props.add(key="a", value="b")),
    "another tool": (BRANCHES, lambda one: setattr(one, "producer_name", "tool")),
    "unknown fields": (BRANCHES, noted),
}
"""What a file claims -> a model, and what adds the claim."""


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_builder_does_not_get_what_is_not_in_the_key(tmp_path: Path, claim: str) -> None:
    """A builder may believe sizes that are wrong, so two files of one key are one model to it."""
    text, add = CLAIMS[claim]
    made = model(text)
    if claim == "sizes in a function" and not hasattr(made.functions[0], "value_info"):
        pytest.skip("this version of onnx has none")
    plain = saved(tmp_path / "plain.onnx", made)
    add(made)
    (tmp_path / "claim.onnx").write_bytes(made.SerializeToString())
    keys = [trtcache.key(path, **WANTED) for path in (plain, tmp_path / "claim.onnx")]
    assert keys[0] == keys[1]
    assert converted(plain).SerializeToString() == converted(tmp_path / "claim.onnx").SerializeToString()


def test_kinds_of_tensors_in_inner_graphs_are_in_the_key(tmp_path: Path) -> None:
    """Their dtypes and numbers of dimensions are passed to the builder: ONNX Runtime needs those of a loop."""
    digests = set()
    for declared in (info("p", 2), info("p", 2, 1), info("p"), onnx.ValueInfoProto(name="p")):
        made = model(BRANCHES)
        in_branch(made).output[0].CopyFrom(declared)
        digests.add(canonical(saved(tmp_path / "model.onnx", made)).digest)
    made = model(BRANCHES)
    in_branch(made).output[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    digests.add(canonical(saved(tmp_path / "model.onnx", made)).digest)
    assert len(digests) == 5


def test_each_declared_output_is_in_the_key(tmp_path: Path) -> None:
    """Its dtype and its sizes, also beside an output of unknown sizes."""
    text = "g (float[N, 4] x) => (%s y, %s z) { y = Relu(x)\n z = Neg(x) }"
    outputs = ["float", "float[N, 4]", "float[4, 4]", "float[K, 4]", "float[K, L]", "float[K, K]", "int32[K, 4]"]
    sizes = (trtcache.Input(min_shape=(4, 4), max_shape=(4, 4)),)
    keys = {
        trtcache.key(saved(tmp_path / "m.onnx", model(text % (ours, theirs))), sizes, **WANTED)
        for ours in outputs
        for theirs in ("float", "float[K, 4]", "float[N, 4]")
    }
    assert len(keys) == 3 * len(outputs)
    alike = trtcache.key(saved(tmp_path / "m.onnx", model(text % ("float[M, 4]", "float"))), sizes, **WANTED)
    assert alike in keys


def test_inputs_that_are_initializers_inside_are_refused(tmp_path: Path) -> None:
    """A loop's body may take either."""
    text = """g (float[2] x) => (float[2] y) <int64 n = {3}, bool t = {1}>
    { y = Loop (n, t, x) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w) <float[2] %s = {5, 5}>
      { d = Identity(c)
        w = Add(v, u) } > }"""
    canonical(saved(tmp_path / "model.onnx", model(text % "u")))
    with pytest.raises(OnnxFileError, match="a graph in its node 'Loop' has an input and an initializer 'v'"):
        canonical(saved(tmp_path / "model.onnx", model((text % "v").replace("u)", "v)"))))


@pytest.mark.parametrize("text", [ADD, CHOOSE])
def test_a_sparse_initializer_with_the_name_of_a_weight_is_renamed(tmp_path: Path, text: str) -> None:
    """Where it is defined as well as where it is used."""
    weights = {"m": np.ones(4, "f4")}
    made = model(text.replace("Neg(x)", "Mul(x, m)").replace("Add(x, k)", "Add(h, w0)"), weights)
    inner = text == CHOOSE
    (in_branch(made) if inner else made.graph).sparse_initializer.append(sparse("w0"))
    made.graph.node.insert(0, helper.make_node("Mul", ["x", "m"], ["h"]))
    if inner:
        made.graph.node[-1].attribute[1].g.node[0].input[1] = "x"
    path = saved(tmp_path / "model.onnx", made)
    assert [slot.names for slot in canonical(path).slots] == [("m",)]
    found = converted(path)
    assert [one.name for one in found.graph.initializer] == ["w0"]
    graph = in_branch(found) if inner else found.graph
    assert graph.sparse_initializer[0].values.name == "w0_"
    assert list(graph.node[-1].input) == ["h", "w0_"]


def test_onnx_runtime_runs_what_a_builder_gets(tmp_path: Path) -> None:
    """Loops, scans, sparse initializers and files of the first versions, without sizes inside."""
    runtime = pytest.importorskip("onnxruntime")
    loop = """g (float[2] x) => (float[2] y, float[K, 2] z) <int64 n = {3}, bool t = {1}>
    { y, z = Loop (n, t, x) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w, float[2] s)
      { d = Identity(c)
        w = Add(v, x)
        s = Neg(w) } > }"""
    scan = """g (float[2, 4] x) => (float[4] y, float[2, 4] z) <float[4] b = {1, 2, 3, 4}>
    { y, z = Scan <num_scan_inputs: int = 1, body = b (float[4] s, float[4] e) => (float[4] t, float[4] o)
      { t = Add(s, e)
        o = Neg(t) } > (b, x) }"""
    old = model('<ir_version: 3, opset_import: ["" : 8]> ' + ADD, {"k": np.arange(4, dtype="f4")})
    old.graph.input.append(info("k", 4))
    with_sparse = model(ADD)
    with_sparse.graph.sparse_initializer.append(sparse())
    for at, made in enumerate([model(loop), model(scan), old, with_sparse, model(BRANCHES), model(FUNCTION)]):
        path = saved(tmp_path / f"{at}.onnx", made)
        parsed = make_parser_model(OnnxFile(path), canonical(path).slots)
        content = parsed.serialize(())
        given: dict[str, Any] = {
            "x": np.ones([size.dim_value for size in made.graph.input[0].type.tensor_type.shape.dim], "f4")
        }
        if at == 4:
            given["c"] = np.array(True)
        results = [
            runtime.InferenceSession(one, providers=["CPUExecutionProvider"]).run(None, given)
            for one in (made.SerializeToString(), content)
        ]
        for ours, theirs in zip(*results, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
def test_a_plan_has_the_data_of_the_models_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the same name in the working directory is not read."""
    made = model(CALL)
    as_default(made)
    ours, theirs = (np.random.default_rng(seed).normal(size=(2, 4)).astype("f4").tobytes() for seed in (0, 1))
    (tensor,) = tensors_in(made)
    tensor.raw_data = ours
    path = written(tmp_path / "model.onnx", made, [tensor])
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "0.bin").write_bytes(theirs)
    monkeypatch.chdir(tmp_path / "elsewhere")
    cache = trtcache.Cache(tmp_path / "cache")
    key = trtcache.compile(path, cache=cache, **WANTED).report.partitions[0].key
    assert key is not None
    entry = cache.get(key)
    assert entry is not None
    plan = bytes(entry.read(ENGINE))
    assert ours in plan
    assert theirs not in plan
