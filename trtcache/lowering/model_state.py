"""The state of a model around an export, which runs the model's own code and must leave the model as it was.

``forward`` may assign attributes, as YOLO's heads do with their anchors. After torch.export these are fake tensors, and
the model's later results would be wrong. ``forward`` may also write to a tensor that a plain object holds: torch.export
does not treat it as a buffer and writes to the real tensor.
"""

from __future__ import annotations

import sys
import types
import warnings
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from trtcache.lowering.python_objects import attributes_of, class_of_items, defining_module, is_kind
from trtcache.lowering.recorded_objects import (
    Change,
    Contents,
    Elements,
    Items,
    RecordedObjects,
    changed_numbers,
    lost_tensors,
    units_with_fakes,
)

_NOT_FOLLOWED = (
    *(type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType),
    *(torch.Generator, torch.jit.ScriptModule),
)
_STDLIB = sys.stdlib_module_names - {"__main__", "argparse", "collections", "types"}
_FLAT_WEIGHTS = r"The tensor attributes (self\.[\w.]*_flat_weights\[\d+\](, )?)+ were assigned during export"
_TABLES = tuple(name for name, value in vars(torch.nn.Module()).items() if type(value) in {dict, OrderedDict})
"""Attributes of a module that are dicts: parameters, buffers, modules and hooks."""
_WEIGHT_TABLES = frozenset({"_parameters", "_buffers"})
_WEIGHTS = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})


@contextmanager
def quiet() -> Iterator[None]:
    """Silence torch's warnings about its own calls."""
    with warnings.catch_warnings():
        # torch's warnings about its own calls and its LSTM, which a caller cannot fix.
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message=_FLAT_WEIGHTS, category=UserWarning)
        warnings.filterwarnings("ignore", message=r"The \.grad attribute of a Tensor", category=UserWarning)
        yield


class Changes:
    """What ``forward`` has changed in a model.

    Attributes:
        numbers: the numbers among attributes and items, in words.
        tensors: the tensors that it replaced, with the name of each.
        has_changes: whether it has changed an attribute, or an item of a container, other than weights.
    """

    def __init__(self, state: _State) -> None:
        self.numbers: list[str] = []
        self.tensors: list[tuple[str, torch.Tensor]] = []
        self.has_changes = False
        self._state, self._is_collected = state, not state.copies_tensors

    def detect_changes(self, *_: object) -> None:
        """Look for changes right after ``forward``: at its end, torch.export restores attributes, with copies."""
        self.has_changes = self.has_changes or self._state.is_changed()

    def collect(self) -> None:
        """Find numbers and tensors, unless it was done: before anything is restored, in the model or around it."""
        if not self._is_collected:
            self._is_collected = True
            changed = self._state.find_changed()
            self.numbers += self._state.changed_numbers(changed)
            self.tensors += self._state.replaced_tensors(changed)

    @property
    def seen(self) -> Collection[Any]:
        """The objects that the model leads to."""
        return self._state.seen.values()

    @property
    def has_drawn(self) -> bool:
        """Whether it has drawn from a generator of random numbers of Python's or NumPy's, or seeded it."""
        return self._state.has_drawn


@contextmanager
def preserve_state(model: torch.nn.Module, *, copies_tensors: bool = True) -> Iterator[Changes]:
    """Restore a model's attributes, the contents of their containers, and tensors that are written to, after the block.

    Everything that attributes lead to is restored, ``__slots__`` included. So are up to 64 arrays of at most 1 MiB and
    generators of random numbers. If other threads run, which may have changed it, only the modules, and the objects
    that have fake tensors, are. These are not followed: closures, class attributes, TorchScript modules, elements of
    sets, keys of dicts, iterators, and the attributes of tensors and of most objects of Python's standard library. Of
    parameters and buffers their ``data`` is restored, not what is written to it, since a program that writes to a
    parameter is rejected.

    Unless ``copies_tensors``, tensors are not restored: the block must not write to one. No changes are found then.

    Yields what the block has changed, which is known after it. A program has the old numbers as constants, and may have
    the old tensors. Tensors of which torch.export warns are left out: those in attributes of the model's modules. Other
    changes can be results that the model keeps for later calls.
    """
    state = _State(model, copies_tensors=copies_tensors)
    changes = Changes(state)
    handle = model.register_forward_hook(changes.detect_changes, always_call=True)
    try:
        yield changes
    finally:
        handle.remove()
        changes.collect()
        state.restore()


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has elements in memory, with strides."""
    return tensor.layout == torch.strided and not (tensor.is_meta or tensor.is_quantized or tensor.is_nested)


def _memory_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return where a tensor is in memory, and how it is read."""
    memory = tensor.untyped_storage()._cdata
    return memory, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


class _State(RecordedObjects):
    """The attributes and containers of a model, and of all objects that they lead to."""

    def __init__(self, model: torch.nn.Module, *, copies_tensors: bool) -> None:
        super().__init__()
        self.copies_tensors = copies_tensors
        self._tables: list[Contents] = []
        self._empty_tables: list[Any] = []
        self._modules, self._torchs = set[int](), set[int]()  # units: of modules, of objects of torch's classes
        self._tensors: list[tuple[torch.Tensor, int]] = []
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._registered = {id(module) for module in model.modules()}
        weights = {id(one): one for one in (*model.parameters(), *model.buffers()) if type(one) in _WEIGHTS}
        self._weights = [(one, one.detach()) for one in weights.values() if is_plain(one)]
        self.follow([model])

    def add(self, value: Any, unit: int) -> tuple[Iterable[Any], int]:
        """Record a value, and return what it leads to, with the unit of the containers among that."""
        kind = type(value)
        if issubclass(kind, torch.nn.Module) and (attributes_of(value) or {}).keys() >= _WEIGHT_TABLES:
            return self._add_module(value), id(value)
        if issubclass(kind, torch.Tensor):
            self._add_tensor(value)
        return ((), unit) if issubclass(kind, (torch.Tensor, *_NOT_FOLLOWED)) else super().add(value, unit)

    def add_other(self, value: Any, unit: int) -> tuple[Iterable[Any], int]:
        """Record an object that is none of Python's containers, and return what it leads to, with its unit."""
        module = defining_module(value)
        if module.startswith("torch."):
            self._torchs.add(unit)
        if module.partition(".")[0] in _STDLIB:  # of a lock or a logger nothing is recorded
            return (), unit
        return super().add_other(value, unit)

    def unit_of(self, value: Any, unit: int) -> int:
        """Return the unit of an object, which belongs to one of a given unit: that, unless it is a module's."""
        return id(value) if unit in self._modules else unit

    def _add_tensor(self, value: torch.Tensor) -> None:
        """Record a tensor and its memory.

        torch.export replaces registered parameters and buffers by fake tensors; those are recorded here only if
        something else holds them too. Parameters are not copied: an LSTM also holds all of its own in a list.
        """
        is_real = type(value) in {torch.Tensor, torch.nn.Buffer} and value.layout == torch.strided
        if self.copies_tensors and is_real and value.device.type != "meta" and not value.is_inference():
            self._tensors.append((value, value._version))
            memory = value.untyped_storage()
            if memory._cdata not in self._storages:
                self._storages[memory._cdata] = memory.clone()  # type: ignore[no-untyped-call]  # torch's

    def _add_module(self, module: torch.nn.Module) -> list[Any]:
        """Record a module, and return what it leads to, but for its weights.

        Those of a module that no module registers are returned, too: torch.export makes constants of them.
        """
        unit = id(module)
        self._modules.add(unit)
        if defining_module(module).startswith("torch."):
            self._torchs.add(unit)
        attributes = attributes_of(module) or {}
        found = self.add_object(module, unit)
        for name in _TABLES:
            table: Any = attributes.get(name)
            if is_kind(table, dict):
                self.seen[id(table)] = table
                if len(table):
                    self._tables.append(Items(table, f"{name} of a {type(module).__name__}", unit, is_ordered=True))
                    is_left_out = name in _WEIGHT_TABLES and id(module) in self._registered
                    found += () if is_left_out else dict.values(table)
                else:  # a module has a dozen dicts of hooks
                    self._empty_tables.append(table)
        return found

    def changed_numbers(self, changed: Iterable[tuple[Contents, list[Change]]]) -> Iterator[str]:
        """Yield the numbers that have other values than recorded, in words."""
        return changed_numbers(one for one in changed if self.was_alone or one[0].unit in self._modules)

    def replaced_tensors(self, changed: Iterable[tuple[Contents, list[Change]]]) -> list[tuple[str, torch.Tensor]]:
        """Return the tensors that attributes and items no longer have, but for those that torch.export looks at."""
        lost = [(contents, one) for contents, changes in changed if not self._is_looked_at(contents) for one in changes]
        return [one for contents, change in lost for one in lost_tensors(contents, change)]

    def _is_looked_at(self, contents: Contents) -> bool:
        """Return whether contents are the attributes of a model's module, or a list or dict in one."""
        is_list = isinstance(contents, Elements) and contents.name == "a list"
        return contents.unit in self._registered and (is_list or isinstance(contents, Items))

    def is_changed(self) -> bool:
        """Return whether an attribute or an item is another one than recorded, but for those of torch's objects."""
        return any(contents.unit not in self._torchs for contents, _ in self.find_changed())

    def restore(self) -> None:
        """Restore what differs from what was recorded."""
        self.add_filled()
        units = set() if self.was_alone else units_with_fakes(self.find_changed()) | self._modules
        self.restore_contents(one for one in self.contents if self.was_alone or one.unit in units)
        self.restore_contents(self._tables)
        for table in self._empty_tables:
            if len(table):
                class_of_items(table).clear(table)
        self.restore_values()
        for weight, data in self._weights:  # ``weight.data = ...``
            if _memory_of(weight) != _memory_of(data):
                weight.data = data
        written = [tensor.untyped_storage() for tensor, version in self._tensors if tensor._version != version]
        for address, memory in {memory._cdata: memory for memory in written}.items():
            recorded = self._storages.get(address)
            if recorded is not None and recorded.nbytes() == memory.nbytes():  # neither exchanged nor resized
                memory.copy_(recorded)
