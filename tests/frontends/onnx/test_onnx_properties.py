"""Random ONNX graphs: names and order never change the canonical form, and a change of meaning always does."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tests.frontends.onnx.graphs import answers, canonical, saved, small

_UNARY = ("Relu", "Neg", "Tanh", "Abs")
_BINARY = ("Add", "Sub", "Mul", "Max")
_SHAPE = [2, 3]


@st.composite
def graphs(draw: st.DrawFn) -> onnx.ModelProto:
    """Return a graph of elementwise operators over two inputs and three initializers."""
    names = ["x", "z", "w", "v", "k"]
    nodes = []
    for at in range(draw(st.integers(1, 12))):
        operator = draw(st.sampled_from((*_UNARY, *_BINARY)))
        count = 1 if operator in _UNARY else 2
        nodes.append(helper.make_node(operator, [draw(st.sampled_from(names)) for _ in range(count)], [f"t{at}"]))
        names.append(f"t{at}")
    results = draw(st.lists(st.sampled_from([one for one in names if one.startswith("t")]), min_size=1, unique=True))
    return _model(nodes, results)


def _model(nodes: list[Any], results: list[str]) -> onnx.ModelProto:
    values = {
        "w": np.array([1, 2, 3], "f4"),
        "v": np.array([[4, 5, 6], [7, 8, 9]], "f4"),
        "k": np.array(2.5, "f4"),
    }
    graph = helper.make_graph(
        nodes,
        "random",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, _SHAPE) for name in ("x", "z")],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, _SHAPE) for name in results],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def form(made: onnx.ModelProto) -> tuple[object, ...]:
    """Return what of a model is in its key."""
    with tempfile.TemporaryDirectory() as folder:
        found = canonical(saved(Path(folder) / "model.onnx", made))
    return found.digest, tuple(slot.shape for slot in found.slots)


def renamed(made: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """Return the model with its nodes in another order that is possible, and other names for all but its border."""
    shuffled, copy = random.Random(seed), onnx.ModelProto()
    copy.CopyFrom(made)
    waiting, known = list(copy.graph.node), {"x", "z", *(one.name for one in copy.graph.initializer)}
    ordered = []
    while waiting:
        node = shuffled.choice([one for one in waiting if set(one.input) <= known])
        waiting.remove(node)
        known |= set(node.output)
        ordered.append(node)
    border = {one.name for one in (*copy.graph.input, *copy.graph.output)}
    names = {name: name if name in border else f"n{shuffled.random()}" for name in known}
    nodes = []
    for node in ordered:
        fresh = onnx.NodeProto()
        fresh.CopyFrom(node)
        fresh.input[:] = [names[name] for name in node.input]
        fresh.output[:] = [names[name] for name in node.output]
        nodes.append(fresh)
    initializers = list(copy.graph.initializer)
    shuffled.shuffle(initializers)
    for one in initializers:
        one.name = names[one.name]
    kept = [TensorProto.FromString(one.SerializeToString()) for one in initializers]
    del copy.graph.node[:], copy.graph.initializer[:]
    copy.graph.node.extend(nodes)
    copy.graph.initializer.extend(kept)
    return copy


@settings(max_examples=60)
@given(graphs(), st.integers(0, 1000))
def test_names_and_order_are_not_in_the_canonical_form(made: onnx.ModelProto, seed: int) -> None:
    """With any order of nodes and any names."""
    assert form(renamed(made, seed)) == form(made)


@settings(max_examples=60)
@given(graphs(), st.data())
def test_other_results_mean_another_canonical_form(made: onnx.ModelProto, data: st.DataObject) -> None:
    """With one operator or operand replaced, if the reference's results differ, so does the canonical form."""
    changed = onnx.ModelProto()
    changed.CopyFrom(made)
    node = changed.graph.node[data.draw(st.integers(0, len(changed.graph.node) - 1))]
    if data.draw(st.booleans()):
        node.op_type = data.draw(st.sampled_from(_UNARY if len(node.input) == 1 else _BINARY))
    else:
        node.input[0] = data.draw(st.sampled_from(("x", "z", "w", "v", "k")))
    ours, theirs = (answers(one, seed=3) for one in (made, changed))
    if any(a.shape != b.shape or not np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True)):
        assert form(changed) != form(made)


def test_the_canonical_form_is_stable(tmp_path: Path) -> None:
    """Changing it requires a new ``FORMAT``: otherwise caches would silently be rebuilt."""
    found = canonical(saved(tmp_path / "small.onnx", small()))
    assert str(found.digest) == "b3:b47ad1740063bddf1eada09903f7fc01e5c5f26483c1b2558bdba23942ec31fc"
