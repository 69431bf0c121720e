"""Order of a call's arguments: from positions and names to those used when compiling, without torch."""

from __future__ import annotations

import inspect
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Protocol

from trtcache.errors import InputError
from trtcache.runtime.checks import describe_value, same_value

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    """The arguments that a program was compiled with: a number of positional ones, and names."""

    def __init__(
        self,
        count: int,
        names: Sequence[str],
        signature: inspect.Signature | None,
        input_names: Sequence[str] | None = None,
    ) -> None:
        """Store the order.

        Args:
            count: the number of positional arguments.
            names: the names of the others.
            signature: of the model's ``forward``, if there is a model.
            input_names: names of arguments that need not be names of Python, as those of an ONNX file.
        """
        self._count, self._names = count, tuple(names)
        self._signature, self._input_names = signature, input_names

    @property
    def signature(self) -> inspect.Signature | None:
        """The signature of the model's ``forward``, if it is known."""
        return self._signature

    @property
    def counts(self) -> tuple[int, tuple[str, ...]]:
        """The number of positional arguments, and the names of the others."""
        return self._count, self._names

    def order(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call by the positions and names used when compiling.

        Raises:
            InputError: arguments are missing or unknown.
        """
        if (
            len(args) != self._count
            or len(kwargs) != len(self._names)
            or not all(map(kwargs.__contains__, self._names))
        ):
            return self._arrange(args, kwargs)
        return args, kwargs

    def _name(self, path: tuple[Any, ...]) -> str:
        """Return the caller's name for a path: the group, an argument's position or name, and steps into it."""
        if len(path) < 2:
            return "arguments"
        _, argument, *rest = path
        parameters = list(self._signature.parameters.values()) if self._signature else []
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
        plural = "" if self._count == 1 else "s"
        expected = f"{self._count} positional argument{plural}" + (
            f" and {', '.join(self._names)}" if self._names else ""
        )
        found = f"{len(args)} positional" + (f" and {', '.join(kwargs)}" if kwargs else "")
        if self._signature is None:
            raise InputError("arguments", expected, found)
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InputError("arguments", expected, found, str(error)) from error
        bound.apply_defaults()  # an argument omitted here may have been passed when compiling, with its default
        by_name = self._spread(bound)
        positional = self._positional()
        try:
            arranged = tuple(by_name.pop(name) for name in positional), {n: by_name.pop(n) for n in self._names}
        except KeyError as error:
            raise InputError("arguments", expected, found, f"{error.args[0]} is missing") from error
        for name, value in by_name.items():
            if not _is_default(self._signature.parameters.get(name), value):
                hint = "it was left out when compiling; compile again with it"
                raise InputError(f"argument {name}", "the model's own default", describe_value(value), hint)
        return arranged

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

    def _spread(self, bound: inspect.BoundArguments) -> dict[str, Any]:
        by_name: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            kind = bound.signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                by_name |= {f"{name}[{index}]": one for index, one in enumerate(value)}
            elif kind is inspect.Parameter.VAR_KEYWORD:
                by_name |= value
            else:
                by_name[name] = value
        return by_name

    def _positional(self) -> list[str]:
        """Return the names of the parameters passed by position when compiling."""
        names: list[str] = []
        for parameter in self._signature.parameters.values() if self._signature else ():
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                names += [f"{parameter.name}[{index}]" for index in range(self._count - len(names))]
            elif parameter.kind in {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}:
                names.append(parameter.name)
        return names[: self._count]


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
    kind, names = spec.type, _names(spec)
    if names is None:
        return f"{_article(kind.__name__)} of {len(children_of(spec))}"
    if isinstance(spec.context, type):  # a namedtuple's class
        kind = spec.context
    return f"{_article(kind.__name__)} of {', '.join(names) or 'nothing'}"


def _names(spec: Structure) -> list[str] | None:
    """Return the names of a structure's children; None if they only have indices."""
    if isinstance(spec.context, type) and issubclass(spec.context, tuple):
        return list(getattr(spec.context, "_fields", ()))
    if spec.type is defaultdict:
        return [repr(key) for key in spec.context[1]]
    return [repr(key) for key in spec.context] if issubclass(spec.type, dict) else None


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def _describe_both(expected: Structure, found: Structure) -> tuple[str, str]:
    """Return two structures in readable form, with their context if that is equal."""
    wanted, got = _describe(expected), _describe(found)
    return (wanted, got) if wanted != got else (f"{wanted} ({expected.context!r})", f"{got} ({found.context!r})")


def _is_size(kind: Any) -> bool:
    """Return whether a class is ``torch.Size``, a tuple."""
    return getattr(kind, "__module__", "") == "torch" and getattr(kind, "__name__", "") == "Size"


def _is_default(parameter: inspect.Parameter | None, value: Any) -> bool:
    if parameter is None:
        return False
    plain = isinstance(value, (bool, int, float, str))
    return value is parameter.default or (plain and same_value(value, parameter.default))
