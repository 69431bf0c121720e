"""Tensors of files that torch writes and of modules, hashing of mapped files, and errors that torch only logs."""

from __future__ import annotations

import ctypes
import logging
import math
import threading
import warnings
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch

from trtcache.digests import Digest

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Iterator, Mapping


log = logging.getLogger(__name__)

DTYPES: Mapping[int, torch.dtype] = {
    1: torch.uint8,
    2: torch.int8,
    3: torch.int16,
    4: torch.int32,
    5: torch.int64,
    6: torch.float16,
    7: torch.float32,
    8: torch.float64,
    13: torch.bfloat16,
    12: torch.bool,
    9: torch.complex32,
    10: torch.complex64,
    11: torch.complex128,
    28: torch.uint16,
    34: torch.uint32,
    35: torch.uint64,
    29: torch.float8_e4m3fn,
    30: torch.float8_e5m2,
    31: torch.float8_e4m3fnuz,
    32: torch.float8_e5m2fnuz,
}
"""``ScalarType`` of torch/_export/serde/schema.py: the values that this reader supports."""

OF_ALL_BYTES = ".data/serialization_id"
"""The member with a hash over all members, weights too: torch/csrc/.../inline_container.cc."""

STRIDED = 7  # torch/_export/serde/schema.py, Layout


def device_of(written: Mapping[str, Any]) -> torch.device:
    """Return the device that a file names."""
    kind, index = written["type"], written["index"]
    return torch.device(kind) if index is None else torch.device(kind, index)


def flat(content: memoryview, dtype: torch.dtype) -> torch.Tensor:
    """Return bytes as a flat tensor: a view of them if they are aligned, else a copy."""
    count = len(content) // dtype.itemsize
    if not count:
        return torch.empty(0, dtype=dtype)
    tensor = torch.frombuffer(content, dtype=torch.uint8)[: count * dtype.itemsize]
    if tensor.data_ptr() % math.lcm(dtype.itemsize, 16):
        tensor = tensor.clone()
    return tensor.view(dtype)


def read_tensors(
    records: Mapping[str, Any], folder: str, content: Callable[[str], memoryview]
) -> dict[str, torch.Tensor]:
    """Return the tensors of a folder by name; tensors that share memory in the file do so here.

    Raises:
        ValueError: one is pickled, or exceeds its member.
    """
    flats: dict[tuple[str, torch.dtype], torch.Tensor] = {}
    found = {}
    for name, record in records.items():
        meta = record["tensor_meta"]
        if record["use_pickle"] is not False or meta["layout"] != STRIDED:
            raise ValueError(f"weight {name} is pickled, or not a dense tensor")
        place = (str(record["path_name"]), DTYPES[meta["dtype"]])
        if place not in flats:
            plain = content(f"{folder}{place[0]}")
            if len(plain) % place[1].itemsize:
                raise ValueError("a weight whose size is not a multiple of its dtype's")
            flats[place] = flat(plain, place[1])
        shape, stride = ([_size(one["as_int"]) for one in meta[what]] for what in ("sizes", "strides"))
        offset = _size(meta["storage_offset"]["as_int"])
        if len(shape) != len(stride):
            raise ValueError("a weight with more sizes than strides")
        count = math.prod(shape)
        last = offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) if count else -1
        if last >= len(flats[place]):
            raise ValueError("a weight that is larger than its bytes")
        found[str(name)] = flats[place].as_strided(shape, stride, offset if count else 0)
    return found


def _size(number: Any) -> int:
    if type(number) is not int or not 0 <= number < 1 << 62:
        raise ValueError(f"a weight of the size {number!r:.40}")
    return number


def register_tensor(root: torch.nn.Module, name: str, tensor: torch.Tensor, *, persistent: bool) -> None:
    """Register a parameter or buffer by its full name.

    Raises:
        ValueError: a module cannot have this name.
    """
    *path, last = name.split(".")
    module = root
    for step in path:
        inner = module._modules.get(step)
        if inner is None:
            inner = torch.nn.Module()
            module.add_module(step, inner)
        module = inner
    try:
        if isinstance(tensor, torch.nn.Parameter):
            module.register_parameter(last, tensor)
        else:
            module.register_buffer(last, tensor, persistent=persistent)
    except (KeyError, TypeError) as error:
        raise ValueError(f"a weight has the name {name!r}, which torch does not accept: {error}") from error


_POPULATE_READ = 22  # MADV_POPULATE_READ of Linux 5.14: 6 ms for 90 MB, where a fault for each page cost 20
_POPULATED_BYTES = 1 << 24  # meanwhile no other thread gets new memory from the kernel


_THREADED_FROM_BYTES = 1 << 20  # hashing less takes 0.3 ms: not longer than a thread takes to start and to end


class Hashing(threading.Thread):
    """Thread that reads the pages of a mapped file into memory, and hashes it on request.

    A small file has no thread: it is hashed when its digest is needed.
    """

    def __init__(self, memory: mmap.mmap) -> None:
        super().__init__(name="trtcache-hashing", daemon=True)
        self._memory = memory
        self._decided = threading.Event()
        self._wanted = False
        self._digest: Digest | None = None

    def start(self) -> None:
        """Start the thread, unless the file is small."""
        if len(self._memory) >= _THREADED_FROM_BYTES:
            super().start()

    def begin(self) -> None:
        """Hash the file as soon as it is in memory."""
        self._wanted = True
        self._decided.set()

    def end(self) -> None:
        """Wait until the thread does not read the file any more."""
        self._decided.set()
        if self.ident is not None:
            self.join()

    def result(self) -> Digest:
        """Return the file's digest, waiting for it if necessary."""
        self.begin()
        self.end()
        if self._digest is None:  # there is no thread, or it ended before the digest was requested
            self._digest = Digest.of(memoryview(self._memory))
        return self._digest

    def run(self) -> None:
        """Read the pages and hash them; both release the GIL."""
        start, size_bytes = ctypes.addressof(ctypes.c_char.from_buffer(self._memory)), len(self._memory)
        with suppress(AttributeError):  # a C library without madvise; only slower
            madvise = ctypes.CDLL(None).madvise
            for at in range(0, size_bytes, _POPULATED_BYTES):
                step = min(_POPULATED_BYTES, size_bytes - at)
                madvise(ctypes.c_void_p(start + at), ctypes.c_size_t(step), _POPULATE_READ)
        self._decided.wait()
        if self._wanted:
            self._digest = Digest.of(memoryview(self._memory))


class LoggedError(logging.Filter):
    """Captures the exception that torch logs before it raises a less specific one."""

    error: BaseException | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the record's exception, and pass the record on at level DEBUG only."""
        if record.exc_info:
            self.error = record.exc_info[1]
        return log.isEnabledFor(logging.DEBUG)


@contextmanager
def capture_logged_error(logger_name: str) -> Iterator[LoggedError]:
    """Capture the last exception that one of torch's loggers logs in the body, and ignore warnings."""
    logger, captured = logging.getLogger(logger_name), LoggedError()
    logger.addFilter(captured)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield captured
    finally:
        logger.removeFilter(captured)
