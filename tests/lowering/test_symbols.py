"""Sizes that vary, written as JSON and put into numbers again."""

from __future__ import annotations

import pytest
import sympy
import torch
from torch.export import Dim
from torch.utils._sympy.functions import CleanDiv, FloorDiv, Max, Min, Mod, PythonMod

import trtcache
from trtcache.lowering.interface import evaluate
from trtcache.lowering.symbols import Symbols

A, B = (sympy.Symbol(name, integer=True, positive=True) for name in "ab")

EXPRESSIONS = {
    "square": A**2,
    "quotient": FloorDiv(A, 2),
    "whole quotient": CleanDiv(8 * A, 4 * B),
    "quotient of two": FloorDiv(A + 1, B),
    "rest": Mod(A, 3),
    "rest as Python has it": PythonMod(A, 3),
    "sum": A - 2 * B + 7,
    "product": 3 * A * B**2,
    "largest": Max(A, 5),
    "smallest": Min(A, B),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_keeps_its_value(name: str) -> None:
    """A base and its exponent, and what is divided and by what, are not exchanged when an expression is written."""
    expression, symbols = EXPRESSIONS[name], Symbols()
    written = symbols.write(expression)
    for values in ({A: 7, B: 2}, {A: 3, B: 5}, {A: 12, B: 4}):
        sizes = {number: values[symbol] for number, symbol in enumerate(symbols.order)}
        assert evaluate(written, sizes) == expression.subs(values)


class _Square(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1


def test_squares_that_vary_are_read_where_they_lie(interpreter: str) -> None:
    """Of a batch of squares of varying size the stride is the square of the size, whatever the size is."""
    size = Dim("size", min=2, max=64)
    shapes = {"x": {0: Dim("batch", min=1, max=9), 1: size, 2: size}}
    module = trtcache.compile(_Square(), (torch.randn(2, 5, 5),), dynamic_shapes=shapes, backend=interpreter)
    for count in (2, 3, 5, 64):
        given = torch.randn(3, count, count)
        assert torch.equal(module(given), given * 2 + 1)
