"""Arguments and outputs without torch: nested containers, and the order of arguments in a call.

Flattening gives the same leaves in the same order as torch's for Python's containers, named tuples and
``Output``. Anything else is a leaf.
"""

from __future__ import annotations

import inspect
import sys
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import InputError
from trtcache.runtime.checks import ExactKey, describe_value, exact_keys, same_value, values_by_key

if TYPE_CHECKING:
    from trtcache.digests import Json


PLAIN: dict[str, type] = {"tuple": tuple, "list": list, "dict": dict, "ordered": OrderedDict}
_WITH_KEYS = frozenset({dict, OrderedDict, defaultdict})
FACTORIES = {None: None, "list": list, "dict": dict, "int": int, "float": float, "tuple": tuple, "set": set}
_PLAIN_DEFAULTS = frozenset({bool, int, float, str})
_ONE_FORM = (
    "the model may tell how arguments are passed (*args, a hook, or its own __call__): pass them as when compiling"
)

DEPTH = 64
"""How deeply a structure in a file may be nested."""


OutputContext = tuple[str, tuple[str, ...], tuple[str, ...]]
"""The name of an ``Output``'s class, the names of its children, and the fields of the class."""


class UnknownContainerError(ValueError):
    """A structure in a file has a class that only torch has."""


class Output(OrderedDict[str, Any]):
    """Stand-in for an output whose class is not available: its children by name, as attributes, and by index.

    Fields of the class that the output did not have are None, as in the original.
    """

    _class: str = ""
    _fields_of_class: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        if name in self.__dict__.get("_fields_of_class", ()):
            return None
        raise AttributeError(f"{self._class or 'the output'} has no {name}; it has {', '.join(self)}")

    def __getitem__(self, key: Any) -> Any:
        """Return a child by name or index, or several as a tuple."""
        return super().__getitem__(key) if isinstance(key, str) else self.to_tuple()[key]

    def to_tuple(self) -> tuple[Any, ...]:
        """Return the children in order."""
        return tuple(self.values())


def make_output(values: Iterable[Any], context: OutputContext) -> Output:
    """Return an output with these children."""
    name, keys, fields = context
    made = Output(zip(keys, values, strict=True))
    vars(made).update(_class=name, _fields_of_class=fields)
    return made


def flatten_output(output: Output) -> tuple[list[Any], OutputContext]:
    """Return the children of an output, and what ``make_output`` needs beside them."""
    own = vars(output)
    context = own.get("_class", ""), tuple(output), own.get("_fields_of_class", ())
    return [*OrderedDict.values(output)], context


@frozen_dataclass
class Node:
    """How values are nested.

    Attributes:
        type: the container's class, ``namedtuple`` for any named tuple; None for a leaf.
        context: names of the children, or what else the container needs, as in torch's ``TreeSpec``.
        children: the nodes of its children.
    """

    type: Any = None
    context: Any = None
    children: tuple[Node, ...] = ()

    def is_leaf(self) -> bool:
        """Return whether it is a single value."""
        return self.type is None


LEAF = Node()


def exact_node(node: Node) -> Node:
    """Return a structure that equals only those whose keys have the same types: see ``ExactKey``."""
    context = exact_keys(node.context) if node.type in _WITH_KEYS else node.context
    return Node(node.type, context, tuple(map(exact_node, node.children)))


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
        children, context = flatten_output(value)
        return kind, context, children
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
        found = values_by_key(value, node.context)
        if found is None:
            return False
        parts = found
    elif kind is not node.type or node.context != context:
        return False
    return len(parts) == len(node.children) and all(
        gather(one, part, leaves) for one, part in zip(node.children, parts, strict=True)
    )


def unflatten(leaves: Iterator[Any], node: Node) -> Any:
    """Return a value of this structure from an iterator over its leaves."""
    if node.is_leaf():
        return next(leaves)
    parts = [unflatten(leaves, part) for part in node.children]
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
        return make_output(parts, context)
    return context(*parts)


def leaf_steps(node: Node) -> list[tuple[Any, ...]]:
    """Return the steps to each leaf: indices and keys, and for the field of a named tuple its name after a dot."""
    if node.is_leaf():
        return [()]
    count = len(node.children)
    if node.type in {dict, OrderedDict}:
        steps = list(node.context)
    elif node.type is defaultdict or node.type is Output:
        steps = list(node.context[1])
    elif node.type is namedtuple:
        steps = [_Field(name) for name in islice(node.context._fields, count)]
    else:
        steps = list(range(count))
    return [(step, *rest) for step, part in zip(steps, node.children, strict=True) for rest in leaf_steps(part)]


class _Field(str):
    """The name of a named tuple's field."""

    __slots__ = ()


def steps_text(steps: Sequence[Any]) -> str:
    """Return steps as Python code: ``['k'][0].left``."""
    return "".join(f".{step}" if isinstance(step, _Field) else f"[{step!r}]" for step in steps)


def read_nodes(written: Any, find_type: Callable[[Any], tuple[Any, Any]], depth: int = 0) -> Node:
    """Parse a structure that ``write_structure`` returned.

    Args:
        written: the structure.
        find_type: returns the class and the context of a container that is not one of Python's.
        depth: how many containers it is in.

    Raises:
        ValueError, KeyError, TypeError: it is malformed, or nested more than 64 deep; ``find_type`` can raise others.
    """
    if written is None:
        return LEAF
    if depth >= DEPTH or not isinstance(written, dict):
        raise ValueError("not a structure of arguments")
    parts = tuple(read_nodes(one, find_type, depth + 1) for one in written["parts"])
    keys = written.get("keys")
    if keys is not None and len(keys) != len(parts):
        raise ValueError("a structure with more names than parts")
    return Node(*_container(written, keys, find_type), parts)


def _container(written: Any, keys: Any, find_type: Callable[[Any], tuple[Any, Any]]) -> tuple[Any, Any]:
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
        case "class" | "torch":
            return find_type(written)
        case other:
            raise ValueError(f"a structure of the kind {other!r:.40}")


def type_without_torch(written: Any) -> tuple[Any, Any]:
    """Return ``Output`` and its context for a class that is registered with torch.

    Raises:
        UnknownContainerError: it is a class of torch's own.
        ValueError: it is malformed.
    """
    if written["kind"] == "torch":
        raise UnknownContainerError(f"an argument or output is of torch's class {written['name']!r:.40}")
    if written["name"] == "torch.Size":
        return tuple, None
    keys, names = distinct(written["keys"]), written["names"]
    return Output, (str(written["name"]), tuple(map(str, keys)), tuple(map(str, names)))


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
        ValueError: it is not a list, or there is one twice, or one that JSON does not have.
    """
    if not isinstance(keys, list) or len({(type(key), key) for key in map(plain_key, keys)}) != len(keys):
        raise ValueError("a mapping without a list of keys, or with a key twice")
    return keys


class Structure(Protocol):
    """How values are nested: torch's ``TreeSpec``, or a ``Node``."""

    @property
    def type(self) -> Any:
        """The container's class; None for a leaf."""

    @property
    def context(self) -> Any:
        """Names of the children, or what else the container needs."""

    def is_leaf(self) -> bool:
        """Return whether it is a single value."""
        ...


def children_of(spec: Any) -> list[Any]:
    """Return the children of a structure, which older versions of torch have as an attribute."""
    parts = spec.children
    return list(parts() if callable(parts) else parts)


class ArgumentOrder:
    """The arguments that a program was compiled with.

    Attributes:
        count: the number of positional arguments.
        names: the names of the others.
        signature: of what a call of the model runs, if there is a model: calls that it binds alike are one call.
    """

    def __init__(
        self,
        count: int,
        names: Sequence[str],
        signature: inspect.Signature | None,
        input_names: Sequence[str] | None = None,
    ) -> None:
        """Store the order; ``input_names`` need not be Python identifiers, as those of an ONNX file."""
        self.count, self.names = count, tuple(names)
        self.signature, self._input_names = signature, input_names

    def order(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call by the positions and names used when compiling.

        Raises:
            InputError: arguments are missing or unknown.
        """
        if len(args) != self.count or len(kwargs) != len(self.names) or not all(map(kwargs.__contains__, self.names)):
            return self._arrange(args, kwargs)
        return args, kwargs

    def _name(self, path: tuple[Any, ...]) -> str:
        """Return the caller's name for a path: the group, an argument's position or name, and steps into it."""
        if len(path) < 2:
            return "arguments"
        _, argument, *rest = path
        parameters = list(self.signature.parameters.values()) if self.signature else []
        several = next((place for place, one in enumerate(parameters) if one.kind is one.VAR_POSITIONAL), None)
        if isinstance(argument, int) and several is not None and argument >= several:  # one of ``*args``
            argument = f"{parameters[several].name}[{argument - several}]"
        elif isinstance(argument, int) and argument < len(parameters):
            argument = parameters[argument].name
        return f"argument {argument}" + "".join(f"[{step!r}]" for step in rest)

    def _arrange(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Bring a call's arguments into the positions and names used when compiling."""
        if self._input_names is not None:
            return self._arrange_named(self._input_names, args, kwargs)
        plural = "" if self.count == 1 else "s"
        expected = f"{self.count} positional argument{plural}" + (f" and {', '.join(self.names)}" if self.names else "")
        found = f"{len(args)} positional" + (f" and {', '.join(kwargs)}" if kwargs else "")
        if self.signature is None:
            raise InputError("arguments", expected, found)
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InputError("arguments", expected, found, str(error)) from error
        bound.apply_defaults()  # an argument omitted here may have been passed when compiling, with its default
        given = _spread(bound)
        try:
            arranged = tuple(given.pop(key) for key in self._positional()), {n: given.pop(n) for n in self.names}
        except KeyError as error:
            why = f"{self._name((0, error.args[0])).removeprefix('argument ')} is missing"
            raise InputError("arguments", expected, found, "; ".join(filter(None, (why, self._hint())))) from error
        for key, value in given.items():
            parameter = self._parameter(key)
            if parameter is None or not _is_default(parameter, value):
                hint = self._hint() or "it was left out when compiling; compile again with it"
                raise InputError(self._name((0, key)), "the model's own default", describe_value(value), hint)
        return arranged

    def _hint(self) -> str:
        """Return what to do for a model that is passed arguments as they come; else an empty string."""
        kinds = [one.kind for one in self.signature.parameters.values()] if self.signature else []
        return _ONE_FORM if kinds == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD] else ""

    def _arrange_named(
        self, names: Sequence[str], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call, by position or by name, in the order of ``names``."""
        expected = f"{len(names)} ({', '.join(names)})"
        if len(args) > len(names):
            raise InputError("arguments", expected, f"{len(args)} by position")
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names:
                raise InputError(f"argument {name}", f"one of {', '.join(names)}", "a name that it does not have")
            if name in given:
                raise InputError(f"argument {name}", "one value", "one by position and one by name")
            given[name] = value
        if missing := [name for name in names if name not in given]:
            raise InputError("arguments", expected, f"{len(given)}", f"{', '.join(missing)} is missing")
        return tuple(given[name] for name in names), {}

    def _positional(self) -> list[int | str]:
        """Return the keys, as in ``_spread``, of the arguments passed by position when compiling."""
        parameters = list(self.signature.parameters.values()) if self.signature else []
        by_name = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
        first = sum(one.kind is one.POSITIONAL_ONLY for one in parameters)
        return [by_name[at - first] if 0 <= at - first < len(by_name) else at for at in range(self.count)]

    def _parameter(self, key: int | str) -> inspect.Parameter | None:
        """Return the parameter of a key of ``_spread``; None for one of ``*args`` or ``**kwargs``."""
        parameters = self.signature.parameters if self.signature else {}
        if isinstance(key, int):
            found = list(parameters.values())[key] if key < len(parameters) else None
            return found if found is not None and found.kind is found.POSITIONAL_ONLY else None
        found = parameters.get(key)
        return found if found is not None and found.kind in {found.POSITIONAL_OR_KEYWORD, found.KEYWORD_ONLY} else None


def _spread(bound: inspect.BoundArguments) -> dict[int | str, Any]:
    """Return the arguments of a call by name, and by position those that only have one.

    In ``f(x, /, **more)`` the names of ``more`` can be ``x``, which is another argument than the first.
    """
    given: dict[int | str, Any] = {}
    for place, (name, value) in enumerate(bound.arguments.items()):
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            given |= {place + index: one for index, one in enumerate(value)}
        elif kind is inspect.Parameter.VAR_KEYWORD:
            given |= value
        else:
            given[place if kind is inspect.Parameter.POSITIONAL_ONLY else name] = value
    return given


def difference(expected: Structure, found: Structure) -> tuple[tuple[Any, ...], str, str]:
    """Return the first path at which two structures differ, and what each has there."""
    inside, given = children_of(expected), children_of(found)
    kind = tuple if _is_size(found.type) else found.type
    if expected.type is dict and kind is dict and set(expected.context) == set(found.context):
        given = [given[found.context.index(key)] for key in expected.context]
    elif (expected.type, expected.context, len(inside)) != (kind, found.context, len(given)):
        return (), *_describe_both(expected, found)
    steps = expected.context if expected.type is dict else range(len(inside))
    for step, one, other in zip(steps, inside, given, strict=True):
        if one != other:
            path, wanted, got = difference(one, other)
            return (step, *path), wanted, got
    return (), *_describe_both(expected, found)


def _describe(spec: Structure) -> str:
    """Return a readable structure: ``a list of 2``, ``a dict of 'a', 'b'``, ``a Pair of left, right``."""
    if spec.is_leaf():
        return "a tensor or another single value"
    kind, names = spec.type.__name__, _names(spec)
    if names is None:
        return f"{_article(kind)} of {len(children_of(spec))}"
    if isinstance(context := _plain(spec.context), type):  # a namedtuple's class
        kind = context.__name__
    elif spec.type is Output:
        kind = context[0].rpartition(".")[2]
    return f"{_article(kind)} of {', '.join(names) or 'nothing'}"


def _names(spec: Structure) -> list[str] | None:
    """Return the names of a structure's children; None if they only have indices."""
    context = _plain(spec.context)
    if isinstance(context, type) and issubclass(context, tuple):
        return list(getattr(context, "_fields", ()))
    if spec.type is defaultdict or spec.type is Output:
        return [repr(key) for key in context[1]]
    return [repr(key) for key in context] if issubclass(spec.type, dict) else None


def _plain(context: Any) -> Any:
    return context.key if isinstance(context, ExactKey) else context


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def _describe_both(expected: Structure, found: Structure) -> tuple[str, str]:
    """Return two structures in readable form, with their context if that is equal."""
    wanted, got = _describe(expected), _describe(found)
    return (wanted, got) if wanted != got else (f"{wanted} ({expected.context!r})", f"{got} ({found.context!r})")


def _is_size(kind: Any) -> bool:
    """Return whether a class is ``torch.Size``, a tuple."""
    return getattr(kind, "__module__", "") == "torch" and getattr(kind, "__name__", "") == "Size"


def _is_default(parameter: inspect.Parameter, value: Any) -> bool:
    return value is parameter.default or (type(value) in _PLAIN_DEFAULTS and same_value(value, parameter.default))
