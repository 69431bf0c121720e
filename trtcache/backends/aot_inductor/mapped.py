"""Which libraries of engines this process has loaded, by the dynamic linker's own account.

The linker knows libraries by path: asked for one that it has, at a path that was removed and made again, it gives the
previous engine and says nothing (seen with recycled ``/proc/self/fd`` paths). Whether a load brought anything new is
seen in its list and nowhere else. ``dl_iterate_phdr`` (glibc, musl) goes through that list; to have the kernel write
``/proc/self/maps`` takes ten times as long, a millisecond, before and after each load.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import Any

_INSIDE = b"/data/aotinductor/"


class _Library(ctypes.Structure):
    """The beginning of ``struct dl_phdr_info``."""

    _fields_ = (("address", ctypes.c_size_t), ("path", ctypes.c_char_p))


_Visit = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Library), ctypes.c_size_t, ctypes.c_void_p)


def engine_libraries() -> frozenset[tuple[int, str]]:
    """Return the address and path of each engine's library; none where the linker does not tell."""
    iterate = _iterate()
    if iterate is None:
        return frozenset()
    found: list[tuple[int, str]] = []

    def visit(library: Any, _size_bytes: int, _data: object) -> int:
        path = library.contents.path
        if path and _INSIDE in path:
            found.append((library.contents.address, os.fsdecode(path)))
        return 0

    iterate(_Visit(visit), None)
    return frozenset(found)


@functools.cache
def _iterate() -> Any:
    """Return the linker's function, called with the interpreter's lock held.

    A thread that waited for that lock in ``visit``, holding the linker's, would wait for one that imports an extension.
    """
    return getattr(ctypes.PyDLL(None), "dl_iterate_phdr", None)


def unpacked_folder(library: str, below: Path) -> Path | None:
    """Return the folder in ``below``, the temporary directory, that torch unpacked a library to."""
    try:
        inside = Path(library).relative_to(below)
    except ValueError:
        return None
    return below / inside.parts[0] if len(inside.parts) > 2 else None
