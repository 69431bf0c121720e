"""Input checks of a compiled module: tensors are compared with its interface, and copied to the engine's layout.

torch checks none of this: a package for shape (1, 128) returned wrong results for (2, 128) and aborted on (1, 64), and
an input of the right shape in another layout gave wrong sums. So every call is checked here, in a few microseconds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from trtcache.errors import GuardError, InputError
from trtcache.lowering.interface import describe, evaluate, guard_symbols, symbol_names
from trtcache.runtime.guards import compile_guards, failed_guard
from trtcache.runtime.memory import find_overlap
from trtcache.weights.slots import contiguous, dtype_name, is_aligned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trtcache.digests import Json
    from trtcache.lowering.interface import FixedSize, Interface, TensorInput


_INTS = 2**63  # what a size, an int64, holds


class InputCheck:
    """Convert the leaves of a call's arguments to the engine's input tensors.

    Tensors with the engine's layout, the usual case, are compared in one loop and passed through; everything else takes
    the slow path, which copies or raises.

    Attributes:
        fixed_sizes: sizes that were to vary and that torch fixed, by leaf and dimension, for messages.
    """

    def __init__(self, interface: Interface, device: torch.device, label: Callable[[int], str]) -> None:
        """Prepare the checks.

        Args:
            interface: the program's inputs and guards.
            device: the engine's device.
            label: returns the caller's name for a leaf, for messages.
        """
        self._label = label
        self.fixed_sizes: dict[tuple[int, int | None], FixedSize] = {}
        self._numbers = tuple(
            (one.leaf, device if one.device == device.type else torch.device(one.device))
            for one in interface.inputs
            if one.number
        )
        self._inputs = interface.inputs
        self._guards = interface.conditions
        self._holds = compile_guards(interface.conditions)
        self._ranges = interface.checked_ranges
        self._values = tuple((one.leaf, one.value) for one in interface.values)
        self._devices = tuple(device if one.device == device.type else torch.device(one.device) for one in self._inputs)
        self._fixed = all(isinstance(size, int) for one in self._inputs for size in (*one.shape, *one.stride))
        self._fast = tuple(
            (one.leaf, getattr(torch, one.dtype), _fixed_size(one) if self._fixed else None, one.stride, where)
            for one, where in zip(self._inputs, self._devices, strict=True)
        )
        self._varying = None if self._fixed else _varying_plan(self._inputs, self._devices)
        self._bounds = tuple(
            (number, -1 if least is None else least, math.inf if most is None else most)
            for number, (least, most) in enumerate(self._ranges)
            if (least or 0) > 0 or most is not None
        )
        self._mutated = frozenset(
            one.target for one in interface.results if one.kind == "input" and one.target is not None
        )
        self._conjugates = any(fast[1].is_complex for fast in self._fast)

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
        if self._mutated:
            self._check_apart(leaves)
        return tensors

    def check_values(self, leaves: Sequence[Any]) -> None:
        """Compare the leaves that are not tensors.

        Raises:
            InputError: the program was compiled for another value.
        """
        for leaf, value in self._values:
            given = leaves[leaf]
            if given is not value and not same_value(given, value):
                note = self.fixed_sizes.get((leaf, None))
                hint = str(note) if note else "compiled for this value: compile again"
                raise self._wrong(leaf, repr(value), _describe(given), hint)

    def check_numbers(self, leaves: Sequence[Any]) -> None:
        """Check the dynamic ints; a tracer's may be symbols.

        Raises:
            InputError: one is not an int or is negative.
        """
        for leaf, _ in self._numbers:
            given = leaves[leaf]
            if type(given) is not int and not isinstance(given, torch.SymInt):
                raise self._wrong(leaf, "an int", _describe(given))
            if type(given) is int and not 0 <= given < _INTS:
                hint = "an int that varies is a size to the engine"
                raise self._wrong(leaf, "an int from 0 to 2**63 - 1", str(given), hint)

    def _with_carriers(self, leaves: Sequence[Any]) -> list[Any]:
        """Return the leaves with a tensor in place of each dynamic int."""
        self.check_numbers(leaves)
        carried = list(leaves)
        for leaf, device in self._numbers:
            carried[leaf] = torch.empty((carried[leaf], 0), device=device, dtype=torch.float32)
        return carried

    def _tensors(self, leaves: Sequence[Any]) -> list[torch.Tensor]:
        if self._fixed and not self._conjugates:
            tensors = []
            for leaf, dtype, shape, stride, device in self._fast:
                tensor = leaves[leaf]
                if (
                    type(tensor) is not torch.Tensor
                    or tensor.layout is not torch.strided
                    or tensor.dtype is not dtype
                    or tensor.shape != shape
                    or tensor.stride() != stride
                    or tensor.device != device
                    or tensor.is_neg()
                    or not is_aligned(tensor)
                ):
                    break
                tensors.append(tensor)
            else:
                return tensors
        elif self._varying is not None and not self._conjugates:
            found = self._varying_tensors(leaves, self._varying)
            if found is not None:
                return found
        return self._check_slowly(leaves)

    def _varying_tensors(  # noqa: C901  # one loop: a function call per tensor costs as much as the checks
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
                or not (on_cpu or is_aligned(tensor))
            ):
                return None
            shape = tensor.shape
            if len(shape) != rank:
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
        for number, least, most in self._bounds:
            if not least <= sizes[number] <= most:
                return None
        if self._holds is not None:
            try:
                if not self._holds(sizes):
                    return None
            except (ArithmeticError, ValueError):  # a guard divides by a size of 0
                return None
        return tensors

    def _check_slowly(self, leaves: Sequence[Any]) -> list[torch.Tensor]:
        sizes: dict[int, int] = {}
        for one, device in zip(self._inputs, self._devices, strict=True):
            self._check(one, leaves[one.leaf], device)
            _bind(one, leaves[one.leaf], sizes)
        for one in self._inputs:
            self._compare(one, leaves[one.leaf], sizes)
        self._check_ranges(leaves, sizes)
        self._check_guards(sizes)
        return [_apply_layout(one, leaves[one.leaf], sizes) for one in self._inputs]

    def _check(self, spec: TensorInput, given: Any, device: torch.device) -> None:
        if not isinstance(given, torch.Tensor):
            raise self._wrong(spec.leaf, f"a {spec.dtype} tensor", _describe(given))
        if given.layout != torch.strided:
            raise self._wrong(spec.leaf, "a dense tensor", f"one of layout {given.layout}", "use .to_dense()")
        if not is_plain(given):
            raise self._wrong(spec.leaf, "a plain tensor", type(given).__name__, "an engine reads memory directly")
        if dtype_name(given.dtype) != spec.dtype:
            raise self._wrong(spec.leaf, spec.dtype, dtype_name(given.dtype), f"use .to(torch.{spec.dtype})")
        if given.device != device:
            raise self._wrong(spec.leaf, f"a tensor on {device}", f"one on {given.device}", f"use .to({str(device)!r})")
        if given.dim() != len(spec.shape):
            raise self._wrong(spec.leaf, _shape(spec.shape), _shape(given.shape))

    def _compare(self, spec: TensorInput, given: torch.Tensor, sizes: dict[int, int]) -> None:
        expected = [evaluate(written, sizes) for written in spec.shape]
        if expected == list(given.shape):
            return
        if all(isinstance(size, int) for size in spec.shape):
            hint = "compile with dynamic_shapes for other sizes"
        else:
            hint = "its sizes do not fit each other"
        notes = (
            self.fixed_sizes.get((spec.leaf, None if spec.number else dimension))
            for dimension, (size, other) in enumerate(zip(expected, given.shape, strict=True))
            if size != other
        )
        hint = "; ".join(str(note) for note in notes if note) or hint
        error = InputError if self._fixed else GuardError
        if spec.number:
            raise self._wrong(spec.leaf, str(expected[0]), str(given.shape[0]), hint, error)
        raise self._wrong(spec.leaf, _shape(spec.shape), _shape(given.shape), hint, error)

    def _check_ranges(self, leaves: Sequence[Any], sizes: dict[int, int]) -> None:
        for number, (least, most) in enumerate(self._ranges):
            size = sizes.get(number)
            if size is None or ((least is None or size >= least) and (most is None or size <= most)):
                continue
            for one in self._inputs:
                for place, written in enumerate(one.shape):
                    if _only_symbol(written) == number:
                        expected = f"size {least} to {'any' if most is None else most} in dimension {place}"
                        if one.number:
                            expected = f"an int from {least} to {'any' if most is None else most}"
                        found = str(leaves[one.leaf].shape[place])
                        raise self._wrong(one.leaf, expected, found, error=GuardError)

    def _check_guards(self, sizes: dict[int, int]) -> None:
        """Compare the sizes with the assumptions of export.

        Raises:
            GuardError: an assumption does not hold; the message has it with the sizes of this call.
        """
        guard = failed_guard(self._guards, sizes)
        if guard is None:
            return
        names = symbol_names(((one.leaf, one.shape, one.number) for one in self._inputs), self._label)
        involved = guard_symbols(guard)
        found = ", ".join(f"{names.get(number, f's{number}')} is {sizes.get(number)}" for number in involved)
        values = {sizes.get(number) for number in involved}
        if len(involved) > 1 and len(values) == 1:
            found = f"{'both' if len(involved) == 2 else 'all'} are {values.pop()}"
        raise GuardError(
            "sizes",
            describe(guard, names),
            found,
            "compile with example inputs of these sizes, or choose what such calls do: on_guard='eager' or 'compile'",
        )

    def _check_apart(self, leaves: Sequence[Any]) -> None:
        """Reject modified inputs that overlap others: the engine reads before it writes."""
        for leaf in self._mutated:
            if torch._debug_has_internal_overlap(leaves[leaf]) == 1:  # such as a result of expand
                raise self._wrong(leaf, "a tensor that a call can change", "one whose elements share memory")
        given = {one.leaf: leaves[one.leaf] for one in self._inputs}
        if found := find_overlap(self._mutated, given):
            changed, other = found
            expected = f"memory of its own: a call changes {self._label(changed)}"
            raise self._wrong(other, expected, "a tensor that shares it")

    def _wrong(
        self, leaf: int, expected: str, found: str, hint: str = "", error: type[InputError] = InputError
    ) -> InputError:
        return error(self._label(leaf), expected, found, hint)


_Plan: TypeAlias = "tuple[tuple[Any, ...], ...]"


def _varying_plan(inputs: Sequence[TensorInput], devices: Sequence[torch.device]) -> _Plan | None:
    """Return how to compare contiguous tensors whose sizes are numbers or symbols; None if there are others.

    For each input: leaf, dtype, rank, device, whether that is the CPU, and three lists of dimensions: the first of a
    symbol, later ones of a symbol, and those of a fixed size.
    """
    plan, known = [], set[int]()
    for spec, device in zip(inputs, devices, strict=True):
        first: list[tuple[int, int]] = []
        again: list[tuple[int, int]] = []
        fixed: list[tuple[int, int]] = []
        for dim, size in enumerate(spec.shape):
            if isinstance(size, int):
                fixed.append((dim, size))
            elif isinstance(size, dict):
                number = int(str(size["sym"]))
                (again if number in known else first).append((dim, number))
                known.add(number)
            else:
                return None
        if not _is_contiguous(spec):
            return None
        dtype, on_cpu = getattr(torch, spec.dtype), device.type == "cpu"
        plan.append((spec.leaf, dtype, len(spec.shape), device, on_cpu, tuple(first), tuple(again), tuple(fixed)))
    return tuple(plan)


def _is_contiguous(spec: TensorInput) -> bool:
    """Return whether an input's strides are contiguous, tested with sizes whose products are all different."""
    numbers = {number for size in spec.shape for number in _symbols(size)}
    for base in (1009, 2003):
        sizes = {number: base + 2 * number for number in numbers}
        shape = [evaluate(size, sizes) for size in spec.shape]
        stride = [evaluate(step, sizes) for step in spec.stride]
        if None in shape or None in stride or tuple(stride) != contiguous(tuple(shape)):
            return False
    return True


def bind_sizes(inputs: Sequence[TensorInput], given: Sequence[Any]) -> dict[int, int]:
    """Return the values of symbols that the sizes of checked inputs determine, by number.

    A dynamic int may be given itself, or as the tensor that represents it.
    """
    sizes: dict[int, int] = {}
    for spec, tensor in zip(inputs, given, strict=True):
        _bind(spec, tensor, sizes)
    return sizes


def evaluate_size(written: Any, sizes: Mapping[int, int]) -> Any:
    """Return a result that is a number computed from sizes.

    Raises:
        InputError: it cannot be computed for these sizes, for example because it divides by zero.
    """
    value = evaluate(written, sizes)
    if value is None:
        raise InputError("sizes", f"sizes for which {describe(written, {})} has a value", str(dict(sizes)))
    return value


def _bind(spec: TensorInput, given: Any, sizes: dict[int, int]) -> None:
    """Record the symbols that an input's sizes determine: a symbol itself, or the one in ``a * s + b``."""
    shape = given.shape if isinstance(given, torch.Tensor) else (given, 0)
    for written, size in zip(spec.shape, shape, strict=True):
        number = _only_symbol(written)
        if number is None or number in sizes:
            continue
        base, step = evaluate(written, {number: 0}), evaluate(written, {number: 1})
        if base is not None and step is not None and step != base and (size - base) % (step - base) == 0:
            sizes[number] = (size - base) // (step - base)


def same_value(given: object, value: object) -> bool:
    """Return whether a program treats two values as equal: not ``1``, ``1.0`` and ``True``, nor 0.0 and -0.0."""
    if type(given) is not type(value):
        return False
    return repr(given) == repr(value) if isinstance(value, (float, complex)) else given == value  # -0.0, nan


def _fixed_size(spec: TensorInput) -> torch.Size:
    return torch.Size([size for size in spec.shape if isinstance(size, int)])


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has its own memory: one that intercepts operators (fake, distributed) has not."""
    return type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__


def _only_symbol(written: Json) -> int | None:
    """Return the number of the only symbol in an expression, or None."""
    found = set(_symbols(written))
    return found.pop() if len(found) == 1 else None


def _symbols(written: Json) -> list[int]:
    if isinstance(written, dict):
        return [int(str(written["sym"]))]
    return [number for one in written[1:] for number in _symbols(one)] if isinstance(written, list) else []


def _apply_layout(spec: TensorInput, given: torch.Tensor, sizes: dict[int, int]) -> torch.Tensor:
    written = [evaluate(step, sizes) for step in spec.stride]
    stride = tuple(step for step in written if step is not None)
    if len(stride) != len(written):
        stride = contiguous(tuple(given.shape))
    if given.stride() == stride and is_aligned(given) and not (given.is_neg() or given.is_conj()):
        return given.detach()
    return given.new_empty_strided(given.shape, stride).copy_(given.detach())


def _shape(sizes: Sequence[Any]) -> str:
    return f"shape ({', '.join(str(size) if isinstance(size, int) else _expression(size) for size in sizes)})"


def _expression(written: Json) -> str:
    if isinstance(written, dict):
        return f"s{written['sym']}"
    if isinstance(written, list):
        return f"{written[0]}({', '.join(_expression(one) for one in written[1:])})"
    return str(written)


def _describe(given: Any) -> str:
    if isinstance(given, torch.Tensor):
        return f"a tensor of {_shape(given.shape)}, {dtype_name(given.dtype)}"
    return f"{given!r} ({type(given).__name__})" if len(repr(given)) < 80 else f"a {type(given).__name__}"
