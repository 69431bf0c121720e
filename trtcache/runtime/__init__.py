"""Runtime: compiled modules, which run engines with a model's signature and weights, and programs without torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trtcache.runtime.module import CompiledModule as CompiledModule
    from trtcache.runtime.report import PartitionReport as PartitionReport
    from trtcache.runtime.report import RefitReport as RefitReport
    from trtcache.runtime.report import Report as Report

# Loaded when first used: a program without torch needs no compiled module, which imports torch.
_EXPORTS = {
    "CompiledModule": "trtcache.runtime.module",
    "PartitionReport": "trtcache.runtime.report",
    "RefitReport": "trtcache.runtime.report",
    "Report": "trtcache.runtime.report",
}

__all__ = ["CompiledModule", "PartitionReport", "RefitReport", "Report"]


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value
