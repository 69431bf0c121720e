"""The contracts of trtcache on ONNX Runtime: pytest runs them."""

from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch

import trtcache
from trtcache.testing import BackendContract, RefitContract
from trtcache.testing.refit import RefitModel, image


class TestBackend(BackendContract):
    backend = "onnxruntime"
    propagates_nan = False


class TestRefit(RefitContract):
    @pytest.fixture
    def compiled(self, tmp_path: Path) -> trtcache.CompiledModule:
        return trtcache.compile(RefitModel(0), (image("cpu"),), backend="onnxruntime", cache=tmp_path)


def test_the_optimization_is_in_the_key() -> None:
    keys = set()
    for level in ("none", "basic", "all"):
        settings = {"onnxruntime": {"optimization": level}}
        key = trtcache.key(RefitModel(0), (image("cpu"),), backend="onnxruntime", settings=settings)
        keys.add(key.digest)
    assert len(keys) == 3


def test_dtypes_that_it_lacks_stay_in_torch(tmp_path: Path) -> None:
    model, x = RefitModel(0).to(torch.bfloat16), image("cpu").to(torch.bfloat16)
    module = trtcache.compile(model, (x,), backend="onnxruntime", cache=tmp_path)
    assert module.report.left
    torch.testing.assert_close(module(x), model(x), rtol=2e-2, atol=2e-2)


def onnx_file(seed: int, path: Path) -> Path:
    torch.manual_seed(seed)
    values = {name: torch.randn(shape).numpy() for name, shape in (("first", (64, 64)), ("last", (64, 3)))}
    x = onnx.helper.make_tensor_value_info("words", onnx.TensorProto.FLOAT, ["rows", 64])
    y = onnx.helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, ["rows", 3])
    nodes = [
        onnx.helper.make_node("MatMul", ["words", "first"], ["mixed"]),
        onnx.helper.make_node("Relu", ["mixed"], ["kept"]),
        onnx.helper.make_node("MatMul", ["kept", "last"], ["scores"]),
    ]
    weights = [onnx.numpy_helper.from_array(value, name) for name, value in values.items()]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "scorer", [x], [y], weights), ir_version=9)
    onnx.save(model, path)
    return path


def reference(path: Path, x: torch.Tensor) -> torch.Tensor:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return torch.as_tensor(session.run(None, {"words": x.numpy()})[0])


def test_onnx_files_are_built_found_and_refitted(tmp_path: Path) -> None:
    first, other = (onnx_file(seed, tmp_path / f"{seed}.onnx") for seed in (0, 1))
    sizes = (trtcache.Input(min_shape=(1, 64), opt_shape=(4, 64), max_shape=(8, 64)),)
    outcomes = []
    for path in (first, other, first):
        module = trtcache.compile(str(path), sizes, backend="onnxruntime", cache=tmp_path / "cache")
        outcomes.append(module.report.partitions[0].outcome)
        for rows in (1, 3, 8):
            x = torch.randn(rows, 64)
            torch.testing.assert_close(module(x)[0], reference(path, x))
    assert outcomes == ["built", "hit", "hit"]
    module.refit(str(other))
    x = torch.randn(5, 64)
    torch.testing.assert_close(module(x)[0], reference(other, x))
    with pytest.raises(trtcache.TrtcacheError):
        module(torch.randn(9, 64))
