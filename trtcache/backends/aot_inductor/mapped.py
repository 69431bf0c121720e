"""Which libraries of engines this process has loaded, by the kernel's own account.

The dynamic linker knows libraries by path: asked for one that it has, at a path that was removed and made again, it
gives the previous engine and says nothing (seen with recycled ``/proc/self/fd`` paths). Whether a load mapped anything
new is seen here and nowhere else. ``dl_iterate_phdr`` would tell ten times as fast, but calls back with the linker's
lock held: Python in there may wait for a thread that holds the interpreter's and imports an extension, for ever.
"""

from __future__ import annotations

from pathlib import Path

_MAPS = Path("/proc/self/maps")
_INSIDE = b"/data/aotinductor/"
_GONE = " (deleted)"

Mapped = tuple[str, str]
"""Device and inode of a library that is mapped, and the path at which it was."""


def engine_libraries() -> dict[Mapped, bool]:
    """Return each engine's library, and whether its file is still there; none where the kernel does not tell."""
    try:
        maps = _MAPS.read_bytes()
    except OSError:
        return {}
    if _INSIDE not in maps:
        return {}
    lines = (line.decode(errors="replace").split(maxsplit=5) for line in maps.splitlines() if _INSIDE in line)
    return {
        (f"{device} {inode}", path.removesuffix(_GONE)): not path.endswith(_GONE)
        for _, _, _, device, inode, path in lines
    }


def unpacked_folder(library: str, below: Path) -> Path | None:
    """Return the folder in ``below``, the temporary directory, that torch unpacked a library to."""
    try:
        inside = Path(library).relative_to(below)
    except ValueError:
        return None
    return below / inside.parts[0] if len(inside.parts) > 2 else None
