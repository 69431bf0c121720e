"""``trtcache warm``: build the engines of a matrix before they are needed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from trtcache.config.units import format_duration
from trtcache.errors import SettingsError
from trtcache_cli.matrix import read_matrix
from trtcache_cli.output import note, on_terminal, print_json, print_table, print_tsv, printable
from trtcache_cli.session import Session, examples, pass_session, session_options
from trtcache_cli.warm_emit import FORMATS, emit, parse_ranges
from trtcache_cli.warm_run import cache_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trtcache_cli.matrix import Cell
    from trtcache_cli.warm_plan import PlannedCell
    from trtcache_cli.warm_run import Outcome

INDEX_VARIABLES: Final = ("SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX", "AWS_BATCH_JOB_ARRAY_INDEX")
"""Where Slurm, Kubernetes and AWS Batch put the number of a task in an array, from 0."""


class NumbersType(click.ParamType[list[int]]):
    """Numbers and ranges of them: ``0-3,7``."""

    name = "numbers"

    def convert(
        self,
        value: str,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> list[int]:
        """Return the numbers."""
        try:
            return parse_ranges(value)
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers, such as 0-3,7", param, ctx)


@click.command(
    epilog=examples(
        "trtcache warm matrix.toml --plan",
        "trtcache warm matrix.toml -j 2",
        "trtcache warm matrix.toml --emit sbatch | sbatch",
        "trtcache warm matrix.toml --cell auto",
    )
)
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="MATRIX")
@click.option("--plan", is_flag=True, help="Show which cells hit and which are to be built; build nothing.")
@click.option("--exact", is_flag=True, help="Export the programs that no key alias is known of; seconds for each.")
@click.option("-j", "--jobs", type=click.IntRange(1, 256), default=1, show_default=True, help="Builds at a time.")
@click.option("--cell", metavar="I|auto", help="Build one cell; auto takes its number from the scheduler.")
@click.option("--only", type=NumbersType(), help="Only these cells, such as 0-3,7; --cell counts among them.")
@click.option("--image", default="", help="The image that this is; cells of other images are not built here.")
@click.option("--emit", "form", type=click.Choice(FORMATS), help="Print the cells that miss for a scheduler.")
@session_options
@pass_session
def warm(
    session: Session,
    file: Path,
    plan: bool,
    exact: bool,
    jobs: int,
    cell: str | None,
    only: list[int] | None,
    image: str,
    form: str | None,
) -> int:
    """Build the engines of a matrix into the cache, unless they are there.

    MATRIX: a TOML file. Each [[cells]] table has the options of 'trtcache build'; lists are multiplied. A cell that is
    built already costs no build. The exit code is 1 if a cell failed.
    """
    if sum(map(bool, (plan, cell, form))) > 1:
        raise click.UsageError("--plan, --cell and --emit exclude each other")
    matrix = read_matrix(file)
    cells = matrix.cells if only is None else [_cell_of(matrix.cells, number, "--only") for number in only]
    if cell is not None:
        return _build(session, _cell_of(cells, _number(cell), "--cell"))
    planned = _plan(session, cells, image=image, exact=exact)
    if plan:
        _print_plan(session, planned)
        return 0
    if form is not None:
        missing = [each.cell for each in planned if each.state in ("build", "unknown")]
        if image:
            missing = [each for each in missing if each.image == image]
        _note_impossible(planned)
        if not missing:
            note("every cell hits: nothing is printed")
            return 0
        click.echo(emit(form, matrix, missing), nl=False)
        return 0
    return _warm(session, planned, jobs, image)


def _warm(session: Session, planned: Sequence[PlannedCell], jobs: int, image: str) -> int:
    from trtcache_cli.warm_run import FAILED, HIT, Outcome

    done = [Outcome(each.cell, HIT, keys=(each.key or "",)) for each in planned if each.state == "hit"]
    done += [Outcome(each.cell, FAILED, each.reason) for each in planned if each.state == "impossible"]
    left = [each for each in planned if each.state in ("build", "unknown")]
    others = [each for each in left if each.cell.image not in ("", image)]
    if others:
        note(f"{len(others)} cells belong to other images and are not built here: --emit, or --image IMAGE there")
    outcomes = done + _run(session, [each.cell for each in left if each not in others], jobs)
    return _report(session, sorted(outcomes, key=lambda outcome: outcome.cell.number))


def _build(session: Session, cell: Cell) -> int:
    """Build one cell in this process, with the output and the errors of ``trtcache build``."""
    from trtcache_cli.build import build

    note(f"cell {cell.number}: {printable(str(cell))}")
    json_option = ["--json"] if session.as_json else []
    build.main([*json_option, *cache_option(session.cache_dir), *cell.arguments], standalone_mode=False)
    return 0


def _number(cell: str) -> int:
    """Return the number of the cell to build.

    Raises:
        SettingsError: it is not a number, or no scheduler has set one.
    """
    if cell != "auto":
        if not (cell.isascii() and cell.isdigit()):
            raise SettingsError("--cell", f"{cell!r} is neither a number nor auto")
        return int(cell)
    for name in INDEX_VARIABLES:
        if (text := os.environ.get(name, "")).isdigit():
            return int(text)
    raise SettingsError("--cell auto", f"none of these is set: {', '.join(INDEX_VARIABLES)}")


def _cell_of(cells: Sequence[Cell], number: int, option: str) -> Cell:
    if number >= len(cells):
        raise SettingsError(option, f"there is no cell {number}; there are {len(cells)}, from 0")
    return cells[number]


def _plan(session: Session, cells: Sequence[Cell], *, image: str, exact: bool) -> list[PlannedCell]:
    from trtcache.cache import Cache
    from trtcache_cli.warm_plan import Planner

    return Planner(Cache(config=session.config()), exact).plan(cells, image=image)


def _run(session: Session, cells: Sequence[Cell], jobs: int) -> list[Outcome]:
    from trtcache_cli.warm_run import run_cells

    return run_cells(cells, jobs, session.cache_dir)


def _print_plan(session: Session, planned: Sequence[PlannedCell]) -> None:
    from trtcache_cli.warm_plan import total_s

    counts = {state: sum(each.state == state for each in planned) for state in _STATES}
    if session.as_json:
        document = {"cells": [each.document() for each in planned], **counts, "expected_s": total_s(planned)}
        print_json(document)
        return
    rows = [
        (
            str(each.cell.number),
            str(each.cell),
            each.state,
            "" if each.expected_s is None else format_duration(each.expected_s),
            each.reason,
        )
        for each in planned
    ]
    if not on_terminal():
        print_tsv(rows)
        return
    print_table(("cell", "engine", "state", "expected", "reason"), rows, right=("cell", "expected"), flexible="reason")
    counts_text = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    note(f"{counts_text}; about {format_duration(total_s(planned))} of builds")


_STATES = ("hit", "build", "unknown", "impossible")


def _note_impossible(planned: Sequence[PlannedCell]) -> None:
    for each in planned:
        if each.state == "impossible":
            note(f"cell {each.cell.number} {printable(str(each.cell))} is left out: {printable(each.reason)}")


def _report(session: Session, outcomes: Sequence[Outcome]) -> int:
    counts = {name: sum(outcome.outcome == name for outcome in outcomes) for name in ("built", "hit", "failed")}
    if session.as_json:
        print_json({"cells": [outcome.document() for outcome in outcomes], **counts})
    else:
        for outcome in outcomes:
            if outcome.outcome == "failed" and outcome.seconds == 0:  # the others were shown as they ended
                note(f"cell {outcome}")
        click.echo(", ".join(f"{count} {name}" for name, count in counts.items()))
    return 1 if counts["failed"] else 0
