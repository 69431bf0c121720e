"""Files that a command writes at a path that the user gives: checked before the work, and written atomically."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from trtcache.config.paths import atomic_write


def check_output(output: Path, *inputs: Path, option: str = "--output") -> None:
    """Check that the directory of a file to write exists, and that it is none of the files that are read.

    Raises:
        click.BadParameter: one of these is wrong; the message names the option.
    """
    if not output.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no directory {output.absolute().parent}", param_hint=option)
    for number, file in enumerate(inputs):
        refuse_input(output, file, "an input" if number else "the program", option=option)


def refuse_input(output: Path, file: Path, what: str, *, option: str = "--output") -> None:
    """Check that a file to write is another one than a file that is read; ``what`` is the latter in the message.

    Raises:
        click.BadParameter: it is the same file; the message names the option.
    """
    if output.exists() and file.exists() and output.samefile(file):
        raise click.BadParameter(f"{output}: it is {what}; choose another file", param_hint=option)


@contextmanager
def open_output(output: Path) -> Iterator[Path]:
    """Write a file atomically, as :func:`atomic_write` does; a device or a pipe, such as /dev/null, is written to."""
    if output.exists() and not output.is_file():
        yield output
    else:
        with atomic_write(output) as temporary:
            yield temporary
