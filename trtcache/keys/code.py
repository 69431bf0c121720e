"""The digest of this package's code, which key aliases depend on."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from trtcache.digests import Digest, file_bytes, hash_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_OTHER = frozenset({"bundle", "integrations", "runtime", "store"})
"""Packages that no cache key depends on. All others are digested, so that a new one cannot be forgotten."""


@functools.cache
def code_digest() -> Digest:
    """Return the digest of this package's code without ``_OTHER``: after a change to it no older alias is used."""
    root = str(Path(__file__).parents[1])
    parts: list[bytes] = []
    for path in sorted(_code_files(root, _OTHER)):
        name, content = path.removeprefix(root).encode(), file_bytes(path)
        parts += (b"%d:%b%d:" % (len(name), name, len(content)), content)
    framed = b"".join(parts)
    return Digest(hash_bytes(framed).hex(), len(framed))


def _code_files(folder: str, left_out: Collection[str] = ()) -> Iterator[str]:
    with os.scandir(folder) as found:
        for entry in found:
            if entry.is_dir():
                if entry.name not in left_out and entry.name != "__pycache__":
                    yield from _code_files(entry.path)
            elif entry.name.endswith(".py"):
                yield entry.path
