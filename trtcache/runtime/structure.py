"""Nested arguments and outputs without ``torch.utils._pytree``: containers of Python, named tuples and ``Output``.

Flattening gives the same leaves in the same order as torch's for these containers. Anything else is a leaf.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque, namedtuple
from itertools import islice
from typing import TYPE_CHECKING, Any

from trtcache.config.frozen import frozen_dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trtcache.digests import Json

PLAIN: dict[str, type] = {"tuple": tuple, "list": list, "dict": dict, "ordered": OrderedDict}
FACTORIES = {None: None, "list": list, "dict": dict, "int": int, "float": float, "tuple": tuple, "set": set}
DEPTH = 64
"""How deeply a structure in a file may be nested."""


class UnknownContainerError(ValueError):
    """A structure in a file has a class that only torch has."""


class Output(OrderedDict[str, Any]):
    """Replace an output of a class that is not available: its children by name, as attributes, and by index.

    Fields of the class that the output did not have are None, as in the original.
    """

    kind: str = ""
    names: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        if name in self.__dict__.get("names", ()):
            return None
        raise AttributeError(f"{self.kind or 'the output'} has no {name}; it has {', '.join(self)}")

    def __getitem__(self, key: Any) -> Any:
        """Return a child by name or index, or several as a tuple."""
        return super().__getitem__(key) if isinstance(key, str) else self.to_tuple()[key]

    def to_tuple(self) -> tuple[Any, ...]:
        """Return the children in order."""
        return tuple(self.values())


@frozen_dataclass
class Node:
    """How values are nested.

    Attributes:
        type: the container's class, ``namedtuple`` for any named tuple; None for a leaf.
        context: names of the children, or what else the container needs, as in torch's ``TreeSpec``.
        parts: the children.
    """

    type: Any = None
    context: Any = None
    parts: tuple[Node, ...] = ()

    def is_leaf(self) -> bool:
        """Return whether it is a single value."""
        return self.type is None

    @property
    def children(self) -> tuple[Node, ...]:
        """The children."""
        return self.parts


LEAF = Node()


def _open(value: Any) -> tuple[Any, Any, Sequence[Any]] | None:
    """Return the class, the context and the children of a container; None for a leaf."""
    kind = type(value)
    if kind in {tuple, list}:
        return kind, None, value
    if kind in {dict, OrderedDict}:
        return kind, list(value), list(value.values())
    if kind is defaultdict:
        return kind, [value.default_factory, list(value)], list(value.values())
    if kind is deque:
        return kind, value.maxlen, list(value)
    if kind is Output:
        return kind, (value.kind, tuple(value), value.names), list(value.values())
    if isinstance(value, tuple) and isinstance(getattr(kind, "_fields", None), tuple):
        return namedtuple, kind, value
    return None


def flatten(value: Any) -> tuple[list[Any], Node]:
    """Return the leaves of a value, and how they are nested."""
    opened = _open(value)
    if opened is None:
        return [value], LEAF
    kind, context, parts = opened
    leaves: list[Any] = []
    nodes = []
    for part in parts:
        found, node = flatten(part)
        leaves += found
        nodes.append(node)
    return leaves, Node(kind, context, tuple(nodes))


def gather(node: Node, value: Any, leaves: list[Any]) -> bool:
    """Append the leaves of a value in the order of a structure; return False if the value's differs.

    A dict may have its keys in another order.
    """
    opened = _open(value)
    if node.is_leaf() or opened is None:
        leaves.append(value)
        return node.is_leaf() and opened is None
    kind, context, parts = opened
    if node.type is dict and kind is dict:
        if value.keys() != set(node.context):
            return False
        parts = [value[key] for key in node.context]
    elif kind is not node.type or context != node.context:
        return False
    return len(parts) == len(node.parts) and all(
        gather(one, part, leaves) for one, part in zip(node.parts, parts, strict=True)
    )


def unflatten(leaves: Iterator[Any], node: Node) -> Any:
    """Return a value of this structure from an iterator over its leaves."""
    if node.is_leaf():
        return next(leaves)
    parts = [unflatten(leaves, part) for part in node.parts]
    kind, context = node.type, node.context
    if kind in {tuple, list}:
        return kind(parts)
    if kind in {dict, OrderedDict}:
        return kind(zip(context, parts, strict=True))
    if kind is defaultdict:
        return defaultdict(context[0], zip(context[1], parts, strict=True))
    if kind is deque:
        return deque(parts, maxlen=context)
    if kind is Output:
        made = Output(zip(context[1], parts, strict=True))
        made.kind, made.names = context[0], context[2]
        return made
    return context(*parts)


def leaf_steps(node: Node) -> list[tuple[Any, ...]]:
    """Return the steps to each leaf: indices and keys, and for the field of a named tuple its name after a dot."""
    if node.is_leaf():
        return [()]
    count = len(node.parts)
    if node.type in {dict, OrderedDict}:
        steps = list(node.context)
    elif node.type is defaultdict or node.type is Output:
        steps = list(node.context[1])
    elif node.type is namedtuple:
        steps = [_Field(name) for name in islice(node.context._fields, count)]
    else:
        steps = list(range(count))
    return [(step, *rest) for step, part in zip(steps, node.parts, strict=True) for rest in leaf_steps(part)]


class _Field(str):
    """The name of a named tuple's field."""

    __slots__ = ()


def steps_text(steps: Sequence[Any]) -> str:
    """Return steps as Python code: ``['k'][0].left``."""
    return "".join(f".{step}" if isinstance(step, _Field) else f"[{step!r}]" for step in steps)


def read_nodes(written: Any, depth: int = 0) -> Node:
    """Parse a structure that ``write_structure`` returned.

    Raises:
        UnknownContainerError: it has a class of torch.
        ValueError: it is malformed, or nested more than 64 deep.
    """
    if written is None:
        return LEAF
    if depth > DEPTH or not isinstance(written, dict):
        raise ValueError("not a structure of arguments")
    parts = tuple(read_nodes(one, depth + 1) for one in written["parts"])
    keys = written.get("keys")
    if keys is not None and len(keys) != len(parts):
        raise ValueError("a structure with more names than parts")
    return Node(*_container(written, keys), parts)


def _container(written: Any, keys: Any) -> tuple[Any, Any]:
    """Return the class and the context of a container."""
    match written["kind"]:
        case "tuple" | "list" as name:
            return PLAIN[name], None
        case "dict" | "ordered" as name:
            return PLAIN[name], distinct(keys)
        case "default":
            return defaultdict, [FACTORIES[written["of"]], distinct(keys)]
        case "deque":
            return deque, written["longest"]
        case "named":
            return namedtuple, named_class(written["name"], distinct(keys))
        case "class" if written["name"] == "torch.Size":
            return tuple, None
        case "class":
            return Output, (str(written["name"]), tuple(map(str, distinct(keys))), tuple(map(str, written["names"])))
        case "torch":
            raise UnknownContainerError(f"an output is of torch's class {written['name']!r:.40}")
        case other:
            raise ValueError(f"a structure of the kind {other!r:.40}")


def named_class(name: str, fields: Sequence[str]) -> Any:
    """Return the class of a named tuple if it is imported and has these fields, or else a new one."""
    found = find_class(name)
    if found is not None and issubclass(found, tuple) and getattr(found, "_fields", ()) == tuple(fields):
        return found
    made: type = namedtuple(name.rpartition(".")[2] or "Output", fields, rename=True)  # type: ignore[misc]
    return made


def find_class(name: str) -> type | None:
    """Return a class by its qualified name if its module is already imported."""
    steps = name.split(".")
    for count in range(len(steps) - 1, 0, -1):
        found: Any = sys.modules.get(".".join(steps[:count]))
        for step in steps[count:]:
            found = getattr(found, "__dict__", {}).get(step)  # getattr would make lazy modules import
        if isinstance(found, type):
            return found
    return None


def plain_key(key: Any) -> Json:
    """Return a mapping's key if JSON has it.

    Raises:
        ValueError: it does not.
    """
    if key is None or isinstance(key, (bool, int, str)):
        return key
    raise ValueError(f"a mapping among arguments or outputs has the key {key!r:.40}, which JSON does not support")


def distinct(keys: Any) -> list[Any]:
    """Return the keys of a mapping in a file.

    Raises:
        ValueError: there is one twice, or one that JSON does not have.
    """
    if not isinstance(keys, list) or len({(type(key), key) for key in map(plain_key, keys)}) != len(keys):
        raise ValueError("a mapping with a name twice")
    return keys
