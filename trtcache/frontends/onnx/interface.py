"""The border of an ONNX model: its inputs and outputs, and the sizes that a caller asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from trtcache.errors import InputError, ProfileError
from trtcache.lowering.interface import Interface, Result, TensorInput, TensorOutput
from trtcache.weights.recipes import WeightRef
from trtcache.weights.slots import EngineWeight, dtype_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trtcache.backends.tensorrt.profiles import Range
    from trtcache.digests import Json
    from trtcache.frontends.onnx.file import OnnxFile
    from trtcache.lowering.input_spec import Input
    from trtcache.weights.slots import Slot

Shape = tuple[int, ...]


TAKEN = ("float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool")
"""Dtypes of inputs and outputs. The parser takes float64 too, and makes it float32 without a word."""


@dataclass(frozen=True, slots=True)
class Port:
    """An input or an output as a file declares it.

    Attributes:
        name: what the file, and the plan, call it.
        dtype: torch's name for it, or ONNX's.
        shape: sizes; a text names one that varies, None is one of which nothing is said. Of an output it may be empty
            and ``ranked`` False, where the file says nothing.
        declared: the sizes without the names of those that vary: ``{"sym": n}``, numbered over all inputs.
        ranked: whether the file says how many sizes there are.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...]
    declared: tuple[Json, ...] = ()
    ranked: bool = True


@dataclass(frozen=True, slots=True)
class InputSizes:
    """The least, the usual and the most sizes that an input is to have."""

    least: Shape
    usual: Shape
    most: Shape


def read_ports(file: OnnxFile) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    """Return a model's inputs, without those that are initializers, and its outputs.

    Raises:
        OnnxFileError: one is no tensor, or of a dtype that no engine takes.
    """
    graph = file.model.graph
    numbers: dict[object, int] = {}
    initialized = {*file.initializers, *(one.values.name for one in graph.sparse_initializer)}
    given = [one for one in graph.input if one.name not in initialized]
    inputs = tuple(_port(file, one, f"input {one.name!r}", numbers) for one in given)
    outputs = tuple(_port(file, one, f"output {one.name!r}", {}) for one in graph.output)
    for port in inputs:
        if not port.ranked:
            raise file.error(f"its input {port.name!r} has no number of dimensions; an engine needs one")
    return inputs, outputs


def _port(file: OnnxFile, value: Any, what: str, numbers: dict[object, int]) -> Port:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise file.error(f"its {what} is {'of no type' if kind is None else f'a {kind}'}, and engines take tensors")
    tensor = value.type.tensor_type
    dtype = file.elements.type_of(tensor.elem_type, f"its {what}").name
    if dtype not in TAKEN:
        raise file.error(
            f"its {what} is {dtype}, and plans take and give {', '.join(TAKEN)}; add a Cast, or convert it"
        )
    shape = tuple(
        one.dim_value if one.HasField("dim_value") and one.dim_value >= 0 else (one.dim_param or None)
        for one in tensor.shape.dim
    )
    declared: tuple[Json, ...] = tuple(
        size if isinstance(size, int) else {"sym": numbers.setdefault(size or (value.name, place), len(numbers))}
        for place, size in enumerate(shape)
    )
    return Port(value.name, dtype, shape, declared, tensor.HasField("shape"))


def resolve_sizes(
    inputs: Sequence[Port], args: Sequence[Any], kwargs: Mapping[str, Any], kind: str
) -> tuple[InputSizes, ...]:
    """Return the sizes of each input: those that the file says, and those that a caller gives for the others.

    Args:
        inputs: a model's.
        args: for inputs in order: an ``Input``, ``InputSizes``, a tensor or an array; None for what the file says.
        kwargs: the same by name.
        kind: the kind of engine that it is for.
    """
    given = _by_name(inputs, args, kwargs)
    found = tuple(_sizes(port, given.get(port.name), kind) for port in inputs)
    _check_shared(inputs, found)
    return found


def _by_name(inputs: Sequence[Port], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    names = [port.name for port in inputs]
    if len(args) > len(names):
        raise InputError("arguments", f"at most {len(names)} ({', '.join(names)})", str(len(args)))
    given = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names:
            raise InputError(f"argument {name}", f"one of {', '.join(names)}", "a name that the model does not have")
        if given.get(name) is not None:
            raise InputError(f"argument {name}", "one value", "one by position and one by name")
        given[name] = value
    return {name: value for name, value in given.items() if value is not None}


def _sizes(port: Port, given: Any, kind: str) -> InputSizes:
    if given is None:
        fixed = tuple(size for size in port.shape if isinstance(size, int))
        if len(fixed) < len(port.shape):
            raise ProfileError(kind, f"input {port.name!r} has sizes that vary: {_words(port.shape)}", _HOW)
        return InputSizes(fixed, fixed, fixed)
    sizes = _bounds_given(port, given)
    for shape in (sizes.least, sizes.usual, sizes.most):
        fits = len(shape) == len(port.shape) and all(
            not isinstance(declared, int) or declared == size for declared, size in zip(port.shape, shape, strict=True)
        )
        if not fits:
            raise InputError(f"argument {port.name}", f"shape {_words(port.shape)}", f"shape {_words(shape)}")
    return sizes


_HOW = "give it as trtcache.Input(min_shape=..., opt_shape=..., max_shape=...) in args, or by --shape"


def is_input(given: object) -> TypeGuard[Input]:
    """Say whether an argument is an ``Input``, without importing ``torch.export`` for it: 0.2 s of a hit."""
    return type(given).__module__ == "trtcache.lowering.input_spec"


def _bounds_given(port: Port, given: Any) -> InputSizes:
    """Return the sizes that an argument stands for."""
    if isinstance(given, InputSizes):
        return given
    if is_input(given):
        dtype, sizes = dtype_name(given.dtype), InputSizes(*given.bounds())
    elif hasattr(given, "shape") and hasattr(given, "dtype"):
        shape = tuple(int(size) for size in given.shape)
        dtype, sizes = str(given.dtype).removeprefix("torch."), InputSizes(shape, shape, shape)
    else:
        raise InputError(f"argument {port.name}", "a tensor or a trtcache.Input", f"a {type(given).__name__}")
    if dtype != port.dtype:
        raise InputError(f"argument {port.name}", port.dtype, dtype)
    return sizes


def _words(shape: Sequence[object]) -> str:
    return f"({', '.join('?' if size is None else str(size) for size in shape)})"


def _check_shared(inputs: Sequence[Port], sizes: Sequence[InputSizes]) -> None:
    """Refuse different sizes of one name: the model says that they are equal in every call."""
    known: dict[str, tuple[tuple[int, int, int], str]] = {}
    for port, one in zip(inputs, sizes, strict=True):
        for size, *bounds in zip(port.shape, one.least, one.usual, one.most, strict=True):
            if isinstance(size, str):
                first, name = known.setdefault(size, ((bounds[0], bounds[1], bounds[2]), port.name))
                if first != tuple(bounds):
                    expected = f"sizes {first} for {size!r}, as in input {name}"
                    raise InputError(f"argument {port.name}", expected, str(tuple(bounds)))


@dataclass(frozen=True, slots=True)
class OnnxInterface:
    """A model's inputs and outputs with the sizes that a plan is made for.

    Attributes:
        inputs: the model's.
        outputs: the model's.
        sizes: of each input.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    sizes: tuple[InputSizes, ...]

    @property
    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of inputs and outputs."""
        return tuple(port.name for port in self.inputs), tuple(port.name for port in self.outputs)

    def interface(self, slots: Sequence[Slot]) -> Interface:
        """Return the border as other programs have it; sizes of one name are one symbol."""
        numbers: dict[object, int] = {}
        ranges: list[tuple[int | None, int | None]] = []
        symbols: dict[str, Json] = {}
        inputs = []
        for leaf, (port, sizes) in enumerate(zip(self.inputs, self.sizes, strict=True)):
            shape: list[Json] = []
            for place, (size, least, most) in enumerate(zip(port.shape, sizes.least, sizes.most, strict=True)):
                if least == most:
                    shape.append(least)
                    written: Json = least
                else:
                    number = numbers.setdefault(size or (leaf, place), len(numbers))
                    ranges += [(least, most)] if number == len(ranges) else []
                    written = {"sym": number}
                    shape.append(written)
                if isinstance(size, str):
                    symbols[size] = written
            inputs.append(TensorInput(leaf, port.dtype, tuple(shape), _strides(shape), "cuda"))
        return Interface(
            inputs=tuple(inputs),
            values=(),
            results=(Result("result"),) * len(self.outputs),
            slots=tuple(slots),
            weights=tuple(_whole(slot) for slot in slots),
            constants=(),
            ranges=tuple(ranges),
            outputs=self._results(symbols),
        )

    def ranges(self) -> tuple[Range, ...]:
        """Return the range of each input of which the file leaves a size open."""
        from trtcache.backends.tensorrt.profiles import Range  # torch.export, which a hit does not need

        return tuple(
            Range(port.name, one.least, one.usual, one.most)
            for port, one in zip(self.inputs, self.sizes, strict=True)
            if not all(isinstance(size, int) for size in port.shape)
        )

    def _results(self, symbols: Mapping[str, Json]) -> tuple[TensorOutput, ...]:
        """Return what is known of the outputs; nothing where the file leaves a size open that no input has."""
        found = []
        for port in self.outputs:
            shape = [symbols.get(size) if isinstance(size, str) else size for size in port.shape]
            if not port.ranked or None in shape:
                return ()
            found.append(TensorOutput(port.dtype, tuple(shape), "cuda"))
        return tuple(found)


def _strides(shape: Sequence[Json]) -> tuple[Json, ...]:
    """Return the strides of a contiguous tensor."""
    strides: list[Json] = []
    symbols: list[Json] = []
    number = 1
    for size in reversed(shape):
        factors: list[Json] = [*([number] if number != 1 or not symbols else []), *symbols]
        strides.append(factors[0] if len(factors) == 1 else ["Mul", *sorted(factors, key=repr)])
        if isinstance(size, int):
            number *= max(size, 1)
        else:
            symbols.append(size)
    return tuple(reversed(strides))


def _whole(slot: Slot) -> EngineWeight:
    """Return the engine weight that a slot is."""
    return EngineWeight(slot.index, WeightRef(slot.index), slot.dtype, slot.shape, slot.stride, slot.device, (slot,))
