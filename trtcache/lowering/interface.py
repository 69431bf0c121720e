"""The interface of an engine: arguments, outputs, slots, constants, and expressions over its sizes, without sympy.

Sizes and guards are JSON, as ``Symbols`` and ``guards.py`` write them.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import Digest, Json

if TYPE_CHECKING:
    import torch

    from trtcache.weights.slots import EngineWeight, Slot


NOT_COMPUTED = frozenset({"value", "size"})
"""Kinds of results that the engine does not compute."""


@frozen_dataclass
class TensorInput:
    """A tensor leaf of the arguments. Sizes and strides are numbers or expressions (see ``symbols.py``).

    If ``number`` is true the leaf is a dynamic int: the engine takes a tensor of shape (int, 0) in its place. If
    ``fixed_layout`` is true, a tensor with other strides is refused: the model would change others in place
    (``trial_runs.py``).
    """

    leaf: int
    dtype: str
    shape: tuple[Json, ...]
    stride: tuple[Json, ...]
    device: str
    number: bool = False
    fixed_layout: bool = False

    def document(self) -> dict[str, Json]:
        """Return the input as in the key and in the artifact."""
        document: dict[str, Json] = {
            "leaf": self.leaf,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "stride": list(self.stride),
            "device": self.device,
        }
        # Absent otherwise, to keep keys of programs without such inputs.
        document |= dict.fromkeys((name for name in ("number", "fixed_layout") if getattr(self, name)), True)
        return document


@frozen_dataclass
class ValueInput:
    """A leaf of the arguments that is not a tensor; the program is specialised on this value."""

    leaf: int
    value: object


@frozen_dataclass
class Result:
    """One output of a lowered graph, or of the model.

    Kinds are

    * ``result``: a tensor of the model's output;
    * ``value``: a number, text or None, in ``value``; the graph has None in its place;
    * ``size``: a number that is an expression over sizes, in ``value``; the graph has None in its place;
    * ``number``: a number, in a tensor of one element;
    * ``weight``: the new content of a weight, whose name is ``target``; only graphs have it, since an engine updates
      its own weights;
    * ``input``: the new content of an input, whose leaf is ``target``.

    The value of a size is torch's number in a graph, and JSON for ``evaluate`` in an interface. ``layout`` is the
    memory order of a result's dimensions in the model, from the outermost to the innermost, or None if its memory has
    gaps or that depends on sizes. Passes may compute the result differently, but a caller can see its layout.

    ``view`` is ``view`` or ``detached`` for a result that the model returns as a view of an input or of an earlier
    result, and that the graph has as that tensor itself (``mark_views``); None for others, and in files of older
    versions.
    """

    kind: str
    target: Any = None
    value: Any = None
    layout: tuple[int, ...] | None = None
    view: str | None = None

    @property
    def is_output(self) -> bool:
        """Whether it is an output tensor of the engine: all kinds except values and sizes."""
        return self.kind not in NOT_COMPUTED


@frozen_dataclass
class TensorOutput:
    """An output tensor of the engine. Sizes are numbers or expressions over the inputs' symbols."""

    dtype: str
    shape: tuple[Json, ...]
    device: str

    def document(self) -> dict[str, Json]:
        """Return the output as in the artifact."""
        return {"dtype": self.dtype, "shape": list(self.shape), "device": self.device}


@frozen_dataclass
class SmallSizes:
    """The sizes of 0 and 1 that a program supports (``trial_runs.py``).

    Attributes:
        least: the minimum of each symbol in a call: 0 if torch's range starts at 2 only because it traces with sizes
            from 2 on.
        excluded: conditions on the symbols that exclude small sizes which were tried and are unsupported.
    """

    least: tuple[int | None, ...]
    excluded: tuple[Json, ...]

    def document(self) -> Json:
        """Return this as in an artifact."""
        return {"least": list(self.least), "excluded": list(self.excluded)}

    @classmethod
    def read(cls, document: Any) -> SmallSizes | None:
        """Parse what ``document`` returned; None for None."""
        return None if document is None else cls(tuple(document["least"]), tuple(document["excluded"]))


@frozen_dataclass
class Interface:
    """The interface of a lowered program.

    Attributes:
        inputs: tensors, in the order of the engine's inputs.
        values: leaves that are not tensors.
        results: the leaves of the model's output, in order, and new contents of inputs before them.
        slots: weights of the model, in the order of first use.
        weights: weights of the engine, which are computed from slots, in the order of first use.
        constants: digests of the constants, in the order of the engine's names (``c0``, ``c1``, ...).
        ranges: ``[min, max]`` of each symbol.
        outputs: the engine's outputs: results and new contents of inputs, in order; empty in old entries. Not in the
            key, which has them in its graph.
        guards: conditions on the symbols that are checked on each call, in the form of ``guards.py``.
        small_sizes: the supported sizes of 0 and 1. Not in the key, which has the graph that determines them. None if
            they were not tried: in files of older versions, and of ONNX.
    """

    inputs: tuple[TensorInput, ...]
    values: tuple[ValueInput, ...]
    results: tuple[Result, ...]
    slots: tuple[Slot, ...]
    weights: tuple[EngineWeight, ...]
    constants: tuple[str, ...]
    ranges: tuple[tuple[int | None, int | None], ...]
    outputs: tuple[TensorOutput, ...] = ()
    guards: tuple[Json, ...] = ()
    small_sizes: SmallSizes | None = None

    @property
    def checked_ranges(self) -> tuple[tuple[int | None, int | None], ...]:
        """The ranges that are checked on each call."""
        if self.small_sizes is None:
            return self.ranges
        return tuple((least, most) for least, (_, most) in zip(self.small_sizes.least, self.ranges, strict=True))

    @property
    def views(self) -> list[str | None]:
        """``view`` of each result; empty if no result has one."""
        views = [one.view for one in self.results]
        return views if any(views) else []

    @property
    def conditions(self) -> tuple[Json, ...]:
        """All conditions on a call's sizes besides their ranges."""
        return (*self.guards, *(self.small_sizes.excluded if self.small_sizes else ()))


@frozen_dataclass
class FixedSize:
    """A size that was to vary where the program allows it (``Dim.AUTO``), and that torch fixed.

    Attributes:
        argument: the argument's name.
        dimension: the number of the dimension; None for an int.
        size: the only size.
        why: why torch fixed it, as far as it is known; else empty.
    """

    argument: str
    dimension: int | None
    size: int
    why: str

    def __str__(self) -> str:
        what = f"{self.argument} is {self.size}"
        if self.dimension is not None:
            what = f"size {self.dimension} of {self.argument} is {self.size}"
        return f"{what}: Dim.AUTO was given, and torch fixed it" + (f" {self.why}" if self.why else "")


@frozen_dataclass
class Content:
    """The content of a constant: the digest of its bytes, and how to read them."""

    digest: str
    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Content:
        """Return the content of a tensor, regardless of its layout and device."""
        import torch

        from trtcache.weights.slots import dtype_name

        flat = make_contiguous(tensor).as_strided((tensor.numel(),), (1,))
        data = flat.view(torch.uint8).cpu().numpy().data if flat.numel() else b""
        return cls(str(Digest.of(data)), dtype_name(tensor.dtype), tuple(tensor.shape))


def parse_sources(written: Mapping[str, Any]) -> dict[str, Content]:
    """Return the contents of a model's own constants by name, from a document."""
    return {
        str(name): Content(str(one["digest"]), str(one["dtype"]), tuple(one["shape"])) for name, one in written.items()
    }


def look_up(module: object, name: str) -> Any:
    """Return what a module or a part of it has under a name with dots; None if it has nothing."""
    found = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def make_contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor's values, contiguous and without lazy conjugation; itself if it is already.

    torch calls a tensor contiguous regardless of its strides in dimensions of size 1; here these are normalised to
    those that a stored constant is read with.
    """
    from trtcache.weights.slots import contiguous

    # For a fake tensor each of these calls takes 30 us, and the first one in a process 300 us.
    plain = tensor.detach() if tensor.requires_grad else tensor
    plain = plain.resolve_conj() if plain.is_conj() else plain
    plain = plain.resolve_neg() if plain.is_neg() else plain
    plain = plain if plain.is_contiguous() else plain.contiguous()
    stride = contiguous(tuple(plain.shape))
    return plain if plain.stride() == stride else plain.as_strided(plain.shape, stride)


class SizeOperation(NamedTuple):
    """An operation of expressions and guards.

    Attributes:
        apply: computes it; of ``Pow``, None for a negative exponent.
        sign: its sign in Python, between the operands; empty for a function.
        level: the precedence of the sign.
    """

    apply: Callable[..., Any]
    sign: str = ""
    level: int = 0


OPERATIONS: Final[Mapping[str, SizeOperation]] = {
    "Or": SizeOperation(lambda *values: any(values), "or", 1),
    "And": SizeOperation(lambda *values: all(values), "and", 2),
    "Eq": SizeOperation(operator.eq, "==", 4),
    "Ne": SizeOperation(operator.ne, "!=", 4),
    "Le": SizeOperation(operator.le, "<=", 4),
    "Lt": SizeOperation(operator.lt, "<", 4),
    "Add": SizeOperation(lambda first, *others: sum(others, first), "+", 5),
    "Mul": SizeOperation(lambda *values: functools.reduce(operator.mul, values), "*", 6),
    "FloorDiv": SizeOperation(operator.floordiv, "//", 6),
    "CleanDiv": SizeOperation(operator.floordiv, "//", 6),
    "Mod": SizeOperation(operator.mod, "%", 6),
    "PythonMod": SizeOperation(operator.mod, "%", 6),
    "TrueDiv": SizeOperation(operator.truediv, "/", 6),
    "Pow": SizeOperation(lambda base, exponent: base**exponent if exponent >= 0 else None, "**", 8),
    "Not": SizeOperation(operator.not_),
    "Max": SizeOperation(lambda *values: max(values)),
    "Min": SizeOperation(lambda *values: min(values)),
    "Abs": SizeOperation(abs),
    "Float": SizeOperation(float),
    "Sqrt": SizeOperation(math.sqrt),
    "Floor": SizeOperation(math.floor),
    "Ceil": SizeOperation(math.ceil),
    "Trunc": SizeOperation(math.trunc),
    "Round": SizeOperation(round),
}
"""Operations by their names in JSON."""

_OF_SIZES = {  # of sympy's names, those that only expressions over sizes have
    "PowByNatural": "Pow",
    "IntTrueDiv": "TrueDiv",
    "ToFloat": "Float",
    "FloorToInt": "Floor",
    "CeilToInt": "Ceil",
    "TruncToInt": "Trunc",
}


def evaluate(written: Json, sizes: Mapping[int, int]) -> Any:
    """Evaluate an expression for given values of its symbols.

    Args:
        written: a size, or a guard whose value is a bool.
        sizes: the symbols' values by number: numbers, or a tracer's symbols.

    Returns:
        The value, or None if a symbol has no value, an operation is unknown, or it divides by zero.
    """
    if isinstance(written, int):
        return written
    if isinstance(written, dict):
        return sizes.get(int(str(written["sym"])))
    if not isinstance(written, list):
        return None
    if written[0] == "Number":
        return float.fromhex(str(written[1]))
    values = [evaluate(one, sizes) for one in written[1:]]
    operation = OPERATIONS.get(_OF_SIZES.get(str(written[0]), str(written[0])))
    if operation is None or any(value is None for value in values):
        return None
    try:
        return operation.apply(*values)
    except (ArithmeticError, ValueError):
        return None


def bounds(written: Json, ranges: Sequence[tuple[int | None, int | None]]) -> tuple[float, float]:
    """Return the minimum and maximum of a sum or product over ranges of symbols; infinite if unbounded."""
    if isinstance(written, dict):
        number = int(str(written["sym"]))
        lower, upper = ranges[number] if number < len(ranges) else (None, None)
        return -math.inf if lower is None else lower, math.inf if upper is None else upper
    if isinstance(written, int):
        return written, written
    if not isinstance(written, list) or written[0] not in {"Add", "Mul"}:
        return -math.inf, math.inf
    low, high = bounds(written[1], ranges)
    for part in written[2:]:
        least, most = bounds(part, ranges)
        if written[0] == "Add":
            low, high = low + least, high + most
        else:
            corners = [one * other if one and other else 0 for one in (low, high) for other in (least, most)]
            low, high = min(corners), max(corners)
    return low, high


def affine(written: Json) -> tuple[int, int, int] | None:
    """Return ``(n, a, b)`` for an expression ``a * s + b`` of the symbol ``n``; None for any other."""
    match written:
        case {"sym": int(number)}:
            return number, 1, 0
        case ["Mul", int(factor), inner] | ["Mul", inner, int(factor)]:
            found = affine(inner)
            return found and (found[0], factor * found[1], factor * found[2])
        case ["Add", int(more), inner] | ["Add", inner, int(more)]:
            found = affine(inner)
            return found and (found[0], found[1], found[2] + more)
    return None


_BY_POSITION = re.compile(r"^(\d+)")  # an argument of a program without a model has an index and no name


def describe(guard: Json, sizes: Mapping[int, str]) -> str:
    """Return a guard as a Python expression; ``sizes`` are the symbols' names, such as ``x.shape[0]``."""
    return _text(guard, sizes, 0)


def _text(part: Json, sizes: Mapping[int, str], outer: int) -> str:
    if isinstance(part, dict):
        number = int(str(part["sym"]))
        return sizes.get(number, f"s{number}")
    if not isinstance(part, list):
        return str(part)
    head, *args = part
    if head == "Number":
        return f"{float.fromhex(str(args[0])):g}"
    if head == "Not":
        return f"not {_text(args[0], sizes, 3)}"
    operation = OPERATIONS.get(str(head))
    if operation is None or not operation.sign:
        return f"{str(head).lower()}({', '.join(_text(one, sizes, 0) for one in args)})"
    if head == "Add":  # a + -1 * b reads as a - b
        args = sorted(args, key=_place_in_sum)
    if head in {"Eq", "Ne"} and isinstance(args[0], int):
        args = args[::-1]
    level = operation.level
    text = f" {operation.sign} ".join(_text(one, sizes, level + (place > 0)) for place, one in enumerate(args))
    text = text.replace(" + -1 * ", " - ").replace(" + -", " - ")
    return f"({text})" if level < outer else text


def _place_in_sum(part: Json) -> int:
    """Sort subtracted terms after added ones, and a number last."""
    if isinstance(part, int):
        return 2
    return 1 if isinstance(part, list) and part[:1] == ["Mul"] and isinstance(part[1], int) and part[1] < 0 else 0


def symbol_names(inputs: Iterable[tuple[int, Sequence[Json], bool]], label: Callable[[int], str]) -> dict[int, str]:
    """Return each symbol in terms of the caller's arguments: ``x.shape[0]``, ``n``, or ``(x.shape[0] - 1) // 2``.

    Args:
        inputs: the leaf and the shape of each input, and whether it represents a dynamic int.
        label: returns the caller's name for a leaf, ``argument x``.
    """
    names: dict[int, str] = {}
    derived: dict[int, str] = {}
    for leaf, shape, is_number in inputs:
        argument = _BY_POSITION.sub(r"args[\1]", label(leaf).removeprefix("argument "))
        for dim, size in enumerate(shape):
            text = argument if is_number else f"{argument}.shape[{dim}]"
            number, factor, more = affine(size) or (-1, 0, 0)
            if (factor, more) == (1, 0):
                names.setdefault(number, text)
            elif factor:
                text = f"{text} {'-' if more > 0 else '+'} {abs(more)}" if more else text
                derived.setdefault(number, f"({text}) // {factor}" if factor != 1 else f"({text})")
    return derived | names


def symbols_in(written: Json) -> list[int]:
    """Return the numbers of the symbols in an expression or a guard, in order, without duplicates."""
    if isinstance(written, dict):
        return [int(str(written["sym"]))]
    found = [number for part in written[1:] for number in symbols_in(part)] if isinstance(written, list) else []
    return list(dict.fromkeys(found))
