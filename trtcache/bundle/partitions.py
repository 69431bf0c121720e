"""JSON format of a partitioned program."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

from trtcache.bundle import torch_program as torch_graph
from trtcache.partition.partitions import (
    Cluster,
    ConstantWire,
    EnginePartition,
    InputWire,
    LeftInTorch,
    PartitionedProgram,
    PartitionOutput,
    SizeTensor,
    SizeWire,
    TorchPartition,
    WeightWire,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from trtcache.digests import Json
    from trtcache.lowering.interface import Interface
    from trtcache.lowering.program import LoweredProgram
    from trtcache.partition.partitions import Wire


@dataclass(frozen=True, slots=True)
class EngineInterface:
    """The part of an engine's program that running it needs."""

    interface: Interface
    device: torch.device


def write(division: PartitionedProgram) -> dict[str, Json]:
    """Return the partitions as JSON; engines are stored by number, and described by their own entries.

    Raises:
        ValueError: torch computes something that cannot be named.
    """
    return {
        "parts": [_write_part(part) for part in division.parts],
        "results": [_wire(one) for one in division.results],
        "stores": [[name, _wire(one)] for name, one in division.stores],
        "left": [asdict(one) for one in division.left],
    }


def read(written: Any, interfaces: Mapping[int, EngineInterface]) -> PartitionedProgram:
    """Parse partitions.

    Args:
        written: the JSON.
        interfaces: the interfaces from the engines' entries, by partition number.

    Raises:
        ValueError: they are inconsistent.
        MissingOperator: an operator is not registered in this process.
    """
    parts: list[EnginePartition | TorchPartition] = []
    for number, one in enumerate(written["parts"]):
        takes = tuple(_read(wire) for wire in one["takes"])
        part = _engine(one, takes, interfaces[number]) if one["kind"] == "engine" else _torch(one, takes)
        _check(part.takes, parts)
        parts.append(part)
    results, stores = [_read(one) for one in written["results"]], [(str(n), _read(one)) for n, one in written["stores"]]
    _check([*results, *(wire for _, wire in stores)], parts)
    left = tuple(LeftInTorch(**{name: str(text) for name, text in one.items()}) for one in written["left"])
    return PartitionedProgram(tuple(parts), tuple(results), tuple(stores), left)


def _write_part(part: EnginePartition | TorchPartition) -> dict[str, Json]:
    takes: list[Json] = [_wire(one) for one in part.takes]
    if isinstance(part, EnginePartition):
        slots: list[Json] = [list(slot.names) for slot in part.program.interface.slots]
        return {"kind": "engine", "takes": takes, "gives": part.gives, "weights": dict(part.weights), "slots": slots}
    return {"kind": "torch", "takes": takes, "gives": part.gives, "graph": torch_graph.write(part.call)}


def _engine(written: Any, takes: tuple[Wire, ...], engine: EngineInterface) -> EnginePartition:
    weights = {str(own): str(name) for own, name in written["weights"].items()}
    if len(engine.interface.inputs) != len(takes) or len(engine.interface.outputs) != written["gives"]:
        raise ValueError("an engine has other inputs or outputs than its partition")
    return EnginePartition(
        cast("LoweredProgram", engine), takes, int(written["gives"]), weights, Cluster((), in_torch=False)
    )


def _torch(written: Any, takes: tuple[Wire, ...]) -> TorchPartition:
    call = torch_graph.read(written["graph"])
    if written["graph"]["takes"] != len(takes) or len(written["graph"]["gives"]) != written["gives"]:
        raise ValueError("a torch partition has other inputs or outputs than declared")
    nodes = tuple(node for node in call.graph.nodes if node.op == "call_function")  # needed for is_sequential
    return TorchPartition(call, takes, int(written["gives"]), Cluster(nodes, in_torch=True))


def _check(wires: Any, parts: list[EnginePartition | TorchPartition]) -> None:
    for wire in wires:
        if isinstance(wire, PartitionOutput) and not (
            0 <= wire.part < len(parts) and 0 <= wire.place < parts[wire.part].gives
        ):
            raise ValueError("a partition uses a value that no earlier partition computes")


def _wire(wire: Wire) -> list[Json]:
    match wire:
        case InputWire(place):
            return ["input", place]
        case WeightWire(name):
            return ["weight", name]
        case ConstantWire(name):
            return ["constant", name]
        case PartitionOutput(part, place):
            return ["made", part, place]
        case SizeWire(text):
            return ["size", json.loads(text)]
        case SizeTensor(size):
            return ["carrier", json.loads(size.text)]


def _read(written: Any) -> Wire:
    match written:
        case ["input", int(place)]:
            return InputWire(place)
        case ["weight", str(name)]:
            return WeightWire(name)
        case ["constant", str(name)]:
            return ConstantWire(name)
        case ["made", int(part), int(place)]:
            return PartitionOutput(part, place)
        case ["size", size]:
            return SizeWire.of(size)
        case ["carrier", size]:
            return SizeTensor(SizeWire.of(size))
    raise ValueError(f"a wire {written!r:.40}")
