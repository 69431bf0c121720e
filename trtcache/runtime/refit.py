"""How weights that were checked come behind a gate: beside those of before, or in their place.

Weights that the engine reads where the model has them cost nothing. Others, which are copied or made by recipes, need
memory. Made beside those of before they need it twice until the last call on the old engine has returned; so where
that is more than one weight of the model, they are written one by one into the memory of those of before, while calls
wait. Calls that run on and on are not waited for: then it is beside.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from trtcache.weights.slots import EngineWeights, alike, finish

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trtcache.runtime.engine_swap import Gate
    from trtcache.weights.slots import EngineWeight, SlotWeights

BESIDE_BYTES = 16 << 20
"""What is always made beside: less is not worth that calls wait."""

_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class Refitted:
    """What came of it.

    Attributes:
        weights: the engine's weights now.
        changed: those whose values are others than before.
        in_place: whether they were written into the memory of those of before.
        interrupt: a Ctrl-C that waited for that.
    """

    weights: EngineWeights
    changed: tuple[EngineWeight, ...]
    in_place: bool = False
    interrupt: KeyboardInterrupt | None = None


def refit(
    gate: Gate, current: EngineWeights, weights: Sequence[EngineWeight], sources: SlotWeights, *, device: torch.device
) -> Refitted:
    """Put weights behind the gate. A call has those of before or these, never some of both.

    Raises:
        IncompatibleEngineError: the engine cannot be loaded once more; nothing was changed.
        RefitStoppedError: only from later calls, where memory ran out or a GPU failed while weights were written.
    """
    if gate.engine.shares_weights and _is_much(current, weights, sources):
        refitted = _in_place(gate, current, weights, sources, device)
        if refitted is not None:
            return refitted
    refitted = beside(current, weights, sources, device=device)
    gate.open(gate.engine.refit(refitted.weights))
    return refitted


def beside(
    current: EngineWeights, weights: Iterable[EngineWeight], sources: SlotWeights, *, device: torch.device
) -> Refitted:
    """Make weights in memory of their own, but for those that would be as they are."""
    weights = tuple(weights)
    made: dict[str, torch.Tensor] = {}
    own, changed = set(), []
    for weight in weights:
        name, before = weight.name, current[weight.name]
        if name in sources.kept:
            made[name] = before.clone()  # the engine of before goes on changing its own
            own.add(name)
            continue
        made[name] = sources.make(weight)
        is_own = sources.is_own(weight, made[name])
        if not alike(made[name], before):
            changed.append(weight)
        elif is_own and name in current.own and not weight.is_mutated:
            made[name] = before
        if is_own:
            own.add(name)
    if own:
        finish(device)
    return Refitted(EngineWeights(made, own, sources.source_weights(weights)), tuple(changed))


def _is_much(current: EngineWeights, weights: Iterable[EngineWeight], sources: SlotWeights) -> bool:
    sizes = [(weight, current[weight.name].nbytes) for weight in weights]
    needed = sum(
        size for weight, size in sizes if weight.name not in sources.kept and sources.shared_tensor(weight) is None
    )
    return needed > max([BESIDE_BYTES, *(size for _, size in sizes)])


def _in_place(
    gate: Gate, current: EngineWeights, weights: Iterable[EngineWeight], sources: SlotWeights, device: torch.device
) -> Refitted | None:
    """Write weights into the memory of those of before; None if calls are running on and on, and nothing was done."""
    weights = tuple(weights)
    chosen: dict[str, torch.Tensor] = {}
    own, changed = set(), []
    writes: deque[EngineWeight] = deque()
    for weight in weights:
        name, before = weight.name, current[weight.name]
        stays = name in sources.kept
        if stays or (name in current.own and sources.shared_tensor(weight) is None):
            chosen[name] = before
            own.add(name)
            writes.extend(() if stays else (weight,))
            continue
        chosen[name] = sources.make(weight)
        if not alike(chosen[name], before):
            changed.append(weight)
        if sources.is_own(weight, chosen[name]):
            own.add(name)
    engine = gate.engine.refit(chosen)
    if not gate.close(_WAIT_S):
        return None
    try:
        written, interrupt = _write(writes, current, sources, device)
    except BaseException as error:
        gate.stop(engine, f"{type(error).__name__}: {error}")
        raise
    gate.open(engine)
    order = sorted((*changed, *written), key=lambda weight: weight.index)
    return Refitted(EngineWeights(chosen, own, sources.source_weights(weights)), tuple(order), True, interrupt)


# The weights that are written may be of a module that was compiled in inference mode.
@torch.inference_mode()
def _write(
    writes: deque[EngineWeight], current: EngineWeights, sources: SlotWeights, device: torch.device
) -> tuple[list[EngineWeight], KeyboardInterrupt | None]:
    """Write each weight that has other values; return those, and a Ctrl-C that came meanwhile."""
    written: list[EngineWeight] = []
    interrupt: KeyboardInterrupt | None = None
    _wait_for(device)  # kernels of calls that have returned may still read them
    while writes:
        try:
            _write_next(writes, written, current, sources)
        except KeyboardInterrupt as error:
            interrupt = error  # and the weight at which it came is written once more
    _wait_for(device)
    return written, interrupt


def _write_next(
    writes: deque[EngineWeight], written: list[EngineWeight], current: EngineWeights, sources: SlotWeights
) -> None:
    weight = writes[0]
    for place, piece in sources.pieces(weight):
        target = current[weight.name][place]
        if not alike(piece, target):
            if weight not in written:
                written.append(weight)
            target.copy_(piece)
    writes.popleft()


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
