"""Compares what a manifest says with what an export gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtcache.keys.program_digest import exported_digest

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from trtcache.direct.manifest import Manifest


def disagreement(manifest: Manifest, program: ExportedProgram) -> str | None:
    """Say how a program differs from the one that a manifest leads to; None where it is that one."""
    try:
        found = exported_digest(program)
    except ValueError as error:
        return f"the program has no digest: {error}"
    if found == manifest.program:
        return None
    return f"it leads to the program {str(manifest.program)[:16]}, and exporting the model gives {str(found)[:16]}"
