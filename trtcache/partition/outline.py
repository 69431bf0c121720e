"""What a program's parts are, in words and numbers: for people, not for running."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from trtcache.lowering.text import operator_name
from trtcache.partition.clusters import outputs
from trtcache.partition.nodes import is_step
from trtcache.partition.partitions import Cluster, EnginePart
from trtcache.partition.wires import Input, Made

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import fx

    from trtcache.digests import CacheKey
    from trtcache.lowering.program import LoweredProgram
    from trtcache.partition.partitions import Division, LeftInTorch


@dataclass(frozen=True, slots=True)
class PartOutline:
    """One part.

    Attributes:
        engine: whether it is an engine, or stays in torch.
        nodes: its nodes, by name, with the operator of each.
        weights: how many weights it has.
        makes: what it makes, as text: ``float32[s0, 8]``.
        after: the parts that it takes something of, and the program's inputs as -1, with what it takes.
        key: the digest of its key; empty for what is no engine or has none.
    """

    engine: bool
    nodes: tuple[tuple[str, str], ...]
    weights: int
    makes: tuple[str, ...]
    after: tuple[tuple[int, str], ...]
    key: str = ""

    @property
    def operators(self) -> list[tuple[str, int]]:
        """Its operators and how often each is there, the most frequent first."""
        return Counter(operator for _, operator in self.nodes).most_common()


@dataclass(frozen=True, slots=True)
class Outline:
    """A program in parts.

    Attributes:
        name: what people call it.
        backend: whose engines they are.
        parts: in the order in which they run.
        results: which part makes each result; -1 for what no part makes.
        left: the operators that stay in torch, and why.
    """

    name: str
    backend: str
    parts: tuple[PartOutline, ...]
    results: tuple[int, ...]
    left: tuple[LeftInTorch, ...]

    @property
    def engines(self) -> int:
        """How many parts are engines."""
        return sum(part.engine for part in self.parts)

    def document(self) -> dict[str, Any]:
        """Return it all as JSON has it."""
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


def outlined(program: LoweredProgram, division: Division, backend: str, keys: Mapping[int, CacheKey | Any]) -> Outline:
    """Return the outline of a program; ``keys`` are those of its engines, or why one has none, by their parts."""
    digests = {number: getattr(key, "digest", "") for number, key in keys.items()}
    if division.is_whole:
        nodes = tuple(node for node in program.order if is_step(node))
        whole = PartOutline(
            engine=True,
            nodes=_named(nodes),
            weights=len(program.interface.weights),
            makes=tuple(map(_made, outputs(Cluster(nodes, in_torch=False)))),
            after=((-1, ""),),
            key=digests.get(0, ""),
        )
        return Outline(program.name, backend, (whole,), (0,) * len(program.interface.outputs), ())
    parts: list[PartOutline] = []
    for number, part in enumerate(division.parts):
        engine = isinstance(part, EnginePart)
        weights = len(part.weights) if isinstance(part, EnginePart) else 0
        makes = tuple(map(_made, outputs(part.cluster)))
        after: dict[int, list[str]] = {}
        for wire in part.takes:
            if isinstance(wire, Made):
                after.setdefault(wire.part, []).append(parts[wire.part].makes[wire.place])
            elif isinstance(wire, Input):
                after.setdefault(-1, []).append(f"in{wire.place}")
        edges = tuple((source, ", ".join(what)) for source, what in sorted(after.items()))
        parts.append(PartOutline(engine, _named(part.cluster.nodes), weights, makes, edges, digests.get(number, "")))
    results = tuple(wire.part if isinstance(wire, Made) else -1 for wire in division.results)
    return Outline(program.name, backend, tuple(parts), results, division.left)


def _named(nodes: tuple[fx.Node, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((node.name, operator_name(node.target)) for node in nodes)


def _made(node: fx.Node) -> str:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
    return "a number" if value is not None else "nothing"
