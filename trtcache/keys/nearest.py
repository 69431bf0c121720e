"""Stored entries near a key: the nearest, to explain a miss, and one for another GPU of the same capability."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import StoreError
from trtcache.keys.explain import explain
from trtcache.keys.graph_diff import KeyDifference, summary
from trtcache.keys.stored_graph import GRAPH_MEMBER, StoredGraph
from trtcache.store.reader import ArtifactFile
from trtcache.store.rows import COLUMNS, INDEX_NAME, read_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from trtcache.digests import CacheKey, Json
    from trtcache.store.disk import DiskStore
    from trtcache.store.format import EntryHeader
    from trtcache.store.reading import EntryStat


MOST_HEADERS = 200
"""The maximum number of headers to read: at a few kilobytes each, tens of milliseconds on a miss."""

_MOST_GRAPHS, _MOST_WALKS = 8, 3
_KIND, _NAME = COLUMNS.index("kind"), COLUMNS.index("name")
_SIMILAR = 0.5  # of the operators: a BERT and a ResNet have less in common, one BERT and a longer one more
_NAMES_OF_NONE = frozenset({None, "ExportedProgram", "GraphModule"})  # the names of unnamed programs


@frozen_dataclass
class Nearest:
    """An entry, and how the requested key differs from it."""

    header: EntryHeader
    differences: list[KeyDifference]

    def __str__(self) -> str:
        return f"nearest {self.header.key.digest[:12]} differs in {summary(self.differences)}"


def nearest(
    store: DiskStore,
    document: Mapping[str, Json],
    *,
    name: str | None,
    graph: StoredGraph | None = None,
    without: str = "",
    same_name: bool = False,
) -> Nearest | None:
    """Return the stored entry of the same kind that differs least from a key document, or None if none is similar.

    An entry is similar if it has the same name or, where graphs can be compared, if its graph shares at least half of
    its operators with the requested one. The newest entries of the same name come first, and only ``MOST_HEADERS`` are
    read: the answer is a hint, and must be quick in a store of any size. Unreadable entries are skipped.

    Args:
        store: where to look.
        document: the requested key document.
        name: the program's name.
        graph: its lowered graph, if there is one.
        without: the digest of an entry to ignore.
        same_name: whether to consider only entries of that name.
    """
    readable = _headers(store, str(document.get("kind")), name=name, without=without, most=MOST_HEADERS)
    headers = [header for _, header in readable if not same_name or header.name == name]
    headers.sort(key=lambda header: _distance(header, document, name))
    compared = [(header, stored_graph(store, header) if graph else None) for header in headers[:_MOST_GRAPHS]]
    if graph is not None:
        is_named = name not in _NAMES_OF_NONE
        compared = [
            (header, theirs)
            for header, theirs in compared
            if (is_named and header.name == name) or (theirs is not None and _is_similar(theirs, graph))
        ]
        compared.sort(key=lambda one: _distance(one[0], document, name) + _graph_distance(one[1], graph))
    found = [
        Nearest(header, explain(header.key.document, document, (theirs, graph) if theirs and graph else None))
        for header, theirs in compared[:_MOST_WALKS]
    ]
    return min(found, key=lambda one: _count(one.differences, one.header, name), default=None)


def nearest_of(stores: Iterable[DiskStore], document: Mapping[str, Json], **given: Any) -> Nearest | None:
    """Return the nearest entry of several stores; the arguments are those of ``nearest``."""
    found = [one for store in stores if (one := nearest(store, document, **given)) is not None]
    return min(found, key=lambda one: _count(one.differences, one.header, given.get("name")), default=None)


def _distance(header: EntryHeader, document: Mapping[str, Json], name: str | None) -> int:
    return _count(explain(header.key.document, document), header, name)


def _count(differences: list[KeyDifference], header: EntryHeader, name: str | None) -> int:
    """Return the number of differences; another name counts as two."""
    return sum(1 + one.alike for one in differences) + (0 if header.name == name else 2)


def stored_graph(store: DiskStore, header: EntryHeader) -> StoredGraph | None:
    """Return the lowered graph of an entry, or None if it has no readable one."""
    for member in header.members:
        if member.name == GRAPH_MEMBER:
            try:
                file = ArtifactFile(store.path(header.key.digest), shared=store.shared)
                return StoredGraph.of(json.loads(bytes(file.read(member, mapped=False))))
            except (OSError, StoreError, ValueError):
                return None
    return None


def _headers(
    store: DiskStore, kind: str, *, name: str | None = None, without: str = "", most: int | None = None
) -> Iterator[tuple[EntryStat, EntryHeader]]:
    """Yield the readable headers of a kind: first those of a name, and the most recently used first."""
    rows = read_rows(store.index_root / INDEX_NAME) or {}
    ranked = []
    for stored in store.scan():
        row = rows.get(stored.digest)
        if stored.digest != without and (row is None or row[_KIND] == kind):
            ranked.append((row is not None and row[_NAME] != name, -stored.used_ns, stored))
    ranked.sort(key=lambda one: one[:2])
    for *_, stored in ranked[:most]:
        try:
            header = store.header(stored.digest)
        except (OSError, StoreError):
            continue
        if header.kind == kind:
            yield stored, header


def _is_similar(first: StoredGraph, other: StoredGraph) -> bool:
    """Return whether two graphs share at least half of their operators, regardless of arguments."""
    ours, theirs = (Counter(node.operator for node in graph.nodes if not node.is_leaf) for graph in (first, other))
    return (ours & theirs).total() >= _SIMILAR * max(ours.total(), theirs.total())


def _graph_distance(first: StoredGraph | None, other: StoredGraph) -> int:
    """Return the number of operators with arguments that only one of two graphs has: cheap, and enough to rank."""
    if first is None:
        return len(other.nodes)
    ours, theirs = (
        Counter(json.dumps([node.operator, node.arguments]) for node in graph.nodes if node.operator != "weight")
        for graph in (first, other)
    )
    return ((ours - theirs) + (theirs - ours)).total()


@frozen_dataclass
class SimilarGpuEntry:
    """An entry that differs from the requested key only in the GPU's product.

    Attributes:
        key: its key.
        product: the product that it was built for.
        requested: the product that was requested.
    """

    key: CacheKey
    product: str
    requested: str

    def __str__(self) -> str:
        return f"built for another GPU of the same compute capability: {self.product}, and this is {self.requested}"


def find_similar_gpu(store: DiskStore, key: CacheKey) -> SimilarGpuEntry | None:
    """Return the best entry for another product of a key's compute capability, or None.

    An entry for a GPU with no more memory is preferred to one for a GPU with more, which may not fit; then the nearest
    number of multiprocessors; then the most recently used. Unreadable entries are skipped.
    """
    wanted, gpu = _split_gpu(key.document)
    if gpu is None:
        return None
    found = []
    for stored, header in _headers(store, key.kind):
        same, other = _split_gpu(header.key.document)
        if same == wanted and other is not None and header.key.digest != key.digest:
            has_more_memory = int(other["memory_gib"]) > int(gpu["memory_gib"])
            apart = abs(int(other["multiprocessors"]) - int(gpu["multiprocessors"]))
            rank = (has_more_memory, apart, -stored.used_ns, header.key.digest)
            found.append((rank, header.key, other))
    if not found:
        return None
    _, best, other = min(found, key=lambda one: one[0])
    return SimilarGpuEntry(best, str(other["product"]), str(gpu["product"]))


def _split_gpu(document: Mapping[str, Any]) -> tuple[object, Mapping[str, Any] | None]:
    """Return a key document without its target's GPU, and that GPU, or None."""
    parts = document["parts"]
    target = parts.get("target")
    if not isinstance(target, dict) or not isinstance(target.get("gpu"), dict):
        return document, None
    rest = {name: value for name, value in target.items() if name != "gpu"}
    return {**document, "parts": {**parts, "target": rest}}, target["gpu"]
