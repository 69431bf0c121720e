"""``trtcache lower``: show the lowered graph of a program, and what each pass changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtcache.errors import did_you_mean
from trtcache_cli.backend_name import backend_option
from trtcache_cli.output import note, print_json, printable_lines
from trtcache_cli.session import Session, examples, session_options
from trtcache_cli.shapes import script_shape_option
from trtcache_cli.subjects import program_name

if TYPE_CHECKING:
    from trtcache.lowering.stages import PassRun


@click.command(
    epilog=examples(
        "trtcache lower model.pt2",
        "trtcache lower model.pt2 --show fold_constants",
        "trtcache lower model.pt2 --show all",
    )
)
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE")
@backend_option(help="The backend to lower for.")
@click.option("--show", metavar="PASS", help="Print the diff and the time of this pass; 'all' for every pass.")
@script_shape_option
@session_options
def lower(session: Session, file: Path, backend: str, show: str | None, shapes: tuple[str, ...]) -> None:
    """Show the lowered graph of a program: a line for each node, in the order of the key.

    FILE: an exported program (.pt2), or a TorchScript file with a --shape for each argument. Nothing is built and no
    cache is needed.
    """
    from trtcache.compiler import build  # imports torch
    from trtcache_cli.programs import open_without_shapes

    given = open_without_shapes(file, shapes)
    program = build.lower(given, backend=backend, name=program_name(file), trace=True)
    runs = select_runs(program.runs, show)
    if session.as_json:
        document = {"name": program.name, "nodes": len(program.order), "pipeline": list(program.pipeline)}
        passes = [
            {"pass": run.spec, "modified": run.modified, "seconds": run.duration_s, "diff": run.diff} for run in runs
        ]
        print_json({**document, "text": program.text, "passes": passes})
        return
    if show is None:
        click.echo(printable_lines(program.text), nl=False)
    for run in runs if show else ():
        note(f"{run.spec}: {run.duration_s * 1e3:.2f} ms" + ("" if run.modified else ", changed nothing"))
        if run.diff:
            click.echo(printable_lines(run.diff))


def select_runs(runs: tuple[PassRun, ...], show: str | None) -> list[PassRun]:
    """Return the runs of a pass by name, or all of them.

    Raises:
        click.BadParameter: there is no pass of this name.
    """
    if show in {None, "all"}:
        return list(runs)
    matches = [run for run in runs if show in {run.spec, run.spec.partition("@")[0]}]
    if not matches:
        names = list(dict.fromkeys(run.spec.partition("@")[0] for run in runs))
        raise click.BadParameter(did_you_mean(str(show), ["all", *names]), param_hint="--show")
    return matches
