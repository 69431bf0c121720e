"""Slots and engine weights: what is shared, what is copied, and what does not fit."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing._internal.two_tensor import TwoTensor

from tests.models import nested_tensor
from trtcache.errors import RefitError
from trtcache.weights.recipes import Operation, WeightRef
from trtcache.weights.slots import EngineWeight, Slot, alike, contiguous, fit, layout, weight_map

CPU = torch.device("cpu")


def engine_weight(
    *names: str, shape: tuple[int, ...] = (2, 3), index: int = 0, mutated: bool = False, transient: bool = False
) -> EngineWeight:
    """Return an engine weight that is one slot with these names."""
    stride = contiguous(shape)
    slot = Slot(index, "float32", shape, stride, "cpu", names, mutated, transient)
    return EngineWeight(index, WeightRef(index), "float32", shape, stride, "cpu", (slot,))


def put(weight: EngineWeight, tensor: torch.Tensor) -> torch.Tensor:
    """Return what an engine gets for a weight called ``a``."""
    return fit([weight], {"a": tensor}, known=frozenset({"a"}), device=CPU)["w0"]


def test_a_weight_that_lies_right_is_shared() -> None:
    """The engine gets the model's own memory."""
    tensor = torch.randn(2, 3, requires_grad=True)
    found = put(engine_weight("a"), tensor)
    assert found.data_ptr() == tensor.data_ptr()
    assert not found.requires_grad


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 2).t(),
        torch.randn(4, 6)[::2, ::2],
        torch.randn(2, 1).expand(2, 3),
        torch.randn(2, 3, dtype=torch.complex64).conj().imag,
    ],
)
def test_a_weight_that_lies_otherwise_is_copied_into_place(tensor: torch.Tensor) -> None:
    """Transposed, sliced, expanded and lazily negated weights are laid out as the engine reads them."""
    found = put(engine_weight("a"), tensor)
    assert torch.equal(found, tensor)
    assert found.stride() == (3, 1)
    assert not found.is_neg()
    assert found.data_ptr() != tensor.data_ptr()


def test_a_weight_that_calls_change_is_always_a_private_copy() -> None:
    """The model's own tensor is never handed to an engine that writes."""
    tensor = torch.randn(2, 3)
    found = put(engine_weight("a", mutated=True), tensor)
    assert torch.equal(found, tensor)
    assert found.data_ptr() != tensor.data_ptr()


def test_state_that_is_not_named_is_taken_from_the_engine_as_a_copy() -> None:
    """Transient state is copied to the new engine, and the old engine's own is unchanged."""
    weight, current = engine_weight("kept", mutated=True, transient=True), {"w0": torch.randn(2, 3)}
    found = fit([weight], {}, known=frozenset({"kept"}), device=CPU, current=current)["w0"]
    assert torch.equal(found, current["w0"])
    assert found.data_ptr() != current["w0"].data_ptr()
    with pytest.raises(RefitError, match="missing: kept"):
        fit([weight], {}, known=frozenset({"kept"}), device=CPU)


def test_every_fault_is_named_at_once() -> None:
    """Missing, misshapen and unexpected weights are all in one error."""
    weights = [engine_weight("a"), engine_weight("b", index=1), engine_weight("c", "d", index=2)]
    state = {"a": torch.ones(3, 3), "c": torch.ones(2, 3), "d": torch.zeros(2, 3), "x": torch.ones(1)}
    with pytest.raises(RefitError) as raised:
        fit(weights, state, known=frozenset("abcd"), device=CPU)
    assert raised.value.missing == ("b",)
    assert raised.value.unexpected == ("x",)
    assert [one.split(" ")[0] for one in raised.value.mismatched] == ["a", "c"]
    assert "tied to d" in str(raised.value)
    assert str(raised.value).startswith("weights do not fit, nothing was changed")


class Sharded(TwoTensor):
    """A tensor without memory of its own, of which the whole can be made, as a DTensor's."""

    def full_tensor(self) -> torch.Tensor:
        """Return the whole."""
        whole: torch.Tensor = self.a
        return whole


@pytest.mark.parametrize(("kind", "hint"), [(TwoTensor, ""), (Sharded, "; use .full_tensor()")])
def test_tensors_without_memory_of_their_own_are_named(kind: type, hint: str) -> None:
    """A state_dict of FSDP2 has such weights."""
    with pytest.raises(RefitError, match=re.escape(f"w (a {kind.__name__}, not a plain tensor{hint})")):
        fit([engine_weight("w")], {"w": kind(torch.ones(2, 3), torch.ones(2, 3))}, known=frozenset("w"), device=CPU)


def test_names_that_no_slot_uses_are_passed_over() -> None:
    """A state_dict has weights that the program does not need, of any shape."""
    state = {"a": torch.ones(2, 3), "unused": torch.ones(7)}
    assert list(fit([engine_weight("a")], state, known=frozenset(state), device=CPU)) == ["w0"]


def test_a_made_weight_follows_its_recipe() -> None:
    """A weight that a recipe makes is computed from its slots and shares nothing with them."""
    slot = engine_weight("a").slots[0]
    weight = EngineWeight(0, Operation("permute", (WeightRef(0), (1, 0))), "float32", (3, 2), (2, 1), "cpu", (slot,))
    tensor = torch.randn(2, 3)
    found = put(weight, tensor)
    assert torch.equal(found, tensor.t())
    assert found.stride() == (2, 1)
    assert weight.slot is None
    assert weight_map([weight, engine_weight("b", index=1)]) == {
        "w0": {"op": "permute", "args": [{"slot": 0}, [1, 0]]},
        "w1": {"slot": 1},
    }


def test_the_document_of_a_weight_has_no_names() -> None:
    """Names belong to the model and are not in keys and artifacts."""
    one, other = engine_weight("a").document(), engine_weight("b", "c").document()
    assert one == other
    assert engine_weight("a", mutated=True).document() != one


@settings(max_examples=60, deadline=None, database=None)
@given(st.lists(st.integers(0, 4), max_size=4), st.randoms(use_true_random=False))
def test_layout_is_kept_just_where_a_tensor_fills_its_memory_once(sizes: list[int], random: st.DrawFn) -> None:
    """A permuted dense tensor keeps its strides; a slice and an expanded tensor get contiguous ones."""
    order = list(range(len(sizes)))
    random.shuffle(order)  # type: ignore[attr-defined]  # hypothesis draws a random.Random
    dense = torch.empty(sizes).permute(order)
    shape = tuple(dense.shape)
    if all(sizes):
        assert layout(shape, dense.stride()) == dense.stride()
    made = torch.empty_strided(shape, layout(shape, dense.stride()))
    assert made.copy_(dense).shape == dense.shape
    assert contiguous(shape) == torch.empty(shape).stride()


def test_gaps_and_repeats_have_no_layout_to_keep() -> None:
    """What another tensor cannot be copied into is laid out contiguously."""
    assert layout((2, 3), (6, 2)) == (3, 1)
    assert layout((2, 3), (0, 1)) == (3, 1)
    assert layout((2, 3), (1, 2)) == (1, 2)
    assert layout((1, 3), (17, 1)) == (17, 1)


def test_weights_without_memory_are_refused() -> None:
    """A storage that was freed, as FSDP does, a zero tensor and a nested one have no bytes for an engine to read."""
    freed = torch.randn(2, 3)
    freed.untyped_storage().resize_(0)
    with pytest.raises(RefitError, match=r"\(a tensor whose memory was freed\)"):
        put(engine_weight("a"), freed)
    with pytest.raises(RefitError, match="zero tensor"):
        put(engine_weight("a"), torch._efficientzerotensor((2, 3)))
    with pytest.raises(RefitError, match="a nested tensor"):
        put(engine_weight("a"), nested_tensor())
    assert torch.equal(put(engine_weight("a"), torch.ones(3).expand(2, 3)), torch.ones(2, 3))
    assert put(engine_weight("a", shape=(0, 3)), torch.empty(0, 3)).numel() == 0


@pytest.mark.parametrize(("value", "other", "are_equal"), [(float("nan"), float("nan"), True), (0.0, -0.0, False)])
def test_tied_names_are_compared_by_their_bits(value: float, other: float, are_equal: bool) -> None:
    """Copies of one weight are equal where they are NaN; zeros of different signs are different."""
    weight = engine_weight("a", "b")
    state = {"a": torch.full((2, 3), value), "b": torch.full((3, 2), other).t()}
    if are_equal:
        assert fit([weight], state, known=frozenset("ab"), device=CPU)["w0"].isnan().all()
    else:
        with pytest.raises(RefitError, match="tied to b"):
            fit([weight], state, known=frozenset("ab"), device=CPU)


@pytest.mark.parametrize("dtype", [torch.complex128, torch.complex64, torch.float64, torch.bfloat16, torch.bool])
def test_equal_weights_of_any_dtype_are_alike(dtype: torch.dtype) -> None:
    """Their bits are compared, whatever their layout, and also where they are conjugated lazily."""
    one = torch.randn(3, 4, dtype=torch.float64).to(dtype)
    assert alike(one, one.clone())
    assert alike(one.conj(), one.conj().clone())
    assert alike(one, one.t().contiguous().t())
    assert not alike(one, one.logical_not().to(dtype))
    square = torch.arange(4).reshape(2, 2).to(torch.int8)
    assert not alike(square, square.t())
