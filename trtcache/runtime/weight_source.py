"""Weights for a refit: from a module and the tensors that it holds unregistered, a state_dict, or a file.

``torch.export`` makes constants of tensors that a model holds without registering them, and does not say where a model
has them. So all are compared that have the shape of a constant of the program, by their places. A tensor that shares
the memory of a weight is that weight in the program, and has to be so in the other model.
"""

from __future__ import annotations

import gc
import os
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch.nn.parameter import is_lazy

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import RefitError
from trtcache.frontends.weight_files import read_weights
from trtcache.lowering.interface import Content, look_up
from trtcache.lowering.python_objects import attributes_of, elements_of, is_kind, slots_of
from trtcache.weights.recipes import WeightRef
from trtcache.weights.slots import EngineWeight, Slot, dtype_name, is_fake

Place = tuple[object, ...]
"""Attributes, keys and indexes that lead to an object."""

_LEAVES = (
    *(type(None), str, bytes, int, float, complex, range, slice, torch.Generator, torch.jit.ScriptModule),
    *(types.ModuleType, types.CodeType, types.FrameType, types.GeneratorType, types.CoroutineType),
)
_KNOWN = sys.stdlib_module_names - {"__main__"} | {"torch", "trtcache"}
_CONTAINERS = frozenset({dict, OrderedDict, list, tuple, deque, set, frozenset})
_OBJECTS = (*_CONTAINERS, torch.nn.Module, types.FunctionType, type)
_SHOWN = 3


def whole_weight(index: int, names: Sequence[str], tensor: torch.Tensor) -> EngineWeight:
    """Return an engine weight that is one of the model's as it is, for a check of weights without an engine."""
    form = (dtype_name(tensor.dtype), tuple(tensor.shape), tensor.stride(), tensor.device.type)
    return EngineWeight(index, WeightRef(index), *form, (Slot(index, *form, tuple(names)),))


@frozen_dataclass
class WeightPart:
    """A part of a weight.

    Attributes:
        weight: the name of the weight.
        shape, stride: those of the part.
        offset: where it begins, in elements from the first one of the weight.
    """

    weight: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def of(self, weight: torch.Tensor) -> torch.Tensor:
        """Return this part of a weight.

        Raises:
            RuntimeError: the weight is too small.
        """
        return weight.detach().as_strided(self.shape, self.stride, weight.storage_offset() + self.offset)


@frozen_dataclass
class HeldTensors:
    """The unregistered tensors of a model that matter for a program.

    Attributes:
        weights: the names of the program's weights.
        shapes: those of the program's constants.
        parts: the tensors that share memory with a weight of the program.
        contents: the contents of those that have the shape of a constant of the program; None for a quantized one.
    """

    weights: frozenset[str]
    shapes: frozenset[tuple[int, ...]]
    parts: Mapping[Place, WeightPart]
    contents: Mapping[Place, Content | None]

    @classmethod
    def of(cls, model: torch.nn.Module, weights: Collection[str], constants: Iterable[Content]) -> HeldTensors:
        """Return the tensors that a model holds.

        Args:
            model: the model.
            weights: the names of the program's weights.
            constants: the program's constants.
        """
        return cls._among(dict(_walk(model)), model, frozenset(weights), frozenset(one.shape for one in constants))

    @classmethod
    def _among(
        cls,
        tensors: Mapping[Place, torch.Tensor],
        model: torch.nn.Module,
        weights: frozenset[str],
        shapes: frozenset[tuple[int, ...]],
    ) -> HeldTensors:
        memory = _by_memory(model, weights)
        parts, contents = dict[Place, WeightPart](), dict[Place, Content | None]()
        for place, tensor in tensors.items():
            if not _has_values(tensor):
                continue
            name, weight = memory.get(tensor.untyped_storage()._cdata, ("", None))
            if weight is not None and weight.dtype == tensor.dtype:
                offset = int(tensor.storage_offset()) - int(weight.storage_offset())
                parts[place] = WeightPart(name, tuple(tensor.shape), tensor.stride(), offset)
            elif tuple(tensor.shape) in shapes:
                contents[place] = None if tensor.is_quantized else Content.of(tensor.detach())
        return cls(weights, shapes, parts, contents)

    def check(self, model: torch.nn.Module) -> None:
        """Check that another model's tensors are as those of this one.

        Raises:
            RefitError: some are not.
        """
        if different := self.find_differences(model):
            what = "not registered, and not as in the compiled model"
            remedy = "compile the new model, or refit its state_dict if they do not matter"
            raise RefitError(mismatched=(f"{different} ({what}; {remedy})",))

    def find_differences(self, model: torch.nn.Module) -> str:
        """Return which of another model's tensors are not as those of this one; empty if all are.

        Where this model held a part of a weight, the other one may hold a separate tensor with equal values. A refit
        accepts that for tied weights, too.
        """
        tensors, state = dict(_walk(model)), dict(_named_weights(model))
        other = self._among(tensors, model, self.weights, self.shapes)
        different = [
            place
            for place, part in self.parts.items()
            if other.parts.get(place) != part and not _is_equal(tensors.get(place), part, state.get(part.weight))
        ]
        places = (self.contents.keys() | other.contents.keys()) - self.parts.keys()
        different += [place for place in places if self.contents.get(place) != other.contents.get(place)]
        names = sorted({_format(place) for place in different})
        return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _has_values(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has memory; ``torch.export`` takes no other as a constant."""
    if is_lazy(tensor) or is_fake(tensor) or tensor.layout != torch.strided or tensor.is_nested or tensor.is_meta:
        return False
    try:
        tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):  # of a class whose tensors consist of others
        return False
    return True


def _is_equal(tensor: torch.Tensor | None, part: WeightPart, weight: torch.Tensor | None) -> bool:
    if tensor is None or weight is None or tensor.dtype != weight.dtype or tensor.device != weight.device:
        return False
    try:
        return torch.equal(tensor.detach(), part.of(weight))
    except RuntimeError:  # of another shape
        return False


def _named_weights(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _by_memory(model: torch.nn.Module, names: Collection[str]) -> dict[int, tuple[str, torch.Tensor]]:
    """Return the first of the named weights in each memory."""
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for name, tensor in _named_weights(model):
        if name in names and _has_values(tensor):
            found.setdefault(tensor.untyped_storage()._cdata, (name, tensor))
    return found


def _walk(model: torch.nn.Module) -> Iterator[tuple[Place, torch.Tensor]]:
    """Yield the tensors that a model leads to, but for its registered parameters and buffers, with their places.

    Everything is followed that Python's garbage collector follows, classes and closures too, but not the globals of
    functions, and no modules and classes of Python and torch.
    """
    found = [vars(part).get(name) for part in model.modules() for name in ("_parameters", "_buffers")]
    tables = {id(table): table for table in found if isinstance(table, dict)}  # a module of TorchScript has none
    seen: dict[int, object] = {}  # keeps temporary objects alive, so that no other gets the address of one
    followed: dict[type, bool] = {}  # by class: a model has thousands of objects of few classes
    root: Any = model
    if isinstance(model, torch.jit.ScriptModule):  # whose attributes and constants Python does not see
        from trtcache.frontends.torchscript import Script  # few models are TorchScript

        root = Script(model).unregistered
    waiting: list[tuple[Place, Any]] = [] if isinstance(root, _LEAVES) else [((), root)]
    while waiting:
        place, value = waiting.pop()
        if not isinstance(value, _OBJECTS) and (tensor := _as_tensor(value)) is not None:
            yield place, tensor
        if id(value) in seen:
            continue
        seen[id(value)] = value
        is_table = id(value) in tables  # what is attached to its tensors counts, but not they
        for label, child in _children(value):
            kind = type(child)
            if kind not in followed:
                # A compiled module has a comparison of its own.
                followed[kind] = not issubclass(kind, _LEAVES) and kind.__module__.partition(".")[0] != "trtcache"
            if is_table and child is not None:
                waiting += [((*place, label, name), one) for name, one in (attributes_of(child) or {}).items()]
            elif (
                followed[kind]
                and (kind not in _CONTAINERS or child)
                and not (is_kind(child, type) and str(child.__module__).partition(".")[0] in _KNOWN)
            ):
                waiting.append(((*place, label), child))


def _as_tensor(value: Any) -> torch.Tensor | None:
    if is_kind(value, torch.Tensor):
        tensor: torch.Tensor = value
        return tensor
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.ndarray):
        return None
    try:
        return torch.from_numpy(value.copy())
    except TypeError:  # of a dtype that torch lacks
        return None


def _children(value: Any) -> Iterable[tuple[object, Any]]:
    """Return the objects that an object leads to, each with a label, which is in parentheses if it has no name."""
    if is_kind(value, torch.nn.Module):
        return [*vars(value).items(), ("(class)", type(value)), *slots_of(value).items()]
    if is_kind(value, torch.Tensor):
        return list(vars(value).items())
    if is_kind(value, types.FunctionType):  # not its globals
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        return [
            *cells,
            ("(defaults)", value.__defaults__),
            ("(keywords)", value.__kwdefaults__),
            ("(attributes)", vars(value)),
        ]
    if is_kind(value, type):
        return [*vars(value).items(), *enumerate(value.__bases__)]
    items: list[tuple[object, Any]] = []
    if is_kind(value, dict):
        if "__builtins__" in value:  # the globals of a module
            return ()
        items = [
            (key if isinstance(key, (str, int)) else f"({at})", one) for at, (key, one) in enumerate(dict.items(value))
        ]
    elif is_kind(value, list, tuple, deque):
        items = list(enumerate(elements_of(value)))
    elif is_kind(value, set, frozenset):
        items = list(enumerate(value))
    return items if type(value) in _CONTAINERS else items + _attributes(value, is_container=bool(items))


def _attributes(value: Any, *, is_container: bool) -> list[tuple[object, Any]]:
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        attributes = None
    named: list[tuple[object, Any]] = []
    if isinstance(attributes, dict):  # an item of a container can have the name of an attribute
        named = [("(attributes)", attributes)] if is_container else list(attributes.items())
    # What has no name: slots, the contents of C's objects, and the class.
    return named + [(f"({place})", one) for place, one in enumerate(gc.get_referents(value)) if one is not attributes]


def _format(place: Place) -> str:
    return ".".join(str(one) for one in place if one != "_modules")


Weights: TypeAlias = "torch.nn.Module | Mapping[str, torch.Tensor] | str | os.PathLike[str]"
"""Accepted by ``refit``: a module, its state_dict, or the path of a file of weights."""

_EXTRA_STATE = "_extra_state"  # torch.nn.modules.module._EXTRA_STATE_KEY_SUFFIX


class SomeWeights(dict[str, torch.Tensor]):
    """Weights by name, without some that calls change and that keep their values."""


@frozen_dataclass
class WeightSource:
    """Weights by a model's names.

    Attributes:
        state: the weights.
        module: the module that owns them, if one was given.
        is_file: whether they come from a file, and may be moved to the engine's device.
        is_part: whether weights that calls change keep their values if they are missing.
    """

    state: Mapping[str, torch.Tensor]
    module: torch.nn.Module | None = None
    is_file: bool = False
    is_part: bool = False

    @classmethod
    def of(
        cls,
        weights: Weights,
        *,
        known: frozenset[str],
        constants: Mapping[str, Content],
        held: HeldTensors | None = None,
    ) -> WeightSource:
        """Return the weights of a module, a state_dict or a file.

        Args:
            weights: a module, its state_dict, or a path.
            known: all names of weights and constants in the compiled model.
            constants: contents of the program's constants by the model's names.
            held: the tensors that the compiled model held without registering them; None if it is not known.

        Raises:
            TypeError: it is none of these.
            RefitError: its constants differ from the program's, or a name is not a string.
            WeightsFileError: the file cannot be read.
        """
        module, is_file = None, isinstance(weights, (str, os.PathLike))
        if isinstance(weights, torch.nn.Module):
            module = weights
            _check_constants(constants, lambda name: look_up(module, name))
            if held is not None:
                held.check(module)
            else:
                _check_unnamed_constants(constants, module)
            state = weights.state_dict(keep_vars=True)
        elif isinstance(weights, (str, os.PathLike)):
            state = read_weights(Path(weights))
            _check_constants(constants, state.get)
        elif isinstance(weights, Mapping):
            state = dict(weights)
            if strange := tuple(repr(name) for name in state if not isinstance(name, str)):
                raise RefitError(unexpected=strange)
            _check_constants(constants, state.get)
        else:
            raise TypeError(f"refit takes a path, a torch.nn.Module or its state_dict, not {type(weights).__name__}")
        # The result of a module's get_extra_state is not a weight.
        taken = {name: one for name, one in state.items() if name in known or not name.endswith(_EXTRA_STATE)}
        return cls(taken, module, is_file, isinstance(weights, SomeWeights))


def _check_constants(constants: Mapping[str, Content], value_of: Callable[[str], object]) -> None:
    changed = [
        f"{name} (a constant of the program; compile the new model instead)"
        for name, content in constants.items()
        if isinstance(value := value_of(name), torch.Tensor) and Content.of(value) != content
    ]
    if changed:
        raise RefitError(mismatched=tuple(changed))


def _check_unnamed_constants(constants: Mapping[str, Content], module: torch.nn.Module) -> None:
    """Check the constants that are no attributes, if the compiled model is not known.

    torch.export names them by numbers, and it is not known where they were. One that ``forward`` creates is in no
    module; any other is only known to be in its place if nothing else of its shape could be.

    Raises:
        RefitError: the module has other tensors of such a shape, or the program has two such constants.
    """
    unnamed = {name: one for name, one in constants.items() if not isinstance(look_up(module, name), torch.Tensor)}
    if not unnamed:
        return

    held = {one for one in HeldTensors.of(module, (), unnamed.values()).contents.values() if one is not None}
    shapes = {one.shape for one in held}
    in_shape = {shape: {one for one in (*held, *constants.values()) if one.shape == shape} for shape in shapes}
    why = "a constant of the program that is maybe an unregistered tensor of the module; compile the new model instead"
    changed = [f"{name} ({why})" for name, one in unnamed.items() if in_shape.get(one.shape, {one}) != {one}]
    if changed:
        raise RefitError(mismatched=tuple(changed))
