"""How the commands ``why`` and ``diff`` print differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from trtcache_cli.output import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trtcache.keys.difference import KeyDifference

MOST = 40


def print_differences(differences: Iterable[KeyDifference]) -> None:
    """Print a line for each difference, and how many more there are."""
    lines = [printable(str(one)) for one in differences]
    for line in lines[:MOST]:
        click.echo(line)
    if len(lines) > MOST:
        click.echo(f"... and {len(lines) - MOST:,} more; --json has all")
