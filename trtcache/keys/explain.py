"""Explanation of misses: the nearest stored entry, and why two keys differ."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import StoreError
from trtcache.keys.graph_diff import KeyDifference, graph_differences, merge_repeated, summary
from trtcache.keys.stored_graph import GRAPH_MEMBER, StoredGraph, format_value
from trtcache.store.reader import ArtifactFile, EntryStat
from trtcache.store.record import COLUMNS, INDEX_NAME, read_rows

if TYPE_CHECKING:
    from trtcache.digests import CacheKey, Json
    from trtcache.store.disk import DiskStore
    from trtcache.store.format import EntryHeader


_ORDER = (
    *("format", "kind", "target", "toolchain", "settings", "ambient", "pipeline"),
    *("inputs", "values", "sizes", "structure"),
)
"""Parts by reach: a difference in an earlier part may be the cause of one in a later part."""

_ABSENT: Any = object()

_FOLLOWS = {
    "target.level": ("target.instruction_sets",),
    "target.device": ("target.capability", "toolchain.cuda", "toolchain.triton", "graph:device", "inputs:device"),
    "toolchain.torch": ("toolchain.torch_git",),
}
"""Difference -> differences that it implies: prefixes of paths, or ``part:field`` for one field in a part."""


def explain(
    a: Mapping[str, Json],
    b: Mapping[str, Json],
    graphs: tuple[StoredGraph, StoredGraph] | None = None,
) -> list[KeyDifference]:
    """Return how the key document ``b`` differs from ``a``, causes first; an empty list if they are equal.

    Args:
        a: a key document, such as a stored entry's.
        b: another.
        graphs: the lowered graphs of both. Without them a difference of the graphs is reported by digest, and only if
            nothing else differs.
    """
    before, after = _readable(a), _readable(b)
    _tell_trees_apart(before, after, a, b)
    parts = (*_ORDER, *sorted({*before, *after} - {*_ORDER, "graph"}))
    walked = [one for part in parts for one in _walk(part, before.get(part, _ABSENT), after.get(part, _ABSENT))]
    with_other_shapes = {one.where.partition(".")[0] for one in walked if ".shape" in one.where}
    has_other_inputs = any(
        one.where.startswith(("inputs[", "values[")) and None in {one.before, one.after} for one in walked
    )
    has_another_graph = before.get("graph", _ABSENT) != after.get("graph", _ABSENT)
    found: list[KeyDifference] = []
    layouts: list[KeyDifference] = []
    for one in walked:
        part = one.where.partition(".")[0]
        if (
            _follows(one, walked)
            or (one.field == "stride" and part in with_other_shapes)
            or (part == "sizes" and None in {one.before, one.after} and with_other_shapes)
            or (one.where == "structure.arguments" and has_other_inputs)
        ):
            continue  # another difference implies it
        (layouts if one.where.startswith("layouts") else found).append(one)
    if has_another_graph:
        found += _graph(before, after, found, graphs)
    return merge_repeated(found or layouts)  # nearly any other difference changes layouts of results


def _graph(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    known: list[KeyDifference],
    graphs: tuple[StoredGraph, StoredGraph] | None,
) -> list[KeyDifference]:
    try:
        walked = graph_differences(*graphs) if graphs else None
    except (LookupError, TypeError, ValueError, AttributeError):  # a record of an unknown form
        walked = None
    if walked is None:
        return [] if known else list(_walk("graph", before.get("graph", _ABSENT), after.get("graph", _ABSENT)))
    reported = {(_number(one.before), _number(one.after)) for one in known if one.where.startswith("values")}
    fields = {(one.field, one.before, one.after) for one in known}
    found = [
        one
        for one in walked
        if (_number(one.before), _number(one.after)) not in reported
        and (one.field, one.before, one.after) not in fields
        and not _follows(one, known)
    ]
    if any(one.where == "structure.output" for one in known):
        found = [one for one in found if not one.where.startswith("graph: number of outputs")]
    if not found and not known:
        found = [KeyDifference("graph", "as stored", "another; the stored records do not show where")]
    return found


def _number(text: str | None) -> object:
    """Return a number written as ``3`` or ``3.0`` as one value."""
    try:
        return float(text or "")
    except ValueError:
        return text


def _follows(difference: KeyDifference, known: list[KeyDifference]) -> bool:
    """Return whether a difference follows from a known one by ``_FOLLOWS``."""
    for follower in (follower for one in known for follower in _FOLLOWS.get(one.where, ())):
        part, _, field = follower.partition(":")
        if difference.where.startswith(part) and (not field or difference.field == field):
            return True
    return False


def _walk(where: str, before: Any, after: Any) -> Iterator[KeyDifference]:
    if before == after and repr(before) == repr(after):  # 1 and True are equal but not the same
        return
    if all(
        isinstance(one, Mapping) and not any(name.startswith("$") or name == "sym" for name in one)
        for one in (before, after)
    ):
        for name in {**before, **after}:
            plain = f".{name}" if name.replace("_", "").isalnum() else f"[{name!r}]"
            below = where + (name if name.startswith("[") else plain)
            yield from _walk(below, before.get(name, _ABSENT), after.get(name, _ABSENT))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _walk_lists(where, before, after)
    else:
        was, now = (None if one is _ABSENT else format_value(one) for one in (before, after))
        yield KeyDifference(where, was, now)


def _walk_lists(where: str, before: list[Any], after: list[Any]) -> Iterator[KeyDifference]:
    if len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _walk(f"{where}[{index}]", one, other)
        return
    if where.endswith(".shape") or all(isinstance(one, int) for one in (*before, *after)):
        yield KeyDifference(where, format_value(before), format_value(after))
        return
    left, right = ([json.dumps(one, sort_keys=True) for one in side] for side in (before, after))
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        for index in range(max(i2 - i1, j2 - j1) if tag != "equal" else 0):
            one = before[i1 + index] if i1 + index < i2 else _ABSENT
            other = after[j1 + index] if j1 + index < j2 else _ABSENT
            place = i1 + index if other is _ABSENT else j1 + index
            yield from _walk(f"{where}[{place}]", one, other)


def _readable(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a key document's parts with the machine-readable ones in a readable form."""
    parts = document.get("parts")
    readable: dict[str, Any] = {"format": document.get("format"), "kind": document.get("kind")}
    readable |= dict(parts) if isinstance(parts, Mapping) else {}
    for name, reader in _READERS.items():
        if isinstance(readable.get(name), dict if name == "structure" else list):
            with suppress(LookupError, TypeError, ValueError, AttributeError):  # a foreign part of that name
                readable[name] = reader(readable[name])
    return readable


def _tell_trees_apart(
    before: dict[str, Any], after: dict[str, Any], a: Mapping[str, Any], b: Mapping[str, Any]
) -> None:
    """Name the classes and contexts of trees that differ and read alike, such as those of two lengths of a deque."""
    if not all(isinstance(one.get("structure"), dict) for one in (before, after)):
        return
    with suppress(LookupError, TypeError, ValueError, AttributeError):  # a foreign part of that name
        trees, others = a["parts"]["structure"], b["parts"]["structure"]
        for name in before["structure"].keys() & after["structure"].keys():
            alike = before["structure"][name] == after["structure"][name]
            if alike and repr(trees[name]) != repr(others[name]):  # 1 and True are equal but not the same
                before["structure"][name], after["structure"][name] = (
                    _whole_tree(trees[name]),
                    _whole_tree(others[name]),
                )


def _tree(spec: Any) -> str:
    if spec is None:
        return "*"
    kind, context, *children = spec
    name = str(kind).rpartition(".")[2]
    names = context if isinstance(context, list) and len(context) == len(children) else None
    inside = [_tree(child) for child in children]
    if names is not None and children:
        inside = [f"{label}={child}" for label, child in zip(names, inside, strict=True)]
    return f"{name}({', '.join(inside)})"


def _whole_tree(spec: Any) -> str:
    """Return a tree with the module of each class and all of its context, as ``collections.deque[3](*)``."""
    if spec is None:
        return "*"
    kind, context, *children = spec
    inside = ", ".join(map(_whole_tree, children))
    return f"{kind}({inside})" if context is None else f"{kind}[{context!r}]({inside})"


_READERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "inputs": lambda inputs: {
        f"[{one['leaf']}]": {
            "dtype": one["dtype"],
            "shape": [size if isinstance(size, int) else format_value(size) for size in one["shape"]],
            "stride": format_value(one["stride"]),
            "device": one["device"],
        }
        for one in inputs
    },
    "values": lambda values: {f"[{leaf}]": value for leaf, value in values},
    "sizes": lambda sizes: {f"s{number}": {"min": low, "max": high} for number, (low, high) in enumerate(sizes)},
    "structure": lambda structure: {name: _tree(spec) for name, spec in structure.items()},
}
"""The readable forms of parts of a key document."""


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
