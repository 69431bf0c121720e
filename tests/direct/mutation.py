"""Random edits of Python source, each of one place of its syntax tree."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

_SWAPS: dict[type, type] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.Pow: ast.Mult}
_TESTS: dict[type, type] = {ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.NotEq: ast.Eq}


def mutated(source: str, draw: random.Random) -> str:
    """Return source with one place of it changed."""
    tree = ast.parse(source)
    places = [one for one in ast.walk(tree) if _edits(one)]
    place = draw.choice(places)
    draw.choice(_edits(place))(place, draw)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _edits(node: ast.AST) -> list[Any]:
    found: list[Any] = []
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float, str)):
        found.append(_constant)
    if isinstance(node, ast.BinOp) and type(node.op) in _SWAPS:
        found += [_operator, _exchanged]
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _TESTS:
        found.append(_comparison)
    if isinstance(node, ast.FunctionDef):
        found += [_dropped, _doubled, _defaulted]
    if isinstance(node, (ast.If, ast.IfExp)):
        found.append(_negated)
    if isinstance(node, ast.ClassDef):
        found.append(_attribute)
    return found


def _constant(node: ast.Constant, draw: random.Random) -> None:
    value = node.value
    if isinstance(value, bool):
        node.value = not value
    elif isinstance(value, (int, float)):
        node.value = draw.choice([value + 1, value * 2, -value, float(value), int(value)])
    elif isinstance(value, str):
        node.value = draw.choice([value + "_", "tanh", "relu", ""])


def _operator(node: ast.BinOp, _: random.Random) -> None:
    node.op = _SWAPS[type(node.op)]()


def _exchanged(node: ast.BinOp, _: random.Random) -> None:
    node.left, node.right = node.right, node.left


def _comparison(node: ast.Compare, _: random.Random) -> None:
    node.ops[0] = _TESTS[type(node.ops[0])]()


def _negated(node: ast.If, _: random.Random) -> None:
    node.test = ast.UnaryOp(ast.Not(), node.test)


def _dropped(node: ast.FunctionDef, draw: random.Random) -> None:
    if len(node.body) > 1:
        node.body.pop(draw.randrange(len(node.body) - 1))


def _doubled(node: ast.FunctionDef, draw: random.Random) -> None:
    place = draw.randrange(len(node.body))
    node.body.insert(place, node.body[place])


def _defaulted(node: ast.FunctionDef, _: random.Random) -> None:
    for one in node.args.defaults:
        if isinstance(one, ast.Constant) and isinstance(one.value, (int, float)):
            one.value += 1


def _attribute(node: ast.ClassDef, _: random.Random) -> None:
    node.body.append(ast.parse("factor = 7.0").body[0])
