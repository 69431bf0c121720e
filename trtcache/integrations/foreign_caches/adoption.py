"""Import of engines from another tool's cache: a plan that can be inspected, and its execution.

Names in such a cache do not identify everything that an engine was built for, so an engine cannot get a trtcache key of
a program, and no compilation finds it. Its key consists of the tool, the name in its cache, and the digest of its
bytes. So it is stored, verified, signed, copied and listed like any entry.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from blake3 import blake3

from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import CacheKey, Digest
from trtcache.errors import SettingsError, StoreError, UnsafeStoreError
from trtcache.integrations.foreign_caches.layouts import Find, onnxruntime_finds, open_find, torch_tensorrt_finds
from trtcache.store.catalog import prune_after_put
from trtcache.store.index import write_rows
from trtcache.store.record import Record
from trtcache.store.root import check_safety

if TYPE_CHECKING:
    from trtcache.store.disk import DiskStore

    Advance: TypeAlias = Callable[[int], None]

_LOG = logging.getLogger("trtcache.integrations.foreign_caches")

KIND: Final = "adopted"
MEMBER: Final = "engine"
TOOLS: Final[Mapping[str, Callable[[Path], Iterator[Find]]]] = {
    "torch-tensorrt": torch_tensorrt_finds,
    "onnxruntime": onnxruntime_finds,
}
"""Tool -> the function that yields the content of its cache."""


@frozen_dataclass
class Adopted:
    """An imported engine, or why it was not imported."""

    find: Find
    key: CacheKey
    state: str
    why: str = ""


@frozen_dataclass
class AdoptionPlan:
    """The content of another tool's cache. Nothing has been imported yet."""

    tool: str
    finds: tuple[Find, ...]

    @property
    def engines(self) -> tuple[Find, ...]:
        """The engines that can be imported."""
        return tuple(find for find in self.finds if find.is_importable)

    def key(self, find: Find) -> CacheKey:
        """Return the key of an engine that can be imported."""
        assert find.digest is not None  # noqa: S101  # set for sound engines
        return adopted_key(self.tool, find.name, find.digest)

    def execute(
        self,
        store: DiskStore,
        *,
        pin: bool = False,
        max_size_bytes: int | None = None,
        max_entries: int | None = None,
        advance: Advance = lambda _file_bytes: None,
    ) -> tuple[Adopted, ...]:
        """Import all engines that can be; return the state of each: ``adopted``, ``there`` or ``changed``.

        Raises:
            ReadOnlyError: the store cannot be written.
            UntrustedWriterError: the store requires signatures, and this process has no trusted key.
            CorruptBlobError: the written entry cannot be read back.
            OSError: the disk is full or failing, or the source cannot be read.
        """
        done: list[Adopted] = []
        for find in self.engines:
            done.append(self._import_engine(find, store))
            digest = done[-1].key.digest
            if pin and done[-1].state != "changed":
                store.pin(digest)
            if done[-1].state == "adopted":
                record = Record.of(store.header(digest), store.stat(digest), pinned=digest in store.pins())
                try:
                    write_rows(store.index_root, put=[record])
                except StoreError as error:
                    _LOG.warning("%s", error)
                prune_after_put(store, max_size_bytes, max_entries, keep=[digest])
            advance(find.file_bytes)
        return tuple(done)

    def _import_engine(self, find: Find, store: DiskStore) -> Adopted:
        key, plan = self.key(find), find.plan
        if store.contains(key.digest):
            return Adopted(find, key, "there")
        provenance = {
            "adopted_from": self.tool,
            "file": find.name,
            "library": f"{plan.library} {plan.version or 'of unknown version'}" if plan else "",
            "capabilities": f"{', '.join(find.capabilities)} by its {find.told_by}"
            if find.capabilities
            else "not said",
            "written_ns": str(find.changed_ns),
        }
        with tempfile.TemporaryDirectory(prefix="trtcache-adopt-") as folder:
            copy = Path(folder) / MEMBER
            try:
                _copy(find, copy)
            except ValueError as error:
                return Adopted(find, key, "changed", str(error))
            name = Path(find.name).name if self.tool == "onnxruntime" else find.name[:32]
            store.put(key, {MEMBER: copy}, kind=KIND, name=name, provenance=provenance)
        store.events.append("put", kind=KIND, key=key.digest)
        return Adopted(find, key, "adopted")


def adopted_key(tool: str, name: str, engine: Digest) -> CacheKey:
    """Return the key of an imported engine: its tool, its name in that tool's cache, and its bytes."""
    return CacheKey.of(KIND, {"tool": tool, "name": name, "engine": engine})


def plan_adoption(tool: str, directory: Path, *, advance: Advance = lambda _file_bytes: None) -> AdoptionPlan:
    """Return the content of another tool's cache directory. All engines are read for their digests.

    ``advance`` is called with the size of each file when it is done.

    Raises:
        SettingsError: the tool is unknown.
        OSError: the directory cannot be read.
    """
    if tool not in TOOLS:
        raise SettingsError("tool", f"{tool!r} is not one of {', '.join(TOOLS)}")
    why = ""
    try:
        check_safety(directory.resolve(), directory)
    except UnsafeStoreError as error:
        why = error.why
    finds: list[Find] = []
    first: dict[str, str] = {}  # the names of engines by digest
    for find in TOOLS[tool](directory):
        advance(find.file_bytes)
        same = first.setdefault(find.digest.hex, find.name) if find.is_importable and find.digest and not why else ""
        if find.is_importable and why:
            finds.append(find.rejected_as("unsafe", why))
        elif same not in {"", find.name}:
            finds.append(find.rejected_as("duplicate", f"the same bytes as {same}"))
        else:
            finds.append(find)
    return AdoptionPlan(tool, tuple(finds))


def _copy(find: Find, copy: Path) -> None:
    """Copy an engine out of its file.

    Raises:
        ValueError: it has changed since it was inspected.
    """
    assert find.span is not None  # noqa: S101  # set for sound engines
    _, file = open_find(find)
    if file is None:
        raise ValueError("it is another file now")
    hasher = blake3()
    try:
        with copy.open("xb") as target:
            for data in file.chunks(find.span.offset, find.span.size_bytes):
                hasher.update(data)
                target.write(data)
    finally:
        file.close()
    if find.digest is None or hasher.hexdigest() != find.digest.hex:
        raise ValueError("it has changed since it was inspected")
