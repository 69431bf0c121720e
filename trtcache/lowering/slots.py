"""Numbering of slots and engine weights by first use from a program's outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtcache.lowering.order import group_tied
from trtcache.weights.recipes import WeightRef, rename, sources
from trtcache.weights.slots import EngineWeight, Slot, contiguous, dtype_name, layout

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    import torch
    from torch import fx

    from trtcache.weights.recipes import Recipe


def recipe_of(node: fx.Node) -> Recipe | None:
    """Return the recipe of a weight's node in terms of the model's names; None if it is not a weight."""
    if "weight" in node.meta:
        return WeightRef(node.meta["weight"])
    recipe: Recipe | None = node.meta.get("recipe")
    return recipe


def number_weights(
    order: Iterable[fx.Node],
    state: Mapping[str, torch.Tensor],
    *,
    mutated: Collection[str],
    saved: Collection[str],
) -> tuple[tuple[Slot, ...], tuple[EngineWeight, ...]]:
    """Return a program's slots and engine weights; set each weight node's ``meta["engine_weight"]``.

    Args:
        order: the program's nodes in canonical order.
        state: every weight of the model by name.
        mutated: names of weights that a call modifies.
        saved: names in the model's state_dict.
    """
    found = [(node, recipe) for node in order if (recipe := recipe_of(node))]
    groups = group_tied(state)
    whole = {groups[str(recipe.weight)] for _, recipe in found if isinstance(recipe, WeightRef)}
    used = dict.fromkeys(groups[str(name)] for _, recipe in found for name in sources(recipe))
    slots: dict[str | int, Slot] = {}
    for index, names in enumerate(used):
        slot = _slot(index, names, state[names[0]], is_whole=names in whole, mutated=mutated, saved=saved)
        slots |= dict.fromkeys(names, slot)
    weights = tuple(_engine_weight(index, *one, slots) for index, one in enumerate(found))
    return tuple({slot.index: slot for slot in slots.values()}.values()), weights


def _slot(
    index: int,
    names: tuple[str, ...],
    tensor: torch.Tensor,
    *,
    is_whole: bool,
    mutated: Collection[str],
    saved: Collection[str],
) -> Slot:
    shape = tuple(tensor.shape)
    return Slot(
        index=index,
        dtype=dtype_name(tensor.dtype),
        shape=shape,
        stride=layout(shape, tensor.stride()) if is_whole else contiguous(shape),
        device=tensor.device.type,
        names=names,
        mutated=any(name in mutated for name in names),
        transient=not any(name in saved for name in names),
    )


def _engine_weight(index: int, node: fx.Node, recipe: Recipe, slots: Mapping[str | int, Slot]) -> EngineWeight:
    value = node.meta["val"]
    shape = tuple(value.shape)
    stride = slots[recipe.weight].stride if isinstance(recipe, WeightRef) else layout(shape, value.stride())
    if stride != value.stride():
        node.meta["val"] = value.contiguous()
    weight = EngineWeight(
        index=index,
        recipe=rename(recipe, lambda name: slots[name].index),
        dtype=dtype_name(value.dtype),
        shape=shape,
        stride=stride,
        device=value.device.type,
        slots=tuple(slots[name] for name in dict.fromkeys(sources(recipe))),
    )
    node.meta["engine_weight"] = weight
    return weight
