"""torch's C functions without Python's torch: tensors of host arrays, copies, operators of recipes; its environment.

``import torch`` takes a second; a package needs of it only ``libtorch_cpu.so``, which is found without an import and
loads in 0.16 s. ``torch/csrc/inductor/aoti_torch/c/shim.h`` declares the functions. They return an error code; torch
writes the reason to standard error.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from trtcache.errors import IncompatibleEngineError, RunError
from trtcache.weights.arrays import ITEM_BYTES, HostArray

_PREFIX = "TORCHINDUCTOR_"
# These are few, and most change the code of packages, as AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER does.
_OTHER_PREFIXES = ("AOT_INDUCTOR_", "AOTINDUCTOR_", "INDUCTOR_")
# Inductor's own caches, worker processes and logging: none of these affect a package.
_IGNORED = (
    "AUTOGRAD_",
    "CACHE_",
    "COMPILE_",
    "FORCE_DISABLE_CACHES",
    "FX_GRAPH_",
    "QUIESCE_",
    "REDIS_",
    "SKIP_L1",
    "WORKER_",
    "WRITE_",
)
# Other variables that torch/_inductor and torch/_functorch read for the code that they generate (torch 2.13). CI is not
# one of them: caches are often filled there, and it affects only a warning and backward passes. Nor is CXX: machines
# that only run packages have no compiler (docs/adr/0003).
_OTHER_NAMES = frozenset(
    {
        "ATEN_CPU_CAPABILITY",  # torch/_inductor/cpu_vec_isa.py selects vector instructions by it
        "CUTEDSL_ENABLE_AUTOTUNING",
        "CUTLASS_EPILOGUE_FUSION",
        "ENABLE_PERSISTENT_TMA_MATMUL",
        "ENABLE_TEMPLATE_TMA_STORE",
        "ENABLE_TMA_LOAD_FOR_TEMPLATE_EPILOGUE",
        "FAKE_ALLOW_META",
        "PYTORCH_REORDER_COLLECTIVES_LIMIT",
        "PYTORCH_SINK_WAITS_LIMIT",
        "TORCHDYNAMO_AUTO_FUNCTIONALIZED_V2",
        "TORCH_COMPILE_DEBUG",  # debug handles in the code, as with INDUCTOR_PROVENANCE
        "TRITON_INTERPRET",
        "TRITON_USE_META_WS",
    }
)
_TORCH_PREFIXES = ("TORCH_", "PYTORCH_", "ATEN_")


INITIAL_AMBIENT: Final[Mapping[str, object]] = {
    "deterministic": False,
    "float32_matmul_precision": "highest",
    "mkldnn": True,
    "attention": {"cudnn": True, "flash": True, "math": True, "mem_efficient": True},
    "inductor": {},
}
"""What ``aot_inductor.backend.ambient`` returns right after torch was imported, without the environment."""


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that affect Inductor's builds."""
    ignored = tuple(_PREFIX + name for name in _IGNORED)
    names = [name for name in environ if name.startswith(_PREFIX) and not name.startswith(ignored)]
    names += [name for name in environ if name.startswith(_OTHER_PREFIXES) or name in _OTHER_NAMES]
    return {name: environ[name] for name in sorted(names)}


def torch_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return all variables that may affect torch's state or Inductor's builds: a superset of ``environment``."""
    others = {name: value for name, value in environ.items() if name.startswith(_TORCH_PREFIXES)}
    return others | environment(environ)


SAME_VERSIONS: Final = ("torch", "torch_git", "cuda")
"""Versions that MUST be equal where a package runs."""

_NEEDED = (
    "aoti_torch_call_dispatcher",
    "aoti_torch_copy_",
    "aoti_torch_cpu_add_Tensor",
    "aoti_torch_create_tensor_from_blob",
    "aoti_torch_delete_tensor_object",
    "aoti_torch_empty_strided",
    "aoti_torch_get_data_ptr",
    "aoti_torch_get_device_type",
    "aoti_torch_get_dim",
    "aoti_torch_get_dtype",
    "aoti_torch_get_layout",
    "aoti_torch_get_sizes",
    "aoti_torch_get_strides",
    "aoti_torch_new_tensor_handle",
    "aoti_torch_scalar_to_tensor_float64",
    "aoti_torch_scalar_to_tensor_int64",
)
_INIT_THREADS = "_ZN2at16init_num_threadsEv"
"""``at::init_num_threads()``, which ``import torch`` calls: OpenMP and MKL then use the same number of threads."""

_LAZY = frozenset({"float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"})
"""Dtypes of tensors that torch may negate or conjugate lazily: those of complex numbers and of their parts."""

_IMPORTED_BEFORE = (
    *("_contextvars", "_csv", "_datetime", "_socket", "array", "binascii", "blake3", "fcntl", "json", "mmap"),
    *("platformdirs", "select", "zlib"),
)
"""Extension modules that loading a program imports, and modules that import some."""

_VERSION = re.compile(r"^(__version__|git_version|cuda)(?:\s*:\s*[^=]+)?\s*=\s*(?:'([^']*)'|None)\s*$", re.MULTILINE)
_loading = threading.Lock()
_loaded: list[LibTorch] = []


def torch_folder() -> Path | None:
    """Return the folder of the installed torch, without importing it; None if there is none."""
    module = sys.modules.get("torch")
    if module is not None:
        return Path(str(module.__file__)).parent
    spec = importlib.util.find_spec("torch")
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def torch_versions() -> dict[str, str | None]:
    """Return ``torch`` and ``torch_git`` of the installed torch, and ``cuda``, without importing it.

    Raises:
        IncompatibleEngineError: torch is not installed, or its version file has an unknown form.
    """
    folder = torch_folder()
    try:
        text = (folder / "version.py").read_text() if folder else ""
    except OSError:
        text = ""
    found = {name: value or None for name, value in _VERSION.findall(text)}
    if not found.get("__version__") or not found.get("git_version"):
        raise IncompatibleEngineError("package", "torch is not installed here, or its version is unknown")
    return {"torch": found["__version__"], "torch_git": found["git_version"], "cuda": found.get("cuda")}


def libtorch() -> LibTorch:
    """Return torch's C functions, loaded once for each process.

    Raises:
        IncompatibleEngineError: torch is not installed, or its libraries lack a function.
    """
    if not _loaded:
        with _loading:
            if not _loaded:
                _loaded.append(LibTorch())
    return _loaded[0]


def preload() -> threading.Thread:
    """Start to load torch's libraries; a failure is raised where they are used.

    It takes 0.16 s, without the GIL: meanwhile modules are imported and weights are hashed. The dynamic linker does one
    thing at a time: modules that load libraries would wait for it with the GIL, and are imported before.
    """
    for name in _IMPORTED_BEFORE:
        importlib.import_module(name)

    def run() -> None:
        with suppress(IncompatibleEngineError):
            libtorch()

    thread = threading.Thread(target=run, name="trtcache-libtorch", daemon=True)
    thread.start()
    return thread


def _open_globally(path: Path) -> ctypes.CDLL:
    """Return a library whose symbols are visible to those loaded later.

    ``ctypes.CDLL`` holds the GIL while the dynamic linker works; a call of ``dlopen`` as a C function does not.

    Raises:
        OSError: it cannot be loaded.
    """
    process = ctypes.CDLL(None)
    process.dlopen.argtypes, process.dlopen.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    mode = os.RTLD_NOW | os.RTLD_GLOBAL
    handle = process.dlopen(os.fsencode(path), mode)
    # Without a handle ctypes tries again, and raises the linker's reason.
    return ctypes.CDLL(str(path), mode=mode, handle=handle)


class _Owner:
    """A tensor of torch, deleted with this object."""

    __slots__ = ("_delete", "handle", "kept")

    def __init__(self, delete: Any, handle: int) -> None:
        self._delete, self.handle = delete, handle
        self.kept: tuple[Any, ...] = ()  # memory that the tensor reads and does not own

    def __del__(self) -> None:
        self._delete(self.handle)


class LibTorch:
    """The C functions of ``libtorch_cpu.so``. Handles of tensors are addresses; the caller deletes new ones."""

    def __init__(self) -> None:
        """Load the library.

        Raises:
            IncompatibleEngineError: torch is not installed, or its libraries lack a function.
        """
        folder = torch_folder()
        if folder is None:
            raise IncompatibleEngineError("package", "torch is not installed here")
        try:
            # The dynamic linker finds a library that ``import torch`` has loaded, or later shares this one with it.
            self._library = _open_globally(folder / "lib" / "libtorch_cpu.so")
        except OSError as error:
            raise IncompatibleEngineError("package", f"torch's library cannot be loaded: {error}") from error
        if absent := [name for name in (*_NEEDED, _INIT_THREADS) if not hasattr(self._library, name)]:
            raise IncompatibleEngineError("package", f"torch's library has no {', '.join(absent)}")
        self._all = folder / "lib" / "libtorch.so"
        self._delete = self._library.aoti_torch_delete_tensor_object
        self._delete.argtypes = (ctypes.c_void_p,)
        self._codes = {name: int(getattr(self._library, f"aoti_torch_dtype_{name}")()) for name in ITEM_BYTES}
        self._names = {code: name for name, code in self._codes.items()}
        self._cpu = int(self._library.aoti_torch_device_type_cpu())
        self._strided = int(self._library.aoti_torch_layout_strided())
        create = self._library.aoti_torch_create_tensor_from_blob
        i64, i32, pointer = ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p
        create.argtypes = (pointer, i64, pointer, pointer, i64, i32, i32, i32, pointer)

    def _call(self, name: str, *args: Any) -> None:
        if getattr(self._library, name)(*args):
            raise RunError("aot_inductor", f"{name} failed; torch has written the reason to standard error")

    def load_all(self) -> None:
        """Load ``libtorch.so``, and with it all of torch's libraries, those for the GPU too.

        Raises:
            OSError: one of them cannot be loaded.
        """
        _open_globally(self._all)

    def init_threads(self) -> None:
        """Set the number of OpenMP's threads for calls of this thread, as ``import torch`` does in its thread."""
        getattr(self._library, _INIT_THREADS)()

    def tensor(self, array: HostArray) -> int:
        """Return a new tensor that reads an array's memory, which must outlive it."""
        rank = len(array.shape)
        kind = ctypes.c_int64 * rank
        handle = ctypes.c_void_p()
        self._call(
            "aoti_torch_create_tensor_from_blob",
            array.pointer,
            rank,
            kind(*array.shape),
            kind(*array.strides),
            0,
            self._codes[array.dtype],
            self._cpu,
            -1,
            ctypes.byref(handle),
        )
        return handle.value or 0

    def delete(self, handle: int) -> None:
        """Delete a tensor; its memory is freed if it owns it and no other tensor shares it."""
        self._delete(handle)

    def handles(self, arrays: Sequence[HostArray]) -> list[int]:
        """Return new tensors that read the arrays' memory."""
        handles: list[int] = []
        try:
            for array in arrays:
                handles.append(self.tensor(array))  # noqa: PERF401  # those before a failure are deleted
        except BaseException:
            for handle in handles:
                self.delete(handle)
            raise
        return handles

    def take(self, handles: Sequence[int]) -> list[HostArray]:
        """Return tensors as arrays, without lazy conjugation and negation; each deletes its tensor in the end."""
        # A package returns one handle several times for an output that occurs several times: it is deleted once.
        owners = {handle: _Owner(self._delete, handle) for handle in dict.fromkeys(handles) if handle}
        if not all(handles):
            raise RunError("aot_inductor", "it returned no tensor for an output")
        arrays = {handle: self._describe(owner) for handle, owner in owners.items()}
        plain = {handle: self._resolve(one) if one.dtype in _LAZY else one for handle, one in arrays.items()}
        return [plain[handle] for handle in handles]

    def _resolve(self, array: HostArray) -> HostArray:
        """Return an array without lazy conjugation and negation, which only torch knows of."""
        handle = ctypes.c_void_p()
        self._call("aoti_torch_new_tensor_handle", ctypes.c_void_p(array.owner.handle), ctypes.byref(handle))
        resolved = handle.value or 0
        for operator in (b"aten::resolve_conj", b"aten::resolve_neg"):
            resolved = self._dispatch(operator, b"", resolved)
        return self.own(resolved)

    def own(self, handle: int) -> HostArray:
        """Return a tensor as an array, which deletes it in the end.

        Raises:
            RunError: it is not a dense tensor in this process's memory.
        """
        return self._describe(_Owner(self._delete, handle))

    def _describe(self, owner: _Owner) -> HostArray:
        handle = owner.handle
        rank, code, device, layout = ctypes.c_int64(), ctypes.c_int32(), ctypes.c_int32(), ctypes.c_int32()
        self._call("aoti_torch_get_device_type", ctypes.c_void_p(handle), ctypes.byref(device))
        self._call("aoti_torch_get_layout", ctypes.c_void_p(handle), ctypes.byref(layout))
        self._call("aoti_torch_get_dtype", ctypes.c_void_p(handle), ctypes.byref(code))
        if device.value != self._cpu or layout.value != self._strided or code.value not in self._names:
            raise RunError("aot_inductor", "it returned a tensor that is not dense, on the CPU and of a known dtype")
        self._call("aoti_torch_get_dim", ctypes.c_void_p(handle), ctypes.byref(rank))
        sizes, strides = ctypes.POINTER(ctypes.c_int64)(), ctypes.POINTER(ctypes.c_int64)()
        self._call("aoti_torch_get_sizes", ctypes.c_void_p(handle), ctypes.byref(sizes))
        self._call("aoti_torch_get_strides", ctypes.c_void_p(handle), ctypes.byref(strides))
        pointer = ctypes.c_void_p()
        self._call("aoti_torch_get_data_ptr", ctypes.c_void_p(handle), ctypes.byref(pointer))
        count = rank.value
        shape, steps = (tuple(one[:count]) if count else () for one in (sizes, strides))
        return HostArray(self._names[code.value], shape, steps, pointer.value or 0, owner, "dlpack")

    def _dispatch(self, operator: bytes, overload: bytes, *handles: int) -> int:
        """Call an operator of tensors that returns one; it takes ownership of its arguments."""
        stack = (ctypes.c_uint64 * len(handles))(*handles)
        self._call("aoti_torch_call_dispatcher", operator, overload, stack)
        return int(stack[0])

    def empty(self, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> HostArray:
        """Return a new array in memory of torch."""
        rank, handle = len(shape), ctypes.c_void_p()
        kind = ctypes.c_int64 * rank
        self._call(
            "aoti_torch_empty_strided",
            ctypes.c_int64(rank),
            kind(*shape),
            kind(*strides),
            ctypes.c_int32(self._codes[dtype]),
            ctypes.c_int32(self._cpu),
            ctypes.c_int32(-1),
            ctypes.byref(handle),
        )
        return self.own(handle.value or 0)

    def copy_into(self, target: HostArray, source: HostArray) -> None:
        """Copy the values of an array into another of the same shape, converted to its dtype as ``copy_`` does."""
        into, of = self.handles([target, source])
        try:
            self._call("aoti_torch_copy_", ctypes.c_void_p(into), ctypes.c_void_p(of), ctypes.c_int32(0))
        finally:
            self.delete(into)
            self.delete(of)

    def copy(self, source: HostArray, strides: tuple[int, ...], dtype: str = "") -> HostArray:
        """Return a copy of an array with these strides, and another dtype if one is given."""
        made = self.empty(dtype or source.dtype, source.shape, strides)
        self.copy_into(made, source)
        return made

    def apply(self, operator: str, arguments: Sequence[HostArray | float]) -> HostArray:
        """Return the result of an operator of ``recipes.OPERATORS`` that works on each element, by torch's own kernel.

        A number is a tensor without dimensions, which as in torch takes no part in the choice of the dtype.
        """
        handles = [self.tensor(one) if isinstance(one, HostArray) else self._scalar(one) for one in arguments]
        if operator in {"add", "sub"}:
            result = ctypes.c_void_p()
            alpha = ctypes.c_double(-1.0 if operator == "sub" else 1.0)
            first, second = handles
            try:
                self._call(
                    "aoti_torch_cpu_add_Tensor",
                    ctypes.c_void_p(first),
                    ctypes.c_void_p(second),
                    alpha,
                    ctypes.byref(result),
                )
            finally:
                self.delete(first)
                self.delete(second)
            return self.own(result.value or 0)
        overload = b"Tensor" if operator in {"mul", "div"} else b""
        return self.own(self._dispatch(b"aten::" + operator.encode(), overload, *handles))

    def _scalar(self, number: float) -> int:
        handle = ctypes.c_void_p()
        name = "int64" if type(number) is int else "float64"
        value = ctypes.c_int64(int(number)) if name == "int64" else ctypes.c_double(number)
        self._call(f"aoti_torch_scalar_to_tensor_{name}", value, ctypes.byref(handle))
        return handle.value or 0
