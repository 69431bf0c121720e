"""Engines that run packages on host arrays, without Python's torch.

A package may take weights in a packed layout (``packing``). Here it gets them unpacked, which is slower and changes no
result.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trtcache.backends.aot_inductor.container import Container, PackageLibrary, ProcessContainer
from trtcache.backends.aot_inductor.libtorch import libtorch
from trtcache.backends.aot_inductor.loader import refuse_weights
from trtcache.backends.aot_inductor.marks import is_transposed
from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import hash_bytes
from trtcache.errors import IncompatibleEngineError, RunError
from trtcache.weights.arrays import Spans, follow, tensor_of
from trtcache.weights.slots import layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trtcache.backends.aot_inductor.loader import Assumptions
    from trtcache.weights.arrays import HostArray

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
            sharing = [one for one in inputs if _is_within(output.pointer, one.pointer, one.extent_bytes)]
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


def _is_within(pointer: int, begin: int, size_bytes: int) -> bool:
    return begin <= pointer < begin + max(1, size_bytes)
