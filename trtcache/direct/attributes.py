"""Writes values of Python as JSON: the same for equal values in every process, and another one for others.

Containers and objects are written with all that is in them, functions with their code, defaults and closures, tensors
with their content, and what belongs to torch or Python by its name, since a version tells the rest. An object that is
met twice is written once, so that one shared by two modules is not two equal ones; containers are not told apart so,
since torch.export puts copies of them in their places (torch 2.13). What has no stable value is refused.
"""

from __future__ import annotations

import enum
import sys
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from trtcache.direct.codes import code_digest, within
from trtcache.direct.origin import found, is_trusted, is_trusted_module, module_of
from trtcache.direct.shapes import Shape, shape_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FunctionType, ModuleType

    import torch

    from trtcache.digests import Json

PLAIN = frozenset({bool, int, str, type(None)})
_MOST = 50_000
_OF_MEMBERS = frozenset({"_name_", "_value_", "__objclass__", "_sort_order_"})
_ADDRESSES = frozenset({"_torchdynamo_wrapper_id"})  # torch._dynamo notes the id of a wrapper: another in each process


class UnstableError(Exception):
    """A value has no stable description.

    Attributes:
        path: the steps to it, the last first.
        what: what it is.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.path: list[str] = []
        self.what = what

    def below(self, step: object) -> UnstableError:
        """Return this error after one more step towards its root."""
        self.path.append(str(step))
        return self

    def __str__(self) -> str:
        return f"{'.'.join(reversed(self.path)) or 'it'} has no stable value ({self.what})"


class Describer:
    """Describes values that belong together.

    Attributes:
        classes: the model's classes that were met, in order.
        spaces: modules that were met as values, by name: code can read anything of them.
    """

    def __init__(
        self,
        weights: Mapping[int, str] | None = None,
        modules: Mapping[int, str] | None = None,
        state: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        """Begin with nothing seen.

        Args:
            weights: names of tensors that are described elsewhere, by identity.
            modules: paths of modules that are described elsewhere, by identity.
            state: tensors that are described elsewhere, by name.
        """
        self._weights, self._modules, self._state = weights or {}, modules or {}, state or {}
        self._owners: dict[int, str] | None = None
        self._memories: dict[int, int] = {}
        self._seen: dict[int, int] = {}
        self._kept: list[object] = []
        self._count = 0
        self.classes: dict[type, None] = {}
        self.functions: list[FunctionType] = []
        self.spaces: dict[str, ModuleType] = {}

    def again(self) -> None:
        """Forget what was seen, but for classes: what comes next is described by itself."""
        self._seen.clear()
        self._kept.clear()
        self._memories.clear()
        self._count = 0

    def of(self, value: Any) -> Json:
        """Return the description of a value.

        Raises:
            UnstableError: it, or something in it, has none.
        """
        kind = type(value)
        if kind in PLAIN:
            return value  # type: ignore[no-any-return]  # one of the JSON types
        self._count += 1
        if self._count > _MOST:
            raise UnstableError(f"more than {_MOST} values")
        writer = writer_of(kind)
        if writer is None:
            raise UnstableError(f"type {kind.__module__}.{kind.__qualname__}")
        try:
            return writer(self, value)
        except RecursionError:
            raise UnstableError("nested too deeply") from None

    def once(self, value: object) -> Json | None:
        """Return the number of a value that was met before, else None, and remember it."""
        number = self._seen.setdefault(id(value), len(self._seen))
        if number < len(self._seen) - 1 or (self._kept and self._kept[-1] is value):
            return ["same", number]
        self._kept.append(value)
        return None

    def pairs(self, items: Mapping[Any, Any]) -> Json:
        """Describe the items of a mapping, in their order."""
        written: list[Json] = []
        for key, value in items.items():
            try:
                written.append([self.of(key), self.of(value)])
            except UnstableError as error:
                raise error.below(key) from None
        return written

    def items(self, values: Any) -> list[Json]:
        """Describe the items of a sequence."""
        written: list[Json] = []
        for place, value in enumerate(values):
            try:
                written.append(self.of(value))
            except UnstableError as error:
                raise error.below(place) from None
        return written

    def a_class(self, cls: type) -> Json:
        """Describe a class by its name; the model's are noted, to be looked at by themselves."""
        module, name = str(cls.__module__), cls.__qualname__
        if is_trusted_module(module):
            return ["class", module, name]
        self.classes.setdefault(cls)
        if found(module, name) is cls:
            return ["class", module, name]
        return ["local class", module, name, list(self.classes).index(cls)]

    def a_function(self, function: FunctionType) -> Json:
        """Describe a function: torch's and Python's by its name, another by all that it is made of."""
        code = function.__code__
        name: list[Json] = [str(function.__module__), function.__qualname__, *called_otherwise(function)]
        if is_trusted(code.co_filename):
            inner = [str(function.__globals__.get("__name__")), code.co_qualname]
            if found(*inner) is function:
                return ["function", *inner]
            name = ["torch", *inner, *name]  # a decorator's, around something else
        if (again := self.once(function)) is not None:
            return again
        self.functions.append(function)
        return ["function", *name, code_digest(code), *self._around(function)]

    def _around(self, function: FunctionType) -> list[Json]:
        """Describe what a function has beside its code."""
        cells = function.__closure__ or ()
        closure: list[Json] = []
        for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
            try:
                closure.append(self.of(cell.cell_contents))
            except ValueError:
                closure.append(["empty"])
            except UnstableError as error:
                raise error.below(f"{function.__qualname__}.{name}") from None
        defaults = self.items(function.__defaults__ or ())
        named = self.pairs(function.__kwdefaults__ or {})
        own = None if module_of(function.__globals__) else self._globals(function)
        marks = {name: value for name, value in vars(function).items() if name not in _ADDRESSES}
        return [closure, defaults, named, self.pairs(marks), own]

    def _globals(self, function: FunctionType) -> Json:
        """Describe the globals of a function that are no module's, as far as it reads them."""
        space = function.__globals__
        read = dict.fromkeys(name for code in within(function.__code__) for name in code.co_names)
        return self.pairs({name: space[name] for name in read if name in space and name != "__builtins__"})

    def an_object(self, value: Any, shape: Shape) -> Json:
        """Describe an object by its class and all that it holds."""
        if (again := self.once(value)) is not None:
            return again
        written: list[Json] = ["object", self.a_class(type(value))]
        if shape.base is not None:
            written.append(self._base(value, shape.base))
        state = dict(getattr(value, "__dict__", {}))
        for name in shape.slots:
            try:
                state[name] = object.__getattribute__(value, name)
            except AttributeError:
                continue
        written.append(self.pairs(state))
        return written

    def _base(self, value: Any, base: Any) -> Json:
        if issubclass(base, dict):
            ordered: Any = OrderedDict if issubclass(base, OrderedDict) else dict  # move_to_end is in none of dict's
            return self.pairs(dict(ordered.items(value)))
        if issubclass(base, (list, tuple, set, frozenset)):
            plain: Any = base.__iter__(value)
            made = self.items(plain)
            return ["set", base.__name__, *sorted(made, key=str)] if issubclass(base, (set, frozenset)) else made
        return self.of(base(value))

    def weight(self, tensor: torch.Tensor) -> str | None:
        """Return the name of a tensor that is described elsewhere."""
        return self._weights.get(id(tensor))

    def memory(self, address: int) -> Json:
        """Return what else lies in a tensor's or an array's memory: a weight, or the first value that was met."""
        if self._owners is None:
            strided = [(name, one) for name, one in self._state.items() if str(one.layout) == "torch.strided"]
            self._owners = {one.untyped_storage()._cdata: name for name, one in reversed(strided)}
        return self._owners.get(address) or self._memories.setdefault(address, len(self._memories))

    def module(self, module: torch.nn.Module) -> str | None:
        """Return the path of a module that is described elsewhere."""
        return self._modules.get(id(module))


Writer = "Callable[[Describer, Any], Json]"


def writer_of(kind: type) -> Callable[[Describer, Any], Json] | None:
    """Return what describes values of a type; None where nothing does."""
    from trtcache.direct.writers import WRITERS, by_bases

    writer = WRITERS.get(kind)
    if writer is None and kind not in WRITERS:
        writer = by_bases(kind) or _of_object(kind)
        WRITERS[kind] = writer
    return writer


def _of_object(kind: type) -> Callable[[Describer, Any], Json] | None:
    if issubclass(kind, enum.Enum):
        return _enum
    shape = shape_of(kind)  # type: ignore[arg-type]  # classes are hashed by identity
    return None if shape is None else lambda self, value: self.an_object(value, shape)


def _enum(self: Describer, value: enum.Enum) -> Json:
    """Describe a member by its name and value, and by what else somebody has given it."""
    own = None if is_trusted_module(type(value).__module__) else self.of(value._value_)
    more = {name: one for name, one in vars(value).items() if name not in _OF_MEMBERS}
    return ["enum", self.a_class(type(value)), value.name, own, *([self.pairs(more)] if more else [])]


def called_otherwise(value: FunctionType | type) -> list[Json]:
    """Return the name of a class or a function, if its qualified name does not tell it."""
    return [] if value.__qualname__.endswith(value.__name__) else [value.__name__]


def is_module_object(value: object) -> bool:
    """Say whether a value is a module that can be found by its name."""
    name = getattr(value, "__name__", None)
    return isinstance(name, str) and sys.modules.get(name) is value
