"""Refit: install checked weights in a new engine object, or overwrite the memory of the old ones.

Weights that the engine reads from the model's memory need none of their own. Others, copied or computed by recipes, do:
old and new ones exist together until the last call on the old engine returns. If the new ones need more than
``BESIDE_BYTES`` and more than the largest weight, overwrite the old ones one by one while calls wait. Allocate new
memory all the same if running calls do not end in time, and for weights that ``state_dict`` or the like has handed out.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import torch

from trtcache.config.frozen import frozen_dataclass
from trtcache.config.threads import fork_safe_lock
from trtcache.errors import RefitStoppedError
from trtcache.runtime.operator import places
from trtcache.weights.slots import EngineWeights, alike, copy_kept, finish, is_unchanged, memory_fault

if TYPE_CHECKING:
    from trtcache.backends.protocol import Engine
    from trtcache.weights.slots import EngineWeight, SlotWeights

BESIDE_BYTES = 16 << 20
"""Up to this size new memory is always allocated: less is not worth making calls wait."""

_WAIT_S = 1.0


@frozen_dataclass
class RefitResult:
    """The result of a refit.

    Attributes:
        weights: the engine's weights now.
        changed: the weights whose values changed.
        in_place: whether they overwrote the old weights' memory.
        interrupt: a Ctrl-C that was deferred meanwhile.
    """

    weights: EngineWeights
    changed: tuple[EngineWeight, ...]
    in_place: bool = False
    interrupt: KeyboardInterrupt | None = None


def refit(
    swap: EngineSwap, weights: Sequence[EngineWeight], sources: SlotWeights, *, device: torch.device
) -> RefitResult:
    """Replace an engine's weights. Each call sees only the old weights or only the new.

    Raises:
        IncompatibleEngineError: the engine cannot be loaded again; nothing changed.
        Exception: memory ran out or a GPU failed while weights were overwritten. Later calls raise RefitStoppedError.
    """
    if swap.engine.shares_weights and _needs_much_memory(swap.weights, weights, sources):
        refitted = _in_place(swap, weights, sources, device)
        if refitted is not None:
            return refitted
    refitted = make_new_weights(swap.weights, weights, sources, device=device)
    replace_engine(swap, swap.engine.refit(refitted.weights), refitted.weights, sources.kept, device=device)
    return refitted


def replace_engine(
    swap: EngineSwap, engine: Engine, weights: EngineWeights, kept: Iterable[str], *, device: torch.device
) -> None:
    """Copy the state that calls modify into a new engine, and route calls to it.

    New calls wait meanwhile, and the copy waits for running calls. If one runs longer than ``_WAIT_S``, nothing waits
    any more, and a change that a call makes during the copy can be lost.

    Args:
        swap: routes the calls.
        engine: the new engine.
        weights: its weights.
        kept: the names of weights that keep their values.
        device: where the engines run.
    """
    changing = [(weights[name], swap.weights[name]) for name in kept] if engine.shares_weights else []
    if changing:
        try:
            swap.pause(_WAIT_S)
            with torch.inference_mode():
                _wait_for(device)  # kernels of calls that have returned may still write
                for target, source in changing:
                    target.copy_(source)
                _wait_for(device)
        except BaseException:
            swap.swap_in(swap.engine)
            raise
    swap.swap_in(engine, weights)


def make_new_weights(
    current: EngineWeights, weights: Sequence[EngineWeight], sources: SlotWeights, *, device: torch.device
) -> RefitResult:
    """Allocate new weights, except those that would be unchanged."""
    made: dict[str, torch.Tensor] = {}
    own, changed = set(), []
    for weight in weights:
        name, before = weight.name, current[weight.name]
        if name in sources.kept:
            made[name] = copy_kept(weight, before)  # the old engine keeps modifying its own
            own.add(name)
            continue
        made[name] = sources.make(weight)
        is_own = sources.is_own(weight, made[name])
        if not is_unchanged(made[name], before):
            changed.append(weight)
        elif is_own and name in current.own - current.lent and not weight.is_mutated:
            made[name] = before
        if is_own:
            own.add(name)
    if own:
        finish(device)
    return RefitResult(EngineWeights(made, own, sources.source_weights(weights)), tuple(changed))


def _needs_much_memory(current: EngineWeights, weights: Iterable[EngineWeight], sources: SlotWeights) -> bool:
    sizes = [(weight, current[weight.name].nbytes) for weight in weights]
    fixed = sources.kept | current.lent
    needed = sum(size for weight, size in sizes if weight.name not in fixed and sources.shared_tensor(weight) is None)
    return needed > max([BESIDE_BYTES, *(size for _, size in sizes)])


def _in_place(
    swap: EngineSwap, weights: Sequence[EngineWeight], sources: SlotWeights, device: torch.device
) -> RefitResult | None:
    """Overwrite the old weights.

    Return None, with nothing written, if running calls do not end in time, or if a new weight is computed from memory
    that would be overwritten, such as a tensor of this module's own ``state_dict``.
    """
    current = swap.weights
    chosen: dict[str, torch.Tensor] = {}
    own, changed = set(), []
    writes: deque[EngineWeight] = deque()
    for weight in weights:
        name, before = weight.name, current[weight.name]
        stays = name in sources.kept
        is_writable = name in current.own - current.lent and memory_fault(before) is None
        if stays or (is_writable and sources.shared_tensor(weight) is None):
            chosen[name] = before
            own.add(name)
            if not stays:
                writes.append(weight)
            continue
        chosen[name] = sources.make(weight)
        if not is_unchanged(chosen[name], before):
            changed.append(weight)
        if sources.is_own(weight, chosen[name]):
            own.add(name)
    if _reads_targets(sources, writes, current):
        return None
    engine = swap.engine.refit(chosen)
    if not swap.pause(_WAIT_S):
        return None
    try:
        written, interrupt = _overwrite(writes, current, sources, device)
    except BaseException as error:
        swap.disable(engine, f"{type(error).__name__}: {error}")
        raise
    made = EngineWeights(chosen, own, sources.source_weights(weights))
    made.lent = current.lent & sources.kept
    swap.swap_in(engine, made)
    order = sorted((*changed, *written), key=lambda weight: weight.index)
    return RefitResult(made, tuple(order), True, interrupt)


def _reads_targets(sources: SlotWeights, writes: Iterable[EngineWeight], current: EngineWeights) -> bool:
    """Return whether a given weight is in memory that would be overwritten with other values."""
    targets = set()
    for weight in writes:
        target, slot = current[weight.name], weight.slot
        given = target if slot is None else sources.given[slot.index]
        is_itself = slot is not None and given.data_ptr() == target.data_ptr() and given.stride() == target.stride()
        if target.numel() and not is_itself:  # else nothing is written
            targets.add(target.untyped_storage().data_ptr())
    return any(given.untyped_storage().data_ptr() in targets for given in sources.given.values())


# The weights may belong to a module that was compiled in inference mode.
@torch.inference_mode()
def _overwrite(
    writes: deque[EngineWeight], current: EngineWeights, sources: SlotWeights, device: torch.device
) -> tuple[list[EngineWeight], KeyboardInterrupt | None]:
    """Overwrite each weight whose value differs; return those, and a Ctrl-C deferred meanwhile."""
    written: list[EngineWeight] = []
    interrupt: KeyboardInterrupt | None = None
    _wait_for(device)  # kernels of calls that have returned may still read them
    while writes:
        try:
            weight = writes[0]
            for place, piece in sources.pieces(weight):
                target = current[weight.name][place]
                if not alike(piece, target):
                    if weight not in written:
                        written.append(weight)
                    target.copy_(piece)
            writes.popleft()
        except KeyboardInterrupt as error:
            interrupt = error  # the interrupted weight is written again
    _wait_for(device)
    return written, interrupt


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


_POLL_S = 2e-4


class _Runner(Protocol):
    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]: ...


class EngineSwap:
    """An engine and the calls that are running on it.

    Attributes:
        engine: the current engine, whether it accepts calls or not.
        weights: its weights.
    """

    def __init__(
        self, engine: Engine, weights: Mapping[str, torch.Tensor] | None = None, *, is_mutated: bool = False
    ) -> None:
        """Route calls to an engine.

        Args:
            engine: the engine.
            weights: its weights.
            is_mutated: whether calls change weights: then they run one after the other.
        """
        self.engine = engine
        self._alone = fork_safe_lock() if is_mutated else None
        self.weights = weights if isinstance(weights, EngineWeights) else EngineWeights(weights or {})
        self._places_before: set[int] = set()
        self._target: _Runner = engine
        self._inside: deque[None] = deque()

    def another(self, engine: Engine, weights: EngineWeights) -> EngineSwap:
        """Return the same for another engine with weights of its own."""
        return EngineSwap(engine, weights, is_mutated=self._alone is not None)

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the engine; wait first if it is paused, or for a call that changes its weights.

        Raises:
            RefitStoppedError: a refit failed and left weights of two models in the engine.
        """
        if self._alone is None:
            return self._run(inputs)
        with self._alone:  # a call that waits here is not inside
            return self._run(inputs)

    def _run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        inside = self._inside
        try:
            inside.append(None)  # Ctrl-C is noticed after it
            return self._target.run(inputs)
        finally:
            inside.pop()

    def pause(self, wait_s: float) -> bool:
        """Hold new calls back and wait for running ones; return False, undoing it, if one takes longer."""
        closed = _Paused(self)
        self._target = closed
        deadline = time.monotonic() + wait_s
        try:
            while self._inside:
                if time.monotonic() > deadline:
                    self.swap_in(self.engine)
                    return False
                time.sleep(_POLL_S)
        except BaseException:  # Ctrl-C
            self.swap_in(self.engine)
            raise
        return True

    def swap_in(self, engine: Engine, weights: EngineWeights | None = None) -> None:
        """Route calls to an engine, including those held back; without ``weights`` it has those of the last."""
        if weights is not None:
            self._places_before, self.weights = places(self.weights.values()), weights
        self.engine = engine
        self._route_to(engine)

    def weight_places(self) -> set[int]:
        """Return the addresses of the engine's weights, and of the last engine's, on which calls may still run."""
        return places(self.weights.values()) | self._places_before

    def require_whole(self) -> None:
        """Refuse to pass on weights of two models.

        Raises:
            RefitStoppedError: a refit failed and left them in the engine.
        """
        if isinstance(self._target, _Stopped):
            raise RefitStoppedError(why=self._target.why)

    def disable(self, engine: Engine, why: str) -> None:
        """Fail calls to an engine with weights of two models, until the next ``swap_in``."""
        self.engine = engine
        self._route_to(_Stopped(why))

    def _route_to(self, behind: _Runner) -> None:
        before, self._target = self._target, behind
        if isinstance(before, _Paused):
            before.opened.set()


class _Paused:
    """Hold calls back until the engine is swapped in, which does not happen in a process forked meanwhile."""

    def __init__(self, swap: EngineSwap) -> None:
        self._swap = swap
        self._pid = os.getpid()
        self.opened = threading.Event()

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if os.getpid() != self._pid:
            raise RefitStoppedError(why="this process was forked while its parent overwrote the weights")
        inside = self._swap._inside
        try:
            inside.pop()  # a call that waits here is not running; ``finally`` restores the item that ``_run`` will pop
            self.opened.wait()
            return self._swap.run(inputs)
        finally:
            inside.append(None)


class _Stopped:
    def __init__(self, why: str) -> None:
        self.why = why

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:  # noqa: ARG002  # nothing runs
        raise RefitStoppedError(why=self.why)
