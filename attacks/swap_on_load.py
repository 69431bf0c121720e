"""A member changes or exchanges an entry's file between any two steps of a reader who verifies it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from attacks.stage import PULL, Stage, Succeeded, served

_CALLS = ("open", "fstat", "preadv", "utime", "close")
_FEWEST_CALLS = 8

Before = Callable[[int, Callable[[], None]], AbstractContextManager[list[int]]]
"""Calls a function before the n-th call that is made meanwhile; gives a list that is not empty once it was."""


def attack(folder: Path, before: Before | None = None) -> str:
    """For each call of a look-up, swap just before it: in place, by another file, by a shorter one, by a link.

    ``before`` calls a function before the n-th call that is made meanwhile; by default the calls are those of Python.
    """
    stage = Stage.set(folder)
    main = stage.main()
    good = stage.put(main, 1).read_bytes()
    evil = stage.put(stage.open(PULL, PULL), 1, b"\xee" * 9600).read_bytes()
    stage.plant(1, good)
    served(main, 1)  # with all that is imported, and looked at once, for the first one
    steps, hits = list[int](), 0
    for swap in (_in_place, _by_another, _shorter, _by_a_link):
        reached, step = True, 0
        while reached:
            step += 1
            path = stage.plant(1, good)
            with (before or _before_call)(step, lambda path=path, swap=swap: swap(path, evil)) as done:  # type: ignore[misc]
                hits += served(main, 1) is not None
            reached = bool(done)
        steps.append(step - 1)
    if not hits or min(steps) < _FEWEST_CALLS:
        raise Succeeded(f"{hits} look-ups were a hit, of {steps} calls: the attack was not tried")
    return f"{sum(steps)} swaps, before each of {steps} calls from open to hand-over: what was served was verified"


def _in_place(path: Path, evil: bytes) -> None:
    with path.open("r+b") as file:
        file.write(evil)


def _by_another(path: Path, evil: bytes) -> None:
    other = path.with_name(".tmp-evil")
    other.write_bytes(evil)
    other.replace(path)


def _shorter(path: Path, _evil: bytes) -> None:
    os.truncate(path, 4000)


def _by_a_link(path: Path, evil: bytes) -> None:
    other = path.with_name(".tmp-target")
    other.write_bytes(evil)
    path.unlink()
    path.symlink_to(other)


@contextmanager
def _before_call(step: int, swap: Callable[[], None]) -> Iterator[list[int]]:
    """Call ``swap`` before the n-th system call that is made meanwhile; give a list that is not empty once it was."""
    count, reached, originals = 0, [], {name: getattr(os, name) for name in _CALLS}

    def wrapped(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == step:
                reached.append(step)
                for one, original in originals.items():
                    setattr(os, one, original)
                swap()
            return originals[name](*args, **kwargs)

        return call

    for name in _CALLS:
        setattr(os, name, wrapped(name))
    try:
        yield reached
    finally:
        for name, original in originals.items():
            setattr(os, name, original)
