"""``trtcache report``: a page about a cache directory or a remote, or a summary."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtcache.config.paths import atomic_write
from trtcache.config.remotes import RemoteUrl
from trtcache.config.units import format_duration, format_size
from trtcache_cli.keys import SHORT_DIGITS
from trtcache_cli.output import entries_text, note, on_terminal, print_json, print_pairs, print_table
from trtcache_cli.places import PlaceType
from trtcache_cli.report_figures import Figures, read_remote, read_store, report_document
from trtcache_cli.report_matrix import read_heat_map
from trtcache_cli.session import Session, examples, session_options

if TYPE_CHECKING:
    from trtcache_cli.kind_sums import Sums

_ROWS = 8
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(
    epilog=examples(
        "trtcache report",
        "trtcache report --html report.html",
        "trtcache report --html report.html s3://engines/main",
        "trtcache report --html report.html --matrix matrix.toml --outcomes warm.json",
        "trtcache report --json | jq .hit_rate",
    )
)
@click.argument("place", type=PlaceType(), required=False, metavar="[CACHE|URL]")
@click.option("--html", type=_FILE, metavar="FILE", help="Write a page that is one file.")
@click.option("--matrix", type=_FILE, metavar="MATRIX", help="Show which cells of a matrix of 'trtcache warm' hit.")
@click.option(
    "--outcomes", type=_FILE, metavar="FILE", help="What 'trtcache warm MATRIX --json' printed: cells that failed."
)
@session_options
def report(
    session: Session, place: Path | RemoteUrl | None, html: Path | None, matrix: Path | None, outcomes: Path | None
) -> None:
    """Report on a cache: sizes by kind, model and target, look-ups over time, time saved, and what could be removed.

    --html writes a page that needs no other file, no script and no network; it needs Jinja2 (pip install
    'trtcache[report]'). Without it, a summary is printed.

    CACHE: a cache directory, by default that of the settings. URL: a remote; the first 64 KiB of each entry are read,
    and its look-ups are those of this machine.
    """
    if outcomes is not None and matrix is None:
        raise click.UsageError("--outcomes needs --matrix")
    if html is not None and find_spec("jinja2") is None:
        raise click.UsageError("--html needs Jinja2: pip install 'trtcache[report]'")
    if isinstance(place, Path):
        session.cache_dir = place
    figures = _read(session, place, matrix, outcomes)
    if html is not None:
        from trtcache_cli.report_page import render  # Jinja2

        text = render(figures)
        with atomic_write(html) as temporary:
            temporary.write_text(text, encoding="utf-8")
        note(f"{html}: {entries_text(figures.stats.entries)}, {format_size(html.stat().st_size)}")
    if session.as_json:
        print_json(report_document(figures))
    elif html is None:
        _print(figures)


def _read(session: Session, place: Path | RemoteUrl | None, matrix: Path | None, outcomes: Path | None) -> Figures:
    store, config, now_ns = session.store(), session.config(), time.time_ns()
    if isinstance(place, RemoteUrl):
        figures = read_remote(store, config, place, now_ns)
    else:
        figures = read_store(store, config, now_ns)
    if matrix is None:
        return figures
    listed = frozenset(record.digest for record in figures.records) if figures.is_remote else None
    return replace(figures, heat=read_heat_map(config, matrix, outcomes, listed))


def _print(figures: Figures) -> None:
    """Print a summary, and on a terminal tables below it."""
    print_pairs(_summary(figures))
    if not on_terminal():
        return
    for title, sums in (("KIND", figures.kinds), ("MODEL", figures.models), ("TARGET", figures.target_sums)):
        _print_table((title, "ENTRIES", "SIZE"), _sum_rows(sums))
    rows = [
        (f"trtcache prune {option.arguments}", f"{len(option.plan.evict):,}", format_size(option.plan.freed_bytes),
         format_duration(option.lost_s))
        for option in figures.options
    ]  # fmt: skip
    _print_table(("WOULD REMOVE", "ENTRIES", "SIZE", "BUILDS"), rows)
    slowest = [
        (record.digest[:SHORT_DIGITS], record.name or "-", format_duration(record.build_s))
        for record in figures.slowest[:_ROWS]
    ]
    _print_table(("SLOWEST", "NAME", "BUILD"), slowest)


def _summary(figures: Figures) -> list[tuple[str, str]]:
    rate = "" if figures.hit_rate is None else f" ({figures.hit_rate:.1%} of look-ups)"
    periods, misses = figures.history.periods, figures.misses
    since = f" since {periods[0].first}" if periods else ""
    pairs = [
        ("remote" if figures.is_remote else "cache directory", figures.place),
        *([("look-ups of", figures.source)] if figures.is_remote else []),
        (
            "entries",
            f"{figures.stats.entries:,} of {format_size(figures.stats.file_bytes)}"
            + (f", with {figures.hidden:,} more of --all" if figures.hidden else ""),
        ),
        ("builds", f"{format_duration(figures.build_s)} in these engines"),
        ("hits", f"{figures.hits:,}{rate}{since}"),
        ("time saved", format_duration(figures.saved_s)),
        ("misses", f"{misses.total():,}"),
        *((f"  {reason}", f"{count:,}") for reason, count in misses.most_common()),
    ]
    if figures.unreadable:
        pairs.append(("unreadable", f"{figures.unreadable:,} entries"))
    if figures.untrusted:
        pairs.append(("untrusted", f"{figures.untrusted:,} entries"))
    if figures.unused is not None:
        size_bytes = sum(record.file_bytes for record in figures.unused)
        pairs.append(("unused", f"{len(figures.unused):,} engines of {format_size(size_bytes)} since they were built"))
    if figures.heat is not None:
        counts = ", ".join(f"{count:,} {state}" for state, count in figures.heat.counts.items() if count)
        pairs.append(("matrix", f"{counts}; about {format_duration(figures.heat.expected_s)} of builds"))
    return pairs


def _sum_rows(sums: Sums) -> list[tuple[str, str, str]]:
    rows = [(label, f"{count:,}", format_size(size)) for label, (count, size) in list(sums.items())[:_ROWS]]
    if len(sums) > _ROWS:
        rest = list(sums.values())[_ROWS:]
        count, size_bytes = sum(number for number, _ in rest), sum(size for _, size in rest)
        rows.append((f"({len(rest):,} more)", f"{count:,}", format_size(size_bytes)))
    return rows


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if rows:
        click.echo()
        print_table(header, rows, right=tuple(header[1:]) if header[0] != "SLOWEST" else header[2:], flexible=header[0])
