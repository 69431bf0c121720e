"""A member puts links in the place of directories and files, again and again, while others use the shared store."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

from attacks.outside import Outside, use
from attacks.stage import Stage, key_of

ROUNDS = 60


def attack(folder: Path) -> str:
    """Exchange directories and entries for links that lead outside in a thread; do all that writes in another."""
    stage = Stage.set(folder)
    store = stage.main()
    outside = Outside.beside(stage)
    stage.put(store, 0)
    stop = threading.Event()
    attacker = threading.Thread(target=_flip, args=(stage.root, outside.path, stop))
    attacker.start()
    done = 0
    try:
        for _ in range(ROUNDS):
            done += use(store)
    finally:
        stop.set()
        attacker.join()
    outside.check()
    return f"{done} operations in {ROUNDS} rounds were done, and nothing outside was touched"


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
