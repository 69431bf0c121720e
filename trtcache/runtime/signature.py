"""The call signature of a compiled module: from arguments to leaves, and from results to the model's output."""

from __future__ import annotations

import inspect
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from trtcache.errors import InputError
from trtcache.lowering.arguments import children, configuration, configurations, leaf_paths, module_class
from trtcache.runtime.inputs import same_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_OTHER_SETUP = ("a module that is set up as when compiling", "one with other flags, numbers or submodules")


class CallSignature:
    """The call signature of a model, and the structure of arguments that it was compiled with.

    A call may pass an argument by position or by name, and may pass arguments that were omitted when compiling if they
    have the model's own default.
    """

    def __init__(
        self,
        in_spec: pytree.TreeSpec,
        out_spec: pytree.TreeSpec,
        signature: inspect.Signature | None,
        input_names: Sequence[str] | None = None,
    ) -> None:
        """Store how torch flattens arguments and output.

        Args:
            in_spec: of ``(args, kwargs)`` as the program was exported.
            out_spec: of the output.
            signature: of the model's ``forward``, if there is a model.
            input_names: names of arguments that need not be names of Python, as those of an ONNX file.
        """
        self.in_spec, self.out_spec = in_spec, out_spec
        self._signature, self._input_names = signature, input_names
        positional, named = children(in_spec)
        self._count = len(children(positional))
        self._names: tuple[str, ...] = tuple(named.context)
        self._keys = dict.fromkeys(self._names).keys()
        self._modules = configurations(in_spec)
        self._flat = all(child.is_leaf() for child in (*children(positional), *children(named)))

    @property
    def signature(self) -> inspect.Signature | None:
        """The signature of the model's ``forward``, if it is known."""
        return self._signature

    @property
    def counts(self) -> tuple[int, tuple[str, ...]]:
        """The number of positional arguments, and the names of the others."""
        return self._count, self._names

    def flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        """Return the leaves of a call's arguments.

        Raises:
            InputError: arguments are missing, unknown, or of another structure than when compiling.
        """
        if (
            len(args) != self._count
            or len(kwargs) != len(self._names)
            or not all(map(kwargs.__contains__, self._names))
        ):
            args, kwargs = self._arrange(args, kwargs)
        if self._flat:
            return (*args, *[kwargs[name] for name in self._names]) if kwargs else args
        ordered = {name: kwargs[name] for name in self._names}
        leaves, spec = pytree.tree_flatten((args, ordered))
        if self._modules or spec != self.in_spec:
            leaves = []
            if not self._gather(self.in_spec, (args, ordered), leaves, iter(self._modules)):
                path, expected, found = _difference(self.in_spec, spec)
                raise InputError(self._name(path), expected, found)
        return leaves

    def _gather(
        self, spec: pytree.TreeSpec, value: Any, leaves: list[Any], modules: Iterator[dict[str, Any] | None]
    ) -> bool:
        """Append the leaves of a value in the order of a spec, as ``ExportedProgram.module()`` reads them.

        A ``torch.Size`` counts as a tuple, a dict may have its keys in another order, and a module contributes its
        parameters and buffers. Returns False if the structure differs.

        Raises:
            InputError: a module's configuration differs from the compiled one's.
        """
        if module_class(spec) is not None:
            return self._gather_module(spec, value, leaves, next(modules))
        if spec.is_leaf():
            leaves.append(value)
            return pytree.tree_structure(value).is_leaf()
        expected = children(spec)
        if spec.type is dict and type(value) is dict:
            if value.keys() != set(spec.context):
                return False
            parts = [value[key] for key in spec.context]
        else:
            parts, found = pytree.tree_flatten(value, is_leaf=lambda part: part is not value)
            size = spec.type is tuple and type(value) is torch.Size
            if found.is_leaf() or not (size or (found.type is spec.type and found.context == spec.context)):
                return False
        return len(parts) == len(expected) and all(
            self._gather(one, part, leaves, modules) for one, part in zip(expected, parts, strict=True)
        )

    def _gather_module(
        self, spec: pytree.TreeSpec, value: Any, leaves: list[Any], expected: dict[str, Any] | None
    ) -> bool:
        if type(value) is not module_class(spec):
            return False
        tensors = {**dict(value.named_parameters()), **dict(value.named_buffers())}
        if list(tensors) != spec.context[0]:
            return False
        if configuration(value) != expected:
            # Its numbers and flags are part of the program: torch.export traced the example module.
            hint = "pass the one that was compiled with, or compile again"
            where = self.label(len(leaves)).removesuffix(f"[{next(iter(tensors))!r}]") if tensors else "arguments"
            raise InputError(where, *_OTHER_SETUP, hint)
        leaves += tensors.values()
        return True

    def unflatten(self, results: list[Any]) -> Any:
        """Return an output with the model's own structure."""
        return pytree.tree_unflatten(results, self.out_spec)

    def label(self, leaf: int) -> str:
        """Return the caller's name for a leaf: ``argument input_ids`` or ``argument states[0]``."""
        if self._input_names is not None:
            return f"argument {self._input_names[leaf]}"
        _, first, *rest = leaf_paths(self.in_spec)[leaf]
        place = getattr(first, "key", None)
        return f"{self._name((0, getattr(first, 'idx', 0) if place is None else place))}{pytree.keystr(tuple(rest))}"

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
        expected = f"{self._count} positional arguments" + (f" and {', '.join(self._names)}" if self._names else "")
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
                raise InputError(f"argument {name}", "the model's own default", f"{value!r:.60}", hint)
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


def _difference(expected: pytree.TreeSpec, found: pytree.TreeSpec) -> tuple[tuple[Any, ...], str, str]:
    """Return the first path at which two structures differ, and what each has there."""
    inside, given = children(expected), children(found)
    kind = tuple if found.type is torch.Size else found.type
    if expected.type is dict and kind is dict and set(expected.context) == set(found.context):
        given = [given[found.context.index(key)] for key in expected.context]
    elif (expected.type, expected.context, len(inside)) != (kind, found.context, len(given)):
        return (), *_describe_both(expected, found)
    steps = expected.context if expected.type is dict else range(len(inside))
    for step, one, other in zip(steps, inside, given, strict=True):
        if one != other:
            path, wanted, got = _difference(one, other)
            return (step, *path), wanted, got
    return (), *_describe_both(expected, found)


def _describe(spec: pytree.TreeSpec) -> str:
    """Return a readable structure: ``a list of 2``, ``a dict of 'a', 'b'``, ``a Pair of left, right``."""
    if spec.is_leaf():
        return "a tensor or another single value"
    kind, names = spec.type, _names(spec)
    if names is None:
        return f"{_article(kind.__name__)} of {len(children(spec))}"
    if isinstance(spec.context, type):  # a namedtuple's class
        kind = spec.context
    return f"{_article(kind.__name__)} of {', '.join(names) or 'nothing'}"


def _names(spec: pytree.TreeSpec) -> list[str] | None:
    """Return the names of a structure's children; None if they only have indices."""
    if isinstance(spec.context, type) and issubclass(spec.context, tuple):
        return list(getattr(spec.context, "_fields", ()))
    if spec.type is defaultdict:
        return [repr(key) for key in spec.context[1]]
    return [repr(key) for key in spec.context] if issubclass(spec.type, dict) else None


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def _describe_both(expected: pytree.TreeSpec, found: pytree.TreeSpec) -> tuple[str, str]:
    """Return two structures in readable form, with their context if that is equal."""
    wanted, got = _describe(expected), _describe(found)
    return (wanted, got) if wanted != got else (f"{wanted} ({expected.context!r})", f"{got} ({found.context!r})")


def _is_default(parameter: inspect.Parameter | None, value: Any) -> bool:
    if parameter is None:
        return False
    plain = isinstance(value, (bool, int, float, str))
    return value is parameter.default or (plain and same_value(value, parameter.default))
