"""The option ``--shape``: sizes that a file leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from trtcache.frontends.onnx.interface import ShapeProfile
    from trtcache.frontends.torchscript import Example

_MOST = 2**63 - 1
"""Sizes are signed 64-bit numbers in ONNX, torch and TensorRT."""

shape_option = click.option(
    "shapes",
    "--shape",
    multiple=True,
    metavar="INPUT=SIZES",
    help="Sizes that a file leaves open: x=8x128; for ONNX min:opt:max as in x=1:8:32x128; for TorchScript with "
    "a dtype, ids=8x128,int64. Repeatable.",
)

script_shape_option = click.option(
    "shapes",
    "--shape",
    multiple=True,
    metavar="ARGUMENT=SIZES",
    help="For TorchScript: sizes of an argument, x=8x128, with its dtype if it is not float32, ids=8x128,int64, or a "
    "number, rate=16000. Repeatable.",
)
"""The same option for commands that take no ONNX file, and fixed sizes only."""


def read_shapes(written: Sequence[str]) -> dict[str, ShapeProfile]:
    """Parse ``INPUT=SIZES`` lines.

    Raises:
        click.BadParameter: a line is malformed, sizes are not ascending, or an input is given twice.
    """
    if not written:
        return {}
    from trtcache.frontends.onnx.interface import ShapeProfile  # imports torch

    found: dict[str, ShapeProfile] = {}
    for line in written:
        name, bounds = _parse(line)
        if name in found:
            raise _wrong(line, "is given twice")
        minimum, optimal, maximum = zip(*bounds, strict=True)
        found[name] = ShapeProfile(minimum, optimal, maximum)
    return found


def read_examples(written: Sequence[str]) -> dict[str, Example]:
    """Parse ``INPUT=SIZES`` or ``INPUT=SIZES,DTYPE`` lines with fixed sizes.

    Raises:
        click.BadParameter: as ``read_shapes``, or a size is a range.
    """
    if not written:
        return {}
    from trtcache.frontends.torchscript import Example  # imports torch

    parts = [line.partition(",") for line in written]
    found = read_shapes([sizes for sizes, _, _ in parts])
    for line, sizes in zip(written, found.values(), strict=True):
        if sizes.minimum != sizes.maximum:
            raise _wrong(line, "has a range of sizes; use fixed sizes, such as x=8x128")
    dtypes = [dtype for _, _, dtype in parts]
    return {
        name: Example(sizes.optimal, dtype or "float32")
        for (name, sizes), dtype in zip(found.items(), dtypes, strict=True)
    }


def check_shapes(written: Sequence[str]) -> None:
    """Check lines of which it is not known whether they are for an ONNX or a TorchScript file; torch is not imported.

    Raises:
        click.BadParameter: a line is malformed, sizes are not ascending, or an input is given twice.
    """
    names = [_parse(line.partition(",")[0])[0] for line in written]
    for name, line in zip(names, written, strict=True):
        if names.count(name) > 1:
            raise _wrong(line, "is given twice")


def _parse(line: str) -> tuple[str, list[tuple[int, int, int]]]:
    """Return the input and the bounds of its sizes."""
    name, _, text = line.rpartition("=")
    if not name:
        raise _wrong(line, "is not INPUT=SIZES, such as x=1:8:32x128")
    return name, [_bounds(size, line) for size in text.split("x")]


def _bounds(text: str, line: str) -> tuple[int, int, int]:
    """Return minimum, optimum and maximum of ``8``, ``1:32`` (its optimum is the maximum) or ``1:8:32``."""
    parts = text.split(":")
    if not 1 <= len(parts) <= 3 or not all(part.isascii() and part.isdigit() for part in parts):
        raise _wrong(line, f"has {text!r} instead of a size, min:max or min:opt:max, such as 8, 1:32 or 1:8:32")
    sizes = [int(part) for part in parts]
    minimum, optimal, maximum = sizes[0], sizes[len(sizes) // 2], sizes[-1]
    if not minimum <= optimal <= maximum:
        raise _wrong(line, f"has sizes {text!r} that are not ascending: min <= opt <= max")
    if maximum > _MOST:
        raise _wrong(line, f"has a size in {text!r} that is larger than 2^63 - 1")
    return minimum, optimal, maximum


def _wrong(line: str, why: str) -> click.BadParameter:
    return click.BadParameter(f"{line!r} {why}", param_hint="--shape")
