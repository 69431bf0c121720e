"""A package's container, called through its C functions, so that calls run in parallel.

torch's loader holds the GIL while a package runs: two threads were as fast as one (0.95x on 2 cores).
``AOTInductorModelContainerRun`` (torch/csrc/inductor/aoti_runtime/interface.h) called by ctypes releases it: 1.9x, with
bitwise equal results. A container has one set of weights and, for each concurrent call, a model that references them.
"""

from __future__ import annotations

import ctypes
import io
import itertools
import json
import os
import threading
import weakref
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from trtcache.backends.aot_inductor.libtorch import libtorch
from trtcache.backends.aot_inductor.loader import Aliases, scratch
from trtcache.backends.aot_inductor.marks import FROZEN_MARK, read_mark
from trtcache.errors import IncompatibleEngineError, RunError
from trtcache.weights.arrays import capsule_pointer

if TYPE_CHECKING:
    import torch

_NUMBERS = itertools.count()

_CREATE = "AOTInductorModelContainerCreateWithDevice"
_RUN = "AOTInductorModelContainerRun"
_SHARE = "AOTInductorModelContainerUpdateUserManagedConstantBufferPairs"
_NEEDED = (
    _CREATE,
    "AOTInductorModelContainerDelete",
    "AOTInductorModelContainerGetConstantFromFolded",
    "AOTInductorModelContainerGetConstantName",
    "AOTInductorModelContainerGetConstantOriginalFQN",
    "AOTInductorModelContainerGetNumConstants",
    "AOTInductorModelContainerGetNumInputs",
    "AOTInductorModelContainerGetNumOutputs",
    _RUN,
    _SHARE,
    "aoti_torch_delete_tensor_object",
)


class _Constant(ctypes.Structure):
    """``AOTInductorConstantMapEntry``."""

    _fields_ = (("name", ctypes.c_char_p), ("handle", ctypes.c_void_p))


def without_frames(message: str) -> str:
    """Return an error message of torch without the C++ frames that follow it."""
    return message.partition("\nException raised from ")[0]


class PackageLibrary:
    """A package's shared library. It is never unloaded: its threads may run in it until the process ends.

    Attributes:
        frozen: whether it has the values of its weights in it.
        packing: how weights are packed that it takes packed.
    """

    def __init__(self, package: bytes | memoryview) -> None:
        """Load the library.

        Raises:
            IncompatibleEngineError: only torch's loader can run this package, or this torch lacks the functions.
        """
        content, metadata = _library_in(package)
        self.frozen, self.packing = FROZEN_MARK in metadata, read_mark(metadata)
        try:
            with scratch() as folder:
                # A path that this process has not used before: the dynamic linker identifies libraries by path.
                file = folder / f"engine-{os.getpid()}-{next(_NUMBERS)}.so"
                file.write_bytes(content)
                self.functions = _open_library(file)
        except OSError as error:
            raise IncompatibleEngineError("package", f"its library cannot be loaded: {error}") from error
        if absent := [name for name in _NEEDED if not hasattr(self.functions, name)]:
            raise IncompatibleEngineError("package", f"its library has no {', '.join(absent)}")

    def call(self, function: str, *args: Any) -> None:
        """Call a C function.

        Raises:
            RunError: it failed; the message has torch's error, if there is one.
        """
        if getattr(self.functions, function)(*args):
            found = ctypes.c_char_p()
            last = getattr(self.functions, "AOTInductorGetLastError", None)
            if last is not None:
                last(ctypes.byref(found))
            why = (found.value or b"").decode(errors="replace")
            why = why or "it failed; torch has written the reason to standard error"
            step = "" if function == _RUN else f"{function.removeprefix('AOTInductorModelContainer')}: "
            raise RunError("aot_inductor", f"{step}{without_frames(why)}")

    def number(self, function: str, container: ctypes.c_void_p) -> int:
        """Call a C function that returns a count."""
        found = ctypes.c_size_t()
        self.call(function, container, ctypes.byref(found))
        return found.value


def _open_library(file: Path) -> ctypes.CDLL:
    """Load a package's library.

    Raises:
        OSError: it cannot be loaded.
        IncompatibleEngineError: torch is not installed.
    """
    try:
        return ctypes.CDLL(str(file))
    except OSError:
        # Some compilers link a package with all of torch's libraries (Ubuntu 24.04, torch 2.11 for CUDA).
        libtorch().load_all()
        return ctypes.CDLL(str(file))


def _library_in(package: bytes | memoryview) -> tuple[bytes, dict[str, str]]:
    """Extract the shared library of a package, and its metadata.

    Raises:
        IncompatibleEngineError: it has no library that works without torch's loader.
    """
    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        names = archive.namelist()
        libraries = [name for name in names if name.endswith(".so")]
        if len(libraries) != 1:
            raise IncompatibleEngineError("package", f"it has {len(libraries)} libraries, not one")
        if libraries[0].removesuffix(".so") + ".json" in names:
            raise IncompatibleEngineError("package", "it has operators that only torch's loader can call")
        metadata: dict[str, str] = {}
        for name in names:
            if name.endswith("_metadata.json"):
                metadata |= json.loads(archive.read(name))
        return archive.read(libraries[0]), metadata


class Tensors(Protocol):
    """Conversion between tensors and the handles that C functions take: addresses of new tensor objects."""

    def handles(self, tensors: Sequence[Any]) -> list[int]:
        """Return a new handle for each tensor; the tensor MUST outlive it unless they share the memory's ownership."""
        ...

    def take(self, handles: Sequence[int]) -> list[Any]:
        """Return the tensors of handles, which are then theirs."""
        ...


class TorchTensors:
    """Tensors of Python's torch."""

    def __init__(self, constants: Aliases) -> None:
        """Check that torch has the functions.

        Args:
            constants: the constants of the container.

        Raises:
            IncompatibleEngineError: this torch lacks them.
        """
        import torch

        self._constants = constants
        self._new_capsule = ctypes.pythonapi.PyCapsule_New
        self._new_capsule.restype = ctypes.py_object
        self._new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        self._functions: Any = torch._C._aoti
        if not hasattr(self._functions, "alloc_tensors_by_stealing_from_void_ptrs"):
            why = f"torch {torch.__version__} has no function that creates tensors from C handles"
            raise IncompatibleEngineError("package", why)

    def handles(self, tensors: Sequence[torch.Tensor]) -> list[int]:
        """Return a new handle for each tensor."""
        capsules = self._functions.unsafe_alloc_void_ptrs_from_tensors(list(tensors))
        return [capsule_pointer(one, None) for one in capsules]

    def take(self, handles: Sequence[int]) -> list[torch.Tensor]:
        """Return the tensors of handles, which are then theirs."""
        capsules = [self._new_capsule(handle, None, None) for handle in handles]
        return self._constants.replace_in(self._functions.alloc_tensors_by_stealing_from_void_ptrs(capsules))


class Container:
    """A container with all its constants set. Belongs to the process that created it."""

    def __init__(
        self, library: PackageLibrary, tensors: Mapping[str, Any], calls: int, convert: Tensors | None = None
    ) -> None:
        """Create a container that accepts ``calls`` concurrent calls, and share ``tensors`` with it.

        Args:
            library: the library of the package.
            tensors: its constants by the engine's names for them.
            calls: the number of concurrent calls.
            convert: what the tensors are; those of Python's torch by default.
        """
        if convert is None:
            aliases = Aliases(tensors)
            convert, tensors = TorchTensors(aliases), aliases.tensors
            weakref.finalize(self, aliases.empty).atexit = False
        self._convert = convert
        self._library, self._tensors = library, tensors  # the package reads their memory
        self._handle = ctypes.c_void_p()
        library.call(_CREATE, ctypes.byref(self._handle), ctypes.c_size_t(calls), b"cpu", None)
        handles: list[int] = []
        weakref.finalize(self, _end, library, self._handle, handles, os.getpid()).atexit = False
        self._outputs = library.number("AOTInductorModelContainerGetNumOutputs", self._handle)
        # A call that waits inside for a model is not woken if another fails (model_container.h): so calls wait here.
        self._room = threading.BoundedSemaphore(calls)
        self._first, self._has_run = threading.Lock(), False
        if not library.frozen:
            self._share(tensors, handles)

    def _share(self, tensors: Mapping[str, Any], handles: list[int]) -> None:
        """Set all constants; ``handles`` gets a handle of each."""
        library = self._library
        names: dict[bytes, str] = {}  # the engine's name of each constant, by the container's name
        for number in range(library.number("AOTInductorModelContainerGetNumConstants", self._handle)):
            folded = ctypes.c_bool()
            function = "AOTInductorModelContainerGetConstantFromFolded"
            library.call(function, self._handle, ctypes.c_size_t(number), ctypes.byref(folded))
            if not folded.value:
                name = self._text("AOTInductorModelContainerGetConstantName", number)
                names[name] = self._text("AOTInductorModelContainerGetConstantOriginalFQN", number).decode()
        if missing := set(names.values()) - set(tensors):
            raise IncompatibleEngineError("package", f"it needs constants that are missing: {sorted(missing)}")
        handles += self._convert.handles([tensors[name] for name in names.values()])
        pairs = (_Constant * len(names))(*(_Constant(*pair) for pair in zip(names, handles, strict=True)))
        count, active = ctypes.c_size_t(len(names)), ctypes.c_bool(False)
        library.call(_SHARE, self._handle, pairs, count, active, ctypes.c_bool(True))

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Run the package without the GIL."""
        if not self._has_run:
            # In its first call a container folds constants under a lock: other calls would wait inside.
            with self._first:
                if not self._has_run:
                    outputs = self._run(inputs)
                    self._has_run = True
                    return outputs
        with self._room:
            return self._run(inputs)

    def _run(self, inputs: Sequence[Any]) -> list[Any]:
        outputs = (ctypes.c_void_p * self._outputs)()
        given = self._convert.handles(inputs)  # the package takes ownership
        self._library.call(
            _RUN,
            self._handle,
            (ctypes.c_void_p * len(given))(*given),
            ctypes.c_size_t(len(given)),
            outputs,
            ctypes.c_size_t(self._outputs),
            None,
            None,
        )
        return self._convert.take([output or 0 for output in outputs])

    def _text(self, function: str, number: int) -> bytes:
        found = ctypes.c_char_p()
        self._library.call(function, self._handle, ctypes.c_size_t(number), ctypes.byref(found))
        return found.value or b""


class ProcessContainer:
    """The current process's container: a forked process creates its own.

    After a fork the parent's container has models of calls in threads that do not exist in the child, and locks that
    those threads held.
    """

    def __init__(self, make: Callable[[], Container]) -> None:
        """Create this process's container."""
        self._make = make
        self._made = {os.getpid(): make()}

    def __call__(self) -> Container:
        """Return this process's container."""
        process = os.getpid()
        # No lock, which a fork could find locked: concurrent threads may create one too many.
        return self._made.get(process) or self._made.setdefault(process, self._make())


def _end(library: PackageLibrary, container: ctypes.c_void_p, handles: list[int], process: int) -> None:
    if os.getpid() != process:
        return
    library.functions.AOTInductorModelContainerDelete(container)
    for handle in handles:
        library.functions.aoti_torch_delete_tensor_object(ctypes.c_void_p(handle))
