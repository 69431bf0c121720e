"""Outline of a partitioned program, for reports: as plain data, as JSON and as an SVG picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

import torch

from trtcache.config.frozen import frozen_dataclass
from trtcache.config.units import format_count
from trtcache.lowering.operators import operator_name
from trtcache.partition.extract import is_step
from trtcache.partition.partitioner import cluster_outputs
from trtcache.partition.partitions import Cluster, EnginePartition, InputWire, PartitionOutput

if TYPE_CHECKING:
    from torch import fx

    from trtcache.digests import CacheKey
    from trtcache.lowering.program import LoweredProgram
    from trtcache.partition.division import LeftInTorch, PartitionedProgram


@frozen_dataclass
class PartitionOutline:
    """One partition.

    Attributes:
        engine: whether it is an engine or runs in torch.
        nodes: the name and operator of each node.
        weights: the number of its weights.
        makes: its results as text: ``float32[s0, 8]``.
        after: the partitions whose results it uses (-1 for the program's inputs), and which results.
        key: the digest of its key; empty for torch or an engine without a key.
    """

    engine: bool
    nodes: tuple[tuple[str, str], ...]
    weights: int
    makes: tuple[str, ...]
    after: tuple[tuple[int, str], ...]
    key: str = ""

    @property
    def operators(self) -> list[tuple[str, int]]:
        """Its operators with their counts, the most frequent first."""
        return Counter(operator for _, operator in self.nodes).most_common()


@frozen_dataclass
class Outline:
    """A partitioned program.

    Attributes:
        name: the program's name.
        backend: the backend of the engines.
        parts: the partitions in the order in which they run.
        results: the partition that computes each result; -1 for none.
        left: the operators that stay in torch, and why.
    """

    name: str
    backend: str
    parts: tuple[PartitionOutline, ...]
    results: tuple[int, ...]
    left: tuple[LeftInTorch, ...]

    @property
    def engines(self) -> int:
        """The number of engines."""
        return sum(part.engine for part in self.parts)

    def document(self) -> dict[str, Any]:
        """Return the outline as JSON."""
        return {
            "name": self.name,
            "backend": self.backend,
            "engines": self.engines,
            "parts": [
                {
                    "kind": "engine" if part.engine else "torch",
                    "key": part.key or None,
                    "weights": part.weights,
                    "makes": list(part.makes),
                    "after": [number for number, _ in part.after],
                    "nodes": dict(part.nodes),
                }
                for part in self.parts
            ],
            "left": [
                {"node": one.node, "operator": one.operator, "module": one.module, "why": one.why} for one in self.left
            ],
        }


def make_outline(
    program: LoweredProgram, division: PartitionedProgram, backend: str, keys: Mapping[int, CacheKey | Any]
) -> Outline:
    """Return the outline of a program; ``keys`` are its engines' keys, or why one has none, by partition."""
    digests = {number: getattr(key, "digest", "") for number, key in keys.items()}
    if division.is_one_engine:
        nodes = tuple(node for node in program.order if is_step(node))
        whole = PartitionOutline(
            engine=True,
            nodes=tuple((node.name, operator_name(node.target)) for node in nodes),
            weights=len(program.interface.weights),
            makes=tuple(map(_format_output, cluster_outputs(Cluster(nodes, in_torch=False)))),
            after=((-1, ""),),
            key=digests.get(0, ""),
        )
        return Outline(program.name, backend, (whole,), (0,) * len(program.interface.outputs), ())
    parts: list[PartitionOutline] = []
    for number, part in enumerate(division.parts):
        after: dict[int, list[str]] = {}
        for wire in part.takes:
            if isinstance(wire, PartitionOutput):
                after.setdefault(wire.part, []).append(parts[wire.part].makes[wire.place])
            elif isinstance(wire, InputWire):
                after.setdefault(-1, []).append(f"in{wire.place}")
        parts.append(
            PartitionOutline(
                engine=isinstance(part, EnginePartition),
                nodes=tuple((node.name, operator_name(node.target)) for node in part.cluster.nodes),
                weights=len(part.weights) if isinstance(part, EnginePartition) else 0,
                makes=tuple(map(_format_output, cluster_outputs(part.cluster))),
                after=tuple((source, ", ".join(what)) for source, what in sorted(after.items())),
                key=digests.get(number, ""),
            )
        )
    results = tuple(wire.part if isinstance(wire, PartitionOutput) else -1 for wire in division.results)
    return Outline(program.name, backend, tuple(parts), results, division.left)


def _format_output(node: fx.Node) -> str:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
    return "a number" if value is not None else "nothing"


_WIDTH, _GAP_X, _GAP_Y, _LINE, _PAD, _MARGIN, _LANE = 250, 30, 54, 16, 10, 24, 12
_SHOWN = 5
_COLOURS = {True: ("#e4f0e0", "#4b7f3b"), False: ("#fdebd8", "#b4691f")}
_STYLE = "text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#222}.b{font-weight:bold}.s{fill:#666}"


class _Box:
    """A rectangle with lines of text."""

    def __init__(self, lines: list[str], row: int, colours: tuple[str, str] = ("#eee", "#777")) -> None:
        self.lines, self.row, self.colours = lines, row, colours
        self.x = self.y = 0
        self.height = 2 * _PAD + _LINE * len(lines)

    def svg(self) -> Iterator[str]:
        fill, stroke = self.colours
        yield (
            f'<rect x="{self.x}" y="{self.y}" width="{_WIDTH}" height="{self.height}" rx="6" '
            f'fill="{fill}" stroke="{stroke}"/>'
        )
        for place, line in enumerate(self.lines):
            kind = "s" if place else "b"
            y = self.y + _PAD + _LINE * place + 12
            yield f'<text class="{kind}" x="{self.x + _PAD}" y="{y}">{escape(_short(line))}</text>'


def svg(outline: Outline) -> str:
    """Return the picture of a partitioned program, boxes from the inputs down to the results."""
    boxes = {-1: _Box(["inputs"], 0)}
    for number, part in enumerate(outline.parts):
        lines = [f"{number}: {'engine' if part.engine else 'torch'}, {format_count(len(part.nodes), 'operator')}"]
        operators = part.operators
        lines += [f"{count} x {name}" for name, count in operators[:_SHOWN]]
        if len(operators) > _SHOWN:
            lines.append(f"{format_count(len(operators) - _SHOWN, 'more kind')}")
        if part.key:
            lines.append(f"key {part.key[:12]}, {format_count(part.weights, 'weight')}")
        row = 1 + max((boxes[source].row for source, _ in part.after), default=0)
        boxes[number] = _Box(lines, row, _COLOURS[part.engine])
    last = len(outline.parts)
    boxes[last] = _Box(["results"], 1 + max(box.row for box in boxes.values()))
    width, height = _place_boxes(list(boxes.values()))
    floors = [max(box.y + box.height for box in boxes.values() if box.row == row) for row in range(boxes[last].row)]
    edges = [(source, number, what) for number, part in enumerate(outline.parts) for source, what in part.after]
    edges += [(source, last, "") for source in sorted(set(outline.results))]
    drawn: list[str] = []
    for source, target, what in edges:
        start, end = boxes[source], boxes[target]
        if end.row == start.row + 1:
            drawn += _edge(start, end, floors[start.row], what)
        else:
            width += _LANE
            drawn.append(_detour(start, end, floors[start.row], width - _MARGIN))
    drawn += [line for box in boxes.values() for line in box.svg()]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
    title = f"{outline.name}: {format_count(outline.engines, 'engine')} for {outline.backend}"
    marker = (
        '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#777"/></marker></defs>'
    )
    background = f'<rect width="{width}" height="{height}" fill="white"/>'
    return (
        "\n".join(
            [head, f"<title>{escape(title)}</title>", f"<style>{_STYLE}</style>", marker, background, *drawn, "</svg>"]
        )
        + "\n"
    )


def _place_boxes(boxes: list[_Box]) -> tuple[int, int]:
    """Place boxes row by row, each row centred; return the picture's width and height."""
    rows = [[box for box in boxes if box.row == row] for row in range(1 + max(box.row for box in boxes))]
    widest = max(len(row) for row in rows)
    width = 2 * _MARGIN + widest * _WIDTH + (widest - 1) * _GAP_X
    y = _MARGIN
    for row in rows:
        free = width - len(row) * _WIDTH - (len(row) - 1) * _GAP_X
        for place, box in enumerate(row):
            box.x, box.y = free // 2 + place * (_WIDTH + _GAP_X), y
        y += max((box.height for box in row), default=-_GAP_Y) + _GAP_Y
    return width, y - _GAP_Y + _MARGIN


def _edge(source: _Box, target: _Box, floor: int, what: str) -> Iterator[str]:
    """Draw an arrow to the next row. It bends below the ``floor`` of its row, where no taller box is beside it."""
    x1, x2 = source.x + _WIDTH // 2, target.x + _WIDTH // 2
    y1, y2 = source.y + source.height, target.y
    yield _arrow(f"M{x1} {y1}V{floor}C{x1} {floor + 30} {x2} {y2 - 30} {x2} {y2}")
    if what:
        yield f'<text class="s" x="{(x1 + x2) // 2 + 6}" y="{(floor + y2) // 2 + 4}">{escape(_short(what))}</text>'


def _detour(source: _Box, target: _Box, floor: int, lane: int) -> str:
    """Draw an arrow that crosses rows, along a lane of its own beside all boxes."""
    x1, x2 = source.x + _WIDTH // 2, target.x + _WIDTH // 2
    return _arrow(f"M{x1} {source.y + source.height}V{floor + 14}H{lane}V{target.y - 14}H{x2}V{target.y}")


def _arrow(path: str) -> str:
    return f'<path d="{path}" fill="none" stroke="#777" marker-end="url(#a)"/>'


def _short(text: str, most: int = 32) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
