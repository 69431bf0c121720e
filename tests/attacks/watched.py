"""Swap an entry's file before every call of the C library that a look-up makes, of whoever: Python's, zstd's, ours.

Run under the shim: ``LD_PRELOAD=watch.so python -m tests.attacks.watched SHIM DIRECTORY``.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from attacks import swap_on_load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FUNCTION = ctypes.CFUNCTYPE(None)


def main(shim: str, directory: Path) -> str:
    """Run the attack and return what it says."""
    library = ctypes.CDLL(shim)
    library.watch_at.argtypes = [ctypes.c_long, _FUNCTION]

    @contextmanager
    def before(step: int, swap: Callable[[], None]) -> Iterator[list[int]]:
        done: list[int] = []
        failed: list[BaseException] = []

        def function() -> None:
            done.append(step)
            try:
                swap()
            except BaseException as error:  # noqa: BLE001  # raised again where ctypes does not swallow it
                failed.append(error)

        called = _FUNCTION(function)  # alive for as long as it may be called
        library.watch_at(step, called)
        try:
            yield done
        finally:
            library.watch_at(0, _FUNCTION())
        if failed:
            raise failed[0]

    return swap_on_load.attack(directory, before)


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1], Path(sys.argv[2])))
