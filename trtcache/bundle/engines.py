"""Engines of a program file: from its graph, its constants, a sidecar file, or a store.

``engines`` of ``trtcache.export`` is the placement. ``EnginePayload.storage``, the key ``way`` in the file's records,
is where an engine is:

| placement     | storage                                                                                        |
|---------------|------------------------------------------------------------------------------------------------|
| ``embed``     | ``text``: as base64 in the graph; ``constant``: in a constant of the program, if it is larger   |
| ``sidecar``   | ``file``: in a file beside the program                                                         |
| ``reference`` | ``store``: in a cache directory                                                                |
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal

from trtcache.backends.protocol import ENGINE
from trtcache.bundle.archive import MODEL, Checksum, ProgramArchive, is_private
from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import CacheKey, hash_bytes
from trtcache.errors import (
    CorruptBlobError,
    FormatVersionError,
    MissingEngineError,
    ProgramNamesError,
    SettingsError,
    TamperedProgramError,
)
from trtcache.runtime.report import PartitionReport
from trtcache.store.contract import Entry, entry_of

if TYPE_CHECKING:
    from trtcache.bundle.export import ProgramContents
    from trtcache.cache import Cache
    from trtcache.store.reader import Buffer

_CONSTANTS = "data/constants/"
_PLACEHOLDER = "torch.ops.trtcache.execute_engine.default"

PLACEMENTS = ("embed", "sidecar", "reference")
MAX_TEXT_BYTES = 16 << 20
"""The largest engine stored as text: torch needs 15 times its size in memory to open it."""

MAX_TOTAL_TEXT_BYTES = 64 << 20
"""The largest sum of the engines stored as text in one program."""

SIDECAR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\.trtc")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


class EngineReader:
    """The engines of one program. Malformed documents raise Python's own errors, which the caller converts."""

    def __init__(self, archive: ProgramArchive, targets: Any, cache: Cache | None) -> None:
        """Store where the engines are; nothing is read.

        Without a cache, referenced engines are looked up in the cache that the environment configures.
        """
        self._archive, self._targets, self._cache = archive, targets, cache
        self._path = str(archive.path)
        self._texts: list[str] | None = None

    def keep(self, entry: Entry) -> None:
        """Store an engine if the caller named a cache that does not have it.

        If it cannot be stored, the cache logs a warning.
        """
        parts = entry.key.document.get("parts")
        cacheable = isinstance(parts, dict) and "uncacheable" not in parts
        if self._cache is not None and cacheable and self._cache.peek(entry.key, counted=False) is None:
            self._cache.keep(entry.key, entry.contents, build_s=entry.build_s, name=entry.name)

    def entry(self, record: Any) -> Entry:
        """Return the entry of an engine.

        Raises:
            MissingEngineError: the program refers to a store that does not have it, or to a file that is unusable.
        """
        key = CacheKey.of_document(record["key"])
        if record["way"] == "file":
            return self._read_sidecar(str(record["file"]), key)
        if record["way"] == "store":
            from trtcache.cache import Cache

            store = self._cache if self._cache is not None else Cache()
            found = store.peek(key)
            if found is None:
                why = f"it refers to engine {key.digest[:16]}, which is not in {store.config.root}"
                remedy = "name the cache that has it (cache=, TRTCACHE_DIR), or export with engines='embed'"
                raise MissingEngineError(self._path, f"{why}; {remedy}")
            return found
        contents: dict[str, Any] = {name: self._archive.read(member) for name, member in record["members"].items()}
        contents[ENGINE] = self._read_embedded(record)
        return Entry(
            key=key,
            kind=str(record["kind"]),
            name=None if record["name"] is None else str(record["name"]),
            build_s=float(record["build_s"]),
            created_ns=int(record["created_ns"]),
            provenance={str(name): str(text) for name, text in record["provenance"].items()},
            outcome="hit",
            reason=None,
            path=None,
            load_s=0.0,
            contents=contents,
        )

    def _read_embedded(self, record: Any) -> bytes | memoryview:
        """Return an engine from the file, verified by its digest."""
        content: bytes | memoryview
        if record["way"] == "text":
            # Engines in the graph are text, in the order of the targets.
            if self._texts is None:
                model = json.loads(bytes(self._archive.read(MODEL)).decode())
                calls = [node for node in model["graph_module"]["graph"]["nodes"] if node["target"] == _PLACEHOLDER]
                arguments = [{item["name"]: item["arg"] for item in call["inputs"]} for call in calls]
                self._texts = [str(values["engine"]["as_string"]) for values in arguments]
            (target_index,) = (
                index
                for index, target in enumerate(self._targets)
                if any(engine is record for engine in target["engines"])
            )
            try:
                content = base64.b64decode(self._texts[int(record["node"])].split(",")[target_index], validate=True)
            except binascii.Error as error:
                raise ValueError(f"an engine that is not base64: {error}") from error
        elif record["way"] == "constant":
            constant = self._archive.read(f"{_CONSTANTS}tensor_trtcache_engine_{int(record['part'])}")
            offset, size = int(record["offset"]), int(record["size_bytes"])
            content = constant[offset : offset + size]
        else:
            raise ValueError(f"an engine with the unknown storage {record['way']!r:.20}")
        if f"b3:{hash_bytes(content).hex()}" != record["digest"]:
            why = f"the engine of partition {record['part']} does not match its digest"
            raise TamperedProgramError(self._path, why)
        return content

    def _read_sidecar(self, name: str, key: CacheKey) -> Entry:
        """Return the entry in a sidecar file.

        Raises:
            ProgramNamesError: its name is a path.
            MissingEngineError: it does not exist or cannot be used.
            TamperedProgramError: it is not the file that was written with the program.
        """
        if not SIDECAR.fullmatch(name):
            raise ProgramNamesError(self._path, f"a sidecar file has the invalid name {name!r:.80}")
        # It is next to the program, or next to the target of a symbolic link.
        from trtcache.store.reader import ArtifactFile  # it imports the decompression library

        path = self._archive.path.with_name(name)
        path = (path if path.exists() else self._archive.path.resolve().with_name(name)).resolve()
        try:
            with closing(ArtifactFile(path, anyones=True)) as file:
                header, found = file.header, Checksum(file.header.file_bytes, f"b3:{file.prelude.digest.hex()}")
                if found != self._archive.header.beside.get(name) or header.key != key:
                    raise TamperedProgramError(self._path, f"{name} is not the file that was written with it")
                contents: Any = file.load(mapped=is_private(file.stat) and file.stat.st_nlink == 1)
        except FileNotFoundError as error:
            why = f"its engines are in {name}, which must be in the same folder"
            raise MissingEngineError(self._path, f"{why}; copy that file as well") from error
        except CorruptBlobError as error:
            raise TamperedProgramError(self._path, f"the file of its engines is damaged: {error}") from error
        except (FormatVersionError, OSError) as error:
            raise MissingEngineError(self._path, f"the file of its engines cannot be used: {error}") from error
        return entry_of(header, contents, path=path, outcome="hit")


@frozen_dataclass
class EnginePayload:
    """One engine of one partition for one target.

    Attributes:
        partition, target: the partition's number and the target's index.
        entry: the entry.
        storage: ``text``, ``constant``, ``file`` or ``store``: where the engine is.
        size_bytes: the engine's size.
        digest: the engine's digest, ``b3:...``.
        offset: its offset in the partition's constant.
        file: the name of the sidecar file.
    """

    partition: int
    target: int
    entry: Entry
    storage: Literal["text", "constant", "file", "store"]
    size_bytes: int
    digest: str
    offset: int = 0
    file: str = ""

    @property
    def constant_bytes(self) -> int:
        """Its size within a constant; 0 if it is stored elsewhere."""
        return self.size_bytes if self.storage == "constant" else 0

    @property
    def content(self) -> Buffer:
        """The engine."""
        return self.entry.read(ENGINE)

    @property
    def text(self) -> str:
        """What the graph stores for this engine: the engine as base64, or where it is.

        It has no commas: those separate targets.
        """
        match self.storage:
            case "text":
                return base64.b64encode(self.content).decode("ascii")
            case "constant":
                return f"constant:{self.offset}:{self.size_bytes}:{self.digest}"
            case "file":
                return f"file:{self.file}:{self.digest}"
            case _:
                return f"store:{self.digest}"


def check_placement(placement: str) -> None:
    """Check a value of ``engines``.

    Raises:
        SettingsError: it is unknown.
    """
    if placement not in PLACEMENTS:
        raise SettingsError("engines", f"{placement!r} is not one of {', '.join(PLACEMENTS)}")


def make_payloads(contents: ProgramContents, placement: str, program: str) -> dict[int, list[EnginePayload]]:
    """Decide how a file stores each engine; return one payload for each target, by partition number."""
    check_placement(placement)
    # Portable characters, and different names for different programs.
    plain = _NOT_IN_NAMES.sub("-", program.removesuffix(".pt2")).strip("-._")[:100] or "program"
    safe = plain if program == f"{plain}.pt2" else f"{plain}-{hash_bytes(os.fsencode(program)).hex()[:8]}"
    left_bytes = MAX_TOTAL_TEXT_BYTES
    found: dict[int, list[EnginePayload]] = {}
    for target, origin in enumerate(contents.origins):
        for partition, entry in sorted(origin.entries.items()):
            payloads, content = found.setdefault(partition, []), entry.read(ENGINE)
            size, digest = len(content), f"b3:{hash_bytes(content).hex()}"
            if placement == "reference":
                payload = EnginePayload(partition, target, entry, "store", size, digest)
            elif placement == "sidecar":
                file = f"{safe}.{entry.key.digest[:16]}.trtc"
                payload = EnginePayload(partition, target, entry, "file", size, digest, file=file)
            elif size <= min(MAX_TEXT_BYTES, left_bytes):
                payload = EnginePayload(partition, target, entry, "text", size, digest)
                left_bytes -= size
            else:
                offset = sum(earlier.constant_bytes for earlier in payloads)
                payload = EnginePayload(partition, target, entry, "constant", size, digest, offset=offset)
            payloads.append(payload)
    return found


def record_of(payload: EnginePayload, members: Mapping[str, str], node: int) -> dict[str, object]:
    """Return an engine's record in the program file.

    ``members`` has the path in the archive of each member of the entry, except the engine; ``node`` is the index of the
    engine's call in the graph.
    """
    entry = payload.entry
    return {
        "part": payload.partition,
        "way": payload.storage,
        "node": node,
        "offset": payload.offset,
        "file": payload.file,
        "size_bytes": payload.size_bytes,
        "digest": payload.digest,
        "key": entry.key.document,
        "kind": entry.kind,
        "name": entry.name,
        "build_s": entry.build_s,
        "created_ns": entry.created_ns,
        "provenance": {name: text for name, text in entry.provenance.items() if name != "host"},
        "members": dict(members),
    }


def report_engine(entry: Entry, storage: str, *, weights: int, load_s: float, path: str) -> PartitionReport:
    """Return the report on a loaded engine of a program file.

    Args:
        entry: its entry.
        storage: where it is, as ``EnginePayload.storage``.
        weights: the number of its weights.
        load_s: seconds that loading took.
        path: the program file.
    """
    return PartitionReport(
        key=entry.key,
        outcome="hit" if storage == "store" else "carried",  # the program file, or one beside it, has the engine
        reason="",
        weights=weights,
        fetch_s=entry.load_s,
        load_s=load_s,
        build_s=entry.build_s,
        path=str(entry.path) if entry.path else path,
    )
