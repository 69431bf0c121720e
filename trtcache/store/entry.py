"""Cache entries as returned to callers, builds on a miss, and validation of kinds, names and provenance.

Labels are validated before a build: a header that cannot be written would waste it.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from trtcache.config.frozen import frozen_dataclass
from trtcache.config.paths import atomic_write
from trtcache.errors import BuildError, CanonicalizationError
from trtcache.store.format import DEFAULT_MEMBER, Content, EntryHeader, contents_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from trtcache.digests import CacheKey
    from trtcache.store.format import Built
    from trtcache.store.reader import ArtifactFile, Buffer

COMPANIONS = frozenset({"alias", "memo", "direct", "direct-why", "runtime_cache", "timing_cache"})
"""Key aliases (``memo`` before they were renamed), manifests and miss reasons of direct mode, and TensorRT's caches."""

REMOTE = "remote"
"""Origin of an entry that this look-up fetched from a remote."""

_KIND = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")

Outcome: TypeAlias = Literal["hit", "built"]


def is_companion(kind: str) -> bool:
    """Return whether entries of this kind accompany engines; kinds of custom builders count as engines."""
    return kind in COMPANIONS


def check_kind(kind: object) -> None:
    """Validate a kind, such as ``aot_inductor``.

    Raises:
        CanonicalizationError: it is not 1 to 64 lower-case letters, digits, dots, underscores and hyphens.
    """
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        rule = "1 to 64 of a-z, 0-9, '.', '_' and '-', a letter or digit first"
        raise CanonicalizationError("kind", f"{kind!r:.100} is not {rule}")


def check_labels(name: object, provenance: object) -> None:
    """Validate a name, None or any Unicode text, and the provenance, None or a mapping of text to text.

    Raises:
        CanonicalizationError: one has another type.
    """
    texts: list[tuple[str, object]] = [] if name is None else [("name", name)]
    if provenance is not None:
        if not isinstance(provenance, Mapping):
            raise CanonicalizationError("provenance", f"expected a mapping of text, got {type(provenance).__name__}")
        for label, text in provenance.items():
            texts += [("a name in provenance", label), (f"provenance[{label!r}]", text)]
    for where, text in texts:
        if not isinstance(text, str):
            raise CanonicalizationError(where, f"expected text, got {type(text).__name__}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise CanonicalizationError(where, f"not valid Unicode: {error.reason}") from error


@frozen_dataclass(eq=False)
class Entry:
    """The artifact of a build, from the cache or newly built.

    ``outcome`` is ``hit`` or ``built``; ``reason`` is why it was built (``absent``, ``corrupt:member``, ``recache``,
    ...), and None for a hit. ``path`` is the artifact file, or None if it could not be stored. ``load_s`` is the time
    spent in the cache: to find and verify a hit, or to store the result of a build. ``origin`` is ``remote`` if this
    look-up fetched the entry from a remote, and otherwise empty. ``unstored`` is why a build could not be stored, and
    empty if it was.
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
    origin: str = ""
    unstored: str = ""

    @property
    def members(self) -> tuple[str, ...]:
        """Names of the members."""
        return tuple(self.contents)

    def read(self, name: str = DEFAULT_MEMBER) -> Buffer:
        """Return a member's bytes; those of a hit are exactly the verified bytes.

        Raises:
            KeyError: there is no member of this name.
            CorruptBlobError: the member was built as a file, and the artifact was damaged after it was stored.
        """
        if name not in self.contents:
            raise KeyError(f"entry {self.key.digest[:16]} has no member {name!r}; it has {', '.join(self.members)}")
        content: Any = self.contents[name]  # no path: it is stored, or in memory (``without_files``)
        return bytes(content) if isinstance(content, bytearray) else content

    def write(self, name: str, path: str | os.PathLike[str]) -> None:
        """Write a member to a file, atomically."""
        with atomic_write(Path(path)) as temporary, temporary.open("xb") as file:
            file.write(self.read(name))


class StoredContents(Mapping[str, "Content"]):
    """The members of an artifact that was just stored.

    Members built in memory are the same bytes objects, so later damage to the file cannot affect the caller. Members
    built as files, which may be deleted, are read from the artifact and verified on first access. It is closed when
    all members are in memory.
    """

    def __init__(self, file: ArtifactFile, built: Mapping[str, Content], *, mapped: bool) -> None:
        self._file = file
        self._mapped = mapped
        self._loaded = {name: content for name, content in built.items() if not isinstance(content, Path)}
        self._members = {member.name: member for member in file.header.members}
        self._lock = threading.Lock()
        self._close_if_loaded()

    def __getitem__(self, name: str) -> Content:
        with self._lock:
            if name not in self._loaded:
                self._loaded[name] = self._file.read(self._members[name], mapped=self._mapped)
                self._close_if_loaded()
            return self._loaded[name]

    def _close_if_loaded(self) -> None:
        if self._loaded.keys() >= self._members.keys():
            self._file.close()  # a mapping keeps its own reference to the file

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
    labels = (header.key, header.kind, header.name, header.build_s, header.created_ns, header.provenance)
    return Entry(*labels, outcome, reason, path, load_s, contents)


def without_files(entry: Entry, unstored: str = "") -> Entry:
    """Return a built entry that is not stored, with its members in memory: a later build may write to the same files.

    Raises:
        BuildError: a file cannot be read.
    """
    contents = dict(entry.contents)
    for name, file in entry.contents.items():
        if isinstance(file, Path):
            try:
                contents[name] = file.read_bytes()
            except OSError as error:
                raise BuildError(entry.kind, f"member {name!r}: {file} cannot be read: {error.strerror}") from error
    return replace(entry, contents=contents, unstored=unstored)


def run_build(
    key: CacheKey,
    build: Callable[[], Built],
    *,
    reason: str,
    name: str | None = None,
    provenance: Mapping[str, str] | None = None,
) -> Entry:
    """Build on a cache miss; return the entry with its contents in memory and in the build function's files."""
    import platform  # a hit needs neither import

    from trtcache.config.environment import installed_version

    began_s = time.perf_counter()
    contents = contents_of(build(), key.kind)
    build_s = time.perf_counter() - began_s
    machine = {
        "host": platform.node(),
        "platform": f"{platform.system()}-{platform.machine()}",
        "python": platform.python_version(),
        "trtcache": installed_version(),
    }
    labels = (key, key.kind, name, build_s, time.time_ns(), {**machine, **(provenance or {})})
    return Entry(*labels, "built", reason, None, 0.0, contents)
