"""A member of a group has his own code carried over into somebody's private store, which asks for no signatures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attacks.poisoning import EVIL
from attacks.stage import MAIN, PULL, Stage, Succeeded, engine_of, key_of
from trtcache.config.signing_keys import Trust
from trtcache.store.contract import Entry
from trtcache.store.disk import DiskStore
from trtcache.store.sync import plan_sync


def attack(folder: Path) -> str:
    """Offer an own entry, signed and unsigned, and write it over a trusted one before each read of a transfer."""
    stage = Stage.set(folder)
    trusted = stage.put(stage.main(), 1)
    sound = trusted.read_bytes()
    evil = stage.put(stage.open(PULL, PULL), 1, EVIL).read_bytes()
    refused = set()
    for required in (None, False):  # who trusts main, and who takes what is there: a private store is for ever
        target = _target(folder, f"offered-{required}")
        stage.plant(1, evil)
        source = DiskStore.open(stage.root, readonly=True, trust=Trust(required, (MAIN.public,)))
        refused |= {one.reason for one in plan_sync([source], target).execute().refused}
        _look(target)
    step, reached, arrived = 0, True, 0
    while reached:
        step += 1
        stage.plant(1, sound)
        target = _target(folder, f"swapped-{step}")
        source = DiskStore.open(stage.root, readonly=True, trust=Trust(None, (MAIN.public,)))
        with _written_over(trusted, evil, step) as done:
            arrived += len(plan_sync([source], target).execute().arrived)
        reached = bool(done)
        _look(target)
    if refused != {"untrusted:unknown-key"}:
        raise Succeeded(f"an untrusted entry was refused as {refused}")
    return f"an own entry never arrived, nor any byte of it by {step - 1} swaps; the trusted one did {arrived} times"


def _target(folder: Path, name: str) -> DiskStore:
    return DiskStore.open(folder / name, trust=Trust(None, (MAIN.public,)))


def _look(target: DiskStore) -> None:
    found = target.get(key_of(1))
    if isinstance(found, Entry) and bytes(found.read()) != engine_of(1):
        raise Succeeded("a private store has the code of a member of the group")
    if any(EVIL[:40] in path.read_bytes() for path in target.root.rglob("*.trtc")):
        raise Succeeded("a private store has a file with the code of a member of the group")


@contextmanager
def _written_over(path: Path, evil: bytes, step: int) -> Iterator[list[int]]:
    """Write ``evil`` over a file, in place, before one of the reads of whoever copies it."""
    real, reads = os.preadv, 0
    done: list[int] = []

    def preadv(*args: Any) -> int:
        nonlocal reads
        reads += 1
        if reads == step:
            done.append(step)
            path.write_bytes(evil)
        return real(*args)

    os.preadv = preadv
    try:
        yield done
    finally:
        os.preadv = real
