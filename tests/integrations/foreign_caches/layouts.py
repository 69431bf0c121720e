"""Caches of other tools, made from their documented layouts: no GPU has been near them."""

from __future__ import annotations

import os
import pickle
import struct
from typing import TYPE_CHECKING, Any

import onnx
from onnx import TensorProto, helper

if TYPE_CHECKING:
    from pathlib import Path

CAPABILITIES = {"7.5": 0, "8.0": 1, "8.6": 2, "8.9": 3, "12.0": 4, "12.1": 5}
NAMES = [letter * 153 for letter in "abcde"]
"""As long as the names of folders that torch_tensorrt makes of three digests."""


def tensorrt_plan(content: bytes = b"engine", version: tuple[int, int, int, int] = (10, 9, 0, 34)) -> bytes:
    """Return what begins as a plan of TensorRT does."""
    return struct.pack("<4sIQQ4B", b"ftrt", 0, 1, 0, *version).ljust(64, b"\0") + content


def rtx_plan(*capabilities: str, content: bytes = b"engine") -> bytes:
    """Return what begins as a plan of TensorRT-RTX for these compute capabilities does."""
    bits = sum(1 << CAPABILITIES[one] for one in capabilities)
    whole = 64 + len(content)
    return struct.pack("<4sIQQ4B4sI", b"vtrt", 0, 2, whole, 1, 7, 1, 116, b"vtrt", bits).ljust(64, b"\0") + content


class Trap:
    """What an unpickled entry would have to become: it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def blob(engine: bytes, trap: Path, *, protocol: int = pickle.DEFAULT_PROTOCOL, **changed: Any) -> bytes:
    """Return a pickled entry of torch_tensorrt; whoever unpickles it makes the directory ``trap``."""
    entry = {
        "serialized_engine": engine,
        "input_names": ["x", "serialized_engine"],
        "output_names": ["y"],
        "input_specs": [Trap(trap)],
        "compilation_settings": Trap(trap),
        "requires_output_allocator": False,
        **changed,
    }
    return pickle.dumps(entry, protocol)


def torch_tensorrt_cache(root: Path) -> Path:
    """Make a cache with two engines, one of them twice, an empty folder, a cut entry and a timing cache."""
    trap, sound = root.with_name("trap"), blob(rtx_plan("8.9"), root.with_name("trap"))
    contents = [sound, blob(tensorrt_plan(b"x" * 200_000), trap), sound[:-1] + b" .", None, sound[:40]]
    for name, content in zip(NAMES, contents, strict=True):
        _folder(root / name)
        if content is not None:
            _file(root / name / "blob.bin", content)
    _file(root / "timing_cache.bin", b"timings")
    return root


def onnxruntime_cache(root: Path) -> Path:
    """Make a cache with engines beside and in models, of two precisions, one without weights, and what lies beside."""
    _folder(root)
    stem = "TensorrtExecutionProvider_TRTKernel_graph_main_graph_10172195925358092734_0_0"
    _file(root / f"{stem}_fp16_sm89.engine", tensorrt_plan(b"half"))
    _file(root / f"{stem}_fp16_sm89.profile", b"ranges")
    _file(root / f"{stem}_sm80+.engine", tensorrt_plan(b"compatible"))
    _file(root / f"{stem}_sm86.stripped.engine", tensorrt_plan(b"stripped"))
    _file(root / f"{stem}_sm90.engine", b"version https://git-lfs.github.com/spec/v1\n")
    _file(root / "gone_sm89.profile", b"ranges")
    _file(root / "TensorrtExecutionProvider_cache_sm89.timing", b"timings")
    _file(root / "secret_sm89.engine.encrypted", b"?")
    _file(root / "inside_ctx.onnx", ep_context(tensorrt_plan(b"inside"), capability="89"))
    _file(root / "beside_ctx.onnx", ep_context(f"{stem}_sm80+.engine", capability="80+"))
    _file(root / "lost_ctx.onnx", ep_context("lost_sm89.engine"))
    _file(root / "hostile_ctx.onnx", ep_context("../../etc/passwd"))
    return root


def ep_context(engine: bytes | str, *, capability: str = "89") -> bytes:
    """Return a model of one ``EPContext`` node with its engine in it, or the name of the engine's file."""
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    node = helper.make_node(
        "EPContext",
        ["x"],
        ["y"],
        domain="com.microsoft",
        embed_mode=int(isinstance(engine, bytes)),
        ep_cache_context=engine,
        hardware_architecture=capability,
        onnx_model_filename="model.onnx",
    )
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    model: onnx.ModelProto = helper.make_model(helper.make_graph([node], "ctx", [value], [result]))
    return bytes(model.SerializeToString())


def _folder(path: Path) -> None:
    path.mkdir(parents=True)
    path.chmod(0o755)


def _file(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o644)
