"""The members of an artifact besides the engine: what running and refitting it needs without its model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtcache.digests import canonical, json_bytes
from trtcache.weights.slots import weight_map

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch

    from trtcache.digests import Json
    from trtcache.lowering import LoweredProgram
    from trtcache.lowering.interface import Interface
    from trtcache.weights.slots import EngineWeight

ENGINE, CONSTANTS, WEIGHT_MAP, INTERFACE, GRAPH = (
    "engine",
    "constants.safetensors",
    "weight_map.json",
    "interface.json",
    "graph.json",
)

INTERFACE_FORMAT = 2
"""Version of the interface member. Version 1 had no weights."""


def make_members(program: LoweredProgram, records: list[Json], engine: Path) -> dict[str, bytes | Path]:
    """Return the members of a program's entry: engine, constants, weight map, interface and lowered graph."""
    from safetensors.torch import save  # only a build needs these two

    from trtcache.keys.graph_digest import graph_document

    # safetensors rejects tensors that share memory, such as a buffer and a slice of it.
    constants = {name: tensor.detach().cpu().clone() for name, tensor in program.constants.items()}
    return {
        ENGINE: engine,
        CONSTANTS: save(constants),
        WEIGHT_MAP: json_bytes(weight_map(program.interface.weights)),
        INTERFACE: json_bytes(interface_document(program.interface, program.constants)),
        GRAPH: json_bytes(graph_document(program, records)),
    }


def interface_document(interface: Interface, constants: Mapping[str, torch.Tensor]) -> dict[str, Json]:
    """Return the interface as stored in an artifact; ``constants`` are its constants' tensors, in order."""
    devices = {name: tensor.device.type for name, tensor in constants.items()}
    document: dict[str, Json] = {
        "format": INTERFACE_FORMAT,
        "inputs": [one.document() for one in interface.inputs],
        "values": [[one.leaf, canonical(one.value)] for one in interface.values],
        "results": [[one.kind, one.target, canonical(one.value), canonical(one.layout)] for one in interface.results],
        "slots": [slot.document() for slot in interface.slots],
        "weights": [_weight(one) for one in interface.weights],
        "constants": {name: [digest, devices[name]] for name, digest in zip(devices, interface.constants, strict=True)},
        "sizes": [list(bounds) for bounds in interface.ranges],
        "outputs": [one.document() for one in interface.outputs],
    }
    if interface.guards:
        document["guards"] = list(interface.guards)
    if interface.small_sizes is not None:
        document["small_sizes"] = interface.small_sizes.document()
    return document


def _weight(weight: EngineWeight) -> Json:
    return {
        "dtype": weight.dtype,
        "shape": list(weight.shape),
        "stride": list(weight.stride),
        "device": weight.device,
    }
