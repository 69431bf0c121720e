"""Stores to copy from: many small entries quickly, and files that say what they should not."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtcache.digests import CacheKey, hash_bytes
from trtcache.store.disk import DiskStore
from trtcache.store.format import _PRELUDE, MAGIC, PRELUDE_BYTES, Draft, parse_prelude
from trtcache.store.writer import write_entry_file

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

HOSTILE = ("../../../etc/passwd", "/etc/passwd", "..", "a/../../b", "\x1b[2J", "\n", "a" * 5000, "con", "\u202e", "")
_NUMBERS = (0, -1, 1, 63, 4095, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 64, 1e308, -0.5, True, None, "7", [], {})


@contextmanager
def in_memory() -> Iterator[Path]:
    """Return a directory on a file system with free flushes, if there is one."""
    memory = Path("/dev/shm")  # noqa: S108  # a directory of our own is made in it
    path = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def fill(root: Path, count: int) -> DiskStore:
    """Make a store of small entries, written without the flushes of a put."""
    store = DiskStore.open(root)
    for number in range(count):
        key = CacheKey.of("test", {"n": number})
        contents = {"artifact": bytes([number % 251]) * (300 + number), "notes.json": b"{}"}
        with store.place(key.digest) as place:
            fd = os.open(place, os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o600)
            write_entry_file(fd, Draft(key, "test", f"model {number}", 1, 1.0, {}, contents))
            os.close(fd)
    return store


def files_of(root: Path) -> dict[str, bytes]:
    """Return the content of each entry's file by its path below the store."""
    return {str(path.relative_to(root)): path.read_bytes() for path in (root / "entries").rglob("*.trtc")}


def reheaded(raw: bytes, document: Any) -> bytes:
    """Return a file with another header and a matching digest, which anyone can write without signing."""
    prelude = parse_prelude(raw[:PRELUDE_BYTES], len(raw), "")
    body = json.dumps(document, sort_keys=True, separators=(",", ":")).encode().ljust(prelude.header_bytes)
    members = raw[4096:] if prelude.members_from <= 4096 else raw[prelude.members_from :]
    front_bytes = -(-(PRELUDE_BYTES + len(body)) // 4096) * 4096
    first = _PRELUDE.pack(MAGIC, prelude.version, len(body), 0, 0, front_bytes + len(members))
    return (first + hash_bytes(first + body) + body).ljust(front_bytes, b"\0") + members


def forged(raw: bytes, chance: random.Random) -> tuple[str, bytes]:
    """Return a file whose header has a wrong size, name, digest or key, and a description of it."""
    prelude = parse_prelude(raw[:PRELUDE_BYTES], len(raw), "")
    document = json.loads(raw[PRELUDE_BYTES : PRELUDE_BYTES + prelude.header_bytes])
    places = list(_places(document, ()))
    *way, last = chance.choice(places)
    inside = document
    for step in way:
        inside = inside[step]
    value: Any = chance.choice([*HOSTILE, *_NUMBERS])
    if chance.random() < 0.05:
        value = 1
        for _ in range(3000):
            value = [value]
    inside[last] = value
    try:
        return f"{'.'.join(map(str, (*way, last)))} = {value!r:.60}", reheaded(raw, document)
    except RecursionError:
        inside[last] = None
        return f"{last} = null", reheaded(raw, document)


def _places(value: Any, way: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in inside:
        yield (*way, name)
        yield from _places(one, (*way, name))
