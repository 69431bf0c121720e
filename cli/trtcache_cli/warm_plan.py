"""The plan of ``trtcache warm``: which cells are in the cache, which are to be built, and how long that takes."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from trtcache.errors import TrtcacheError
from trtcache_cli.build import read_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trtcache.cache import Cache
    from trtcache.frontends.source import Source
    from trtcache_cli.matrix import Cell

State = Literal["hit", "build", "unknown", "impossible"]

HIT: Final = "hit"
BUILD: Final = "build"
UNKNOWN: Final = "unknown"
IMPOSSIBLE: Final = "impossible"


@dataclass(slots=True)
class PlannedCell:
    """What is known of a cell before anything is built.

    Attributes:
        cell: the cell.
        state: ``hit``: it is in the cache. ``build``: it is not. ``unknown``: nothing tells without an export, or it
            belongs to another image. ``impossible``: it cannot be built here.
        reason: why it is unknown or impossible.
        key: the key of its engine, where it is known.
        expected_s: seconds that its build will take, from earlier builds; None if there were none.
    """

    cell: Cell
    state: State
    reason: str = ""
    key: str | None = None
    expected_s: float | None = None

    def document(self) -> dict[str, Any]:
        """Return the cell and its state as JSON."""
        state = {name: value for name, value in asdict(self).items() if name != "cell"}
        return {**self.cell.document(), **state}


@dataclass(slots=True)
class Planner:
    """Looks cells up in a cache.

    Attributes:
        cache: the cache.
        exact: whether to export programs that no alias is known of, which takes seconds each.
        durations: (kind, name) and kind -> seconds of earlier builds.
    """

    cache: Cache
    exact: bool = False
    durations: dict[Any, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read how long earlier builds took."""
        from trtcache.store.rows import INDEX_NAME, read_rows

        for store in self.cache.layers.disks:
            for _, kind, name, *_, build_s, _, _ in (read_rows(store.index_root / INDEX_NAME) or {}).values():
                for known in (kind, (kind, name)):
                    self.durations.setdefault(known, []).append(build_s)

    def plan(
        self, cells: Iterable[Cell], *, image: str = "", on_cell: Callable[[], object] = bool
    ) -> list[PlannedCell]:
        """Return the state of each cell.

        Args:
            cells: the cells.
            image: the image of this machine; the cells of others are unknown.
            on_cell: is called after each.
        """
        planned = []
        with ExitStack() as opened:
            sources: dict[tuple[str, tuple[str, ...]], Source | TrtcacheError | OSError] = {}
            for cell in cells:
                if cell.image and cell.image != image:
                    planned.append(PlannedCell(cell, UNKNOWN, f"its versions are those of {cell.image}"))
                else:
                    planned.append(self._look(cell, sources, opened))
                on_cell()
        return planned

    def _look(self, cell: Cell, sources: dict[Any, Source | TrtcacheError | OSError], opened: ExitStack) -> PlannedCell:
        if not self.exact and not cell.file.endswith((".pt2", ".onnx")):
            return PlannedCell(cell, UNKNOWN, "only an export tells: --exact", expected_s=self._expected_s(cell, None))
        shapes = tuple(dict(cell.options).get("shape", ()))
        if (cell.file, shapes) not in sources:
            try:
                sources[cell.file, shapes] = opened.enter_context(_open(cell, shapes))
            except (TrtcacheError, OSError) as error:
                sources[cell.file, shapes] = error
        source = sources[cell.file, shapes]
        if isinstance(source, (TrtcacheError, OSError)):
            return PlannedCell(cell, IMPOSSIBLE, str(source))
        try:
            return self._find(cell, source)
        except TrtcacheError as error:
            return PlannedCell(cell, IMPOSSIBLE, str(error))

    def _find(self, cell: Cell, source: Source) -> PlannedCell:
        from trtcache.compiler.alias_lookup import AliasLookup
        from trtcache.frontends.source import CompileOptions

        options = dict(cell.options)
        settings = read_settings(options.get("setting", ()))
        given = CompileOptions.of(cell.get("backend") or "auto", settings, cell.get("target") or None)
        kind = source.find_backend(given).name
        lookup = AliasLookup.of(source, given, self.cache)
        if lookup is not None and (found := lookup.find()) is not None:
            return PlannedCell(cell, HIT, key=found.entry.key.digest)
        expected_s = self._expected_s(cell, kind)
        if not self.exact:
            known = lookup is not None and lookup.is_stored
            reason = "" if known else "no key alias leads on: --exact exports it"
            return PlannedCell(cell, BUILD if known else UNKNOWN, reason, expected_s=expected_s)
        key = source.request(given).key
        if not hasattr(key, "digest"):
            return PlannedCell(cell, UNKNOWN, f"it has no key: {key}", expected_s=expected_s)
        there = self.cache.layers.holder(key.digest) is not None
        return PlannedCell(cell, HIT if there else BUILD, key=key.digest, expected_s=None if there else expected_s)

    def _expected_s(self, cell: Cell, kind: str | None) -> float | None:
        """Return the median of earlier builds of this name, or else of this backend."""
        kind = kind or cell.get("backend")
        name = cell.get("name") or Path(cell.file).stem
        found = self.durations.get((kind, name)) or self.durations.get(kind)
        return statistics.median(found) if found else None


def _open(cell: Cell, shapes: Sequence[str]) -> Source:
    from trtcache.frontends.resolve import resolve
    from trtcache_cli.programs import open_program

    name = cell.get("name") or Path(cell.file).stem
    try:
        program, inputs = open_program(Path(cell.file), shapes)
        return resolve(program, (), inputs, name=name)
    except click.BadParameter as error:
        raise click.BadParameter(f"{cell}: {error.format_message()}") from None


def total_s(planned: Iterable[PlannedCell]) -> float:
    """Return the seconds that the builds of a plan are expected to take, one after the other."""
    return sum(each.expected_s or 0.0 for each in planned if each.state in (BUILD, UNKNOWN))
