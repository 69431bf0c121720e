"""A lowered graph as an artifact stores it (member ``graph.json``), and the matching of two: readable without torch."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from trtcache.config.frozen import frozen_dataclass
from trtcache.lowering.operators import NodeNames

if TYPE_CHECKING:
    from trtcache.digests import Json


GRAPH_MEMBER = "graph.json"
IN_TORCH = " in torch"
"""The suffix of an operator's name that a module keeps in torch."""

_LETTERS = {"weight": "w", "constant": "c"}


@frozen_dataclass
class StoredNode:
    """One record of a graph.

    Attributes:
        name: a readable name, ``softmax``, ``softmax_1``, ``in0``, ``w3``: by operator, in canonical order.
        operator: the operator, or ``input``, ``weight``, ``constant``.
        arguments: in the order of the schema; ``{"$use": k}`` is the k-th of ``uses``.
        value: dtype, shape and device of the result.
        uses: indices of the nodes it uses.
    """

    name: str
    operator: str
    arguments: list[Any]
    value: Any
    uses: tuple[int, ...]

    @property
    def is_leaf(self) -> bool:
        """Whether it is an input, a weight or a constant."""
        return self.operator == "input" or self.operator in _LETTERS


@frozen_dataclass
class StoredGraph:
    """A lowered graph: nodes in canonical order, results, and names for printing.

    Attributes:
        nodes: all nodes but the output.
        results: ``[kind, target, argument]`` of each output; ``{"$use": k}`` is the k-th of ``result_uses``.
        result_uses: indices of the nodes that are results.
        operators: the argument names of each operator.
        sizes: the ``[min, max]`` of each symbolic size.
    """

    nodes: tuple[StoredNode, ...]
    results: list[Any]
    result_uses: tuple[int, ...]
    operators: Mapping[str, list[str]]
    sizes: list[Any]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> StoredGraph:
        """Parse a ``graph.json`` document.

        Raises:
            ValueError: it is not such a document.
        """
        try:
            *records, output = document["nodes"]
            names, nodes = NodeNames(), list[StoredNode]()
            for operator, arguments, value, *_, uses in records:
                if operator == "input":
                    name = f"in{arguments[0]}"
                elif operator in _LETTERS:
                    name = names.number(_LETTERS[operator])
                else:
                    name = names.call(str(operator))
                nodes.append(StoredNode(name, str(operator), list(arguments), value, tuple(map(int, uses))))
            result_uses = tuple(map(int, output[-1]))
            tables = document.get("operators", {}), document.get("sizes", [])
            graph = cls(tuple(nodes), list(output[1]), result_uses, *tables)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"not a lowered graph: {error}") from error
        if output[0] != "output" or any(not 0 <= used < len(nodes) for used in result_uses):
            raise ValueError("not a lowered graph: it does not end with its output")
        if any(not 0 <= used < place for place, node in enumerate(nodes) for used in node.uses):
            raise ValueError("not a lowered graph: a node uses a later one")
        return graph

    def argument_name(self, node: StoredNode, index: int) -> str:
        """Return the schema's name for an argument, or its number without a schema."""
        names = self.operators.get(node.operator.removesuffix(IN_TORCH), [])
        return names[index] if index < len(names) else str(index)

    def name(self, place: int) -> str:
        """Return the name of the node at an index."""
        return self.nodes[place].name

    def text(self, node: StoredNode) -> str:
        """Return a call in readable form: ``aten.relu.default(in0)``."""
        return f"{node.operator}({', '.join(self.format_argument(one, node.uses) for one in node.arguments)})"

    def format_argument(self, argument: Json, uses: tuple[int, ...]) -> str:
        """Return an argument in readable form, with the names of its nodes."""
        return format_value(argument, lambda k: self.name(uses[k]))


def format_value(value: Any, use: Any = None) -> str:
    """Return a value of a key document or of a record in readable form.

    ``use`` returns the name of the operand ``{"$use": k}``.
    """
    if isinstance(value, Mapping):
        return _format_tagged(value, use)
    if isinstance(value, (list, tuple)):
        if value and isinstance(value[0], str) and value[0].isidentifier() and value[0][:1].isupper():
            return f"{value[0]}({', '.join(format_value(one, use) for one in value[1:])})"  # an expression over sizes
        return f"[{', '.join(format_value(one, use) for one in value)}]"
    if value is None or isinstance(value, bool):
        return "none" if value is None else str(value).lower()
    return str(value)


def _format_tagged(value: Mapping[str, Any], use: Any) -> str:
    if len(value) == 1:
        ((tag, content),) = value.items()
        match tag:
            case "$use":
                return str(use(content)) if use else f"%{content}"
            case "$float":
                return repr(float.fromhex(content))
            case "$complex":
                return repr(complex(*map(float.fromhex, content)))
            case "sym":
                return f"s{content}"
            case "$size" | "$number":
                return format_value(content, use)
            case "$torch" | "$device" | "$enum":
                return str(content).removeprefix("torch.")
            case "$slice" | "$set":
                return f"{tag[1:]}{format_value(content, use)}"
    if "$digest" in value:
        return short_digest(str(value["$digest"]))
    return "{" + ", ".join(f"{name}: {format_value(one, use)}" for name, one in value.items()) + "}"


def short_digest(text: str) -> str:
    """Return a shortened digest."""
    return text[:15] if text.startswith("b3:") else text[:12]


Matched: TypeAlias = dict[int, int]
"""Index in the first graph -> index in the second."""

SELECTION = "_operator.getitem"
"""Selects one of several results; it comes and goes with the operator that it selects from."""


def match(a: StoredGraph, b: StoredGraph) -> Matched:
    """Return which nodes correspond.

    Inputs match if they are the same argument. Calls match if they compute the same from matched inputs; their position
    and weights do not count. The rest, downstream of a difference, is aligned in canonical order. Weights, and what is
    computed from weights and constants alone, correspond if they are used in the same place.
    """
    inputs = {node.name: place for place, node in enumerate(b.nodes) if node.operator == "input"}
    matched: Matched = {
        place: inputs[node.name]
        for place, node in enumerate(a.nodes)
        if node.operator == "input" and node.name in inputs
    }
    # Calls with equal operators, arguments and operands, all the way to the inputs.
    numbers: dict[object, int] = {}
    ours, theirs = _number_subgraphs(a, numbers), _number_subgraphs(b, numbers)
    calls_a, calls_b = _calls_from_inputs(a), _calls_from_inputs(b)
    places: dict[int, list[int]] = defaultdict(list)
    for place in reversed(calls_b):
        places[theirs[place]].append(place)
    matched |= {place: places[ours[place]].pop() for place in calls_a if places[ours[place]]}
    # Others by operator and arguments; the gaps by operator; then equally many remaining calls in order.
    taken = set(matched.values())
    rest_a, rest_b = [one for one in calls_a if one not in matched], [one for one in calls_b if one not in taken]
    aligned, gaps = _align_by(_token, rest_a, rest_b, a, b)
    matched |= aligned
    for gap in gaps:
        aligned, rests = _align_by(lambda node: node.operator, *gap, a, b)
        matched |= aligned
        for left, right in rests:
            x = [one for one in left if a.nodes[one].operator != SELECTION]
            y = [one for one in right if b.nodes[one].operator != SELECTION]
            matched |= dict(zip(x, y, strict=True)) if len(x) == len(y) else {}
    _descend(a, b, matched)
    return matched


def _calls_from_inputs(graph: StoredGraph) -> list[int]:
    """Return the calls that depend on an input; others are identified only by their users."""
    reached: set[int] = set()
    for place, node in enumerate(graph.nodes):
        if node.operator == "input" or not reached.isdisjoint(node.uses):
            reached.add(place)
    return [place for place in sorted(reached) if not graph.nodes[place].is_leaf]


def _number_subgraphs(graph: StoredGraph, numbers: dict[object, int]) -> list[int]:
    """Number the nodes so that equal subgraphs get equal numbers; the graphs compared share ``numbers``."""
    found: list[int] = []
    for node in graph.nodes:
        key = (_token(node), tuple(found[used] for used in node.uses))
        found.append(numbers.setdefault(key, len(numbers)))
    return found


def _token(node: StoredNode) -> str:
    """Return a node's identity without its operands, and without the names of weights and inputs."""
    if node.operator == "weight":
        return json.dumps([node.operator, node.value["dtype"], node.value["shape"]])
    return json.dumps([node.operator, node.arguments])


def _align_by(
    token: Callable[[StoredNode], str], ours: list[int], theirs: list[int], a: StoredGraph, b: StoredGraph
) -> tuple[Matched, list[tuple[list[int], list[int]]]]:
    """Return pairs of nodes with equal tokens, in order, as ``difflib`` aligns them, and the gaps between them."""
    from difflib import SequenceMatcher  # a hit that reads a graph does not compare it

    matched: Matched = {}
    gaps: list[tuple[list[int], list[int]]] = []
    matcher = SequenceMatcher(None, [token(a.nodes[one]) for one in ours], [token(b.nodes[one]) for one in theirs])
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            matched |= dict(zip(ours[i1:i2], theirs[j1:j2], strict=True))
        else:
            gaps.append((ours[i1:i2], theirs[j1:j2]))
    return matched, gaps


def _descend(a: StoredGraph, b: StoredGraph, matched: Matched) -> None:
    """Match the operands of matched calls and results, place by place, down to weights and constants."""
    taken = set(matched.values())
    stack = list(reversed(matched.items()))
    if len(a.result_uses) == len(b.result_uses):
        stack += [pair for pair in zip(a.result_uses, b.result_uses, strict=True) if pair[0] not in matched]
    while stack:
        one, other = stack.pop()
        x, y = a.nodes[one], b.nodes[other]
        same_kind = x.operator == y.operator or not (x.is_leaf or y.is_leaf)
        if one not in matched and other not in taken and same_kind:
            matched[one] = other
            taken.add(other)
        if matched.get(one) == other and x.operator == y.operator:
            # Operands in equal places of the arguments.
            stack += [
                pair
                for _, before, after in compare_arguments(x.arguments, y.arguments)
                if is_use(before)
                and is_use(after)
                and (pair := (x.uses[before["$use"]], y.uses[after["$use"]]))[0] not in matched
            ]


def is_use(argument: object) -> bool:
    """Return whether an argument is an operand."""
    return isinstance(argument, dict) and "$use" in argument


def compare_arguments(x: Any, y: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any, Any]]:
    """Yield ``(path, before, after)`` for the innermost differing arguments, and for all operands."""
    if isinstance(x, list) and isinstance(y, list) and len(x) == len(y):
        for index, (one, other) in enumerate(zip(x, y, strict=True)):
            yield from compare_arguments(one, other, (*path, index))
    elif type(x) is not type(y) or x != y or is_use(x):
        yield path, x, y
