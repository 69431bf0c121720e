"""The interface of an engine: leaves of the arguments, outputs, slots and constants, as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trtcache.digests import Json
    from trtcache.weights.slots import EngineWeight, Slot


NOT_COMPUTED = frozenset({"value", "size"})
"""Kinds of results that the engine does not compute."""


@dataclass(frozen=True, slots=True)
class TensorInput:
    """A tensor leaf of the arguments. Sizes and strides are numbers or expressions (see ``symbols.py``).

    If ``number`` is true the leaf is a dynamic int: the engine takes a tensor of shape (int, 0) in its place.
    """

    leaf: int
    dtype: str
    shape: tuple[Json, ...]
    stride: tuple[Json, ...]
    device: str
    number: bool = False

    def document(self) -> dict[str, Json]:
        """Return the input as in the key and in the artifact."""
        document: dict[str, Json] = {
            "leaf": self.leaf,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "stride": list(self.stride),
            "device": self.device,
        }
        if self.number:  # absent otherwise, to keep keys of programs without such inputs
            document["number"] = True
        return document


@dataclass(frozen=True, slots=True)
class ValueInput:
    """A leaf of the arguments that is not a tensor; the program is specialised on this value."""

    leaf: int
    value: object


@dataclass(frozen=True, slots=True)
class Result:
    """One output of the engine or of the model.

    ``kind`` is ``result``, ``value``, ``size``, ``number``, ``weight`` or ``input`` as in ``capture.Role``; new
    contents of weights are not results, since an engine updates its own weights. The value of a size is JSON for
    ``expressions.evaluate``. ``layout`` is the memory order of a result's dimensions in the model, from the outermost;
    None if it need not be kept.
    """

    kind: str
    target: int | None = None
    value: Any = None
    layout: tuple[int, ...] | None = None

    @property
    def is_output(self) -> bool:
        """Whether it is an output tensor of the engine: all kinds except values and sizes."""
        return self.kind not in NOT_COMPUTED


@dataclass(frozen=True, slots=True)
class TensorOutput:
    """An output tensor of the engine. Sizes are numbers or expressions over the inputs' symbols."""

    dtype: str
    shape: tuple[Json, ...]
    device: str

    def document(self) -> dict[str, Json]:
        """Return the output as in the artifact."""
        return {"dtype": self.dtype, "shape": list(self.shape), "device": self.device}


@dataclass(frozen=True, slots=True)
class SmallSizes:
    """The sizes of 0 and 1 that a program supports (``small_sizes.py``).

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


@dataclass(frozen=True, slots=True)
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
        guards: conditions on the symbols that are checked on each call, in the form of ``input_guards.py``.
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
    def conditions(self) -> tuple[Json, ...]:
        """All conditions on a call's sizes besides their ranges."""
        return (*self.guards, *(self.small_sizes.excluded if self.small_sizes else ()))
