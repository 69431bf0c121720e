"""The partitioner: groups nodes into clusters, and makes a partition of each.

Each node has a level: how often a path to it switches between engine and torch. Nodes of one level and kind depend on
each other only within that level, so any of them may share a partition. Nodes are grouped if one uses another's value
or if they share an input; groups with nothing in common stay apart and can be built and run in parallel. Finally an
engine whose results only a later engine uses is merged into that one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from trtcache.config.units import format_count
from trtcache.errors import PartitionError
from trtcache.lowering.interface import NOT_COMPUTED
from trtcache.lowering.operators import identify_operators, operator_names
from trtcache.lowering.rewriting import is_ordered
from trtcache.partition.division import PartitionedProgram, summarize_left
from trtcache.partition.extract import (
    RANDOM,
    WireTable,
    describe_torch_node,
    extract_engine_partition,
    extract_torch_partition,
    find_dependents,
    find_unsupported,
    is_size,
    is_step,
    is_work,
)
from trtcache.partition.partitions import Cluster, EnginePartition, TorchPartition

if TYPE_CHECKING:
    from torch import fx

    from trtcache.backends.protocol import Backend
    from trtcache.lowering.program import LoweredProgram
    from trtcache.settings import Settings


def move_to_torch(
    division: PartitionedProgram, program: LoweredProgram, failed: Mapping[int, str]
) -> PartitionedProgram:
    """Return the partitioned program with some engine partitions moved to torch, with the reasons."""
    left = list(division.left)
    for place, why in failed.items():
        left += [describe_torch_node(node, why) for node in division.parts[place].cluster.nodes if is_work(node)]
    groups = [
        replace(part.cluster, in_torch=place in failed or part.cluster.in_torch)
        for place, part in enumerate(division.parts)
    ]
    return replace(_build_partitions(program, groups), left=tuple(left))


def partition_program(program: LoweredProgram, backend: Backend, settings: Settings) -> PartitionedProgram:
    """Decide which nodes an engine computes, and extract a program for each engine partition.

    Raises:
        PartitionError: ``require_full_compilation`` is set, and a node would stay in torch.
    """
    declared = settings.operator_versions
    known = {*declared, *operator_names(identify_operators((node.target for node in program.order), declared))}
    why = find_unsupported(program.order, known, backend.why_not)
    if settings.require_full_compilation:
        why = {
            node: one
            for node, one in why.items()
            if one in (node.meta.get("torch_executed"), RANDOM) or backend.why_not(node)
        }
        if why:
            words = summarize_left([describe_torch_node(node, one) for node, one in why.items()])
            raise PartitionError(
                program.name, "use supported operators, or remove settings.require_full_compilation", words
            )
        return PartitionedProgram()
    groups = _group_nodes(program, why, settings.min_block_size)
    if not why:
        return PartitionedProgram()
    left = [describe_torch_node(node, why[node]) for node in program.order if why.get(node)]
    return replace(_build_partitions(program, groups), left=tuple(left))


def keep_in_torch(program: LoweredProgram, why: str) -> PartitionedProgram:
    """Return a program that runs in torch as a whole."""
    steps = tuple(node for node in program.graph_module.graph.nodes if node in program.arguments and is_step(node))
    left = tuple(describe_torch_node(node, why) for node in steps if is_work(node))
    return replace(_build_partitions(program, [Cluster(steps, in_torch=True)]), left=left)


def _group_nodes(program: LoweredProgram, why: dict[fx.Node, str], least: int) -> list[Cluster]:
    """Return the clusters; add to ``why`` the nodes whose engine would be too small."""
    if not why and least == 1:
        return []
    while True:
        if why:
            why |= find_dependents(program.order, why)
        groups = find_clusters(program.graph_module.graph.nodes, program.order, why)
        small = {
            group: size for group in groups if not group.in_torch and (size := sum(map(is_work, group.nodes))) < least
        }
        if not small:
            return groups
        for group, size in small.items():
            what = (
                f"a block of {format_count(size, 'operator')}, and min_block_size is {least}"
                if size
                else "it computes nothing"
            )
            why |= dict.fromkeys(group.nodes, what)


def _build_partitions(program: LoweredProgram, groups: Sequence[Cluster]) -> PartitionedProgram:
    sources = WireTable(program)
    parts: list[EnginePartition | TorchPartition] = []
    for number, group in enumerate(groups):
        made = cluster_outputs(group)
        if group.in_torch:
            parts.append(extract_torch_partition(group, made, sources))
        else:
            engines = sum(isinstance(part, EnginePartition) for part in parts)
            parts.append(extract_engine_partition(program, group, made, sources, name=f"{program.name}.{engines}"))
        sources.add(number, made)
    output = program.graph_module.graph.output_node()
    values: Any = output.args[0]
    weights = {name: one.name for one in program.interface.weights if one.slot for name in one.slot.names}
    pairs = list(zip(output.meta["roles"], values, strict=True))
    return PartitionedProgram(
        parts=tuple(parts),
        results=tuple(sources.wire(node) for role, node in pairs if role.kind not in {*NOT_COMPUTED, "weight"}),
        stores=tuple((weights[str(role.target)], sources.wire(node)) for role, node in pairs if role.kind == "weight"),
    )


def find_clusters(
    statements: Iterable[fx.Node], order: Sequence[fx.Node], in_torch: Collection[fx.Node]
) -> list[Cluster]:
    """Return the clusters of a program in topological order; ``order``, the canonical one, breaks ties."""
    places = {node: place for place, node in enumerate(order) if is_step(node)}
    steps = [node for node in statements if node in places]
    # A node comes after those that it uses, and an ordered one after the previous one.
    needs = {node: [one for one in node.all_input_nodes if one in places] for node in steps}
    for before, after in pairwise(node for node in steps if is_ordered(node)):
        needs[after].append(before)
    levels: dict[fx.Node, int] = {}
    for node in steps:
        kind = node in in_torch
        levels[node] = max([int(kind), *(levels[one] + ((levels[one] % 2 == 1) != kind) for one in needs[node])])
    # Group nodes of one level: with those they use, and if they share an input or a value of another level.
    groups = _Groups(places)
    first: dict[tuple[fx.Node, int], fx.Node] = {}
    for node in steps:
        for other in needs[node]:
            if levels[node] == levels[other]:
                groups.join(node, other)
        for used in node.all_input_nodes:
            if "input" in used.meta or (used in levels and levels[used] != levels[node]):
                groups.join(first.setdefault((used, levels[node]), node), node)
    _move_later(groups, needs, in_torch)
    ordered = _topological_order(groups.members(), needs)
    ranks = {node: rank for rank, node in enumerate(steps)}
    return [
        Cluster(tuple(sorted(members, key=ranks.__getitem__)), in_torch=True)
        if members[0] in in_torch
        else Cluster(tuple(members), in_torch=False)
        for members in ordered
    ]


class _Groups:
    """Union-find over nodes; a group's root is its first node in canonical order."""

    def __init__(self, places: Mapping[fx.Node, int]) -> None:
        self.places = places
        self._above: dict[fx.Node, fx.Node] = {node: node for node in places}

    def root(self, node: fx.Node) -> fx.Node:
        while self._above[node] is not node:
            self._above[node] = node = self._above[self._above[node]]
        return node

    def join(self, one: fx.Node, other: fx.Node) -> None:
        first, second = sorted((self.root(one), self.root(other)), key=self.places.__getitem__)
        self._above[second] = first

    def members(self) -> dict[fx.Node, list[fx.Node]]:
        found: dict[fx.Node, list[fx.Node]] = defaultdict(list)
        for node in sorted(self.places, key=self.places.__getitem__):
            found[self.root(node)].append(node)
        return found


def _move_later(groups: _Groups, needs: Mapping[fx.Node, list[fx.Node]], in_torch: Collection[fx.Node]) -> None:
    """Merge an engine into one that uses it, unless another path between them passes through a third cluster."""
    again = True
    while again:
        again = False
        after: dict[fx.Node, set[fx.Node]] = {group: set() for group in groups.members()}  # the users of each cluster
        for node, used in needs.items():
            for one in used:
                if groups.root(one) is not groups.root(node):
                    after[groups.root(one)].add(groups.root(node))
        pairs = ((one, other) for one in after for other in sorted(after[one], key=groups.places.__getitem__))
        for first, second in pairs:
            if not (first in in_torch or second in in_torch or _has_other_path(after, first, second)):
                groups.join(first, second)
                again = True
                break


def _has_other_path(after: Mapping[fx.Node, set[fx.Node]], first: fx.Node, second: fx.Node) -> bool:
    seen, waiting = set[object](), [one for one in after[first] if one is not second]
    while waiting:
        group = waiting.pop()
        if group is second:
            return True
        if group not in seen:
            seen.add(group)
            waiting += after[group]
    return False


def _topological_order(
    members: Mapping[fx.Node, list[fx.Node]], needs: Mapping[fx.Node, list[fx.Node]]
) -> Iterator[list[fx.Node]]:
    """Yield the clusters in topological order; canonical order breaks ties."""
    group_of = {node: group for group, nodes in members.items() for node in nodes}
    waits = {
        group: {group_of[one] for node in nodes for one in needs[node]} - {group} for group, nodes in members.items()
    }
    done = set[object]()
    while waits:
        group = next(group for group, before in waits.items() if before <= done)
        del waits[group]
        done.add(group)
        yield members[group]


def cluster_outputs(cluster: Cluster) -> list[fx.Node]:
    """Return the nodes of a cluster that other nodes or the program's output use."""
    inside = set(cluster.nodes)
    return [
        node
        for node in cluster.nodes
        if any(user not in inside and not (user.op == "call_function" and is_size(user)) for user in node.users)
    ]
