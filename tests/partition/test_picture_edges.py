"""The picture of partitions: no arrow runs behind a box."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from trtcache.partition.outline import Outline, PartitionOutline, svg

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_arrows_run_beside_boxes() -> None:
    """A part that skips rows, one beside a taller one, and a result of an early part."""
    tall = tuple((f"n{number}", f"aten.op{number}") for number in range(9))
    parts = (
        PartitionOutline(True, tall, 3, ("float32[2]",), ((-1, "in0"),), "a" * 64),
        PartitionOutline(False, tall[:1], 0, ("float32[2]",), ((-1, "in0"),), ""),
        PartitionOutline(True, tall, 1, ("float32[2]",), ((1, "float32[2]"),), "b" * 64),
        PartitionOutline(False, tall[:1], 0, ("float32[2]",), ((-1, "in1"), (0, "x"), (2, "y")), ""),
    )
    root = ElementTree.fromstring(svg(Outline("net", "interpreter", parts, (0, 1, 3), ())))  # noqa: S314  # our own
    boxes = [
        tuple(float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        for rect in root.iter("{http://www.w3.org/2000/svg}rect")
        if "rx" in rect.attrib
    ]
    paths = [path.attrib["d"] for path in root.iter("{http://www.w3.org/2000/svg}path") if "marker-end" in path.attrib]
    assert (len(boxes), len(paths)) == (6, 9)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for path in paths:
        for x, y in points(path):
            assert 0 < x < width
            assert 0 < y < height
            inside = [box for box in boxes if 0.01 < x - box[0] < box[2] - 0.01 and 0.01 < y - box[1] < box[3] - 0.01]
            assert not inside, (path, x, y)


def points(path: str) -> Iterator[tuple[float, float]]:
    """Yield points along a path of moves, vertical and horizontal lines, and curves."""
    x = y = 0.0
    for command, text in re.findall(r"([MVHC])([-\d. ]+)", path):
        numbers = [float(number) for number in text.split()]
        if command == "M":
            x, y = numbers
            continue
        if command in "VH":
            end = (x, numbers[0]) if command == "V" else (numbers[0], y)
            controls = [(x, y), end, end]
        else:
            controls = [(numbers[0], numbers[1]), (numbers[2], numbers[3]), (numbers[4], numbers[5])]
        for step in range(1, 101):
            t = step / 100
            weights = (1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t**2, t**3
            corners = [(x, y), *controls]
            yield (
                sum(weight * corner[0] for weight, corner in zip(weights, corners, strict=True)),
                sum(weight * corner[1] for weight, corner in zip(weights, corners, strict=True)),
            )
        x, y = controls[-1]
