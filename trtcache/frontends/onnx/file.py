"""Reads ONNX files: the model without its external data, and its tensors by reference."""

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
_LONGEST_VARINT_BYTE = 127  # a longer name has its length in two bytes
_MOST_BYTES = (1 << 31) - 1  # protobuf reads no larger message

_OTHERS = (
    (b"PK\x03\x04", "it is a zip archive, such as torch.save and torch.export.save write"),
    (b"ORTM", "it is in ONNX Runtime's own format (.ort); give the .onnx file that it was made from"),
    (b"version https://git-lfs", "it is a pointer of git-lfs, not the file itself; run: git lfs pull"),
    (b"<", "it is a web page or XML"),
)


def is_onnx(model: object) -> TypeGuard[str | os.PathLike[str]]:
    """Say whether a model is the path of an ONNX file, by its name."""
    return isinstance(model, (str, os.PathLike)) and os.fspath(model).endswith(SUFFIX)


class OnnxFile:
    """A model in a file.

    Attributes:
        path: where it is.
        digest: of all bytes of the file itself; files with external data have digests of their own.
        external: the files beside it.
        elements: reads its tensors.
    """

    def __init__(self, path: Path) -> None:
        """Open, map and hash a file; nothing is parsed yet.

        Raises:
            OnnxFileError: there is no such file, or it cannot be one.
        """
        self.path = path
        try:
            with path.open("rb", buffering=0) as file:
                self._before = state(os.fstat(file.fileno()))
                self._bytes = memoryview(mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE))
        except FileNotFoundError as error:
            raise self.error("there is no such file") from error
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
        """The ``ModelProto``; external data is not in it.

        Raises:
            OnnxFileError: the file is none, says a thing twice, or the ``onnx`` package is not there.
        """
        if len(self._bytes) > _MOST_BYTES:
            remedy = "save it with external data: onnx.save(model, path, save_as_external_data=True)"
            raise self.error(f"it is larger than 2 GB, which protobuf cannot read; {remedy}")
        onnx = self._onnx()
        try:
            model = onnx.ModelProto.FromString(self._bytes)
        except Exception as error:  # google.protobuf.message.DecodeError, from whichever protobuf onnx was built with
            raise self.error("it is no ONNX file, or is damaged or cut off") from error
        if not model.HasField("graph") or not model.opset_import:
            raise self.error("it is no ONNX file: it has no graph, or does not say of which operators")
        if not all(isinstance(one, str) for one in iter_names(model)):  # protobuf gives bytes where they are no UTF-8
            raise self.error("it is damaged: a name in it is no text")
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
            OnnxFileError: as of ``model``.
        """
        return {one.name: one for one in self.model.graph.initializer}

    @cached_property
    def locations(self) -> list[str]:
        """The files with external data, as the model names them; all of them are looked for.

        Raises:
            OnnxFileError: one is not there, or is forbidden.
        """
        named: set[str] = set()
        for tensor in [one for graph in (self.model.graph, *self.model.functions) for one in tensors_in(graph)]:
            if tensor.data_location == EXTERNAL:
                named |= {one.value for one in tensor.external_data if one.key == "location"}
        return sorted(named)

    def scan_locations(self) -> list[str]:
        """Return the files with external data, without parsing the model where its bytes show them.

        A tensor names its file in an entry of strings, ``{1: "location", 2: NAME}``. If each place with that word is
        written like this, the names found are all names, and maybe some that are not; otherwise the model is parsed.

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
        """Make sure that neither the file nor its external data was written to since it was opened.

        Raises:
            OnnxFileError: one was.
        """
        with suppress(FileNotFoundError):
            now = state(self.path.stat())
            if now[0] == self._before[0] and now != self._before:
                raise self.error("it was written to while it was read; write a new file and rename it over this one")
        self.external.check_unchanged()

    def release(self) -> None:
        """Forget the parsed model; it is parsed again if it is asked for."""
        for name in ("model", "initializers"):
            self.__dict__.pop(name, None)

    def error(self, why: str) -> OnnxFileError:
        """Return an error of this file."""
        return OnnxFileError(str(self.path), why)


def tensors_in(graph: Any) -> list[Any]:
    """Return every tensor in a graph or function: initializers and attributes, those of the graphs inside it too."""
    found = list(getattr(graph, "initializer", ()))
    for node in graph.node:
        for attribute in node.attribute:
            found += attribute.tensors
            if attribute.HasField("t"):
                found.append(attribute.t)
            for inner in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                found += tensors_in(inner)
    return found
