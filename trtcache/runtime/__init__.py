"""What runs an engine with a model's signature and weights."""

from trtcache.runtime.module import CompiledModule
from trtcache.runtime.report import PartitionReport, Report

__all__ = ["CompiledModule", "PartitionReport", "Report"]
