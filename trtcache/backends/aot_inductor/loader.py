"""Everything that touches torch's package loader.

``torch._C._aoti.AOTIModelPackageLoader`` loads in 3 ms without importing ``torch._inductor``, which costs a second; it
is private, so when it is not there the public ``torch._inductor.aoti_load_package`` is asked for the same object. torch
checks nothing about constants: running with one unset ends the process, one of a wrong shape or stride gives wrong
results. So nothing in this file hands out a loader before every constant is set, and ``weights.fit`` has checked them.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
import threading
import weakref
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trtcache.backends.aot_inductor.mapped import Mapped, engine_libraries, unpacked_folder
from trtcache.backends.aot_inductor.scratch import claim, scratch
from trtcache.errors import IncompatibleEngineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trtcache.backends.aot_inductor.assumptions import Assumptions
    from trtcache.backends.aot_inductor.container import Library

log = logging.getLogger(__name__)


class Package:
    """The bytes of a package, from which any number of live engines can be made."""

    def __init__(
        self, content: bytes | memoryview, device: torch.device, assumptions: Assumptions | None = None
    ) -> None:
        """Keep the bytes; for each load they are written to a private file that is gone after it.

        Args:
            content: the package.
            device: where it runs.
            assumptions: what Inductor assumed about sizes; None for nothing.
        """
        self._content = content
        self.assumptions = assumptions
        self.device = device

    @cached_property
    def library(self) -> Library:
        """The package's shared library, for calls that run side by side.

        Raises:
            IncompatibleEngineError: the package runs only in torch's loader.
        """
        from trtcache.backends.aot_inductor.container import Library  # few modules run calls side by side

        return Library(self._content)

    def open(self) -> Any:
        """Return a new loader with no constants set.

        The file is in memory where the kernel has that, and sealed: nobody can change what was verified any more, and
        writing to a disk took 5 ms of a load of 10 ms. torch unpacks it to a folder of its own, which is removed when
        the library is loaded, or on a GPU, whose kernels are read later, claimed while the loader lives.

        Raises:
            IncompatibleEngineError: torch cannot load the package.
        """
        try:
            with _memory_file(self._content) as path:
                return _open_new(path, self.device)
        except (RuntimeError, OSError) as error:
            log.debug("a package in memory cannot be loaded (%s); trying a file", error)
        try:
            with scratch() as folder:
                file = folder / "engine.pt2"
                file.write_bytes(self._content)
                return _open_new(str(file), self.device)
        except (RuntimeError, OSError) as error:
            raise IncompatibleEngineError("package", f"torch cannot load it: {error}") from error


def _open_new(path: str, device: torch.device) -> Any:
    """Return a loader whose library is none that this process had before.

    Raises:
        RuntimeError: torch cannot load the package.
        IncompatibleEngineError: the dynamic linker gives a library of before.
    """
    with _OPENING:  # so that what appears meanwhile is this one's
        for _ in range(_ATTEMPTS):
            loader = open_loader(path, device)
            loaded = engine_libraries()  # a millisecond, so once for each load
            added = {library for library, is_there in loaded.items() if is_there and library not in _SEEN}
            is_told = bool(_SEEN) or len(loaded) == 1  # at first others of this process could be taken for this one
            _SEEN.update(loaded)
            if not loaded or (added and is_told):
                _tidy(loader, {path for _, path in added}, device)
                return loader
    raise IncompatibleEngineError("package", "the dynamic linker gives a library that was loaded before")


def _tidy(loader: Any, libraries: set[str], device: torch.device) -> None:
    """Remove the folder that torch unpacked a library to, or claim it while the loader lives.

    Nothing is done where the library of another thread could be meant, which used torch's own loader meanwhile.
    """
    folders = {unpacked_folder(library, Path(tempfile.gettempdir())) for library in libraries}
    if len(folders) != 1 or (folder := folders.pop()) is None:
        return
    if device.type == "cpu":
        shutil.rmtree(folder, ignore_errors=True)
        return
    with suppress(OSError):
        weakref.finalize(loader, os.close, claim(folder))


@contextmanager
def _memory_file(content: bytes | memoryview) -> Iterator[str]:
    if not hasattr(os, "memfd_create"):
        raise OSError("this kernel has no files in memory")
    descriptor = os.memfd_create("engine.pt2", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        yield f"/proc/self/fd/{descriptor}"


def open_loader(path: str, device: torch.device) -> Any:
    """Return torch's loader of a package file, by the private door or else by the public one.

    Raises:
        RuntimeError: torch cannot load the package.
    """
    device_index = device.index if device.type == "cuda" else -1
    try:
        return torch._C._aoti.AOTIModelPackageLoader(path, "model", False, 1, device_index)
    except (AttributeError, TypeError):
        from torch._inductor import aoti_load_package

        return aoti_load_package(path, device_index=device_index).loader


class PackageEngine:
    """A loaded package with all its constants and weights set."""

    shares_weights: ClassVar[bool] = True

    def __init__(
        self, package: Package, constants: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor]
    ) -> None:
        """Load the package and share ``constants`` and ``weights`` with it.

        Raises:
            IncompatibleEngineError: torch cannot load the package, or it wants other constants.
        """
        self._package = package
        self._constants = constants
        self._shared = {**constants, **weights}  # the package reads this memory: it must outlive the loader
        self._loader = package.open()
        wanted = set(self._loader.get_constant_fqns())
        if missing := wanted - set(self._shared):
            raise IncompatibleEngineError("package", f"it wants constants that nobody has: {sorted(missing)}")
        given = {name: tensor for name, tensor in self._shared.items() if name in wanted}
        self._loader.load_constants(given, False, False, True)  # the binding names no arguments
        self.weight_names = frozenset(wanted)
        self._enters = package.device.type == "cuda"
        if self._enters:  # calls return before their kernels have, which may read weights of this engine's own
            weakref.finalize(self, _wait, package.device).atexit = False

    def refit(self, weights: Mapping[str, torch.Tensor]) -> PackageEngine:
        """Load the package once more, with other weights; calls that run on this engine are not disturbed."""
        return PackageEngine(self._package, self._constants, weights)

    def parallel(self, calls: int) -> ParallelEngine:
        """Return an engine of the same package and weights that this many calls can be in at once.

        Raises:
            IncompatibleEngineError: the package runs only in torch's loader, one call after the other.
        """
        if self._enters:
            raise IncompatibleEngineError("package", "on a GPU calls are enqueued by torch's loader, one at a time")
        return ParallelEngine(self._package, self._constants, self._shared, calls)

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the package.

        Raises:
            GuardError: the sizes are not those that Inductor assumed.
        """
        if self._package.assumptions is not None:
            self._package.assumptions.check(inputs)
        if self._enters:
            self._enter()
        outputs: list[torch.Tensor] = self._loader.run(inputs)
        return outputs

    def _enter(self) -> None:
        """Give a thread that has not used the GPU yet its context.

        A package brings its kernels to the GPU in its first call, by the driver, which knows nothing of threads:
        "CUDA driver error: invalid device context" (torch 2.11).
        """
        entered, device = _ENTERED.__dict__, str(self._package.device)
        if device not in entered:
            torch.zeros(1, device=device)
            entered[device] = True


class ParallelEngine:
    """A loaded package that several calls can be in at once, with one set of weights."""

    shares_weights: ClassVar[bool] = True

    def __init__(
        self,
        package: Package,
        constants: Mapping[str, torch.Tensor],
        weights: Mapping[str, torch.Tensor],
        calls: int,
    ) -> None:
        """Load the package's library and share ``constants`` and ``weights`` with it.

        Raises:
            IncompatibleEngineError: the package runs only in torch's loader, or it wants other constants.
            RunError: torch cannot make a container of it.
        """
        from trtcache.backends.aot_inductor.container import Container, ContainerHere

        self._package, self._constants, self._calls = package, constants, calls
        self._weights = {**constants, **weights}
        library, shared = package.library, self._weights
        self._here = ContainerHere(lambda: Container(library, shared, calls))

    def refit(self, weights: Mapping[str, torch.Tensor]) -> ParallelEngine:
        """Return an engine of the same library with other weights; calls that run on this one are not disturbed."""
        return ParallelEngine(self._package, self._constants, weights, self._calls)

    def parallel(self, calls: int) -> ParallelEngine:
        """Return an engine that at least this many calls can be in at once."""
        if calls <= self._calls:
            return self
        return ParallelEngine(self._package, self._constants, self._weights, calls)

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the package.

        Raises:
            GuardError: the sizes are not those that Inductor assumed.
            RunError: the package failed.
        """
        if self._package.assumptions is not None:
            self._package.assumptions.check(inputs)
        return self._here().run(inputs)


def _wait(device: torch.device) -> None:
    with suppress(RuntimeError):  # a GPU that failed runs nothing
        torch.cuda.synchronize(device)


_OPENING = threading.Lock()
_SEEN: set[Mapped] = set()
_ATTEMPTS = 3
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_ENTERED = threading.local()  # for each thread, the GPUs that it has used
