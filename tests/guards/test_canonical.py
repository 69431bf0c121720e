"""Guards in their canonical form: read from torch's text, evaluated in two ways, described, and part of the key."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.effort import tries
from tests.guards.keys_of_before import PARTS, PROGRAMS, parts_of
from tests.prepare import prepare
from trtcache.digests import CacheKey
from trtcache.lowering.guard_checks import compile_guards, failed_guard
from trtcache.lowering.guards import UnknownTermError, combine, conjuncts, negate, parse
from trtcache.lowering.interface import describe, evaluate, symbols_in

pytestmark = [pytest.mark.torture]

NAMES = {"L['x'].size()[0]": 0, "L['x'].size()[1]": 1, "L['xs'][0].size()[2]": 2}
SHOWN = {0: "x.shape[0]", 1: "x.shape[1]", 2: "y.shape[2]"}
CALLS = {"max": max, "min": min, "abs": abs, "math": math, "float": float, "int": int, "round": round}


def read(text: str) -> Any:
    """Parse a guard about three sizes."""
    return parse(text, lambda term: {"sym": NAMES[term]} if term in NAMES else None)


def examples(count: int) -> settings:
    """Return settings for so many examples, the same ones on every run."""
    return settings(
        max_examples=count, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )


_SIZES = st.sampled_from([*NAMES, "0", "1", "2", "3", "7"])


def _terms(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    number = st.sampled_from(("2", "3", "5"))
    return st.one_of(
        st.builds("({} + {})".format, inner, inner),
        st.builds("({} - {})".format, inner, inner),
        st.builds("({}*{})".format, inner, inner),
        st.builds("({} // {})".format, inner, number),
        st.builds("({} % {})".format, inner, number),
        st.builds("(-{})".format, inner),
        st.builds("max({}, {})".format, inner, inner),
        st.builds("min({}, {})".format, inner, inner),
        st.builds("abs({})".format, inner),
        st.builds("math.floor({} / {})".format, inner, number),
        st.builds("math.ceil({} / {})".format, inner, number),
        st.builds("math.trunc({} / {})".format, inner, number),
    )


TERMS = st.recursive(_SIZES, _terms, max_leaves=5)
RELATIONS = st.builds("{} {} {}".format, TERMS, st.sampled_from(("==", "!=", "<", "<=", ">", ">=")), TERMS)
GUARDS = st.recursive(
    RELATIONS,
    lambda inner: st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("(not ({}))".format, inner),
    ),
    max_leaves=4,
)
VALUES = st.lists(st.integers(0, 40), min_size=3, max_size=3)


@examples(tries(300, 5000))
@given(GUARDS, VALUES)
def test_a_guard_means_what_its_text_means(text: str, sizes: list[int]) -> None:
    """Python's value of torch's text, the evaluated form and the compiled form agree."""
    plain = text
    for name, number in NAMES.items():
        plain = plain.replace(name, f"s[{number}]")
    expected = bool(eval(plain, dict(CALLS), {"s": sizes}))  # noqa: S307  # made above
    guard = read(text)
    found = guard if isinstance(guard, bool) else evaluate(guard, dict(enumerate(sizes)))
    assert found is expected
    if not isinstance(guard, bool):
        holds = compile_guards([guard])
        assert holds is not None
        assert holds(sizes) is expected
        assert (failed_guard([guard], dict(enumerate(sizes))) is None) is expected
        assert evaluate(negate(guard), dict(enumerate(sizes))) is not expected
        assert all(evaluate(one, dict(enumerate(sizes))) for one in conjuncts(guard)) is expected


@examples(tries(200, 5000))
@given(GUARDS, VALUES)
def test_a_description_is_the_guard(text: str, sizes: list[int]) -> None:
    """What a message says of a guard, read as Python, has the guard's value."""
    guard = read(text)
    if isinstance(guard, bool):
        return
    said = describe(guard, {number: f"s[{number}]" for number in range(3)})
    scope = {**CALLS, "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc}
    assert bool(eval(said, scope, {"s": sizes})) is evaluate(guard, dict(enumerate(sizes)))  # noqa: S307


@examples(tries(100, 2000))
@given(st.lists(TERMS, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_arguments_is_not_in_the_form(terms: list[str], generator: Any) -> None:
    """Sums, products, largest and smallest ones and junctions are the same in any order."""
    shuffled = list(terms)
    generator.shuffle(shuffled)
    for head in ("Add", "Mul", "Max", "Min"):
        assert combine(head, map(read, terms)) == combine(head, map(read, shuffled))
    for sign in (" and ", " or "):
        assert read(sign.join(f"{one} < 9" for one in terms)) == read(sign.join(f"{one} < 9" for one in shuffled))


@pytest.mark.parametrize(
    ("text", "form", "said"),
    [
        ("L['x'].size()[0] != L['x'].size()[1]", ["Ne", {"sym": 0}, {"sym": 1}], "x.shape[0] != x.shape[1]"),
        ("L['x'].size()[0] > 4", ["Lt", 4, {"sym": 0}], "4 < x.shape[0]"),
        ("L['x'].size()[0] % 2 == 0", ["Eq", 0, ["Mod", {"sym": 0}, 2]], "x.shape[0] % 2 == 0"),
        ("not (L['x'].size()[0] == 1)", ["Ne", 1, {"sym": 0}], "x.shape[0] != 1"),
        ("L['x'].size()[0] - L['x'].size()[1] <= 0", None, "x.shape[0] - x.shape[1] <= 0"),
        ("(L['x'].size()[0] + 1) * 2 == 6", None, "(x.shape[0] + 1) * 2 == 6"),
        ("L['x'].size()[0] / L['x'].size()[1] > 0.5", None, "0.5 < x.shape[0] / x.shape[1]"),
        ("3 < 4", True, None),
        ("torch.sym_float(L['x'].size()[0]) < math.inf", True, None),
        ("L['x'].size()[0] >= math.inf", False, None),
        ("L['x'].size()[0] * 2 > -math.inf", True, None),
        ("L['x'].size()[0] != math.inf", True, None),
        ("L['x'].size()[0] == L['x'].size()[0]", True, None),
    ],
)
def test_forms(text: str, form: Any, said: str | None) -> None:
    """Relations have one direction, numbers are computed, and messages read as the model's code does."""
    guard = read(text)
    if form is not None:
        assert guard == form
    if said is not None:
        assert describe(guard, SHOWN).replace("2 * (x.shape[0] + 1)", "(x.shape[0] + 1) * 2") == said


@pytest.mark.parametrize("text", ["f(3) < 4", "L['z'].size()[0] == 1", "L['x'].size()[0] in (1, 2)", "'a' == 'b'"])
def test_what_is_not_known_is_refused(text: str) -> None:
    """A guard with a function, a source or an operator that is not known cannot be checked."""
    with pytest.raises(UnknownTermError):
        read(text)


def test_an_infinite_number_can_be_compiled() -> None:
    """Python's name of it is no number."""
    for number, expected in (("inf", True), ("-inf", False)):
        holds = compile_guards([["Lt", {"sym": 0}, ["Add", 1, ["Number", number]]]])
        assert holds is not None
        assert holds([5]) is expected


def test_a_division_by_zero_does_not_hold() -> None:
    """A guard that divides by a size of 0 lets nothing pass."""
    guard = read("4 // L['x'].size()[0] == 2")
    assert failed_guard([guard], {0: 0}) == guard
    holds = compile_guards([guard])
    assert holds is not None
    with pytest.raises(ZeroDivisionError):
        holds([0])


def test_symbols_of_a_guard() -> None:
    """A message says the sizes of those symbols that are in a guard, each once."""
    assert symbols_in(read("L['x'].size()[1]*L['x'].size()[0] + L['x'].size()[1] > 4")) == [0, 1]
    assert compile_guards([]) is None
    with pytest.raises(ValueError, match="is not a guard"):
        compile_guards([["Sinh", {"sym": 0}]])


def test_guards_are_in_the_key() -> None:
    """Models that differ only in the condition that export followed have different keys."""
    keys = []
    for divisor in (2, 4, 4):
        model = _Deciding(divisor)
        request = prepare(model, (torch.randn(4, 6),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC, 1: None},))
        assert isinstance(request.key, CacheKey)
        parts: Any = request.key.document["parts"]
        assert parts["guards"] == [["Eq", 0, ["Mod", {"sym": 0}, divisor]]]
        keys.append(request.key.digest)
    assert keys[0] != keys[1]
    assert keys[1] == keys[2]


class _Deciding(torch.nn.Module):
    def __init__(self, divisor: int) -> None:
        super().__init__()
        self.divisor = divisor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] % self.divisor == 0 else x * 3


def _golden() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((Path(__file__).parent / "keys_of_before.json").read_text())
    return document


@pytest.mark.skipif(_golden()["torch"] != torch.__version__, reason="graphs differ between versions of torch")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_without_guards_keep_their_keys(name: str) -> None:
    """The key of a program that assumes nothing is the one that it had before guards were noted."""
    found = parts_of(name)
    assert "guards" not in found
    assert {part: found[part] for part in PARTS} == _golden()["keys"][name]
    assert set(PARTS) == set(itertools.chain(*_golden()["keys"].values()))
