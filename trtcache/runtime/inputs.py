"""Checks of a compiled module's inputs. A tensor whose layout differs from the engine's is copied.

torch checks none of this: a package for shape (1, 128) returned wrong results for (2, 128) and aborted on (1, 64), and
an input of the right shape in another layout gave wrong sums. So every call is checked here, in a few microseconds.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from trtcache.lowering.guard_checks import compile_guards
from trtcache.lowering.interface import Interface, TensorInput, evaluate, symbols_in
from trtcache.runtime.checks import CallCheck, bind
from trtcache.weights.arrays import Spans, can_overlap_itself, dense_strides
from trtcache.weights.slots import (
    ALIGNED_BYTES,
    NESTED,
    NESTED_HINT,
    contiguous,
    dtype_name,
    is_aligned,
    is_plain,
    memory_fault,
)

if TYPE_CHECKING:
    from trtcache.errors import InputError


def find_overlap(changed: Collection[int], tensors: Mapping[int, torch.Tensor]) -> tuple[int, int] | None:
    """Return the keys of two tensors that share memory, the first of them in ``changed``; None if no two do.

    If both are in ``changed``, the smaller key is first. Tensors are visited in address order, and only those whose
    address ranges overlap are compared element by element.
    """
    spans = sorted((one.data_ptr(), one.data_ptr() + _extent(one), key) for key, one in tensors.items() if one.numel())
    open_spans: list[tuple[int, int]] = []
    for begin, end, key in spans:
        open_spans = [(until, other) for until, other in open_spans if until > begin]
        for _, other in open_spans:
            first, second = sorted((key, other), key=lambda one: (one not in changed, one))
            if first in changed and overlap(tensors[first], tensors[second]):
                return first, second
        open_spans.append((end, key))
    return None


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors share an element's memory.

    Tensors with disjoint extents are ruled out first. Interleaved ones, as ``x[:, 0]`` and ``x[:, 1]``, are compared
    element by element.
    """
    if one.device != other.device or not (one.numel() and other.numel()):
        return False
    if one.data_ptr() > other.data_ptr():
        one, other = other, one
    if other.data_ptr() >= one.data_ptr() + _extent(one):
        return False
    if one.is_contiguous() and other.is_contiguous():
        return True  # the ranges of their addresses have no gaps
    size_bytes = one.element_size()
    if size_bytes != other.element_size() or (other.data_ptr() - one.data_ptr()) % size_bytes:
        return True
    return bool(torch.isin(_element_addresses(one), _element_addresses(other)).any())


class Memory:
    """The memory of tensors that stay the same from call to call, such as weights.

    Their addresses are compared at each search: ``share_memory_`` and ``resize_`` move a tensor's memory.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Remember tensors by name."""
        self._tensors = dict(tensors)
        self._spans: tuple[tuple[int, ...], Spans] = ((), Spans(()))

    def find_shared(self, leaves: Sequence[torch.Tensor], chosen: Iterable[int]) -> tuple[int, str] | None:
        """Return the index of one of the chosen leaves and the name of what it overlaps; None if all lie apart."""
        tensors = self._tensors.values()
        addresses = (*map(torch.Tensor.data_ptr, tensors),)
        known, spans = self._spans
        if known != addresses:
            spans = Spans((begin, begin + _extent(one)) for begin, one in zip(addresses, tensors, strict=True))
            self._spans = addresses, spans
        for leaf in chosen:
            other = leaves[leaf]
            begin = other.data_ptr()
            if spans.meet(begin, begin + _extent(other)):
                for name, one in self._tensors.items():
                    if overlap(other, one):
                        return leaf, name
        return None


def _extent(tensor: torch.Tensor) -> int:
    """Return the bytes from the start of the first element to the end of the last."""
    if tensor.is_contiguous():  # an empty one is
        return tensor.numel() * tensor.element_size()  # not nbytes, which Dynamo cannot trace
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def _element_addresses(tensor: torch.Tensor) -> torch.Tensor:
    places = torch.full((1,), tensor.data_ptr(), device="cpu")
    for size, step in zip(tensor.shape, tensor.stride(), strict=True):
        places = (places[:, None] + torch.arange(size, device="cpu") * (step * tensor.element_size())).flatten()
    return places


def has_layout(result: torch.Tensor, order: tuple[int, ...]) -> bool:
    """Return whether a result is dense with its dimensions in this order, outermost first."""
    if result.is_contiguous() and order == tuple(range(len(order))):
        return True
    return result.permute(order).is_contiguous()


def to_layout(result: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """Return a copy of a result with its dimensions in this order in memory."""
    back = sorted(range(len(order)), key=order.__getitem__)
    return result.permute(order).contiguous().permute(back)


def with_strides(result: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """Return a result for which ``has_layout`` is true with the exact strides, also in dimensions of size 1."""
    strides = dense_strides(tuple(result.shape), order)
    return result if result.stride() == strides else result.as_strided(result.shape, strides)


class InputCheck(CallCheck):
    """Convert the leaves of a call's arguments to the engine's input tensors.

    Tensors with the engine's layout, the usual case, are compared in one loop and passed through; everything else takes
    the slow path, which copies or raises.
    """

    _symbol = torch.SymInt

    def __init__(self, interface: Interface, device: torch.device, label: Callable[[int], str]) -> None:
        """Prepare the checks.

        Args:
            interface: the program's inputs and guards.
            device: the engine's device.
            label: returns the caller's name for a leaf, for messages.
        """
        super().__init__(interface, label)
        self._guards_hold = compile_guards(interface.conditions)
        self._devices = tuple(
            device if spec.device == device.type else torch.device(spec.device) for spec in self._inputs
        )
        placed = tuple(zip(self._inputs, self._devices, strict=True))
        self._numbers = tuple((spec.leaf, where) for spec, where in placed if spec.number)
        self._fast = tuple(
            (
                spec.leaf,
                getattr(torch, spec.dtype),
                torch.Size([size for size in spec.shape if isinstance(size, int)]),
                spec.stride,
                where,
                where.type == "cpu",
            )
            for spec, where in placed
        )
        self._plan = None if self._fixed else _make_plan(self._inputs, self._devices)
        self._bounds = tuple(
            (number, -1 if smallest is None else smallest, math.inf if largest is None else largest)
            for number, (smallest, largest) in enumerate(self._ranges)
            if (smallest or 0) > 0 or largest is not None
        )
        self._conjugates = any(dtype.is_complex for _, dtype, *_ in self._fast)  # these can have the conjugate bit

    def __call__(self, leaves: Sequence[Any]) -> list[torch.Tensor]:
        """Return the engine's inputs: the caller's own tensors if their layout is right, else copies.

        Raises:
            GuardError: the program was not exported for these sizes.
            InputError: a leaf does not match what the program was compiled for.
        """
        if self._values:
            self.check_values(leaves)
        if self._numbers:
            leaves = self._with_carriers(leaves)
        tensors = self._tensors(leaves)
        if self.mutated:
            self._check_overlap(leaves)
        return tensors

    def check_tensors(self, leaves: Sequence[Any]) -> None:
        """Check that each input is a tensor, of any dtype, device, shape and layout.

        Raises:
            InputError: one is something else.
        """
        for spec in self._inputs:
            if not spec.number and not isinstance(leaves[spec.leaf], torch.Tensor):
                raise self._no_tensor(spec, leaves[spec.leaf])

    def _no_tensor(self, spec: TensorInput, given: Any) -> InputError:
        hint = "use torch.from_numpy" if type(given).__name__ == "ndarray" else ""
        return self.no_tensor(spec, given, hint)

    def _with_carriers(self, leaves: Sequence[Any]) -> list[Any]:
        """Replace each dynamic int by its carrier, an empty tensor of shape (int, 0): engines take tensors only."""
        self.check_numbers(leaves)
        carried = list(leaves)
        for leaf, device in self._numbers:
            carried[leaf] = torch.empty((carried[leaf], 0), device=device, dtype=torch.float32)
        return carried

    def _tensors(self, leaves: Sequence[Any]) -> list[torch.Tensor]:
        """Return the engine's inputs; the fast checks come first, for fixed or for dynamic sizes."""
        checked = None
        try:
            if self._fixed and not self._conjugates:
                checked = self._fixed_tensors(leaves)
            elif self._plan is not None and not self._conjugates:
                checked = self._dynamic_tensors(leaves, self._plan)
        except RuntimeError:  # a nested tensor has no sizes
            checked = None
        return self._check_slowly(leaves) if checked is None else checked

    def _fixed_tensors(self, leaves: Sequence[Any]) -> list[torch.Tensor] | None:
        """Return the tensors of a program with fixed sizes; None if the slow path must check."""
        tensors = []
        for leaf, dtype, shape, stride, device, on_cpu in self._fast:
            tensor = leaves[leaf]
            if (
                type(tensor) is not torch.Tensor
                or tensor.layout is not torch.strided
                or tensor.dtype is not dtype
                or tensor.shape != shape
                or tensor.stride() != stride
                or tensor.device != device
                or tensor.is_neg()
                or (not (pointer := tensor.data_ptr()) and tensor.numel())
                or (pointer % ALIGNED_BYTES and not on_cpu)
            ):
                return None
            tensors.append(tensor)
        return tensors

    def _dynamic_tensors(  # noqa: C901  # one loop: a function call per tensor costs as much as the checks
        self, leaves: Sequence[Any], plan: _Plan
    ) -> list[torch.Tensor] | None:
        """Return the tensors of a program with dynamic sizes; None if the slow path must check."""
        sizes = [0] * len(self._ranges)
        tensors = []
        for leaf, dtype, rank, device, on_cpu, first, again, fixed in plan:
            tensor = leaves[leaf]
            if (
                type(tensor) is not torch.Tensor
                or tensor.layout is not torch.strided
                or tensor.dtype is not dtype
                or tensor.device != device
                or not tensor.is_contiguous()
                or tensor.is_neg()
                or (not (pointer := tensor.data_ptr()) and tensor.numel())
                or (pointer % ALIGNED_BYTES and not on_cpu)
            ):
                return None
            shape = tensor.shape
            # torch calls a tensor contiguous whatever its strides in dimensions of size 1 are. A convolution looks at
            # these, and returns another layout than the one that an engine's code reads.
            if len(shape) != rank or (1 in shape and tensor.stride() != _contiguous(shape)):
                return None
            for dim, number in first:
                sizes[number] = shape[dim]
            for dim, number in again:
                if shape[dim] != sizes[number]:
                    return None
            for dim, size in fixed:
                if shape[dim] != size:
                    return None
            tensors.append(tensor)
        for number, smallest, largest in self._bounds:
            if not smallest <= sizes[number] <= largest:
                return None
        if self._guards_hold is not None:
            try:
                if not self._guards_hold(sizes):
                    return None
            except (ArithmeticError, ValueError):  # a guard divides by a size of 0
                return None
        return tensors

    def _check_slowly(self, leaves: Sequence[Any]) -> list[torch.Tensor]:
        sizes: dict[int, int] = {}
        for spec, device in zip(self._inputs, self._devices, strict=True):
            self._check(spec, leaves[spec.leaf], device)
            bind(spec, leaves[spec.leaf], sizes)
        for spec in self._inputs:
            self.compare(spec, leaves[spec.leaf], sizes)
        self.check_ranges(leaves, sizes)
        self.check_guards(sizes)
        return [self._apply_layout(spec, leaves[spec.leaf], sizes) for spec in self._inputs]

    def _check(self, spec: TensorInput, given: Any, device: torch.device) -> None:
        if not isinstance(given, torch.Tensor):
            raise self._no_tensor(spec, given)
        if given.is_nested:
            raise self.wrong(spec.leaf, "a dense tensor", NESTED, NESTED_HINT)
        if given.layout != torch.strided:
            raise self.wrong(spec.leaf, "a dense tensor", f"one of layout {given.layout}", "use .to_dense()")
        if not is_plain(given):
            raise self.wrong(spec.leaf, "a plain tensor", type(given).__name__, "an engine reads memory directly")
        if dtype_name(given.dtype) != spec.dtype:
            raise self.wrong(spec.leaf, spec.dtype, dtype_name(given.dtype), f"use .to(torch.{spec.dtype})")
        if given.device != device:
            raise self.wrong(spec.leaf, f"a tensor on {device}", f"one on {given.device}", f"use .to({str(device)!r})")
        if given.dim() != len(spec.shape):
            raise self.wrong_rank(spec, given.shape)
        if fault := memory_fault(given):
            raise self.wrong(spec.leaf, "a tensor with memory", fault)

    def _apply_layout(self, spec: TensorInput, given: torch.Tensor, sizes: dict[int, int]) -> torch.Tensor:
        """Return the tensor in the engine's layout: detached, a view with the engine's strides, or a copy."""
        evaluated = [evaluate(step, sizes) for step in spec.stride]
        stride = tuple(step for step in evaluated if step is not None)
        if len(stride) != len(evaluated):  # a stride has a symbol that is no size of an input
            stride = contiguous(tuple(given.shape))
        plain = is_aligned(given) and not (given.is_neg() or given.is_conj())
        if plain and given.stride() == stride:
            return given.detach()
        pairs = zip(given.shape, given.stride(), stride, strict=True)
        # The strides of dimensions with one element, and those of an empty tensor, say nothing about its memory.
        if not given.numel() or all(size == 1 or before == step for size, before, step in pairs):
            if plain:
                return given.detach().as_strided(given.shape, stride)
        else:
            self.check_layout(spec, given.stride(), stride)
        return given.new_empty_strided(given.shape, stride).copy_(given.detach())

    def _check_overlap(self, leaves: Sequence[Any]) -> None:
        """Reject a modified input that overlaps another: the engine reads all inputs before it changes any."""
        for leaf in self.mutated:
            tensor = leaves[leaf]
            if tensor.numel() and can_overlap_itself(tensor.shape, tensor.stride()):  # such as a result of expand
                raise self.wrong(leaf, "a tensor that a call can change", "one whose elements share memory")
        tensors = {spec.leaf: leaves[spec.leaf] for spec in self._inputs}
        if overlap := find_overlap(self.mutated, tensors):
            changed, other = overlap
            expected = f"memory of its own: a call changes {self._label(changed)}"
            raise self.wrong(other, expected, "a tensor that shares it")


_contiguous = functools.lru_cache(maxsize=256)(contiguous)

_Plan: TypeAlias = "tuple[tuple[Any, ...], ...]"


def _make_plan(inputs: Sequence[TensorInput], devices: Sequence[torch.device]) -> _Plan | None:
    """Return how to check the inputs fast; None if one is not contiguous, or a size is not a number or a symbol.

    For each input: leaf, dtype, rank, device, whether that is the CPU, and three lists of (dimension, symbol or size):
    where a symbol occurs first, where it occurs again, and where the size is fixed.
    """
    plan, bound = [], set[int]()
    for spec, device in zip(inputs, devices, strict=True):
        first: list[tuple[int, int]] = []
        again: list[tuple[int, int]] = []
        fixed: list[tuple[int, int]] = []
        for dim, size in enumerate(spec.shape):
            if isinstance(size, int):
                fixed.append((dim, size))
            elif isinstance(size, dict):
                number = int(str(size["sym"]))
                (again if number in bound else first).append((dim, number))
                bound.add(number)
            else:
                return None
        if not _is_contiguous(spec):
            return None
        dtype, on_cpu = getattr(torch, spec.dtype), device.type == "cpu"
        plan.append((spec.leaf, dtype, len(spec.shape), device, on_cpu, tuple(first), tuple(again), tuple(fixed)))
    return tuple(plan)


def _is_contiguous(spec: TensorInput) -> bool:
    """Return whether an input's strides are contiguous.

    They are computed for two sets of large sizes, so that different expressions do not have equal values by chance.
    """
    numbers = {number for size in spec.shape for number in symbols_in(size)}
    for base in (1009, 2003):
        sizes = {number: base + 2 * number for number in numbers}
        shape = [evaluate(size, sizes) for size in spec.shape]
        stride = [evaluate(step, sizes) for step in spec.stride]
        if None in shape or None in stride or tuple(stride) != contiguous(tuple(shape)):
            return False
    return True
