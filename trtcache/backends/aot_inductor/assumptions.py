"""What Inductor assumes about sizes while it compiles, and the check of it at every call.

Its lowerings take sizes for numbers (``adaptive_avg_pool2d`` unrolls its windows) or choose by them (``diagonal`` takes
the smaller of two), and note a guard. ``torch.compile`` checks these guards; a package has none of them, and torch
2.13 answers other sizes from the wrong memory. So they are stored beside the package, and the engine checks them.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import sympy
import torch

from trtcache.backends.members import GRAPH, INTERFACE
from trtcache.digests import json_bytes
from trtcache.errors import BuildError, ExportError, GuardError, IncompatibleEngineError
from trtcache.lowering.expressions import affine, evaluate
from trtcache.lowering.guard_text import describe
from trtcache.lowering.input_spec import whole_ranges
from trtcache.lowering.size_decisions import recorded_decisions, trials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

    from trtcache.digests import Json
    from trtcache.lowering import LoweredProgram

MEMBER = "assumptions.json"
"""The member of an artifact with the guards, and the shapes of inputs that their symbols are read from."""

# Operators for which torch 2.13's Inductor takes sizes for numbers (guard_int, evaluate_min in its lowering.py and
# kernel/conv.py). Entries without the member were built before this was noted: with one of these they may be wrong.
_ASSUMING = (
    *("adaptive_avg_pool", "adaptive_max_pool", "fractional_max_pool", "upsample_bicubic", "glu", "diagonal"),
    *("convolution", "_pdist", "as_strided", "sort"),
)
# Functions that ask about sizes only to choose a layout in memory or a way to compute, each right for all sizes.
# Layouts are chosen as if sizes were large, so that an answer that holds for small sizes alone is an assumption.
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
# Decompositions, and the code through which they ask about sizes.
_DECIDING = ("torch/_decomp/decompositions.py", "torch/_inductor/decomposition.py")
_SYMBOLIC = (
    *("torch/fx/experimental/symbolic_shapes.py", "torch/fx/experimental/sym_node.py", "torch/__init__.py"),
    "trtcache/lowering/size_decisions.py",
)
_IMPLEMENTATION = {
    "torch/_subclasses/fake_impls.py": ("conv",),  # which of ATen's kernels runs: they agree on dense inputs
    "torch/_inductor/codegen/cpp.py": ("need_use_acc_helper",),  # a sum of over 4,096 numbers is made more precise
}
_FRAMES = 24  # between the question and the function that asks it are fewer
_KEPT = ("guards", "replacements", "divisible", "var_to_range", "var_to_range_sloc", "axioms")


class Noted:
    """The guards that were noted while Inductor compiled, as sympy expressions."""

    def __init__(self) -> None:
        """Start with none."""
        self.guards: tuple[Any, ...] = ()

    def member(self, program: LoweredProgram) -> bytes | None:
        """Return the member for a program; None where no size varies.

        Raises:
            BuildError: a guard has a term that is not known, so that it could not be checked.
        """
        from trtcache.lowering.input_guards import conjuncts, symbolic_guards

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
def noted(program: LoweredProgram) -> Iterator[Noted]:
    """Note what is assumed about a program's sizes while the body runs, and forget it in the program's ``ShapeEnv``."""
    result, environment = Noted(), _environment(program)
    if environment is None:
        yield result
        return
    whole = whole_ranges() if _has_whole_ranges(environment) else nullcontext()
    with _unchanged(environment), _without_layout_guards(environment), whole:
        count = len(environment.guards)
        with recorded_decisions(_is_deciding) as recorded:
            yield result
        small = filter(_fails_for_small_sizes, recorded.conditions)
        result.guards = (*(guard.expr for guard in environment.guards[count:]), *small)


def _has_whole_ranges(environment: Any) -> bool:
    """Say whether the program was exported with ``whole_ranges``: sizes that it has an example of may be 1."""
    ranges = environment.var_to_range
    return any(ranges[symbol].lower < 2 for symbol in environment.backed_var_to_val if symbol in ranges)


@contextmanager
def _unchanged(environment: Any) -> Iterator[None]:
    """Forget what a ``ShapeEnv`` learns meanwhile: it is the caller's program's too, whose sizes would be numbers."""
    before = {name: getattr(environment, name).copy() for name in _KEPT if hasattr(environment, name)}
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(environment, name, value)
        environment._update_version_counter()


@contextmanager
def _without_layout_guards(environment: Any) -> Iterator[None]:
    """Add no guard where a layout or an implementation is chosen: each of them is right for all sizes.

    With a guard for each, no call could have another batch than the example on the other side of 16 (``conv``).
    """
    original = environment.evaluate_expr

    def evaluate_expr(expr: Any, *args: Any, **kwargs: Any) -> Any:
        is_layout, is_implementation = _asked_for(sys._getframe(1))
        if not (is_layout or is_implementation):
            return original(expr, *args, **kwargs)
        with environment.suppress_guards():
            answer = original(expr, *args, **kwargs)
        if is_layout and answer != _answer_for_large_sizes(expr):
            return original(expr, *args, **kwargs)
        return answer

    environment.evaluate_expr = evaluate_expr
    try:
        yield
    finally:
        del environment.evaluate_expr


def _asked_for(frame: FrameType | None) -> tuple[bool, bool]:
    """Say whether a size is asked about to choose a layout, or to choose an implementation."""
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
    """Say whether the Python code that asks about a size is a decomposition."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.endswith(_SYMBOLIC):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.endswith(_DECIDING)


def _fails_for_small_sizes(condition: Any) -> bool:
    """Say whether a condition does not hold for some sizes with a 0 or a 1 among them."""
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


def _answer_for_large_sizes(expr: Any) -> Any:
    """Return what a condition is where all sizes are large and differ."""
    symbols = sorted(getattr(expr, "free_symbols", ()), key=str)
    return expr.xreplace({symbol: sympy.Integer((1 << 20) * (place + 3) + 1) for place, symbol in enumerate(symbols)})


def _environment(program: LoweredProgram) -> Any:
    for node in program.graph_module.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        sizes: tuple[Any, ...] = tuple(value.shape) if isinstance(value, torch.Tensor) else ()
        for size in sizes:
            if isinstance(size, torch.SymInt):
                return size.node.shape_env
    return None


class Assumptions:
    """The check of a package's guards."""

    def __init__(self, inputs: Sequence[Sequence[Json]], guards: Sequence[Json]) -> None:
        """Keep the guards, and where the first size is that each symbol can be read from."""
        self._guards = tuple(guards)
        self._places: dict[int, tuple[int, int, int, int]] = {}
        for place, shape in enumerate(inputs):
            for dim, size in enumerate(shape):
                number, factor, more = affine(size) or (-1, 0, 0)
                if factor and ((factor, more) == (1, 0) or number not in self._places):
                    self._places[number] = (place, dim, factor, more)

    @classmethod
    def of(cls, read: Callable[[str], bytes | memoryview]) -> Assumptions | None:
        """Read them from an entry's members; None where there is nothing to check.

        Raises:
            IncompatibleEngineError: the entry was built before they were noted, and has operators that need them.
        """
        try:
            document: Mapping[str, Any] = json.loads(bytes(read(MEMBER)))
        except LookupError:
            if _may_assume(read):
                why = "it was built before Inductor's assumptions about sizes were noted"
                raise IncompatibleEngineError("package", f"{why}; build it again") from None
            return None
        return cls(document["inputs"], document["guards"]) if document["guards"] else None

    def check(self, inputs: Sequence[torch.Tensor]) -> None:
        """Compare the sizes of an engine's inputs.

        Raises:
            GuardError: Inductor assumed something else.
        """
        sizes = {
            number: (inputs[place].shape[dim] - more) // factor
            for number, (place, dim, factor, more) in self._places.items()
        }
        guard = next((guard for guard in self._guards if evaluate(guard, sizes) is not True), None)
        if guard is not None:
            names = {number: f"input{place}.shape[{dim}]" for number, (place, dim, *_) in self._places.items()}
            text = describe(guard, names)
            found = ", ".join(f"{name} is {sizes[number]}" for number, name in names.items() if name in text)
            raise GuardError("sizes", text, found, "compile with example inputs of these sizes")


def _may_assume(read: Callable[[str], bytes | memoryview]) -> bool:
    """Say whether an entry without the member has sizes that vary and operators that Inductor takes sizes of."""
    try:
        if not json.loads(bytes(read(INTERFACE)))["sizes"]:
            return False
        graph = bytes(read(GRAPH)).decode()
    except LookupError:
        return False  # an engine without a key: it was built by this very version
    return any(name in graph for name in _ASSUMING)
