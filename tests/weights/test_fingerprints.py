"""Fingerprints of weights: content only, on all cores, cached while the content is unchanged."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
import torch
from blake3 import blake3

from trtcache.errors import CanonicalizationError
from trtcache.weights.fingerprints import Fingerprints, fingerprints

if TYPE_CHECKING:
    from collections.abc import Callable

_LARGE = 1 << 18  # elements: more bytes than what is not worth remembering


def _plain(tensor: torch.Tensor) -> str:
    data = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    return f"b3:{blake3(data).hexdigest()}"


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 5),
        torch.randn(5, 3).t(),
        torch.randn(8, 8)[::2, 1:5],
        torch.randn(1, 4).expand(3, 4),
        torch.randn(()),
        torch.zeros(0, 4),
        torch.randn(4, 4).to(torch.bfloat16),
        torch.randn(4, 4).to(torch.float8_e4m3fn),
        torch.tensor([True, False]),
        torch.nn.Parameter(torch.randn(6)),
        torch.randn(3, dtype=torch.complex64),
        torch.randn(9 << 18),
    ],
    ids=lambda tensor: f"{tuple(tensor.shape)} {tensor.dtype}",
)
def test_a_fingerprint_is_the_digest_of_the_elements(tensor: torch.Tensor) -> None:
    """A fingerprint is BLAKE3 of the elements in order, whatever the layout is."""
    digest = fingerprints([tensor])[0]
    assert str(digest) == _plain(tensor)
    assert digest.size_bytes == tensor.numel() * tensor.itemsize


def test_many_small_tensors_are_as_if_each_were_alone() -> None:
    """Tensors hashed together on several threads have the same digests as alone, in order."""
    tensors = [torch.full((1 << 19,), float(number)) for number in range(10)]
    tensors.insert(3, torch.randn(3 << 20))
    assert [str(one) for one in fingerprints(tensors)] == [_plain(one) for one in tensors]


def test_what_has_not_changed_is_remembered() -> None:
    """The same tensor, and a view of the same elements, is not hashed again."""
    known = Fingerprints()
    weight = torch.nn.Parameter(torch.randn(_LARGE))
    first = known.of([weight])[0]
    assert known.of([weight, weight.data])[0] is first
    assert known.of([weight.data])[0] is first


@pytest.mark.parametrize("change", ["in place", "past the counter", "through another view", "storage"])
def test_a_changed_weight_has_another_fingerprint(change: str) -> None:
    """Writing one element changes the fingerprint, also if no version counter changes."""
    known = Fingerprints()
    weight = torch.nn.Parameter(torch.randn(_LARGE))
    first = known.of([weight])[0]
    with torch.no_grad():
        match change:
            case "in place":
                weight[7] = 3
            case "past the counter":
                version = weight._version
                weight.data[7] = 3
                assert weight._version == version
            case "through another view":
                weight.detach().view(2, -1)[1, 7] = 3
            case _:
                weight.data = weight.data.clone().mul_(2)
    assert known.of([weight])[0] != first
    assert str(known.of([weight])[0]) == _plain(weight)


def test_slices_of_one_storage_are_told_apart() -> None:
    """Tensors that share a storage have fingerprints of their own."""
    storage = torch.randn(4, _LARGE)
    known = Fingerprints()
    assert known.of(storage.unbind()) == known.of(storage.unbind()) == fingerprints(storage.unbind())


def test_no_tensor_is_kept_alive() -> None:
    """When a tensor's storage is freed, its cached fingerprint is too."""
    known = Fingerprints()
    known.of([torch.randn(_LARGE)])
    gc.collect()
    assert len(known._known) == 0


def test_inference_tensors_are_hashed_each_time() -> None:
    """A tensor of inference mode, which has no version counter, is never remembered."""
    known = Fingerprints()
    with torch.inference_mode():
        tensor = torch.randn(_LARGE)
        first = known.of([tensor])[0]
        tensor[0] += 1
    assert known.of([tensor])[0] != first


@pytest.mark.parametrize("tensor", [torch.eye(3).to_sparse(), torch.empty(3, device="meta")], ids=["sparse", "meta"])
def test_what_has_no_plain_elements_is_refused(tensor: torch.Tensor) -> None:
    """A tensor without readable elements has no fingerprint."""
    with pytest.raises(CanonicalizationError, match="no elements"):
        fingerprints([tensor])


@pytest.mark.parametrize("order", ["flipped", "rolled", "rows exchanged"])
def test_elements_that_change_places_are_noticed(order: str) -> None:
    """Past the version counter, within one block of a sum: it has the same sum, and another order."""
    known = Fingerprints()
    weight = torch.nn.Parameter(torch.randn(_LARGE // 64, 64))
    first = known.of([weight])[0]
    match order:
        case "flipped":
            weight.data[:64] = weight.data[:64].flip(0, 1)
        case "rolled":
            weight.data[:64] = weight.data[:64].roll(1, 0)
        case _:
            weight.data[[3, 5]] = weight.data[[5, 3]]
    assert known.of([weight])[0] != first


def _transpose_kernel(data: torch.Tensor) -> None:
    data.view(-1, 3, 3)[70] = data.view(-1, 3, 3)[70].t().clone()


def _exchange_elements(data: torch.Tensor) -> None:
    data.view(-1)[[100, 102]] = data.view(-1)[[102, 100]]


def _negate_words(data: torch.Tensor) -> None:
    data.view(-1)[80:96].neg_()


def _negate_pair(data: torch.Tensor) -> None:
    data.view(-1)[[81, 95]] = -data.view(-1)[[81, 95]]


def _negate_all(data: torch.Tensor) -> None:
    data.neg_()


def _negate_every_other(data: torch.Tensor) -> None:
    data.view(-1)[1::2].neg_()


@pytest.mark.parametrize(
    "change",
    [_transpose_kernel, _exchange_elements, _negate_words, _negate_pair, _negate_all, _negate_every_other],
    ids=lambda change: change.__name__.strip("_"),
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kernels", [1 << 12, 1 << 20], ids=["small", "of several rows"])
def test_places_and_signs_are_noticed(kernels: int, dtype: torch.dtype, change: Callable[[torch.Tensor], None]) -> None:
    """Past the version counter: elements that change places or signs change the fingerprint, for each of 20 seeds."""
    for seed in range(20 if kernels < 1 << 20 else 2):
        known = Fingerprints()
        values = torch.randn(kernels, 3, 3, generator=torch.Generator().manual_seed(seed))
        weight = torch.nn.Parameter(values.to(dtype))
        version, first = weight._version, known.of([weight])[0]
        change(weight.data)
        assert weight._version == version
        assert str(known.of([weight])[0]) == _plain(weight) != str(first)
