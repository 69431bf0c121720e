"""Runtime: compiled modules, which run engines with a model's signature and weights."""

from trtcache.runtime.module import CompiledModule
from trtcache.runtime.report import PartitionReport, RefitReport, Report

__all__ = ["CompiledModule", "PartitionReport", "RefitReport", "Report"]
