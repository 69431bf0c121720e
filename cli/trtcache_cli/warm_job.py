"""One cell of ``trtcache warm`` as a job: what runs on the host that a scheduler has chosen. It imports little."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from trtcache_cli.termination import open_input

Ended: TypeAlias = tuple[int, str, str, float]
"""Exit code, standard output, standard error and seconds of ``trtcache build --json``."""


def build_command(arguments: Sequence[str]) -> list[str]:
    """Return the command line of ``trtcache build`` for a process with ``open_input()``, which ends with this one."""
    return [sys.executable, "-m", "trtcache_cli", "build", "--json", "--end-with-input", *arguments]


def build_cell(arguments: Sequence[str], environ: Mapping[str, str], folder: str) -> Ended:
    """Run ``trtcache build --json`` in a separate process: a crash of the builder ends only that.

    Args:
        arguments: those of ``trtcache build``.
        environ: changes of the environment.
        folder: the current directory, if this host has it: modules are searched there.
    """
    begin_s = time.monotonic()
    with subprocess.Popen(  # noqa: S603  # ourselves, without a shell
        build_command(arguments),
        env={**os.environ, **environ},
        cwd=folder if Path(folder).is_dir() else None,
        stdin=open_input(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",  # a compiler or a library may print in any encoding
    ) as process:
        try:
            out, err = process.communicate()
        except BaseException:
            process.terminate()  # Ray cancels a task by a KeyboardInterrupt in it
            raise
    return process.returncode, out, err, time.monotonic() - begin_s
