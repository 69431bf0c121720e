"""The partitions of a program, and the operators that stay in torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trtcache.config.frozen import frozen_dataclass

if TYPE_CHECKING:
    from trtcache.partition.partitions import EnginePartition, TorchPartition, Wire

_SHOWN = 6


@frozen_dataclass
class LeftInTorch:
    """A node that stays in torch.

    Attributes:
        node: its name in the program's graph.
        operator: the operator, ``aten._softmax.default``.
        module: the path of the module that it came from, if known.
        why: the reason.
    """

    node: str
    operator: str
    module: str
    why: str


@frozen_dataclass
class PartitionedProgram:
    """A program as a sequence of partitions.

    Attributes:
        parts: the partitions in topological order; empty if the whole program is one engine.
        results: the source of each result and of each input's new contents, in the program's order.
        stores: the source of each weight's new contents, by the weight's name in the whole program.
        left: the operators that stay in torch, and why.
    """

    parts: tuple[EnginePartition | TorchPartition, ...] = ()
    results: tuple[Wire, ...] = ()
    stores: tuple[tuple[str, Wire], ...] = ()
    left: tuple[LeftInTorch, ...] = ()

    @property
    def is_one_engine(self) -> bool:
        """Whether the whole program is one engine."""
        return not self.parts

    @property
    def engines(self) -> dict[int, EnginePartition]:
        """The engine partitions by index."""
        from trtcache.partition.partitions import EnginePartition  # most programs are one engine

        return {index: part for index, part in enumerate(self.parts) if isinstance(part, EnginePartition)}


def summarize_left(left: Sequence[LeftInTorch]) -> tuple[str, ...]:
    """Return one line for each operator and reason, with a count."""
    counts = Counter((node.operator, node.why) for node in left)
    lines = [f"{count} x {operator} ({why})" for (operator, why), count in counts.items()]
    return tuple(lines if len(lines) <= _SHOWN else [*lines[:_SHOWN], f"{len(lines) - _SHOWN} more kinds"])
