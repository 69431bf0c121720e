"""Tensors of an ONNX file as torch has them: its own memory where it lies right, else a copy."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import torch

from trtcache.frontends.onnx.elements import TYPES

if TYPE_CHECKING:
    from trtcache.frontends.onnx.file import OnnxFile


def tensor_of(file: OnnxFile, tensor: Any) -> torch.Tensor:
    """Return one tensor.

    Raises:
        OnnxFileError: its elements are not there, or are more or fewer than its shape says.
    """
    dtype = getattr(torch, file.elements.type_of(tensor.data_type, f"tensor {tensor.name!r}").name)
    flat = flat_of(file, tensor)
    if flat.data_ptr() % dtype.itemsize:
        flat = flat.clone()
    return flat.view(dtype).reshape(tuple(tensor.dims))


def flat_of(file: OnnxFile, tensor: Any) -> torch.Tensor:
    """Return a tensor's bytes.

    Raises:
        OnnxFileError: they are not there, or are more or fewer than its shape says.
    """
    content = file.elements.bytes_of(tensor)
    if content is None:
        content = memoryview(file.elements.unpack(tensor))
    if not len(content):
        return torch.empty(0, dtype=torch.uint8)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given buffer is not writable")  # nobody writes to it
        return torch.frombuffer(content, dtype=torch.uint8)


def size_bytes(tensor: Any) -> int:
    """Return how many bytes a tensor's elements have in memory."""
    bits: int = math.prod(tensor.dims) * TYPES[tensor.data_type].bits
    return (bits + 7) // 8
