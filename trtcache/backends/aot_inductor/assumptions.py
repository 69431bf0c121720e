"""The record of guards on sizes that Inductor assumes while it compiles.

Its lowerings specialise on sizes (``adaptive_avg_pool2d`` unrolls its windows) or choose by them (``diagonal`` takes
the smaller of two), and add a guard. ``torch.compile`` checks these guards; a package does not contain them, and torch
2.13 reads wrong memory for other sizes. So they are stored beside the package, and
``trtcache.backends.aot_inductor.loader.Assumptions`` checks them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, Any

import sympy

from trtcache.digests import json_bytes
from trtcache.errors import BuildError, ExportError
from trtcache.lowering import patch_attributes
from trtcache.lowering.arguments import whole_ranges
from trtcache.lowering.rewriting import shape_environment
from trtcache.lowering.unguarded_sizes import LayoutMode, record_decisions, trials

if TYPE_CHECKING:
    from trtcache.lowering import LoweredProgram

# Functions that query sizes only to choose a memory layout or an implementation, each valid for all sizes.
# Layouts are chosen as if sizes were large, so an answer that holds only for small sizes is an assumption.
_LAYOUT = {
    "torch/_prims_common/__init__.py": (
        *("is_contiguous", "is_contiguous_or_false", "check_contiguous_sizes_strides"),
        *("is_channels_last_contiguous_2d", "is_channels_last_contiguous_3d"),
        *("is_non_overlapping_and_dense_or_false", "_is_non_overlapping_and_dense_or_false"),
        *("compute_elementwise_output_logical_to_physical_perm", "are_strides_like_channels_last_or_false"),
    ),
    "torch/_refs/__init__.py": ("_reshape_view_helper_core_alg",),
    "torch/_subclasses/functional_tensor.py": ("__new__",),
    "torch/_inductor/ir.py": ("significant_strides_equal",),
}
# Decompositions, and the code through which they query sizes.
_DECIDING = ("torch/_decomp/decompositions.py", "torch/_inductor/decomposition.py")
_SYMBOLIC = (
    *("torch/fx/experimental/symbolic_shapes.py", "torch/fx/experimental/sym_node.py", "torch/__init__.py"),
    "trtcache/lowering/unguarded_sizes.py",
)
_IMPLEMENTATION = {
    "torch/_subclasses/fake_impls.py": ("conv",),  # selects one of ATen's kernels, which agree on dense inputs
    "torch/_inductor/codegen/cpp.py": ("need_use_acc_helper",),  # makes sums of over 4,096 numbers more precise
}
_FRAMES = 24  # more than between a query and the function that makes it
_KEPT = ("guards", "replacements", "divisible", "var_to_range", "var_to_range_sloc", "axioms")


class SizeGuards:
    """The guards recorded while Inductor compiled, as sympy expressions."""

    def __init__(self) -> None:
        """Start with none."""
        self.guards: tuple[Any, ...] = ()

    def member(self, program: LoweredProgram) -> bytes | None:
        """Return the content of the member for a program; None without dynamic sizes.

        Raises:
            BuildError: a guard has an unknown term, so that it could not be checked.
        """
        from trtcache.lowering.guards import conjuncts, symbolic_guards

        interface = program.interface
        if not interface.ranges:
            return None
        try:
            found = symbolic_guards(self.guards, program.symbols)
        except ExportError as error:
            raise BuildError("aot_inductor", error.why) from error
        guards = {json_bytes(part): part for guard in found for part in conjuncts(guard) if part is not True}
        document = {
            "inputs": [list(one.shape) for one in interface.inputs],
            "guards": [guards[key] for key in sorted(guards)],
        }
        return json_bytes(document)


@contextmanager
def record_assumptions(program: LoweredProgram) -> Iterator[SizeGuards]:
    """Record assumptions about a program's sizes in the block, without leaving them in its ``ShapeEnv``."""
    result, placeholders = SizeGuards(), program.graph_module.graph.find_nodes(op="placeholder")
    environment = shape_environment(placeholders)
    if environment is None:
        yield result
        return
    # A program that was exported with ``whole_ranges`` has backed sizes that may be 1.
    ranges = environment.var_to_range
    is_whole = any(ranges[symbol].lower < 2 for symbol in environment.backed_var_to_val if symbol in ranges)
    whole = whole_ranges() if is_whole else nullcontext()
    with _preserve_environment(environment), _without_layout_guards(environment), whole:
        count = len(environment.guards)
        with record_decisions(_is_deciding) as recorded, LayoutMode(recorded):
            yield result
        small = filter(_fails_for_small_sizes, recorded.conditions)
        result.guards = (*(guard.expr for guard in environment.guards[count:]), *small)


@contextmanager
def _preserve_environment(environment: Any) -> Iterator[None]:
    """Restore a ``ShapeEnv``, which belongs to the caller's program: its sizes would be specialised."""
    before = {name: getattr(environment, name).copy() for name in _KEPT if hasattr(environment, name)}
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(environment, name, value)
        environment._update_version_counter()


@contextmanager
def _without_layout_guards(environment: Any) -> Iterator[None]:
    """Add no guard where a layout or an implementation is chosen: each of them is valid for all sizes.

    Otherwise no call could have a batch on the other side of 16 than the example (``conv``).
    """
    original = environment.evaluate_expr

    def evaluate_expr(expr: Any, *args: Any, **kwargs: Any) -> Any:
        is_layout, is_implementation = _classify_query(sys._getframe(1))
        if not (is_layout or is_implementation):
            return original(expr, *args, **kwargs)
        with environment.suppress_guards():
            answer = original(expr, *args, **kwargs)
        # An answer that does not hold for large, distinct sizes is an assumption.
        symbols = sorted(getattr(expr, "free_symbols", ()), key=str)
        sizes = {symbol: sympy.Integer((1 << 20) * (place + 3) + 1) for place, symbol in enumerate(symbols)}
        if is_layout and answer != expr.xreplace(sizes):
            return original(expr, *args, **kwargs)
        return answer

    with patch_attributes(environment, evaluate_expr=evaluate_expr):
        yield


def _classify_query(frame: FrameType | None) -> tuple[bool, bool]:
    """Return whether a size is queried to choose a layout, and whether to choose an implementation."""
    for _ in range(_FRAMES):
        if frame is None:
            break
        path = frame.f_code.co_filename
        for kinds in (_LAYOUT, _IMPLEMENTATION):
            names = next((names for suffix, names in kinds.items() if path.endswith(suffix)), ())
            if frame.f_code.co_name in names:
                return kinds is _LAYOUT, kinds is _IMPLEMENTATION
        frame = frame.f_back
    return False, False


def _is_deciding() -> bool:
    """Return whether the Python code that queries a size is a decomposition."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.endswith(_SYMBOLIC):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.endswith(_DECIDING)


def _fails_for_small_sizes(condition: Any) -> bool:
    """Return whether a condition is false for some sizes that include a 0 or a 1."""
    symbols = sorted(condition.free_symbols, key=str)
    for sizes in trials(symbols, (0, 1, 2, 5)):
        if min(sizes.values(), default=2) >= 2:
            continue
        try:
            if condition.xreplace(sizes) == sympy.false:
                return True
        except (ArithmeticError, AssertionError):  # it divides by 0
            return True
    return False
