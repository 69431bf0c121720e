"""``trtcache threads``: show thread counts and where they come from."""

from __future__ import annotations

import os
from collections.abc import Iterator

import click

from trtcache.config.frozen import frozen_dataclass
from trtcache_cli.output import on_terminal, print_json, print_table, print_tsv
from trtcache_cli.session import Session, examples, session_options


@frozen_dataclass
class Line:
    """A value, its origin (empty if unknown), and its meaning."""

    name: str
    value: int | str
    origin: str
    meaning: str


@click.command(epilog=examples("trtcache threads", "OMP_NUM_THREADS=1 trtcache threads --json"))
@session_options
def threads(session: Session) -> None:
    """Show how many threads a call uses in this environment, and where each number comes from.

    torch.set_num_threads and trtcache.threads in a program override these numbers.
    """
    lines = list(in_this_environment())
    if session.as_json:
        print_json({line.name: {"value": line.value, "origin": line.origin} for line in lines})
    elif on_terminal():
        print_table(
            ("", "VALUE", "FROM", "MEANING"),
            [(line.name, str(line.value), line.origin, line.meaning) for line in lines],
        )
    else:
        print_tsv((line.name, line.value, line.origin) for line in lines)


def in_this_environment() -> Iterator[Line]:
    """Yield the thread counts and variables of torch and trtcache in this environment."""
    import torch

    from trtcache.config.threads import VARIABLES, effective_threads

    found = effective_threads()
    yield Line("intra", found.intra, found.intra_from, "intra-op threads of one call")
    yield Line("inter", found.inter, found.inter_from, "concurrent calls in runners()")
    yield Line("cores", found.cores, "", "cores available to this process")
    for variable in VARIABLES:
        yield Line(variable, os.environ.get(variable, ""), "environment" if variable in os.environ else "", "")
    words = dict(line.split(":", 1) for line in torch.__config__.parallel_info().splitlines() if ": " in line)
    yield Line("backend", words.get("ATen parallel backend", "unknown").strip(), "torch", "torch's parallel backend")
