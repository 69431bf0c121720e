"""Bring in engines that another tool cached: what there is as a plan that can be looked at, and the carrying out.

No name in such a cache says all that an engine was built for, so none of them can stand for a key of trtcache's own,
and nothing that compiles asks for what was adopted. Its key says where it comes from: the tool, the name that it has
there, and the digest of its bytes. So it is kept, verified, signed, copied and listed as any entry is.
"""

from __future__ import annotations

import logging
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from blake3 import blake3

from trtcache.digests import CacheKey, Digest
from trtcache.errors import SettingsError, StoreError, UnsafeStoreError
from trtcache.integrations.foreign_caches import onnxruntime_cache, torch_tensorrt_cache
from trtcache.integrations.foreign_caches.find import Find, looked_at
from trtcache.store.gc import prune_after_put
from trtcache.store.index import write_rows
from trtcache.store.record import Record
from trtcache.store.safety import check_safety

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trtcache.store.disk import DiskStore

    Advance: TypeAlias = Callable[[int], None]

_LOG = logging.getLogger("trtcache.integrations.foreign_caches")

KIND: Final = "adopted"
MEMBER: Final = "engine"
TOOLS: Final[Mapping[str, Callable[[Path], Iterator[Find]]]] = {
    "torch-tensorrt": torch_tensorrt_cache.finds,
    "onnxruntime": onnxruntime_cache.finds,
}
"""Tool -> what yields what its cache holds."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """An engine that was brought in, or why it could not be."""

    find: Find
    key: CacheKey
    state: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class AdoptionPlan:
    """What another tool's cache holds. Nothing has been brought in yet."""

    tool: str
    finds: tuple[Find, ...]

    @property
    def engines(self) -> tuple[Find, ...]:
        """What can be brought in."""
        return tuple(find for find in self.finds if find.keyed)

    def key(self, find: Find) -> CacheKey:
        """Return the key of an engine that can be brought in."""
        assert find.digest is not None  # noqa: S101  # a sound one has been read
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
        """Bring in all engines that can be, and return what became of each: ``adopted``, ``there`` or ``changed``.

        Raises:
            ReadOnlyError: the store cannot be written.
            UntrustedWriterError: the store asks for signatures, and this process has no key that counts.
            CorruptBlobError: what was written does not read back.
            OSError: the disk is full or failing, or what was there cannot be read.
        """
        done: list[Adopted] = []
        for find in self.engines:
            done.append(self._bring(find, store))
            if pin and done[-1].state != "changed":
                store.pin(done[-1].key.digest)
            if done[-1].state == "adopted":
                _tend(store, done[-1].key.digest, max_size_bytes, max_entries)
            advance(find.file_bytes)
        return tuple(done)

    def _bring(self, find: Find, store: DiskStore) -> Adopted:
        key = self.key(find)
        if store.path(key.digest).exists():
            return Adopted(find, key, "there")
        with tempfile.TemporaryDirectory(prefix="trtcache-adopt-") as folder:
            copy = Path(folder) / MEMBER
            try:
                _copy(find, copy)
            except ValueError as error:
                return Adopted(find, key, "changed", str(error))
            name = Path(find.name).name if self.tool == "onnxruntime" else find.name[:32]
            store.put(key, {MEMBER: copy}, kind=KIND, name=name, provenance=_provenance(self.tool, find))
        store.events.append("put", kind=KIND, key=key.digest)
        return Adopted(find, key, "adopted")


def adopted_key(tool: str, name: str, engine: Digest) -> CacheKey:
    """Return the key of an engine that was brought in: by whose cache it was in, under which name, and its bytes."""
    return CacheKey.of(KIND, {"tool": tool, "name": name, "engine": engine})


def plan_adoption(tool: str, directory: Path, *, advance: Advance = lambda _file_bytes: None) -> AdoptionPlan:
    """Return what the cache of another tool in a directory holds. All of its engines are read for their digests.

    ``advance`` is called with the bytes of each file as it is done.

    Raises:
        SettingsError: the tool is not known.
        OSError: the directory cannot be read.
    """
    if tool not in TOOLS:
        raise SettingsError("tool", f"{tool!r} is none of {', '.join(TOOLS)}")
    finds: list[Find] = []
    objection = _objection(directory)
    first: dict[str, str] = {}
    for find in TOOLS[tool](directory):
        advance(find.file_bytes)
        finds.append(_judged(find, objection, first))
    return AdoptionPlan(tool, tuple(finds))


def _judged(find: Find, objection: str, first: dict[str, str]) -> Find:
    """Return a thing as what it is beside the others: ``first`` has the names of the engines by their digests."""
    if not find.keyed or find.digest is None:
        return find
    if objection:
        return find.refused("unsafe", objection)
    same = first.setdefault(find.digest.hex, find.name)
    return find if same == find.name else find.refused("duplicate", f"the same bytes as {same}")


def _objection(directory: Path) -> str:
    try:
        check_safety(directory.resolve(), directory)
    except UnsafeStoreError as error:
        return error.why
    return ""


def _copy(find: Find, copy: Path) -> None:
    """Copy an engine out of its file.

    Raises:
        ValueError: it is not what it was when it was looked at.
        OSError: it cannot be read, or the copy cannot be written.
    """
    assert find.span is not None  # noqa: S101  # a sound one has been found
    _, file = looked_at(find)
    if file is None:
        raise ValueError("it is another file by now")
    hasher = blake3()
    try:
        with copy.open("xb") as target:
            for data in file.chunks(find.span.offset, find.span.size_bytes):
                hasher.update(data)
                target.write(data)
    finally:
        file.close()
    if find.digest is None or hasher.hexdigest() != find.digest.hex:
        raise ValueError("it was written to since it was looked at")


def _provenance(tool: str, find: Find) -> dict[str, str]:
    plan = find.plan
    return {
        "adopted_from": tool,
        "file": find.name,
        "library": f"{plan.library} {plan.version or 'of unknown version'}" if plan else "",
        "capabilities": f"{', '.join(find.capabilities)} by its {find.told_by}" if find.capabilities else "not said",
        "written_ns": str(find.changed_ns),
    }


def _tend(store: DiskStore, digest: str, max_size_bytes: int | None, max_entries: int | None) -> None:
    record = Record.of(store.header(digest), store.stat(digest), pinned=digest in store.pins())
    try:
        write_rows(store.index_root, put=[record])
    except StoreError as error:
        _LOG.warning("%s", error)
    prune_after_put(store, max_size_bytes, max_entries, keep=[digest])
