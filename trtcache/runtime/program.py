"""Programs without torch: a call is checked, run by an engine, and answered in the library of its inputs.

``CompiledModule`` is the same for tensors of torch. A program takes anything that exports its memory
(``trtcache.weights.arrays``), and needs neither ``import torch`` nor the model.
"""

from __future__ import annotations

import copy
import os
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from trtcache.config.frozen import frozen_dataclass
from trtcache.config.threads import fork_safe_lock
from trtcache.errors import InputError, RunError, SettingsError, did_you_mean
from trtcache.runtime.argument_order import (
    ArgumentOrder,
    Node,
    difference,
    exact_node,
    flatten,
    gather,
    leaf_steps,
    steps_text,
    unflatten,
)
from trtcache.runtime.checks import (
    CallCheck,
    bind,
    bind_sizes,
    check_outputs,
    describe_guards,
    evaluate_size,
)
from trtcache.runtime.report import RefitReport, Report
from trtcache.weights.arrays import (
    HostArray,
    UnreadableArrayError,
    array_of,
    can_overlap_itself,
    contiguous,
    dense_strides,
    pointer_of,
)

if TYPE_CHECKING:
    import inspect

    from trtcache.backends.host import HostEngine, HostWeights, LibTorch
    from trtcache.lowering.interface import Interface, TensorInput
    from trtcache.weights.slots import EngineWeight

OUTPUTS: Final = ("numpy", "torch", "dlpack")

_FORMATS = {"bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I"}
_FORMATS |= {"int64": "q", "uint64": "Q", "float16": "e", "float32": "f", "float64": "d"}
_NOTHING = bytearray(64)


class PlainSignature(ArgumentOrder):
    """The call signature of a program: from arguments to leaves, and from results to its output."""

    def __init__(self, arguments: Node, output: Node, signature: inspect.Signature | None) -> None:
        """Store how arguments and output are nested."""
        positional, named = arguments.children
        super().__init__(len(positional.children), named.context, signature)
        self._arguments, self._output = exact_node(arguments), output
        self._flat = all(child.is_leaf() for child in (*positional.children, *named.children))
        self._steps = leaf_steps(arguments)

    def flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        """Return the leaves of a call's arguments.

        Raises:
            InputError: arguments are missing, unknown, or of another structure than when compiling.
        """
        args, kwargs = self.order(args, kwargs)
        if self._flat:
            return (*args, *[kwargs[name] for name in self.names])
        given = (args, {name: kwargs[name] for name in self.names})
        leaves: list[Any] = []
        if not gather(self._arguments, given, leaves):
            path, expected, found = difference(self._arguments, flatten(given)[1])
            raise InputError(self._name(path), expected, found)
        return leaves

    def unflatten(self, results: Sequence[Any]) -> Any:
        """Return an output with the model's own structure."""
        return unflatten(iter(results), self._output)

    def label(self, leaf: int) -> str:
        """Return the caller's name for a leaf: ``argument input_ids`` or ``argument states[0]``."""
        _, first, *rest = self._steps[leaf]
        return f"{self._name((0, first))}{steps_text(rest)}"


class ArrayCheck(CallCheck):
    """Convert the leaves of a call's arguments to the engine's input arrays."""

    def __init__(self, interface: Interface, label: Callable[[int], str], kernels: LibTorch) -> None:
        """Prepare the checks of a program on the CPU."""
        super().__init__(interface, label)
        self._kernels = kernels

    def __call__(self, leaves: Sequence[Any]) -> tuple[list[HostArray], dict[int, HostArray]]:
        """Return the engine's inputs, and the caller's arrays by leaf.

        Raises:
            GuardError: the program was not exported for these sizes.
            InputError: a leaf does not match what the program was compiled for.
        """
        self.check_values(leaves)
        self.check_numbers(leaves)
        given: dict[int, Any] = {}
        sizes: dict[int, int] = {}
        for spec in self._inputs:
            given[spec.leaf] = self._array(spec, leaves[spec.leaf])
            bind(spec, given[spec.leaf], sizes)
        for spec in self._inputs:
            self.compare(spec, given[spec.leaf], sizes)
        self.check_ranges(given, sizes)  # type: ignore[arg-type]  # it only looks leaves up
        self.check_guards(sizes)
        if self.mutated:
            self._check_overlap(given)
        return [self._lay_out(spec, given[spec.leaf], sizes) for spec in self._inputs], given

    def _array(self, spec: TensorInput, value: Any) -> HostArray:
        if spec.number:
            # The engine reads only the sizes of this tensor, which has no elements.
            shape = (int(value), 0)
            return HostArray("float32", shape, contiguous(shape), *pointer_of(memoryview(_NOTHING)))
        try:
            array = array_of(value)
        except UnreadableArrayError as error:
            raise self.wrong(spec.leaf, error.expected, error.found, error.hint) from error
        if array is None:
            raise self.no_tensor(spec, value)
        if array.device != "cpu":
            raise self.wrong(spec.leaf, "a tensor on cpu", f"one on {array.device}", "use .to('cpu')")
        if array.dtype != spec.dtype:
            casts = {"numpy": f"use .astype({spec.dtype!r})", "torch": f"use .to(torch.{spec.dtype})"}
            raise self.wrong(
                spec.leaf, spec.dtype, array.dtype, casts.get(array.library, f"convert it to {spec.dtype}")
            )
        if len(array.shape) != len(spec.shape):
            raise self.wrong_rank(spec, array.shape)
        return array

    def _lay_out(self, spec: TensorInput, array: HostArray, sizes: dict[int, int]) -> HostArray:
        """Return an input with the strides that the engine was compiled for."""
        from trtcache.lowering.interface import evaluate

        found = [evaluate(step, sizes) for step in spec.stride]
        stride = tuple(step for step in found if step is not None)
        if len(stride) != len(found):
            stride = contiguous(array.shape)
        if array.strides == stride:
            return array
        # The strides of dimensions with one element, and those of an empty array, say nothing about its memory.
        differ = (a != b and size > 1 for a, b, size in zip(array.strides, stride, array.shape, strict=True))
        if not array.count or not any(differ):
            return replace(array, strides=stride, owner=array)
        self.check_layout(spec, array.strides, stride)
        return self._kernels.copy(array, stride)

    def _check_overlap(self, given: Mapping[int, HostArray]) -> None:
        """Reject modified inputs that are read-only or overlap others: the engine reads before it writes."""
        for leaf in sorted(self.mutated):
            array = given[leaf]
            if array.count and can_overlap_itself(array.shape, array.strides):
                raise self.wrong(leaf, "a tensor that a call can change", "one whose elements share memory")
            if not array.writable:
                raise self.wrong(leaf, "a tensor that a call can change", "one that is read-only, or a copy")
            for other, one in given.items():
                if other != leaf and array.shares_items(one):
                    expected = f"memory of its own: a call changes {self._label(leaf)}"
                    raise self.wrong(other, expected, "a tensor that shares it")


class Program:
    """A compiled program that runs without torch: called like the model, with outputs of its structure.

    Attributes:
        report: what ``load`` or ``compile`` did.
        load_s: seconds that loading the engine took.
    """

    def __init__(
        self,
        interface: Interface,
        call: PlainSignature,
        weights: ProgramWeights,
        *,
        load_s: float = 0.0,
        outputs: str | None = None,
    ) -> None:
        """Wrap an engine in a call signature.

        Args:
            interface: the engine's inputs, results and weights.
            call: how arguments and outputs are flattened.
            weights: the live engine, which takes other weights.
            load_s: seconds that loading the engine took.
            outputs: the library of outputs; that of the inputs by default.

        Raises:
            SettingsError: ``outputs`` is unknown.
        """
        self.report: Report
        self.load_s = load_s
        self._interface, self._call, self._weights = interface, call, weights
        self._check = ArrayCheck(interface, call.label, weights.kernels)
        self._outputs = parse_outputs(outputs)
        self._results = interface.results
        self._layouts = tuple(one.layout for one in self._results if one.is_output)
        self._has_sizes = any(result.kind == "size" for result in self._results)
        self._is_checked = False

    @property
    def interface(self) -> Interface:
        """The engine's inputs, results and weights."""
        return self._interface

    @property
    def guards(self) -> tuple[str, ...]:
        """The program's guards, which are conditions on the sizes of its arguments."""
        return describe_guards(self._interface, self._call.label)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the model would return.

        Raises:
            GuardError: the program was exported for other sizes; nothing ran.
            InputError: an argument does not match what the program was compiled for; nothing ran.
            RunError: the engine failed, or an output has a dtype that the library does not have.
        """
        inputs, given = self._check_call(args, kwargs)
        sizes = self._evaluate_sizes(given)
        outputs = self._weights.run(inputs)
        if not self._is_checked:
            check_outputs((one.dtype for one in outputs), self._interface.outputs)
            self._is_checked = True
        for place, order in enumerate(self._layouts):
            if order is not None:
                outputs[place] = self._in_order(outputs[place], order)
        library = self._outputs or library_of(given)
        return self._call.unflatten(self._finish_results(outputs, given, sizes, library))

    def takes(self, *args: Any, **kwargs: Any) -> bool:
        """Return whether a call with these arguments would run, without running it."""
        try:
            inputs, _ = self._check_call(args, kwargs)
            self._weights.check_sizes(inputs)
        except InputError:
            return False
        return True

    def _check_call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[HostArray], dict[int, HostArray]]:
        """Return the engine's inputs, and the caller's arrays by leaf.

        Raises:
            InputError: they are not what the program was compiled for, or one that calls change shares memory with a
                weight: the engine reads before it writes.
        """
        inputs, given = self._check(self._call.flatten(args, kwargs))
        for leaf in self._check.mutated:
            if self._weights.find_shared(given[leaf]) is not None:
                raise self._check.in_weight(leaf)
        return inputs, given

    def _in_order(self, output: HostArray, order: tuple[int, ...]) -> HostArray:
        """Return an output whose dimensions have this order in memory."""
        shape, strides = (tuple(one[place] for place in order) for one in (output.shape, output.strides))
        if HostArray(output.dtype, shape, strides, 0, None).is_contiguous:
            return output
        return self._weights.kernels.copy(output, dense_strides(output.shape, order))

    def _evaluate_sizes(self, given: Mapping[int, HostArray]) -> list[Any]:
        """Return the results that are numbers computed from the sizes of inputs."""
        if not self._has_sizes:
            return []
        sizes = bind_sizes(self._interface.inputs, [given[one.leaf] for one in self._interface.inputs])
        return [evaluate_size(result.value, sizes) for result in self._results if result.kind == "size"]

    def _finish_results(
        self, outputs: Sequence[HostArray], given: Mapping[int, HostArray], sizes: Sequence[Any], library: str
    ) -> list[Any]:
        """Write new contents back to the caller's inputs, and insert the model's other results."""
        results: list[Any] = []
        remaining, remaining_sizes = iter(outputs), iter(sizes)
        for result in self._results:
            if result.kind == "value":
                results.append(result.value)
            elif result.kind == "size":
                results.append(next(remaining_sizes))
            elif result.kind == "number":
                results.append(item_of(next(remaining)))
            elif result.kind == "input":
                self._weights.kernels.copy_into(given[result.target or 0], next(remaining))
            else:
                results.append(convert(next(remaining), library))
        return results

    def refit(self, weights: Mapping[str, Any] | str | os.PathLike[str]) -> RefitReport:
        """Replace the engine's weights without a build. Each call sees only the old weights or only the new.

        Args:
            weights: arrays or tensors by the model's names; the path of a ``.safetensors`` file, of an index of
                several, or of a ``.pt2`` file; or any other file that ``CompiledModule.refit`` takes, for which torch
                is imported.

        Raises:
            RefitError: a weight is missing, unknown, or of another shape or dtype, or a constant of the program
                differs; all are named, and the old weights are still in place.
            WeightsFileError: the file cannot be read.
            TorchForbiddenError: only torch can read it, and ``TRTCACHE_NO_TORCH=1``.
        """
        start = time.perf_counter()
        changed, own = self._weights.refit(weights)
        needed = self._interface.weights
        return RefitReport(
            weights=len(needed),
            changed=tuple(weight.label for weight in changed),
            shared=len(needed) - own,
            refit_s=time.perf_counter() - start,
        )

    def __copy__(self) -> Program:
        """Return another program of the same engine, which is refitted on its own."""
        other = type(self).__new__(type(self))
        vars(other).update(vars(self), _weights=copy.copy(self._weights))
        return other

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be pickled, and to be copied with its weights.

        Raises:
            PicklingError: always.
        """
        import pickle  # an extension module, which loading a program does without

        raise pickle.PicklingError(
            "a program is neither pickled nor copied with its weights: load its file again, in the other process or "
            "for weights of its own"
        )


@frozen_dataclass
class Renewed:
    """An engine with other weights.

    Attributes:
        engine: the engine.
        weights: its weights.
        changed: the weights that changed.
        kept: the arrays of state that calls modify and that keeps its value, with those of the last engine.
    """

    engine: HostEngine
    weights: HostWeights
    changed: list[EngineWeight]
    kept: list[tuple[HostArray, HostArray]]


class ProgramWeights:
    """A live engine and the way to replace its weights.

    Attributes:
        kernels: copies of arrays between layouts.
    """

    def __init__(
        self,
        engine: HostEngine,
        weights: HostWeights,
        kernels: LibTorch,
        renew: Callable[[HostEngine, HostWeights, Any], Renewed],
        *,
        is_mutated: bool,
    ) -> None:
        """Store an engine.

        Args:
            engine: the engine with its weights.
            weights: those weights.
            kernels: copies of arrays.
            renew: returns an engine with other weights, from this one, its weights and what ``refit`` was given.
            is_mutated: whether calls change weights: then they run one after the other.
        """
        self.kernels = kernels
        self._engine, self._weights, self._renew = engine, weights, renew
        self._refitting = fork_safe_lock()
        self._alone = fork_safe_lock() if is_mutated else None

    def __copy__(self) -> ProgramWeights:
        """Return the same engine, which a refit replaces in one of both only."""
        with self._refitting:
            other = ProgramWeights(self._engine, self._weights, self.kernels, self._renew, is_mutated=False)
            other._alone = self._alone
            return other

    def run(self, inputs: Sequence[HostArray]) -> list[HostArray]:
        """Run the engine."""
        if self._alone is None:
            return self._engine.run(inputs)
        with self._alone:
            return self._engine.run(inputs)

    def find_shared(self, array: HostArray) -> str | None:
        """Return the engine's name of a weight or a constant that shares memory with an array."""
        return self._engine.find_shared(array)

    def check_sizes(self, inputs: Sequence[HostArray]) -> None:
        """Check the sizes of inputs, if the engine was compiled for some only, as a package can be.

        Raises:
            GuardError: it was compiled for others.
        """
        self._engine.check_sizes(inputs)

    def refit(self, weights: Any) -> tuple[list[EngineWeight], int]:
        """Replace the engine; running calls end on the old one."""
        with self._refitting:
            renewed = self._renew(self._engine, self._weights, weights)
            with self._alone or nullcontext():  # a call before may have changed what is kept
                for target, source in renewed.kept:
                    self.kernels.copy_into(target, source)
                self._engine, self._weights = renewed.engine, renewed.weights
            return renewed.changed, len(renewed.weights.own)


def parse_outputs(outputs: str | None) -> str | None:
    """Validate the library of outputs.

    Raises:
        SettingsError: it is unknown.
    """
    if outputs is not None and outputs not in OUTPUTS:
        raise SettingsError("outputs", f"{outputs!r}: {did_you_mean(str(outputs), list(OUTPUTS))}")
    return outputs


def library_of(given: Mapping[int, HostArray]) -> str:
    """Return the library of a call's outputs: torch if an input is a tensor of it, else NumPy if one is an array.

    DLPack if all inputs are other objects with ``__dlpack__``; NumPy for buffers, and without inputs.
    """
    found = {array.library for array in given.values()}
    if "torch" in found or "numpy" in found:
        return "torch" if "torch" in found else "numpy"
    return "dlpack" if found - {"buffer"} else "numpy"


def convert(array: HostArray, library: str) -> Any:
    """Return an output in a library, without a copy.

    Raises:
        RunError: the library has no such dtype, or is not installed.
    """
    if library == "dlpack":
        return array
    try:
        if library == "torch":
            return _to_torch(array)
        return array.numpy()
    except (ImportError, BufferError) as error:
        raise RunError("aot_inductor", f"an output cannot be given to {library}: {error}") from error


def _to_torch(array: HostArray) -> Any:
    from trtcache.config.environment import require_torch_allowed

    require_torch_allowed("outputs='torch'", "outputs are tensors of torch; 'numpy' and 'dlpack' do without it")
    import torch

    dtype = getattr(torch, array.dtype)
    if not array.count:
        return torch.empty_strided(array.shape, array.strides, dtype=dtype)
    has_integers = array.item_bytes <= 8  # not for complex128, which NumPy has
    values = array.as_integers() if has_integers else array.numpy()
    if not array.writable:  # an output that shares the memory of a read-only input: torch has no such tensors
        values = values.copy(order="K")
    return torch.from_numpy(values).view(dtype)


def item_of(array: HostArray) -> Any:
    """Return the only element of an array as a number of Python.

    Raises:
        RunError: its dtype has none.
    """
    from trtcache.weights.arrays import bytes_of

    code = _FORMATS.get(array.dtype)
    if array.dtype == "bfloat16":
        return struct.unpack("<f", b"\0\0" + bytes(bytes_of(array)))[0]
    if code is None:
        raise RunError("aot_inductor", f"a result of {array.dtype} is no number of Python")
    return struct.unpack(f"={code}", bytes(bytes_of(array)))[0]
