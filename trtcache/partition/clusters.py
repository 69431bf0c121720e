"""Groups the nodes of a program into parts that can run one after the other.

Each node has a level: how often a path to it changes between engine and torch. Nodes of one level and kind depend on
each other only inside that level, so any of them may be together. Those are together that use a value of one another or
a value in common; parts that share nothing stay apart, and can be built and run side by side. What an engine of an
earlier level computes for one of a later level only then moves to that one.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from trtcache.partition.nodes import is_ordered, is_size, is_step
from trtcache.partition.partitions import Cluster

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from torch import fx


def clusters(statements: Iterable[fx.Node], order: Sequence[fx.Node], in_torch: Collection[fx.Node]) -> list[Cluster]:
    """Return the clusters of a program, each after those that it depends on.

    Args:
        statements: the nodes as the graph has them.
        order: those that matter, in canonical order, which decides wherever there is a choice.
        in_torch: those that stay in torch.
    """
    places = {node: place for place, node in enumerate(order) if is_step(node)}
    steps = [node for node in statements if node in places]
    needs = _needs(steps)
    groups = _Groups(places)
    levels = _levels(steps, needs, in_torch)
    for node in steps:
        for other in needs[node]:
            if levels[node] == levels[other]:
                groups.join(node, other)
    for users in _sharing(steps, levels).values():
        for other in users[1:]:
            groups.join(users[0], other)
    _move_later(groups, needs, in_torch)
    ordered = _sorted(groups.members(), needs)
    ranks = {node: rank for rank, node in enumerate(steps)}
    return [
        Cluster(tuple(sorted(members, key=ranks.__getitem__)), in_torch=True)
        if members[0] in in_torch
        else Cluster(tuple(members), in_torch=False)
        for members in ordered
    ]


class _Groups:
    """Disjoint sets of nodes, each called after its first node in canonical order."""

    def __init__(self, places: Mapping[fx.Node, int]) -> None:
        self._places = places
        self._above: dict[fx.Node, fx.Node] = {node: node for node in places}

    def of(self, node: fx.Node) -> fx.Node:
        while self._above[node] is not node:
            self._above[node] = node = self._above[self._above[node]]
        return node

    def join(self, one: fx.Node, other: fx.Node) -> None:
        first, second = sorted((self.of(one), self.of(other)), key=self._places.__getitem__)
        self._above[second] = first

    def members(self) -> dict[fx.Node, list[fx.Node]]:
        found: dict[fx.Node, list[fx.Node]] = defaultdict(list)
        for node in sorted(self._places, key=self._places.__getitem__):
            found[self.of(node)].append(node)
        return found


def _needs(steps: Sequence[fx.Node]) -> dict[fx.Node, list[fx.Node]]:
    """Return what each node has to come after: what it uses, and the one before it where order matters."""
    known = set(steps)
    needs = {node: [one for one in node.all_input_nodes if one in known] for node in steps}
    ordered = [node for node in steps if is_ordered(node)]
    for before, after in pairwise(ordered):
        needs[after].append(before)
    return needs


def _levels(
    steps: Iterable[fx.Node], needs: Mapping[fx.Node, list[fx.Node]], in_torch: Collection[fx.Node]
) -> dict[fx.Node, int]:
    levels: dict[fx.Node, int] = {}
    for node in steps:
        kind = node in in_torch
        levels[node] = max([int(kind), *(levels[one] + ((levels[one] % 2 == 1) != kind) for one in needs[node])])
    return levels


def _sharing(steps: Iterable[fx.Node], levels: Mapping[fx.Node, int]) -> dict[tuple[fx.Node, int], list[fx.Node]]:
    """Return the users on one level of each input and of each value of another level."""
    found: dict[tuple[fx.Node, int], list[fx.Node]] = defaultdict(list)
    for node in steps:
        for used in node.all_input_nodes:
            if "input" in used.meta or (used in levels and levels[used] != levels[node]):
                found[used, levels[node]].append(node)
    return found


def _move_later(groups: _Groups, needs: Mapping[fx.Node, list[fx.Node]], in_torch: Collection[fx.Node]) -> None:
    """Join engines of which one uses the other, where no way from one to the other leads through a third cluster."""
    after = _edges(groups, needs)
    again = True
    while again:
        again = False
        for first in list(after):
            for second in sorted(after.get(first, ()), key=groups._places.__getitem__):
                if first in in_torch or second in in_torch or _goes_around(after, first, second):
                    continue
                groups.join(first, second)
                after, again = _edges(groups, needs), True
                break
            if again:
                break


def _edges(groups: _Groups, needs: Mapping[fx.Node, list[fx.Node]]) -> dict[fx.Node, set[fx.Node]]:
    """Return the clusters that directly need each cluster."""
    after: dict[fx.Node, set[fx.Node]] = {group: set() for group in groups.members()}
    for node, used in needs.items():
        for one in used:
            if groups.of(one) is not groups.of(node):
                after[groups.of(one)].add(groups.of(node))
    return after


def _goes_around(after: Mapping[fx.Node, set[fx.Node]], first: fx.Node, second: fx.Node) -> bool:
    seen, waiting = set[object](), [one for one in after[first] if one is not second]
    while waiting:
        group = waiting.pop()
        if group is second:
            return True
        if group not in seen:
            seen.add(group)
            waiting += after[group]
    return False


def _sorted(
    members: Mapping[fx.Node, list[fx.Node]], needs: Mapping[fx.Node, list[fx.Node]]
) -> Iterator[list[fx.Node]]:
    """Yield the clusters, each after those that it needs, and in canonical order where that leaves a choice."""
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


def outputs(cluster: Cluster) -> list[fx.Node]:
    """Return the nodes of a cluster that others use, or that the program returns."""
    inside = set(cluster.nodes)
    return [
        node
        for node in cluster.nodes
        if any(user not in inside and not (user.op == "call_function" and is_size(user)) for user in node.users)
    ]
