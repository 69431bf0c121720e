"""Digests of weight values, and in-place changes of weights that an engine has copied.

torch counts them in ``_version``, but not all: fused optimizers (``AdamW(..., fused=True)``), the statistics of a
BatchNorm in training mode, and writes through ``.data`` or NumPy bypass the counter. So a small weight is compared by
value, which no write bypasses, and the steps of optimizers are counted for the others.

A fingerprint is the BLAKE3 digest of a tensor's elements in order, independent of layout and device. Weights in host
memory are hashed on all cores; GPU weights are staged through a small host buffer. A fingerprint is cached for as long
as the tensor's storage lives and its version counter is unchanged. Writes that bypass the counter (``weight.data[3] =
0``) are detected by a sum over the elements, which reads the memory once. Each word is multiplied by an odd constant
of its place, so that elements that change places or signs are noticed, too. The constants are public: a program that
looks for other elements with the same sum finds them.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from blake3 import blake3
from torch._compile import _disable_dynamo
from torch.optim.optimizer import register_optimizer_step_post_hook

from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import Digest, hash_bytes
from trtcache.errors import CanonicalizationError
from trtcache.weights.slots import is_plain

COMPARED_BYTES = 1 << 14
"""Weights in the memory of the CPU of at most this size are compared by value. The statistics and the affine parameters
of a BatchNorm with 4096 channels are of this size; 212 tensors of 2 KiB, as in a ResNet-50, take 20 us."""


class Snapshot:
    """The state of some tensors at one time.

    It keeps their memory alive: other tensors could reuse the address and the version of freed ones.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        """Record the values of small tensors, and the version counters of the others."""
        count_optimizer_steps()
        # An alias that inference mode creates has a version counter of its own.
        with torch.inference_mode(False):
            self._tensors = [tensor.detach() for tensor in tensors]
        small = [tensor for tensor in self._tensors if _is_compared(tensor)]
        # Not numpy(): torch refuses to resize memory that was given to NumPy.
        self._memory = [(ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr()) for tensor in small]
        self._values = b"".join(self._memory)
        self._counted = [tensor for tensor in self._tensors if not _is_compared(tensor)]
        self._versions = _versions(self._counted)

    def is_current(self) -> bool:
        """Return whether no tensor has been changed in place.

        The caller MUST have checked that the memory of each is where it was. A large inference tensor, which has no
        version counter, counts as changed.
        """
        return b"".join(self._memory) == self._values and _versions(self._counted) == self._versions


def _is_compared(tensor: torch.Tensor) -> bool:
    if not is_plain(tensor) or tensor.layout != torch.strided or tensor.device.type != "cpu":
        return False
    end = tensor.storage_offset() * tensor.itemsize + tensor.nbytes
    has_memory = end <= tensor.untyped_storage().nbytes()  # that of a weight can be freed
    return has_memory and tensor.nbytes <= COMPARED_BYTES and tensor.is_contiguous()


def _versions(tensors: Iterable[torch.Tensor]) -> list[object]:
    # A new object equals no other.
    return [object() if tensor.is_inference() else tensor._version for tensor in tensors]


@cache
def count_optimizer_steps() -> None:
    """Let each step of an optimizer of torch count as a change of its parameters, from now on.

    Fused optimizers do not count their changes (torch 2.13); the others do, and a change may be counted twice.
    """
    # If the step is compiled, Dynamo would trace the hook, and Inductor remove the call.
    register_optimizer_step_post_hook(_disable_dynamo(_count_step))


def _count_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:  # noqa: ARG001  # torch's signature
    torch.autograd.graph.increment_version([one for group in optimizer.param_groups for one in group["params"]])


_ALONE_FROM_BYTES = 8 << 20  # one tensor of this size uses all cores
_STAGED_BYTES = 32 << 20
_WORD_BYTES = 8
# 64 bytes multiplied by a prime: no dimension of a tensor is a multiple of it. torch uses 16 cores for the largest.
_ROW_WORDS = tuple(8 * prime for prime in (65_521, 32_749, 16_381, 8191, 4093, 2039, 1021, 509, 251))
# A GPU multiplies so many words at once: a kernel takes longer to start than to run.
_GPU_WORDS = 8 << 20
_REMEMBERED_FROM_BYTES = 1 << 16  # a smaller tensor's digest costs no more than a lookup

_Place = tuple[int, tuple[int, ...], tuple[int, ...], torch.dtype]


@frozen_dataclass
class _CachedDigest:
    """A fingerprint, and the tensor's version and sums at that time."""

    digest: Digest
    version: int
    sums: bytes


class Fingerprints:
    """Cached fingerprints of tensors. Does not keep tensors alive."""

    def __init__(self) -> None:
        """Create an empty cache."""
        self._known: WeakKeyDictionary[torch.UntypedStorage, dict[_Place, _CachedDigest]] = WeakKeyDictionary()

    def of(self, tensors: Iterable[torch.Tensor]) -> list[Digest]:
        """Return the fingerprint of each tensor."""
        wanted = list(tensors)
        known = [self._recall(tensor) for tensor in wanted]
        fresh = iter(fingerprints([tensor for tensor, digest in zip(wanted, known, strict=True) if digest is None]))
        digests = []
        for tensor, digest in zip(wanted, known, strict=True):
            if digest is None:
                digest = next(fresh)
                if _worth_remembering(tensor):
                    known_digest = _CachedDigest(digest, tensor._version, _sums(tensor))
                    self._known.setdefault(tensor.untyped_storage(), {})[_place(tensor)] = known_digest
            digests.append(digest)
        return digests

    def _recall(self, tensor: torch.Tensor) -> Digest | None:
        if not _worth_remembering(tensor):
            return None
        known = self._known.get(tensor.untyped_storage(), {}).get(_place(tensor))
        if known is None or known.version != tensor._version or known.sums != _sums(tensor):
            return None
        return known.digest


def fingerprints(tensors: Sequence[torch.Tensor]) -> list[Digest]:
    """Return the fingerprint of each tensor, without caching."""
    parts = [_flat(tensor) for tensor in tensors]
    small = [place for place, part in enumerate(parts) if part.device.type == "cpu" and len(part) < _ALONE_FROM_BYTES]
    digests: dict[int, Digest] = {}
    if sum(len(parts[place]) for place in small) >= _ALONE_FROM_BYTES:
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            digests.update(zip(small, pool.map(_digest, [parts[place] for place in small]), strict=True))
    return [digests[place] if place in digests else _digest(part) for place, part in enumerate(parts)]


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements as bytes on the tensor's device; copied if they are not contiguous."""
    if not is_readable(tensor):
        what = f"a {type(tensor).__name__} with layout {tensor.layout} on {tensor.device}"
        raise CanonicalizationError("a weight", f"{what} has no elements that can be hashed")
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return plain.as_strided((plain.numel(),), (1,)).view(torch.uint8)


def is_readable(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has elements that can be hashed."""
    plain = isinstance(tensor, (torch.nn.Parameter, torch.nn.Buffer)) or type(tensor) is torch.Tensor
    return plain and tensor.layout == torch.strided and not tensor.is_quantized and tensor.device.type != "meta"


def _digest(flat: torch.Tensor) -> Digest:
    if len(flat) == 0:
        return Digest.of(b"")
    if flat.device.type == "cpu":
        return Digest.of(flat.numpy().data)
    # GPU memory is hashed in parts: the next part is copied while one is hashed.
    parts = torch.split(flat, _STAGED_BYTES)
    buffers = [torch.empty(len(parts[0]), dtype=torch.uint8, pin_memory=True) for _ in parts[:2]]
    hasher = blake3(max_threads=len(os.sched_getaffinity(0)))
    arrived = [torch.cuda.Event() for _ in buffers]  # type: ignore[no-untyped-call]  # torch's
    with torch.cuda.device(flat.device):
        for number in range(len(parts) + 1):
            if number < len(parts):
                buffers[number % 2][: len(parts[number])].copy_(parts[number], non_blocking=True)
                arrived[number % 2].record()
            if number:
                last = (number - 1) % 2
                arrived[last].synchronize()
                hasher.update(buffers[last][: len(parts[number - 1])].numpy().data)
    return Digest(hasher.hexdigest(), len(flat))


def _worth_remembering(tensor: torch.Tensor) -> bool:
    if not is_readable(tensor) or tensor.nbytes < _REMEMBERED_FROM_BYTES or tensor.is_inference():
        return False
    return tensor.storage_offset() * tensor.itemsize % _WORD_BYTES == 0


def _place(tensor: torch.Tensor) -> _Place:
    return int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride(), tensor.dtype


def _sums(tensor: torch.Tensor) -> bytes:
    """Hash a sum of the words, each multiplied by an odd constant of its place: of its row and of its column.

    Modulo 2^64, the sign in the highest bit of a word would be lost in a sum of two. So columns are summed first, and
    the high half of each is added to its low half. Two signs only cancel in one column, whose rows have up to 4 MB.
    """
    flat = _flat(tensor)
    words = flat[: len(flat) // _WORD_BYTES * _WORD_BYTES].view(torch.int64)
    size = next((size for size in _ROW_WORDS if 4 * size <= len(words)), _ROW_WORDS[-1])
    columns = _sum_columns(words, size)
    halves = (columns >> 32).add_(columns)
    total = halves.mul_(_odd_constants(words.device)[:size]).sum().view(1)
    tail = flat[len(words) * _WORD_BYTES :].to(torch.int64)
    return hash_bytes(torch.cat([total, tail]).view(torch.uint8).cpu().numpy().data)


def _sum_columns(words: torch.Tensor, size: int) -> torch.Tensor:
    """Return the sum of the rows of ``size`` words, each multiplied by a constant; the last row may be shorter."""
    count = len(words) // size
    rows, rest = words[: count * size].view(count, size), words[count * size :]
    factors = _odd_constants(words.device)[-count - 1 :]
    columns = torch.zeros(size, dtype=torch.int64, device=words.device)
    if words.is_cuda:
        step = _GPU_WORDS // size
        for part, own in zip(torch.split(rows, step), torch.split(factors[:count], step), strict=True):
            columns += (part * own.unsqueeze(1)).sum(0)
        columns[: len(rest)].add_(rest * factors[-1])
    else:
        for row, factor in zip([*rows, rest], factors.tolist(), strict=True):
            columns[: len(row)].add_(row, alpha=factor)
    return columns


@cache
def _odd_constants(device: torch.device) -> torch.Tensor:
    """Return as many odd numbers as a row has words: the same on each device."""
    generator = torch.Generator().manual_seed(0)
    return (torch.randint(-(2**62), 2**62, (_ROW_WORDS[0],), generator=generator) * 2 + 1).to(device)
