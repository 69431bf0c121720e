"""Slots, engine weights, the weight map, and the check that weights fit.

A *slot* is a parameter or persistent buffer of a lowered program, an *engine weight* a tensor passed to an engine at
load. Both are numbered by first use from the program's outputs, and engine weights are named by number (``w0``, ``w1``,
...), never after the model's parameters, so a renamed model finds the same engine. The *weight map* holds the recipe of
each engine weight. Nearly all recipes are a single slot, which needs no copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import RefitError
from trtcache.weights.arrays import contiguous as contiguous
from trtcache.weights.recipes import Recipe, WeightRef, document, evaluate_into, is_elementwise, pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import torch

    from trtcache.digests import Json

    _Tensors = dict[str, torch.Tensor]
else:  # programs without torch have slots and weight maps, too
    _Tensors = dict

ALIGNED_BYTES = 16
"""What CUDA kernels read at a time: the alignment of memory that an engine on a GPU reads in place."""

_Weight = TypeVar("_Weight")

NESTED: Final = "a nested tensor"
NESTED_HINT: Final = "use .to_padded_tensor(0.0)"

_BITS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}


@frozen_dataclass
class Slot:
    """A model weight that engine weights are computed from.

    Attributes:
        index: index in the order of first use from the outputs.
        dtype: the torch dtype without its module, ``float32``.
        shape: sizes.
        stride: strides, in elements, of the engine weight that equals this slot; contiguous if there is none.
        device: ``cpu`` or ``cuda``, without an index.
        names: names of this weight in the current model, tied names together, in state_dict order. Not part of the key
            or the artifact.
        mutated: whether a call changes it; such a slot gets a private copy of the model's tensor.
        transient: whether it is missing from the state_dict: a mutated non-persistent buffer, such as a key-value
            cache. A refit that does not name it leaves it unchanged.
    """

    index: int
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str
    names: tuple[str, ...] = ()
    mutated: bool = False
    transient: bool = False

    def document(self) -> dict[str, Json]:
        """Return the slot as stored in an artifact: without the names."""
        return {**geometry(self), "mutated": self.mutated, "transient": self.transient}


@frozen_dataclass
class EngineWeight:
    """A weight passed to an engine at load.

    Attributes:
        index: index in the order of first use from the outputs.
        recipe: how it is computed from slots, by index.
        dtype: the torch dtype without its module.
        shape: sizes.
        stride: strides in elements as the engine reads it; a weight with another layout is copied.
        device: ``cpu`` or ``cuda``, without an index.
        slots: slots that the recipe uses, in order of occurrence.
    """

    index: int
    recipe: Recipe
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str
    slots: tuple[Slot, ...]

    @property
    def name(self) -> str:
        """The name in the engine."""
        return f"w{self.index}"

    @property
    def slot(self) -> Slot | None:
        """The slot that this weight is equal to, if its recipe is a single slot on its device."""
        is_slot = isinstance(self.recipe, WeightRef) and self.slots[0].device == self.device
        return self.slots[0] if is_slot else None

    @property
    def is_mutated(self) -> bool:
        """Whether calls change it."""
        return self.slot is not None and self.slot.mutated

    @property
    def label(self) -> str:
        """The model's names of its slots, for messages."""
        return " + ".join(slot.names[0] if slot.names else f"slot {slot.index}" for slot in self.slots)

    def document(self) -> dict[str, Json]:
        """Return the weight as part of the key, without its index and recipe."""
        if self.slot:
            return self.slot.document()
        return {**geometry(self), "slots": [slot.document() for slot in self.slots]}


def geometry(tensor: Slot | EngineWeight) -> dict[str, Json]:
    """Return a tensor's dtype, shape, stride and device as stored in artifacts."""
    return {"dtype": tensor.dtype, "shape": [*tensor.shape], "stride": [*tensor.stride], "device": tensor.device}


def weight_map(weights: Iterable[EngineWeight]) -> dict[str, Json]:
    """Return the weight map of an engine: the recipe of each weight by name."""
    return {weight.name: document(weight.recipe) for weight in weights}


class EngineWeights(_Tensors):
    """Engine weights by name.

    Attributes:
        own: names of weights whose memory is not shared with the model: copies, and results of recipes.
        lent: those of ``own`` that were handed out, as by ``state_dict``. A refit does not overwrite them.
        source_weights: the model weights used by recipes, by slot index.
    """

    def __init__(
        self,
        tensors: Mapping[str, torch.Tensor],
        own: Iterable[str] = (),
        source_weights: Mapping[int, torch.Tensor] | None = None,
    ) -> None:
        """Initialize from tensors by name."""
        super().__init__(tensors)
        self.own = frozenset(own)
        self.lent: frozenset[str] = frozenset()
        self.source_weights = dict(source_weights or {})


@frozen_dataclass
class SlotWeights:
    """Checked model weights, from which engine weights are computed one by one.

    Attributes:
        given: the weight of each slot, by slot index.
        device: device of the engine. A weight elsewhere, such as in a file, is moved when it is used.
        kept: names of transient engine weights that were not given and stay unchanged.
    """

    given: Mapping[str | int, torch.Tensor]
    device: torch.device
    kept: frozenset[str]

    def shared_tensor(self, weight: EngineWeight) -> torch.Tensor | None:
        """Return the model's own tensor if the engine can use it in place, else None."""
        slot = weight.slot
        if slot is None or slot.mutated or self.given[slot.index].device.type != weight.device:
            return None
        tensor = self.given[slot.index].detach()
        return tensor if _has_layout(weight, tensor) else None

    def make(self, weight: EngineWeight) -> torch.Tensor:
        """Compute an engine weight: the model's own tensor if possible, else a new one.

        While a new one is computed, some rows of intermediate results exist as well.
        """
        if (shared := self.shared_tensor(weight)) is not None:
            return shared
        import torch

        def allocate(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
            return torch.empty_strided(weight.shape, weight.stride, dtype=dtype, device=device)

        # Calls write to some weights; tensors created in inference mode could not be written to outside of it.
        with torch.inference_mode(False), torch.no_grad():
            if is_elementwise(weight.recipe):
                result = allocate(getattr(torch, weight.dtype), self._place(weight))
                evaluate_into(result, weight.recipe, self.given, self._bring_to(weight))
                return result
            made: torch.Tensor | None = None
            for place, piece in self.pieces(weight):
                if place is ... and not weight.is_mutated and _has_layout(weight, piece):
                    return piece.detach()
                made = allocate(piece.dtype, piece.device) if made is None else made
                made[place].copy_(piece)
        assert made is not None  # noqa: S101  # there is at least one piece
        return made

    def pieces(self, weight: EngineWeight) -> Iterator[tuple[Any, torch.Tensor]]:
        """Compute an engine weight that is not shared, in as many pieces as needed."""
        return pieces(weight.recipe, self.given, weight.shape, self._bring_to(weight))

    def _bring_to(self, weight: EngineWeight) -> Callable[[str | int, torch.Tensor], torch.Tensor]:
        place = self._place(weight)
        return lambda _, tensor: tensor.to(place)

    def _place(self, target: EngineWeight | Slot) -> torch.device:
        """Return the device of a weight in the engine, or of a slot in the model."""
        import torch

        return self.device if target.device == self.device.type else torch.device(target.device)

    def by_name(self, slots: Iterable[Slot]) -> dict[str, torch.Tensor]:
        """Return the weights on their target devices by all their names in the model."""
        held = [slot for slot in slots if slot.index in self.given]
        placed = {slot.index: self.given[slot.index].to(self._place(slot)) for slot in held}
        return {name: placed[slot.index] for slot in held for name in slot.names}

    def source_weights(self, weights: Iterable[EngineWeight]) -> dict[int, torch.Tensor]:
        """Return the model weights that recipes use."""
        used = {slot.index for weight in weights if weight.slot is None for slot in weight.slots}
        return {index: self.given[index].detach() for index in used if index in self.given}

    def is_own(self, weight: EngineWeight, tensor: torch.Tensor) -> bool:
        """Return whether the result of ``make`` shares no memory with the model."""
        place = tensor.untyped_storage().data_ptr()
        return all(self.given[slot.index].untyped_storage().data_ptr() != place for slot in weight.slots)


def fit(
    weights: Iterable[EngineWeight],
    state: Mapping[str, torch.Tensor],
    *,
    known: frozenset[str],
    device: torch.device,
    current: Mapping[str, torch.Tensor] | None = None,
    unused: Mapping[str, torch.Tensor] | None = None,
) -> EngineWeights:
    """Compute engine weights from ``state``: shared with it where layout and device allow, else copied.

    A weight in another layout (transposed, sliced) is copied into the slot's layout; a mutated slot is always copied,
    and the result of an operation shares no memory with the model. Names in ``known`` that no slot uses are ignored.

    Args:
        weights: the engine's weights.
        state: the model's tensors by name.
        known: all names of the compiled model.
        device: device of the engine.
        current: the engine's current weights, used for transient slots that ``state`` does not name.
        unused: the model's weights that no slot uses; given ones must have their shapes.

    Raises:
        RefitError: a slot has no tensor, or one of another shape, dtype or device, or tied names differ, or ``state``
            has names that the compiled model does not have. It lists them all; nothing has been changed.
    """
    weights = tuple(weights)
    sources = check(weights, state, known=known, device=device, keep=current is not None, unused=unused)
    tensors: dict[str, torch.Tensor] = {}
    own: set[str] = set()
    for weight in weights:
        kept = current[weight.name] if current and weight.name in sources.kept else None
        tensors[weight.name] = sources.make(weight) if kept is None else copy_kept(weight, kept)
        if kept is not None or sources.is_own(weight, tensors[weight.name]):
            own.add(weight.name)
    if own:
        finish(device)
    return EngineWeights(tensors, own, sources.source_weights(weights))


def copy_shared(weights: EngineWeights, others: Iterable[torch.Tensor]) -> None:
    """Copy the weights that share memory with other tensors, which a refit of their module overwrites."""
    places = {one.untyped_storage().data_ptr() for one in others}
    for name, tensor in weights.items():
        if name not in weights.own and tensor.untyped_storage().data_ptr() in places:
            weights[name] = tensor.clone()
            weights.own |= {name}
            finish(tensor.device)


def finish(device: torch.device) -> None:
    """Wait for work on this thread's current CUDA stream; calls may use another stream."""
    if device.type == "cuda":
        import torch

        torch.cuda.current_stream(device).synchronize()


def select_slots(
    weights: Iterable[EngineWeight], state: Mapping[str, object], *, keep: bool, is_part: bool = False
) -> tuple[frozenset[str], dict[int, Slot]]:
    """Return the names of the weights that keep their values, and the slots of the others by number, in order.

    With ``keep``, a weight keeps its value if ``state`` names none of its slots and all are transient, or with
    ``is_part`` mutated.
    """
    weights = tuple(weights)

    def stays(slot: Slot) -> bool:
        return (slot.mutated if is_part else slot.transient) and state.keys().isdisjoint(slot.names)

    kept = frozenset(weight.name for weight in weights if keep and all(map(stays, weight.slots)))
    slots = {slot.index: slot for weight in weights if weight.name not in kept for slot in weight.slots}
    return kept, dict(sorted(slots.items()))


def check(
    weights: Iterable[EngineWeight],
    state: Mapping[str, torch.Tensor],
    *,
    known: frozenset[str],
    device: torch.device,
    keep: bool = False,
    is_part: bool = False,
    anywhere: bool = False,
    unused: Mapping[str, torch.Tensor] | None = None,
) -> SlotWeights:
    """Check a model's weights against those of an engine, without copying. The arguments are those of ``fit``.

    ``keep`` and ``is_part`` are those of ``select_slots``. With ``anywhere``, weights may be on another device, as
    those of a file are. ``unused`` has the model's weights that no slot uses, whose shapes are compared.

    Raises:
        RefitError: as ``fit``.
    """
    weights = tuple(weights)
    kept, needed = select_slots(weights, state, keep=keep, is_part=is_part)
    used = {name for weight in weights for slot in weight.slots for name in slot.names}
    others = {name: tensor for name, tensor in state.items() if name in known and name not in used}
    faults = {name: _unused_mismatch(tensor, (unused or {}).get(name)) for name, tensor in others.items()}
    on = None if anywhere else device
    given = match_slots(
        needed,
        state,
        known=known,
        why_mismatch=lambda slot, tensor: _mismatch(slot, tensor, on),
        are_alike=alike,
        others=[f"{name} ({why})" for name, why in faults.items() if why],
    )
    return SlotWeights(given, device, kept)


def match_slots(
    needed: Mapping[int, Slot],
    state: Mapping[str, _Weight],
    *,
    known: frozenset[str],
    why_mismatch: Callable[[Slot, _Weight], str | None],
    are_alike: Callable[[_Weight, _Weight], bool],
    others: Iterable[str] = (),
) -> dict[str | int, _Weight]:
    """Return the weight of each slot, by the slot's index; ``others`` are mismatches found before.

    Raises:
        RefitError: as ``fit``.
    """
    missing: list[str] = []
    mismatched: list[str] = []
    found: dict[str | int, _Weight] = {}
    for index, slot in needed.items():
        given = [(name, state[name]) for name in slot.names if name in state]
        if not given:
            missing.append(slot.names[0] if slot.names else f"slot {slot.index}")
            continue
        (own, first), *tied = given
        faults = [f"{name} ({why})" for name, weight in given if (why := why_mismatch(slot, weight))]
        other = None if faults else next((name for name, weight in tied if not are_alike(weight, first)), None)
        if other is not None:
            faults = [f"{own} (tied to {other} in the compiled model, but their values differ)"]
        mismatched += faults
        found[index] = first
    mismatched += others
    unexpected = sorted(set(state) - known)
    if missing or mismatched or unexpected:
        raise RefitError(tuple(missing), tuple(unexpected), tuple(mismatched))
    return found


def alike(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether two tensors of one dtype and shape, on any devices, are bit-identical."""
    first, second = (one.detach().to(second.device).resolve_conj().resolve_neg() for one in (first, second))
    if first.data_ptr() == second.data_ptr() and first.stride() == second.stride():
        return True
    import torch

    if first.dtype == torch.complex128:  # no integer has 16 bytes
        first, second = torch.view_as_real(first), torch.view_as_real(second)
    bits = getattr(torch, _BITS[first.itemsize])
    return torch.equal(first.view(bits), second.view(bits))


def equals(given: object, current: torch.Tensor) -> bool:
    """Return whether a given weight, on any device, is bit-identical to another one."""
    import torch

    if not isinstance(given, torch.Tensor) or given.is_nested or not is_plain(given):
        return False
    if (given.dtype, given.shape, given.layout) != (current.dtype, current.shape, current.layout):
        return False
    return memory_fault(given) is None and alike(given, current)


def is_unchanged(new: torch.Tensor, old: torch.Tensor) -> bool:
    """Return whether a new weight is bit-identical to the old one, whose memory may have been freed meanwhile."""
    return memory_fault(old) is None and alike(new, old)


def copy_kept(weight: EngineWeight, current: torch.Tensor) -> torch.Tensor:
    """Return a copy of an engine weight that keeps its value.

    Raises:
        RefitError: its memory was freed.
    """
    if fault := memory_fault(current):
        raise RefitError(mismatched=(f"{weight.label} ({fault})",))
    import torch

    with torch.inference_mode(False):
        return current.clone()


def memory_fault(tensor: Any) -> str | None:
    """Return why the memory of a dense tensor of torch cannot be read; None if it can."""
    if tensor._is_zerotensor():
        return "a zero tensor, which has no memory"
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    needed_bytes = (tensor.storage_offset() + last + 1) * tensor.itemsize
    if tensor.numel() and needed_bytes > tensor.untyped_storage().nbytes():  # as FSDP does between its calls
        return "a tensor whose memory was freed"
    return None


def _mismatch(slot: Slot, tensor: object, device: torch.device | None) -> str | None:
    import torch

    if not isinstance(tensor, torch.Tensor):
        return f"a {type(tensor).__name__}, not a tensor"
    if is_fake(tensor):
        return "a fake tensor, which has no values"
    if tensor.is_nested:
        return NESTED
    if not is_plain(tensor):
        hint = "; use .full_tensor()" if hasattr(tensor, "full_tensor") else ""  # of torch's DTensor
        return f"a {type(tensor).__name__}, not a plain tensor{hint}"
    if tuple(tensor.shape) != slot.shape:
        return f"shape {tuple(tensor.shape)}, the engine has {slot.shape}"
    if dtype_name(tensor.dtype) != slot.dtype:
        return f"dtype {dtype_name(tensor.dtype)}, the engine has {slot.dtype}"
    if device and (tensor.device.type != slot.device or (tensor.device != device and slot.device == device.type)):
        return f"on {tensor.device}, the engine expects it on {device if slot.device == device.type else slot.device}"
    if str(tensor.layout) != "torch.strided":
        return f"layout {tensor.layout}, the engine takes strided weights"
    return memory_fault(tensor)


def _unused_mismatch(tensor: object, old: torch.Tensor | None) -> str | None:
    import torch

    if not isinstance(tensor, torch.Tensor):
        return f"a {type(tensor).__name__}, not a tensor"
    if old is not None and tensor.shape != old.shape:
        return f"shape {tuple(tensor.shape)}, the model has {tuple(old.shape)}"
    return None


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has its own memory; classes that intercept operators (fake, distributed) have none."""
    import torch

    return type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__


def is_fake(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a ``FakeTensor``, without importing that class."""
    return type(tensor).__name__ == "FakeTensor"


def _has_layout(weight: EngineWeight, tensor: torch.Tensor) -> bool:
    plain = not (tensor.is_conj() or tensor.is_neg())
    return plain and tensor.stride() == weight.stride and is_aligned(tensor)


def layout(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides in which an engine takes a tensor: its own if they are dense, else contiguous ones.

    A tensor with gaps (a slice) or with overlapping elements (``expand``) has strides that another tensor of the same
    shape cannot be copied into.
    """
    expected = 1
    for size, step in sorted(((n, s) for n, s in zip(shape, stride, strict=True) if n != 1), key=lambda pair: pair[1]):
        if step != expected:
            return contiguous(shape)
        expected *= size
    return stride


def is_aligned(tensor: torch.Tensor) -> bool:
    """Return whether an engine may read the tensor in place."""
    return tensor.device.type == "cpu" or tensor.data_ptr() % ALIGNED_BYTES == 0


def storage_id(tensor: torch.Tensor) -> int:
    """Return the identity of a tensor's storage, which views share, and which stays the same if its memory moves."""
    identity: int = tensor.untyped_storage()._cdata
    return identity


def dtype_name(dtype: torch.dtype) -> str:
    """Return ``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")
