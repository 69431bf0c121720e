"""Guards: assumptions of ``torch.export`` about the sizes of a program's inputs.

If a model branches on a size, export follows one branch and records the condition (``x.shape[1] != y.shape[1]``).
``ExportedProgram.module()`` checks these conditions; ``run_decompositions`` and torch's package loader do not. Here
they are converted to a canonical form, which is part of the program's interface and key and is checked at every call.

There are two sources, and both are read: ``ExportedProgram._guards_code``, which is saved with a program, and the
``ShapeEnv`` of a program in memory, which also has the assumptions of decompositions.

A guard is JSON: ``["Ne", {"sym": 0}, {"sym": 2}]``, with the symbols and the arithmetic of ``symbols.py`` and the
relations ``Eq``, ``Ne``, ``Le``, ``Lt``, ``And``, ``Or`` and ``Not``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import Json, json_bytes
from trtcache.errors import ExportError
from trtcache.lowering.arguments import TRACED_FROM, leaf_paths
from trtcache.lowering.interface import SmallSizes, bounds, evaluate
from trtcache.lowering.rewriting import shape_environment
from trtcache.lowering.trial_runs import input_nodes, layout_dependent_inputs, small_size_guards
from trtcache.lowering.unguarded_sizes import operator_checks

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from trtcache.lowering.symbols import Symbols


_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "Add",
    ast.Mult: "Mul",
    ast.Pow: "Pow",
    ast.FloorDiv: "FloorDiv",
    ast.Mod: "Mod",
    ast.Div: "TrueDiv",
}
_CALLS = {
    **dict.fromkeys(("max", "torch.sym_max"), "Max"),
    **dict.fromkeys(("min", "torch.sym_min"), "Min"),
    **dict.fromkeys(("int", "math.trunc"), "Trunc"),
    **dict.fromkeys(("float", "torch.sym_float"), "Float"),
    **dict.fromkeys(("math.sqrt", "torch._sym_sqrt"), "Sqrt"),
    "abs": "Abs",
    "math.floor": "Floor",
    "math.ceil": "Ceil",
    "round": "Round",
}
_RELATIONS: dict[type[ast.cmpop], tuple[str, int]] = {  # and whether the sides are in this order
    ast.Eq: ("Eq", 1),
    ast.NotEq: ("Ne", 1),
    ast.Lt: ("Lt", 1),
    ast.LtE: ("Le", 1),
    ast.Gt: ("Lt", -1),
    ast.GtE: ("Le", -1),
}
_COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min", "Eq", "Ne", "And", "Or"})
_INFINITIES: tuple[Json, Json] = (["Number", "inf"], ["Number", "-inf"])
_NEGATED = {"Eq": "Ne", "Ne": "Eq"}
_SPREAD = re.compile(r"(.+)_(\d+)")  # arguments of ``*xs`` are named xs_0, xs_1, and in guards L['xs'][0]


class UnknownTermError(ValueError):
    """A term of a guard has no canonical form."""


@frozen_dataclass
class ExportGuards:
    """Assumptions about sizes from an exported program, before it is lowered.

    Attributes:
        texts: its guards as saved by torch, in terms of arguments.
        terms: the sizes, strides and numbers of its inputs, by their terms in the texts.
        environment: the ``ShapeEnv`` of its symbols, whose guards are in terms of symbols and grow when it is
            decomposed; None without dynamic sizes.
        operators: conditions of its operators that decompositions drop, as sympy expressions.
        excluded: conditions on sizes of 0 and 1, likewise; empty before these sizes are tried.
        fixed_layouts: the leaves of inputs that it takes in the layout of the example only.
        added: those of the texts that torch has not recorded, as sympy expressions; empty for a program from a file.
    """

    texts: tuple[str, ...]
    terms: Mapping[str, Any]
    environment: Any
    operators: tuple[Any, ...]
    excluded: tuple[Any, ...] = ()
    fixed_layouts: frozenset[int] = frozenset()
    added: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, program: ExportedProgram) -> ExportGuards:
        """Read the guards of an exported program, before it is decomposed."""
        texts = tuple(program._guards_code)
        terms = _named_terms(program) if texts else {}
        added = getattr(program, "_added_guards", {})
        layouts = layout_dependent_inputs(program)
        environment = shape_environment(program.graph.nodes)
        return cls(texts, terms, environment, operator_checks(program), (), layouts, added)

    def with_small_sizes(self, program: ExportedProgram, decomposed: ExportedProgram) -> ExportGuards:
        """Return these guards with conditions on sizes of 0 and 1, found by trial (``trial_runs.py``)."""
        known = (*_live(self.environment), *self.operators)
        return replace(self, excluded=tuple(small_size_guards(program, decomposed, known)))

    def finalize(
        self, proven: Iterable[Any], symbols: Symbols, ranges: Sequence[tuple[int | None, int | None]]
    ) -> tuple[tuple[Json, ...], SmallSizes]:
        """Return the guards in canonical form, sorted, without those implied by ranges, and the small sizes that pass.

        A range starts at 2 if torch traced with sizes from 2 on and nothing else was requested: its upper end is then
        open, or a guard. Calls may have smaller sizes there.

        Args:
            proven: conditions of assertions that lowering removed, as sympy expressions.
            symbols: the symbols of the inputs' sizes, numbered.
            ranges: the minimum and maximum of each symbol.
        """
        live = _live(self.environment)
        found = [*symbolic_guards((*live, *self.operators, *proven), symbols)]
        for text in self.texts:
            try:
                found.append(
                    parse(
                        text, lambda term: symbols.write(self.terms[term]) if self.terms.get(term) is not None else None
                    )
                )
            except UnknownTermError as error:
                if text in self.added:  # it may name the size of an input in a way that is not known here
                    found += symbolic_guards([self.environment.replace(self.added[text])], symbols)
                elif not live:  # otherwise the same guards were read from the environment
                    raise _uncheckable(text, error) from error
        parts = {json_bytes(part): part for guard in found for part in conjuncts(guard)}
        least = []
        for number, (low, high) in enumerate(ranges):
            # An upper end comes from a guard, ``s <= 6`` or ``s < 7``, or else from the caller.
            ends = (["Le", {"sym": number}, high], ["Lt", {"sym": number}, high + 1]) if high is not None else ()
            is_traced = low == TRACED_FROM and (high is None or any(json_bytes(end) in parts for end in ends))
            least.append(0 if is_traced else low)
        checked_ranges = [(low, high) for low, (_, high) in zip(least, ranges, strict=True)]
        traced = [(max(low or 0, TRACED_FROM), high) for low, high in ranges]
        kept = {key: part for key, part in parts.items() if part is not True and not _is_implied(part, checked_ranges)}
        # Guards that are true for all sizes from 2 on only exclude small sizes. They are not in the key: programs with
        # one graph have one engine, whatever their models do with a batch of one.
        small = [part for _, part in sorted(kept.items()) if _is_implied(part, traced)]
        guards = tuple(part for _, part in sorted(kept.items()) if part not in small)
        excluded = (*small, *(one for one in symbolic_guards(self.excluded, symbols) if one not in small))
        return guards, SmallSizes(tuple(least), excluded)


def symbolic_guards(guards: Iterable[Any], symbols: Symbols) -> tuple[Json, ...]:
    """Return sympy expressions as guards in canonical form, without those on symbols that are not the inputs'.

    Raises:
        ExportError: a guard has an unknown term, so that it could not be checked.
    """
    from torch.utils._sympy.printers import PythonPrinter

    printer, found = PythonPrinter(), []
    for guard in guards:
        free: set[Any] = getattr(guard, "free_symbols", set())
        if not free or not free <= set(symbols.order):
            continue  # an assertion in the graph, or another program's guard
        names = {str(symbol): symbols.write(symbol) for symbol in guard.free_symbols}
        text = printer.doprint(guard)
        try:
            found.append(parse(text, names.get))
        except UnknownTermError as error:
            raise _uncheckable(text, error) from error
    return tuple(found)


def _uncheckable(text: str, error: UnknownTermError) -> ExportError:
    return ExportError("the program", f"its assumption {text} cannot be checked at a call: {error}")


def _live(environment: Any) -> list[Any]:
    """Return the guards of a ``ShapeEnv`` in terms of its remaining symbols."""
    return [environment.replace(guard.expr) for guard in environment.guards] if environment is not None else []


def _named_terms(program: ExportedProgram) -> dict[str, Any]:
    """Return the sizes, strides and numbers of a program's inputs by their terms in guards."""
    entry = program.module_call_graph[0].signature
    names = list(entry.forward_arg_names or ()) if entry else []
    paths = leaf_paths(program.call_spec.in_spec)
    own = {_argument_name(path, names) for path in paths}
    terms: dict[str, Any] = {}
    for leaf, (node, path) in enumerate(zip(input_nodes(program), paths, strict=True)):
        value = node.meta.get("val")
        for root in _roots(leaf, path, names, own):
            if isinstance(value, torch.SymInt) or type(value) is int:
                terms[root] = value
            elif isinstance(value, torch.Tensor):
                terms |= {f"{root}.size()[{dim}]": size for dim, size in enumerate(value.shape)}
                terms |= {f"{root}.stride()[{dim}]": step for dim, step in enumerate(value.stride())}
    return terms


def _argument_name(path: tuple[Any, ...], names: Sequence[str]) -> str:
    group, first, *_ = path
    if group.idx != 0:
        return str(first.key)
    return names[first.idx] if first.idx < len(names) else f"args_{first.idx}"


def _roots(leaf: int, path: tuple[Any, ...], names: Sequence[str], own: Collection[str]) -> Iterator[str]:
    """Yield torch's notations for an argument's leaf: ``L['x']``, ``L['xs'][0]``, ``L['flat_args'][3]``.

    A notation that begins with the name of another argument (one of ``own``) is that argument's.
    """
    group, first, *rest = path
    name, steps = _argument_name(path, names), pytree.keystr(tuple(rest))
    yield f"L[{name!r}]{steps}"
    others = {"flat_args": f"[{leaf}]"}
    others |= {"args": f"[{first.idx}]{steps}"} if group.idx == 0 else {"kwargs": f"[{name!r}]{steps}"}
    if spread := _SPREAD.fullmatch(name):
        others[spread[1]] = f"[{spread[2]}]{steps}"
    yield from (f"L[{root!r}]{place}" for root, place in others.items() if root not in own)


def parse(text: str, term: Callable[[str], Json]) -> Json:
    """Convert a guard printed by torch to canonical form.

    Args:
        text: a Python expression.
        term: returns the canonical form of a source such as ``L['x'].size()[0]``, or None.

    Raises:
        UnknownTermError: it contains an unknown term.
    """
    return _convert(ast.parse(text.replace("\n", " ").strip(), mode="eval").body, term)


def _convert(node: ast.expr, term: Callable[[str], Json]) -> Json:
    match node:
        case ast.Constant(value=bool() | int() as value):
            return value
        case ast.Constant(value=float() as value):
            return ["Number", value.hex()]
        case ast.BoolOp(op=operator, values=values):
            return combine("And" if isinstance(operator, ast.And) else "Or", [_convert(one, term) for one in values])
        case ast.UnaryOp(op=operator, operand=operand) if function := _UNARY.get(type(operator)):
            return function(_convert(operand, term))
        case ast.Compare(left=left, ops=operators, comparators=others) if {*map(type, operators)} <= {*_RELATIONS}:
            terms = [_convert(one, term) for one in (left, *others)]
            relations = [_RELATIONS[type(one)] for one in operators]
            pairs = zip(relations, pairwise(terms), strict=True)
            return combine("And", [combine(head, pair[::step]) for (head, step), pair in pairs])
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return combine("Add", [_convert(left, term), combine("Mul", [-1, _convert(right, term)])])
        case ast.BinOp(left=left, op=operator, right=right) if head := _BINARY.get(type(operator)):
            return combine(head, [_convert(left, term), _convert(right, term)])
    source = ast.unparse(node)
    if (found := _INFINITIES[0] if source == "math.inf" else term(source)) is not None:
        return found
    if isinstance(node, ast.Call) and (head := _CALLS.get(ast.unparse(node.func))) and not node.keywords:
        return combine(head, [_convert(one, term) for one in node.args])
    raise UnknownTermError(source)


def negate(guard: Json) -> Json:
    """Return the negation of a guard."""
    if isinstance(guard, bool):
        return not guard
    if isinstance(guard, list):
        head, *rest = guard
        if head in _NEGATED:
            return [_NEGATED[str(head)], *rest]
        if head in {"Lt", "Le"}:
            return combine("Le" if head == "Lt" else "Lt", reversed(rest))
        if head == "Not":
            return rest[0]
    return ["Not", guard]


def combine(head: str, parts: Iterable[Json]) -> Json:
    """Return an expression in canonical form: nested sums flattened, commutative arguments sorted, numbers folded."""
    args: list[Json] = []
    for part in parts:
        nested = isinstance(part, list) and part[0] == head and head in {"Add", "Mul", "Max", "Min", "And", "Or"}
        args += part[1:] if nested and isinstance(part, list) else [part]
    if head in {"And", "Or"}:
        return _junction(head, args)
    if head in {"Add", "Mul"}:
        args = _fold_numbers(head, args)
        if len(args) == 1:
            return args[0]
    if head in _COMMUTATIVE:
        args.sort(key=json_bytes)
    if head in {"Eq", "Ne", "Le", "Lt"} and args[0] == args[1]:
        return head in {"Eq", "Le"}
    if head in {"Eq", "Ne", "Le", "Lt"} and any(one in _INFINITIES for one in args):
        # The other side is a size, or arithmetic on sizes: it is finite.
        return bool(evaluate([head, *(one if one in _INFINITIES else 0 for one in args)], {}))
    if all(type(one) is int for one in args):
        value: Json = evaluate([head, *args], {})
        if type(value) in {bool, int}:
            return value
    return [head, *args]


_UNARY: dict[type[ast.unaryop], Callable[[Json], Json]] = {
    ast.Not: negate,
    ast.USub: lambda value: _INFINITIES[1] if value == _INFINITIES[0] else combine("Mul", [-1, value]),
    ast.UAdd: lambda value: value,
}


def _junction(head: str, args: list[Json]) -> Json:
    """Return ``And`` or ``Or`` without redundant parts."""
    neutral = head == "And"
    if any(one is (not neutral) for one in args):
        return not neutral
    kept = {json_bytes(one): one for one in args if one is not neutral}
    if not kept:
        return neutral
    parts = [kept[key] for key in sorted(kept)]
    return parts[0] if len(parts) == 1 else [head, *parts]


def _fold_numbers(head: str, args: list[Json]) -> list[Json]:
    """Return the arguments of a sum or product with its numbers combined."""
    total, neutral = (0, 0) if head == "Add" else (1, 1)
    rest: list[Json] = []
    for argument in args:
        if type(argument) is int:
            total = total + argument if head == "Add" else total * argument
        else:
            rest.append(argument)
    if head == "Mul" and total == 0:
        return [0]
    return [total, *rest] if total != neutral or not rest else rest


def conjuncts(guard: Json) -> list[Json]:
    """Return the conditions of a conjunction; any other guard alone."""
    return guard[1:] if isinstance(guard, list) and guard[0] == "And" else [guard]


def _is_implied(guard: Json, ranges: Sequence[tuple[int | None, int | None]]) -> bool:
    """Return whether a comparison is true for all sizes in the ranges, by interval arithmetic."""
    if not isinstance(guard, list) or guard[0] not in {"Le", "Lt", "Ne"}:
        return False
    (left_least, left_most), (right_least, right_most) = (bounds(one, ranges) for one in guard[1:])
    if guard[0] == "Le":
        return left_most <= right_least
    return left_most < right_least or (guard[0] == "Ne" and right_most < left_least)
