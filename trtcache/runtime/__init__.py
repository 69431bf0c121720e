"""Runtime: compiled modules, which run engines with a model's signature and weights, and programs without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtcache.config.imports import lazy_names

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


__getattr__ = lazy_names(__name__, _EXPORTS)
