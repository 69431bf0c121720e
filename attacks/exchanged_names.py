"""A member exchanges names in the store for other things, each in one step, while another user works there.

The kernel exchanges two names at once, so that there is no instant without the one or the other. What he puts in the
place of directories, entries, locks, pins, logs and temporary files: a link to a file outside, a link to a directory
outside, a second name of a file outside, a pipe, and a directory with such links in it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import select
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from attacks.outside import Outside, use
from attacks.stage import Stage, Succeeded, key_of

OPERATIONS = 300
TOO_LONG_S = 60.0
KINDS = ("link", "link to a directory", "hard link", "pipe", "directory")
_EXCHANGE = 2  # RENAME_EXCHANGE of linux/fs.h


def attack(folder: Path, operations: int = OPERATIONS) -> str:
    """Exchange names in one process as fast as it goes, and do so many operations in another."""
    stage = Stage.set(folder)
    stage.put(stage.main(), 0)
    outside = Outside.beside(stage)
    attacker, exchanged = _forked(lambda told: os.write(told, json.dumps(Attacker(stage.root, outside).run()).encode()))
    victim, done = _forked(lambda told: _work(stage, operations, told))
    try:
        worked = sum(map(int, _heard(done, victim).split()))
    finally:
        os.kill(attacker, signal.SIGTERM)
        made = json.loads(_heard(exchanged, attacker))
    outside.check()
    if len(made) < len(KINDS) or not worked:
        raise Succeeded(f"the attack was not tried: {made}")
    shown = ", ".join(f"{count} times for a {kind}" for kind, count in made.items())
    return f"{worked} of {operations} operations were done while names were exchanged {shown}: nothing outside changed"


class Attacker:
    """Who exchanges. He is the same user as his victim: no right that the kernel checks is in his way."""

    def __init__(self, root: Path, outside: Outside) -> None:
        self._root, self._outside = root, outside
        self._libc = ctypes.CDLL(None)
        self._chance = random.Random(0)  # noqa: S311  # the same attempts each time
        digest = key_of(0).digest
        self._folder, self._locks = root / "entries" / digest[:2], root / "locks" / digest[:2]
        self._names = [
            *(root / name for name in ("entries", "locks", "pins", "quarantine", "events")),
            *(self._folder, self._locks, root / "locks" / "building", root / "locks" / "building" / digest),
            *(self._folder / f"{digest}.trtc", self._locks / f"{digest}.lock", root / "pins" / digest),
            root / "events" / f"{os.uname().nodename}.jsonl",
        ]

    def run(self) -> Counter[str]:
        """Go on until told to stop, and return how often what was put in the place of something."""
        stopped, made = list[int](), Counter[str]()
        signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
        while not stopped:
            for name in [*self._names, *self._temporary()]:
                kind = self._chance.choice(KINDS)
                with contextlib.suppress(OSError):
                    made[kind] += self._try(kind, name)
        return made

    def _try(self, kind: str, name: Path) -> bool:
        decoy = self._root / "decoy"
        if decoy.is_dir() and not decoy.is_symlink():
            shutil.rmtree(decoy)
        decoy.unlink(missing_ok=True)
        self._make(kind, decoy)
        if not self._exchange(decoy, name):
            return False
        time.sleep(self._chance.choice((0.0, 0.0, 1e-4, 1e-3)))
        self._exchange(decoy, name)
        return True

    def _temporary(self) -> list[Path]:
        found: list[Path] = []
        for directory in (self._root, self._folder, self._root / "events"):
            with contextlib.suppress(OSError):
                found += [directory / name for name in os.listdir(directory) if name.startswith(".tmp-")]  # noqa: PTH208
        return found

    def _exchange(self, one: Path, other: Path) -> bool:
        return not self._libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), _EXCHANGE)

    def _make(self, kind: str, decoy: Path) -> None:
        if kind == "link":
            decoy.symlink_to(self._outside.canary)
        elif kind == "link to a directory":
            decoy.symlink_to(self._outside.path)
        elif kind == "hard link":
            decoy.hardlink_to(self._outside.canary)
        elif kind == "pipe":
            os.mkfifo(decoy, 0o660)
        else:
            decoy.mkdir(mode=0o770)
            for path in self._outside.path.iterdir():
                (decoy / path.name).hardlink_to(path)
            (decoy / key_of(0).digest[:2]).symlink_to(self._outside.path)


def _work(stage: Stage, operations: int, told: int) -> None:
    store = stage.main()
    for _ in range(0, operations, 10):
        os.write(told, b"%d\n" % use(store))


def _forked(work: Callable[[int], object]) -> tuple[int, int]:
    """Do work in a child that is given where to tell; return the child, and where that is heard."""
    heard, told = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(heard)
            work(told)
            code = 0
        finally:
            os._exit(code)
    os.close(told)
    return child, heard


def _heard(heard: int, child: int) -> bytes:
    """Return what a child tells to its end.

    Raises:
        Succeeded: it fails, or says nothing for a minute.
    """
    said = b""
    with os.fdopen(heard, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], TOO_LONG_S)[0]:
            more = pipe.read(1 << 16)
            said += more
            if not more:
                break
        else:
            os.kill(child, signal.SIGKILL)
    if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise Succeeded(f"a process ended with {code}" + f", after {TOO_LONG_S:.0f} s of silence" * (code == -9))
    return said
