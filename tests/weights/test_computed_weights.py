"""Weights that are computed by recipes, some rows at a time, straight into their own memory."""

from __future__ import annotations

import torch

from trtcache.weights.recipes import WeightRef as Ref
from trtcache.weights.recipes import evaluate, step
from trtcache.weights.slots import EngineWeight, Slot, fit

SHAPE = (700, 3, 30, 11)  # 2.8 MB in float32, so that it is computed in several pieces


def weight_of(index: int, shape: tuple[int, ...], stride: tuple[int, ...], dtype: str = "float32") -> EngineWeight:
    """Return a weight that is the product of a slot and a factor for each row."""
    slots = (
        Slot(2 * index, dtype, shape, torch.empty(shape).stride(), "cpu", (f"weight{index}",)),
        Slot(2 * index + 1, dtype, shape[:1], (1,), "cpu", (f"factor{index}",)),
    )
    factor = step("reshape", step("rsqrt", Ref(2 * index + 1)), (-1, *[1] * (len(shape) - 1)))
    return EngineWeight(index, step("mul", Ref(2 * index), factor), dtype, shape, stride, "cpu", slots)


def state_of(weights: list[EngineWeight]) -> dict[str, torch.Tensor]:
    """Return random values of all slots by name."""
    torch.manual_seed(0)
    return {
        slot.names[0]: torch.rand(slot.shape, dtype=getattr(torch, slot.dtype)) + 0.5
        for weight in weights
        for slot in weight.slots
    }


def test_computed_weights_are_those_of_a_whole_evaluation() -> None:
    """Each is bit-identical to its recipe's value, in the engine's layout, with memory of its own."""
    channels_last = torch.empty(SHAPE, memory_format=torch.channels_last).stride()
    forms = [(SHAPE, torch.empty(SHAPE).stride()), (SHAPE, channels_last), ((5,), (1,)), ((0, 4), (4, 1))]
    weights = [weight_of(index, *form) for index, form in enumerate(forms)]
    weights.append(weight_of(len(weights), (9, 7), (7, 1), "bfloat16"))
    state = state_of(weights)
    made = fit(weights, state, known=frozenset(state), device=torch.device("cpu"))
    for weight in weights:
        given = {slot.index: state[slot.names[0]] for slot in weight.slots}
        tensor = made[weight.name]
        assert tensor.stride() == weight.stride
        assert tensor.dtype == getattr(torch, weight.dtype)
        assert torch.equal(tensor, evaluate(weight.recipe, given))
        assert tensor.untyped_storage().nbytes() == tensor.nbytes
    assert made.own == {"w0", "w1", "w2", "w4"}  # all that have memory
