"""Cache entries as returned to callers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from trtcache.config.atomic_write import atomic_write
from trtcache.store.format import DEFAULT_MEMBER, Content, EntryHeader

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from trtcache.digests import CacheKey
    from trtcache.store.reader import ArtifactFile, Buffer

Outcome: TypeAlias = Literal["hit", "built"]


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """The artifact of a build, from the cache or newly built.

    ``outcome`` is ``hit`` or ``built``; ``reason`` is why it was built (``absent``, ``corrupt:member``, ``recache``,
    ...), and None for a hit. ``path`` is the artifact file, or None if it could not be stored. ``load_s`` is the time
    spent in the cache: to find and verify a hit, or to store the result of a build.
    """

    key: CacheKey
    kind: str
    name: str | None
    build_s: float
    created_ns: int
    provenance: Mapping[str, str]
    outcome: Outcome
    reason: str | None
    path: Path | None
    load_s: float
    contents: Mapping[str, Content] = field(repr=False)

    @property
    def members(self) -> tuple[str, ...]:
        """Names of the members."""
        return tuple(self.contents)

    def read(self, name: str = DEFAULT_MEMBER) -> Buffer:
        """Return a member's bytes; those of a hit are exactly the verified bytes.

        Raises:
            KeyError: there is no member of this name.
            OSError: the member is an unstored file of the build function that cannot be read.
            CorruptBlobError: the member was built as a file, and the artifact was damaged after it was stored.
        """
        if name not in self.contents:
            raise KeyError(f"entry {self.key.digest[:16]} has no member {name!r}; it has {', '.join(self.members)}")
        content = self.contents[name]
        if isinstance(content, Path):
            return content.read_bytes()
        return bytes(content) if isinstance(content, bytearray) else content

    def write(self, name: str, path: str | os.PathLike[str]) -> None:
        """Write a member to a file, atomically.

        Raises:
            KeyError: there is no member of this name.
            OSError: the file cannot be written.
        """
        with atomic_write(Path(path)) as temporary, temporary.open("xb") as file:
            file.write(self.read(name))


class StoredContents(Mapping[str, "Content"]):
    """The members of an artifact that was just stored.

    Members built in memory are the same bytes objects, so later damage to the file cannot affect the caller. Members
    built as files, which may be deleted, are read from the artifact and verified on first access.
    """

    def __init__(self, file: ArtifactFile, built: Mapping[str, Content], *, mapped: bool) -> None:
        self._file = file
        self._mapped = mapped
        self._loaded = {name: content for name, content in built.items() if not isinstance(content, Path)}
        self._members = {member.name: member for member in file.header.members}

    def __getitem__(self, name: str) -> Content:
        if name not in self._loaded:
            self._loaded[name] = self._file.read(self._members[name], mapped=self._mapped)
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


def entry_of(
    header: EntryHeader,
    contents: Mapping[str, Content],
    *,
    path: Path | None,
    outcome: Outcome,
    reason: str | None = None,
    load_s: float = 0.0,
) -> Entry:
    """Return the entry described by a file's header."""
    return Entry(
        key=header.key,
        kind=header.kind,
        name=header.name,
        build_s=header.build_s,
        created_ns=header.created_ns,
        provenance=header.provenance,
        outcome=outcome,
        reason=reason,
        path=path,
        load_s=load_s,
        contents=contents,
    )
