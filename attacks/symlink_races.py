"""A member puts links in the place of directories and files, again and again, while others use the shared store."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from attacks.stage import Stage, Succeeded, engine_of, key_of, served
from trtcache.errors import TrtcacheError
from trtcache.store.catalog import load_records

if TYPE_CHECKING:
    from trtcache.store.disk import DiskStore

ROUNDS = 60


def attack(folder: Path) -> str:
    """Exchange directories and entries for links that lead outside in a thread; do all that writes in another."""
    stage = Stage.set(folder)
    store = stage.main()
    outside = folder / "outside"
    outside.mkdir(mode=0o700)
    for name in (
        "canary",
        ".tmp-old",
        f"{key_of(0).digest}.trtc",
        f"{key_of(0).digest}.lock",
        f"{os.uname().nodename}.jsonl",
    ):
        (outside / name).write_text("alive")
        os.utime(outside / name, (1, 1))
    os.utime(outside, (1, 1))
    before = _state(outside)
    stage.put(store, 0)
    stop = threading.Event()
    attacker = threading.Thread(target=_flip, args=(stage.root, outside, stop))
    attacker.start()
    done = 0
    try:
        for _ in range(ROUNDS):
            done += _use(store)
    finally:
        stop.set()
        attacker.join()
    if _state(outside) != before:
        raise Succeeded(f"what is outside of the store was changed: {_state(outside)}")
    return f"{done} operations in {ROUNDS} rounds were done, and nothing outside was touched"


def _use(store: DiskStore) -> int:
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


def _flip(root: Path, outside: Path, stop: threading.Event) -> None:
    """Put a link in the place of each directory and of the entry for an instant, and take it away again."""
    digest = key_of(0).digest
    names = ["entries", f"entries/{digest[:2]}", "locks", f"locks/{digest[:2]}", "pins", "quarantine", "events"]
    entry = root / "entries" / digest[:2] / f"{digest}.trtc"
    while not stop.is_set():
        for path in [*(root / name for name in names), entry]:
            target = outside / entry.name if path == entry else outside
            aside = root / "aside"
            with contextlib.suppress(OSError):
                path.rename(aside)
            with contextlib.suppress(OSError):
                path.symlink_to(target)
            with contextlib.suppress(OSError):
                path.unlink() if path.is_symlink() else None
            with contextlib.suppress(OSError):
                aside.rename(path)
            with contextlib.suppress(OSError):
                _drop(aside)


def _drop(aside: Path) -> None:
    """Let go of what could not be put back because another has made it anew."""
    if aside.exists():
        import shutil

        shutil.rmtree(aside) if aside.is_dir() else aside.unlink()


def _state(outside: Path) -> dict[str, tuple[int, bytes]]:
    content = {path: path.read_bytes() if path.is_file() else b"made" for path in outside.iterdir()}
    found = {path.name: (path.lstat().st_mtime_ns, raw) for path, raw in content.items()}
    return {**found, ".": (outside.stat().st_mtime_ns, b"")}
