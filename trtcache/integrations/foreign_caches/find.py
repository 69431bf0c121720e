"""One thing that another tool's cache holds, and whether it can be brought in."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from trtcache.integrations.foreign_caches.plain_file import PlainFile
from trtcache.integrations.foreign_caches.plan_header import HEADER_BYTES, read_header

if TYPE_CHECKING:
    from pathlib import Path

    from trtcache.digests import Digest
    from trtcache.integrations.foreign_caches.pickled import Span
    from trtcache.integrations.foreign_caches.plan_header import PlanHeader

ENGINE: Final = "engine"


@dataclass(frozen=True, slots=True)
class Find:
    """One thing in the cache: an engine, or something that lies beside engines.

    Attributes:
        name: its path below the cache's directory; of several engines in one file with ``#`` and a number.
        path: the file that it lies in.
        what: ``engine``, ``timing``, ``profile``, ``context``, ``encrypted``, ``folder`` or ``other``.
        file_bytes: what the file takes.
        changed_ns: when the file was written, nanoseconds since 1970.
        state: ``sound``; or ``unsafe``, ``damaged``, ``orphan``, ``duplicate`` or ``no engine``: it cannot be keyed.
        why: for whoever wonders about the state, and remarks.
        span: where in the file the engine's bytes are.
        plan: what its header says.
        capabilities: the compute capabilities that it is for, ``8.9`` or ``8.0+``, and in ``told_by`` who says so:
            ``header``, ``name`` or ``context``.
        digest: of the engine's bytes.
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
    def keyed(self) -> bool:
        """Whether it can be brought in."""
        return self.state == "sound"

    def refused(self, state: str, why: str) -> Find:
        """Return it as one that cannot be keyed."""
        return replace(self, state=state, why=why)


def label(name: str) -> str:
    """Return the name of a file as text that can be written anywhere, whatever its bytes are."""
    return os.fsencode(name).decode(errors="backslashreplace")


def looked_at(find: Find) -> tuple[Find, PlainFile | None]:
    """Open a thing's file; return it with its size, and the file if it is one that nobody else could have written."""
    try:
        file = PlainFile(find.path)
    except ValueError as error:
        return find.refused("unsafe", str(error)), None
    except OSError as error:
        return find.refused("unsafe", f"it cannot be read: {error.strerror}"), None
    sized = replace(find, file_bytes=file.size_bytes, changed_ns=file.changed_ns)
    if file.unsafe:
        file.close()
        return sized.refused("unsafe", file.unsafe), None
    return sized, file


def engine_of(find: Find, file: PlainFile, span: Span) -> Find:
    """Return a thing with what is known of the engine that lies in a part of its file.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        if span.offset + span.size_bytes > file.size_bytes:
            raise ValueError(f"it ends at {file.size_bytes}, within its engine")  # noqa: TRY301  # one way out
        plan = read_header(file.read(span.offset, HEADER_BYTES), span.size_bytes)
        digest = file.digest(span.offset, span.size_bytes)
    except ValueError as error:
        return find.refused("damaged", str(error))
    told_by = "header" if plan.capabilities else ""
    found = replace(find, state="sound", span=span, plan=plan, digest=digest)
    return replace(found, capabilities=plan.capabilities, told_by=told_by)
