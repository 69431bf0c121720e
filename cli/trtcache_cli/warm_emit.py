"""Cells of a matrix as input for schedulers: ``trtcache warm --emit``. They run ``trtcache warm --cell``."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from trtcache.errors import SettingsError
from trtcache_cli.warm_kubernetes import job, pod_environment, read_fields

if TYPE_CHECKING:
    from trtcache_cli.matrix import Cell, Matrix

FORMATS: Final = ("sbatch", "parallel", "github", "k8s")

_MOST_GITHUB_JOBS = 256
_RESOURCE = re.compile(r"[a-z][a-z0-9-]*")


def emit(
    form: str,
    matrix: Matrix,
    cells: Sequence[Cell],
    most: int | None = None,
    options: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> str:
    """Return the cells in the form that a scheduler takes.

    Args:
        form: one of ``FORMATS``.
        matrix: the matrix of the cells.
        cells: the cells to build.
        most: limits how many are built at a time.
        options: further options of ``trtcache warm`` for each of them.
        environ: variables of trtcache for hosts that do not have those of this one.
    """
    if form == "github":
        return _github(cells)
    if form == "k8s":
        return _kubernetes(matrix, cells, most, options, environ or {})
    forms = {"sbatch": _sbatch, "parallel": _parallel}
    return forms[form](matrix, cells, most, options)


def ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as text: ``0-3,7``."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in found)


def parse_ranges(text: str) -> list[int]:
    """Return the numbers of ``0-3,7``, each once.

    Raises:
        ValueError: the text is malformed.
    """
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        begin, end = int(first), int(last) if dash else int(first)
        if not 0 <= begin <= end < 10**6:
            raise ValueError(text)
        numbers += range(begin, end + 1)
    return list(dict.fromkeys(numbers))


def _command(matrix: Matrix, cells: Sequence[Cell], cell: str, options: Sequence[str]) -> list[str]:
    only = ranges([each.number for each in cells])
    return ["trtcache", "warm", str(matrix.path.resolve()), *options, "--only", only, "--cell", cell]


def _sbatch(matrix: Matrix, cells: Sequence[Cell], most: int | None, given: Sequence[str]) -> str:
    """Return an array script. A resource is an option of sbatch: ``time = "2:00:00"`` is ``--time=2:00:00``."""
    lines = [
        f"#SBATCH --{name}" + ("" if value is True else f"={shlex.quote(str(value))}")
        for name, value in sbatch_options(matrix).items()
    ]
    if len({cell.image for cell in cells}) > 1:
        raise SettingsError("--emit sbatch", "cells are of several images; emit those of one image: --image IMAGE")
    command = shlex.join(_command(matrix, cells, "auto", given))
    if cells[0].image:
        # pyxis and enroot, which most GPU clusters have, run a step in a container.
        command = f"srun --container-image={shlex.quote(cells[0].image)} {command}"
    array = f"#SBATCH --array=0-{len(cells) - 1}" + (f"%{most}" if most else "")
    return "\n".join(["#!/bin/bash", array, *lines, "set -e", command, ""])


def sbatch_options(matrix: Matrix) -> dict[str, str | int]:
    """Return the options of sbatch in ``[defaults.slurm]``, and ours; True is an option without a value.

    An option that is false there is left out, and ``requeue`` is then ``no-requeue``: Slurm requeues by default.

    Raises:
        SettingsError: one is not an option and its value, or is that of the array.
    """
    options = {"job-name": "trtcache-warm", "requeue": True, **matrix.resources.get("slurm", {})}
    for name, value in options.items():
        if name == "array":
            raise SettingsError(str(matrix.path), "defaults.slurm.array: the cells are the array; -j limits it")
        if not _RESOURCE.fullmatch(name) or not isinstance(value, (str, int)) or not str(value).isprintable():
            raise SettingsError(str(matrix.path), f"defaults.slurm.{name}: it is not an option of sbatch and its value")
    if options["requeue"] is False:
        options["no-requeue"] = True
    return {name: value for name, value in options.items() if value is not False}


def _parallel(matrix: Matrix, cells: Sequence[Cell], most: int | None, options: Sequence[str]) -> str:
    """Return a line for GNU parallel; ``--sshlogin`` is added by the user."""
    jobs = f"--jobs {most} " if most else ""
    # parallel replaces a {} of its own in the command, and gives the rest to a shell.
    words = _command(matrix, cells, "{}", options)
    if braced := [word for word in words[:-1] if "{" in word]:
        raise SettingsError("--emit parallel", f"{braced[0]}: GNU parallel replaces braces; rename it")
    command = " ".join([*map(shlex.quote, words[:-1]), words[-1]])
    return f"seq 0 {len(cells) - 1} | parallel --halt never {jobs}{shlex.quote(command)}\n"


def _github(cells: Sequence[Cell]) -> str:
    """Return the value of ``strategy.matrix``, for ``fromJSON``."""
    if len(cells) > _MOST_GITHUB_JOBS:
        why = f"GitHub allows {_MOST_GITHUB_JOBS} jobs for a matrix, and {len(cells)} cells miss; use --only"
        raise SettingsError("--emit github", why)
    include = [{"cell": cell.number, "name": str(cell), "image": cell.image} for cell in cells]
    return json.dumps({"include": include}) + "\n"


def _kubernetes(
    matrix: Matrix, cells: Sequence[Cell], most: int | None, options: Sequence[str], environ: Mapping[str, str]
) -> str:
    """Return an Indexed Job for each image, as JSON, which kubectl takes as it takes YAML."""
    given = read_fields(matrix)
    by_image: dict[str, list[Cell]] = {}
    for cell in cells:
        by_image.setdefault(cell.image or given.get("image", ""), []).append(cell)
    if "" in by_image:
        raise SettingsError("--emit k8s", "cells have no image; set image in [defaults.kubernetes]")
    env = pod_environment(matrix, given, environ)
    jobs = [
        job(_command(matrix, own, "auto", options), image, own, env, given, most) for image, own in by_image.items()
    ]
    document = jobs[0] if len(jobs) == 1 else {"apiVersion": "v1", "kind": "List", "items": jobs}
    return json.dumps(document, indent=2) + "\n"
