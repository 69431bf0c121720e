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
        print_json({"building": [_document(build, now_ns) for build in builds]})
    elif not on_terminal():
        print_tsv(_plain(build) for build in builds)
    elif builds:
        print_table(HEADER, [_human(build, now_ns) for build in builds], right=("FOR",), flexible="WAITING")
    else:
        note("nothing is being built")


def _document(build: RunningBuild, now_ns: int) -> dict[str, Any]:
    return {
        "key": build.digest,
        "builder": None if build.builder is None else _process_document(build.builder, now_ns),
        "waiters": [_process_document(who, now_ns) for who in build.waiters],
    }


def _process_document(who: BuildProcess, now_ns: int) -> dict[str, Any]:
    return {
        "host": who.host,
        "pid": who.pid,
        "program": who.program,
        "kind": who.kind,
        "name": who.name or None,
        "since_s": who.since_ns // 10**9,
        "seconds": _seconds(who, now_ns),
    }


def _seconds(who: BuildProcess, now_ns: int) -> float:
    return max(0, now_ns - who.since_ns) / 1e9  # another machine's clock may differ


def _plain(build: RunningBuild) -> tuple[object, ...]:
    """Return key, kind, name, host:pid, program, start (s since 1970), and host:pid of each waiter, space-separated."""
    who = build.builder
    waiting = " ".join(map(str, build.waiters))
    if who is None:
        return build.digest, "", "", "", "", "", waiting
    return build.digest, who.kind, who.name, who, who.program, who.since_ns // 10**9, waiting


def _human(build: RunningBuild, now_ns: int) -> tuple[str, ...]:
    who, waiting = build.builder, ", ".join(map(str, build.waiters)) or "-"
    if who is None:
        return build.digest[:SHORT_DIGITS], "-", "-", "unknown", "-", "-", waiting
    lasted = format_duration(_seconds(who, now_ns))
    return build.digest[:SHORT_DIGITS], who.kind or "-", who.name or "-", str(who), who.program or "-", lasted, waiting
