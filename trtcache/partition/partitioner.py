"""Divides a lowered program into the parts that it is run in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trtcache.errors import PartitionError
from trtcache.lowering.interface import NOT_COMPUTED
from trtcache.partition.capability import dragged_along, left_in_torch, refused
from trtcache.partition.clusters import clusters, outputs
from trtcache.partition.engine_partition import engine_part
from trtcache.partition.nodes import is_step, is_work
from trtcache.partition.partitions import Cluster, Division, EnginePart, TorchPart, in_words
from trtcache.partition.sources import Sources
from trtcache.partition.torch_partition import torch_part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import fx

    from trtcache.backends.protocol import Backend
    from trtcache.lowering.program import LoweredProgram
    from trtcache.settings import Settings


def in_torch(division: Division, program: LoweredProgram, failed: Mapping[int, str]) -> Division:
    """Return the same division with some of its engines' parts in torch, by their places, with the reasons."""
    left = list(division.left)
    for place, why in failed.items():
        left += [left_in_torch(node, why) for node in division.parts[place].cluster.nodes if is_work(node)]
    groups = [
        replace(part.cluster, in_torch=place in failed or part.cluster.in_torch)
        for place, part in enumerate(division.parts)
    ]
    return replace(_divided(program, groups), left=tuple(left))


def divide(program: LoweredProgram, backend: Backend, settings: Settings) -> Division:
    """Decide which nodes of a program go to an engine, and make a program of each engine's part.

    Raises:
        PartitionError: the settings want one engine, and something would stay in torch.
        ExportError: a size on both sides of a cut cannot be told from the inputs' sizes.
    """
    why = refused(program.order, settings.operator_versions, backend.why_not)
    if settings.require_full_compilation:
        why = {
            node: one for node, one in why.items() if one == node.meta.get("torch_executed") or backend.why_not(node)
        }
        if why:
            words = in_words([left_in_torch(node, one) for node, one in why.items()])
            raise PartitionError(program.name, "settings.require_full_compilation wants it to be", words)
        return Division()
    groups = _grouped(program, why, settings.min_block_size)
    if not why:
        return Division()
    left = [left_in_torch(node, why[node]) for node in program.order if why.get(node)]
    return replace(_divided(program, groups), left=tuple(left))


def everything_in_torch(program: LoweredProgram, why: str) -> Division:
    """Return the division of a program that stays in torch as a whole."""
    steps = tuple(node for node in program.graph_module.graph.nodes if node in program.arguments and is_step(node))
    left = tuple(left_in_torch(node, why) for node in steps if is_work(node))
    return replace(_divided(program, [Cluster(steps, in_torch=True)]), left=left)


def _grouped(program: LoweredProgram, why: dict[fx.Node, str], least: int) -> list[Cluster]:
    """Return the clusters, and add to ``why`` what stays in torch because its engine would be too small."""
    if not why and least == 1:
        return []
    while True:
        if why:
            why |= dragged_along(program.order, why)
        groups = clusters(program.graph_module.graph.nodes, program.order, why)
        small = [group for group in groups if not group.in_torch and _size(group) < least]
        if not small:
            return groups
        for group in small:
            size = _size(group)
            what = f"a block of {size} operators, and min_block_size is {least}" if size else "it computes nothing"
            why |= dict.fromkeys(group.nodes, what)


def _size(group: Cluster) -> int:
    return sum(map(is_work, group.nodes))


def _divided(program: LoweredProgram, groups: Sequence[Cluster]) -> Division:
    sources = Sources(program)
    parts: list[EnginePart | TorchPart] = []
    for number, group in enumerate(groups):
        made = outputs(group)
        if group.in_torch:
            parts.append(torch_part(group, made, sources))
        else:
            engines = sum(isinstance(part, EnginePart) for part in parts)
            parts.append(engine_part(program, group, made, sources, name=f"{program.name}.{engines}"))
        sources.add(number, made)
    output = program.graph_module.graph.output_node()
    values: Any = output.args[0]
    weights = {name: one.name for one in program.interface.weights if one.slot for name in one.slot.names}
    pairs = list(zip(output.meta["roles"], values, strict=True))
    return Division(
        parts=tuple(parts),
        results=tuple(sources.of(node) for role, node in pairs if role.kind not in {*NOT_COMPUTED, "weight"}),
        stores=tuple((weights[str(role.target)], sources.of(node)) for role, node in pairs if role.kind == "weight"),
    )
