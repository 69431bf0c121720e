"""Weights from mapped files: aligned tensors are not copied, and unused ones of safetensors are not read.

The kind of a file is detected from its first bytes: a ``.safetensors`` file, the ``.json`` index of several, a program
that ``torch.export.save`` wrote, or a state_dict that ``torch.save`` wrote, which is loaded with ``weights_only=True``.
Replace a file that is in use by renaming a new one over it: overwriting it in place changes the weights of every
process that has it open.
"""

from __future__ import annotations

import json
import pickle
import zipfile
from typing import TYPE_CHECKING, Any

import torch

from trtcache.errors import ExportError, WeightsFileError
from trtcache.weights.archive import SAVE_AGAIN, damage
from trtcache.weights.safetensors import DTYPE_NAMES, INDEX_LIMIT_BYTES, SUPPORTED, read_header
from trtcache.weights.safetensors import LENGTH_BYTES as LENGTH_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

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
        return _read_index(path)
    return _safetensors(path)


def _safetensors(path: Path) -> dict[str, torch.Tensor]:
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
    if begin == end:
        return torch.empty(shape, dtype=dtype)
    flat = torch.frombuffer(content[begin:end], dtype=torch.uint8)
    if flat.data_ptr() % dtype.itemsize:
        flat = flat.clone()
    return flat.view(dtype).reshape(shape)


def _read_index(path: Path) -> dict[str, torch.Tensor]:
    """Return the weights of the files in an index (``model.safetensors.index.json``)."""
    if path.stat().st_size > INDEX_LIMIT_BYTES:
        raise WeightsFileError(str(path), f"it is too large for an index of files; {SUPPORTED}")
    places: Mapping[str, str] = json.loads(path.read_bytes())["weight_map"]
    if outside := sorted(name for name in set(places.values()) if "/" in name or name.startswith(".")):
        raise WeightsFileError(str(path), f"it names files that are not beside it: {outside[0]}")
    files = {name: read_weights(path.with_name(name)) for name in sorted(set(places.values()))}
    return {name: files[place][name] for name, place in places.items()}


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
