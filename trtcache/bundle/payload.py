"""How engines travel: as text in the graph, as a constant of the program, in a file beside it, or not at all."""

from __future__ import annotations

import base64
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from trtcache.backends.members import ENGINE
from trtcache.digests import hash_bytes
from trtcache.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.bundle.contents import Outgoing
    from trtcache.store.entry import Entry
    from trtcache.store.reader import Buffer

Way: TypeAlias = Literal["embed", "sidecar", "reference"]

WAYS = ("embed", "sidecar", "reference")
TEXT_BYTES = 16 << 20
"""The largest engine that goes as text: torch takes 15 times its size in memory to open it."""

ALL_TEXT_BYTES = 64 << 20
SIDECAR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\.trtc")
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Parcel:
    """One engine of one part for one target.

    Attributes:
        part, target: whose it is: the part's number, and the target's place.
        entry: the entry.
        way: ``text``, ``constant``, ``file`` or ``store``.
        size_bytes: of the engine.
        digest: of the engine, ``b3:...``.
        offset: where it begins in the part's constant.
        file: the name of the file beside the program.
    """

    part: int
    target: int
    entry: Entry
    way: Literal["text", "constant", "file", "store"]
    size_bytes: int
    digest: str
    offset: int = 0
    file: str = ""

    @property
    def constant_bytes(self) -> int:
        """How much of a constant it is."""
        return self.size_bytes if self.way == "constant" else 0

    @property
    def content(self) -> Buffer:
        """The engine."""
        return self.entry.read(ENGINE)

    @property
    def text(self) -> str:
        """What stands for the engine in the graph; it has no comma."""
        match self.way:
            case "text":
                return base64.b64encode(self.content).decode("ascii")
            case "constant":
                return f"constant:{self.offset}:{self.size_bytes}:{self.digest}"
            case "file":
                return f"file:{self.file}:{self.digest}"
            case _:
                return f"store:{self.digest}"


def check_way(way: str) -> None:
    """Accept one of ``WAYS``.

    Raises:
        SettingsError: it is none.
    """
    if way not in WAYS:
        raise SettingsError("engines", f"{way!r} is none of {', '.join(WAYS)}")


def parcels_of(outgoing: Outgoing, way: str, stem: str) -> dict[int, list[Parcel]]:
    """Decide how each engine travels; by the numbers of the parts, one for each target.

    Raises:
        SettingsError: ``way`` is none.
    """
    check_way(way)
    left = ALL_TEXT_BYTES
    found: dict[int, list[Parcel]] = {}
    for target, origin in enumerate(outgoing.origins):
        for number, entry in sorted(origin.entries.items()):
            before = found.setdefault(number, [])
            offset = sum(one.constant_bytes for one in before)
            made = _parcel(number, target, entry, way=way, left=left, offset=offset, stem=stem)
            left -= made.size_bytes if made.way == "text" else 0
            before.append(made)
    return found


def _parcel(part: int, target: int, entry: Entry, *, way: str, left: int, offset: int, stem: str) -> Parcel:
    content = entry.read(ENGINE)
    size, digest = len(content), f"b3:{hash_bytes(content).hex()}"
    if way == "reference":
        return Parcel(part, target, entry, "store", size, digest)
    if way == "sidecar":
        return Parcel(part, target, entry, "file", size, digest, file=f"{_plain(stem)}.{entry.key.digest[:16]}.trtc")
    if size <= min(TEXT_BYTES, left):
        return Parcel(part, target, entry, "text", size, digest)
    return Parcel(part, target, entry, "constant", size, digest, offset=offset)


def _plain(stem: str) -> str:
    """Return a name of letters that any system takes; programs of other names have other ones."""
    plain = _NO_NAME.sub("-", stem).strip("-._")[:100] or "program"
    return plain if plain == stem else f"{plain}-{hash_bytes(os.fsencode(stem)).hex()[:8]}"


def document(parcel: Parcel, members: Mapping[str, str], node: int) -> dict[str, object]:
    """Return what a file says of an engine.

    Args:
        parcel: the engine.
        members: where the other members of its entry are in the archive, by their names.
        node: which call of an engine in the graph it is.
    """
    entry = parcel.entry
    return {
        "part": parcel.part,
        "way": parcel.way,
        "node": node,
        "offset": parcel.offset,
        "file": parcel.file,
        "size_bytes": parcel.size_bytes,
        "digest": parcel.digest,
        "key": entry.key.document,
        "kind": entry.kind,
        "name": entry.name,
        "build_s": entry.build_s,
        "created_ns": entry.created_ns,
        "provenance": {name: text for name, text in entry.provenance.items() if name != "host"},
        "members": dict(members),
    }
