"""Running builds: ``trtcache ls --building``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trtcache.config.units import format_duration
from trtcache_cli.keys import SHORT_DIGITS
from trtcache_cli.output import note, on_terminal, print_json, print_table, print_tsv

if TYPE_CHECKING:
    from trtcache.store.single_flight import BuildProcess, RunningBuild
    from trtcache_cli.session import Session

HEADER = ("KEY", "KIND", "NAME", "BUILDER", "PROGRAM", "FOR", "WAITING")


def show_building(session: Session, now_ns: int) -> None:
    """Print the builds in progress in the store, longest first. Builders that died are not listed."""
    builds = session.store().notes.running_builds()
    if session.as_json:
        print_json({"building": [_json_of(build, now_ns) for build in builds]})
    elif not on_terminal():
        print_tsv(_tsv_row(build) for build in builds)
    elif builds:
        print_table(HEADER, [_table_row(build, now_ns) for build in builds], right=("FOR",), flexible="WAITING")
    else:
        note("nothing is being built")


def _json_of(build: RunningBuild, now_ns: int) -> dict[str, Any]:
    return {
        "key": build.digest,
        "builder": None if build.builder is None else _process_document(build.builder, now_ns),
        "waiters": [_process_document(process, now_ns) for process in build.waiters],
    }


def _process_document(process: BuildProcess, now_ns: int) -> dict[str, Any]:
    return {
        "host": process.host,
        "pid": process.pid,
        "program": process.program,
        "kind": process.kind,
        "name": process.name or None,
        "since_s": process.since_ns // 10**9,
        "seconds": _seconds(process, now_ns),
    }


def _seconds(process: BuildProcess, now_ns: int) -> float:
    return max(0, now_ns - process.since_ns) / 1e9  # another machine's clock may differ


def _tsv_row(build: RunningBuild) -> tuple[object, ...]:
    """Return key, kind, name, host:pid, program, start (s since 1970), and host:pid of each waiter, space-separated."""
    process = build.builder
    waiting = " ".join(map(str, build.waiters))
    if process is None:
        return build.digest, "", "", "", "", "", waiting
    return build.digest, process.kind, process.name, process, process.program, process.since_ns // 10**9, waiting


def _table_row(build: RunningBuild, now_ns: int) -> tuple[str, ...]:
    process, waiting = build.builder, ", ".join(map(str, build.waiters)) or "-"
    if process is None:
        return build.digest[:SHORT_DIGITS], "-", "-", "unknown", "-", "-", waiting
    kind, name, program = process.kind or "-", process.name or "-", process.program or "-"
    elapsed = format_duration(_seconds(process, now_ns))
    return build.digest[:SHORT_DIGITS], kind, name, str(process), program, elapsed, waiting
