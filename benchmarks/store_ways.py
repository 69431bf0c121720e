"""Ways to keep one artifact in a directory: the store, plain files, zstd, ``diskcache``, and torch_tensorrt's."""

from __future__ import annotations

import mmap
import os
import random
from typing import TYPE_CHECKING, Protocol

from blake3 import blake3

from benchmarks import engine_cache
from trtcache.digests import CacheKey
from trtcache.store.contract import Entry
from trtcache.store.disk import DiskStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_THREADED_FROM_BYTES = 1 << 20
_MOST_BYTES = 64 << 20  # `randbytes` has an upper limit of 256 MiB


def content_of(size_bytes: int) -> bytes:
    """Return bytes that do not compress, as weights and most plans do not."""
    source = random.Random(size_bytes)  # noqa: S311  # no secret
    whole, rest = divmod(size_bytes, _MOST_BYTES)
    return b"".join(source.randbytes(count) for count in (*[_MOST_BYTES] * whole, rest))


class Way(Protocol):
    """One way, with one artifact in its own directory."""

    def __init__(self, folder: Path, content: bytes) -> None: ...

    def actions(self) -> Mapping[str, Callable[[], object]]:
        """Return what is timed, in order."""
        ...


class Ours:
    """``DiskStore``: hashed, verified, flushed."""

    def __init__(self, folder: Path, content: bytes) -> None:
        """Make an empty store."""
        self._store, self._content, self._key = DiskStore.open(folder), content, CacheKey.of("benchmark", {"n": 1})

    def actions(self) -> Mapping[str, Callable[[], object]]:
        """Return a put and a get."""
        return {"put": self._put, "get": self._get}

    def _put(self) -> None:
        self._store.put(self._key, {"artifact": self._content}, kind="benchmark")

    def _get(self) -> None:
        found = self._store.get(self._key)
        assert isinstance(found, Entry)
        assert len(found.read()) == len(self._content)


class Plain:
    """A file: written, flushed and renamed; read, read with its BLAKE3 digest, and mapped and hashed by all cores."""

    def __init__(self, folder: Path, content: bytes) -> None:
        """Make the directory."""
        folder.mkdir()
        self._path, self._content = folder / "artifact", content

    def actions(self) -> Mapping[str, Callable[[], object]]:
        """Return a put, a get, a get with a digest, and the limit of a get that verifies."""
        return {
            "put": lambda: self._put(self._content),
            "get": self._path.read_bytes,
            "get_and_hash": self._hashed,
            "map_and_hash": self._mapped,
        }

    def _put(self, content: bytes) -> None:
        temporary = self._path.with_suffix(".tmp")
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(self._path)

    def _hashed(self) -> None:
        blake3(self._path.read_bytes()).digest()

    def _mapped(self) -> None:
        with self._path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            threads = len(os.sched_getaffinity(0)) if len(mapped) >= _THREADED_FROM_BYTES else 1
            blake3(mapped, max_threads=threads).digest()


class Zstd(Plain):
    """A file that is compressed as the store compresses, without a digest."""

    def actions(self) -> Mapping[str, Callable[[], object]]:
        """Return a put and a get."""
        return {"put": self._compressed, "get": self._decompressed}

    def _compressed(self) -> None:
        from backports import zstd

        self._put(zstd.compress(self._content, 3))

    def _decompressed(self) -> None:
        from backports import zstd

        assert len(zstd.decompress(self._path.read_bytes())) == len(self._content)


class DiskCache:
    """``diskcache``: neither hashed nor flushed."""

    def __init__(self, folder: Path, content: bytes) -> None:
        """Open an empty cache without a limit."""
        import diskcache

        self._cache, self._content = diskcache.Cache(str(folder), size_limit=1 << 40), content

    def actions(self) -> Mapping[str, Callable[[], object]]:
        """Return a put and a get."""
        return {"put": lambda: self._cache.set("key", self._content), "get": lambda: self._cache.get("key")}


def ways() -> Mapping[str, type[Way]]:
    """Return the ways that can be measured here."""
    found: dict[str, type[Way]] = {"ours": Ours, "plain": Plain, "zstd": Zstd, "diskcache": DiskCache}
    return found | ({"torch_tensorrt": engine_cache.DiskEngineCache} if engine_cache.is_there() else {})
