"""Print differences for the commands ``why`` and ``diff``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from trtcache_cli.output import printable

if TYPE_CHECKING:
    from trtcache.keys.graph_diff import KeyDifference

MOST = 40


def print_differences(differences: Iterable[KeyDifference]) -> None:
    """Print a line for each difference, up to a limit, and the number of further ones."""
    lines = [printable(str(difference)) for difference in differences]
    for line in lines[:MOST]:
        click.echo(line)
    if len(lines) > MOST:
        click.echo(f"... and {len(lines) - MOST:,} more; --json has all")
