"""Layouts of the caches of other tools: torch_tensorrt (2.8 to 2.14) and onnxruntime.

torch_tensorrt has a folder for each partition, with one pickle ``blob.bin``. The folder has three digests for a name:
of the operators in order, of the input specs and of some settings. Nothing is unpickled: ``pickletools`` names the
instructions of a pickle and executes none, and the bytes of the engine are stored verbatim. Long values are not even
read: a placeholder records their location. The timing cache is by default a file in the same directory.

onnxruntime has ``*.engine`` with ``*.profile``, ``*.timing``, and ``*_ctx.onnx`` that refer to them. The name of an
engine contains that of the subgraph, derived from the model file name and the names of its inputs and nodes, and the
precision and compute capability (``_fp16_sm89``, ``_sm80+``). With ``ep_context_embed_mode`` the engine is in the
``EPContext`` model itself.
"""

from __future__ import annotations

import errno
import io
import os
import pickletools
import re
import stat
import struct
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from blake3 import blake3

from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import Digest

ENGINE: Final = "engine"


@frozen_dataclass
class Span:
    """A range of a file that has not been read."""

    offset: int
    size_bytes: int

    def __len__(self) -> int:
        return self.size_bytes


@frozen_dataclass
class Find:
    """One find: an engine, or another file of the cache.

    Attributes:
        name: its path below the cache's directory; with ``#`` and a number if a file has several engines.
        path: its file.
        what: ``engine``, ``timing``, ``profile``, ``context``, ``encrypted``, ``folder`` or ``other``.
        file_bytes: the size of the file.
        changed_ns: when the file was written, nanoseconds since 1970.
        state: ``sound``; or ``unsafe``, ``damaged``, ``orphan``, ``duplicate`` or ``no engine``: it cannot be imported.
        why: the reason for the state, or a remark.
        span: the location of the engine in the file.
        plan: its header.
        capabilities: its compute capabilities, ``8.9`` or ``8.0+``; ``told_by`` is where that was found: ``header``,
            ``name`` or ``context``.
        digest: the digest of the engine's bytes.
    """

    name: str
    path: Path
    what: str
    file_bytes: int = 0
    changed_ns: int = 0
    state: str = "no engine"
    why: str = ""
    span: Span | None = None
    plan: PlanHeader | None = None
    capabilities: tuple[str, ...] = ()
    told_by: str = ""
    digest: Digest | None = None

    @property
    def is_importable(self) -> bool:
        """Whether it can be imported."""
        return self.state == "sound"

    def rejected_as(self, state: str, why: str) -> Find:
        """Return this find with a state in which it cannot be imported."""
        return replace(self, state=state, why=why)


def label(name: str) -> str:
    """Return a file name as printable text, whatever its bytes are."""
    return os.fsencode(name).decode(errors="backslashreplace")


def open_find(find: Find) -> tuple[Find, PlainFile | None]:
    """Open a find's file; return it with its size, and the file unless another user could have written it."""
    try:
        file = PlainFile(find.path)
    except ValueError as error:
        return find.rejected_as("unsafe", str(error)), None
    except OSError as error:
        return find.rejected_as("unsafe", f"it cannot be read: {error.strerror}"), None
    sized = replace(find, file_bytes=file.size_bytes, changed_ns=file.changed_ns)
    if file.unsafe:
        file.close()
        return sized.rejected_as("unsafe", file.unsafe), None
    return sized, file


def inspect_engine(find: Find, file: PlainFile, span: Span) -> Find:
    """Return a find with the properties of the engine at a span of its file."""
    try:
        if span.offset + span.size_bytes > file.size_bytes:
            raise ValueError(f"it ends at {file.size_bytes}, within its engine")  # noqa: TRY301  # handled below
        plan = read_header(file.read(span.offset, HEADER_BYTES), span.size_bytes)
        digest = file.digest(span.offset, span.size_bytes)
    except ValueError as error:
        return find.rejected_as("damaged", str(error))
    found = replace(find, state="sound", span=span, plan=plan, digest=digest)
    return replace(found, capabilities=plan.capabilities, told_by="header" if plan.capabilities else "")


CHUNK_BYTES: Final = 1 << 20
_NO_FILE = {errno.ELOOP: "it is a link", errno.ENXIO: "it is a pipe", errno.ENODEV: "it is a device"}


class PlainFile:
    """An open file. ``unsafe`` says why another user could have written it, or is empty."""

    def __init__(self, path: Path) -> None:
        """Open ``path`` without following a link and without waiting.

        Raises:
            ValueError: it is a link, a pipe, a directory or a device.
            OSError: it cannot be opened.
        """
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            if error.errno in _NO_FILE:
                raise ValueError(_NO_FILE[error.errno]) from error
            raise
        self.close = weakref.finalize(self, os.close, self._fd)
        found = os.fstat(self._fd)
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise ValueError("it is not a regular file")
        self.size_bytes, self.changed_ns = found.st_size, found.st_mtime_ns
        self.unsafe = ""
        if found.st_uid not in (os.geteuid(), 0):
            self.unsafe = f"it belongs to user {found.st_uid}"
        elif found.st_nlink > 1:
            self.unsafe = "it has another name somewhere, a hard link, through which it can change"
        elif found.st_mode & 0o022:
            self.unsafe = "other users may write to it; if none did, run: chmod go-w"

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return bytes of the file; fewer at its end."""
        return os.pread(self._fd, size_bytes, offset)

    def chunks(self, offset: int, size_bytes: int) -> Iterator[bytes]:
        """Yield a range of the file in chunks of a MiB.

        Raises:
            ValueError: the file is shorter.
        """
        end = offset + size_bytes
        while offset < end:
            data = self.read(offset, min(CHUNK_BYTES, end - offset))
            if not data:
                raise ValueError(f"it ends at {offset}")
            yield data
            offset += len(data)

    def digest(self, offset: int, size_bytes: int) -> Digest:
        """Return the digest of a range of the file."""
        hasher = blake3()
        for data in self.chunks(offset, size_bytes):
            hasher.update(data)
        return Digest(hasher.hexdigest(), size_bytes)


HEADER_BYTES: Final = 64

_TENSORRT, _OLDER, _RTX = b"ftrt", b"ptrt", b"vtrt"
_RTX_LAYOUT = 2
_CAPABILITIES = ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1")
_FIELDS = struct.Struct("<4sIQQ4B4sI")


@frozen_dataclass
class PlanHeader:
    """A plan's library and compute capabilities; these are empty if the header does not contain them.

    ``version`` is None if its layout is unknown.
    """

    library: str
    version: str | None
    capabilities: tuple[str, ...]


def read_header(head: bytes, size_bytes: int) -> PlanHeader:
    """Parse the first bytes of a plan that is ``size_bytes`` long.

    Raises:
        ValueError: it is not a plan, or its length differs from the declared one.
    """
    if len(head) < HEADER_BYTES:
        raise ValueError(f"{len(head)} bytes are not a plan")
    tag, layout, kind, declared_bytes, *version, _, capabilities = _FIELDS.unpack_from(head)
    text = ".".join(map(str, version))
    if tag == _TENSORRT:
        return PlanHeader("TensorRT", text if layout == 0 else None, ())
    if tag == _OLDER:
        return PlanHeader("TensorRT", None, ())
    if tag != _RTX:
        raise ValueError("it does not start like a plan")
    if (layout, kind) != (0, _RTX_LAYOUT):
        return PlanHeader("TensorRT-RTX", None, ())
    if declared_bytes != size_bytes:
        raise ValueError(f"it is {size_bytes} bytes long, and its header declares {declared_bytes}")
    names = tuple(name for place, name in enumerate(_CAPABILITIES) if capabilities >> place & 1)
    return PlanHeader("TensorRT-RTX", text, names)


BLOB: Final = "blob.bin"
TIMING: Final = "timing_cache.bin"

_NOT_OF_LAYOUT = "it is not part of this layout"
_MAYBE_BARE = "its weights may not be in it: torch_tensorrt stores engines for refit"


def torch_tensorrt_finds(root: Path) -> Iterator[Find]:
    """Yield the content of a cache directory, by name."""
    for name in sorted(os.listdir(root)):  # noqa: PTH208  # only names are needed
        path = root / name
        try:
            status = path.lstat()
        except FileNotFoundError:  # removed by its tool meanwhile
            continue
        if stat.S_ISDIR(status.st_mode):
            yield from _partition(path, name, status)
        elif name == TIMING:
            yield _stat(Find(label(name), path, "timing", why="measurements of kernels, for a builder"))
        else:
            yield _stat(Find(label(name), path, "other", why=_NOT_OF_LAYOUT))


def _partition(path: Path, name: str, status: os.stat_result) -> Iterator[Find]:
    folder = Find(label(name), path, "folder")
    if status.st_mode & 0o022 or status.st_uid not in (os.geteuid(), 0):
        yield folder.rejected_as("unsafe", "other users may write to the folder; if none did, run: chmod go-w")
        return
    try:
        names = sorted(os.listdir(path))  # noqa: PTH208  # only names are needed
    except FileNotFoundError:  # removed by its tool meanwhile
        return
    except OSError as error:
        yield folder.rejected_as("unsafe", f"it cannot be read: {error.strerror}")
        return
    if BLOB not in names:
        yield folder.rejected_as("orphan", f"it has no {BLOB}")
    for inside in names:
        if inside != BLOB:
            yield _stat(Find(label(f"{name}/{inside}"), path / inside, "other", why=_NOT_OF_LAYOUT))
            continue
        find, file = open_find(Find(label(f"{name}/{inside}"), path / inside, ENGINE))
        if file is not None:
            try:
                find = inspect_engine(find, file, engine_in(file))
            except ValueError as error:
                find = find.rejected_as("damaged", str(error))
            finally:
                file.close()
        yield replace(find, why=_MAYBE_BARE) if find.is_importable else find


def _stat(find: Find) -> Find:
    sized, file = open_find(find)
    if file is not None:
        file.close()
    return sized


_SERIALIZED: Final = "serialized_engine"

_LONGEST_READ_BYTES = 64 << 10
_MOST_INSTRUCTIONS = 10_000
_TEXTS = {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
_BYTES = {"SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"}
_BETWEEN = {"MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "FRAME"}


class _Skipped(Span):
    """A range in place of its bytes. ``pickletools`` takes its length, and makes a bytearray of it, which is empty."""

    def __iter__(self) -> Iterator[int]:
        return iter(())


class _Instructions(io.BytesIO):
    """The input of ``pickletools``: short ranges are read, long ones are skipped. ``last`` is the last one."""

    def __init__(self, file: PlainFile) -> None:
        super().__init__()
        self._file, self._at = file, 0
        self.last = Span(0, 0)

    def tell(self) -> int:
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = min(self._file.size_bytes - self._at, size if size is not None else -1)
        if wanted > _LONGEST_READ_BYTES:
            self.last = _Skipped(self._at, wanted)
            self._at += wanted
            return self.last  # type: ignore[return-value]  # pickletools does not look into it
        data = self._file.read(self._at, max(0, wanted))
        self.last = Span(self._at, len(data))
        self._at += len(data)
        return data

    def readline(self, _size: int | None = -1, /) -> bytes:
        line = self._file.read(self._at, _LONGEST_READ_BYTES).partition(b"\n")
        self._at += len(line[0]) + len(line[1])
        return line[0] + line[1]


def engine_in(file: PlainFile) -> Span:
    """Return the location of the engine in a pickled entry.

    Raises:
        ValueError: it is not a pickle of an entry.
    """
    source, text = _Instructions(file), None
    try:
        for number, (instruction, value, _) in enumerate(pickletools.genops(source)):
            if number > _MOST_INSTRUCTIONS:
                break
            if instruction.name in _BYTES and text == _SERIALIZED:
                return Span(source.last.offset, source.last.size_bytes)
            if instruction.name not in _BETWEEN:
                text = value if instruction.name in _TEXTS else None
    except (ValueError, TypeError, OverflowError, AttributeError) as error:  # raised by pickletools for other bytes
        raise ValueError(f"it is not a pickle of an entry: {error!s:.100}") from error
    raise ValueError(f"it has no {_SERIALIZED!r}")


_CAPABILITY = re.compile(r"_sm(\d{2,3})(\+?)(?:\.stripped)?\.engine$")
_ARCHITECTURE = re.compile(r"(\d{2,3})(\+?)")
_PLAIN_NAME = re.compile(r"[^/\\\0]{1,255}")
_BESIDE = {
    ".timing": ("timing", "measurements of kernels, for a builder"),
    ".profile": ("profile", "the ranges of the sizes of an engine's inputs"),
    ".encrypted": ("encrypted", "an encrypted engine: it cannot be read without the key"),
}


def onnxruntime_finds(root: Path) -> Iterator[Find]:
    """Yield the content of a cache directory, by name."""
    names = sorted(os.listdir(root))  # noqa: PTH208  # only names are needed
    for name in names:
        path = root / name
        try:
            is_folder = stat.S_ISDIR(path.lstat().st_mode)
        except FileNotFoundError:  # removed by its tool meanwhile
            continue
        if is_folder:
            yield Find(label(name), path, "folder", why="folders are not searched")
        elif name.endswith(".engine"):
            yield _engine(Find(label(name), path, ENGINE))
        elif name.endswith(".onnx"):
            yield from _model(Find(label(name), path, "context"), names)
        else:
            what, why = _BESIDE.get(path.suffix, ("other", _NOT_OF_LAYOUT))
            found = _stat(Find(label(name), path, what, why=why))
            if what == "profile" and f"{path.stem}.engine" not in names and found.state != "unsafe":
                found = found.rejected_as("orphan", "there is no engine of its name")
            yield found


def _engine(find: Find) -> Find:
    find, file = open_find(find)
    if file is None:
        return find
    try:
        found = inspect_engine(find, file, Span(0, file.size_bytes))
    finally:
        file.close()
    if found.is_importable and not found.capabilities and (match := _CAPABILITY.search(found.name)):
        found = replace(found, capabilities=(_format_capability(match),), told_by="name")
    if found.is_importable and found.name.endswith(".stripped.engine"):
        found = replace(found, why="its weights are not in it: onnxruntime refits it from the ONNX file")
    return found


def _model(find: Find, names: list[str]) -> Iterator[Find]:
    found, file = open_find(find)
    if file is None:
        yield found
        return
    try:
        contexts = contexts_in(file)
        if not contexts:
            yield replace(found, what="other", why="a model without an EPContext node")
        for number, context in enumerate(contexts):
            one = found if len(contexts) == 1 else replace(found, name=f"{found.name}#{number}")
            if context.embedded is None:
                yield _reference(one, context, names)
                continue
            engine = inspect_engine(replace(one, what=ENGINE), file, context.embedded)
            match = _ARCHITECTURE.fullmatch(context.capability or "")
            if engine.is_importable and not engine.capabilities and match:
                engine = replace(engine, capabilities=(_format_capability(match),), told_by="context")
            yield engine
    except ValueError as error:
        yield found.rejected_as("damaged", f"it is not an ONNX file: {error}")
    finally:
        file.close()


def _reference(find: Find, context: Context, names: list[str]) -> Find:
    if not context.file or not _PLAIN_NAME.fullmatch(context.file):
        return find.rejected_as("unsafe", f"it names {context.file!r:.80}, which is not a file of this directory")
    if context.file not in names:
        return find.rejected_as("orphan", f"it names {context.file!r}, which is not here")
    return replace(find, why=f"it names {context.file}")


def _format_capability(match: re.Match[str]) -> str:
    return f"{match[1][:-1]}.{match[1][-1]}{match[2]}"


OPERATOR: Final = "EPContext"

_GRAPH, _NODE, _OP_TYPE, _ATTRIBUTE, _NAME, _INTEGER, _STRING = 7, 1, 4, 5, 1, 3, 4
_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5
_MOST_FIELDS = 200_000
_LONGEST_TEXT_BYTES = 4096


@frozen_dataclass
class Context:
    """One ``EPContext`` node: the embedded engine or its file name, and its GPU."""

    embedded: Span | None
    file: str | None
    capability: str | None
    model: str | None


@frozen_dataclass
class _Field:
    number: int
    integer: int
    span: Span | None


class _Reader:
    """The fields of messages. The total number of fields in a file is bounded."""

    def __init__(self, file: PlainFile) -> None:
        self._file = file
        self._left = _MOST_FIELDS

    def fields(self, span: Span) -> Iterator[_Field]:
        at, end = span.offset, span.offset + span.size_bytes
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise ValueError(f"more than {_MOST_FIELDS} fields")
            tag, at = self._varint(at, end)
            number, wire = tag >> 3, tag & 7
            if wire == _VARINT:
                integer, at = self._varint(at, end)
                yield _Field(number, integer, None)
            elif wire == _LENGTH:
                size_bytes, at = self._varint(at, end)
                if size_bytes > end - at:
                    raise ValueError("a field is longer than its message")
                yield _Field(number, 0, Span(at, size_bytes))
                at += size_bytes
            elif wire in (_EIGHT, _FOUR):
                at += 8 if wire == _EIGHT else 4
            else:
                raise ValueError(f"a field of the unknown type {wire}")

    def inside(self, span: Span, number: int) -> Iterator[Span]:
        return (field.span for field in self.fields(span) if field.number == number and field.span is not None)

    def text(self, span: Span) -> str:
        if span.size_bytes > _LONGEST_TEXT_BYTES:
            raise ValueError(f"a name of {span.size_bytes} bytes")
        return self._file.read(span.offset, span.size_bytes).decode()

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = 0
        for place, byte in enumerate(self._file.read(at, min(10, end - at))):
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value, at + place + 1
        raise ValueError("a number without an end")


def contexts_in(file: PlainFile) -> list[Context]:
    """Return the ``EPContext`` nodes of an ONNX file."""
    reader = _Reader(file)
    found = []
    for graph in reader.inside(Span(0, file.size_bytes), _GRAPH):
        for node in reader.inside(graph, _NODE):
            fields = list(reader.fields(node))
            kinds = [field.span for field in fields if field.number == _OP_TYPE and field.span is not None]
            if [reader.text(kind) for kind in kinds] == [OPERATOR]:
                found.append(_context(reader, [one.span for one in fields if one.number == _ATTRIBUTE and one.span]))
    return found


def _context(reader: _Reader, attributes: list[Span]) -> Context:
    integers: dict[str, int] = {}
    values: dict[str, Span] = {}
    for attribute in attributes:
        fields = list(reader.fields(attribute))
        name = next((reader.text(one.span) for one in fields if one.number == _NAME and one.span is not None), "")
        for field in fields:
            if field.number == _INTEGER:
                integers[name] = field.integer
            elif field.number == _STRING and field.span is not None:
                values[name] = field.span
    cache = values.get("ep_cache_context")
    embedded = integers.get("embed_mode", 1) == 1
    return Context(
        embedded=cache if embedded else None,
        file=reader.text(cache) if cache is not None and not embedded else None,
        capability=reader.text(values["hardware_architecture"]) if "hardware_architecture" in values else None,
        model=reader.text(values["onnx_model_filename"]) if "onnx_model_filename" in values else None,
    )
