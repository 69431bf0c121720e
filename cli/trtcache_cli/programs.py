"""Exported programs from files, for the commands that lower them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtcache import api
from trtcache.errors import CanonicalizationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trtcache.keys.stored import StoredGraph
    from trtcache.lowering import LoweredProgram
    from trtcache.onnx.ports import Sizes
    from trtcache.values import CacheKey


def lowered(path: Path, backend: str) -> LoweredProgram:
    """Return the lowered program in a file; its ``runs`` have what each pass changed.

    Raises:
        ExportError: the file holds no program that can be lowered.
        PassError: a pass broke its contract.
        BackendUnavailableError: the backend is unknown or cannot run here.
    """
    return api.lower(path, backend=backend, trace=True)


def asked(
    path: Path, backend: str, target: str | None, inputs: Mapping[str, Sizes]
) -> tuple[CacheKey | None, StoredGraph | None, str]:
    """Return the key that ``compile`` would ask for, the graph, and if there can be no key why.

    ``inputs`` are sizes for what an ONNX file leaves open.

    Raises:
        ExportError: the file holds no program that can be lowered.
        PassError: a pass broke its contract.
        BackendUnavailableError: the backend is unknown or cannot run here.
        SettingsError: the target is unknown.
    """
    try:
        key, graph = api.described(path, backend=backend, target=target, inputs=inputs)
    except CanonicalizationError as error:
        return None, None, str(error)
    return key, graph, ""
