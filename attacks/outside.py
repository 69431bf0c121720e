"""What lies outside of a store and is not to change, and a victim who does all that writes to the store."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attacks.stage import Stage, Succeeded, engine_of, key_of, served
from trtcache.errors import TrtcacheError
from trtcache.store.catalog import load_records

if TYPE_CHECKING:
    from trtcache.store.disk import DiskStore

State = dict[str, tuple[int, int, bytes]]


@dataclass(frozen=True)
class Outside:
    """A directory with a canary and with files of the names that the store uses, as it was when it was made."""

    path: Path
    before: State

    @classmethod
    def beside(cls, stage: Stage) -> Outside:
        """Make it beside the store."""
        path, digest = stage.folder / "outside", key_of(0).digest
        path.mkdir(mode=0o700)
        names = ("canary", ".tmp-old", f"{digest}.trtc", f"{digest}.lock", f"{os.uname().nodename}.jsonl", digest)
        for name in names:
            (path / name).write_text("alive")
            os.utime(path / name, (1, 1))
        os.utime(path, (1, 1))
        return cls(path, _state(path))

    @property
    def canary(self) -> Path:
        """A file in it."""
        return self.path / "canary"

    def check(self) -> None:
        """Look whether all is as it was.

        Raises:
            Succeeded: something has changed.
        """
        found = _state(self.path)
        if found != self.before:
            raise Succeeded(f"what is outside of the store was changed: {found}")


def _state(outside: Path) -> State:
    paths = [outside, *outside.iterdir()]
    looked = [(path.name, path.lstat(), path.read_bytes() if path.is_file() else b"") for path in paths]
    return {name: (found.st_mtime_ns, found.st_mode, content) for name, found, content in looked}


def use(store: DiskStore) -> int:
    """Do all that writes to a store, once, and return how much of it was done: ten steps at most.

    Raises:
        Succeeded: an entry was served with a content that is not its own.
    """
    digest, done = key_of(0).digest, 0
    works = (
        lambda: store.put(key_of(0), {"artifact": engine_of(0)}, kind="test"),
        lambda: served(store, 0),
        lambda: store.pin(digest),
        lambda: store.unpin(digest),
        lambda: store.events.append("hit", key=digest),
        lambda: _hold(store, digest),
        lambda: load_records(store),
        lambda: store.quarantine(digest, "tried"),
        lambda: store.sweep(temporary_s=-1, quarantine_s=-1),
        lambda: store.remove(digest),
    )
    for work in works:
        with contextlib.suppress(OSError, TrtcacheError):
            work()
            done += 1
    return done


def _hold(store: DiskStore, digest: str) -> None:
    with store.flight(digest, timeout_s=0.1):
        pass
