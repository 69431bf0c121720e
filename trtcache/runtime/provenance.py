"""Provenance of a compiled module's engines, for export."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import torch

from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import canonical
from trtcache.errors import RefitError
from trtcache.partition.division import PartitionedProgram
from trtcache.weights.fingerprints import fingerprints
from trtcache.weights.recipes import evaluate
from trtcache.weights.slots import alike

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trtcache.digests import Json
    from trtcache.lowering.interface import Interface
    from trtcache.settings import Settings
    from trtcache.store.entry import Entry
    from trtcache.weights.slots import EngineWeight, EngineWeights


@frozen_dataclass
class Provenance:
    """The stored engines of a compiled module, with what built them and for which target.

    Attributes:
        backend: the backend that built them.
        target: the target as in the key; ``label`` is its readable form.
        toolchain: the toolchain as in the key.
        entries: the engines' entries by partition number; 0 for a program that is one engine.
        division: the partitions.
        parameters: names of the model's weights that are parameters; all others are buffers.
        settings: the caller's settings; None if unknown.
        example_sizes: the example's dynamic sizes by the numbers of their symbols, as far as they are known.
    """

    backend: str
    target: Mapping[str, Json]
    label: str
    toolchain: Mapping[str, Json]
    entries: Mapping[int, Entry]
    division: PartitionedProgram = field(default_factory=PartitionedProgram)
    parameters: frozenset[str] = frozenset()
    settings: Settings | None = None
    example_sizes: Mapping[int, int] = field(default_factory=dict)


def load_members(entry: Entry) -> Entry:
    """Return an entry with all members in memory, independent of its file."""
    return replace(entry, contents={name: entry.read(name) for name in entry.members})


def parameters_of(state: Mapping[str, object]) -> frozenset[str]:
    """Return the names of parameters."""
    return frozenset(name for name, one in state.items() if isinstance(one, torch.nn.Parameter))


def slot_values(interface: Interface, weights: EngineWeights) -> dict[int, torch.Tensor]:
    """Return each slot's current value, by number.

    Raises:
        RefitError: model weights that an engine weight is computed from are not known, or have changed.
    """
    values = {one.slot.index: weights[one.name].detach() for one in interface.weights if one.slot is not None}
    made = [one for one in interface.weights if one.slot is None]
    for weight in made:
        for slot in weight.slots:
            tensor = weights.source_weights.get(slot.index)
            if slot.index not in values and tensor is not None:
                values[slot.index] = tensor
    _check_recipes(made, values, weights)
    return values


def check_frozen(origin: Provenance, interface: Interface, values: Mapping[int, torch.Tensor]) -> None:
    """Check that engines with values of weights in them were built with these.

    Args:
        origin: the engines.
        interface: the interface of the whole program.
        values: each slot's value, by number.

    Raises:
        RefitError: a weight has another value.
    """
    tensors = {name: values[slot.index] for slot in interface.slots for name in slot.names}
    changed = set()
    for number, entry in origin.entries.items():
        parts = entry.key.parts
        frozen = dict(parts.get("frozen", ()))
        engine = interface if origin.division.is_one_engine else origin.division.engines[number].program.interface
        names = [slot.names[0] for slot in engine.slots if slot.index in frozen]
        found: Any = canonical(fingerprints([tensors[name] for name in names]))
        before = [frozen[slot.index] for slot in engine.slots if slot.index in frozen]
        changed |= {name for name, now, then in zip(names, found, before, strict=True) if now != then}
    if changed:
        why = "(it has changed since the engine was built with its value in it; compile the model again)"
        raise RefitError(mismatched=tuple(f"{name} {why}" for name in sorted(changed)))


def _check_recipes(made: Iterable[EngineWeight], values: Mapping[int, torch.Tensor], weights: EngineWeights) -> None:
    missing, changed = [], []
    for weight in made:
        missing += [slot.names[0] for slot in weight.slots if slot.index not in values]
        if not missing and not alike(_evaluate_recipe(weight, values), weights[weight.name]):
            changed.append(f"{weight.label} (it has changed since; refit the module with the model first)")
    if missing or changed:
        raise RefitError(missing=tuple(missing), mismatched=tuple(changed))


def _evaluate_recipe(weight: EngineWeight, values: Mapping[int, torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        given: dict[str | int, torch.Tensor] = dict(values.items())
        made = evaluate(weight.recipe, given)
        return made.new_empty_strided(weight.shape, weight.stride).copy_(made)
