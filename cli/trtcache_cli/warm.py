"""``trtcache warm``: build the engines of a matrix before they are needed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from trtcache.config.units import format_count, format_duration
from trtcache.errors import SettingsError
from trtcache_cli.matrix import Cell, Matrix, read_matrix
from trtcache_cli.output import complain, note, on_terminal, print_json, print_table, print_tsv, printable
from trtcache_cli.session import Session, examples, session_options
from trtcache_cli.warm_emit import FORMATS, emit, parse_ranges
from trtcache_cli.warm_plan import HIT as PLANNED_HIT
from trtcache_cli.warm_plan import IMPOSSIBLE, STATES, PlannedCell, Planner, total_s
from trtcache_cli.warm_run import (
    BUILT,
    FAILED,
    HIT,
    Outcome,
    build_arguments,
    claiming_environ,
    effective_environ,
    run_cells,
    why_nothing_stored,
)

if TYPE_CHECKING:
    from trtcache_cli.warm_ray import RayJobs
    from trtcache_cli.warm_slurm import SlurmJobs

INDEX_VARIABLES: Final = ("SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX", "AWS_BATCH_JOB_ARRAY_INDEX")
"""Where Slurm, Kubernetes and AWS Batch put the number of a task in an array, from 0."""

SCHEDULERS: Final = ("slurm", "ray")


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
        "trtcache warm matrix.toml --on slurm",
        "trtcache warm matrix.toml --emit sbatch | sbatch",
        "trtcache warm matrix.toml --cell auto",
    )
)
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="MATRIX")
@click.option("--plan", is_flag=True, help="Show which cells hit and which are to be built; build nothing.")
@click.option("--exact", is_flag=True, help="Export programs without a known key alias, which takes seconds for each.")
@click.option("-j", "--jobs", type=click.IntRange(1, 256), help="Builds at a time; 1 here, no limit on a scheduler.")
@click.option("--cell", metavar="I|auto", help="Build one cell; auto takes its number from the scheduler.")
@click.option("--only", type=NumbersType(), help="Only these cells, such as 0-3,7; --cell counts among them.")
@click.option("--image", default="", help="The name of this image; with --emit and --on, only its cells.")
@click.option("--emit", "form", type=click.Choice(FORMATS), help="Print the cells that miss for a scheduler.")
@click.option(
    "--on", "scheduler", type=click.Choice(SCHEDULERS), help="Run the cells that miss on a scheduler, and wait."
)
@click.option(
    "--require-remote", is_flag=True, help="Exit with 4 if an entry is missing in the remote, or not trusted there."
)
@session_options
def warm(
    session: Session,
    file: Path,
    plan: bool,
    exact: bool,
    jobs: int | None,
    cell: str | None,
    only: list[int] | None,
    image: str,
    form: str | None,
    scheduler: str | None,
    require_remote: bool,
) -> int:
    """Build the engines of a matrix into the cache, unless they are there.

    MATRIX: a TOML file. Each [[cells]] table has the options of 'trtcache build'; lists are multiplied. A cell that is
    built already costs no build. The exit code is 1 if a cell failed, also if its engine was built and not stored.
    """
    if sum(map(bool, (plan, cell, form, scheduler))) > 1:
        raise click.UsageError("--plan, --cell, --emit and --on exclude each other")
    if session.config().disable and not (plan or form):
        raise SettingsError("TRTCACHE_DISABLE", "engines are built into the cache, which it disables; unset it")
    matrix = read_matrix(file)
    cells = matrix.cells if only is None else [_cell_of(matrix.cells, number, "--only") for number in only]
    if cell is not None:
        return _build(session, _cell_of(cells, _number(cell), "--cell"), require_remote)
    cache = session.cache()
    if require_remote:
        _check_target(session)
    planner = Planner(cache, exact)
    planned = planner.plan(cells, image=image)
    if plan:
        _print_plan(session, planned)
        return 0
    if form is not None:
        options = [] if session.cache_dir is None else ["--cache-dir", str(session.cache_dir.absolute())]
        options += ["--require-remote"] if require_remote else []
        unserved = [each.cell for each in planned if each.key is not None and not planner.remote.serves(each.key)]
        if left := _for_scheduler(planned, image, unserved):
            click.echo(emit(form, matrix, left, jobs, options, effective_environ(os.environ)), nl=False)
        else:
            note("every cell hits: nothing is printed")
        return 0
    is_hit = [each for each in planned if each.state == PLANNED_HIT and not each.is_left]
    outcomes = [Outcome(each.cell, HIT, keys=(each.key or "",)) for each in is_hit]
    if scheduler is not None:
        outcomes += _run_on(scheduler, session, matrix, _for_scheduler(planned, image), jobs)
    else:
        outcomes += _run_here(session, planned, image, jobs or 1)
    _upload(planner, planned, outcomes)
    code = _report(session, sorted(outcomes, key=lambda outcome: outcome.cell.number))
    # Each image has a run of its own if one is named.
    others = [] if image else [each for each in cells if each.image]
    return code or (_check_remote(planner, outcomes, others) if require_remote else 0)


def _for_scheduler(planned: Sequence[PlannedCell], image: str, unserved: Sequence[Cell] = ()) -> list[Cell]:
    """Return the cells that miss, or that are not known here. A cell without its backend here is one of them.

    So is one of ``unserved``, which are hits here, and not in the remote.

    Raises:
        SettingsError: a program cannot be read: nothing is submitted.
    """
    unreadable = [each for each in planned if not each.is_readable]
    for each in unreadable[:1]:
        more = f"; {len(unreadable) - 1} more cells have errors: --plan" if len(unreadable) > 1 else ""
        raise SettingsError(f"cell {each.cell.number}, {each.cell}", f"{each.reason}{more}")
    left = [each.cell for each in planned if each.is_left or each.state == IMPOSSIBLE or each.cell in unserved]
    return [cell for cell in left if not image or cell.image == image]


def _run_on(scheduler: str, session: Session, matrix: Matrix, cells: Sequence[Cell], most: int | None) -> list[Outcome]:
    """Run cells on a scheduler until all of them have ended."""
    from trtcache_cli.warm_jobs import run_jobs

    if not cells:
        return []
    environ = effective_environ(os.environ)
    jobs: SlurmJobs | RayJobs
    if scheduler == "slurm":
        from trtcache_cli.warm_slurm import SlurmJobs

        jobs = SlurmJobs(matrix, most=most, cache_dir=session.cache_dir, environ=environ)
    else:
        from trtcache_cli.warm_ray import RayJobs

        if most is not None:
            raise click.UsageError("Ray runs what its CPUs allow: set num_cpus in [defaults.ray] instead of -j")
        jobs = RayJobs(matrix, cache_dir=session.cache_dir, environ=environ)
    try:
        with redirect_stdout(sys.stderr):  # Ray prints there that a node has died
            return run_jobs(jobs, cells)
    finally:
        jobs.close()


def _run_here(session: Session, planned: Sequence[PlannedCell], image: str, jobs: int) -> list[Outcome]:
    """Build the cells that miss in processes of this machine; those that are impossible here have failed."""
    left = [each.cell for each in planned if each.is_left]
    others = [cell for cell in left if cell.image not in ("", image)]
    if others:
        count = format_count(len(others), "cell")
        note(f"not built here, {count} of other images: --emit, or --image IMAGE there")
    cells = [cell for cell in left if cell.image in ("", image)]
    environ = claiming_environ(os.environ)
    outcomes = [Outcome(each.cell, FAILED, each.reason) for each in planned if each.state == IMPOSSIBLE]
    for outcome in () if session.as_json else outcomes:  # the others are shown as they end
        complain(f"cell {outcome}")
    return outcomes + run_cells(cells, jobs, cache_dir=session.cache_dir, environ=environ)


def _check_target(session: Session) -> None:
    """Check before anything is built that it can be uploaded, and used by others.

    Raises:
        SettingsError: no remote is written to.
        RemoteError: what is built would not be uploaded.
    """
    from trtcache_cli.require_remote import require_usable_remote

    config = session.config()
    require_usable_remote(config)
    if config.remotes.target is None:
        raise SettingsError("--require-remote", "no remote is written to; add ?mode=write to one of TRTCACHE_REMOTE")


def _check_remote(planner: Planner, outcomes: Sequence[Outcome], others: Sequence[Cell] = ()) -> int:
    """Return the exit code of ``--require-remote``; the ``others`` were not built here, and their keys are unknown."""
    from trtcache_cli.require_remote import EXIT_REMOTE_FAILED
    from trtcache_cli.warm_remote import check_remote

    code = check_remote(planner.cache, {key for outcome in outcomes for key in outcome.keys if key})
    if others:
        count = format_count(len(others), "cell")
        complain(f"trtcache: --require-remote: {count} of other images not built here: --image IMAGE there")
    return code or (EXIT_REMOTE_FAILED if others else 0)


def _upload(planner: Planner, planned: Sequence[PlannedCell], outcomes: Sequence[Outcome]) -> None:
    """Upload what was here already and is not in the remote; the keys of some cells are known since they ran."""
    from trtcache_cli.warm_remote import upload

    store = planner.cache.store
    hits = {key for outcome in outcomes if outcome.outcome == HIT for key in outcome.keys if key}
    here = {key for key in hits if planner.remote.needs_upload(key) and store is not None and store.contains(key)}
    upload(planner.cache, here | {digest for each in planned for digest in each.to_upload})


def _build(session: Session, cell: Cell, require_remote: bool) -> int:
    """Build one cell in this process, with the output, the errors and the exit code of ``trtcache build``.

    The exit code is 1 if nothing was stored: a scheduler that gets 0 takes the cell for done. An entry that was here
    already is uploaded, unless the remote has it.
    """
    from trtcache_cli.build import DOCUMENT, build

    if require_remote:
        _check_target(session)
    note(f"cell {cell.number}: {printable(str(cell))}")
    os.environ.update(claiming_environ(os.environ))
    options = [*(["--json"] if session.as_json else []), *(["--require-remote"] if require_remote else [])]
    root = click.get_current_context().find_root()  # whose -q is in effect
    with build.make_context("build", [*options, *build_arguments(cell, session.cache_dir)], parent=root) as context:
        code = int(build.invoke(context) or 0)
        why = why_nothing_stored(context.meta[DOCUMENT], "the cache is read-only, or a warning says why")
    if why:
        complain(f"cell {cell.number} {printable(str(cell))}: {FAILED}: {why}")
    if code or why or session.config().remotes.target is None:
        return code or int(bool(why))
    engines = context.meta[DOCUMENT].get("engines", [context.meta[DOCUMENT]])
    keys = tuple(engine["key"] for engine in engines if engine["key"])
    outcomes = [Outcome(cell, HIT, keys=keys)]
    planner = Planner(session.cache())
    _upload(planner, planner.plan([cell], image=cell.image), outcomes)
    return _check_remote(planner, outcomes) if require_remote else 0


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


def _print_plan(session: Session, planned: Sequence[PlannedCell]) -> None:
    counts = {state: sum(each.state == state for each in planned) for state in STATES}
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
    header = ("cell", "engine", "state", "expected", "reason")
    print_table(header, rows, right=("cell", "expected"), flexible="reason", wraps=True)
    counts_text = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    expected_s = total_s(planned)
    note(f"{counts_text}; about {format_duration(expected_s)} of builds" if expected_s else counts_text)


def _report(session: Session, outcomes: Sequence[Outcome]) -> int:
    counts = {name: sum(outcome.outcome == name for outcome in outcomes) for name in (BUILT, HIT, FAILED)}
    if session.as_json:
        print_json({"cells": [outcome.document() for outcome in outcomes], **counts})
    else:
        click.echo(", ".join(f"{count} {name}" for name, count in counts.items()))
    return 1 if counts[FAILED] else 0
