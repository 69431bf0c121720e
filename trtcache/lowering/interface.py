"""What goes into an engine and what comes out: leaves of the arguments, outputs, slots and constants, as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trtcache.digests import Json
    from trtcache.weights.slots import EngineWeight, Slot


NOT_COMPUTED = frozenset({"value", "size"})
"""Kinds of results that no engine gives."""


@dataclass(frozen=True, slots=True)
class TensorInput:
    """A leaf of the arguments that is a tensor. Sizes and strides are numbers or expressions (see ``symbols.py``).

    Where ``number`` is true the leaf is an int that varies: the engine takes a tensor of shape (int, 0) in its place.
    """

    leaf: int
    dtype: str
    shape: tuple[Json, ...]
    stride: tuple[Json, ...]
    device: str
    number: bool = False

    def document(self) -> dict[str, Json]:
        """Return the input as it stands in the key and in the artifact."""
        document: dict[str, Json] = {
            "leaf": self.leaf,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "stride": list(self.stride),
            "device": self.device,
        }
        if self.number:  # a program without such inputs keeps its key
            document["number"] = True
        return document


@dataclass(frozen=True, slots=True)
class ValueInput:
    """A leaf of the arguments that is not a tensor; the program was made for this value."""

    leaf: int
    value: object


@dataclass(frozen=True, slots=True)
class Result:
    """One output of the engine or of the model.

    ``kind`` is ``result``, ``value``, ``size``, ``number``, ``weight`` or ``input`` as in ``capture.Role``; new
    contents of weights are no results, since an engine changes its own weights itself. The value of a size is JSON for
    ``expressions.evaluate``. ``layout`` is the order
    of a result's dimensions in memory, from the outermost, as the model makes it; None where that is not to be kept.
    """

    kind: str
    target: int | None = None
    value: Any = None
    layout: tuple[int, ...] | None = None

    @property
    def is_output(self) -> bool:
        """Whether it is a tensor that the engine gives: all but values and sizes."""
        return self.kind not in NOT_COMPUTED


@dataclass(frozen=True, slots=True)
class TensorOutput:
    """A tensor that the engine gives. Sizes are numbers or expressions over the symbols of the inputs."""

    dtype: str
    shape: tuple[Json, ...]
    device: str

    def document(self) -> dict[str, Json]:
        """Return the output as it stands in the artifact."""
        return {"dtype": self.dtype, "shape": list(self.shape), "device": self.device}


@dataclass(frozen=True, slots=True)
class SmallSizes:
    """Which sizes of 0 and 1 a program answers (``small_sizes.py``).

    Attributes:
        least: the least value of each symbol that a call may have: 0 where torch's range begins at 2 only because it
            traces with sizes from 2 on.
        excluded: conditions on the symbols that rule out small sizes which were tried and are not answered.
    """

    least: tuple[int | None, ...]
    excluded: tuple[Json, ...]

    def document(self) -> Json:
        """Return this as it stands in an artifact."""
        return {"least": list(self.least), "excluded": list(self.excluded)}

    @classmethod
    def read(cls, document: Any) -> SmallSizes | None:
        """Return what ``document`` wrote; None for None."""
        return None if document is None else cls(tuple(document["least"]), tuple(document["excluded"]))


@dataclass(frozen=True, slots=True)
class Interface:
    """The border of a lowered program.

    Attributes:
        inputs: tensors, in the order in which the engine takes them.
        values: leaves that are not tensors.
        results: the leaves of the model's output, in order, and new contents of inputs before them.
        slots: weights of the model, in the order of first use.
        weights: weights of the engine, which are made from slots, in the order of first use.
        constants: digests of the constants, by the engine's names for them (``c0``, ``c1``, ...).
        ranges: ``[least, most]`` of each symbol.
        outputs: what the engine gives: results and new contents of inputs, in order; empty where an entry was made
            before they were noted. No part of the key, which has them in its graph.
        guards: conditions on the symbols that each call is held to, in the form of ``input_guards.py``.
        small_sizes: which sizes of 0 and 1 are answered. No part of the key, which has the graph that it follows from.
            None where such sizes were not tried: in files of older versions, and of ONNX.
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
        """The ranges that calls are held to."""
        if self.small_sizes is None:
            return self.ranges
        return tuple((least, most) for least, (_, most) in zip(self.small_sizes.least, self.ranges, strict=True))

    @property
    def conditions(self) -> tuple[Json, ...]:
        """All that a call's sizes must satisfy beside their ranges."""
        return (*self.guards, *(self.small_sizes.excluded if self.small_sizes else ()))
