"""What a program is divided into."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import fx

    from trtcache.lowering.program import LoweredProgram
    from trtcache.partition.wires import Wire

_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes that are run together: an engine's in canonical order, torch's as the graph has them."""

    nodes: tuple[fx.Node, ...]
    in_torch: bool


@dataclass(frozen=True, slots=True)
class EnginePartition:
    """A part of a program that is an engine.

    Attributes:
        program: the part as a program.
        takes: where its inputs come from, in the program's order.
        gives: how many tensors it makes.
        weights: the whole program's name for each of its weights.
        cluster: the nodes that it was made of.
    """

    program: LoweredProgram
    takes: tuple[Wire, ...]
    gives: int
    weights: Mapping[str, str]
    cluster: Cluster


@dataclass(frozen=True, slots=True)
class TorchPartition:
    """A part of a program that stays in torch.

    Attributes:
        call: computes it; it takes what ``takes`` says and returns a tuple.
        takes: where its arguments come from, weights and constants too.
        gives: how many values it makes.
        cluster: the nodes that it was made of.
    """

    call: fx.GraphModule
    takes: tuple[Wire, ...]
    gives: int
    cluster: Cluster


@dataclass(frozen=True, slots=True)
class LeftInTorch:
    """A node that no engine computes.

    Attributes:
        node: what it is called in the program's graph.
        operator: the operator, ``aten._softmax.default``.
        module: the path of the module that it came from, as far as that is known.
        why: the reason.
    """

    node: str
    operator: str
    module: str
    why: str


@dataclass(frozen=True, slots=True)
class PartitionedProgram:
    """A program in parts.

    Attributes:
        parts: in an order in which they can run; none for a program that is one engine as it is.
        results: where the results come from, and the new contents of inputs, in the program's order.
        stores: where new contents of weights come from, by the weight's name in the whole program.
        left: the operators that stay in torch, and why.
    """

    parts: tuple[EnginePartition | TorchPartition, ...] = ()
    results: tuple[Wire, ...] = ()
    stores: tuple[tuple[str, Wire], ...] = ()
    left: tuple[LeftInTorch, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether the program is one engine."""
        return not self.parts

    @property
    def engines(self) -> dict[int, EnginePartition]:
        """The parts that are engines, by their places."""
        return {place: part for place, part in enumerate(self.parts) if isinstance(part, EnginePartition)}


def summarize_left(left: Sequence[LeftInTorch]) -> tuple[str, ...]:
    """Return a line for all operators of a name that stay in torch for one reason."""
    counts = Counter((one.operator, one.why) for one in left)
    lines = [f"{count} x {operator} ({why})" for (operator, why), count in counts.items()]
    return tuple(lines if len(lines) <= _SHOWN else [*lines[:_SHOWN], f"{len(lines) - _SHOWN} more kinds"])
