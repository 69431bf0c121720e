"""The matrix of ``trtcache warm``: a TOML file with the engines to build. Each cell is a call of ``trtcache build``."""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from trtcache.config.frozen import frozen_dataclass
from trtcache.config.paths import PROGRAM_SUFFIXES
from trtcache.errors import SettingsError, did_you_mean
from trtcache_cli.shapes import check_shapes

OPTIONS: Final[tuple[str, ...]] = ("file", "shape", "target", "backend", "setting", "name", "keep_program", "image")
"""What a cell can have: the options of ``trtcache build``, and the container image that it is built in."""

SCHEDULERS: Final = ("slurm", "ray", "kubernetes")
"""Tables of ``[defaults]`` with the resources that a scheduler is to give each cell."""

MOST_CELLS: Final = 100_000
_MOST_BYTES = 4 << 20
_REPEATED = ("shape", "setting")  # options that one cell can have several times
_HEADER = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?")


@frozen_dataclass
class Cell:
    """One engine to build.

    Attributes:
        number: its place in the matrix, from 0.
        file: the program: a path, or ``module:function``.
        options: the other options, by name; a tuple of texts each.
        image: the container image that builds it, empty for this machine's software.
        label: the program, and the options that distinguish this cell from the others.
    """

    number: int
    file: str
    options: tuple[tuple[str, tuple[str, ...]], ...]
    image: str = ""
    label: str = ""

    @property
    def arguments(self) -> list[str]:
        """The arguments of ``trtcache build``."""
        flags = [
            argument
            for name, values in self.options
            for value in values
            for argument in ([f"--{name}", value] if name != "keep_program" else ["--keep-program"])
        ]
        return [*flags, "--", self.file]

    def get(self, name: str) -> str:
        """Return an option as text, empty if the cell does not have it."""
        return " ".join(dict(self.options).get(name, ()))

    def document(self) -> dict[str, Any]:
        """Return the cell as JSON."""
        given = {name: list(values) if name in _REPEATED else values[0] for name, values in self.options}
        return {"cell": self.number, "file": self.file, **given, "image": self.image or None}

    def __str__(self) -> str:
        """Return the label."""
        return self.label


@frozen_dataclass
class Matrix:
    """The cells of a file, and the resources for each scheduler."""

    path: Path
    cells: tuple[Cell, ...]
    resources: Mapping[str, Mapping[str, Any]]


def read_matrix(path: Path) -> Matrix:
    """Read a matrix. Paths of programs in it are relative to its folder.

    Raises:
        SettingsError: the file is not a matrix; the message names the line and the key.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise SettingsError(str(path), f"it has more than {_MOST_BYTES >> 20} MiB; it is no matrix")
    try:
        text = data.decode()
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(str(path), f"it is not TOML: {error}") from None
    return _Reader(path, text).read(document)


class _Reader:
    def __init__(self, path: Path, text: str) -> None:
        self._path, self._lines = path, text.splitlines()

    def read(self, document: dict[str, Any]) -> Matrix:
        for name in document:
            if name not in ("defaults", "cells"):
                raise self._error("", 0, name, did_you_mean(name, ["defaults", "cells"]))
        defaults, tables = document.get("defaults", {}), document.get("cells", [])
        if not isinstance(defaults, dict):
            raise self._error("", 0, "defaults", "expected a table, [defaults]")
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables) or not tables:
            raise self._error("", 0, "cells", "a matrix has one [[cells]] table or more")
        resources = {name: defaults.pop(name) for name in SCHEDULERS if name in defaults}
        for name, table in resources.items():
            if not isinstance(table, dict):
                raise self._error("defaults", 0, name, f"expected a table, [defaults.{name}]")
        self._check_keys(defaults, "defaults", 0)
        cells: list[Cell] = []
        for number, table in enumerate(tables):
            cells += self._cells(defaults, table, number, len(cells))
        if not cells:
            raise SettingsError(str(self._path), "every cell is excluded")
        return Matrix(self._path, _add_labels(cells), resources)

    def _cells(self, defaults: dict[str, Any], table: dict[str, Any], number: int, first: int) -> list[Cell]:
        """Return the product of a table's lists, without the combinations that it excludes."""
        excluded = table.pop("exclude", [])
        self._check_keys(table, "cells", number)
        given = {**defaults, **table}
        choices = {name: self._choices(name, given[name], number, name in table) for name in OPTIONS if name in given}
        if "file" not in choices:
            raise self._error("cells", number, "file", "it is missing: the program to build")
        if (count := math.prod(map(len, choices.values()))) + first > MOST_CELLS:
            raise self._error("cells", number, "", f"it makes {count:,} cells; at most {MOST_CELLS:,} are allowed")
        skipped = list(self._exclusions(excluded, choices, number))
        found: list[Cell] = []
        for values in itertools.product(*choices.values()):
            cell = dict(zip(choices, values, strict=True))
            if not any(all(cell.get(name) in allowed for name, allowed in each.items()) for each in skipped):
                found.append(self._cell(first + len(found), cell))
        return found

    def _cell(self, number: int, values: dict[str, tuple[str, ...]]) -> Cell:
        (file,) = values.pop("file")
        if ":" not in file or file.endswith(PROGRAM_SUFFIXES):
            file = str(self._path.parent / file)
        (image,) = values.pop("image", ("",))
        return Cell(number, file, tuple((name, value) for name, value in values.items() if value), image)

    def _exclusions(
        self, excluded: Any, choices: dict[str, list[tuple[str, ...]]], number: int
    ) -> Iterator[dict[str, list[tuple[str, ...]]]]:
        if not isinstance(excluded, list) or not all(isinstance(each, dict) and each for each in excluded):
            raise self._error("cells", number, "exclude", 'expected a list of tables, as [{ file = "vit.onnx" }]')
        for each in excluded:
            self._check_keys(each, "cells", number)
            wanted = {name: self._choices(name, value, number, True) for name, value in each.items()}
            for name, values in wanted.items():
                if unknown := [value for value in values if value not in choices.get(name, [])]:
                    text = " ".join(unknown[0])
                    raise self._error("cells", number, "exclude", f"no cell of this table has {name} = {text!r}")
            yield wanted

    def _choices(self, name: str, value: Any, number: int, is_own: bool) -> list[tuple[str, ...]]:
        """Return the values of an option that are multiplied, each as the texts that one cell has."""
        table, place = ("cells", number) if is_own else ("defaults", 0)
        if name == "keep_program":
            if not isinstance(value, bool):
                raise self._error(table, place, name, "expected true or false")
            return [("",)] if value else [()]
        if name == "image" and isinstance(value, dict):
            value = list(value.values())
        values = value if isinstance(value, list) else [value]
        if not values:
            raise self._error(table, place, name, "it is an empty list, which makes no cells")
        return [self._texts(name, each, table, place) for each in values]

    def _texts(self, name: str, value: Any, table: str, place: int) -> tuple[str, ...]:
        texts = value if name in _REPEATED and isinstance(value, list) else [value]
        if not all(isinstance(text, str) and text and text.isprintable() for text in texts):
            several = ", or a list of them for one cell" if name in _REPEATED else ""
            raise self._error(table, place, name, f"{value!r} is not a text{several}")
        if name == "shape":
            try:
                check_shapes(texts)
            except click.BadParameter as error:
                raise self._error(table, place, name, error.message) from None
        return tuple(texts)

    def _check_keys(self, table: dict[str, Any], header: str, number: int) -> None:
        for name in table:
            if name not in OPTIONS:
                why = did_you_mean(name, [*OPTIONS, "exclude"])
                if name in SCHEDULERS:
                    why = f"resources are those of all cells: write [defaults.{name}]"
                raise self._error(header, number, name, why)

    def _error(self, header: str, number: int, key: str, why: str) -> SettingsError:
        label = f"cells[{number}]" if header == "cells" else header
        where = ".".join(filter(None, (label, key)))
        line = self._line_of(header, number, key)
        return SettingsError(f"{self._path}, line {line}" if line else str(self._path), f"{where}: {why}")

    def _line_of(self, header: str, number: int, key: str) -> int:
        """Return the line of a key, of its own table, or else of the table that it is in; 0 if it is not found."""
        current, count, begin = "", -1, 0
        for line, text in enumerate(self._lines, start=1):
            if match := _HEADER.fullmatch(text.partition("#")[0].rstrip()):
                current = match[1]
                count += current == "cells"
                if current == (f"{header}.{key}" if header else key) and (header != "cells" or count == number):
                    return line
                if current == header and count in (number, -1):
                    begin = begin or line
            elif current == header and (header != "cells" or count == number) and _is_key(text, key):
                return line
        return begin


def _add_labels(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Return the cells with labels, which leave out the options that all of them have.

    A program is named by its file; by its path if another program has a file of that name.
    """
    names = Counter(Path(file).name for file in {cell.file for cell in cells})
    common = set.intersection(*(set(cell.options) for cell in cells))
    return tuple(
        replace(
            cell,
            label=" ".join(
                (
                    cell.file if names[Path(cell.file).name] > 1 else Path(cell.file).name,
                    *(value for option in cell.options if option not in common for value in option[1] if value),
                    *([f"[{cell.image}]"] if cell.image else []),
                )
            ),
        )
        for cell in cells
    )


def _is_key(line: str, key: str) -> bool:
    return bool(key) and re.match(rf'\s*["\']?{re.escape(key)}["\']?\s*[.=]', line) is not None
