"""Checks of a call that need no tensor library: values, sizes, ranges and guards, with their messages."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trtcache.errors import GuardError, InputError, RunError
from trtcache.lowering.guard_checks import SIZES_HINT, failed_guard
from trtcache.lowering.interface import describe, evaluate, symbol_names, symbols_in
from trtcache.weights.slots import NESTED, dtype_name

if TYPE_CHECKING:
    from trtcache.digests import Json
    from trtcache.lowering.interface import FixedSize, Interface, TensorInput, TensorOutput

_INTS = 2**63  # what a size, an int64, holds


def check_outputs(dtypes: Iterable[str], expected: Iterable[TensorOutput]) -> None:
    """Check the dtypes of an engine's outputs: a builder may compute an operator in another dtype than torch does.

    Raises:
        RunError: one is not that of the program.
    """
    for place, (found, output) in enumerate(zip(dtypes, expected, strict=False)):  # old entries have no outputs
        if found != output.dtype:
            why = f"its output {place} is {found}, and the program's is {output.dtype}"
            remedy = "leave the operator that computes it in torch, with the setting torch_executed_ops"
            raise RunError("the engine", f"{why}; {remedy}")


class CallCheck:
    """Compare the leaves of a call's arguments with an interface.

    A subclass knows what a tensor is: ``InputCheck`` those of torch, ``ArrayCheck`` memory of any library.

    Attributes:
        fixed_sizes: sizes that were to vary and that torch fixed, by leaf and dimension, for messages.
        number_leaves: the leaves that are dynamic ints.
        mutated: the leaves that a call changes.
    """

    _symbol: Any = ()
    """The class of a tracer's symbols, which may be given for dynamic ints."""

    def __init__(self, interface: Interface, label: Callable[[int], str]) -> None:
        """Prepare the checks.

        Args:
            interface: the program's inputs and guards.
            label: returns the caller's name for a leaf, for messages.
        """
        self._label = label
        self.fixed_sizes: dict[tuple[int, int | None], FixedSize] = {}
        self.number_leaves = tuple(one.leaf for one in interface.inputs if one.number)
        self._inputs = interface.inputs
        self._guards = interface.conditions
        self._ranges = interface.checked_ranges
        self._values = tuple((one.leaf, one.value) for one in interface.values)
        self._fixed = all(isinstance(size, int) for one in self._inputs for size in (*one.shape, *one.stride))
        self.mutated = frozenset(
            one.target for one in interface.results if one.kind == "input" and one.target is not None
        )

    def no_tensor(self, spec: TensorInput, given: Any, hint: str = "") -> InputError:
        """Return the error for a leaf that is no tensor."""
        article = "an" if spec.dtype.startswith("i") else "a"
        return self.wrong(spec.leaf, f"{article} {spec.dtype} tensor", describe_argument(given), hint)

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
                raise self.wrong(leaf, repr(value), describe_argument(given), hint)

    def check_numbers(self, leaves: Sequence[Any]) -> None:
        """Check the dynamic ints; a tracer's may be symbols.

        Raises:
            InputError: one is not an int or is negative.
        """
        for leaf in self.number_leaves:
            given = leaves[leaf]
            if type(given) is not int and not isinstance(given, self._symbol):
                raise self.wrong(leaf, "an int", describe_argument(given))
            if type(given) is int and not 0 <= given < _INTS:
                hint = "an int that varies is a size to the engine"
                raise self.wrong(leaf, "an int from 0 to 2**63 - 1", str(given), hint)

    def compare(self, spec: TensorInput, given: Any, sizes: dict[int, int]) -> None:
        """Compare the sizes of an input with those that the symbols give it.

        Raises:
            GuardError: they do not fit each other.
            InputError: they differ from the only sizes.
        """
        expected = [evaluate(written, sizes) for written in spec.shape]
        if expected == list(given.shape):
            return
        wrong = [place for place, size in enumerate(expected) if size != given.shape[place]]
        if any(isinstance(spec.shape[place], int) for place in wrong):
            hint = "compile with dynamic sizes for others"
        else:
            hint = "its sizes do not fit each other"
        notes = (self.fixed_sizes.get((spec.leaf, None if spec.number else place)) for place in wrong)
        hint = "; ".join(str(note) for note in notes if note) or hint
        error = InputError if self._fixed else GuardError
        if spec.number:
            raise self.wrong(spec.leaf, str(expected[0]), str(given.shape[0]), hint, error)
        raise self.wrong(spec.leaf, shape_text(spec.shape), shape_text(given.shape), hint, error)

    def wrong_rank(self, spec: TensorInput, shape: Sequence[int]) -> InputError:
        """Return the error for a tensor with another number of dimensions."""
        numbers = dict.fromkeys(number for size in spec.shape for number in symbols_in(size))
        ranges = (
            f"s{number} is any size" + (f" from {least or 0}" + ("" if most is None else f" to {most}"))
            for number in numbers
            for least, most in (self._ranges[number],)
        )
        return self.wrong(spec.leaf, shape_text(spec.shape), shape_text(shape), ", ".join(ranges))

    def check_ranges(self, leaves: Sequence[Any], sizes: dict[int, int]) -> None:
        """Compare the sizes with the ranges of the program's symbols.

        Raises:
            GuardError: one is outside.
        """
        for number, (least, most) in enumerate(self._ranges):
            size = sizes.get(number)
            if size is None or ((least is None or size >= least) and (most is None or size <= most)):
                continue
            for one in self._inputs:
                for place, written in enumerate(one.shape):
                    if only_symbol(written) == number:
                        expected = f"size {least} to {'any' if most is None else most} in dimension {place}"
                        if one.number:
                            expected = f"an int from {least} to {'any' if most is None else most}"
                        found = str(leaves[one.leaf].shape[place])
                        raise self.wrong(one.leaf, expected, found, error=GuardError)

    def check_guards(self, sizes: dict[int, int]) -> None:
        """Compare the sizes with the assumptions of export.

        Raises:
            GuardError: an assumption does not hold; the message has it with the sizes of this call.
        """
        guard = failed_guard(self._guards, sizes)
        if guard is None:
            return
        names = symbol_names(((one.leaf, one.shape, one.number) for one in self._inputs), self._label)
        involved = symbols_in(guard)
        found = ", ".join(f"{names.get(number, f's{number}')} is {sizes.get(number)}" for number in involved)
        values = {sizes.get(number) for number in involved}
        if len(involved) > 1 and len(values) == 1:
            found = f"{'both' if len(involved) == 2 else 'all'} are {values.pop()}"
        raise GuardError("sizes", describe(guard, names), found, SIZES_HINT)

    def in_weight(self, leaf: int) -> InputError:
        """Return the error for a leaf that a call changes, in memory that it also reads as a weight."""
        expected = "memory of its own: a call changes it"
        return self.wrong(leaf, expected, "a tensor that shares memory with a weight")

    def check_layout(self, spec: TensorInput, found: Sequence[int], strides: Sequence[int]) -> None:
        """Check that an input with other strides than the engine's may be copied into these.

        Raises:
            GuardError: with this layout the model would change other tensors in place.
        """
        if spec.fixed_layout:
            expected = f"strides {tuple(strides)}, for which it was compiled"
            hint = (
                "forward changes other tensors in place for another layout: copy it, or compile with an example in it"
            )
            raise self.wrong(spec.leaf, expected, f"strides {tuple(found)}", hint, GuardError)

    def wrong(
        self, leaf: int, expected: str, found: str, hint: str = "", error: type[InputError] = InputError
    ) -> InputError:
        """Return the error for a leaf."""
        return error(self._label(leaf), expected, found, hint)


def describe_guards(interface: Interface, label: Callable[[int], str]) -> tuple[str, ...]:
    """Return a program's guards in readable form; ``label`` returns the caller's name for a leaf."""
    names = symbol_names(((one.leaf, one.shape, one.number) for one in interface.inputs), label)
    return tuple(describe(guard, names) for guard in interface.conditions)


def bind_sizes(inputs: Sequence[TensorInput], given: Sequence[Any]) -> dict[int, int]:
    """Return the values of symbols that the sizes of checked inputs determine, by number.

    A dynamic int may be given itself, or as the tensor that represents it.
    """
    sizes: dict[int, int] = {}
    for spec, tensor in zip(inputs, given, strict=True):
        bind(spec, tensor, sizes)
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


def bind(spec: TensorInput, given: Any, sizes: dict[int, int]) -> None:
    """Record the symbols that an input's sizes determine: a symbol itself, or the one in ``a * s + b``."""
    shape = given.shape if hasattr(given, "shape") else (given, 0)
    for written, size in zip(spec.shape, shape, strict=True):
        number = only_symbol(written)
        if number is None or number in sizes or not _is_affine(written):
            continue
        base, step = evaluate(written, {number: 0}), evaluate(written, {number: 1})
        if base is not None and step is not None and step != base and (size - base) % (step - base) == 0:
            sizes[number] = (size - base) // (step - base)


def _is_affine(written: Json) -> bool:
    """Return whether an expression is a sum of numbers and of products of a number and one symbol."""
    if not isinstance(written, list):
        return True
    head, *terms = written
    if head == "Mul" and sum(bool(symbols_in(one)) for one in terms) > 1:
        return False
    return head in {"Add", "Mul"} and all(map(_is_affine, terms))


def same_value(given: Any, value: Any) -> bool:
    """Return whether a program treats two values as equal: not ``1``, ``1.0`` and ``True``, nor 0.0 and -0.0."""
    if type(given) is not type(value):
        return False
    if isinstance(value, complex):
        return same_value(given.real, value.real) and same_value(given.imag, value.imag)
    if isinstance(value, float):
        return struct.pack("d", given) == struct.pack("d", value)  # -0.0, nan
    return bool(given == value)


class ExactKey:
    """A key in the structure of a program's arguments; it equals a key of the same type and value only.

    ``1``, ``1.0`` and ``True`` are one key of a dict, and so are 0.0 and -0.0, but a model can compute with its keys.

    Attributes:
        key: the key itself.
    """

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        """Store the key."""
        self.key = key

    def __eq__(self, other: object) -> bool:
        """Compare with a key, which need not be an ``ExactKey``."""
        return _same_key(other.key if isinstance(other, ExactKey) else other, self.key)

    def __hash__(self) -> int:
        """Return the hash of the key."""
        return hash(self.key)

    def __repr__(self) -> str:
        """Return the key as it is written in messages."""
        return repr(self.key)


def exact_keys(keys: Any) -> Any:
    """Return the keys of a mapping as ``ExactKey``; lists in lists as well.

    Texts are left as they are, which costs a call less: one of a derived class passes.
    """
    if type(keys) is list:
        return list(map(exact_keys, keys))
    return keys if type(keys) is str or keys is None or isinstance(keys, type) else ExactKey(keys)


def values_by_key(mapping: Mapping[Any, Any], keys: list[Any]) -> list[Any] | None:
    """Return the values of a mapping in the order of keys, which may be ``ExactKey``; None if it has other keys."""
    if keys == list(mapping):
        return list(mapping.values())
    own = {key: key for key in mapping}
    plain = [key.key if isinstance(key, ExactKey) else key for key in keys]
    if len(own) != len(keys) or any(one not in own or key != own[one] for one, key in zip(plain, keys, strict=True)):
        return None
    return [mapping[key] for key in plain]


_ADDRESS: Any = object.__repr__


def _same_key(given: Any, key: Any) -> bool:
    if given is key:  # also a nan
        return True
    if type(given) is type(key) and isinstance(key, (tuple, list)):
        return len(given) == len(key) and all(map(_same_key, given, key))
    if isinstance(key, (set, frozenset)):  # equal ones can have other orders
        return same_value(given, key) and sorted(map(repr, given)) == sorted(map(repr, key))
    # The text tells what == does not: the fields of a dataclass, and the sign of a zero in an object.
    has_text = getattr(type(key), "__repr__", None) is not _ADDRESS
    return same_value(given, key) and (not has_text or repr(given) == repr(key))


def only_symbol(written: Json) -> int | None:
    """Return the number of the only symbol in an expression, or None."""
    found = symbols_in(written)
    return found[0] if len(found) == 1 else None


def shape_text(sizes: Sequence[Any]) -> str:
    """Return sizes in readable form: ``shape (s0, 4)``."""
    texts = [str(size) if isinstance(size, int) else _expression(size) for size in sizes]
    return f"shape ({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _expression(written: Json) -> str:
    if isinstance(written, dict):
        return f"s{written['sym']}"
    if isinstance(written, list):
        return f"{written[0]}({', '.join(_expression(one) for one in written[1:])})"
    return str(written)


def describe_argument(given: Any) -> str:
    """Return an argument in readable form, for messages: only a tensor of torch is described by its shape."""
    tensor: Any = getattr(sys.modules.get("torch"), "Tensor", ())
    if not isinstance(given, tensor):
        return describe_value(given)
    return NESTED if given.is_nested else f"a tensor of {shape_text(given.shape)}, {dtype_name(given.dtype)}"


def describe_value(given: object) -> str:
    """Return a value in readable form: a tensor by its dtype and shape."""
    dtype = str(getattr(given, "dtype", ""))
    if dtype.startswith("torch."):
        return f"a {dtype.removeprefix('torch.')} tensor of shape {tuple(getattr(given, 'shape', ()))}"
    return f"{given!r} ({type(given).__name__})" if len(repr(given)) < 80 else f"a {type(given).__name__}"
