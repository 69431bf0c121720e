"""``trtcache build``: build an engine into the cache and optionally into a file."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from trtcache.config.units import format_duration
from trtcache_cli import termination
from trtcache_cli.backend_name import backend_option
from trtcache_cli.output import print_json, print_pairs, working
from trtcache_cli.output_file import check_output
from trtcache_cli.require_remote import report_failures, require_usable_remote, summed_logs
from trtcache_cli.session import Session, examples, session_options
from trtcache_cli.setting_option import parse_settings, setting_option
from trtcache_cli.shapes import shape_option
from trtcache_cli.subjects import program_name, require_file

if TYPE_CHECKING:
    from trtcache.runtime import PartitionReport, Report

DOCUMENT: Final = "trtcache.build"
"""Where the command leaves what ``--json`` prints, in click's context."""


@click.command(
    epilog=examples(
        "trtcache build model.pt2",
        "trtcache build model.pt2 -o engine.pt2 --target x86-64-v3",
        "trtcache build model.pt2 --setting inductor.max_autotune=true",
        "trtcache build model.pt --shape x=8x128 --shape ids=8x128,int64",
        "trtcache build model.onnx --target sm_89 --shape x=1:8:32x128 -o model.plan",
        "trtcache build models.bert:small",
    )
)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the engine to this file.")
@backend_option(help="The backend that builds the engine.")
@click.option("--target", help="The target machine, such as x86-64-v3; by default this machine.")
@click.option("--name", help="The name for 'trtcache ls'; by default the file's name.")
@setting_option
@click.option("--keep-program", is_flag=True, help="Store the program, without weights, for 'trtcache rebuild'.")
@click.option("--require-remote", is_flag=True, help="Exit with 4 if a look-up in a remote or an upload failed.")
@click.option("--end-with-input", is_flag=True, help="End when standard input is closed, as by the end of the parent.")
@shape_option
@session_options
def build(
    session: Session,
    file: Path,
    output: Path | None,
    backend: str,
    target: str | None,
    name: str | None,
    settings: tuple[str, ...],
    keep_program: bool,
    require_remote: bool,
    end_with_input: bool,
    shapes: tuple[str, ...],
) -> int:
    """Build the engine of a program file and put it into the cache, unless it is already there.

    FILE: an exported program (.pt2), an ONNX file (.onnx), which TensorRT and TensorRT-RTX build, a TorchScript file
    with a --shape for each argument, or MODULE:FUNCTION, a function that returns a model and its example inputs:
    (model, args) or (model, args, kwargs).

    A later compile of the same file, or of any model of the same architecture, is a hit. The engine contains no
    weights: the process that runs it supplies them. A TensorRT-RTX plan contains its weights, and is a hit for models
    with the same weights only.

    With a remote that is written to, the command ends when the uploads have ended.
    """
    click.get_current_context().with_resource(termination.raise_terminated())
    if end_with_input:
        termination.end_with_input()
    given = parse_settings(settings)
    if output is not None:
        check_output(output, file)
    require_file(file)
    cache = session.cache()
    from trtcache.compiler import build as building  # imports torch
    from trtcache_cli.programs import open_program

    program, inputs = open_program(file, shapes)
    if inputs and file.suffix != ".onnx":
        raise click.BadParameter(f"{file.name} has sizes of its own", param_hint="--shape")
    config, began_ns = cache.config, time.time_ns()
    required = require_usable_remote(config) if require_remote else None
    summed = summed_logs(required) if required is not None else frozenset()
    with working(file.name, line=f"building {file.name}, unless it is cached", shows_phases=True):
        report = building.build(
            program,
            backend=backend,
            settings=given,
            target=target,
            cache=cache,
            name=name or program_name(file),
            output=output,
            inputs=inputs,
            keep_program=keep_program,
        )
    if config.remotes.target is not None:
        from trtcache.remote.uploads import flush

        # However long they take; a remote that does not answer ends them, with a warning.
        if flush(0):
            with working("uploading"):
                flush()
    document = _document(report, output)
    click.get_current_context().meta[DOCUMENT] = document
    if session.as_json:
        print_json(document)
    else:
        print_pairs(_pairs(report, output))
    return report_failures(required, began_ns, summed) if required is not None else 0


def _document(report: Report, output: Path | None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": report.name,
        "backend": report.backend,
        "target": report.target,
        "route": report.route,
        "seconds": report.compile_s,
        "output": str(output) if output else None,
    }
    if report.fixed_sizes:
        document["fixed_sizes"] = [asdict(one) for one in report.fixed_sizes]
    engines = [_engine(partition) for partition in report.partitions]
    if len(engines) == 1 and not report.left:
        return {**document, **engines[0]}
    return {**document, "engines": engines, "in_torch": [asdict(one) for one in report.left]}


def _engine(partition: PartitionReport) -> dict[str, Any]:
    return {
        "key": partition.key.digest if partition.key else None,
        "outcome": partition.outcome,
        "reason": partition.reason,
        "why": partition.why,
        "build_s": partition.build_s,
        "build_steps": dict(partition.build_steps),
        "path": partition.path,
    }


def _pairs(report: Report, output: Path | None) -> list[tuple[str, str]]:
    from trtcache.partition.division import summarize_left

    return [
        ("name", report.name),
        ("engine", f"{report.backend} for {report.target}"),
        *(pair for partition in report.partitions for pair in _engine_pairs(partition, report.route)),
        *(("in torch", words) for words in summarize_left(report.left)),
        ("in all", format_duration(report.compile_s)),
        *([("output", str(output))] if output else []),
    ]


def _engine_pairs(partition: PartitionReport, route: str) -> list[tuple[str, str]]:
    outcome = f"{partition.outcome} ({partition.reason})" if partition.reason else partition.outcome
    found = "key alias" if route == "alias" else route
    return [
        ("key", partition.key.digest if partition.key else "none"),
        ("outcome", f"{outcome}, {found}"),
        ("build", format_duration(partition.build_s) + (" saved" if partition.outcome == "hit" else "")),
        ("entry", partition.path or "not stored"),
    ]
