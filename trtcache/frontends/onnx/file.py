"""ONNX files: the model without its external data, and its tensors by reference."""

from __future__ import annotations

import mmap
import os
import re
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeGuard

from trtcache.digests import Digest
from trtcache.errors import OnnxFileError
from trtcache.frontends.onnx.tensors import EXTERNAL, Elements, ExternalData, state
from trtcache.frontends.onnx.validation import find_faults, iter_names

if TYPE_CHECKING:
    from pathlib import Path

SUFFIX = ".onnx"
_LONGEST_VARINT_BYTE = 127  # the length of a longer name takes two bytes
_MOST_BYTES = (1 << 31) - 1  # protobuf's limit

_OTHERS = (
    (b"PK\x03\x04", "it is a zip archive, such as torch.save and torch.export.save write"),
    (b"ORTM", "it is in ONNX Runtime's own format (.ort); give the .onnx file that it was converted from"),
    (b"version https://git-lfs", "it is a pointer of git-lfs, not the file itself; run: git lfs pull"),
    (b"<", "it is a web page or XML"),
)


def is_onnx(model: object) -> TypeGuard[str | os.PathLike[str]]:
    """Return whether a model is the path of an ONNX file, by its suffix."""
    return isinstance(model, (str, os.PathLike)) and os.fspath(model).endswith(SUFFIX)


class OnnxFile:
    """An ONNX model in a file.

    Attributes:
        path: the file's path.
        digest: the digest of the file itself; files with external data have digests of their own.
        external: the files with external data.
        elements: the reader of its tensors.
    """

    def __init__(self, path: Path) -> None:
        """Open, map and hash a file; nothing is parsed yet.

        Raises:
            OnnxFileError: the file does not exist, cannot be read, or is of another known format.
        """
        self.path = path
        try:
            with path.open("rb", buffering=0) as file:
                self._before = state(os.fstat(file.fileno()))
                self._bytes = memoryview(mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE))
        except FileNotFoundError as error:
            raise self.error("the file does not exist") from error
        except (OSError, ValueError) as error:  # ValueError: a file of no bytes
            why = error.strerror if isinstance(error, OSError) else "it is empty"
            raise self.error(f"it cannot be read: {why}") from error
        for begins, what in _OTHERS:
            if bytes(self._bytes[: len(begins)]) == begins:
                raise self.error(what)
        self.digest = Digest.of(self._bytes)
        self.external = ExternalData(path)
        self.elements = Elements(str(path), self.external)

    @cached_property
    def model(self) -> Any:
        """The ``ModelProto``, without external data.

        Raises:
            OnnxFileError: it is not an ONNX file, is ambiguous, or the ``onnx`` package is not installed.
        """
        if len(self._bytes) > _MOST_BYTES:
            remedy = "save it with external data: onnx.save(model, path, save_as_external_data=True)"
            raise self.error(f"it is larger than 2 GB, which protobuf cannot read; {remedy}")
        onnx = self._onnx()
        try:
            model = onnx.ModelProto.FromString(self._bytes)
        except Exception as error:  # google.protobuf.message.DecodeError, from the protobuf that onnx was built with
            raise self.error("it is not an ONNX file, or is damaged or cut off") from error
        if not model.HasField("graph") or not model.opset_import:
            raise self.error("it is not an ONNX file: it has no graph, or no opset versions")
        if not all(isinstance(name, str) for name in iter_names(model)):  # protobuf returns invalid UTF-8 as bytes
            raise self.error("it is damaged: a name in it is not valid UTF-8")
        for fault in find_faults(model):
            raise self.error(fault)
        return model

    def _onnx(self) -> Any:
        try:
            import onnx
        except ImportError as error:
            raise self.error("reading it needs the onnx package: pip install 'trtcache[tensorrt-rtx]'") from error
        return onnx

    @cached_property
    def initializers(self) -> dict[str, Any]:
        """The graph's initializers by name.

        Raises:
            OnnxFileError: ``model`` raises it.
        """
        return {tensor.name: tensor for tensor in self.model.graph.initializer}

    @cached_property
    def locations(self) -> list[str]:
        """The locations of external data in the model, sorted.

        Raises:
            OnnxFileError: ``model`` raises it.
        """
        locations: set[str] = set()
        for graph in (self.model.graph, *self.model.functions):
            for tensor in tensors_in(graph):
                if tensor.data_location == EXTERNAL:
                    locations |= {entry.value for entry in tensor.external_data if entry.key == "location"}
        return sorted(locations)

    def scan_locations(self) -> list[str]:
        """Return the locations of external data, without parsing the model if they can be found in its bytes.

        A tensor names its file in an entry of strings, ``{1: "location", 2: NAME}``. If every occurrence of that word
        has this form, the names found include all locations, and maybe others; otherwise the model is parsed.

        Raises:
            OnnxFileError: the model has to be parsed and cannot be.
        """
        found: set[str] = set()
        for match in re.finditer(b"location", self._bytes):
            start, end = match.span()
            length = self._bytes[end + 1] if len(self._bytes) > end + 1 else 0
            is_entry = (
                bytes(self._bytes[start - 2 : start]) == b"\x0a\x08" and bytes(self._bytes[end : end + 1]) == b"\x12"
            )
            name = bytes(self._bytes[end + 2 : end + 2 + length])
            if not is_entry or length > _LONGEST_VARINT_BYTE or not name.isascii():
                return self.locations
            found.add(name.decode())
        return sorted(found)

    def check_unchanged(self) -> None:
        """Check that neither the file nor its external data was written to since it was opened.

        Raises:
            OnnxFileError: one was.
        """
        with suppress(FileNotFoundError):
            now = state(self.path.stat())
            if now[0] == self._before[0] and now != self._before:
                raise self.error("it was written to while it was read; write a new file and rename it over this one")
        self.external.check_unchanged()

    def release(self) -> None:
        """Drop the parsed model; it is parsed again on the next access."""
        for name in ("model", "initializers"):
            self.__dict__.pop(name, None)

    def error(self, why: str) -> OnnxFileError:
        """Return an error of this file."""
        return OnnxFileError(str(self.path), why)


def tensors_in(graph: Any) -> list[Any]:
    """Return all tensors in a graph or function: initializers and attributes, also of the graphs inside it."""
    tensors = list(getattr(graph, "initializer", ()))
    for node in graph.node:
        for attribute in node.attribute:
            tensors += attribute.tensors
            if attribute.HasField("t"):
                tensors.append(attribute.t)
            for inner in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                tensors += tensors_in(inner)
    return tensors
