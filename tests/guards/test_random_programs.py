"""Random programs with guards and assertions: they answer what the exported program answers, or both raise."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.export import Dim

import trtcache
from tests.comparing import difference
from tests.effort import tries
from trtcache.errors import ExportError, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

# Not traced: thousands of exports would take several times as long.
pytestmark = [pytest.mark.torture, pytest.mark.no_cover]

SIZES = ("a", "b", "c", "d", "n")
"""Sizes of x (a, b) and y (c, d), and a number that is read from a tensor."""

_LEAF = st.one_of(st.sampled_from(SIZES[:4]), st.integers(0, 9).map(str))
_READ = st.one_of(st.sampled_from(SIZES), st.integers(0, 9).map(str))


def _term(leaf: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        divisor = st.sampled_from(("2", "3", "4"))
        return st.one_of(
            st.builds("({} {} {})".format, inner, st.sampled_from(("+", "-", "*")), inner),
            st.builds("({} {} {})".format, inner, st.sampled_from(("//", "%")), divisor),
            st.builds("torch.sym_max({}, {})".format, inner, inner),
            st.builds("torch.sym_min({}, {})".format, inner, inner),
        )

    return st.recursive(leaf, larger, max_leaves=3)


_RELATION = st.sampled_from(("==", "!=", "<", "<=", ">", ">="))
_PYTHON = st.sampled_from(("({} and {})", "({} or {})", "(not {} or {})"))
_SYMBOLIC = st.sampled_from(("({} & {})", "({} | {})"))


def _condition(leaf: st.SearchStrategy[str], joined: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    one = st.builds("({} {} {})".format, _term(leaf), _RELATION, _term(leaf))
    return st.one_of(one, one, st.builds(lambda form, *parts: form.format(*parts), joined, one, one))


BRANCHES = st.one_of(
    st.builds("x = x * 2 if {} else x * 3".format, _condition(_LEAF, _PYTHON)),
    st.builds("y = y + 1 if {} else y - 1".format, _condition(_LEAF, _PYTHON)),
    st.builds("torch._check({})".format, _condition(_LEAF, _SYMBOLIC)),
)
OPERATORS = st.sampled_from(
    (
        "x = x[:2]",
        "y = y[1:]",
        "x = x.flatten(0)[None]",
        "x = nn.functional.pad(x, (0, (-x.shape[1]) % 3))",
        "y = torch.cat([y, y], 1)",
        "x = x + x.sum(1, keepdim=True)",
        "y = y.t().contiguous()",
        "x = x.softmax(1)",
        "x = x.reshape(-1, 2)",
        "y = y * y.shape[0]",
        "x = x + torch.arange(x.shape[1])",
        "x = x @ y",
        "x = x.amax(0, keepdim=True)",
        "y = y.squeeze(0)[None] if y.dim() == 2 else y",
    )
)
ASSERTIONS = st.one_of(
    st.builds("torch._check({})".format, _condition(_READ, _SYMBOLIC)),
    st.sampled_from(
        (
            "torch._check(n >= 0)",
            "torch._check(n <= 8); torch._check(n >= 0); z = torch.arange(8)[:n]",
            "z = torch.zeros(n) + 1",
            "z = torch.arange(12).view(n, -1)",
            "z = torch.arange(n) + torch.arange(4)",
            "torch._assert_async(number > 2)",
            "z = (torch.arange(8) < number).nonzero(); torch._check(z.shape[0] == n)",
        )
    ),
)


@dataclass(frozen=True)
class Program:
    """The statements of a ``forward``, whether its sizes have names, and the numbers of calls."""

    statements: tuple[str, ...]
    named: bool
    reads: bool
    calls: tuple[tuple[int, ...], ...]

    def module(self) -> nn.Module:
        """Return it as a module."""
        heads = ["a, b = x.shape", "c, d = y.shape", "z = number * 2"]
        heads += ["n = number.item()"] if self.reads else []
        lines = "\n    ".join((*heads, *self.statements, "return x.exp(), y * 2, z"))
        scope: dict[str, Any] = {"torch": torch, "nn": nn}
        exec(f"def forward(self, x, y, number):\n    {lines}", scope)  # noqa: S102  # made above
        module: nn.Module = type("Random", (nn.Module,), {"forward": scope["forward"]})()
        return module

    def shapes(self) -> Any:
        """Return the ``dynamic_shapes`` to export with."""
        given = [Dim(name) if self.named else Dim.DYNAMIC for name in SIZES[:4]]
        return {"x": dict(enumerate(given[:2])), "y": dict(enumerate(given[2:])), "number": None}


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Draw a program of one to four statements, one of them a guard or an assertion, and eight calls."""
    reads = draw(st.booleans())
    kinds = (BRANCHES, OPERATORS, ASSERTIONS) if reads else (BRANCHES, BRANCHES, OPERATORS)
    statements = [draw(ASSERTIONS if reads else BRANCHES)]
    statements += draw(st.lists(st.one_of(*kinds), max_size=3))
    size = st.sampled_from((0, 1, 2, 3, 4, 4, 5, 6, 6, 8, 9))
    calls = [tuple(draw(size) for _ in SIZES) for _ in range(6)]
    same = draw(size)
    calls += [(same,) * 5, (4, 6, 8, 5, 4)]
    order = draw(st.permutations(statements))
    return Program(tuple(order), draw(st.booleans()), reads, tuple(calls))


def arguments(sizes: Sequence[int]) -> tuple[torch.Tensor, ...]:
    """Return tensors of four sizes, and one with a number."""
    generator = torch.Generator().manual_seed(0)
    shapes = (sizes[:2], sizes[2:4])
    return (*(torch.rand(*shape, generator=generator) for shape in shapes), torch.tensor(sizes[4]))


@settings(
    max_examples=tries(24, 5000),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(program=programs())
def test_both_answer_or_both_raise(program: Program, interpreter: str) -> None:
    """A compiled program never answers what the exported one does not.

    It may refuse what that answers in one case only: a size of 0 or 1, for which the program's shapes are not right.
    """
    try:
        exported = torch.export.export(
            program.module(), arguments((4, 6, 8, 5, 4)), dynamic_shapes=program.shapes(), strict=False
        )
    except Exception:  # noqa: BLE001  # torch refuses it: a guard of a named dimension, a failed check, shapes that do not fit
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            compiled = trtcache.compile(exported, backend=interpreter, cache=folder)
        except ExportError:
            return
        eager = exported.module()
        for sizes in program.calls:
            _compare(program, eager, compiled, sizes)


def _compare(program: Program, eager: Any, compiled: Any, sizes: tuple[int, ...]) -> None:
    what = "; ".join((*program.statements, f"{sizes}"))
    expected, failed = _called(eager, sizes)
    answer, refused = _called(compiled, sizes)
    if refused is None:
        assert failed is None, f"{what}: answered, and the exported program raises {failed!r}"
        why = difference(expected, answer, tolerance=1e-4)
        assert why is None, f"{what}: {why}"
    elif failed is None:
        assert isinstance(refused, InputError), f"{what}: {refused!r}"
        assert {0, 1} & set(sizes), f"{what}: refused: {refused}"


def _called(function: Any, sizes: tuple[int, ...]) -> tuple[Any, Exception | None]:
    try:
        return function(*arguments(sizes)), None
    except Exception as error:  # noqa: BLE001  # torch raises what it likes
        return None, error
