"""``trtcache partition``: show which nodes run in an engine, which in torch, and why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtcache.config.units import format_count
from trtcache_cli.backend_name import backend_option
from trtcache_cli.output import note, print_json, printable
from trtcache_cli.output_file import check_output, open_output
from trtcache_cli.session import Session, examples, session_options
from trtcache_cli.setting_option import parse_settings, setting_option
from trtcache_cli.shapes import script_shape_option
from trtcache_cli.subjects import program_name

if TYPE_CHECKING:
    from trtcache.partition.outline import Outline, PartitionOutline

_SHOWN = 8


@click.command(
    epilog=examples(
        "trtcache partition model.pt2",
        "trtcache partition model.pt2 --setting 'torch_executed_ops=[\"aten.softmax\"]' --svg parts.svg",
        "trtcache partition model.pt2 --nodes",
        "trtcache partition model.pt --shape x=8x128 --shape ids=8x128,int64",
    )
)
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE")
@backend_option(help="The backend that would build the engines.")
@setting_option
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="Draw the partitions into this file.")
@click.option("--nodes", is_flag=True, help="List every node of each partition.")
@script_shape_option
@session_options
def partition(
    session: Session,
    file: Path,
    backend: str,
    settings: tuple[str, ...],
    svg: Path | None,
    nodes: bool,
    shapes: tuple[str, ...],
) -> None:
    """Show the partitions of a program: which nodes run in an engine, and which stay in torch and why.

    FILE: an exported program (.pt2), or a TorchScript file with a --shape for each argument. Nothing is built and no
    cache is needed.
    """
    given = parse_settings(settings)
    if svg is not None:
        check_output(svg, file, option="--svg")
    from trtcache.compiler import build  # imports torch
    from trtcache_cli.programs import open_without_shapes

    program = open_without_shapes(file, shapes)
    outline = build.outline(program, backend=backend, settings=given, name=program_name(file))
    if svg is not None:
        from trtcache.partition.outline import svg as draw

        with open_output(svg) as picture:
            picture.write_text(draw(outline), encoding="utf-8")
        note(f"drew {svg}")
    if session.as_json:
        print_json(outline.document())
        return
    for line in _lines(outline, nodes):
        click.echo(printable(line))


def _lines(outline: Outline, nodes: bool) -> Iterator[str]:
    torch_parts = len(outline.parts) - outline.engines
    engines = "one engine" if outline.engines == 1 else f"{outline.engines} engines"
    what = f"{engines}, {torch_parts} in torch" if torch_parts else engines
    yield f"{outline.name}: {what}, for {outline.backend}"
    why = {node.node: node.why for node in outline.left}
    for number, part in enumerate(outline.parts):
        yield from _part(number, part, why, nodes)


def _part(number: int, part: PartitionOutline, why: dict[str, str], nodes: bool) -> Iterator[str]:
    kind = f"engine {part.key[:12]}" if part.key else "engine" if part.engine else "torch"
    after = ", ".join("the inputs" if source < 0 else f"part {source}" for source, _ in part.after)
    weights = f", {format_count(part.weights, 'weight')}" if part.engine else ""
    yield f"part {number}: {kind}, {format_count(len(part.nodes), 'operator')}{weights}, from {after or 'nothing'}"
    if nodes:
        for name, operator in part.nodes:
            yield f"  {name}: {operator}" + (f" ({why[name]})" if name in why else "")
        return
    if part.engine:
        shown = [f"{count} x {operator}" for operator, count in part.operators]
    else:
        reasons: dict[tuple[str, str], int] = {}
        for name, operator in part.nodes:
            place = (operator, why.get(name, ""))
            reasons[place] = reasons.get(place, 0) + 1
        shown = [f"{n} x {operator}" + (f" ({reason})" if reason else "") for (operator, reason), n in reasons.items()]
    yield from (f"  {line}" for line in shown[:_SHOWN])
    if len(shown) > _SHOWN:
        yield f"  {format_count(len(shown) - _SHOWN, 'more kind')}; --nodes lists all"
