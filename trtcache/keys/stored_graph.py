"""A lowered graph as an artifact stores it (member ``graph.json``), readable without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trtcache.lowering.node_names import NodeNames

if TYPE_CHECKING:
    from trtcache.digests import Json

GRAPH_MEMBER = "graph.json"
IN_TORCH = " in torch"
"""The suffix of an operator's name that a module keeps in torch."""

_LETTERS = {"weight": "w", "constant": "c"}


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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
            nodes = tuple(map(_node, records, _names(records)))
            uses = tuple(map(int, output[-1]))
            _check(nodes, output[0], uses)
            return cls(nodes, list(output[1]), uses, document.get("operators", {}), document.get("sizes", []))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"not a lowered graph: {error}") from error

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


def _check(nodes: tuple[StoredNode, ...], last: object, result_uses: tuple[int, ...]) -> None:
    if last != "output" or any(not 0 <= used < len(nodes) for used in result_uses):
        raise ValueError("it does not end with its output")
    if any(not 0 <= used < place for place, node in enumerate(nodes) for used in node.uses):
        raise ValueError("a node uses a later one")


def _node(record: list[Any], name: str) -> StoredNode:
    return StoredNode(name, str(record[0]), list(record[1]), record[2], tuple(map(int, record[-1])))


def _names(records: list[list[Any]]) -> list[str]:
    given = NodeNames()
    names = []
    for operator, arguments, *_ in records:
        if operator == "input":
            names.append(f"in{arguments[0]}")
        elif operator in _LETTERS:
            names.append(given.number(_LETTERS[operator]))
        else:
            names.append(given.call(str(operator)))
    return names


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
