"""What attacks begin with: a shared store, keys, a reader who trusts one of them, and entries of known content."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from trtcache.config.signing_keys import SecretKey, Trust
from trtcache.digests import CacheKey, hash_bytes
from trtcache.store.contract import Entry, Miss
from trtcache.store.disk import DiskStore
from trtcache.store.format import MAGIC
from trtcache.store.root import share


class Succeeded(Exception):  # noqa: N818  # what an attack is not to do
    """An attack got what it wanted."""


MAIN, PULL = SecretKey("main", b"m" * 32), SecretKey("pull-request", b"p" * 32)


def key_of(number: int) -> CacheKey:
    """Return the key of the entry with this number."""
    return CacheKey.of("test", {"n": number})


def engine_of(number: int) -> bytes:
    """Return the content that the entry with this number has, if nobody has changed it."""
    return hash_bytes(b"engine %d" % number) * 300


@dataclass(frozen=True)
class Stage:
    """A folder with a shared store in it."""

    folder: Path

    @classmethod
    def set(cls, folder: Path) -> Stage:
        """Make the store, for the group of whoever runs this."""
        share(folder / "store", os.getgid())
        return cls(folder)

    @property
    def root(self) -> Path:
        """The store's directory."""
        return self.folder / "store"

    def open(self, key: SecretKey | None, *trusted: SecretKey) -> DiskStore:
        """Open the store as somebody who signs with a key and trusts others."""
        path = None
        if key is not None:
            path = self.folder / f"{key.name}.secret"
            if not path.exists():
                key.write(path)
        return DiskStore.open(self.root, trust=Trust(True, tuple(one.public for one in trusted), path))

    def main(self) -> DiskStore:
        """Open the store as ``main``, who trusts nobody else."""
        return self.open(MAIN, MAIN)

    def put(self, store: DiskStore, number: int, content: bytes | None = None) -> Path:
        """Put an entry, and return its file."""
        content = engine_of(number) if content is None else content
        store.put(key_of(number), {"artifact": content}, kind="test", name=f"engine {number}")
        return store.path(key_of(number).digest)

    def plant(self, number: int, raw: bytes) -> Path:
        """Write a file where an entry belongs, as anybody can who may write to the directory."""
        path = self.root / "entries" / key_of(number).digest[:2] / f"{key_of(number).digest}.trtc"
        path.parent.mkdir(mode=0o770, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(raw)
        return path


def served(store: DiskStore, number: int) -> bytes | None:
    """Ask for an entry; return None for a miss.

    Raises:
        Succeeded: it is served with a content that is not its own.
    """
    found = store.get(key_of(number))
    if isinstance(found, Miss):
        return None
    assert isinstance(found, Entry)
    content = bytes(found.read())
    if content != engine_of(number):
        raise Succeeded(f"entry {number} was served with {content[:20]!r}...")
    return content


def file_of(header: bytes, block: bytes = b"", members: bytes = b"", *, version: int = 1) -> bytes:
    """Return an artifact file of any header, signatures and members, whose digest of the front is right."""
    front_bytes = 64 + len(header) + len(block)
    members_from = -(-front_bytes // 4096) * 4096 if members else front_bytes
    sizes = [version, len(header), len(block), 0]
    first = MAGIC + b"".join(size.to_bytes(4, "little") for size in sizes)
    first += (members_from + len(members)).to_bytes(8, "little")
    front = first + hash_bytes(first + header + block) + header + block
    return front.ljust(members_from, b"\0") + members
