"""Files that ``torch.export.save`` writes (``.pt2``): digests, weights without pickle, and the program.

Such a file is a zip archive with uncompressed members: a JSON document of the graph, one member for the bytes of each
weight, and JSON configurations with each weight's member and position. The file is opened and mapped once, and
everything is read from that mapping, so that replacing the file meanwhile has no effect.

It has two digests. That of the program leaves out the bytes of weights, on which no lowering depends: its cost does
not depend on the file's size, and a retrained model has the same. That of the whole file is computed by another
thread, and not at all if the file's stat fingerprint is unchanged.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import sys
import time
import zipfile
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import torch

from trtcache.config.paths import StatFingerprint
from trtcache.digests import Digest
from trtcache.errors import ModelFileError
from trtcache.frontends.exported import device_type_of_program
from trtcache.frontends.source import Source
from trtcache.frontends.weight_files import (
    Hashing,
    capture_logged_error,
    read_tensors,
)
from trtcache.lowering import TORCH_LOCK
from trtcache.lowering.device_guard import keep_device_guard
from trtcache.lowering.operators import refuse_replaced_kernels
from trtcache.weights import files as archives
from trtcache.weights.files import KNOWN_VERSION, TensorRecord, parse_device

log = logging.getLogger(__name__)

SUFFIX = ".pt2"
_GRAPH = "models/model.json"

_OTHERS = (
    ("constants.pkl", "it is a TorchScript file; rename it, since .pt2 is for exported programs"),
    ("data.pkl", "torch.save wrote it; load it, and give the torch.nn.Module"),
    ("data/aotinductor/", "it is a compiled package, not a program; give a file that torch.export.save wrote"),
)
_LEGACY = "serialized_exported_program.json"  # written by torch up to 2.7
_OTHER_FORM = (LookupError, TypeError, AttributeError, RuntimeError)  # RuntimeError: also nested too deeply
_ENGINES = "trtcache/header.json"  # written by trtcache.export
_SAVE_AGAIN = "save it again with torch.export.save"
_NOT_A_PROGRAM = "it is no exported program; give a file that torch.export.save wrote"


class Pt2Source(Source):
    """An exported program in a file.

    Attributes:
        path: the file's path.
        digest: the digest of the file without the bytes of its weights.
        name: its name in reports; by default the file's.

    Aligned weights are views of the mapped file, which all processes share. Replace a file that is in use by renaming a
    new one over it: overwriting it in place changes the weights of every process that has it open.
    """

    fingerprint_name: ClassVar[str] = "file"

    def __init__(self, path: Path, name: str | None = None, *, clock_ns: Callable[[], int] = time.time_ns) -> None:
        """Open and map a file, and start to read it into memory."""
        start = time.perf_counter()
        self.path, self.name = path, name or path.stem
        self._clock_ns = clock_ns
        self._known = False
        if path.suffix == ".onnx":
            what = "it is an ONNX file, which compile, key and build read and whose graph is not lowered"
            raise self._error(f"{what}; give a {SUFFIX} file that torch.export.save wrote")
        with ExitStack() as stack:
            try:
                self._opened_ns = clock_ns()
                self._file = stack.enter_context(path.open("rb", buffering=0))
                self._before, self._state = _state(self._file.fileno()), StatFingerprint.of(self._file.fileno())
                self._memory = mmap.mmap(self._file.fileno(), 0, flags=mmap.MAP_PRIVATE)
            except FileNotFoundError as error:
                hint = f"give a torch.nn.Module, a torch.export.ExportedProgram or the path of a {SUFFIX} file"
                raise self._error(f"the file does not exist; {hint}") from error
            except (OSError, ValueError) as error:  # ValueError: a file of no bytes
                why = error.strerror if isinstance(error, OSError) else "it is empty"
                raise self._error(f"it cannot be read: {why}") from error
            self._bytes = memoryview(self._memory)
            self._hashing = Hashing(self._memory)
            self._hashing.start()
            stack.callback(self._hashing.end)
            self._read_directory()
            members = {name: (info.compress_type, info.file_size, info) for name, info in self._members.items()}
            self.digest = archives.digest_without_weights(members, self._weights, partial(archives.raw, self._bytes))
            stack.pop_all()
        self._storages: dict[tuple[str, str, torch.device], torch.Tensor] = {}
        self.file_s = time.perf_counter() - start

    def __enter__(self) -> Pt2Source:
        """Return the file; ``with`` closes it, and tensors from it stay valid."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; tensors from it stay valid."""
        self._hashing.end()
        self._file.close()

    @property
    def label(self) -> str:
        """Its path."""
        return str(self.path)

    @property
    def content_digest(self) -> Digest:
        """The digest of all its bytes, which may have to be waited for."""
        return self._hashing.result()

    def expect_content(self, expected: Digest | None, file_stat: StatFingerprint | None) -> None:
        """Start to hash the file, unless it has the stat fingerprint that it had with the digest ``expected``."""
        self._known = expected is not None and file_stat == self._state
        if not self._known:
            self._hashing.begin()

    def stat_fingerprint(self) -> StatFingerprint | None:
        """Return the stat fingerprint of the file; None if a later change might not alter it."""
        state = self._state
        if not state.is_settled(self._opened_ns):
            now_ns = self._clock_ns()
            if not state.is_settled(now_ns) or Digest.of(self._bytes) != self.content_digest:
                return None
        return state if StatFingerprint.of(self._file.fileno()) == state else None

    def check_unchanged(self) -> None:
        """Check that the file was not written to since it was opened.

        Raises:
            ModelFileError: it was; the data may be a mixture of both.
        """
        if _state(self._file.fileno()) != self._before:
            raise self._error("it was written to while it was read; write a new file and rename it over this one")

    def check_content(self, expected: Digest | None) -> None:
        """Check that the weights are intact, and that the file was not written to since it was opened.

        The weights are intact if the file has the expected digest, or if their checksums match.
        """
        if not self._known and self.content_digest != expected:
            for name in self._weights:
                self._check_sum(name)
        self.check_unchanged()

    def check_digest(self) -> None:
        """Check that the file's bytes still have its digest.

        Raises:
            ModelFileError: they do not.
        """
        self.check_unchanged()
        if Digest.of(self._bytes) != self.content_digest:
            raise self._error("it was written to while it was read; write a new file and rename it over this one")

    def program(self) -> torch.export.ExportedProgram:
        """Load the program with ``torch.export.load``, which unpickles example inputs: the file must be trusted.

        Raises:
            ModelFileError: a member is damaged, or torch cannot read the file.
        """
        start = time.perf_counter()
        _ = self.content_digest  # a write to the file from here on changes the second digest
        for name in self._members:
            self._check_sum(name)
        self._file.seek(0)
        keep_device_guard()
        logged = None
        try:
            with TORCH_LOCK, capture_logged_error("torch.export") as logged:
                program: torch.export.ExportedProgram = torch.export.load(self._file)
        except Exception as error:
            log.debug("torch.export.load cannot read %s", self.path, exc_info=True)
            cause = (logged and logged.error) or error
            why = f"{type(cause).__name__}: {cause}".split("\n", 1)[0][:300]
            raise self._error(f"torch.export.load cannot read it ({why}){self._versions()}") from error
        self.check_digest()
        self.exported, self.load_s = program, time.perf_counter() - start
        return program

    @cached_property
    def device(self) -> torch.device:
        """The CUDA device of its weights and constants, or of its graph's tensors if it has none of them; or the CPU.

        Raises:
            ValueError: they are on several devices, or the archive's format is unknown.
        """
        try:
            metas = [meta for payload in self.records.values() if (meta := payload.get("tensor_meta"))]
            if not metas:
                graph = json.loads(bytes(self._content(_GRAPH)))["graph_module"]["graph"]
                metas = [*graph["tensor_values"].values()]
            found = {torch.device(parse_device(meta["device"])) for meta in metas} - {torch.device("cpu")}
        except _OTHER_FORM as error:
            raise ValueError(f"its weights are in an unknown format: {type(error).__name__}: {error}") from error
        if len(found) > 1:
            raise ValueError(f"its weights are on {', '.join(sorted(map(str, found)))}")
        return next(iter(found), torch.device("cpu"))

    @property
    def device_type(self) -> str:
        """The device type to choose a backend for."""
        return self.device.type if self.exported is None else device_type_of_program(self.exported)

    @property
    def names(self) -> tuple[str, ...]:
        """The program's names for its weights and constants.

        Raises:
            ValueError: the archive's format is unknown.
        """
        try:
            return tuple(self.records)
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"its weights are in an unknown format: {error!r}") from error

    @property
    def parameters(self) -> frozenset[str]:
        """The names of its weights that are parameters; empty if the archive's format is unknown."""
        with suppress(*_OTHER_FORM, ValueError):
            return frozenset(name for name, meta in self.records.items() if meta["is_param"])
        return frozenset()

    def fingerprint(self) -> Mapping[str, object]:
        """Return the digest of the file without the bytes of its weights.

        Raises:
            ValueError: a kernel of torch was replaced in this process, which may change what the file is lowered to.
        """
        refuse_replaced_kernels()
        return {self.fingerprint_name: self.digest}

    def weights(self, names: Collection[str]) -> dict[str, torch.Tensor]:
        """Return weights and constants by the program's names for them; those that share a member share memory.

        Raises:
            ValueError: one does not exist, or only torch can read it; the message says which.
        """
        try:
            payloads = {name: self.records[name] for name in names}
            records = {
                name: TensorRecord.parse(name, payload, f"data/{payload['folder']}/")
                for name, payload in payloads.items()
            }
            return read_tensors(records, self._content, self._storages)
        except _OTHER_FORM as error:
            raise ValueError(f"its weights are in an unknown format: {type(error).__name__}: {error}") from error

    @cached_property
    def records(self) -> Mapping[str, dict[str, Any]]:
        """The archive's metadata of each constant and weight.

        Raises:
            ValueError: the archive was written with another byte order.
        """
        if self._text("byteorder", sys.byteorder) != sys.byteorder:
            raise ValueError("it was written on a machine of another byte order")
        return archives.read_records(self._content)

    @cached_property
    def _weights(self) -> frozenset[str]:
        """The members that contain only the bytes of weights."""
        try:
            return archives.weight_members(self.records)
        except (*_OTHER_FORM, ValueError):
            return frozenset()

    def _read_directory(self) -> None:
        """Read the archive's members by name, without the name of the archive's root folder.

        Raises:
            ModelFileError: the file is not an exported program.
        """
        try:
            with zipfile.ZipFile(self._memory) as archive:  # type: ignore[call-overload]  # has read, seek and tell
                infos = archive.infolist()
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
            begins = bytes(self._bytes[:2]) == b"PK"
            what = f"it is damaged or cut off; {_SAVE_AGAIN}" if begins else _NOT_A_PROGRAM
            raise self._error(what) from error
        if infos and min(info.header_offset for info in infos):  # truncated after an archive inside it
            raise self._error(f"it is damaged or cut off; {_SAVE_AGAIN}")
        root = infos[0].filename.partition("/")[0] + "/" if infos else ""
        self._members = {info.filename.removeprefix(root): info for info in infos}
        if len(self._members) != len(infos):
            raise self._error(f"it is damaged (two of its members have one name); {_SAVE_AGAIN}")
        if _LEGACY not in self._members:
            self._check_format()

    def _check_format(self) -> None:
        if self._text("archive_format") != "pt2" or _GRAPH not in self._members:
            for mark, what in _OTHERS:
                if any(name.startswith(mark) for name in self._members):
                    raise self._error(what)
            raise self._error(f"it is a zip archive, but not an exported program; {_SAVE_AGAIN}")
        if _ENGINES in self._members:
            raise self._error(archives.HAS_ENGINES)
        version = self._text("archive_version", KNOWN_VERSION)
        if version != KNOWN_VERSION:
            what = f"it is of archive version {version}, and version {KNOWN_VERSION} is known"
            raise self._error(f"{what}{self._versions()}; upgrade torch and trtcache, or {_SAVE_AGAIN} of this torch")

    def _text(self, name: str, otherwise: str = "") -> str:
        if name not in self._members:
            return otherwise
        with suppress(ValueError):
            return bytes(self._content(name)).decode(errors="replace").strip()
        return ""

    def _versions(self) -> str:
        """Return the version of torch that saved the file, as the end of a message; empty if it is unknown."""
        with suppress(ValueError, *_OTHER_FORM):
            saved = json.loads(bytes(self._content(_GRAPH)))["torch_version"]
            return f"; it was saved by torch {saved}, and this is {torch.__version__}"
        return ""

    def _content(self, name: str) -> memoryview:
        """Return a member's bytes, as a view of the file if they are not compressed.

        Raises:
            ValueError: the member does not exist, or is not within the file.
        """
        info = self._members.get(name)
        if info is None:
            raise ValueError(f"it has no member {name}")
        return archives.content(self._bytes, info)

    def _check_sum(self, name: str) -> None:
        if why := archives.member_damage(self._bytes, self._members[name], name=name):
            raise self._error(f"it is damaged ({why}); {archives.SAVE_AGAIN}")

    def _error(self, why: str) -> ModelFileError:
        return ModelFileError(str(self.path), why)


def _state(descriptor: int) -> tuple[int, int]:
    """Return a file's size and mtime. The ctime is left out: it changes when another file is renamed over this one."""
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns
