"""``trtcache export``: write a program file with its engines for one or several targets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trtcache.config.units import format_duration, format_size
from trtcache_cli.backend_name import backend_option
from trtcache_cli.output import print_json, print_pairs
from trtcache_cli.output_file import check_output
from trtcache_cli.session import Session, examples, session_options
from trtcache_cli.setting_option import parse_settings, setting_option
from trtcache_cli.shapes import script_shape_option
from trtcache_cli.subjects import program_name

if TYPE_CHECKING:
    from trtcache.bundle.export import ExportReport


@click.command(
    epilog=examples(
        "trtcache export model.pt2 -o program.pt2",
        "trtcache export model.pt2 --target x86-64-v2 --target x86-64-v3 -o program.pt2",
        "trtcache export model.pt2 --backend tensorrt_rtx --target sm_89 --target sm_120 -o program.pt2",
    )
)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The file to write."
)
@backend_option(help="The backend that builds the engines.")
@click.option("targets", "--target", multiple=True, help="A target machine; by default this machine. Repeatable.")
@click.option(
    "--engines",
    type=click.Choice(["embed", "sidecar", "reference"]),
    default="embed",
    show_default=True,
    help="Where engines are stored: in the file, in files beside it, or as keys only.",
)
@click.option("--name", help="The display name of the program; by default the file's name.")
@setting_option
@script_shape_option
@session_options
def export(
    session: Session,
    file: Path,
    output: Path,
    backend: str,
    targets: tuple[str, ...],
    engines: str,
    name: str | None,
    settings: tuple[str, ...],
    shapes: tuple[str, ...],
) -> None:
    """Write a program with its engines to a file, for machines without a cache and without the model's code.

    FILE: an exported program (.pt2), or a TorchScript file with a --shape for each argument.

    'trtcache.load' runs the file, and 'torch.export.load' opens it. Engines are taken from the cache, or built into it.
    The file is signed if TRTCACHE_SIGNING_KEY is set.
    """
    given = parse_settings(settings)
    check_output(output, file)
    cache = session.cache()
    from trtcache.bundle.export import export_program
    from trtcache.settings import Settings
    from trtcache_cli.programs import load_program

    written = export_program(
        load_program(file, shapes),
        output,
        engines=engines,
        targets=targets,
        backend=backend,
        settings=Settings.of(given),
        cache=cache,
        name=name or program_name(file),
    )
    if session.as_json:
        print_json(_document(written))
    else:
        print_pairs(_pairs(written))


def _document(written: ExportReport) -> dict[str, Any]:
    return {
        "name": written.name,
        "backend": written.backend,
        "targets": list(written.targets),
        "engines": written.engines,
        "files": [str(path) for path in written.files],
        "size_bytes": written.size_bytes,
        "signer": written.signer or None,
        "export_s": written.export_s,
    }


def _pairs(written: ExportReport) -> list[tuple[str, str]]:
    files = [("file" if place == 0 else "beside it", str(path)) for place, path in enumerate(written.files)]
    return [
        ("name", written.name),
        ("backend", written.backend),
        *(("target", label) for label in written.targets),
        ("engines", f"{written.engines} for each target"),
        *files,
        ("size", format_size(written.size_bytes)),
        ("signed by", written.signer or "no one: load it with trust='local-file'"),
        ("took", format_duration(written.export_s)),
    ]
