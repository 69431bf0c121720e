"""A file system over a directory that does what network ones do on bad days, mounted through FUSE.

Run as ``python -m tests.crash.hostile DIRECTORY PLACE SEED``; it ends when it is unmounted. It is well behaved until it
gets SIGUSR1, and is again from the next one on; what it did is counted in ``faults.json`` beside ``PLACE`` then. One
call of fifty goes wrong: a change of a name is made and its reply is lost, so that it is made a second time and finds
that it was made; a read finds its file handle stale; a lock is refused with EIO; a listing is the one of before; and a
close says that the disk was full.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

from mfusepy import FUSE, Operations

RATE = 0.02


class Hostile(Operations):  # type: ignore[misc]  # untyped
    """The operations, each on the directory's own file."""

    use_ns = True

    def __init__(self, directory: Path, faults: Path, seed: int) -> None:
        self._directory, self._faults = os.fspath(directory), faults
        self._chance = random.Random(seed)
        self._armed = False
        self._made: Counter[str] = Counter()
        self._listed: dict[str, list[str]] = {}

    def turn(self, *_: object) -> None:
        """Begin or end to be hostile."""
        self._armed = not self._armed
        self._faults.write_text(json.dumps(self._made))

    def _goes_wrong(self, how: str) -> bool:
        wrong = self._armed and self._chance.random() < RATE
        self._made[how] += wrong
        return wrong

    def _lose(self, how: str, code: int) -> None:
        """Lose the reply to a call that was made, so that it is made again and finds that."""
        if self._goes_wrong(f"lost {how}"):
            _fail(code)

    def _path(self, path: str) -> str:
        return self._directory + path

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        found = os.lstat(self._path(path)) if fh is None else os.fstat(fh)
        names = ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_ino", "st_dev")
        times = {f"st_{name}time": getattr(found, f"st_{name}time_ns") for name in ("a", "m", "c")}
        return {**{name: getattr(found, name) for name in names}, **times}

    def access(self, path: str, amode: int) -> int:
        if not os.access(self._path(path), amode):
            _fail(errno.EACCES)
        return 0

    def readdir(self, path: str, _fh: int) -> list[str]:
        found = [".", "..", *os.listdir(self._path(path))]  # noqa: PTH208  # names alone are wanted
        before = self._listed.get(path, found)
        self._listed[path] = found
        return before if self._goes_wrong("stale listing") else found

    def mkdir(self, path: str, mode: int) -> int:
        os.mkdir(self._path(path), mode)  # noqa: PTH102
        self._lose("mkdir", errno.EEXIST)
        return 0

    def rmdir(self, path: str) -> int:
        os.rmdir(self._path(path))  # noqa: PTH106
        self._lose("rmdir", errno.ENOENT)
        return 0

    def unlink(self, path: str) -> int:
        os.unlink(self._path(path))  # noqa: PTH108
        self._lose("unlink", errno.ENOENT)
        return 0

    def rename(self, old: str, new: str) -> int:
        os.rename(self._path(old), self._path(new))  # noqa: PTH104
        self._lose("rename", errno.ENOENT)
        return 0

    def link(self, target: str, source: str) -> int:
        os.link(self._path(source), self._path(target))
        self._lose("link", errno.EEXIST)
        return 0

    def chmod(self, path: str, mode: int) -> int:
        os.chmod(self._path(path), mode)  # noqa: PTH101
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        os.utime(self._path(path), ns=times)
        return 0

    def open(self, path: str, flags: int) -> int:
        return os.open(self._path(path), flags)

    def create(self, path: str, mode: int, fi: object = None) -> int:
        del fi
        return os.open(self._path(path), os.O_RDWR | os.O_CREAT, mode)

    def read(self, _path: str, size: int, offset: int, fh: int) -> bytes:
        if self._goes_wrong("stale handle"):
            _fail(errno.ESTALE)
        return os.pread(fh, size, offset)

    def write(self, _path: str, data: bytes, offset: int, fh: int) -> int:
        return os.pwrite(fh, data, offset)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        os.truncate(self._path(path) if fh is None else fh, length)
        return 0

    def fsync(self, _path: str, _datasync: int, fh: int) -> int:
        os.fsync(fh)
        return 0

    def fsyncdir(self, _path: str, _datasync: int, _fh: int) -> int:
        return 0

    def flush(self, _path: str, _fh: int) -> int:
        if self._goes_wrong("full at close"):
            _fail(errno.EDQUOT)
        return 0

    def release(self, _path: str, fh: int) -> int:
        os.close(fh)
        return 0

    def flock(self, _path: str, fh: int, op: int) -> int:
        if self._goes_wrong("lock"):
            _fail(errno.EIO)
        fcntl.flock(fh, op | fcntl.LOCK_NB)
        return 0


def _fail(code: int) -> NoReturn:
    raise OSError(code, os.strerror(code))


def main(directory: Path, place: Path, seed: int) -> None:
    """Mount it and serve until it is unmounted."""
    hostile = Hostile(directory, place.with_name("faults.json"), seed)
    signal.signal(signal.SIGUSR1, hostile.turn)
    FUSE(hostile, str(place), foreground=True, nothreads=True, direct_io=True, attr_timeout=0, entry_timeout=0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
