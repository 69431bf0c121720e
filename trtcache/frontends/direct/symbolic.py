"""Traces of models with dynamic sizes, in which terms of symbols take the place of numbers.

Sizes have to be computed, so such a model is run with torch's own fake tensors, at a hit too. The last line of the
trace has the guards: the conditions on sizes that the model's code, or torch, has evaluated.
"""

from __future__ import annotations

from collections import OrderedDict
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
from torch.export import AdditionalInputs, ShapesCollection
from torch.utils import _pytree as pytree

from trtcache.frontends.direct.errors import NotComparableError
from trtcache.frontends.direct.trace import Recorder, Recording, TraceWriter, run
from trtcache.lowering.arguments import whole_ranges
from trtcache.lowering.capture import example_arguments
from trtcache.lowering.model_state import quiet
from trtcache.lowering.unguarded_sizes import record_decisions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch._subclasses.fake_tensor import FakeTensorMode

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
        contexts = handler, builtins, enable_python_dispatcher(), Recorder(writer)
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
