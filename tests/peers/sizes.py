"""Other inputs for an exported program: sizes near the examples' own, sizes that break relations, other numbers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch.utils import _pytree as pytree

from tests.peers.capture import copied

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers.capture import Case

_ELEMENTS = 1 << 18  # the most that a tensor of other sizes may have

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def variants(case: Case, program: torch.export.ExportedProgram, count: int, seed: int) -> list[tuple[str, Arguments]]:
    """Return calls of a program that differ from its example, each with a word that says how.

    Args:
        case: the model's example inputs.
        program: its exported program, which says which sizes vary.
        count: the most calls to return, half of them with sizes that need not fit each other.
        seed: chooses among all the calls that could be made.
    """
    rng = random.Random(seed)
    leaves, spec = pytree.tree_flatten((case.args, case.kwargs))
    written = _written(program, leaves)
    if written is None:
        return []
    examples = _symbol_values(leaves, written)
    shapes = [_shapes(leaves, written, values) for values in _assignments(examples, rng)]
    example = tuple(_as_is(leaf, one) for leaf, one in zip(leaves, written, strict=True))
    fitting = _distinct([one for one in shapes if one is not None and one != example])
    loose = [one for one in _distinct(list(_loose(leaves, written, rng))) if one not in set(fitting)]
    rng.shuffle(fitting)
    rng.shuffle(loose)
    half = count // 2
    if not fitting:
        count = min(count, 4)  # nothing varies: a few sizes that must be refused are enough
    chosen = fitting[: max(half, count - len(loose))]
    chosen += loose[: count - len(chosen)]
    made = [(_label(leaves, shape), _resized(leaves, shape, rng)) for shape in chosen]
    numbers = list(_numbers(leaves))
    rng.shuffle(numbers)
    return [(label, pytree.tree_unflatten(given, spec)) for label, given in made + numbers[:half] if given is not None]


def _written(program: torch.export.ExportedProgram, leaves: list[Any]) -> list[Any] | None:
    """Return for each leaf what its placeholder says: expressions of a tensor's sizes, of an int, or None."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    names = program.graph_signature.user_inputs
    if len(names) != len(leaves):
        return None  # arguments in another order than the program's, or None among them
    written: list[Any] = []
    for name, leaf in zip(names, leaves, strict=True):
        value = nodes[name].meta.get("val") if name in nodes else None
        if isinstance(value, torch.Tensor) and isinstance(leaf, torch.Tensor) and value.dim() == leaf.dim():
            written.append([_expression(size) for size in value.shape])
        elif isinstance(value, torch.SymInt):
            written.append(_expression(value))
        else:
            written.append(None)
    return written


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else int(size)


def _symbol_values(leaves: list[Any], written: list[Any]) -> dict[sympy.Symbol, int]:
    """Return the symbols' values in the example, from sizes that are a symbol or ``a * s + b``."""
    values: dict[sympy.Symbol, int] = {}
    for leaf, one in zip(leaves, written, strict=True):
        pairs = zip(one, leaf.shape, strict=True) if isinstance(one, list) else [(one, leaf)] if one is not None else []
        for expression, size in pairs:
            symbols = getattr(expression, "free_symbols", ())
            if len(symbols) == 1 and not isinstance(expression, int):
                (symbol,) = symbols
                found = sympy.solve(expression - size, symbol)
                if found and found[0].is_integer:
                    values.setdefault(symbol, int(found[0]))
    return values


def _assignments(examples: dict[sympy.Symbol, int], rng: random.Random) -> Iterator[dict[sympy.Symbol, int]]:
    symbols = list(examples)
    if not symbols:
        return
    changes = [
        lambda n: 0,
        lambda n: 1,
        lambda n: 2,
        lambda n: n + 1,
        lambda n: max(n - 1, 0),
        lambda n: 2 * n,
        lambda n: 3 * n,
    ]
    for change in changes:
        yield {symbol: change(size) for symbol, size in examples.items()}
        for symbol in symbols:
            yield {**examples, symbol: change(examples[symbol])}
    for size in {4, 7, *examples.values()}:
        yield dict.fromkeys(symbols, size)
    for symbol in symbols:
        for other in symbols:
            yield {**examples, symbol: examples[other]}
            yield {**examples, symbol: examples[other] + 1}
    most = max(4, 2 * max(examples.values()))
    for _ in range(12):
        yield {symbol: rng.randint(1, most) for symbol in symbols}


def _shapes(leaves: list[Any], written: list[Any], values: dict[sympy.Symbol, int]) -> tuple[Any, ...] | None:
    """Return each leaf's sizes, or an int's value; None where an expression has no such value."""
    shapes: list[Any] = []
    for leaf, one in zip(leaves, written, strict=True):
        if one is None:
            shapes.append(None)
            continue
        sizes = [_evaluated(expression, values) for expression in (one if isinstance(one, list) else [one])]
        if any(size is None or size < 0 for size in sizes):
            return None
        shapes.append(tuple(sizes) if isinstance(one, list) else sizes[0])
        if isinstance(one, list) and torch.Size(sizes).numel() > max(_ELEMENTS, leaf.numel()):
            return None
    return tuple(shapes)


def _evaluated(expression: Any, values: dict[sympy.Symbol, int]) -> int | None:
    if isinstance(expression, int):
        return expression
    found = expression.subs(values)
    return int(found) if found.is_Integer else None


def _loose(leaves: list[Any], written: list[Any], rng: random.Random) -> Iterator[tuple[Any, ...]]:
    """Yield sizes of which one does not fit the others, or is another size where the program has a fixed one."""
    example = tuple(_as_is(leaf, one) for leaf, one in zip(leaves, written, strict=True))
    for number, one in enumerate(example):
        if not isinstance(one, tuple):
            continue
        for dim, size in enumerate(one):
            for other in {0, 1, 2, size + 1, max(size - 1, 0), 2 * size, rng.randint(1, size + 5)} - {size}:
                changed = (*one[:dim], other, *one[dim + 1 :])
                if torch.Size(changed).numel() <= _ELEMENTS:
                    yield (*example[:number], changed, *example[number + 1 :])


def _as_is(leaf: Any, one: Any) -> Any:
    return None if one is None else tuple(leaf.shape) if isinstance(one, list) else leaf


def _distinct(shapes: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return list(dict.fromkeys(shapes))


def _resized(leaves: list[Any], shapes: tuple[Any, ...], rng: random.Random) -> list[Any]:
    made: dict[tuple[int, Any], Any] = {}  # what is one tensor in the example stays one
    given = []
    for leaf, shape in zip(leaves, shapes, strict=True):
        if isinstance(shape, tuple):
            value = made.get((id(leaf), shape))
            given.append(_tensor(leaf, shape, rng) if value is None else value)
            made[id(leaf), shape] = given[-1]
        else:
            given.append(copied(leaf) if shape is None else shape)
    return given


def _tensor(leaf: torch.Tensor, shape: tuple[int, ...], rng: random.Random) -> torch.Tensor:
    """Return a tensor of other sizes with values like the example's, so that an index stays one."""
    if tuple(leaf.shape) == shape:
        return copied(leaf)
    count = torch.Size(shape).numel()
    flat = leaf.detach().reshape(-1)
    if not flat.numel():
        return torch.zeros(shape, dtype=leaf.dtype)
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    least, most = (flat.min(), flat.max()) if leaf.dtype in {torch.float32, torch.float64} else (0, 0)
    if bool(least < most):  # within the example's range: a probability stays one
        values = least + (most - least) * torch.rand(count, generator=generator, dtype=leaf.dtype)
        return values.reshape(shape).requires_grad_(leaf.requires_grad)
    values = flat[torch.randint(0, flat.numel(), (count,), generator=generator)].reshape(shape).clone()
    return values.requires_grad_(leaf.requires_grad)


def _numbers(leaves: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield calls with another number in a small integer tensor, which a program may read with ``item``."""
    for place, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor) or type(leaf) is not torch.Tensor or not 0 < leaf.numel() <= 2:
            continue
        if leaf.dtype not in {torch.int64, torch.int32, torch.bool, torch.float32}:
            continue
        for change in (0, 1, 2, 3, 4, 5, -1):
            other = torch.full_like(leaf.detach(), change)
            if not torch.equal(other, leaf):
                given = [copied(one) for one in leaves]
                given[place] = other
                yield f"argument {place} is {change}", given


def _label(leaves: list[Any], shapes: tuple[Any, ...]) -> str:
    def said(leaf: Any, shape: Any) -> str:
        if isinstance(shape, tuple):
            return "x".join(map(str, shape)) or "scalar"
        return str(shape) if shape is not None else type(leaf).__name__

    return " ".join(said(leaf, shape) for leaf, shape in zip(leaves, shapes, strict=True))[:200]
