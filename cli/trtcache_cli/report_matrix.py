"""The matrix of ``trtcache warm`` as a heat map: a row for each program and its options, a column for each target."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trtcache.config.frozen import frozen_dataclass
from trtcache.config.units import format_count
from trtcache.errors import SettingsError
from trtcache_cli.matrix import Cell, Matrix, read_matrix
from trtcache_cli.output import working
from trtcache_cli.warm_plan import BUILD, HIT, IMPOSSIBLE, UNKNOWN, PlannedCell, Planner, total_s

if TYPE_CHECKING:
    from trtcache.config.environment import Config

MISSING: Final = "missing"
FAILED: Final = "failed"
STATES: Final = (HIT, MISSING, UNKNOWN, FAILED)
_STATE_OF: Final = {HIT: HIT, BUILD: MISSING, UNKNOWN: UNKNOWN, IMPOSSIBLE: FAILED}
_COLUMN_OPTIONS = ("target", "backend")
_MOST_BYTES = 256 << 20


@frozen_dataclass
class HeatMap:
    """The states of all cells.

    Attributes:
        path: the file of the matrix.
        columns: targets, with the backend where cells differ in it, and the image if there is one.
        rows: program and other options -> cells by column; a place has several cells if they differ only in
            ``keep_program``, or are repeated.
        expected_s: seconds that the missing cells take to build.
    """

    path: Path
    columns: list[str]
    rows: dict[str, dict[str, list[HeatCell]]]
    expected_s: float

    @property
    def cells(self) -> list[HeatCell]:
        """All cells."""
        return [cell for row in self.rows.values() for cells in row.values() for cell in cells]

    @property
    def counts(self) -> dict[str, int]:
        """The number of cells in each state."""
        counts = Counter(cell.state for cell in self.cells)
        return {state: counts[state] for state in STATES}


@frozen_dataclass
class HeatCell:
    """One cell. ``reason`` says why it failed or is unknown."""

    number: int
    label: str
    state: str
    reason: str = ""
    key: str | None = None
    expected_s: float | None = None


def read_heat_map(config: Config, path: Path, outcomes: Path | None, listed: Collection[str] | None) -> HeatMap:
    """Look the cells of a matrix up, without counting hits.

    Args:
        config: the cache. Nothing is written to it, and no remote is asked.
        path: the matrix.
        outcomes: what ``trtcache warm --json`` printed of it, or None.
        listed: for the matrix of a remote, the digests of its entries.
    """
    from trtcache.cache import Cache

    matrix = read_matrix(path)
    failures = {} if outcomes is None else _read_failures(outcomes, matrix)
    remotes = replace(config.remotes, urls=())
    config = replace(config, readonly=True, disable=False, recache=False, remotes=remotes)
    with working(f"looking up {format_count(len(matrix.cells), 'cell')} of {path.name}"):
        planned = Planner(Cache(config=config)).plan(matrix.cells)
    if listed is not None:
        planned = [_in_remote(each, listed) for each in planned]
    planned = [
        PlannedCell(each.cell, IMPOSSIBLE, failures[each.cell.number]) if each.cell.number in failures else each
        for each in planned
    ]
    return _arrange(path, planned)


def _in_remote(planned: PlannedCell, listed: Collection[str]) -> PlannedCell:
    """Return the state of a cell in a remote: local aliases lead to its key, and the listing says if it is there."""
    if planned.key in listed:
        return replace(planned, state=HIT, reason="", expected_s=None)
    if planned.state == HIT:
        return replace(planned, state=BUILD, reason="it is in the local cache only")
    return planned


def _read_failures(path: Path, matrix: Matrix) -> dict[int, str]:
    """Return the number of each cell that failed, and why.

    Raises:
        SettingsError: the file is not the output of ``trtcache warm --json`` for this matrix.
    """
    if path.stat().st_size > _MOST_BYTES:
        raise SettingsError("--outcomes", f"{path} has more than {_MOST_BYTES >> 20} MiB")
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
        found = [(int(each["cell"]), str(each["file"]), each["outcome"], each["why"]) for each in document["cells"]]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise SettingsError("--outcomes", f"{path} is not what 'trtcache warm MATRIX --json' prints") from error
    cells = matrix.cells
    for number, file, _, _ in found:
        if not 0 <= number < len(cells) or not _is_same(file, cells[number].file, matrix.path.parent):
            raise SettingsError("--outcomes", f"{path} is of another matrix: its cell {number} is {file!r}")
    return {number: str(why or "it failed") for number, _, outcome, why in found if outcome == FAILED}


def _is_same(file: str, program: str, folder: Path) -> bool:
    """Return whether a file in outcomes is the program of a cell; the matrix may have been named by another path."""
    if file == program:
        return True
    if not Path(program).is_relative_to(folder):
        return False
    relative = Path(program).relative_to(folder).parts
    return Path(file).parts[-len(relative) :] == relative


def _arrange(path: Path, planned: Sequence[PlannedCell]) -> HeatMap:
    columns: dict[str, None] = {}
    rows: dict[str, dict[str, list[HeatCell]]] = {}
    shared = _shared_options(each.cell for each in planned)
    for each in planned:
        cell = each.cell
        options = [(name, value) for name, value in cell.options if (name, value) not in shared]
        column = [text for name, value in options if name in _COLUMN_OPTIONS for text in value]
        row = [text for name, value in options if name not in _COLUMN_OPTIONS for text in value if text]
        column_name = " ".join([*column, *([f"[{cell.image}]"] if cell.image else [])]) or "this machine"
        columns.setdefault(column_name)
        heat = HeatCell(cell.number, str(cell), _STATE_OF[each.state], each.reason, each.key, each.expected_s)
        row_name = " ".join([cell.file.removeprefix(f"{path.parent}/"), *row])
        rows.setdefault(row_name, {}).setdefault(column_name, []).append(heat)
    return HeatMap(path, list(columns), rows, total_s(planned))


def _shared_options(cells: Iterable[Cell]) -> set[tuple[str, tuple[str, ...]]]:
    """Return the options that all cells have, but for targets, which are the columns."""
    common = set.intersection(*(set(cell.options) for cell in cells))
    return {option for option in common if option[0] != "target"}


def heat_document(heat: HeatMap) -> Mapping[str, object]:
    """Return the heat map for ``--json``."""
    cells = [asdict(cell) for cell in heat.cells]
    return {"file": str(heat.path), **heat.counts, "expected_s": heat.expected_s, "cells": cells}
