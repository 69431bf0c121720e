"""Programs that differ from a stored one in one thing: the miss names that thing, and nothing else."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import trtcache
from tests.keys.designs import picture, sequence, variants
from trtcache.config.environment import Config
from trtcache.digests import encode
from trtcache.errors import BuildForbiddenError
from trtcache.keys.explain import explain
from trtcache.keys.graph_diff import summary
from trtcache.keys.stored_graph import StoredGraph

VARIANTS = variants()


@pytest.fixture(scope="module")
def stored(interpreter: str, tmp_path_factory: pytest.TempPathFactory) -> trtcache.Cache:
    """A cache with the two programs in it, which builds nothing more."""
    root = tmp_path_factory.mktemp("why") / "cache"
    for base in (picture(), sequence()):
        trtcache.compile(base.model, base.args, backend=interpreter, cache=root)
    return trtcache.Cache(config=Config(root, forbid_build=True))


@pytest.mark.parametrize("name", VARIANTS)
def test_the_one_true_difference_is_named(interpreter: str, stored: trtcache.Cache, name: str) -> None:
    """The error of a forbidden build says what differs from the nearest entry, and that is what was changed."""
    variant = VARIANTS[name]
    with pytest.raises(BuildForbiddenError) as caught:
        trtcache.compile(variant.model, variant.args, backend=interpreter, cache=stored, **variant.options)
    told = caught.value.why.partition(" differs in ")[2]
    assert re.fullmatch(variant.told, told), told
    assert caught.value.why in str(caught.value)


DOCUMENT: dict[str, Any] = {
    "format": 1,
    "kind": "aot_inductor",
    "parts": {
        "graph": {"$digest": "b3:" + "0" * 64, "$size": 140},
        "inputs": [{"leaf": 0, "dtype": "float32", "shape": [{"sym": 0}, 4], "stride": [4, 1], "device": "cpu"}],
        "values": [[1, None], [2, {"$float": (0.5).hex()}]],
        "structure": {"arguments": ["builtins.tuple", None, None], "output": ["builtins.dict", ["a", "b"], None, None]},
        "sizes": [[2, 64]],
        "pipeline": ["assertions@1", "dead_code@1", "fold_constants@1"],
        "settings": {"inductor": {"cpp.threads": 2}, "operator_versions": {}},
        "ambient": {"float32_matmul_precision": "highest", "mkldnn": True},
        "target": {"device": "cpu", "level": "native", "instruction_sets": ["avx", "avx2"], "capability": None},
        "toolchain": {"torch": "2.12.1", "torch_git": "cf30"},
    },
}


def edited(*changes: tuple[str, Any]) -> dict[str, Any]:
    """Return the document with parts replaced, by path."""
    document = copy.deepcopy(DOCUMENT)
    for path, value in changes:
        *parents, last = path.split("/")
        place: Any = document["parts"]
        for name in parents:
            place = place[int(name) if isinstance(place, list) else name]
        place[int(last) if isinstance(place, list) else last] = value
    return document


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ([("toolchain/torch", "2.13.0")], ["toolchain.torch: 2.12.1 -> 2.13.0"]),
        ([("toolchain/torch", "2.13.0"), ("toolchain/torch_git", "a1b2")], ["toolchain.torch: 2.12.1 -> 2.13.0"]),
        ([("toolchain/torch_git", "a1b2")], ["toolchain.torch_git: cf30 -> a1b2"]),
        ([("toolchain/cuda", "13.0")], ["toolchain.cuda added: 13.0"]),
        (
            [("target/level", "x86-64-v3"), ("target/instruction_sets", ["avx"])],
            ["target.level: native -> x86-64-v3"],
        ),
        ([("target/instruction_sets", ["avx", "avx2", "gfni"])], ["target.instruction_sets[2] added: gfni"]),
        ([("target/capability", "9.0")], ["target.capability: none -> 9.0"]),
        (
            [("target/device", "cuda"), ("target/capability", "9.0"), ("inputs/0/device", "cuda")],
            ["target.device: cpu -> cuda"],
        ),
        ([("settings/inductor", {"cpp.threads": 4})], ["settings.inductor['cpp.threads']: 2 -> 4"]),
        ([("settings/operator_versions", {"m": "1"})], ["settings.operator_versions.m added: 1"]),
        ([("ambient/mkldnn", False)], ["ambient.mkldnn: true -> false"]),
        ([("pipeline/1", "dead_code@2")], ["pipeline[1]: dead_code@1 -> dead_code@2"]),
        ([("pipeline", ["assertions@1", "fold_constants@1"])], ["pipeline[1] removed: dead_code@1"]),
        ([("sizes/0/1", 128)], ["sizes.s0.max: 64 -> 128"]),
        ([("sizes/0/1", None)], ["sizes.s0.max: 64 -> none"]),
        ([("inputs/0/shape/0", 8)], ["inputs[0].shape[0]: s0 -> 8"]),
        ([("inputs/0/shape/0", ["Mul", 2, {"sym": 0}])], ["inputs[0].shape[0]: s0 -> Mul(2, s0)"]),
        ([("inputs/0/shape", [4]), ("inputs/0/stride", [1])], ["inputs[0].shape: [s0, 4] -> [4]"]),
        ([("inputs/0/stride", [1, 9])], ["inputs[0].stride: [4, 1] -> [1, 9]"]),
        ([("values/1/1", {"$float": (0.25).hex()})], ["values[2]: 0.5 -> 0.25"]),
        ([("values/0/1", 1)], ["values[1]: none -> 1"]),
        (
            [("structure/output", ["builtins.dict", ["a", "c"], None, None])],
            ["structure.output: dict(a=*, b=*) -> dict(a=*, c=*)"],
        ),
        ([("graph", {"$digest": "b3:" + "1" * 64, "$size": 140})], ["graph: b3:000000000000 -> b3:111111111111"]),
        (
            [("ambient/mkldnn", False), ("toolchain/torch", "2.13.0")],
            ["toolchain.torch: 2.12.1 -> 2.13.0", "ambient.mkldnn: true -> false"],
        ),
    ],
)
def test_parts_of_the_key_are_told_in_words(changes: list[tuple[str, Any]], told: list[str]) -> None:
    """What stands first may be why something later differs; what only follows is left out."""
    assert [str(one) for one in explain(DOCUMENT, edited(*changes))] == told


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (
            ["collections.deque", 3, None],
            ["collections.deque", 4, None],
            "collections.deque[3](*) -> collections.deque[4](*)",
        ),
        (
            ["builtins.dict", [1], None],
            ["builtins.dict", ["1"], None],
            "builtins.dict[[1]](*) -> builtins.dict[['1']](*)",
        ),
        (
            ["collections.namedtuple", "one.Point", None],
            ["collections.namedtuple", "other.Point", None],
            "collections.namedtuple['one.Point'](*) -> collections.namedtuple['other.Point'](*)",
        ),
        (
            ["collections.defaultdict", ["one.f", ["a"]], None],
            ["collections.defaultdict", ["other.f", ["a"]], None],
            "collections.defaultdict[['one.f', ['a']]](*) -> collections.defaultdict[['other.f', ['a']]](*)",
        ),
        (["one.Pair", None, None], ["other.Pair", None, None], "one.Pair(*) -> other.Pair(*)"),
    ],
)
def test_trees_that_read_alike_are_shown_with_their_contexts(one: list[Any], other: list[Any], expected: str) -> None:
    """The names of classes without their modules do not say how these differ."""
    a, b = (edited(("structure/output", tree)) for tree in (one, other))
    assert [str(found) for found in explain(a, b)] == [f"structure.output: {expected}"]


def test_equal_documents_have_no_difference() -> None:
    """And a summary of nothing says so."""
    assert explain(DOCUMENT, copy.deepcopy(DOCUMENT)) == []
    assert summary([]) == "nothing that can be named"


def test_the_same_change_in_many_places_is_told_once() -> None:
    """Twenty inputs of another dtype are one line."""

    def inputs(dtype: str) -> list[dict[str, Any]]:
        return [{"leaf": leaf, "dtype": dtype, "shape": [2], "stride": [1], "device": "cpu"} for leaf in range(20)]

    (told,) = explain(edited(("inputs", inputs("float32"))), edited(("inputs", inputs("float16"))))
    assert str(told) == "inputs[0].dtype: float32 -> float16 (and 19 alike)"


leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
parts = st.dictionaries(
    st.text("abc_", min_size=1, max_size=3) | st.sampled_from(["inputs", "values", "sizes", "structure", "graph"]),
    st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz"), inner, max_size=3)
    ),
    max_size=4,
)


@given(parts, parts)
def test_any_documents_can_be_compared(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Another builder's parts may have our names and any form: there is a difference exactly if they differ."""
    a, b = ({"format": 1, "kind": "k", "parts": made} for made in (one, other))
    assert bool(explain(a, b)) == (encode(a) != encode(b))


@given(st.dictionaries(st.just("nodes"), st.recursive(leaves, lambda inner: st.lists(inner, max_size=4))) | parts)
def test_what_is_no_graph_is_a_value_error(document: dict[str, Any]) -> None:
    """An odd graph.json never gets further than its reader."""
    with pytest.raises(ValueError, match="not a lowered graph"):
        StoredGraph.of(document)
