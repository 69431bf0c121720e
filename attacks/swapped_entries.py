"""Whoever can write to the directory puts sound, signed entries under each other's names, and mixes their parts."""

from __future__ import annotations

import shutil
from itertools import permutations
from pathlib import Path

from attacks.stage import Stage, Succeeded, served

COUNT = 8


def attack(folder: Path) -> str:
    """Try every ordered pair of eight entries: a whole file, and the front of one before the members of the other."""
    stage = Stage.set(folder)
    store = stage.main()
    raws = [stage.put(store, number).read_bytes() for number in range(COUNT)]
    tried = 0
    for number, other in permutations(range(COUNT), 2):
        for raw in (raws[other], raws[number][:4096] + raws[other][4096:], raws[other][:4096] + raws[number][4096:]):
            stage.plant(number, raw)
            if served(stage.main(), number) is not None:
                raise Succeeded(f"entry {other} was served as entry {number}")
            tried += 1
        stage.plant(number, raws[number])
    if any(served(stage.main(), number) is None for number in range(COUNT)):
        raise Succeeded("a sound entry was lost on the way")
    shutil.rmtree(stage.root / "quarantine")
    return f"{tried} swaps, none served"
