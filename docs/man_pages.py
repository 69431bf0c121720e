r"""Manual pages from the commands' own help: ``python docs/man_pages.py FOLDER`` writes one for each command.

The click-man package writes pages only for commands that are imported already, and ours are imported on first use. It
also joins the lines of examples, which click keeps apart after a ``\b``.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROGRAM = "trtcache"


def pages() -> dict[str, str]:
    """Return file name -> page, for the program and each command below it."""
    cli: click.Group = import_module("trtcache_cli.main").cli
    ctx = click.Context(cli, info_name=_PROGRAM, **cli.context_settings)
    return {f"{name.replace(' ', '-')}.1": page for name, page in _walk(cli, ctx)}


def _walk(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, str]]:
    below = list(_below(command, ctx))
    yield ctx.command_path, _page(command, ctx, below)
    for inner in below:
        yield from _walk(inner.command, inner)


def _below(command: click.Command, ctx: click.Context) -> Iterator[click.Context]:
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            assert inner is not None, name  # noqa: S101  # it is in the list
            yield click.Context(inner, info_name=name, parent=ctx)


def _page(command: click.Command, ctx: click.Context, below: list[click.Context]) -> str:
    name = ctx.command_path.replace(" ", "-")
    # Reproducible builds set this variable.
    date = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())))
    first, _, rest = (command.help or "").partition("\n\n")
    first = " ".join(first.split())
    lines = [
        f'.TH "{name.upper()}" "1" "{date}" "{_PROGRAM}" "Commands"',
        ".SH NAME",
        f"{_text(name)} \\- {_text(first[:1].lower() + first[1:].rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_text(ctx.command_path)}",
        *_filled(" ".join(command.collect_usage_pieces(ctx))),
        ".SH DESCRIPTION",
        *_paragraphs(f"{first}\n\n{rest}"),
        ".SH OPTIONS",
    ]
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
        if record is not None:
            lines += [".TP", f".B {_text(record[0])}", *_filled(record[1])]
    if below:
        lines.append(".SH COMMANDS")
        for inner in below:
            page = _text(inner.command_path.replace(" ", "-"))
            lines += [".TP", f".BR {page} (1)", *_filled(inner.command.get_short_help_str(200))]
    lines += _epilog(command.epilog or "")
    if ctx.parent:
        others = [_PROGRAM] if ctx.parent.parent is None else [_PROGRAM, ctx.parent.command_path.replace(" ", "-")]
        lines += [".SH SEE ALSO", *(f".BR {_text(other)} (1)" for other in others)]
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> list[str]:
    """Return paragraphs; one that starts with a backspace keeps its lines."""
    lines: list[str] = []
    for paragraph in filter(None, (part.strip("\n") for part in text.split("\n\n"))):
        if paragraph.lstrip().startswith("\b"):
            lines += [".PP", ".nf", *map(_text, paragraph.replace("\b", "").strip("\n").splitlines()), ".fi"]
        else:
            lines += [".PP", *_filled(paragraph)]
    return lines[1:]  # the section's title starts the first paragraph


def _epilog(epilog: str) -> list[str]:
    """Return a section for each block, whose first line is its title."""
    lines = []
    for block in filter(None, (part.replace("\b", "").strip("\n") for part in epilog.split("\n\n"))):
        title, *body = block.splitlines()
        lines += [f".SH {title.rstrip(':').upper()}", ".nf", *(_text(line.removeprefix("  ")) for line in body), ".fi"]
    return lines


def _filled(text: str) -> list[str]:
    """Return short lines; roff fills them again."""
    return [_text(line) for line in textwrap.wrap(" ".join(text.split()), 68, break_on_hyphens=False)]


def _text(text: str) -> str:
    """Escape what roff would interpret."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq").rstrip()
    return re.sub(r"^(\s*)(['.])", r"\1\\&\2", escaped)


def main(folder: Path) -> list[Path]:
    """Write the pages, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, page in pages().items():
        paths.append(folder / name)
        paths[-1].write_text(page, encoding="utf-8")
    return paths


if __name__ == "__main__":
    main(Path(sys.argv[1]))
