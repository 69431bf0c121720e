"""Times in a report."""

from __future__ import annotations

from trtcache.runtime import PartitionReport, Report


def test_builds_at_the_same_time_are_counted_once() -> None:
    """The overhead is what remains of the call without export and builds, of which 5 s overlapped."""
    partitions = [PartitionReport(None, "built", "absent", 1, 0.0, 0.0, build_s, None) for build_s in (6.0, 7.0)]
    report = Report("m", "b", "t", partitions, export_s=1.0, compile_s=11.0, overlapped_s=5.0)
    assert report.overhead_s == 2.0
