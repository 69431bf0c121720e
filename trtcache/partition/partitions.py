"""Partitions of a program, and the wires between them: plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from trtcache.config.frozen import frozen_dataclass

if TYPE_CHECKING:
    from torch import fx

    from trtcache.digests import Json
    from trtcache.lowering.program import LoweredProgram


@frozen_dataclass
class InputWire:
    """A program input, by index."""

    place: int


@frozen_dataclass
class WeightWire:
    """A weight, by its name in the whole program (``w3``)."""

    name: str


@frozen_dataclass
class ConstantWire:
    """A constant, by its name in the whole program (``c0``)."""

    name: str


@frozen_dataclass
class PartitionOutput:
    """A result of a partition, by the partition's number and the result's index."""

    part: int
    place: int


@frozen_dataclass
class SizeWire:
    """A number: an expression over the program's input sizes, as ``Symbols`` writes it, in JSON."""

    text: str

    @classmethod
    def of(cls, written: Json) -> SizeWire:
        """Return the wire of a size."""
        return cls(json.dumps(written))


@frozen_dataclass
class SizeTensor:
    """A tensor without elements whose first dimension is a size: engines take only tensors."""

    size: SizeWire


Wire: TypeAlias = InputWire | WeightWire | ConstantWire | PartitionOutput | SizeWire | SizeTensor


@frozen_dataclass
class Cluster:
    """Nodes that run together: in canonical order for an engine, in graph order in torch."""

    nodes: tuple[fx.Node, ...]
    in_torch: bool


@frozen_dataclass
class EnginePartition:
    """A partition that an engine computes.

    Attributes:
        program: the partition as a lowered program.
        takes: the source of each input, in the order of ``program``.
        gives: the number of tensors it computes.
        weights: the whole program's name for each weight.
        cluster: the nodes that it consists of.
    """

    program: LoweredProgram
    takes: tuple[Wire, ...]
    gives: int
    weights: Mapping[str, str]
    cluster: Cluster


@frozen_dataclass
class TorchPartition:
    """A partition that runs in torch.

    Attributes:
        call: computes it from ``takes`` and returns a tuple.
        takes: the source of each argument, including weights and constants.
        gives: the number of values it computes.
        cluster: the nodes that it consists of.
    """

    call: fx.GraphModule
    takes: tuple[Wire, ...]
    gives: int
    cluster: Cluster
