"""What is being built now: ``trtcache ls --building``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trtcache.config.units import format_duration
from trtcache_cli.keys import SHORT
from trtcache_cli.output import note, on_terminal, print_json, print_table, print_tsv

if TYPE_CHECKING:
    from trtcache.store.build_notes import BuildProcess, RunningBuild
    from trtcache_cli.session import Session

HEADER = ("KEY", "KIND", "NAME", "BUILDER", "PROGRAM", "FOR", "WAITING")


def show_building(session: Session, now_ns: int) -> None:
    """Print what is being built in the store, the longest first: of that only builders that live count."""
    found = session.store().notes.running_builds()
    if session.as_json:
        print_json({"building": [_document(one, now_ns) for one in found]})
    elif not on_terminal():
        print_tsv(_plain(one) for one in found)
    elif found:
        print_table(HEADER, [_human(one, now_ns) for one in found], right=("FOR",), flexible="WAITING")
    else:
        note("nothing is being built")


def _document(one: RunningBuild, now_ns: int) -> dict[str, Any]:
    return {
        "key": one.digest,
        "builder": None if one.builder is None else _process_document(one.builder, now_ns),
        "waiters": [_process_document(who, now_ns) for who in one.waiters],
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
    return max(0, now_ns - who.since_ns) / 1e9  # the clock may be another machine's


def _plain(one: RunningBuild) -> tuple[object, ...]:
    """Return key, kind, name, host:pid, program, begin (s since 1970), and host:pid of each who waits, by blanks."""
    who = one.builder
    waiting = " ".join(map(str, one.waiters))
    if who is None:
        return one.digest, "", "", "", "", "", waiting
    return one.digest, who.kind, who.name, who, who.program, who.since_ns // 10**9, waiting


def _human(one: RunningBuild, now_ns: int) -> tuple[str, ...]:
    who, waiting = one.builder, ", ".join(map(str, one.waiters)) or "-"
    if who is None:
        return one.digest[:SHORT], "-", "-", "unknown", "-", "-", waiting
    lasted = format_duration(_seconds(who, now_ns))
    return one.digest[:SHORT], who.kind or "-", who.name or "-", str(who), who.program or "-", lasted, waiting
