"""Output formats: aligned columns on a terminal, tab-separated lines in a pipe, or JSON."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Literal, TextIO

import click

from trtcache.config.units import format_count
from trtcache.progress import Step, watching
from trtcache_cli.presentation import presentation

if TYPE_CHECKING:
    from rich.console import Console


_LEAST_WIDTH = 12
"""Columns that a shortened name keeps, even if its line then wraps."""


def on_terminal() -> bool:
    """Return whether standard output is a terminal, or ``--color always`` is given, which formats output as for one."""
    return sys.stdout.isatty() or presentation().color is True


def shows_progress() -> bool:
    """Return whether standard error is a terminal that can replace a line, and ``-q`` is not given."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not presentation().quiet


def print_json(document: object) -> None:
    """Print a document as one line of JSON."""
    sys.stdout.write(json.dumps(document) + "\n")


def printable(text: str) -> str:
    r"""Escape control characters in ``text``, such as ``\x1b`` and ``\n``.

    Names and provenance are untrusted text, which a terminal would interpret.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def printable_lines(text: str) -> str:
    """Escape control characters in ``text`` except line ends."""
    return "\n".join(map(printable, text.split("\n")))


def entries_text(count: int) -> str:
    """Return ``1 entry``, ``1,200 entries``."""
    return format_count(count, "entry", "entries")


def hits_and_misses(hits: int, misses: int) -> str:
    """Return ``2 hits, 1 miss``."""
    return f"{format_count(hits, 'hit')}, {format_count(misses, 'miss', 'misses')}"


def print_tsv(rows: Iterable[Sequence[object]]) -> None:
    """Print rows as tab-separated lines, without a header. Tabs and line ends in a value are escaped."""
    sys.stdout.write("".join("\t".join(map(_cell, row)) + "\n" for row in rows))


def _cell(value: object) -> str:
    if value is None:
        return ""
    return printable(str(value))


def print_table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    flexible: str = "",
    wraps: bool = False,
) -> None:
    """Print rows in columns: those in ``right`` aligned to the right, and ``flexible`` shortened on a narrow terminal.

    With ``wraps``, ``flexible`` is whole, on several lines. No other column is shortened: a shortened number would
    be read as another one. 10,000 rows take 30 ms, with rich 3.5 s.
    """
    cells = [[*map(printable, row)] for row in rows]
    widths = [max(map(text_width, column)) for column in zip(header, *cells, strict=True)]
    if flexible and on_terminal():
        place = header.index(flexible)
        excess = sum(widths) + 2 * (len(widths) - 1) - shutil.get_terminal_size().columns
        widths[place] = min(widths[place], max(_LEAST_WIDTH, widths[place] - excess))
        if wraps:
            cells = [line for row in cells for line in _wrap(row, place, widths[place])]
        else:
            for row in cells:
                row[place] = shorten_middle(row[place], widths[place])
    lines = [
        "  ".join(
            " " * (width - text_width(cell)) + cell if name in right else cell + " " * (width - text_width(cell))
            for name, cell, width in zip(header, row, widths, strict=True)
        ).rstrip()
        for row in (header, *cells)
    ]
    sys.stdout.write("".join(line + "\n" for line in lines))


def _wrap(row: list[str], place: int, width: int) -> list[list[str]]:
    """Return a row as several, of which the first has all cells and the others only the rest of one."""
    text = row[place]
    columns = width if text.isascii() else max(1, width // 2)  # a wide character takes two columns
    first, *rest = textwrap.wrap(text, columns, break_on_hyphens=False) or [""]
    empty = [""] * len(row)
    return [
        [*line[:place], part, *line[place + 1 :]] for line, part in [(row, first), *((empty, part) for part in rest)]
    ]


def text_width(text: str) -> int:
    """Return the columns that a text takes on a terminal: East Asian wide characters take two, marks none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def shorten_middle(text: str, width: int) -> str:
    """Return a text of at most ``width`` columns, with an ellipsis for what is left out of the middle."""
    if text_width(text) <= width:
        return text
    head, tail = (width - 1) // 2, width - 1 - (width - 1) // 2
    return f"{_leading(text, head)}\u2026{_leading(text[::-1], tail)[::-1]}"


def _leading(text: str, width: int) -> str:
    """Return the longest beginning of at most ``width`` columns."""
    end = 0
    while end < len(text) and text_width(text[: end + 1]) <= width:
        end += 1
    return text[:end]


def print_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and values: aligned on a terminal, tab-separated in a pipe."""
    pairs = list(pairs)
    if not on_terminal():
        print_tsv(pairs)
        return
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        click.echo(f"{click.style(printable(name).ljust(width), bold=True)}  {printable(value)}")


def console(*, stderr: bool = False) -> Console:
    """Return a console on standard output or error without automatic highlighting."""
    from rich.console import Console

    color = presentation().color
    system: Literal["auto", "256"] | None = "auto" if color is None else "256" if color else None
    return Console(stderr=stderr, highlight=False, color_system=system)


def note(message: str) -> None:
    """Print a message on standard error, unless ``-q`` is given."""
    if not presentation().quiet:
        complain(message)


def complain(message: str) -> None:
    """Print a warning or a failure on standard error, also with ``-q``; do without where that cannot be written."""
    try:
        click.echo(printable_lines(message), err=True)
    except OSError:  # its reader has left, or its disk is full: the command goes on
        with suppress(OSError):
            discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Redirect a stream to /dev/null, so that the flush at exit cannot raise again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def working(what: str, *, line: str = "", shows_phases: bool = False) -> Iterator[None]:
    """Report an activity on standard error: a spinner and the elapsed time on a terminal, else a line.

    Args:
        what: the activity.
        line: the line, if it says something else.
        shows_phases: whether to show the phase of a build, too.
    """
    if not shows_progress():
        note(line or what)
        yield
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    screen = console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True) as progress:
        task = progress.add_task(what, total=None)

        def show_phase(step: Step) -> bool:
            if shows_phases and not step.depth:
                count = f" {step.done}/{step.steps}" if step.steps else ""
                progress.update(task, description=f"{what}: {step.phase}{count}")
            return True

        # With a callback, ``compile`` shows no line of its own.
        with watching(show_phase):
            yield


def spinner(what: str) -> AbstractContextManager[None]:
    """Show an activity and the elapsed time while it runs on a terminal, and nothing elsewhere."""
    return working(what) if shows_progress() else nullcontext()


@contextmanager
def bytes_bar(what: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error if it is a terminal."""
    if not shows_progress():
        yield lambda _done: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (what, BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total_bytes)
        yield lambda done: progress.advance(task, done)
