"""The trace of an exported program, and whether a model performs the same operations.

Dynamic sizes have to be computed, so a model with these is run with torch's own fake tensors, at a hit too. The last
line of the trace has the guards: the conditions on sizes that the model's code, or torch, has evaluated.

This is what makes direct mode sound: a program is stored under the trace of a model only if running the program's
graph gives the same trace. A later process that performs the operations of the trace computes what the program
computes, whatever has led it there. In compilers this is called translation validation (Pnueli, Siegel and Singerman,
1998).
"""

from __future__ import annotations

import functools
import operator
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._export.non_strict_utils import (
    _clean_dynamic_markers,
    _NonStrictTorchFunctionHandler,
    _override_builtin_ops,
    make_fake_inputs,
)
from torch._guards import TracingContext, tracing
from torch.export import AdditionalInputs, ShapesCollection
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.utils import _pytree as pytree

from trtcache.frontends.direct import NotComparableError
from trtcache.frontends.direct.export_context import as_exported, copy_of_dropout
from trtcache.frontends.direct.trace import FakeInputs, KnownResults, Recorder, Recording, Trace, TraceWriter, run
from trtcache.lowering.arguments import whole_ranges
from trtcache.lowering.capture import example_arguments
from trtcache.lowering.model_state import quiet
from trtcache.lowering.unguarded_sizes import LayoutMode, record_decisions

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.export import ExportedProgram

    from trtcache.digests import Json


SYMPY = str(sympy.__version__)
"""The version of what computes symbolic sizes."""
_KNOWN_OF_SYMBOLS = ("axioms", "replacements", "divisible", "var_to_range", "deferred_runtime_asserts")
_ONE_ROUNDING = frozenset({"IntTrueDiv", "ToFloat"})  # functions of torch.utils._sympy.functions


def record_symbolic(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], shapes: Any, *, is_whole: bool
) -> Recording:
    """Run a model with dynamic sizes on tensors without values, and return its trace.

    Args:
        model: the model.
        args: example arguments.
        kwargs: example keyword arguments.
        shapes: their dynamic sizes, as ``torch.export`` takes them.
        is_whole: whether ranges that start at 1 are kept (``whole_ranges``).

    Raises:
        NotComparableError: an operation cannot be written.
        Exception: the model's code raised it, or the sizes cannot be as ``dynamic_shapes`` has them.
    """
    writer = TraceWriter()
    with quiet(), whole_ranges() if is_whole else nullcontext(), record_decisions() as decisions:
        mode, (fake_args, fake_kwargs) = symbolic_inputs(model, args, kwargs, shapes)
        handler, builtins = _NonStrictTorchFunctionHandler(), _override_builtin_ops()
        contexts = LayoutMode(decisions), handler, builtins, enable_python_dispatcher(), Recorder(writer)
        out_spec = run(model, fake_args, fake_kwargs, writer, mode, *contexts)
        sizes = _guards(mode.shape_env)
    for condition in (*_conditions_of(mode.shape_env), *decisions.conditions):
        require_exact(condition)
    conditions: list[Json] = [str(condition) for condition in decisions.conditions]
    trace = [*writer.lines, ["sizes", sizes, conditions]]
    inputs, in_spec = pytree.tree_flatten((fake_args, fake_kwargs))
    return Recording(trace, mode, inputs, (in_spec, out_spec), None, writer.code)


def symbolic_inputs(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], shapes: Any
) -> tuple[FakeTensorMode, tuple[tuple[Any, ...], dict[str, Any]]]:
    """Return a mode of fake tensors, and arguments whose dynamic sizes are symbols.

    Raises:
        NotComparableError: an argument has gaps in its memory.
    """
    (args, kwargs), gapped = example_arguments(model, (args, dict(kwargs)))
    if gapped:
        raise NotComparableError("an argument has gaps in its memory")
    if isinstance(shapes, ShapesCollection):
        shapes = shapes.dynamic_shapes(model, args, dict(kwargs))  # type: ignore[no-untyped-call]  # torch's
    try:
        mode, fake_args, fake_kwargs, *_ = make_fake_inputs(model, args, kwargs, shapes)  # type: ignore[no-untyped-call]
    finally:
        for leaf in pytree.tree_leaves((args, kwargs)):  # make_fake_inputs marks sizes of the caller's tensors
            if isinstance(leaf, torch.Tensor):
                _clean_dynamic_markers(leaf)
    return mode, (fake_args, fake_kwargs)


def _conditions_of(environment: Any) -> list[Any]:
    """Return the conditions on its symbols that a ``ShapeEnv`` has guards and runtime assertions for."""
    asserts = [one for each in environment.deferred_runtime_asserts.values() for one in each]
    return [one.expr for one in (*environment.guards, *asserts)]


def _guards(environment: Any) -> Json:
    """Describe what a ``ShapeEnv`` knows of its symbols."""
    known: list[Json] = [[name, _entries(getattr(environment, name, {}))] for name in _KNOWN_OF_SYMBOLS]
    return [[str(guard.expr) for guard in environment.guards], *known]


def require_exact(term: Any) -> None:
    """Check that a term is a symbol, computed with integers, or rounded once at the end.

    SymPy folds constants and orders operands, which changes no integer. With floats it can be another number: the text
    of ``n * 0.1 * 0.3`` is that of ``n * (0.1 * 0.3)``, and has 15 digits of each constant.

    Raises:
        NotComparableError: it is not.
    """
    if getattr(term, "is_Symbol", False):
        return
    parts = term.args if getattr(term, "func", type(term)).__name__ in _ONE_ROUNDING else (term,)
    for part in parts:
        for one in sympy.preorder_traversal(sympy.sympify(part)):
            if isinstance(one, sympy.Expr) and not one.is_integer:
                raise NotComparableError(f"forward computes with floats from symbolic sizes ({term})")


def _entries(table: Any) -> Json:
    """Return the entries of a table of symbols as texts."""
    items = table.items() if isinstance(table, dict) else ((entry, None) for entry in table)
    found = [f"{key}: {list(map(_text, value)) if isinstance(value, list) else _text(value)}" for key, value in items]
    return list[Any](sorted(found))


def _text(value: Any) -> str:
    return str(getattr(value, "expr", value))


def describe_shapes(model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], shapes: Any) -> Json:
    """Describe dynamic shapes: a ``Dim`` by its name and range.

    Raises:
        NotComparableError: a part of them is of an unknown class.
    """
    if isinstance(shapes, ShapesCollection):  # it has the sizes of arguments by their numbers in this process
        shapes = shapes.dynamic_shapes(model, args, dict(kwargs))  # type: ignore[no-untyped-call]  # torch's
    kind = type(shapes)
    if kind in {int, str, type(None)}:
        plain: Json = shapes
        return plain
    if kind in {dict, OrderedDict, list, tuple}:
        items = shapes.items() if isinstance(shapes, dict) else enumerate(shapes)
        return [kind.__name__, *([str(key), describe_shapes(model, args, kwargs, value)] for key, value in items)]
    if (
        kind.__module__ == "torch.export.dynamic_shapes" and kind is not AdditionalInputs
    ):  # torch runs the program with those
        if hasattr(shapes, "root"):  # 2 * Dim("half")
            root = describe_shapes(model, args, kwargs, shapes.root)
            return ["derived", shapes.__name__, root, str(shapes.min), str(shapes.max)]
        if hasattr(shapes, "__name__"):
            return ["Dim", shapes.__name__, str(shapes.min), str(shapes.max)]
        return ["hint", str(shapes.type), str(shapes.min), str(shapes.max)]
    raise NotComparableError(f"dynamic_shapes have an object of class {kind.__qualname__}")


_WEIGHTS = frozenset({InputKind.PARAMETER, InputKind.BUFFER})
_NO_CALLS = frozenset({"changed", "results"})
# An export adds and removes these.
_SAME = frozenset({"aten.alias.default", "aten.detach.default", "aten.detach_.default"})
_LIFTS = {"aten.lift_fresh.default": "aten.lift_fresh_copy.default"}  # a program copies its constant, so that it stays
_DROPOUT = torch.ops.aten.dropout.default
_CHECKS = "aten._assert_"  # torch.export adds checks of dtypes and devices


def trace_program(
    program: ExportedProgram, mode: FakeTensorMode, inputs: Sequence[Any], results: KnownResults | None
) -> Trace:
    """Run the graph of an exported program on tensors without values, and return its trace.

    Args:
        program: the program.
        mode: handles the operators.
        inputs: the leaves of the arguments; fake tensors if their sizes are symbolic.
        results: known results of operators; None if sizes are symbolic.

    Raises:
        NotComparableError: an operation cannot be written, or gave other strides in the export.
    """
    writer, signature, weights = TraceWriter(), program.graph_signature, {**program.constants, **program.state_dict}
    fake = FakeInputs(mode)
    given, values = iter(fake.make_inputs(inputs, writer)), list[Any]()
    for spec in signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            values.append(next(given))
            continue
        tensor = weights[str(spec.target)]
        values.append(fake.make_weight(tensor))
        is_weight = spec.kind in _WEIGHTS
        writer.name(values[-1], f"weight {spec.target}" if is_weight else writer.name_constant(tensor))
    dispatcher = nullcontext() if mode.static_shapes else enable_python_dispatcher()  # as for a recording
    with tracing(TracingContext(mode)), as_exported(), mode, dispatcher, Recorder(writer, results):
        noted = list[str]()
        outputs = _Interpreter(program.graph_module, noted).run(*values, enable_io_processing=False)
        returned = []
        for spec, result in zip(signature.output_specs, outputs, strict=True):
            if spec.kind is OutputKind.USER_OUTPUT:
                returned.append(spec.arg.value if isinstance(spec.arg, ConstantArgument) else result)
            else:
                writer.lines.append(["changed", spec.kind.name, spec.target, writer.write(result)])
        writer.finish(program.call_spec.out_spec, returned)
    writer.clear()
    if noted:
        raise NotComparableError(f"a result of {noted[0]} has other strides in an export")
    return writer.lines


class _Interpreter(torch.fx.Interpreter):
    """Notes the operators whose results had other strides in the export, where Python's dispatcher is active."""

    def __init__(self, graph_module: torch.fx.GraphModule, noted: list[str]) -> None:
        super().__init__(graph_module)
        self._noted = noted

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Return an attribute; a graph, such as that of a block without gradients, is run in this way too."""
        found = super().get_attr(target, args, kwargs)
        if isinstance(found, torch.fx.GraphModule):
            return functools.partial(_Interpreter(found, self._noted).run, enable_io_processing=False)
        return found

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Call an operator; dropout in eval mode copies, as in an export."""
        result = super().call_function(target, args, kwargs)
        return copy_of_dropout(result) if target is _DROPOUT and result is args[0] else result

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run one node of the graph, and compare its result with that of the export."""
        result = super().run_node(n)
        if _has_other_strides(result, n.meta.get("val")):
            self._noted.append(str(n.target))
        return result


def _has_other_strides(result: Any, exported: Any) -> bool:
    if not isinstance(result, torch.Tensor) or not isinstance(exported, torch.Tensor):
        return False
    if result.layout != torch.strided or any(
        isinstance(size, torch.SymInt) for size in (*result.shape, *exported.shape)
    ):
        return False
    # Strides of single elements address nothing. Code that reads them turns direct mode off (``export_context``).
    return any(
        size > 1 and one != other
        for size, one, other in zip(result.shape, result.stride(), exported.stride(), strict=True)
    )


def has_sizes_of(program: ExportedProgram, inputs: Sequence[Any]) -> bool:
    """Return whether a recording has left the sizes of its inputs as symbolic as the export.

    A program has one symbol, or a term of one, for sizes that ``dynamic_shapes`` makes equal. torch.export replaces
    them afterwards, so a recording has a symbol for each.
    """
    specs = zip(program.graph.find_nodes(op="placeholder"), program.graph_signature.input_specs, strict=True)
    exported = [node.meta.get("val") for node, spec in specs if spec.kind is InputKind.USER_INPUT]
    terms: dict[str, str] = {}
    for one, other in zip(map(_sizes, inputs), map(_sizes, exported), strict=True):
        if len(one) != len(other):
            return False
        for recorded, term in zip(one, other, strict=True):
            if recorded != term and not (recorded.isidentifier() and terms.setdefault(recorded, term) == term):
                return False
    return True


def _sizes(value: Any) -> list[str]:
    sizes = value.shape if isinstance(value, torch.Tensor) else [value] if isinstance(value, torch.SymInt) else []
    return [*map(str, sizes)]


def perform_same_operations(one: Trace, other: Trace) -> bool:
    """Return whether two traces are equal but for unused results, checks, and copies that change no value."""
    return normalize(one) == normalize(other)


def normalize(trace: Trace) -> Trace:
    """Return a trace without unused results, checks and ``detach``, and with results numbered in order."""
    trace = [line for line in trace if line[0] not in {"assigned", "grad", "sizes"}]
    return _renumber(_without_unused(_without_same(trace)))


def _without_same(trace: Trace) -> Trace:
    same: dict[Any, Any] = {}
    kept: Trace = []
    for line in trace:
        if line[0] in _SAME:
            source = line[1][1][1]
            result = line[3]
            same[_hashable(result[1])] = same.get(_hashable(source), source)
        elif not str(line[0]).startswith(_CHECKS):
            renamed = _rename(line, same)
            kept.append([_LIFTS.get(line[0], line[0]), *renamed[1:]])
    return kept


def _without_unused(trace: Trace) -> Trace:
    used: set[Any] = set()
    kept: Trace = []
    for line in reversed(trace):
        is_call = line[0] not in _NO_CALLS
        if is_call and not _has_effect(line[0]) and used.isdisjoint(_new_results(line[3])):
            continue
        used.update(_hashable(name) for name in _names(line[1:3] if is_call else line[1:]))
        kept.append(line)
    return kept[::-1]


def _renumber(trace: Trace) -> Trace:
    numbers: dict[Any, Any] = {}
    equal: dict[Any, int] = {}
    kept: Trace = []
    for line in trace:
        is_call = line[0] not in _NO_CALLS
        for name in _names(line[1:3] if is_call else line[1:]):
            if isinstance(name, list) and _hashable(name) not in numbers:  # a constant
                *content, _ = _hashable(name)
                number = equal[tuple(content)] = equal.get(tuple(content), -1) + 1
                numbers[_hashable(name)] = [*content, number]
        kept.append(_rename(line[:3] if is_call else line, numbers))
        if is_call:
            for number in _new_results(line[3]):
                numbers[number] = f"result {len(numbers)}"
            kept[-1].append(_rename(_without_layout(line[3]), numbers))
    return kept


def _new_results(result: Json) -> Iterator[Any]:
    """Yield the numbers of new tensors."""
    if isinstance(result, list) and result:
        if result[0] == "new":
            yield result[1]
        elif result[0] in {"l", "u"}:
            for one in result[1:]:
                yield from _new_results(one)


def _without_layout(result: Any) -> Any:
    """Return a result with its name only: sizes and dtype follow from the call."""
    if isinstance(result, list) and result:
        if result[0] == "new":
            return ["t", result[1]]
        if result[0] in {"l", "u"}:
            return ["l", *map(_without_layout, result[1:])]
    return result


def _rename(value: Any, names: Mapping[Any, Any]) -> Any:
    if isinstance(value, list):
        if len(value) == 2 and value[0] == "t":
            return ["t", names.get(_hashable(value[1]), value[1])]
        return [_rename(item, names) for item in value]
    return value


def _names(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        if len(value) == 2 and value[0] == "t":
            yield value[1]
        else:
            for item in value:
                yield from _names(item)


def _hashable(name: Any) -> Any:
    return tuple(map(str, name)) if isinstance(name, list) else name


@functools.cache
def _has_effect(name: str) -> bool:
    """Return whether an operator writes to an argument, or draws random numbers."""
    try:
        found: Any = operator.attrgetter(name)(torch.ops)
    except AttributeError:
        return True
    return bool(found._schema.is_mutable) or torch.Tag.nondeterministic_seeded in found.tags
