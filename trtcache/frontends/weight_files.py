"""Weights from mapped files, hashing of these, and tensors of files that torch writes.

The kind of a file is detected from its first bytes: a ``.safetensors`` file, the ``.json`` index of several, a program
that ``torch.export.save`` wrote, or a state_dict that ``torch.save`` wrote, which is loaded with
``weights_only=True``. Replace a file that is in use by renaming a new one over it: overwriting it in place changes the
weights of every process that has it open.
"""

from __future__ import annotations

import ctypes
import logging
import math
import pickle
import threading
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trtcache.digests import Digest
from trtcache.errors import ExportError, WeightsFileError
from trtcache.weights.files import DTYPE_NAMES, SAVE_AGAIN, SUPPORTED, TensorRecord, damage, read_header, read_index
from trtcache.weights.files import LENGTH_BYTES as LENGTH_BYTES

if TYPE_CHECKING:
    import mmap


DTYPES: Mapping[str, torch.dtype] = {name: getattr(torch, dtype) for name, dtype in DTYPE_NAMES.items()}
"""Names of dtypes in safetensors files."""

_FOREIGN = (
    (b"GGUF", "it is a GGUF file"),
    (b"\x89HDF", "it is an HDF5 file"),
    (b"\x80\x02", "it is a pickle of torch before 1.6; load it there and save it again"),
    (b"\x80", "it is a pickle, which can run any code"),
)


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """Return the weights in a file by name, as views of the mapped file.

    Raises:
        WeightsFileError: the file does not exist, is damaged or truncated, or is of an unsupported kind.
    """
    try:
        return _read(path)
    except WeightsFileError:
        raise
    except ExportError as error:
        raise WeightsFileError(str(path), error.why) from error
    except OSError as error:
        raise WeightsFileError(str(path), error.strerror or str(error)) from error
    except (ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        raise WeightsFileError(str(path), f"it is damaged ({type(error).__name__}: {error})") from error


def _read(path: Path) -> dict[str, torch.Tensor]:
    with path.open("rb") as file:
        first = file.read(LENGTH_BYTES + 1)
    if first.startswith(b"PK"):
        return _archive(path)
    for mark, what in _FOREIGN:
        # A .safetensors file begins with a number and a brace.
        if first.startswith(mark) and first[LENGTH_BYTES:] != b"{":
            raise WeightsFileError(str(path), f"{what}; {SUPPORTED}")
    if path.suffix == ".json":
        return read_index(path, read_weights)
    header, content = read_header(path)
    return {name: tensor_at(one, content) for name, one in header.items()}


def tensor_at(described: Mapping[str, Any], content: memoryview) -> torch.Tensor:
    """Return a tensor that a safetensors header describes: a view of the bytes if they are aligned, else a copy.

    Raises:
        LookupError: its dtype is unknown.
        ValueError: its bytes are not within ``content``.
    """
    begin, end = described["data_offsets"]
    dtype, shape = DTYPES[described["dtype"]], described["shape"]
    if end - begin != math.prod(shape) * dtype.itemsize or not 0 <= begin <= end <= len(content):
        raise ValueError(f"a tensor of {dtype} and shape {shape} does not have {end - begin} bytes")
    return flat(content[begin:end], dtype).reshape(shape)


def _archive(path: Path) -> dict[str, torch.Tensor]:
    if why := damage(path):
        raise WeightsFileError(str(path), f"{why}; {SAVE_AGAIN}")
    with zipfile.ZipFile(path) as archive:
        if any(name.endswith("data.pkl") for name in archive.namelist()):
            return _state_dict(path)
    from trtcache.frontends.pt2 import Pt2Source  # constants of a stored engine are read without it

    with Pt2Source(path) as file:
        return file.weights(file.names)


def _state_dict(path: Path) -> dict[str, torch.Tensor]:
    try:
        state = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        why = str(error).split("\n", 1)[0][:200]
        raise WeightsFileError(
            str(path), f"torch.load(weights_only=True) cannot read it: {why}; {SUPPORTED}"
        ) from error
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        parts = ", ".join(map(str, state))[:100] if isinstance(state, dict) else type(state).__name__
        raise WeightsFileError(str(path), f"it has other things than weights ({parts}); save the state_dict alone")
    return dict(state)


log = logging.getLogger(__name__)


def flat(content: memoryview, dtype: torch.dtype, *, alignment: int = 1) -> torch.Tensor:
    """Return bytes as a flat tensor: a view of them if they are aligned, else a copy."""
    count = len(content) // dtype.itemsize
    if not count:
        return torch.empty(0, dtype=dtype)
    tensor = torch.frombuffer(content, dtype=torch.uint8)[: count * dtype.itemsize]
    if tensor.data_ptr() % math.lcm(dtype.itemsize, alignment):
        tensor = tensor.clone()
    return tensor.view(dtype)


def read_tensors(
    records: Mapping[str, TensorRecord],
    content_of: Callable[[str], memoryview],
    storages: dict[tuple[str, str, torch.device], torch.Tensor],
    *,
    device: torch.device | None = None,
) -> dict[str, torch.Tensor]:
    """Return tensors of torch's archive by name; tensors that share memory in the file do so here.

    Args:
        records: where each tensor is.
        content_of: returns the bytes of a member.
        storages: the members that were read as flat tensors, by member, dtype and device; new ones are added.
        device: where to put them; None for the devices that the records have.

    Raises:
        ValueError: one exceeds its member.
    """
    tensors = {}
    for name, record in records.items():
        place = (record.member, record.dtype, torch.device(record.device) if device is None else device)
        content = content_of(record.member)
        record.check_bytes(len(content))
        if place not in storages:
            storages[place] = flat(content, getattr(torch, record.dtype), alignment=16).to(place[2])
        tensors[name] = storages[place].as_strided(record.shape, record.strides, record.offset)
    return tensors


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
