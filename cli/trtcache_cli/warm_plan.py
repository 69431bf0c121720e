"""The plan of ``trtcache warm``: which cells are in the cache, which are to be built, and how long that takes.

``import torch`` takes longer than the rest of a plan, so ``.pt2`` files are first looked up without it, where that
gives the same answer (``trtcache.bundle.file_alias``).
"""

from __future__ import annotations

import logging
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from trtcache.config.paths import PROGRAM_SUFFIXES
from trtcache.digests import CacheKey
from trtcache.errors import RemoteError, TrtcacheError
from trtcache_cli.output import complain
from trtcache_cli.setting_option import parse_settings
from trtcache_cli.subjects import program_name
from trtcache_cli.warm_remote import RemoteListing

if TYPE_CHECKING:
    from trtcache.bundle.file_alias import FileLookup, MappedPt2File
    from trtcache.cache import Cache
    from trtcache.frontends.source import CompileOptions, Source
    from trtcache_cli.matrix import Cell

log = logging.getLogger("trtcache_cli")

State = Literal["hit", "build", "unknown", "impossible"]

HIT: Final = "hit"
BUILD: Final = "build"
UNKNOWN: Final = "unknown"
IMPOSSIBLE: Final = "impossible"
STATES: Final = (HIT, BUILD, UNKNOWN, IMPOSSIBLE)


@dataclass(slots=True)
class PlannedCell:
    """What is known of a cell before anything is built.

    Attributes:
        cell: the cell.
        state: ``hit``: it is in the cache. ``build``: it is not. ``unknown``: it is not known without an export, or it
            belongs to another image. ``impossible``: it cannot be built here.
        reason: why it is unknown or impossible, or why an entry that is there is built again.
        key: the key of its engine, where it is known.
        expected_s: seconds that its build will take, from earlier builds; None if there were none.
        is_readable: whether its program can be read; if not, no other machine can build it either.
        to_upload: entries of the cache directory that the remote which is written to lacks, or that are to be renewed.
        is_renewed: whether it is only in a remote, and to be uploaded again by a process that hits it.
    """

    cell: Cell
    state: State
    reason: str = ""
    key: str | None = None
    expected_s: float | None = None
    is_readable: bool = True
    to_upload: tuple[str, ...] = ()
    is_renewed: bool = False

    @property
    def is_left(self) -> bool:
        """Whether a process has to build or to renew it."""
        return self.state in (BUILD, UNKNOWN) or self.is_renewed

    def document(self) -> dict[str, Any]:
        """Return the cell and its state as JSON."""
        state = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "cell"}
        return {**self.cell.document(), **state}


@dataclass(slots=True)
class Planner:
    """Looks cells up in a cache, and in listings of its remotes; nothing is fetched but key aliases, nothing uploaded.

    Attributes:
        cache: the cache.
        exact: whether to export programs that no alias is known of, which takes seconds each.
        durations: (kind, name) and kind -> seconds of earlier builds.
        remote: the names in the remotes.
    """

    cache: Cache
    exact: bool = False
    durations: dict[Any, list[float]] = field(default_factory=dict)
    remote: RemoteListing = field(init=False)
    _reader: Cache = field(init=False)
    _medians_s: dict[tuple[str, str], float | None] = field(default_factory=dict)
    _lookups: dict[tuple[tuple[str, ...], ...], FileLookup | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """List the remotes, and read how long earlier builds took."""
        from trtcache.cache import Cache
        from trtcache.store.record import INDEX_NAME, read_rows

        config = self.cache.config
        self.remote = RemoteListing(config)
        # A writer renews an alias that it hits after half of its lifetime, so look-ups use read-only remotes.
        self._reader = Cache(config=replace(config, remotes=config.remotes.readonly()))
        for store in self.cache.layers.disks:
            for _, kind, name, *_, build_s, _, _ in (read_rows(store.index_root / INDEX_NAME) or {}).values():
                for known in (kind, (kind, name)):
                    self.durations.setdefault(known, []).append(build_s)

    def plan(self, cells: Iterable[Cell], *, image: str = "") -> list[PlannedCell]:
        """Return the state of each cell; the cells of other images than ``image`` are unknown."""
        planned: list[PlannedCell] = []
        by_program: dict[tuple[str, tuple[str, ...]], list[Cell]] = {}
        for cell in cells:
            if cell.image and cell.image != image:
                planned.append(PlannedCell(cell, UNKNOWN, f"it belongs to image {cell.image}"))
            elif not self.exact and not cell.file.endswith(PROGRAM_SUFFIXES):
                expected_s = self._expected_s(cell, None)
                planned.append(PlannedCell(cell, UNKNOWN, "it has to be exported: use --exact", expected_s=expected_s))
            else:
                by_program.setdefault((cell.file, dict(cell.options).get("shape", ())), []).append(cell)
        planned += self._look_without_torch(by_program)
        # A program is opened once, and closed before the next: a matrix can have more files than a process may open.
        for (_, shapes), own in by_program.items():
            try:
                with _open(own[0], shapes) as source:
                    planned += [self._look(cell, source) for cell in own]
            except (TrtcacheError, OSError) as error:
                planned += [PlannedCell(cell, IMPOSSIBLE, str(error), is_readable=False) for cell in own]
        self._check_signatures(planned)
        return sorted(planned, key=lambda each: each.cell.number)

    def _check_signatures(self, planned: Iterable[PlannedCell]) -> None:
        """Plan a build for each hit that a compile would not use: a listing says nothing of who signed an entry."""
        hits = {each.key: each for each in planned if each.state == HIT and each.key is not None}
        here = {digest: self.cache.layers.why_missed(digest) for digest in hits}
        left = [digest for digest, reason in here.items() if reason]
        try:
            found = self.remote.miss_reasons(left)
        except RemoteError as error:
            complain(f"trtcache: warning: {error}; its entries are not counted as hits")
            found = dict.fromkeys(left, error.reason)
        for each in planned:
            if each.state == HIT and each.key in found:
                reason = found[each.key] if found[each.key] != "absent" else here[each.key]
                expected_s = self._expected_s(each.cell, each.cell.get("backend"))
                each.state, each.reason, each.expected_s = BUILD, f"its entry cannot be used: {reason}", expected_s
                each.is_renewed, each.to_upload = False, ()

    def _look_without_torch(self, by_program: dict[tuple[str, tuple[str, ...]], list[Cell]]) -> list[PlannedCell]:
        """Take the cells that are found without torch out of ``by_program``, and return them."""
        from trtcache.bundle.file_alias import map_cpu_program
        from trtcache.bundle.load_program import TorchNeeded

        planned: list[PlannedCell] = []
        for program, cells in list(by_program.items()):
            path, shapes = program
            if shapes or not path.endswith(".pt2") or not any(map(self._lookup, cells)):
                continue
            try:
                file = map_cpu_program(Path(path))
                found = [each for cell in cells if (each := self._find_without_torch(cell, file)) is not None]
            except TorchNeeded as error:
                log.info("torch is imported to look %s up: %s", path, error)
                continue
            planned += found
            looked_up = {each.cell.number for each in found}
            by_program[program] = [cell for cell in cells if cell.number not in looked_up]
            if not by_program[program]:
                del by_program[program]
        return planned

    def _lookup(self, cell: Cell) -> FileLookup | None:
        """Return the look-up without torch that cells with these options share; None if it needs torch."""
        from trtcache.bundle.file_alias import FileLookup
        from trtcache.bundle.load_program import TorchNeeded

        options = dict(cell.options)
        own = tuple(options.get(name, ()) for name in ("backend", "setting", "target"))
        if own not in self._lookups:
            try:
                self._lookups[own] = FileLookup.of(_options_of(cell), self._reader)
            except (TorchNeeded, TrtcacheError) as error:
                log.info("torch is imported to look %s up: %s", cell, error)
                self._lookups[own] = None
        return self._lookups[own]

    def _find_without_torch(self, cell: Cell, file: MappedPt2File) -> PlannedCell | None:
        lookup = self._lookup(cell)
        if lookup is None:
            return None
        alias = lookup.alias_key_of(file)
        key = lookup.find_key(alias) if self._has(alias.digest) else None
        if key is None and self.exact:
            return None
        return self._describe(cell, lookup.backend.name, key, alias.digest)

    def _look(self, cell: Cell, source: Source) -> PlannedCell:
        try:
            return self._find(cell, source)
        except TrtcacheError as error:
            return PlannedCell(cell, IMPOSSIBLE, str(error))

    def _find(self, cell: Cell, source: Source) -> PlannedCell:
        from trtcache.compiler.alias_lookup import AliasLookup

        given = _options_of(cell)
        lookup = AliasLookup.of(source, given, self._reader)
        backend = source.find_backend(given) if lookup is None else lookup.backend
        key = lookup.find_key() if lookup is not None and self._has(lookup.key.digest) else None
        if key is None and self.exact:
            exported = source.request(given).key
            if not isinstance(exported, CacheKey):
                expected_s = self._expected_s(cell, backend.name)
                return PlannedCell(cell, UNKNOWN, f"it has no key: {exported}", expected_s=expected_s)
            key = exported
        return self._describe(cell, backend.name, key, lookup.key.digest if lookup is not None else None)

    def _describe(self, cell: Cell, backend: str, key: CacheKey | None, alias: str | None) -> PlannedCell:
        """Return the state of a cell whose key is this, or unknown."""
        expected_s = self._expected_s(cell, backend)
        if key is None:
            return PlannedCell(cell, UNKNOWN, "no key alias is stored: use --exact", expected_s=expected_s)
        if not self._has(key.digest):
            return PlannedCell(cell, BUILD, key=key.digest, expected_s=expected_s)
        aliases = (alias,) if alias is not None else ()
        stale = [digest for digest in (key.digest, *aliases) if self.remote.needs_upload(digest)]
        store = self.cache.store
        here = tuple(digest for digest in stale if store is not None and store.contains(digest))
        why = self.remote.why_not_uploaded(store, key.digest) if store is not None and key.digest in here else ""
        if why:
            reason = f"it is not uploaded: {why}"
            return PlannedCell(cell, HIT, reason, key=key.digest)
        is_renewed = key.digest in stale and key.digest not in here and key.digest in (self.remote.target or ())
        reason = "it is uploaded" if key.digest in here else "it is uploaded again" if is_renewed else ""
        return PlannedCell(cell, HIT, reason, key=key.digest, to_upload=here, is_renewed=is_renewed)

    def _has(self, digest: str) -> bool:
        return digest in self.cache or digest in self.remote

    def _expected_s(self, cell: Cell, kind: str | None) -> float | None:
        """Return the median of earlier builds of this name, or else of this backend."""
        kind = kind or cell.get("backend")
        name = cell.get("name") or program_name(Path(cell.file))
        if (kind, name) not in self._medians_s:
            found = self.durations.get((kind, name)) or self.durations.get(kind)
            self._medians_s[kind, name] = statistics.median(found) if found else None
        return self._medians_s[kind, name]


def _options_of(cell: Cell) -> CompileOptions:
    from trtcache.frontends.source import CompileOptions

    settings = parse_settings(dict(cell.options).get("setting", ()))
    return CompileOptions.of(cell.get("backend") or "auto", settings, cell.get("target") or None)


def _open(cell: Cell, shapes: Sequence[str]) -> Source:
    from trtcache.frontends.resolve import resolve
    from trtcache_cli.programs import open_program

    name = cell.get("name") or program_name(Path(cell.file))
    try:
        program, inputs = open_program(Path(cell.file), shapes)
        return resolve(program, (), inputs, name=name)
    except click.BadParameter as error:
        raise click.BadParameter(f"{cell}: {error.format_message()}") from None


def total_s(planned: Iterable[PlannedCell]) -> float:
    """Return the seconds that the builds of a plan are expected to take, one after the other; of equal keys, one."""
    left = [each for each in planned if each.state in (BUILD, UNKNOWN)]
    return sum({each.key or each.cell.number: each.expected_s or 0.0 for each in left}.values())
