"""Tensors, hashing and torch's error messages of files that torch.export.save writes."""

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
    from collections.abc import Iterator, Mapping


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
"""``ScalarType`` of torch/_export/serde/schema.py, as far as this reader knows it."""


def device_of(written: Mapping[str, Any]) -> torch.device:
    """Return the device that a file names."""
    kind, index = written["type"], written["index"]
    return torch.device(kind) if index is None else torch.device(kind, index)


def flat(content: memoryview, dtype: torch.dtype) -> torch.Tensor:
    """Return the elements in some bytes: those very bytes where they are aligned, else a copy."""
    count = len(content) // dtype.itemsize
    if not count:
        return torch.empty(0, dtype=dtype)
    tensor = torch.frombuffer(content, dtype=torch.uint8)[: count * dtype.itemsize]
    if tensor.data_ptr() % math.lcm(dtype.itemsize, 16):
        tensor = tensor.clone()
    return tensor.view(dtype)


_POPULATE_READ = 22  # MADV_POPULATE_READ of Linux 5.14: 6 ms for 90 MB, where a fault for each page cost 20
_POPULATED_BYTES = 1 << 24  # meanwhile no other thread gets new memory from the kernel


class Hashing(threading.Thread):
    """Brings a mapped file into memory, where the weights in it are first used, and hashes it if somebody asks."""

    def __init__(self, memory: mmap.mmap) -> None:
        super().__init__(name="trtcache-hashing", daemon=True)
        self._memory = memory
        self._decided = threading.Event()
        self._wanted = False
        self._digest: Digest | None = None

    def begin(self) -> None:
        """Hash it as soon as it is in memory."""
        self._wanted = True
        self._decided.set()

    def end(self) -> None:
        """Wait until nobody reads it any more."""
        self._decided.set()
        self.join()

    def result(self) -> Digest:
        """Return its digest, for which this may have to wait."""
        self.begin()
        self.join()
        if self._digest is None:  # it had ended without one
            self._digest = Digest.of(memoryview(self._memory))
        return self._digest

    def run(self) -> None:
        """Bring the pages in and hash them; both let other threads run."""
        start, size_bytes = ctypes.addressof(ctypes.c_char.from_buffer(self._memory)), len(self._memory)
        with suppress(AttributeError):  # a C library without it; the result does not matter
            madvise = ctypes.CDLL(None).madvise
            for at in range(0, size_bytes, _POPULATED_BYTES):
                step = min(_POPULATED_BYTES, size_bytes - at)
                madvise(ctypes.c_void_p(start + at), ctypes.c_size_t(step), _POPULATE_READ)
        self._decided.wait()
        if self._wanted:
            self._digest = Digest.of(memoryview(self._memory))


log = logging.getLogger(__name__)


class Complaint(logging.Filter):
    """Keeps what torch logs about a file that it cannot read, where it then raises something that says less."""

    error: BaseException | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the exception, and let the record through to those who asked for it."""
        if record.exc_info:
            self.error = record.exc_info[1]
        return log.isEnabledFor(logging.DEBUG)


@contextmanager
def listening(logger: str) -> Iterator[Complaint]:
    """Give what one of torch's loggers complains of meanwhile, without warnings."""
    theirs, complaint = logging.getLogger(logger), Complaint()
    theirs.addFilter(complaint)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield complaint
    finally:
        theirs.removeFilter(complaint)
