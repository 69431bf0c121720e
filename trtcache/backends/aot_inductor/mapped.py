"""Which libraries this process has loaded, by the kernel's own account.

The dynamic linker knows libraries by path: asked for one that it has, at a path that was removed and made again, it
gives the previous engine and says nothing (seen with recycled ``/proc/self/fd`` paths). Whether a load mapped anything
new is seen here and nowhere else.
"""

from __future__ import annotations

from pathlib import Path

_MAPS = Path("/proc/self/maps")
_INSIDE = b"/data/aotinductor/"
_GONE = " (deleted)"


def engine_libraries() -> frozenset[tuple[str, str]]:
    """Return the device and inode of each engine's library, with its path; none where the kernel does not tell."""
    try:
        lines = _MAPS.read_bytes().splitlines()
    except OSError:
        return frozenset()
    found = (line.decode(errors="replace").split(maxsplit=5) for line in lines if _INSIDE in line)
    return frozenset((f"{device} {inode}", path.removesuffix(_GONE)) for _, _, _, device, inode, path in found)


def unpacked_folder(library: str, below: Path) -> Path | None:
    """Return the folder in ``below``, the temporary directory, that torch unpacked a library to."""
    try:
        inside = Path(library).relative_to(below)
    except ValueError:
        return None
    return below / inside.parts[0] if len(inside.parts) > 2 else None
