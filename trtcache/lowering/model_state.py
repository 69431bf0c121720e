"""The state of a model around an export, which runs the model's own code and must leave the model as it was.

``forward`` may assign attributes, as YOLO's heads do with their anchors. After torch.export these are fake tensors, and
the model's later results would be wrong. ``forward`` may also write to a tensor that a plain object holds: torch.export
does not treat it as a buffer and writes to the real tensor.
"""

from __future__ import annotations

import copy
import copyreg
import functools
import importlib
import operator
import pickle
import random
import sys
import threading
import types
import warnings
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch

_NOT_FOLLOWED = (
    *(type(None), str, bytes, int, float, complex, torch.Generator, torch.jit.ScriptModule),
    *(type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType),
)
_DICTS = frozenset({dict, OrderedDict})
_WITHOUT_ATTRIBUTES = frozenset({OrderedDict, defaultdict, deque, Counter})
_STDLIB = sys.stdlib_module_names - {"__main__", "argparse", "collections", "types"}
_FLAT_WEIGHTS = r"The tensor attributes (self\.[\w.]*_flat_weights\[\d+\](, )?)+ were assigned during export"
_TABLES = frozenset(vars(torch.nn.Module()))
_WEIGHTS = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
_OTHERS = (sys.stdlib_module_names - {"__main__"}) | {"torch", "trtcache"}
_LARGEST_ARRAY, _MOST_ARRAYS = 1 << 20, 64
MISSING = object()
"""In place of a value that is not there."""


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
        has_drawn: whether it has drawn from a generator of random numbers of Python's or NumPy's, or seeded it.
    """

    def __init__(self, state: _State) -> None:
        self.numbers: list[str] = []
        self.tensors: list[tuple[str, torch.Tensor]] = []
        self.has_changes = self.has_drawn = False
        self._state, self._is_collected = state, not state.copies_tensors

    def detect_changes(self, *_: object) -> None:
        """Look for changes right after ``forward``: at its end, torch.export restores attributes, with copies."""
        self.has_changes = self.has_changes or self._state.is_changed()

    def collect(self, model: torch.nn.Module) -> None:
        """Find numbers and tensors, unless it was done: before anything is restored, in the model or around it."""
        if not self._is_collected:
            self._is_collected = True
            self.numbers += self._state.changed_numbers()
            self.tensors += self._state.replaced_tensors(model)
            self.has_drawn = have_drawn(self._state.generators)


@contextmanager
def preserve_state(model: torch.nn.Module, *, copies_tensors: bool = True) -> Iterator[Changes]:
    """Restore a model's attributes, the contents of their containers, and tensors that are written to, after the block.

    Everything that attributes lead to is restored, ``__slots__`` included. So are up to 64 arrays of at most 1 MiB and
    generators of random numbers, unless other threads run. These are not followed: closures, class attributes,
    TorchScript modules, elements of sets, keys of dicts, iterators, and the attributes of tensors and of most objects
    of Python's standard library. Of parameters and buffers their ``data``
    is restored, not what is written to it, since a program that writes to a parameter is rejected.

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
        changes.collect(model)
        state.restore()


def containers_of(arguments: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any, list[Any]]]:
    """Yield the containers of Python's own in each argument, with its name and their elements."""
    for name, argument in arguments:
        waiting, seen = [argument], dict[int, Any]()
        while waiting:
            value = waiting.pop()
            if isinstance(value, (list, tuple, dict, set, deque)) and id(value) not in seen:
                seen[id(value)] = value
                elements = elements_of(value)
                waiting += elements
                if not isinstance(value, tuple):
                    yield name, value, elements


def elements_of(container: Any) -> list[Any]:
    """Return the elements of a container; of a dict, its keys and values."""
    if isinstance(container, dict):
        return [part for item in items_of(container).items() for part in item]
    return list(container)


def are_same(elements: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether two sequences have the same objects in the same order."""
    return len(elements) == len(others) and all(map(operator.is_, elements, others))


def random_states() -> list[object]:
    """Return the states of the random generators that Python code draws from: torch's, Python's and NumPy's."""
    states: list[object] = [torch.get_rng_state().numpy().tobytes(), random.getstate()]
    if "numpy" in sys.modules:
        numpy: Any = importlib.import_module("numpy.random")  # the first torch.export of a process imports it
        states += [part.tobytes() if hasattr(part, "tobytes") else part for part in numpy.get_state()]
    return states


def keep_random_states() -> Callable[[], None]:
    """Return a function that sets the generators of ``random_states`` back to their present states.

    It does nothing if other threads run, which may have drawn from them.
    """
    torch_state, python_state = torch.get_rng_state(), random.getstate()
    numpy: Any = sys.modules.get("numpy.random")
    numpy_state = None if numpy is None else numpy.get_state()

    def restore() -> None:
        if is_alone():
            torch.set_rng_state(torch_state)
            random.setstate(python_state)
            if numpy is not None:
                numpy.set_state(numpy_state)

    return restore


def generator_state(value: object) -> Any:
    """Return the state of a generator of random numbers of Python's or NumPy's; None for other values."""
    numpy: Any = sys.modules.get("numpy.random")
    with suppress(NotImplementedError):  # ``random.SystemRandom`` has none
        if isinstance(value, random.Random):
            return value.getstate()
        if numpy is not None and isinstance(value, numpy.Generator):
            return value.bit_generator.state
        if numpy is not None and isinstance(value, numpy.RandomState):
            return value.get_state(legacy=False)
    return None


def have_drawn(generators: Iterable[tuple[Any, Any]]) -> bool:
    """Return whether one of several generators has another state than that which is beside it."""
    return any(pickle.dumps(generator_state(one)) != pickle.dumps(state) for one, state in generators)


def restore_generators(generators: Iterable[tuple[Any, Any]]) -> None:
    """Set generators to the states beside them, unless other threads run, which may have drawn from them."""
    for one, state in generators if is_alone() else ():
        if isinstance(one, random.Random):
            one.setstate(state)
        elif hasattr(one, "bit_generator"):
            one.bit_generator.state = state
        else:
            one.set_state(state)


def is_alone() -> bool:
    """Return whether no other thread can run code of the user's, whose changes a restoration would undo."""
    others = [one for one in threading.enumerate() if one is not threading.current_thread()]
    return not any(map(_can_run_users_code, others))


def _can_run_users_code(thread: threading.Thread) -> bool:
    """Return whether a thread is of the user's, or runs any function: those of libraries have classes of their own."""
    target = getattr(thread, "_target", None)
    if str(getattr(target, "__module__", "")).startswith(("torch.", "trtcache.")):  # such as those of Inductor
        return False
    module = sys.modules.get(type(thread).__module__)
    return module is None or module is threading or is_users(module)


def is_users(module: types.ModuleType | None) -> bool:
    """Return whether a module is in a file that does not belong to Python or to an installed distribution."""
    file, name = getattr(module, "__file__", None), getattr(module, "__name__", None)
    return isinstance(file, str) and isinstance(name, str) and is_followed(name) and "-packages" not in file


def is_followed(module: object) -> bool:
    """Return whether a module is neither Python's nor torch's nor of this package."""
    return isinstance(module, str) and module.partition(".")[0] not in _OTHERS


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has elements in memory, with strides."""
    return tensor.layout == torch.strided and not (tensor.is_meta or tensor.is_quantized or tensor.is_nested)


def _place_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return where a tensor is in memory, and how it is read."""
    memory = tensor.untyped_storage()._cdata
    return memory, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def _is_array(value: Any) -> bool:
    """Return whether a value is a small array of numbers: Python's or NumPy's."""
    if isinstance(value, (bytearray, array)):
        return len(value) * getattr(value, "itemsize", 1) <= _LARGEST_ARRAY
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray or value.dtype.hasobject:
        return False
    return bool(value.flags.writeable) and value.nbytes <= _LARGEST_ARRAY


def _restore_array(values: Any, before: Any) -> None:
    """Write the numbers that an array had before, if it has others now."""
    is_ndarray = hasattr(values, "shape")
    if is_ndarray and values.shape != before.shape:
        return
    now, then = (one.tobytes() if hasattr(one, "tobytes") else one for one in (values, before))
    if now != then:
        with suppress(ValueError, BufferError):  # it is read-only now, or another object uses its memory
            values[... if is_ndarray else slice(None)] = before


class _State:
    """The attributes and containers of a model, and of all objects that they lead to."""

    def __init__(self, model: torch.nn.Module, *, copies_tensors: bool) -> None:
        self.copies_tensors = copies_tensors
        self._attributes: list[tuple[Any, dict[str, Any]]] = []
        self._lists: list[tuple[Any, list[Any]]] = []
        self._mappings: list[tuple[Any, dict[Any, Any]]] = []
        self._tables = set[int]()  # of modules, by their ids
        self._sets: list[tuple[set[Any], set[Any]]] = []
        self._slots: list[tuple[Any, dict[str, Any]]] = []
        self._arrays: list[tuple[Any, Any]] = []
        self.generators: list[tuple[Any, Any]] = []  # with their states
        self._tensors: list[tuple[torch.Tensor, int]] = []
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._registered = {id(module) for module in model.modules()}
        weights = {id(one): one for one in (*model.parameters(), *model.buffers()) if type(one) in _WEIGHTS}
        self._weights = [(one, one.detach()) for one in weights.values() if is_plain(one)]
        seen: dict[int, Any] = {}  # keeps the objects alive, so that no other gets one's address
        waiting: list[Any] = [model]
        while waiting:
            value = waiting.pop()
            if id(value) not in seen and not isinstance(value, _NOT_FOLLOWED):
                seen[id(value)] = value
                waiting += self._record(value)

    def _record(self, value: Any) -> list[Any]:
        """Record the state of one object, and return the objects that it leads to."""
        if isinstance(value, torch.Tensor):
            # torch.export replaces registered parameters and buffers by fake tensors; those are recorded here only if
            # something else holds them too. Parameters are not copied: an LSTM also holds all of its own in a list.
            is_real = type(value) in {torch.Tensor, torch.nn.Buffer} and value.layout == torch.strided
            if self.copies_tensors and is_real and value.device.type != "meta" and not value.is_inference():
                self._tensors.append((value, value._version))
                memory = value.untyped_storage()
                if memory._cdata not in self._storages:
                    self._storages[memory._cdata] = memory.clone()  # type: ignore[no-untyped-call]  # torch's
            return []
        if isinstance(value, torch.nn.Module) and {"_parameters", "_buffers"} <= value.__dict__.keys():
            return self._record_module(value)
        found = self._record_items(value)
        if type(value).__module__.partition(".")[0] in _STDLIB or type(value) in _WITHOUT_ATTRIBUTES:
            return found  # of a lock or a logger nothing; reading ``__dict__`` of a partial would create one
        try:
            attributes = value.__dict__
        except Exception:  # noqa: BLE001  # code of the class
            attributes = None
        if isinstance(attributes, dict):
            self._attributes.append((value, dict(attributes)))
            found += attributes.values()
        return found + self._record_slots(value)

    def _record_module(self, module: torch.nn.Module) -> list[Any]:
        """Record the state of a module, and return the objects that it leads to, but for its weights.

        Those of a module that no module registers are returned, too: torch.export makes constants of them.
        """
        self._attributes.append((module, dict(module.__dict__)))
        tables: list[dict[str, Any]] = [module._parameters, module._buffers]
        # A module has a dozen dicts of hooks, most of them empty.
        tables += [item for item in module.__dict__.values() if type(item) in _DICTS and not item]
        self._mappings += [(table, dict(table)) for table in tables]
        self._tables |= {id(item) for name, item in module.__dict__.items() if name in _TABLES}
        known = {id(table) for table in tables} if id(module) in self._registered else set()
        return [item for item in module.__dict__.values() if id(item) not in known] + self._record_slots(module)

    def _record_slots(self, value: Any) -> list[Any]:
        """Record the values of an object's ``__slots__``, and return them."""
        slots = slots_of(value)
        if slots:
            self._slots.append((value, slots))
        return [item for item in slots.values() if item is not MISSING]

    def _record_items(self, value: Any) -> list[Any]:
        """Record the items of a container, and return them."""
        if isinstance(value, (list, deque)):
            kind: Any = deque if isinstance(value, deque) else list
            items = list(kind.__iter__(value))  # not that of a subclass
            self._lists.append((value, items))
            return list(items)
        if isinstance(value, dict):
            self._mappings.append((value, items_of(value)))
            return [*dict.values(value)]
        if isinstance(value, set):
            self._sets.append((value, set(value)))
            return []
        if _is_array(value):
            if len(self._arrays) < _MOST_ARRAYS:
                self._arrays.append((value, copy.copy(value)))
            return []
        if (state := generator_state(value)) is not None:
            self.generators.append((value, state))
            return []
        if isinstance(value, functools.partial):
            return [value.func, value.args, value.keywords]
        if isinstance(value, types.MethodType):
            return [value.__self__]
        return list(tuple.__iter__(value)) if isinstance(value, tuple) else []

    def changed_numbers(self) -> Iterator[str]:
        """Yield the numbers among attributes and items that have other values than recorded."""
        for value, before, now in self._records():
            yield from changed_numbers(f"a {type(value).__name__}", before, now)

    def replaced_tensors(self, model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
        """Return the tensors that attributes and items no longer have, but for those that torch.export looks at."""
        lost = [
            (value, found)
            for value, before, now in self._records()
            for name, old in before.items()
            if (new := now.get(name, MISSING)) is not old
            for found in lost_tensors(f"{name} of a {type(value).__name__}", old, new)
        ]
        looked_at = self._looked_at(model) if lost else set()
        return [found for value, found in lost if id(value) not in looked_at]

    def _looked_at(self, model: torch.nn.Module) -> set[int]:
        """Return the ids of a model's modules, and of the lists and dicts in their attributes."""
        modules = {id(one) for one in model.modules()}
        attributes = [before.items() for module, before in self._attributes if id(module) in modules]
        containers = [one for items in attributes for _, one, _ in containers_of(items)]
        return modules | {id(one) for one in containers if isinstance(one, (list, dict))}

    def _records(self, left_out: Collection[int] = ()) -> list[tuple[Any, Mapping[Any, Any], Mapping[Any, Any]]]:
        """Return each object and container with its attributes or items as recorded, and those that it has now."""
        mappings = [(one, items) for one, items in self._mappings if id(one) not in left_out]
        found: list[tuple[Any, Mapping[Any, Any], Mapping[Any, Any]]]
        found = [(value, before, value.__dict__) for value, before in self._attributes]
        found += [(one, before, {name: read_slot(one, name) for name in before}) for one, before in self._slots]
        found += [(mapping, items, items_of(mapping)) for mapping, items in mappings]
        return found + [(one, dict(enumerate(items)), dict(enumerate(one))) for one, items in self._lists]

    def is_changed(self) -> bool:
        """Return whether an attribute or an item is another one than recorded, but for what torch's modules have."""
        return any(
            _differ(before, now)
            for value, before, now in self._records(self._tables)
            if not type(value).__module__.startswith("torch.")
        )

    def restore(self) -> None:
        """Restore what differs from the record."""
        for value, attributes in self._attributes:
            _restore_attributes(value.__dict__, attributes)
        for value, slots in self._slots:
            _restore_slots(value, slots)
        for mapping, items in self._mappings:
            _restore_mapping(mapping, items)
        for values, elements in self._lists:
            _restore_list(values, elements)
        for members, before in self._sets:
            if members != before:
                set.clear(members)
                set.update(members, before)
        self._restore_values()

    def _restore_values(self) -> None:
        """Restore arrays, generators and tensors."""
        for weight, data in self._weights:  # ``weight.data = ...``
            if _place_of(weight) != _place_of(data):
                weight.data = data
        for numbers, copied in self._arrays if is_alone() else ():
            _restore_array(numbers, copied)
        restore_generators(self.generators)
        written = [tensor.untyped_storage() for tensor, version in self._tensors if tensor._version != version]
        for address, memory in {memory._cdata: memory for memory in written}.items():
            recorded = self._storages.get(address)
            if recorded is not None and recorded.nbytes() == memory.nbytes():  # neither exchanged nor resized
                memory.copy_(recorded)


def _differ(before: Mapping[Any, Any], now: Mapping[Any, Any]) -> bool:
    return len(before) != len(now) or any(now.get(name, MISSING) is not old for name, old in before.items())


def changed_numbers(owner: str, before: Mapping[Any, Any], now: Mapping[Any, Any]) -> Iterator[str]:
    """Yield the numbers of an owner that have other values now, in words."""
    for name, old in before.items():
        if type(old) in (int, float, complex):
            new = now.get(name, MISSING)
            if type(new) in (int, float, complex) and new != old and repr(new) != repr(old):  # NaN differs from NaN
                yield f"{name} of {owner} from {old} to {new}"


def lost_tensors(name: str, old: object, new: object) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of an old value, also in its containers, that the new one does not have, with its name."""
    kept = {id(one) for one in _tensors_in(new)}
    yield from ((name, one) for one in _tensors_in(old) if id(one) not in kept)


def _tensors_in(value: object, most_nested: int = 3) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif most_nested and isinstance(value, (list, tuple, dict, deque)):
        for one in elements_of(value):
            yield from _tensors_in(one, most_nested - 1)


def _kind(mapping: dict[Any, Any]) -> Any:
    """Return the class whose methods read and write a dict: ``OrderedDict`` keeps its order beside the items."""
    return OrderedDict if isinstance(mapping, OrderedDict) else dict


def items_of(mapping: dict[Any, Any]) -> dict[Any, Any]:
    """Return the items that a dict holds, in their order.

    ``items()`` and ``dict.copy()`` of an ``OrderedDict`` call ``__getitem__`` of its class, and that of transformers'
    ``ACT2FN`` creates a module at each call: written back, such results would take the place of what the dict holds.
    """
    if not isinstance(mapping, OrderedDict):
        return dict(dict.items(mapping))
    return {key: dict.__getitem__(mapping, key) for key in list(OrderedDict.__iter__(mapping))}


def _restore_mapping(mapping: dict[Any, Any], before: dict[Any, Any]) -> None:
    """Restore the items of a dict and their order."""
    if not mapping and not before:
        return
    kind = _kind(mapping)
    items, recorded = list(items_of(mapping).items()), list(before.items())
    same = len(items) == len(recorded)
    if same and all(one[0] is other[0] and one[1] is other[1] for one, other in zip(items, recorded, strict=True)):
        return
    kind.clear(mapping)
    for key, value in recorded:
        kind.__setitem__(mapping, key, value)


def _restore_attributes(attributes: dict[str, Any], before: dict[str, Any]) -> None:
    """Restore attributes one by one: other threads may be reading them."""
    for name in [name for name in attributes if name not in before]:
        attributes.pop(name, None)
    for name, value in before.items():
        if attributes.get(name, MISSING) is not value:
            attributes[name] = value


def read_slot(value: Any, name: str) -> Any:
    """Return what an object has in one of its ``__slots__``, or ``MISSING``."""
    try:
        return object.__getattribute__(value, name)  # runs no ``__getattr__`` of the class
    except AttributeError:
        return MISSING


def slots_of(value: Any) -> dict[str, Any]:
    """Return what an object has in its ``__slots__``, by their names, or ``MISSING`` for one that is not set."""
    names = copyreg._slotnames(type(value))  # type: ignore[attr-defined]  # what pickle uses
    return {name: read_slot(value, name) for name in names}


def _restore_slots(value: Any, slots: dict[str, Any]) -> None:
    for name, before in slots.items():
        if read_slot(value, name) is before:
            continue
        if before is MISSING:
            object.__delattr__(value, name)
        else:
            object.__setattr__(value, name, before)


def _restore_list(values: Any, elements: list[Any]) -> None:
    kind: Any = deque if isinstance(values, deque) else list
    found = list(kind.__iter__(values))
    if len(found) != len(elements) or any(one is not other for one, other in zip(found, elements, strict=True)):
        kind.clear(values)
        kind.extend(values, elements)
