"""What a compiled module was made from, for who writes it to a file."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from trtcache.errors import RefitError
from trtcache.partition.partitions import Division
from trtcache.weights.recipes import evaluate
from trtcache.weights.slots import alike

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trtcache.digests import Json
    from trtcache.lowering.interface import Interface
    from trtcache.settings import Settings
    from trtcache.store.entry import Entry
    from trtcache.weights.slots import EngineWeight, EngineWeights


@dataclass(frozen=True, slots=True)
class Origin:
    """The engines of a compiled module as they are stored, and what they were built by and for.

    Attributes:
        backend: which backend built them.
        target: what they are for, as it stands in the key; ``label`` says it in words.
        toolchain: what built them, as it stands in the key.
        entries: the engines by the numbers of their parts; the one of a program that is not divided is 0.
        division: the parts.
        parameters: which of the model's weights are parameters; all others are buffers.
        settings: what the caller said; None where nobody knows it any more.
    """

    backend: str
    target: Mapping[str, Json]
    label: str
    toolchain: Mapping[str, Json]
    entries: Mapping[int, Entry]
    division: Division = field(default_factory=Division)
    parameters: frozenset[str] = frozenset()
    settings: Settings | None = None


def held(entry: Entry) -> Entry:
    """Return an entry that keeps no file open and needs none."""
    return replace(entry, contents={name: entry.read(name) for name in entry.members})


def parameters_of(state: Mapping[str, object]) -> frozenset[str]:
    """Return the names of parameters."""
    return frozenset(name for name, one in state.items() if isinstance(one, torch.nn.Parameter))


def slot_values(interface: Interface, weights: EngineWeights) -> dict[int, torch.Tensor]:
    """Return the value of each slot, by its number, as the engine has it now.

    Raises:
        RefitError: of an engine weight that was made from several weights of the model, those are gone or have changed.
    """
    values = {one.slot.index: weights[one.name].detach() for one in interface.weights if one.slot is not None}
    made = [one for one in interface.weights if one.slot is None]
    for one in made:
        for slot in one.slots:
            known = weights.source_weights.get(slot.index)
            tensor = known.tensor() if known is not None else None
            if slot.index not in values and tensor is not None:
                values[slot.index] = tensor
    _check(made, values, weights)
    return values


def _check(made: Iterable[EngineWeight], values: Mapping[int, torch.Tensor], weights: EngineWeights) -> None:
    missing, changed = [], []
    for one in made:
        missing += [slot.names[0] for slot in one.slots if slot.index not in values]
        if not missing and not alike(_made(one, values), weights[one.name]):
            changed.append(f"{one.label} (it has changed since; refit the module with the model first)")
    if missing or changed:
        gone = tuple(f"{name} (the model is gone; refit the module with it first, and keep it)" for name in missing)
        raise RefitError(missing=gone, mismatched=tuple(changed))


def _made(weight: EngineWeight, values: Mapping[int, torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        given: dict[str | int, torch.Tensor] = dict(values.items())
        made = evaluate(weight.recipe, given)
        return made.new_empty_strided(weight.shape, weight.stride).copy_(made)
