"""``trtcache threads``: how many threads calls get here, and who said so."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from trtcache_cli.output import on_terminal, print_aligned, print_json, print_tsv
from trtcache_cli.session import Session, examples, pass_session, session_options

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Line:
    """One number or word, who said so (empty where nobody can), and what it is."""

    name: str
    value: int | str
    origin: str
    meaning: str


@click.command(epilog=examples("trtcache threads", "OMP_NUM_THREADS=1 trtcache threads --json"))
@session_options
@pass_session
def threads(session: Session) -> None:
    """Show how many threads a call gets in this environment, and where each number comes from.

    torch.set_num_threads and trtcache.threads in a program are over what is shown here.
    """
    lines = list(in_this_environment())
    if session.as_json:
        print_json({one.name: {"value": one.value, "origin": one.origin} for one in lines})
    elif on_terminal():
        print_aligned(
            ("", "VALUE", "FROM", "MEANING"), [(one.name, str(one.value), one.origin, one.meaning) for one in lines]
        )
    else:
        print_tsv((one.name, one.value, one.origin) for one in lines)


def in_this_environment() -> Iterator[Line]:
    """Yield what torch and trtcache make of this environment."""
    import torch

    from trtcache.config.threads import VARIABLES, in_force

    found = in_force()
    yield Line("intra", found.intra, found.intra_from, "threads that work on one call together")
    yield Line("inter", found.inter, found.inter_from, "calls that run side by side in runners()")
    yield Line("cores", found.cores, "", "those that this process may use")
    for variable in VARIABLES:
        yield Line(variable, os.environ.get(variable, ""), "environment" if variable in os.environ else "", "")
    words = dict(line.split(":", 1) for line in torch.__config__.parallel_info().splitlines() if ": " in line)
    yield Line("backend", words.get("ATen parallel backend", "unknown").strip(), "torch", "how torch runs threads")
