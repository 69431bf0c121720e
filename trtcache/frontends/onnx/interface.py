"""The interface of an ONNX model: its inputs and outputs, and the sizes of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from trtcache.backends.onnx_operators import Range
from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import InputError, ProfileError
from trtcache.lowering.interface import Interface, Result, TensorInput, TensorOutput
from trtcache.weights.recipes import WeightRef
from trtcache.weights.slots import EngineWeight, Slot, dtype_name

if TYPE_CHECKING:
    from trtcache.digests import Json
    from trtcache.frontends.onnx.file import OnnxFile
    from trtcache.lowering.arguments import Input

Shape = tuple[int, ...]


DTYPES = ("float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool")
"""Dtypes of inputs and outputs. TensorRT's parser accepts float64 too, but silently converts it to float32."""


@frozen_dataclass
class Port:
    """An input or an output as a file declares it.

    Attributes:
        name: its name in the file and in the plan.
        dtype: the name of its dtype in torch, or in ONNX.
        shape: its sizes; a string names a dynamic size, None is an unknown one. The shape of an output may be empty,
            with ``ranked`` False, if the file does not declare it.
        declared: the sizes with ``{"sym": n}`` for dynamic and unknown ones, numbered over all inputs and outputs.
        ranked: whether the file declares the number of dimensions.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...]
    declared: tuple[Json, ...] = ()
    ranked: bool = True


@frozen_dataclass
class ShapeProfile:
    """The minimum, optimal and maximum sizes of an input."""

    minimum: Shape
    optimal: Shape
    maximum: Shape


def read_ports(file: OnnxFile) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    """Return a model's inputs, without initializers, and its outputs.

    Raises:
        OnnxFileError: one is not a tensor, has no rank, or has a dtype that engines do not support.
    """
    graph = file.model.graph
    numbers: dict[object, int] = {}
    initialized = {*file.initializers, *(one.values.name for one in graph.sparse_initializer)}
    given = [one for one in graph.input if one.name not in initialized]
    inputs = tuple(_port(file, one, f"input {one.name!r}", numbers) for one in given)
    outputs = tuple(_port(file, one, f"output {one.name!r}", numbers) for one in graph.output)
    for port in inputs:
        if not port.ranked:
            raise file.error(f"its input {port.name!r} has no number of dimensions; an engine needs one")
    return inputs, outputs


def _port(file: OnnxFile, value: Any, what: str, numbers: dict[object, int]) -> Port:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise file.error(f"its {what} is {'of no type' if kind is None else f'a {kind}'}; engines take tensors only")
    tensor = value.type.tensor_type
    dtype = file.type_of(tensor.elem_type, f"its {what}").name
    if dtype not in DTYPES:
        raise file.error(
            f"its {what} is {dtype}, and plans take and give {', '.join(DTYPES)}; add a Cast, or convert it"
        )
    shape = tuple(
        size.dim_value if size.HasField("dim_value") and size.dim_value >= 0 else (size.dim_param or None)
        for size in tensor.shape.dim
    )
    declared: tuple[Json, ...] = tuple(
        size if isinstance(size, int) else {"sym": numbers.setdefault(size or (value.name, place), len(numbers))}
        for place, size in enumerate(shape)
    )
    return Port(value.name, dtype, shape, declared, tensor.HasField("shape"))


def resolve_sizes(
    inputs: Sequence[Port], args: Sequence[Any], kwargs: Mapping[str, Any], kind: str
) -> tuple[ShapeProfile, ...]:
    """Return the sizes of each input: those that the file declares, and those of the arguments for dynamic ones.

    Args:
        inputs: the model's inputs.
        args: an ``Input``, ``ShapeProfile``, tensor or array for each input, in order; None for the declared sizes.
        kwargs: the same by name.
        kind: the backend's name, for messages.
    """
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
    found = tuple(_sizes(port, given.get(port.name), kind) for port in inputs)
    # Sizes of one name are equal in every call, as the model declares.
    known: dict[str, tuple[tuple[int, ...], str]] = {}
    for port, sizes in zip(inputs, found, strict=True):
        for size, *bounds in zip(port.shape, sizes.minimum, sizes.optimal, sizes.maximum, strict=True):
            if isinstance(size, str):
                first, name = known.setdefault(size, (tuple(bounds), port.name))
                if first != tuple(bounds):
                    expected = f"sizes {first} for {size!r}, as in input {name}"
                    raise InputError(f"argument {port.name}", expected, str(tuple(bounds)))
    return found


def _sizes(port: Port, given: Any, kind: str) -> ShapeProfile:
    """Return the sizes of one input, from its argument if that is not None."""
    if given is None:
        fixed = tuple(size for size in port.shape if isinstance(size, int))
        if len(fixed) < len(port.shape):
            raise ProfileError(kind, f"input {port.name!r} has sizes that vary: {_words(port.shape)}", _HOW)
        return ShapeProfile(fixed, fixed, fixed)
    dtype = port.dtype
    if isinstance(given, ShapeProfile):
        sizes = given
    elif is_input(given):
        dtype, sizes = dtype_name(given.dtype), ShapeProfile(*given.bounds())
    elif hasattr(given, "shape") and hasattr(given, "dtype"):
        shape = tuple(int(size) for size in given.shape)
        dtype, sizes = str(given.dtype).removeprefix("torch."), ShapeProfile(shape, shape, shape)
    else:
        raise InputError(f"argument {port.name}", "a tensor or a trtcache.Input", f"a {type(given).__name__}")
    if dtype != port.dtype:
        raise InputError(f"argument {port.name}", port.dtype, dtype)
    for shape in (sizes.minimum, sizes.optimal, sizes.maximum):
        fits = len(shape) == len(port.shape) and all(
            not isinstance(declared, int) or declared == size for declared, size in zip(port.shape, shape, strict=True)
        )
        if not fits:
            raise InputError(f"argument {port.name}", f"shape {_words(port.shape)}", f"shape {_words(shape)}")
    return sizes


_HOW = "pass trtcache.Input(min_shape=..., opt_shape=..., max_shape=...) in args, or --shape"


def is_input(given: object) -> TypeGuard[Input]:
    """Return whether an argument is an ``Input``, without importing torch's exporter, which takes 0.2 s."""
    return (type(given).__module__, type(given).__name__) == ("trtcache.lowering.arguments", "Input")


def _words(shape: Sequence[object]) -> str:
    return f"({', '.join('?' if size is None else str(size) for size in shape)})"


@frozen_dataclass
class OnnxInterface:
    """A model's inputs and outputs with the sizes that a plan is built for."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    sizes: tuple[ShapeProfile, ...]

    @property
    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of inputs and outputs."""
        return tuple(port.name for port in self.inputs), tuple(port.name for port in self.outputs)

    def interface(self, slots: Sequence[Slot], device: str) -> Interface:
        """Return the interface in the form that other programs have; sizes of one name are one symbol.

        Args:
            slots: the weights.
            device: the device type of inputs and outputs.
        """
        numbers: dict[object, int] = {}
        ranges: list[tuple[int | None, int | None]] = []
        symbols: dict[str, Json] = {}
        inputs = []
        for leaf, (port, sizes) in enumerate(zip(self.inputs, self.sizes, strict=True)):
            shape: list[Json] = []
            for place, (size, minimum, maximum) in enumerate(
                zip(port.shape, sizes.minimum, sizes.maximum, strict=True)
            ):
                if minimum == maximum:
                    shape.append(minimum)
                    written: Json = minimum
                else:
                    number = numbers.setdefault(size or (leaf, place), len(numbers))
                    ranges += [(minimum, maximum)] if number == len(ranges) else []
                    written = {"sym": number}
                    shape.append(written)
                if isinstance(size, str):
                    symbols[size] = written
            inputs.append(TensorInput(leaf, port.dtype, tuple(shape), _strides(shape), device))
        return Interface(
            inputs=tuple(inputs),
            values=(),
            results=(Result("result"),) * len(self.outputs),
            slots=tuple(slots),
            weights=tuple(
                EngineWeight(one.index, WeightRef(one.index), one.dtype, one.shape, one.stride, one.device, (one,))
                for one in slots
            ),
            constants=(),
            ranges=tuple(ranges),
            outputs=self._results(symbols, device),
        )

    def ranges(self) -> tuple[Range, ...]:
        """Return the range of each input that has a dynamic size in the file."""
        return tuple(
            Range(port.name, sizes.minimum, sizes.optimal, sizes.maximum)
            for port, sizes in zip(self.inputs, self.sizes, strict=True)
            if not all(isinstance(size, int) for size in port.shape)
        )

    def _results(self, symbols: Mapping[str, Json], device: str) -> tuple[TensorOutput, ...]:
        """Return the outputs; empty if one has a dynamic size that is not an input's, or no rank."""
        found = []
        for port in self.outputs:
            shape = [symbols.get(size) if isinstance(size, str) else size for size in port.shape]
            if not port.ranked or None in shape:
                return ()
            found.append(TensorOutput(port.dtype, tuple(shape), device))
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
