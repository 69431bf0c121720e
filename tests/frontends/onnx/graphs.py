"""ONNX models for tests, from text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from trtcache.frontends.onnx.canonical import CanonicalGraph, canonical_graph
from trtcache.frontends.onnx.file import OnnxFile
from trtcache.frontends.onnx.interface import read_ports

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'

SMALL = """
small (float[N, 4] x) => (float[N, 3] y)
{
  h = MatMul(x, w)
  s = Add(h, b)
  r = Relu(s)
  y = Reshape(r, shape)
}
"""
"""A model with two weights, ``w`` and ``b``, and a constant that decides a shape."""

BRANCHES = """g (float[2] x, bool c) => (float[2] y)
<float[2] k = {2, 3}>
{
  a = Relu(x)
  y = If (c) <
    then_branch = t () => (float[2] p) { p = Mul(a, k) },
    else_branch = e () => (float[2] q) { q = Neg(a) }
  >
}"""
FUNCTION = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
g (float[2] x) => (float[2] y) { y = own.twice <by: float = 2.0> (x) }
<domain: "own", opset_import: ["" : 17]>
twice <by> (p) => (q) { k = Constant <value_float: float = @by> ()
  q = Mul(p, k) }"""


def model(text: str, weights: Mapping[str, np.ndarray[Any, Any]] | None = None) -> onnx.ModelProto:
    """Return a model of some text in ONNX's own syntax, with initializers."""
    made = parser.parse_model(text if text.lstrip().startswith("<") else HEAD + text)
    for name, value in (weights or {}).items():
        made.graph.initializer.append(numpy_helper.from_array(value, name))
    return made


def small(seed: int = 0, shape: tuple[int, ...] = (-1, 3)) -> onnx.ModelProto:
    """Return ``SMALL`` with weights of a seed."""
    draw = np.random.default_rng(seed)
    w, b = draw.normal(size=(4, 3)).astype("f4"), draw.normal(size=3).astype("f4")
    return model(SMALL, {"w": w, "b": b, "shape": np.array(shape, "i8")})


def saved(path: Path, made: onnx.ModelProto, *, external: bool = False) -> Path:
    """Write a model into a file, and its tensors into another one if they are to be external."""
    copy = onnx.ModelProto()
    copy.CopyFrom(made)
    where = path.name + ".data"
    path.with_name(where).unlink(missing_ok=True)  # onnx appends to it
    onnx.save(copy, path, save_as_external_data=external, location=where, size_threshold=0)
    return path


def canonical(path: Path) -> CanonicalGraph:
    """Return the canonical form of a file's graph."""
    file = OnnxFile(path)
    return canonical_graph(file, read_ports(file)[0])


def answers(made: onnx.ModelProto, seed: int = 1) -> list[np.ndarray[Any, Any]]:
    """Return what onnx's reference says a model computes, of inputs that only their place and shape decide."""
    draw = np.random.default_rng(seed)
    known = {one.name for one in made.graph.initializer}
    given = {}
    for one in made.graph.input:
        if one.name not in known:
            tensor = one.type.tensor_type
            shape = [size.dim_value or 2 for size in tensor.shape.dim]
            kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            value = draw.normal(size=shape) * 3
            given[one.name] = (value > 0 if kind == np.bool_ else value).astype(kind)
    return list(ReferenceEvaluator(made).run(None, given))
