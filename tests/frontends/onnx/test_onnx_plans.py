"""ONNX files from the front door: plans of TensorRT-RTX built on a CPU, found again, described and not run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto

import trtcache
from tests.backends.tensorrt.plans import network_of, stored
from tests.frontends.onnx.graphs import BRANCHES, FUNCTION, HEAD, canonical, model, saved, small
from trtcache.backends.tensorrt.backend import TensorRTBackend
from trtcache.backends.tensorrt.flavour import Flavour
from trtcache.errors import (
    BackendUnavailableError,
    BuildCancelledError,
    BuildForbiddenError,
    CanonicalizationError,
    IncompatibleEngineError,
    InputError,
    NoDeviceError,
    OnnxFileError,
    ProfileError,
    RefitError,
    SettingsError,
    UnsupportedOperatorError,
)
from trtcache.frontends.onnx.file import OnnxFile
from trtcache.frontends.onnx.weights import make_parser_model
from trtcache.keys.alias_key import KIND
from trtcache.store.catalog import counters
from trtcache.store.disk import DiskStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow

VECTOR = trtcache.Input(min_shape=(1,), max_shape=(4,))
ROWS = trtcache.Input(min_shape=(1, 4), opt_shape=(4, 4), max_shape=(8, 4))


def compiled(path: Path, root: Path, *args: Any, **options: Any) -> trtcache.CompiledModule:
    """Compile a file for an RTX 40."""
    return trtcache.compile(
        path, args or (ROWS,), cache=root, **{"backend": "tensorrt_rtx", "target": "sm_89", **options}
    )


def key(path: Path, *args: Any, **options: Any) -> trtcache.CacheKey:
    """Return the key of a file for an RTX 40."""
    return trtcache.key(path, args or (ROWS,), **{"backend": "tensorrt_rtx", "target": "sm_89", **options})


def counted(root: Path) -> dict[tuple[str, str], int]:
    """Return how often each thing happened to each kind of entry."""
    return {(event, kind): one.count for (_, event, _, kind), one in counters(DiskStore.open(root)).items()}


def alias_digests(root: Path) -> list[str]:
    """Return the digests of the key aliases in a cache, those of stored plans first."""
    store = DiskStore.open(root)
    headers = [store.header(one.digest) for one in store.scan()]
    found = [one for one in headers if one.kind == KIND]
    return [one.key.digest for one in sorted(found, key=lambda one: -one.build_s)]


def test_a_file_is_built_once_and_then_not_even_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second compile uses the key alias; the plan's inputs and outputs have the file's names."""
    path, cache = saved(tmp_path / "small.onnx", small()), tmp_path / "cache"
    first = compiled(path, cache)
    assert first.report.route == "read"
    facts, size_bytes = stored(first, cache)
    assert (facts["inputs"], facts["outputs"], facts["arguments"]) == (["x"], ["y"], ["x"])
    assert (facts["weights"]["refittable"], facts["refit"]) == (["w0", "w1"], False)
    assert facts["profiles"] == [[{"name": "x", "min": [1, 4], "opt": [4, 4], "max": [8, 4]}]]
    assert size_bytes > 1000
    monkeypatch.setattr(OnnxFile, "model", None)
    monkeypatch.setenv("TRTCACHE_FORBID_BUILD", "1")
    second = compiled(path, cache)
    assert (second.report.route, second.report.partitions[0].outcome) == ("alias", "hit")
    assert second.report.partitions[0].key == first.report.partitions[0].key
    assert second.report.partitions[0].frozen == 2


def test_the_same_graph_in_another_file_is_a_hit(engines: Path, tmp_path: Path) -> None:
    """Other names of tensors, external data and another path change nothing."""
    compiled(saved(tmp_path / "small.onnx", small()), engines)
    renamed = small()
    for names in (*(node.input for node in renamed.graph.node), *(node.output for node in renamed.graph.node)):
        names[:] = [f"{name}_of_mine" if name not in "xy" else name for name in names]
    for tensor in renamed.graph.initializer:
        tensor.name += "_of_mine"
    module = compiled(saved(tmp_path / "mine.onnx", renamed, external=True), engines)
    assert (module.report.route, module.report.partitions[0].outcome) == ("read", "hit")
    again = compiled(tmp_path / "mine.onnx", engines)
    assert again.report.route == "alias"


def test_a_call_is_by_position_or_by_name_and_is_checked(engines: Path, tmp_path: Path) -> None:
    """Sizes outside of the profile are errors with its range; valid calls fail for lack of a GPU."""
    module = compiled(saved(tmp_path / "small.onnx", small()), engines)
    for route in range(2):
        for args, kwargs in (((torch.ones(3, 4),), {}), ((), {"x": torch.ones(8, 4)})):
            if not torch.cuda.is_available():
                with pytest.raises(NoDeviceError, match="runs on its GPU"):
                    module(*args, **kwargs)
        with pytest.raises(InputError, match="argument x: expected size 1 to 8 in dimension 0, got 9"):
            module(torch.ones(9, 4))
        with pytest.raises(InputError, match="expected 1 \\(x\\), got 0; x is missing"):
            module()
        with pytest.raises(InputError, match="argument z: expected one of x"):
            module(torch.ones(3, 4), z=1)
        with pytest.raises(InputError, match="one by position and one by name"):
            module(torch.ones(3, 4), x=torch.ones(3, 4))
        with pytest.raises(InputError, match="2 by position"):
            module(torch.ones(3, 4), torch.ones(3, 4))
        module = compiled(tmp_path / "small.onnx", engines)
        assert module.report.route == "alias", route


def test_the_parts_of_the_key(tmp_path: Path) -> None:
    """Values of embedded weights, names of inputs and outputs, sizes, target; a tensor gives sizes too."""
    path = saved(tmp_path / "small.onnx", small())
    other = saved(tmp_path / "other.onnx", small(1))
    named = small()
    named.graph.input[0].name = named.graph.node[0].input[0] = "rows"
    wider = trtcache.Input(min_shape=(1, 4), opt_shape=(5, 4), max_shape=(8, 4))
    keys = [
        key(path),
        key(other),
        key(saved(tmp_path / "named.onnx", named)),
        key(path, wider),
        key(path, torch.ones(4, 4)),
        key(path, target="sm_86"),
        key(path, settings={"tensorrt": {"optimization_level": 1}}),
    ]
    assert len(set(map(str, keys))) == len(keys)
    assert key(path, np.ones((4, 4), "f4")) == keys[4]
    assert trtcache.key(path, (), {"x": ROWS}, backend="auto", target="sm_89") == keys[0]
    refittable = {"settings": {"tensorrt": {"refit": True}}}
    assert key(path, **refittable) == key(other, **refittable)
    parts: Any = key(path, **refittable).document["parts"]
    assert "frozen" not in parts
    assert parts["names"] == {"inputs": ["x"], "outputs": ["y"]}
    assert set(parts["toolchain"]) == {"builder", "cuda", "tensorrt_rtx"}


def test_a_changed_file_has_another_alias(engines: Path, tmp_path: Path) -> None:
    """External data replaced under the same name is another program, though the file itself is the same."""
    path = saved(tmp_path / "small.onnx", small(), external=True)
    content = path.read_bytes()
    first = compiled(path, engines)
    saved(path, small(1), external=True)
    assert path.read_bytes() == content
    second = compiled(path, engines)
    assert second.report.route == "read"
    assert second.report.partitions[0].key != first.report.partitions[0].key
    saved(path, small(), external=True)
    again = compiled(path, engines)
    assert (again.report.route, again.report.partitions[0].key) == ("alias", first.report.partitions[0].key)


def test_aliases_are_not_counted_as_hits_or_misses(tmp_path: Path) -> None:
    """Two compiles are one miss and one hit; a damaged or wrong alias costs parsing and is quarantined."""
    path, root = saved(tmp_path / "small.onnx", small()), tmp_path / "cache"
    for _ in range(2):
        compiled(path, root)
    assert counted(root) == {("miss", "tensorrt_rtx"): 1, ("put", "tensorrt_rtx"): 1, ("hit", "tensorrt_rtx"): 1}
    (alias,) = alias_digests(root)
    store = DiskStore.open(root)
    for content in (b'{"key": {}}', b"[]"):
        header = store.header(alias)
        store.put(header.key, {"alias.json": content}, kind=KIND, name="small")
        module = compiled(path, root)
        assert (module.report.route, module.report.partitions[0].outcome) == ("read", "hit")
        assert compiled(path, root).report.route == "alias"
    assert counted(root)["reject", KIND] == 2


def test_missing_external_data_is_an_error_despite_an_alias(engines: Path, tmp_path: Path) -> None:
    """A missing file has no digest."""
    path = saved(tmp_path / "small.onnx", small(), external=True)
    compiled(path, engines)
    (tmp_path / "small.onnx.data").unlink()
    with pytest.raises(OnnxFileError, match="belongs beside the model"):
        compiled(path, engines)


def test_weights_of_another_file_are_matched_by_position(engines: Path, tmp_path: Path) -> None:
    """Names in the other file do not matter; the refit itself fails for lack of a GPU."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    path = saved(tmp_path / "small.onnx", small())
    compiled(path, engines)
    retrained = small(1)
    for tensor in retrained.graph.initializer:
        tensor.name += "2"
    for node in retrained.graph.node:
        node.input[:] = [name + "2" if name in {"w", "b", "shape"} else name for name in node.input]
    other = saved(tmp_path / "other.onnx", retrained, external=True)
    module = compiled(path, engines)  # through a key alias
    for given in (other, str(other), {"w": torch.ones(4, 3), "b": torch.ones(3)}):
        with pytest.raises(RefitError, match="the plan is not refittable"):
            module.refit(given)
    assert module.weight_file is not None
    found = module.weight_file.read(other)
    draw = np.random.default_rng(1)
    np.testing.assert_array_equal(found["w"].numpy(), draw.normal(size=(4, 3)).astype("f4"))
    np.testing.assert_array_equal(found["b"].numpy(), draw.normal(size=3).astype("f4"))


def _without(name: str) -> onnx.ModelProto:
    made = small()
    made.graph.node[1].op_type = "Relu"
    made.graph.node[1].input[:] = ["h"]
    kept = [one for one in made.graph.initializer if one.name != name]
    del made.graph.initializer[:]
    made.graph.initializer.extend(kept)
    return made


def _with_more() -> onnx.ModelProto:
    made = small()
    made.graph.node[1].input[0] = "h2"
    made.graph.node.insert(1, onnx.helper.make_node("Mul", ["h", "gain"], ["h2"]))
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(3, "f4"), "gain"))
    return made


def _misshapen() -> onnx.ModelProto:
    return model(
        "g (float[N, 4] x) => (float[N, 5] y) { h = MatMul(x, w)\n s = Add(h, b)\n r = Relu(s)\n y = Reshape(r, t) }",
        {"w": np.ones((4, 5), "f4"), "b": np.ones(5, "f4"), "t": np.array([-1, 5], "i8")},
    )


def _of_halves() -> onnx.ModelProto:
    made = small()
    for at, tensor in enumerate(list(made.graph.initializer)):
        if tensor.data_type == TensorProto.FLOAT:
            half = onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor).astype("f2"), tensor.name)
            made.graph.initializer[at].CopyFrom(half)
    made.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    return made


def _another() -> onnx.ModelProto:
    made = small()
    made.graph.node[2].op_type = "Tanh"
    return made


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: _without("b"), r"missing: b\)"),
        (_with_more, r"unexpected: gain\)"),
        (_misshapen, r"mismatched: w \(shape \(4, 5\), the engine has \(4, 3\)\), b \(shape"),
        (_of_halves, r"w \(dtype float16, the engine has float32\)"),
        (_another, r"another graph .*node Relu operator: Relu -> Tanh.*: compile it"),
        (lambda: small(0, (3, -1)), r"another graph .*content"),
    ],
)
def test_a_refit_from_another_graph_is_refused_with_the_differences(
    engines: Path, tmp_path: Path, make: Callable[[], onnx.ModelProto], why: str
) -> None:
    """Before the plan is refitted, with the names of the file that was compiled."""
    module = compiled(saved(tmp_path / "small.onnx", small()), engines)
    with pytest.raises(RefitError, match=why):
        module.refit(saved(tmp_path / "other.onnx", make()))


def test_every_weight_is_in_the_network_by_name(tmp_path: Path) -> None:
    """Checking refittability needs the plans' names, and the parser keeps each weight whole."""
    text = """g (float[1, 2, 6, 6] x) => (float[1, 3] y)
    { c = Conv <pads = [1, 1, 1, 1]> (x, kernel, offset)
      d = Resize <mode: string = "nearest"> (c, , scales)
      p = PRelu(d, slope)
      f = GlobalAveragePool(p)
      g1 = Flatten(f)
      n = LayerNormalization(g1, gain, shift)
      m = Gemm <transB: int = 1> (n, matrix, vector)
      q = Mul(m, scale)
      y = Sub(q, mean) }"""
    draw = np.random.default_rng(0)
    shapes = {
        "kernel": (4, 2, 3, 3),
        "matrix": (3, 4),
        "slope": (4, 1, 1),
        "mean": (1, 3),
        **dict.fromkeys(("offset", "gain", "shift"), (4,)),
        **dict.fromkeys(("vector", "scale"), (3,)),
    }
    weights: dict[str, Any] = {name: draw.normal(size=shape).astype("f4") for name, shape in shapes.items()}
    made = model(text, {**weights, "scales": np.array([1, 1, 2, 2], "f4")})
    path = saved(tmp_path / "all.onnx", made, external=True)
    slots = canonical(path).slots
    assert {slot.names[0] for slot in slots} == set(shapes)
    converted = make_parser_model(OnnxFile(path), slots)
    network = network_of(converted)
    taken = [slot.names[0] for slot in slots if network.definition.mark_weights_refittable(f"w{slot.index}")]
    assert taken == [slot.names[0] for slot in slots]


STATIC = "g (float[2] x) => (float[2] y) { y = Relu(x) }"


@pytest.mark.parametrize(
    ("text", "options", "error", "why"),
    [
        (STATIC, {"backend": "aot_inductor"}, BackendUnavailableError, "ONNX files need tensorrt or tensorrt_rtx"),
        (STATIC, {"backend": "nobody"}, BackendUnavailableError, "unknown"),
        (STATIC, {"settings": {"autocast": "fp16"}}, SettingsError, "precision is in the file"),
        (STATIC, {"dynamic_shapes": {}}, SettingsError, "an ONNX file declares its dynamic sizes"),
        (STATIC, {"args": (torch.ones(3),)}, InputError, r"argument x: expected shape \(2\), got shape \(3\)"),
        (STATIC, {"args": (torch.ones(2).int(),)}, InputError, "argument x: expected float32, got int32"),
        (STATIC, {"args": ("x",)}, InputError, "expected a tensor or a trtcache.Input, got a str"),
        (STATIC, {"args": (None, None)}, InputError, "at most 1"),
        (STATIC, {"kwargs": {"z": torch.ones(2)}}, InputError, "one of x"),
        (
            STATIC.replace("float[2] x", "float[N] x"),
            {},
            ProfileError,
            r"sizes that vary: \(N\); pass trtcache.Input",
        ),
        (
            "g (float[N] x, float[N] z) => (float[N] y) { y = Add(x, z) }",
            {"args": (torch.ones(2), torch.ones(3))},
            InputError,
            r"expected sizes \(2, 2, 2\) for 'N', as in input x, got \(3, 3, 3\)",
        ),
    ],
)
def test_invalid_requests_are_errors_with_advice(
    tmp_path: Path, text: str, options: dict[str, Any], error: type[Exception], why: str
) -> None:
    """They are raised before anything is built."""
    path = saved(tmp_path / "model.onnx", model(text))
    with pytest.raises(error, match=why):
        trtcache.key(path, **{"backend": "tensorrt_rtx", "target": "sm_89", **options})


def test_a_foreign_operator_needs_a_version_for_a_key(tmp_path: Path) -> None:
    """Without one the program has no key; with one it has, and the build's error names the node."""
    own = HEAD.replace('"" : 17', '"" : 17, "mylib" : 1')
    path = saved(tmp_path / "own.onnx", model(own + "g (float[2] x) => (float[2] y) { [one] y = mylib.Scale(x) }"))
    options = {"backend": "tensorrt_rtx", "target": "sm_89"}
    with pytest.raises(CanonicalizationError, match=r"mylib::Scale: .*operator_versions"):
        trtcache.key(path, **options)
    keys = [trtcache.key(path, settings={"operator_versions": {"mylib": text}}, **options) for text in ("1", "2")]
    assert len(set(map(str, keys))) == 2
    for settings in (None, {"operator_versions": {"mylib::Scale": "1"}}):
        with pytest.raises(UnsupportedOperatorError, match=r"at Scale \(one\)"):
            compiled(path, tmp_path / "cache", None, settings=settings)
    assert not list((tmp_path / "cache").glob("entries/*/*"))


def test_the_parsers_errors_name_the_node(tmp_path: Path) -> None:
    """Also for nodes without names; sizes that depend on an input's values have an error of their own."""
    path = saved(tmp_path / "some.onnx", model("g (float[4] x) => (int64[1, K] y) { a = Relu(x)\n y = NonZero(a) }"))
    with pytest.raises(UnsupportedOperatorError, match=r"at NonZero \(NonZero_1\)"):
        compiled(path, tmp_path / "cache", None)
    shaped = model("g (float[4] x, int64[2] s) => (float[A, B] y) { y = Reshape(x, s) }")
    with pytest.raises(ProfileError, match=r"sizes depend on the values of input 's', .*; make it a constant"):
        compiled(saved(tmp_path / "shaped.onnx", shaped), tmp_path / "cache", None)


RARE: dict[str, tuple[str, tuple[Any, ...]]] = {
    "a branch": (BRANCHES, (None,)),
    "a function": (FUNCTION, (None,)),
    "a name like a weight's": (
        "g (float[2] x) => (float[2] y) <float[2] k = {1, 2}> { w0 = Relu(x)\n y = Mul(w0, k) }",
        (None,),
    ),
    "a number without dimensions": ("g (float x) => (float y) { y = Relu(x) }", (None,)),
    "an input that is not used": (
        "g (float[N] x, float[M] u) => (float[N] y) { y = Relu(x) }",
        (VECTOR, VECTOR),
    ),
    "outputs that nothing computes": (
        "g (float[2] x) => (float[2] x, float[2] w) <float[2] w = {1, 2}> { y = Relu(x) }",
        (None,),
    ),
}


@pytest.mark.parametrize("name", RARE)
def test_rare_features_are_built(engines: Path, tmp_path: Path, name: str) -> None:
    """Each is one plan, which is stored."""
    text, args = RARE[name]
    module = compiled(saved(tmp_path / "model.onnx", model(text)), engines, *args)
    assert module.report.partitions[0].path


def test_without_tensorrt_the_error_names_the_backends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``auto`` lists the backends for ONNX; a backend given by name is not replaced."""
    path = saved(tmp_path / "small.onnx", small())
    monkeypatch.setattr(Flavour, "installed", False)
    with pytest.raises(BackendUnavailableError, match=r"needs one of these: .*TensorRT is not.*TensorRT-RTX is not"):
        key(path, backend="auto")
    with pytest.raises(BackendUnavailableError, match=r"TensorRT-RTX is not installed; pip install 'trtcache\["):
        key(path)


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_an_entry_that_cannot_be_loaded_is_at_fault_if_a_new_one_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failures: int
) -> None:
    """As with torch models: it is tried again, then built again; what cannot be loaded either is an error.

    Memory of the GPU may be short for a while: then the entry stays, for this process as well.
    """
    path, root = saved(tmp_path / "small.onnx", small()), tmp_path / "cache"
    built = compiled(path, root).report.partitions[0].path
    real, refused = TensorRTBackend.load_entry, []

    def refuse(self: Any, read: Any, **options: Any) -> Any:
        if len(refused) < failures:
            refused.append(True)
            raise IncompatibleEngineError("plan", "TensorRT-RTX cannot load it: out of memory")
        return real(self, read, **options)

    monkeypatch.setattr(TensorRTBackend, "load_entry", refuse)
    if failures == 3:
        with pytest.raises(IncompatibleEngineError, match="out of memory"):
            compiled(path, root)
    else:
        assert compiled(path, root).report.partitions[0].outcome == ("hit" if failures == 1 else "built")
    assert "its key alias leads to an unusable entry: engine plan: TensorRT-RTX cannot load it" in caplog.text
    assert counted(root).get(("reject", "tensorrt_rtx"), 0) == (failures == 2)
    again = compiled(path, root).report.partitions[0]
    assert (again.outcome, again.path) == ("hit", built)
    assert not [*root.rglob("quarantine/*")]


def test_a_file_of_another_opset_is_another_graph(engines: Path, tmp_path: Path) -> None:
    """The error of a refit names the opset."""
    module = compiled(saved(tmp_path / "small.onnx", small()), engines)
    newer = small()
    newer.opset_import[0].version = 18
    with pytest.raises(RefitError, match=r"another graph \(opset ai.onnx: 17 -> 18"):
        module.refit(saved(tmp_path / "newer.onnx", newer))


def test_a_cancelled_build_leaves_nothing(tmp_path: Path) -> None:
    """No entry, no alias and no partial plan."""
    path = saved(tmp_path / "small.onnx", small())
    with trtcache.watching(lambda _: False), pytest.raises(BuildCancelledError, match="nothing was stored"):
        compiled(path, tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("entries/*/*"))


def test_a_forbidden_build_explains_the_miss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the differences to the nearest entry's graph."""
    root = tmp_path / "cache"
    compiled(saved(tmp_path / "small.onnx", small()), root)
    changed = small()
    changed.graph.node[2].op_type = "Tanh"
    path = saved(tmp_path / "n.onnx", changed)
    monkeypatch.setenv("TRTCACHE_FORBID_BUILD", "1")
    with pytest.raises(BuildForbiddenError, match="node Relu operator: Relu -> Tanh"):
        compiled(path, root, name="small")
