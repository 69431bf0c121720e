"""Two stored graphs compared: small ones, written down by hand."""

from __future__ import annotations

from typing import Any

import pytest

from trtcache.keys.explain import explain
from trtcache.keys.graph_diff import graph_differences
from trtcache.keys.stored_graph import StoredGraph, format_value

F = ["torch.float32", [2, 4], "cpu"]
IN0, IN1 = ["input", [0], F, [4, 1], []], ["input", [1], F, [4, 1], []]
OPERATORS = {"aten.add.Tensor": ["self", "other", "alpha"], "aten.fill.Scalar": ["self", "value"]}


def weight(*shape: int) -> list[Any]:
    """Return the record of a weight."""
    described = {"dtype": "float32", "shape": list(shape), "stride": [1], "device": "cpu", "mutated": False}
    return ["weight", [{"slot": 0}], described, []]


def call(operator: str, *uses: int, more: tuple[Any, ...] = (), made: Any = None) -> list[Any]:
    """Return the record of a call of an operator on nodes, and what comes after them."""
    arguments = [*({"$use": k} for k in range(len(uses))), *more]
    return [f"aten.{operator}", arguments, made or F, list(uses)]


def add(one: int, other: int) -> list[Any]:
    """Return the record of a sum of two nodes."""
    return call("add.Tensor", one, other, more=(1,))


def graph(*records: list[Any], results: list[Any] | None = None, sizes: list[Any] | None = None) -> StoredGraph:
    """Return a graph whose last node is its result, unless ``results`` are given as kind, target and place."""
    chosen = results or [["result", None, len(records) - 1]]
    places = [place for *_, place in chosen if type(place) is int]
    written = [
        [kind, target, {"$use": places.index(place)} if type(place) is int else place[0]]
        for kind, target, place in chosen
    ]
    nodes = [*records, ["output", written, places]]
    return StoredGraph.of({"format": 1, "operators": OPERATORS, "sizes": sizes or [], "nodes": nodes})


def told(a: StoredGraph, b: StoredGraph) -> list[str]:
    """Return the differences of two graphs in words."""
    return [str(one) for one in graph_differences(a, b)]


PLAIN = graph(IN0, IN1, call("relu.default", 0), call("exp.default", 1), add(2, 3))
BUFFER = graph(IN0, weight(4), add(0, 1), call("neg.default", 2), results=[["weight", 0, 2], ["result", None, 3]])


@pytest.mark.parametrize(
    ("a", "b", "differences"),
    [
        (PLAIN, PLAIN, []),
        (
            PLAIN,
            graph(IN0, IN1, call("exp.default", 1), add(0, 2)),
            ["graph: node relu removed: aten.relu.default(in0)"],
        ),
        (
            PLAIN,
            graph(IN0, IN1, call("relu.default", 0), call("exp.default", 1), call("neg.default", 3), add(2, 4)),
            ["graph: node neg added: aten.neg.default(exp)"],
        ),
        (
            PLAIN,
            graph(IN0, call("relu.default", 0), add(1, 1)),
            ["graph: node add argument other: exp -> relu"],
        ),
        (
            PLAIN,
            graph(IN0, IN1, call("relu.default", 0), call("exp.default", 1), call("add.Tensor", 2, 3, more=(2,))),
            ["graph: node add argument alpha: 1 -> 2"],
        ),
        (
            graph(IN0, call("fill.Scalar", 0, more=({"$float": (0.5).hex()},))),
            graph(IN0, call("fill.Scalar", 0, more=(True,))),
            ["graph: node fill argument value: 0.5 -> true"],
        ),
        (
            graph(IN0, call("to.dtype", 0, more=({"$torch": "torch.half"},), made=["torch.float16", [2, 4], "cpu"])),
            graph(IN0, call("to.dtype", 0, more=({"$torch": "torch.double"},), made=["torch.float64", [2, 4], "cpu"])),
            ["graph: node to argument 1: half -> double"],
        ),
        (
            graph(IN0, call("hidden.default", 0)),
            graph(IN0, call("hidden.default", 0, made=["torch.float64", [2, 4], "cpu"])),
            ["graph: node hidden result: [torch.float32, [2, 4], cpu] -> [torch.float64, [2, 4], cpu]"],
        ),
        (
            graph(IN0, call("relu.default", 0), results=[["result", None, 1], ["result", None, 0]]),
            graph(IN0, call("relu.default", 0), results=[["result", None, 0], ["result", None, 1]]),
            ["graph: outputs 0, 1: relu, in0 -> in0, relu"],
        ),
        (
            graph(IN0, call("relu.default", 0)),
            graph(IN0, call("relu.default", 0), results=[["result", None, 1], ["result", None, 1]]),
            ["graph: number of outputs: 1 -> 2"],
        ),
        (
            graph(IN0, results=[["result", None, 0], ["value", None, (7,)]]),
            graph(IN0, results=[["result", None, 0], ["value", None, (8,)]]),
            ["graph: output 1: 7 -> 8"],
        ),
        (
            graph(IN0, weight(4), add(0, 1), call("neg.default", 2)),
            BUFFER,
            ["graph: new content of weight 0 added: add"],
        ),
        (
            BUFFER,
            graph(IN0, weight(4), add(0, 1), call("neg.default", 2)),
            ["graph: new content of weight 0 removed: add"],
        ),
        (
            BUFFER,
            graph(
                *(IN0, weight(4), add(0, 1), call("neg.default", 2)), results=[["weight", 0, 3], ["result", None, 3]]
            ),
            ["graph: new content of weight 0: add -> neg"],
        ),
        (
            graph(IN0, weight(4), weight(4), add(0, 1), add(3, 2)),
            graph(IN0, weight(4), add(0, 1), add(2, 1)),
            ["graph: node add_1 argument other: w1 -> w0"],
        ),
        (
            graph(IN0, call("relu.default", 0), sizes=[[2, 9]]),
            graph(IN0, call("relu.default", 0), sizes=[[2, 8]]),
            ["graph: range of size s0: [2, 9] -> [2, 8]"],
        ),
        (
            graph(IN0, call("split.default", 0, made=[F, F]), ["_operator.getitem", [{"$use": 0}, 0], F, [1]]),
            graph(IN0, call("chunk.default", 0)),
            ["graph: node split operator: aten.split.default -> aten.chunk.default"],
        ),
    ],
)
def test_graphs_are_told_apart_by_one_thing(a: StoredGraph, b: StoredGraph, differences: list[str]) -> None:
    """What follows from it is left out."""
    assert told(a, b) == differences


def test_every_kind_of_value_has_words() -> None:
    """As people write it, not as it is encoded."""
    assert format_value({"$complex": [(1.0).hex(), (-2.0).hex()]}) == "(1-2j)"
    assert format_value({"$slice": [None, 3, 1]}) == "slice[none, 3, 1]"
    assert format_value({"$size": ["Mul", 2, {"sym": 1}]}) == "Mul(2, s1)"
    assert format_value({"$device": "cuda"}) == "cuda"
    assert format_value({"$digest": "b3:" + "a" * 64, "$size": 3}) == "b3:" + "a" * 12
    assert format_value({"a": {"$use": 0}}) == "{a: %0}"


def test_records_of_another_form_are_told_by_digest() -> None:
    """A graph that can be read and not be walked costs the words, nothing else."""
    odd = graph(IN0, ["weight", [{"slot": 0}], None, []], add(0, 1))
    a, b = ({"format": 1, "kind": "k", "parts": {"graph": text}} for text in ("one", "two"))
    assert [str(one) for one in explain(a, b, (odd, PLAIN))] == ["graph: one -> two"]


def test_equal_records_under_other_digests_are_said_to_be_so() -> None:
    """A difference that the records cannot show is not passed over in silence."""
    a, b = ({"format": 1, "kind": "k", "parts": {"graph": text}} for text in ("one", "two"))
    (one,) = explain(a, b, (PLAIN, PLAIN))
    assert str(one) == "graph: as stored -> another; the stored records do not show where"
