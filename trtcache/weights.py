"""Slots, the weight map, and the check that a set of weights fits.

A *slot* is one parameter or persistent buffer of a lowered program, numbered by first use from its outputs. An engine's
weights are named after slots (``w0``, ``w1``, ...), never after the model's parameters, so a renamed model finds the
same engine. The *weight map* says how each engine weight is made from slots; the identity is the only recipe so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from trtcache.errors import RefitError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trtcache.values import Json


@dataclass(frozen=True, slots=True)
class Slot:
    """One weight that an engine is given at load.

    Attributes:
        index: place in the order of first use from the outputs.
        dtype: as torch prints it without its module, ``float32``.
        shape: sizes.
        stride: strides in elements; an engine reads memory by them, so a weight in another layout is copied.
        device: ``cpu`` or ``cuda``, without an index.
        names: the names of this weight in the model at hand, tied names together, in the order of its state_dict.
            Not part of the key or the artifact.
        mutated: whether a call changes it; such a slot gets a private copy of the model's tensor.
        transient: whether no state_dict has it: state that a call changes in a non-persistent buffer, such as a key
            and value cache. A refit that does not name it leaves it as it is.
    """

    index: int
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str
    names: tuple[str, ...] = ()
    mutated: bool = False
    transient: bool = False

    @property
    def engine_name(self) -> str:
        """The name of the engine weight that is this slot."""
        return f"w{self.index}"

    def document(self) -> dict[str, Json]:
        """Return the slot as stored in an artifact: all but the names of the model at hand."""
        return {
            "dtype": self.dtype,
            "shape": list(self.shape),
            "stride": list(self.stride),
            "device": self.device,
            "mutated": self.mutated,
            "transient": self.transient,
        }


def weight_map(slots: Iterable[Slot]) -> dict[str, Json]:
    """Return the weight map of an engine that takes each slot as it is: engine weight name to recipe."""
    return {slot.engine_name: {"slot": slot.index} for slot in slots}


def fit(
    slots: Iterable[Slot],
    state: Mapping[str, torch.Tensor],
    *,
    known: frozenset[str],
    device: torch.device,
    current: Mapping[str, torch.Tensor] | None = None,
) -> dict[str, torch.Tensor]:
    """Return engine weights, by name, taken from ``state``: shared where layout and device allow, else copied.

    A weight in another layout (transposed, sliced) is copied into its slot's; a mutated slot always is. Names in
    ``known`` that no slot uses are passed over.

    Args:
        slots: what the engine needs.
        state: the model's names to tensors.
        known: every name that the compiled model has.
        device: where the engine runs.
        current: the engine's weights up to now; transient slots that ``state`` does not name are taken from here.

    Raises:
        RefitError: a slot has no tensor, or one of another shape, dtype or device, or tied names differ, or ``state``
            has names that the compiled model has not. It names them all; nothing has been changed.
    """
    missing: list[str] = []
    mismatched: list[str] = []
    chosen: dict[str, torch.Tensor] = {}
    for slot in slots:
        given = [(name, state[name]) for name in slot.names if name in state]
        if not given and slot.transient and current:
            chosen[slot.engine_name] = current[slot.engine_name].clone()
            continue
        if not given:
            missing.append(slot.names[0] if slot.names else slot.engine_name)
            continue
        faults = [f"{name} ({why})" for name, tensor in given if (why := _mismatch(slot, tensor, device))]
        if not faults and (why := _untied(given)):
            faults = [f"{given[0][0]} ({why})"]
        mismatched += faults
        if not faults:
            chosen[slot.engine_name] = _laid_out(slot, given[0][1])
    unexpected = sorted(set(state) - known)
    if missing or mismatched or unexpected:
        raise RefitError(tuple(missing), tuple(unexpected), tuple(mismatched))
    return chosen


def _mismatch(slot: Slot, tensor: object, device: torch.device) -> str | None:
    if not isinstance(tensor, torch.Tensor):
        return f"a {type(tensor).__name__}, not a tensor"
    if tuple(tensor.shape) != slot.shape:
        return f"shape {tuple(tensor.shape)}, the engine has {slot.shape}"
    if dtype_name(tensor.dtype) != slot.dtype:
        return f"dtype {dtype_name(tensor.dtype)}, the engine has {slot.dtype}"
    if tensor.device.type != slot.device or (tensor.device != device and slot.device == device.type):
        return f"on {tensor.device}, the engine is on {device}"
    if str(tensor.layout) != "torch.strided":
        return f"layout {tensor.layout}, the engine takes strided weights"
    return None


def _untied(given: list[tuple[str, torch.Tensor]]) -> str | None:
    first = given[0][1]
    for name, tensor in given[1:]:
        shared = tensor.data_ptr() == first.data_ptr() and tensor.stride() == first.stride()
        if not (shared or (tensor.shape == first.shape and bool((tensor == first).all()))):
            return f"tied to {name} in the compiled model, but their values differ"
    return None


def _laid_out(slot: Slot, tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    plain = not (tensor.is_conj() or tensor.is_neg())
    if plain and not slot.mutated and tensor.stride() == slot.stride and aligned(tensor):
        return tensor
    copy = tensor.new_empty_strided(slot.shape, slot.stride)
    return copy.copy_(tensor)


def layout(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides in which an engine takes a tensor: its own if it fills its memory once, else contiguous ones.

    A tensor with gaps (a slice) or with elements that share memory (``expand``) has a layout that another tensor of
    the same shape cannot be copied into.
    """
    expected = 1
    for size, step in sorted(((n, s) for n, s in zip(shape, stride, strict=True) if n != 1), key=lambda pair: pair[1]):
        if step != expected:
            return contiguous(shape)
        expected *= size
    return stride


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor of this shape."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def aligned(tensor: torch.Tensor) -> bool:
    """Say whether an engine may read the tensor where it lies: CUDA code reads 16 bytes at a time."""
    return tensor.device.type == "cpu" or tensor.data_ptr() % 16 == 0


def dtype_name(dtype: torch.dtype) -> str:
    """Return ``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")
