"""Describes a module with all its submodules, and the arguments of its call, before anything is exported."""

from __future__ import annotations

import json
import marshal
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from trtcache.digests import Digest, hash_bytes
from trtcache.direct.attributes import PLAIN, Describer, UnstableError
from trtcache.direct.classes import own_bases, put_into
from trtcache.direct.origin import is_trusted_module
from trtcache.direct.shapes import shape_of
from trtcache.direct.writers import TENSORS, like, tensor
from trtcache.keys.key import structure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trtcache.digests import Json

_HOOKS = frozenset(name for name, value in vars(torch.nn.Module()).items() if isinstance(value, (dict, set)))
_FLAT = frozenset({"_flat_weights", "_flat_weight_refs"})
_APART = frozenset({"_modules", "_parameters", "_buffers", "training"})

as_text = json.JSONEncoder(separators=(",", ":"), sort_keys=False, ensure_ascii=True).encode


def digest_of(part: Json) -> Digest:
    """Return the digest of a description.

    ``marshal`` writes it in a third of the time that JSON takes; version 2 of its format knows no references, so that
    equal descriptions are equal bytes.
    """
    try:
        encoded = marshal.dumps(part, 2)
    except ValueError:  # a text of a class that is derived from str
        encoded = as_text(part).encode()
    return Digest(hash_bytes(encoded).hex(), len(encoded))


@dataclass(frozen=True)
class Tree:
    """A described module and call.

    Attributes:
        parts: the description, by part.
        state: every weight and buffer by each of its names.
        classes: the model's own classes in it with their bases, in the order in which they were met.
        modules: paths of its modules, by identity.
        weights: names of its weights, by identity.
    """

    parts: Mapping[str, Json]
    state: Mapping[str, torch.Tensor]
    classes: tuple[type, ...]
    modules: Mapping[int, str]
    weights: Mapping[int, str]
    describer: Describer = field(repr=False)
    model: torch.nn.Module = field(repr=False)

    def changed(self, describer: Describer) -> Json | None:
        """Return what the model is now if it has other attributes than it had.

        Raises:
            UnstableError: one has no stable value any more.
        """
        now = _Writer(describer, self.modules).tree(self.model)
        return None if as_text(now) == as_text(self.parts["model"]) else now

    def another(self) -> Describer:
        """Return a describer that knows the model's weights and modules, and has met nothing."""
        return Describer(self.weights, self.modules, self.state)

    @property
    def device(self) -> torch.device:
        """The one CUDA device that its tensors are on, or the CPU.

        Raises:
            UnstableError: they are on several.
        """
        found = {one.device for one in self.state.values()} - {torch.device("cpu")}
        if len(found) > 1:
            raise UnstableError(f"weights on {', '.join(sorted(map(str, found)))}")
        return next(iter(found), torch.device("cpu"))


def described(model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic_shapes: Any) -> Tree:
    """Describe a model and the call that it is exported for.

    Raises:
        UnstableError: an attribute or an argument has no stable value.
    """
    modules: dict[int, str] = {}
    weights: dict[int, str] = {}
    state: dict[str, torch.Tensor] = {}
    for path, module in _modules(model, "", set()):
        modules.setdefault(id(module), path)
        for name, one in (*module._parameters.items(), *module._buffers.items()):
            if one is not None:
                state[f"{path}.{name}" if path else name] = one
                weights.setdefault(id(one), f"{path}.{name}" if path else name)
    describer = Describer(weights, modules, state)
    parts: dict[str, Json] = {"model": _Writer(describer, modules).tree(model)}
    parts["layers"] = _layers(describer, model, modules)
    parts["inputs"] = _inputs(describer, args, kwargs, state)
    parts["dynamic_shapes"] = _named(describer, "dynamic_shapes", dynamic_shapes)
    classes = dict.fromkeys(one for cls in describer.classes for one in own_bases(cls))
    return Tree(parts, state, tuple(classes), modules, weights, describer, model)


def _named(describer: Describer, name: str, value: Any) -> Json:
    try:
        return describer.of(value)
    except UnstableError as error:
        raise error.below(name) from None


def _modules(module: torch.nn.Module, path: str, above: set[int]) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield every module at each of its paths.

    Raises:
        UnstableError: one is inside itself.
    """
    if id(module) in above:
        raise UnstableError("a module inside itself").below(path)
    yield path, module
    inner = module._modules
    if inner:
        above.add(id(module))
        for name, one in inner.items():
            if one is not None:
                yield from _modules(one, f"{path}.{name}" if path else name, above)
        above.discard(id(module))


class _Writer:
    """Writes modules; each is written at the first of its paths."""

    def __init__(self, describer: Describer, modules: Mapping[int, str]) -> None:
        self._describer, self._modules = describer, modules
        self._storages: dict[int, int] = {}
        self._places: dict[int, int] = {}
        self.written: dict[str, Json] = {}

    def tree(self, model: torch.nn.Module) -> Json:
        self._module(model, "")
        return self.written

    def _module(self, module: torch.nn.Module, path: str) -> None:
        if path in self.written:
            return
        if (first := self._modules[id(module)]) != path:
            self.written[path] = {"same": first}
            return
        try:
            self.written[path] = self._attributes(module)
        except UnstableError as error:
            raise error.below(path) from None if path else error
        for name, one in module._modules.items():
            if one is not None:
                self._module(one, f"{path}.{name}" if path else name)

    def _attributes(self, module: torch.nn.Module) -> Json:
        describer, space = self._describer, vars(module)
        found: dict[str, Json] = {
            "class": describer.a_class(type(module)),
            "training": describer.of(module.training),
            "modules": [name if one is not None else [name] for name, one in module._modules.items()],
        }
        for name, value in space.items():
            if name in _APART or (name in _HOOKS and not value):
                continue
            if type(value) in PLAIN:
                found[f".{name}"] = value
                continue
            try:
                kept = _ranked(space, value) if name in _HOOKS else value
                found[f".{name}"] = self._flat(value) if name in _FLAT else describer.of(kept)
            except UnstableError as error:
                raise error.below(name) from None
        found |= self._beside(module)
        for name, weight in module._parameters.items():
            found[f"weight {name}"] = None if weight is None else self._weight(name, weight)
        unsaved = module._non_persistent_buffers_set
        for name, one in module._buffers.items():
            written: Json = None if one is None else [self._weight(name, one), name in unsaved]
            if one is not None and name in unsaved:
                written = [written, self._content(name, one)]
            found[f"buffer {name}"] = written
        return found

    def _flat(self, value: Any) -> Json:
        """Describe a list in which torch's recurrent layers have their weights once more, which torch.export knows."""
        tensors = [one() if isinstance(one, weakref.ref) else one for one in value]
        names: list[Json] = [None if one is None else self._describer.weight(one) for one in tensors]
        return self._describer.of(value) if None in names else names

    def _beside(self, module: torch.nn.Module) -> dict[str, Json]:
        """Describe what a module holds in slots."""
        shape = shape_of(type(module))  # type: ignore[arg-type]  # classes are hashed by identity
        if shape is None or shape.base is not None:
            raise UnstableError(f"type {type(module).__qualname__}, which is more than a module")
        found: dict[str, Json] = {}
        for name in shape.slots:
            try:
                found[f".{name}"] = self._describer.of(object.__getattribute__(module, name))
            except AttributeError:
                continue
            except UnstableError as error:
                raise error.below(name) from None
        return found

    def _content(self, name: str, one: torch.Tensor) -> Json:
        from trtcache.lowering.contents import Content

        if one.device.type == "meta":
            raise UnstableError("a tensor without values").below(name)
        return Content.of(one).digest

    def _weight(self, name: str, one: torch.Tensor) -> Json:
        if type(one) not in TENSORS or one.layout != torch.strided:
            raise UnstableError(f"type {type(one).__qualname__}").below(name)
        storage = one.untyped_storage()
        whose = self._storages.setdefault(storage._cdata, len(self._storages))
        where = self._places.setdefault(one.data_ptr(), len(self._places))
        marks = vars(one)
        return [*like(one), whose, where, storage.nbytes(), self._describer.pairs(marks) if marks else None]


def _ranked(space: Mapping[str, Any], hooks: Any) -> Any:
    """Return hooks by their places among the module's: torch numbers all that a process makes, of whatever module."""
    if not isinstance(hooks, dict):
        return hooks
    numbers = sorted({one for name in _HOOKS for one in space.get(name) or () if type(one) is int})
    return {numbers.index(key) if type(key) is int else key: one for key, one in hooks.items()}


def _layers(describer: Describer, model: torch.nn.Module, modules: Mapping[int, str]) -> Json:
    """Describe what somebody has put into torch's own classes, of those that the model has."""
    kinds = {type(model): ""} | {type(one): path for path, one in _first(model, "", modules)}
    bases = {one: path for kind, path in kinds.items() for one in kind.__mro__ if is_trusted_module(one.__module__)}
    written: dict[str, Json] = {}
    for one, path in bases.items():
        for place, _, value in put_into(one):
            try:
                written[place] = describer.of(value)
            except UnstableError as error:
                raise error.below(f"{path or type(model).__name__}: {place}") from None
    return written


def _first(module: torch.nn.Module, path: str, modules: Mapping[int, str]) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield every module at the first of its paths."""
    for name, one in module._modules.items():
        below = f"{path}.{name}" if path else name
        if one is not None and modules[id(one)] == below:
            yield below, one
            yield from _first(one, below, modules)


def _inputs(
    describer: Describer, args: tuple[Any, ...], kwargs: Mapping[str, Any], state: Mapping[str, torch.Tensor]
) -> Json:
    leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    storages = {one.untyped_storage()._cdata: -1 for one in state.values()}
    written: list[Json] = []
    for place, leaf in enumerate(leaves):
        try:
            written.append(_leaf(describer, leaf, storages))
        except UnstableError as error:
            raise error.below(f"argument {place}") from None
    kinds = {one.type: None for one in _nodes(spec) if not is_trusted_module(one.type.__module__)}
    return [structure(spec), [describer.a_class(one) for one in kinds], *written]


def _nodes(spec: pytree.TreeSpec) -> Iterator[pytree.TreeSpec]:
    """Yield how arguments are nested, from the outermost."""
    if not spec.is_leaf():
        yield spec
        for one in spec.children() if callable(spec.children) else spec.children:
            yield from _nodes(one)


def _leaf(describer: Describer, leaf: Any, storages: dict[int, int]) -> Json:
    if not isinstance(leaf, torch.Tensor):
        return describer.of(leaf)
    if type(leaf) not in TENSORS or leaf.layout != torch.strided or leaf.device.type == "meta":
        return tensor(describer, leaf)
    whose = storages.setdefault(leaf.untyped_storage()._cdata, len(storages))
    return ["input", *like(leaf), whose, describer.pairs(vars(leaf)) if vars(leaf) else None]
