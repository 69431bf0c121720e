"""torch's package loader, and the temporary folders that libraries are loaded from.

``torch._C._aoti.AOTIModelPackageLoader`` loads in 3 ms without importing ``torch._inductor``, which takes a second. It
is private, so if it is missing the public ``torch._inductor.aoti_load_package`` is used. torch does not check
constants: running with one unset ends the process, one of a wrong shape or stride gives wrong results. So no
engine is returned before every constant is set, and ``trtcache.weights.slots.fit`` has checked them.

A temporary folder in use contains a file that its process holds a lock on; the kernel drops the lock with the process.
So any container that shares the directory can tell which folders are abandoned, without looking up processes.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import shutil
import stat
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from trtcache.backends.aot_inductor.marks import FROZEN_MARK, Packing, read_mark
from trtcache.backends.protocol import GRAPH, INTERFACE
from trtcache.digests import Json, hash_bytes
from trtcache.errors import FixedWeightsError, GuardError, IncompatibleEngineError, RunError
from trtcache.lowering.guard_checks import SIZES_HINT, compile_guards, failed_guard
from trtcache.lowering.interface import affine, describe, symbols_in
from trtcache.weights.slots import memory_fault

if TYPE_CHECKING:
    import torch

    from trtcache.backends.aot_inductor.container import PackageLibrary, ProcessContainer
    from trtcache.weights.fingerprints import Snapshot

ASSUMPTIONS = "assumptions.json"
"""The member with Inductor's guards, and the input shapes that define their symbols."""

# Operators for which torch 2.13's Inductor specialises on sizes (guard_int, evaluate_min in its lowering.py and
# kernel/conv.py). Entries without the member predate it: with one of these operators they may be wrong.
_ASSUMING = (
    *("adaptive_avg_pool", "adaptive_max_pool", "fractional_max_pool", "upsample_bicubic", "glu", "diagonal"),
    *("convolution", "_pdist", "as_strided", "sort"),
)

PREFIX = "trtcache-load-"
TORCH_PREFIX = "aotinductor_"
UNCLAIMED_S = 86400.0
"""Minimum age of an unlocked folder to be removed: torch creates, fills and loads from one before it is claimed."""

_CLAIM = ".trtcache-in-use"
_OF_A_GPU = {".cubin", ".fatbin", ".hsaco", ".ptx", ".spv"}

_OPENING = threading.Lock()
_SEEN: set[MappedLibrary] = set()
_IDLE: dict[int, dict[bytes, list[tuple[Any, Aliases]]]] = {}
"""Idle loaders of released packages, for the next package with the same content: by its length in bytes, then by its
digest. A package of another length need not be hashed."""
_ATTEMPTS = 3
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_ENTERED = threading.local()  # for each thread, the GPUs that it has used
_MAPS = Path("/proc/self/maps")
_INSIDE = b"/data/aotinductor/"
_GONE = " (deleted)"
_CALLS_OPERATORS = re.compile(b"aoti_torch_proxy_executor_call_function")
_NO_OPERATOR = re.compile(r"Could not find schema for ([\w.]+::[\w.]*\w)")
MappedLibrary = tuple[str, str]
"""Device and inode of a mapped library, and its path."""
log = logging.getLogger(__name__)


class Assumptions:
    """The guards on sizes that Inductor assumed while it compiled a package, checked at every call."""

    def __init__(self, inputs: Sequence[Sequence[Json]], guards: Sequence[Json]) -> None:
        """Store the guards, and for each symbol an input dimension that is the symbol, or else ``a * symbol + b``."""
        self._guards = tuple(guards)
        try:
            self._hold = compile_guards(self._guards)
        except ValueError:  # an operation that it does not know: each call evaluates them
            self._hold = None
        self._places: dict[int, tuple[int, int, int, int]] = {}
        for place, shape in enumerate(inputs):
            for dim, size in enumerate(shape):
                number, factor, more = affine(size) or (-1, 0, 0)
                if factor and ((factor, more) == (1, 0) or number not in self._places):
                    self._places[number] = (place, dim, factor, more)

    @classmethod
    def of(cls, read: Callable[[str], bytes | memoryview]) -> Assumptions | None:
        """Read them from an entry's members; None if there is nothing to check.

        Raises:
            IncompatibleEngineError: the entry predates them, and has operators that need them.
        """
        try:
            document: Mapping[str, Any] = json.loads(bytes(read(ASSUMPTIONS)))
        except LookupError:
            if _may_assume(read):
                why = "it was built before Inductor's assumptions about sizes were recorded"
                raise IncompatibleEngineError("package", f"{why}; build it again") from None
            return None
        return cls(document["inputs"], document["guards"]) if document["guards"] else None

    def refused_sizes(self, sizes: Mapping[int, int]) -> frozenset[int]:
        """Return the symbols of all guards, by number, if a guard is false for these sizes; an empty set if none is."""
        numbers = {number for guard in self._guards for number in symbols_in(guard)}
        checked = [guard for guard in self._guards if sizes.keys() >= set(symbols_in(guard))]
        return frozenset(numbers & sizes.keys()) if failed_guard(checked, sizes) is not None else frozenset()

    def check(self, inputs: Sequence[Any]) -> None:
        """Check the sizes of an engine's inputs.

        Raises:
            GuardError: an assumption does not hold.
        """
        sizes = {
            number: (inputs[place].shape[dim] - more) // factor
            for number, (place, dim, factor, more) in self._places.items()
        }
        with suppress(ArithmeticError, ValueError):  # a guard divides by a size of 0
            if self._hold is not None and self._hold(sizes):
                return
        guard = failed_guard(self._guards, sizes)
        if guard is not None:
            names = {number: f"input{place}.shape[{dim}]" for number, (place, dim, *_) in self._places.items()}
            text = describe(guard, names)
            found = ", ".join(f"{name} is {sizes[number]}" for number, name in names.items() if name in text)
            raise GuardError("sizes", text, found, SIZES_HINT)


def _may_assume(read: Callable[[str], bytes | memoryview]) -> bool:
    """Return whether an entry without the member has dynamic sizes and operators that specialise on them."""
    try:
        if not json.loads(bytes(read(INTERFACE)))["sizes"]:
            return False
        graph = bytes(read(GRAPH)).decode()
    except LookupError:
        return False  # an engine without a key: this version built it
    return any(name in graph for name in _ASSUMING)


@contextmanager
def scratch() -> Iterator[Path]:
    """Create a new private folder for the block."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        claimed = claim(folder)
        try:
            yield folder
        finally:
            os.close(claimed)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def claim(folder: Path) -> int:
    """Mark the caller's own folder as in use until the returned descriptor is closed or the process ends.

    Raises:
        OSError: the file system does not support locks.
    """
    unlocked = folder / f"{_CLAIM}-{os.getpid()}"
    fd = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        unlocked.rename(folder / _CLAIM)  # ``reclaim`` in another process never sees it without its lock
    except OSError:
        unlocked.unlink(missing_ok=True)
        os.close(fd)
        raise
    return fd


def reclaim(directory: Path | None = None, *, now_s: float | None = None) -> int:
    """Remove this user's folders that no living process uses, and return their number.

    Folders that cannot be inspected or removed are left for the next time.
    """
    removed = 0
    with suppress(OSError), os.scandir(directory or tempfile.gettempdir()) as found:
        for candidate in found:
            folder = Path(candidate.path)
            is_named = candidate.name.startswith((PREFIX, TORCH_PREFIX))
            if is_named and _is_abandoned(folder, time.time() if now_s is None else now_s):
                shutil.rmtree(folder, ignore_errors=True)
                removed += not folder.exists()
    return removed


def _is_abandoned(folder: Path, now_s: float) -> bool:
    """Return whether a folder is this user's own and no living process uses it."""
    try:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            return False
        try:
            fd = os.open(folder / _CLAIM, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            # Programs that use torch directly create such folders too. A loaded library does not need its file any
            # more; GPU kernels are read when they are first called.
            is_old = now_s - found.st_mtime >= UNCLAIMED_S
            return is_old and not any(path.suffix in _OF_A_GPU for path in folder.rglob("*"))
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(fd)
    except OSError:
        return False
    return True


class Package:
    """The bytes of a package, from which any number of live engines can be loaded."""

    def __init__(
        self, content: bytes | memoryview, device: torch.device, assumptions: Assumptions | None = None
    ) -> None:
        """Store the bytes, the device that they run on, and Inductor's assumptions about sizes if there are any."""
        self._content = content
        self._idle: list[tuple[Any, Aliases]] = []
        if device.type == "cpu":  # an idle loader for a GPU would keep its kernels there
            weakref.finalize(self, _share_idle, content, self._idle).atexit = False
        self.assumptions = assumptions
        self.device = device

    def check_sizes(self, inputs: Sequence[Any]) -> None:
        """Check the sizes of an engine's inputs.

        Raises:
            GuardError: Inductor assumed others.
        """
        if self.assumptions is not None:
            self.assumptions.check(inputs)

    @cached_property
    def library(self) -> PackageLibrary:
        """The package's shared library, for parallel calls."""
        from trtcache.backends.aot_inductor.container import PackageLibrary  # few modules run parallel calls

        return PackageLibrary(self._content)

    def take_loader(self) -> tuple[Any, Aliases]:
        """Return a loader that runs no calls, and the empty aliases that its package holds.

        Take an idle one if there is any. A library stays mapped until the process ends: with a new loader, each refit
        or load added 0.3 MB and 6 mappings to the process, and Linux allows 65530 mappings.

        Raises:
            IncompatibleEngineError: torch cannot load the package.
        """
        for idle in (self._idle, self._shared_idle()):
            with suppress(IndexError):  # not if there is one: another thread may take it in between
                return idle.pop()
        return self.open(), Aliases({})

    def _shared_idle(self) -> list[tuple[Any, Aliases]]:
        """Return the idle loaders of released packages with these bytes."""
        by_digest = _IDLE.get(len(self._content)) if self.device.type == "cpu" else None
        return by_digest.get(hash_bytes(self._content), []) if by_digest else []

    def return_loader(self, loader: Any, aliases: Aliases) -> None:
        """Keep a loader for the next engine; no call MUST be running on it."""
        aliases.empty()
        self._idle.append((loader, aliases))

    def open(self) -> Any:
        """Return a new loader with no constants set.

        The file is a sealed in-memory file if the kernel supports it: verified bytes cannot change any more, and
        writing to a disk took 5 ms of a load of 10 ms. torch unpacks it to a folder of its own. That is removed once
        the library is loaded; for a GPU, whose kernels are read later, it is claimed while the loader lives.

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
            found = _NO_OPERATOR.search(str(error))
            why = f"torch cannot load it: {error}"
            if found is not None:
                why = f"it calls the custom operator {found[1]}: import the module that defines it, and load it again"
            raise IncompatibleEngineError("package", why) from error


def _share_idle(content: bytes | memoryview, idle: list[tuple[Any, Aliases]]) -> None:
    """Keep the idle loaders of a released package, unless they have weights in them or call operators of torch.

    A loader looks operators up when it is opened, and a custom one may be defined again.
    """
    kept = [one for one in idle if FROZEN_MARK not in one[0].get_metadata()]
    if kept and not _CALLS_OPERATORS.search(content):
        _IDLE.setdefault(len(content), {}).setdefault(hash_bytes(content), []).extend(kept)


def _open_new(path: str, device: torch.device) -> Any:
    """Return a loader whose library this process has not loaded before.

    Load again if no new library was mapped, or if another thread may have mapped it. If the kernel lists no engine
    library at all, return the first loader unchecked.
    """
    with _OPENING:  # so that a new mapping belongs to this load
        for _ in range(_ATTEMPTS):
            loader = open_loader(path, device)
            loaded = engine_libraries()  # takes a millisecond, so once per load
            added = {library for library, is_there in loaded.items() if is_there and library not in _SEEN}
            is_distinguishable = bool(_SEEN) or len(loaded) == 1  # at first it could be another thread's
            _SEEN.update(loaded)
            if not loaded or (added and is_distinguishable):
                _tidy(loader, {path for _, path in added}, device)
                return loader
    raise IncompatibleEngineError("package", "the dynamic linker returns a library that was loaded before")


def _tidy(loader: Any, libraries: set[str], device: torch.device) -> None:
    """Remove the folder that torch unpacked a library to, or claim it while the loader lives.

    Do nothing if the library may be another thread's that used torch's own loader in the meantime.
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
        raise OSError("this kernel has no in-memory files")
    descriptor = os.memfd_create("engine.pt2", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        yield f"/proc/self/fd/{descriptor}"


def open_loader(path: str, device: torch.device) -> Any:
    """Return torch's loader of a package file, through the private API or else the public one."""
    import torch

    device_index = device.index if device.type == "cuda" else -1
    try:
        return torch._C._aoti.AOTIModelPackageLoader(path, "model", False, 1, device_index)
    except (AttributeError, TypeError):
        from torch._inductor import aoti_load_package

        return aoti_load_package(path, device_index=device_index).loader


def refuse_weights() -> NoReturn:
    """Refuse other weights for a package that has its weights in it.

    Raises:
        FixedWeightsError: always.
    """
    raise FixedWeightsError(backend="aot_inductor", setting="settings={'weights': 'frozen'}")


class Aliases:
    """Tensors that share the memory of others until they are emptied, for a package.

    A package never deletes the tensor objects of its constants (``MaybeOwningAtenTensorHandle`` in ``aoti_runtime`` of
    torch 2.13): with the weights themselves, each load kept a set of weights in memory until the process ended.

    Attributes:
        tensors: the aliases by the engine's names.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Create an alias of each tensor."""
        self.tensors: dict[str, torch.Tensor] = {}
        self.fill(tensors)

    def fill(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Let the aliases share the memory of these tensors.

        They have version counters of their own: to fill and to empty them changes no weight.
        """
        for name, tensor in tensors.items():
            alias = self.tensors.get(name)
            if alias is not None and _kind(alias) == _kind(tensor):
                alias.data = tensor.data
            else:
                self.tensors[name] = tensor.data
        self._identities = frozenset(map(id, self.tensors.values()))

    def replace_in(self, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the outputs; one that is an alias (a weight that is returned) as another tensor of the same memory."""
        return [one.data if id(one) in self._identities else one for one in outputs]

    def empty(self) -> None:
        """Release the memory; the package MUST NOT run any more."""
        import torch

        # Garbage may be collected anywhere, also inside a mode that intercepts operators.
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            for tensor in self.tensors.values():
                tensor.data = _empty_tensor(tensor.layout, tensor.is_inference())


def _kind(tensor: torch.Tensor) -> tuple[type, torch.layout, bool]:
    """Return what two tensors must have in common for one to be an alias of the other."""
    return type(tensor.data), tensor.layout, tensor.is_inference()


@cache
def _empty_tensor(layout: torch.layout, is_inference: bool) -> torch.Tensor:
    """Return one tensor for all emptied aliases: memory that is kept for each would split that of freed weights.

    An alias in oneDNN's layout takes no tensor of the other kind, whichever mode garbage is collected in.
    """
    import torch

    with torch.inference_mode(is_inference):
        return torch.empty(0, layout=layout)


class GivenTensors:
    """The tensors that a package was given, and the addresses of their storages at that time.

    A package reads its constants at the addresses that they had when they were set (``ConstantHandle`` in
    ``aoti_runtime``). ``share_memory_``, which a queue of processes calls as well, and ``resize_`` move the memory of a
    storage and free the old one. torch does not count these changes, so the addresses are compared before each call,
    which takes some 50 ns for each storage.

    Attributes:
        tensors: the tensors as the package takes them, some of them packed, by the engine's names.
        are_packed: whether some of them are.
    """

    def __init__(self, given: Mapping[str, torch.Tensor], packing: Packing, *, frozen: bool) -> None:
        """Store the addresses as they are now; of a ``frozen`` package, which reads none, no addresses."""
        import torch

        storages = [] if frozen else [tensor.untyped_storage() for tensor in given.values() if tensor.numel()]
        self._storages: list[Any] = list({storage._cdata: storage for storage in storages}.values())
        self._read = torch.UntypedStorage.data_ptr
        self._addresses = list(map(self._read, self._storages))
        self.tensors, self.are_packed = given, bool(packing)
        self._packed: Snapshot | None = None
        if packing:
            from trtcache.backends.aot_inductor.packing import pack_weights  # few packages need it

            self.tensors, self._packed = pack_weights(given, packing)

    def are_current(self) -> bool:
        """Return whether all memory is where it was, and no weight that was packed has been changed in place."""
        is_there = list(map(self._read, self._storages)) == self._addresses
        return is_there and (self._packed is None or self._packed.is_current())


def require_memory(tensors: Iterable[torch.Tensor]) -> None:
    """Check that tensors have memory, before their addresses are given to a package.

    Raises:
        RunError: the memory of one was freed.
    """
    if any(memory_fault(tensor) is not None for tensor in tensors):
        raise RunError("aot_inductor", "the memory of a weight was freed")


class _Loaded:
    """A loader with its constants set, which reads their memory.

    Attributes:
        frozen: whether the package has the values of its weights in it.
        given: the tensors, which must outlive the loader.
    """

    def __init__(self, package: Package, tensors: Mapping[str, torch.Tensor]) -> None:
        """Load the package and share the tensors with it, or packed copies.

        Raises:
            IncompatibleEngineError: torch cannot load the package, or it needs other constants.
        """
        self._loader, self._aliases = package.take_loader()
        # A running call refers to this object: the loader is returned only after the last call.
        weakref.finalize(self, package.return_loader, self._loader, self._aliases).atexit = False
        metadata = self._loader.get_metadata()
        self.frozen = FROZEN_MARK in metadata
        self.given = GivenTensors(tensors, read_mark(metadata), frozen=self.frozen)
        if not self.frozen:
            names = set(self._loader.get_constant_fqns())
            if missing := names - self.given.tensors.keys():
                raise IncompatibleEngineError("package", f"it needs constants that are missing: {sorted(missing)}")
            self._aliases.fill({name: self.given.tensors[name] for name in names})
            # The binding has no keyword arguments.
            self._loader.load_constants(self._aliases.tensors, False, False, True)

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the package.

        Raises:
            RunError: it failed.
        """
        try:
            outputs: list[torch.Tensor] = self._loader.run(inputs)
        except RuntimeError as error:
            if type(error) is not RuntimeError:  # torch.OutOfMemoryError
                raise
            from trtcache.backends.aot_inductor.container import without_frames  # few modules run parallel calls

            raise RunError("aot_inductor", without_frames(str(error))) from error
        return outputs if self.frozen else self._aliases.replace_in(outputs)


class PackageEngine:
    """A loaded package with all its constants and weights set.

    Attributes:
        frozen: whether the package has the values of its weights in it.
    """

    def __init__(
        self, package: Package, constants: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor]
    ) -> None:
        """Load the package and share ``constants`` and ``weights`` with it.

        Raises:
            IncompatibleEngineError: torch cannot load the package, or it needs other constants.
        """
        self._package = package
        self._constants = constants
        self._shared = {**constants, **weights}
        self._loaded = _Loaded(package, self._shared)
        self.frozen = self._loaded.frozen
        self.shares_weights = not (self.frozen or self._loaded.given.are_packed)
        self._is_on_gpu = package.device.type == "cuda"
        if self._is_on_gpu:  # calls return before their kernels, which may still read this engine's weights
            weakref.finalize(self, _wait, package.device).atexit = False

    def refit(self, weights: Mapping[str, torch.Tensor]) -> PackageEngine:
        """Return an engine of the same package with other weights; running calls on this one are unaffected.

        Raises:
            FixedWeightsError: the package has its weights in it.
        """
        if self.frozen:
            refuse_weights()
        return PackageEngine(self._package, self._constants, weights)

    def parallel(self, calls: int) -> ParallelEngine:
        """Return an engine of the same package and weights that accepts this many concurrent calls.

        Raises:
            IncompatibleEngineError: the package runs only in torch's loader, one call at a time.
        """
        if self._is_on_gpu:
            raise IncompatibleEngineError("package", "on a GPU calls are enqueued by torch's loader, one at a time")
        return ParallelEngine(self._package, self._constants, self._shared, calls)

    def check_sizes(self, inputs: Sequence[torch.Tensor]) -> None:
        """Check the sizes of inputs, as ``run`` does.

        Raises:
            GuardError: Inductor assumed others.
        """
        self._package.check_sizes(inputs)

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the package.

        Raises:
            RunError: it failed, or the memory of a weight was freed.
        """
        self._package.check_sizes(inputs)
        if self._is_on_gpu:
            import torch

            # Initialise the CUDA context of a thread that has not used the GPU yet. A package loads its kernels in its
            # first call through the driver API, which fails without: "CUDA driver error: invalid device context"
            # (torch 2.11).
            entered, device = _ENTERED.__dict__, str(self._package.device)
            if device not in entered:
                torch.zeros(1, device=device)
                entered[device] = True
        loaded = self._loaded
        if not loaded.given.are_current():
            require_memory(self._shared.values())
            if self._is_on_gpu:
                _wait(self._package.device)
            # The package may be running in other threads: they go on with the old weights.
            loaded = self._loaded = _Loaded(self._package, self._shared)
        return loaded.run(inputs)


class ParallelEngine:
    """A loaded package that accepts concurrent calls, with one set of weights."""

    def __init__(
        self,
        package: Package,
        constants: Mapping[str, torch.Tensor],
        weights: Mapping[str, torch.Tensor],
        calls: int,
    ) -> None:
        """Load the package's library and share ``constants`` and ``weights`` with it."""
        self._package, self._constants, self._calls = package, constants, calls
        self._weights = {**constants, **weights}
        self.shares_weights = not (package.library.frozen or package.library.packing)
        self._loaded = self._load()

    def _load(self) -> tuple[ProcessContainer, GivenTensors]:
        """Return a container with the weights as they are now, and these."""
        from trtcache.backends.aot_inductor.container import Container, ProcessContainer

        library = self._package.library
        given = GivenTensors(self._weights, library.packing, frozen=library.frozen)
        return ProcessContainer(lambda: Container(library, given.tensors, self._calls)), given

    def refit(self, weights: Mapping[str, torch.Tensor]) -> ParallelEngine:
        """Return an engine of the same library with other weights; running calls on this one are unaffected.

        Raises:
            FixedWeightsError: the package has its weights in it.
        """
        if self._package.library.frozen:
            refuse_weights()
        return ParallelEngine(self._package, self._constants, weights, self._calls)

    def parallel(self, calls: int) -> ParallelEngine:
        """Return an engine that accepts at least this many concurrent calls."""
        if calls <= self._calls:
            return self
        return ParallelEngine(self._package, self._constants, self._weights, calls)

    def check_sizes(self, inputs: Sequence[torch.Tensor]) -> None:
        """Check the sizes of inputs, as ``run`` does.

        Raises:
            GuardError: Inductor assumed others.
        """
        self._package.check_sizes(inputs)

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the package.

        Raises:
            RunError: it failed, or the memory of a weight was freed.
        """
        self._package.check_sizes(inputs)
        here, given = self._loaded
        if not given.are_current():
            require_memory(self._weights.values())
            # All are replaced at once: a concurrent call must not see new tensors with the old container.
            here, _ = self._loaded = self._load()
        return here().run(inputs)


def _wait(device: torch.device) -> None:
    import torch

    with suppress(RuntimeError):  # a GPU that failed runs nothing
        torch.cuda.synchronize(device)


def engine_libraries() -> dict[MappedLibrary, bool]:
    """Return each engine library with whether its file still exists; empty if the kernel does not provide maps."""
    try:
        maps = _MAPS.read_bytes()
    except OSError:
        return {}
    if _INSIDE not in maps:
        return {}
    lines = (line.decode(errors="replace").split(maxsplit=5) for line in maps.splitlines() if _INSIDE in line)
    return {
        (f"{device} {inode}", path.removesuffix(_GONE)): not path.endswith(_GONE)
        for _, _, _, device, inode, path in lines
    }


def unpacked_folder(library: str, below: Path) -> Path | None:
    """Return the folder below the temporary directory ``below`` that torch unpacked a library to."""
    try:
        inside = Path(library).relative_to(below)
    except ValueError:
        return None
    return below / inside.parts[0] if len(inside.parts) > 2 else None
