"""Engines that run packages on host arrays, and their weights, without Python's torch.

``trtcache.weights.slots`` computes the weights of tensors, with the same errors. Results are bit-identical: copies and
arithmetic are torch's own kernels, called through ``LibTorch``.

A package may take weights in a packed layout (``packing``). Here it gets them unpacked, which is slower and changes no
result.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trtcache.backends.aot_inductor.container import Container, PackageLibrary, ProcessContainer
from trtcache.backends.aot_inductor.libtorch import LibTorch, libtorch
from trtcache.backends.aot_inductor.loader import Assumptions, refuse_weights
from trtcache.backends.aot_inductor.marks import is_transposed
from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import hash_bytes
from trtcache.errors import IncompatibleEngineError, RefitError, RunError
from trtcache.weights.arrays import HostArray, Spans, contiguous, follow, same_bytes, tensor_of
from trtcache.weights.recipes import Operation, Recipe, WeightRef
from trtcache.weights.slots import EngineWeight, Slot, layout, match_slots, select_slots

_FLOATING = frozenset({"float32", "float64"})


class HostWeights(dict[str, HostArray]):
    """Engine weights by name; ``own`` are the names of those that share no memory with the given ones."""

    def __init__(self, arrays: Mapping[str, HostArray], own: Iterable[str] = ()) -> None:
        """Initialize from arrays by name."""
        super().__init__(arrays)
        self.own = frozenset(own)


@frozen_dataclass
class CheckedArrays:
    """Checked model weights.

    Attributes:
        given: the array of each slot, by the slot's index.
        kept: names of transient engine weights that were not given and stay unchanged.
    """

    given: Mapping[str | int, HostArray]
    kept: frozenset[str]


def check_arrays(
    weights: Sequence[EngineWeight],
    state: Mapping[str, HostArray],
    *,
    known: frozenset[str],
    library: LibTorch,
    keep: bool = False,
) -> CheckedArrays:
    """Check a model's weights against those of an engine, without copying.

    Args:
        weights: the engine's weights.
        state: the model's weights by name.
        known: all names of the compiled model.
        library: torch's C functions.
        keep: whether transient slots that ``state`` does not name keep their values.

    Raises:
        RefitError: a slot has no array, or one of another shape or dtype, or tied names differ, or ``state`` has names
            that the compiled model does not have. It lists them all; nothing has been changed.
    """
    kept, needed = select_slots(weights, state, keep=keep)
    given = match_slots(
        needed, state, known=known, why_mismatch=_mismatch, are_alike=lambda one, first: _equal(library, one, first)
    )
    return CheckedArrays(given, kept)


def _mismatch(slot: Slot, array: HostArray) -> str | None:
    if array.device != "cpu":
        return f"on {array.device}, the engine expects it on cpu"
    if array.shape != slot.shape:
        return f"shape {array.shape}, the engine has {slot.shape}"
    if array.dtype != slot.dtype:
        return f"dtype {array.dtype}, the engine has {slot.dtype}"
    return None


def _equal(library: LibTorch, array: HostArray, first: HostArray) -> bool:
    if (array.pointer, array.strides) == (first.pointer, first.strides):
        return True
    plain = contiguous(array.shape)
    return same_bytes(*(one if one.strides == plain else library.copy(one, plain) for one in (array, first)))


def make_weights(
    weights: Sequence[EngineWeight],
    checked: CheckedArrays,
    library: LibTorch,
    current: HostWeights | None = None,
) -> tuple[HostWeights, list[EngineWeight]]:
    """Return engine weights, which share memory with the given ones where the layout allows, and a list of the changed.

    Raises:
        IncompatibleEngineError: a recipe can only be computed with torch.
    """
    made: dict[str, HostArray] = {}
    own: set[str] = set()
    changed: list[EngineWeight] = []
    for weight in weights:
        name, before = weight.name, None if current is None else follow(current[weight.name])
        if name in checked.kept and current is not None:
            if before is None:
                raise RefitError(mismatched=(f"{weight.label} (a tensor whose memory was freed)",))
            made[name] = library.copy(before, before.strides)  # the old engine keeps modifying its own
            own.add(name)
            continue
        array = _make_weight(weight, checked.given, library)
        is_own = not any(array.overlaps(checked.given[slot.index]) for slot in weight.slots)
        if current is not None and (before is None or not same_bytes(array, before)):
            changed.append(weight)
        elif current is not None and before is not None and is_own and name in current.own and not weight.is_mutated:
            array = before
        made[name] = array
        if is_own:
            own.add(name)
    return HostWeights(made, own), changed


def _make_weight(weight: EngineWeight, given: Mapping[str | int, HostArray], library: LibTorch) -> HostArray:
    array = _evaluate(weight.recipe, given, library)
    if (array.shape, array.dtype) != (weight.shape, weight.dtype):
        raise IncompatibleEngineError("weight map", f"its recipe makes {array.dtype} {array.shape} of {weight.label}")
    if array.strides != weight.stride or weight.is_mutated:
        return library.copy(array, weight.stride)
    return array


def _evaluate(recipe: Recipe, given: Mapping[str | int, HostArray], library: LibTorch) -> HostArray:
    if isinstance(recipe, WeightRef):
        return given[int(recipe.weight)]
    if recipe.operator == "cast":
        source, dtype = _operand(recipe, given, library), str(recipe.arguments[1])
        return source if source.dtype == dtype else library.copy(source, layout(source.shape, source.strides), dtype)
    if recipe.operator in {"permute", "reshape"}:
        return _rearrange(recipe, _operand(recipe, given, library), library)
    values: list[HostArray | float] = []
    for one in recipe.arguments:
        if isinstance(one, (WeightRef, Operation)):
            values.append(_evaluate(one, given, library))
        elif type(one) in {int, float}:
            values.append(float(str(one)) if isinstance(one, float) else int(str(one)))
        else:
            raise _refusal(recipe)
    _require_floats(recipe, values)
    return library.apply(recipe.operator, values)


def _operand(recipe: Operation, given: Mapping[str | int, HostArray], library: LibTorch) -> HostArray:
    source = recipe.arguments[0]
    if not isinstance(source, (WeightRef, Operation)):
        raise _refusal(recipe)
    return _evaluate(source, given, library)


def _rearrange(recipe: Operation, source: HostArray, library: LibTorch) -> HostArray:
    sizes = recipe.arguments[1]
    if not isinstance(sizes, tuple):
        raise _refusal(recipe)
    if recipe.operator == "permute":
        order = [place % len(source.shape) for place in sizes]
        shape, strides = (tuple(one[place] for place in order) for one in (source.shape, source.strides))
        return HostArray(source.dtype, shape, strides, source.pointer, source)
    shape = _sizes(sizes, source.count)
    plain = source if source.is_contiguous else library.copy(source, contiguous(source.shape))
    return HostArray(source.dtype, shape, contiguous(shape), plain.pointer, plain)


def _sizes(sizes: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return the sizes of a reshape, in which one may be -1."""
    known = 1
    for size in sizes:
        known *= size if size != -1 else 1
    return tuple(count // known if size == -1 and known else size for size in sizes)


def _require_floats(recipe: Operation, values: Sequence[HostArray | float]) -> None:
    """Check that torch chooses the same dtype for numbers as for tensors without dimensions, as which they are passed.

    Raises:
        IncompatibleEngineError: it might not.
    """
    arrays = [one for one in values if isinstance(one, HostArray)]
    dtypes = {one.dtype for one in arrays}
    has_numbers = len(arrays) < len(values)
    if len(dtypes) != 1 or not dtypes <= _FLOATING or (has_numbers and any(not one.shape for one in arrays)):
        raise _refusal(recipe)


def _refusal(recipe: Operation) -> IncompatibleEngineError:
    return IncompatibleEngineError("weight map", f"the recipe {recipe.operator} is computed by torch only")


_loading = threading.Lock()
_libraries: dict[bytes, PackageLibrary] = {}


def library_of(package: bytes | memoryview) -> PackageLibrary:
    """Return the library of a package. It is never unloaded, so a package that is loaded again shares it.

    Raises:
        IncompatibleEngineError: only torch's loader can run this package.
    """
    libtorch()  # the package's library needs its symbols
    digest = hash_bytes(package)
    with _loading:
        if digest not in _libraries:
            _libraries[digest] = PackageLibrary(package)
        return _libraries[digest]


@frozen_dataclass
class _Loaded:
    """What reads constants and weights. It is replaced as a whole, since other threads may be in a call.

    Attributes:
        container: the container.
        shared: the constants and weights, by the package's names.
        memory: the memory of these.
        tensors: those that are tensors of torch, with the addresses that they had.
    """

    container: ProcessContainer
    shared: Mapping[str, HostArray]
    memory: Spans
    tensors: Sequence[tuple[Any, int]]


class HostEngine:
    """A loaded package with all its constants set, which accepts concurrent calls."""

    def __init__(
        self,
        library: PackageLibrary,
        constants: Mapping[str, HostArray],
        weights: Mapping[str, HostArray],
        *,
        calls: int,
        assumptions: Assumptions | None,
    ) -> None:
        """Share constants and weights with a new container.

        Args:
            library: the package's library.
            constants: the constants by the engine's names.
            weights: the weights by the engine's names.
            calls: the number of concurrent calls; others wait.
            assumptions: Inductor's assumptions about sizes; None if there are none.

        Raises:
            IncompatibleEngineError: the package needs other constants.
            RunError: the package cannot be loaded.
        """
        self._library, self._constants, self._calls, self._assumptions = library, constants, calls, assumptions
        shared = {**constants, **weights}
        for packed, (kind, name, *arguments) in library.packing.items():
            if name not in shared:
                raise IncompatibleEngineError("package", f"it needs a weight that is missing: {name}")
            shared[packed] = _transpose(shared[name]) if is_transposed(kind, arguments) else shared[name]
        self._loaded = self._share(shared)

    def _share(self, shared: Mapping[str, HostArray]) -> _Loaded:
        """Create a container that reads constants and weights."""
        library, calls = self._library, self._calls
        container = ProcessContainer(lambda: Container(library, shared, calls, libtorch()))
        memory = Spans((one.pointer, one.pointer + max(1, one.extent_bytes)) for one in shared.values())
        tensors = tuple(found for one in shared.values() if (found := tensor_of(one)) is not None)
        return _Loaded(container, shared, memory, tensors)

    def _follow(self) -> _Loaded:
        """Return what reads weights where the memory of their tensors is now.

        Raises:
            RunError: the memory of one was freed.
        """
        loaded = self._loaded
        if all(tensor.data_ptr() == place for tensor, place in loaded.tensors):
            return loaded
        shared: dict[str, HostArray] = {}
        for name, one in loaded.shared.items():
            if (now := follow(one)) is None:
                raise RunError("aot_inductor", "the memory of a tensor that was given to refit was freed")
            shared[name] = now
        self._loaded = self._share(shared)
        return self._loaded

    def refit(self, weights: Mapping[str, HostArray]) -> HostEngine:
        """Return an engine of the same package with other weights; running calls on this one are unaffected.

        Raises:
            FixedWeightsError: the package has its weights in it.
        """
        if self._library.frozen:
            refuse_weights()
        return HostEngine(self._library, self._constants, weights, calls=self._calls, assumptions=self._assumptions)

    def check_sizes(self, inputs: Sequence[HostArray]) -> None:
        """Check the sizes of inputs, as ``run`` does.

        Raises:
            GuardError: Inductor assumed others.
        """
        if self._assumptions is not None:
            self._assumptions.check(inputs)

    def run(self, inputs: Sequence[HostArray]) -> list[HostArray]:
        """Return the engine's outputs, which keep the memory alive that they share with inputs.

        An output that is the memory of a weight is copied: a caller may write to it, and the weight may be read-only.

        Raises:
            GuardError: the package was not compiled for these sizes.
            RunError: it failed, or the memory of a weight was freed.
        """
        self.check_sizes(inputs)
        loaded = self._follow()
        outputs: list[HostArray] = loaded.container().run(inputs)
        for output in outputs:
            # The tensor of an input does not own its memory, nor does an output that is a view of it.
            sharing = [one for one in inputs if 0 <= output.pointer - one.pointer < max(1, one.extent_bytes)]
            output.writable, output.owner.kept = all(one.writable for one in sharing), tuple(sharing)
        return [self._copy(one) if loaded.memory.meet(one.pointer, one.pointer + 1) else one for one in outputs]

    def find_shared(self, array: HostArray) -> str | None:
        """Return the name of a weight or a constant that shares memory with an array; None if there is none.

        Raises:
            RunError: the memory of a weight was freed.
        """
        loaded = self._follow()
        if not loaded.memory.meet(array.pointer, array.pointer + array.extent_bytes):
            return None
        return next((name for name, one in loaded.shared.items() if array.shares_items(one)), None)

    def _copy(self, output: HostArray) -> HostArray:
        return libtorch().copy(output, layout(output.shape, output.strides))


def _transpose(array: HostArray) -> HostArray:
    return replace(array, shape=array.shape[::-1], strides=array.strides[::-1], owner=array)
