"""Records of Python objects: what they have at a time, and how they get it back.

Everything is read and written as Python stores it (``python_objects.py``). An object and what it leads to are a unit,
which is restored as a whole: a table without the list of its keys is worse than one that is out of date. What several
objects lead to belongs to the first of them.
"""

from __future__ import annotations

import copy
import functools
import gc
import logging
import sys
import threading
import types
import weakref
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import zip_longest
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from trtcache.lowering.python_objects import (
    CONTAINERS,
    MISSING,
    PLAIN,
    are_same,
    attributes_of,
    class_of_elements,
    class_of_items,
    defining_module,
    elements_of,
    is_kind,
    items_of,
    slot_members,
    slots_of,
)
from trtcache.lowering.random_states import generator_state, have_drawn, restore_generators
from trtcache.lowering.threads import is_alone, is_followed

log = logging.getLogger("trtcache.lowering")

_OWN_CLASSES = frozenset({dict, OrderedDict, defaultdict, Counter, list, tuple, deque, set})
"""Containers of Python's own, which have no attributes."""
_LARGEST_ARRAY, _MOST_ARRAYS = 1 << 20, 64
_MOST_SEARCHED = 10_000
_SEARCHED = frozenset({"torch", "argparse", "collections", "types"})
"""Packages whose objects can have tensors, beside those of the user's and of libraries."""

Change = tuple[Any, Any, Any]
"""A key, what was there, and what is there now; ``MISSING`` for nothing."""


class Contents:
    """The contents of one object or container.

    Attributes:
        name: the object, in words.
        unit: the identity of the unit to which it belongs.
        before: what it had when it was recorded, by keys.
    """

    before: Any

    def __init__(self, name: str, unit: int) -> None:
        self.name, self.unit = name, unit
        self.before = self.now()

    def now(self) -> Any:
        """Return what it has now."""
        raise NotImplementedError

    def put(self, key: Any, value: Any) -> None:
        """Set what it has under a key."""
        raise NotImplementedError

    def remove(self, key: Any) -> None:
        """Remove what it has under a key."""
        raise NotImplementedError

    def changes(self) -> list[Change]:
        """Return what differs from what was recorded."""
        now, before = self.now(), self.before
        if are_same([*now.values()], [*before.values()]) and are_same([*now], [*before]):
            return []
        found = [
            (key, before.get(key, MISSING), one) for key, one in now.items() if before.get(key, MISSING) is not one
        ]
        return found + [(key, old, MISSING) for key, old in before.items() if key not in now]

    def restore(self, *, only_fakes: bool = False) -> None:
        """Restore what is not as recorded, one by one, as other threads may be reading; or only fake tensors."""
        for key, old, new in self.changes():
            if only_fakes and not has_fake(new):
                continue
            if old is MISSING:
                with suppress(LookupError, AttributeError):  # another thread has removed it
                    self.remove(key)
            elif not (_is_dead(key) or _is_dead(old)):
                self.put(key, old)


class Items(Contents):
    """A dict: a container, or the names of a module or an object."""

    def __init__(self, mapping: dict[Any, Any], name: str, unit: int, *, is_ordered: bool = False) -> None:
        self._mapping, self._is_ordered = mapping, is_ordered
        super().__init__(name, unit)

    def now(self) -> dict[Any, Any]:
        """Return the items."""
        return items_of(self._mapping)

    def put(self, key: Any, value: Any) -> None:
        """Set an item."""
        class_of_items(self._mapping).__setitem__(self._mapping, key, value)

    def remove(self, key: Any) -> None:
        """Delete an item."""
        class_of_items(self._mapping).__delitem__(self._mapping, key)

    def restore(self, *, only_fakes: bool = False) -> None:
        """Restore the items, and the order of a container, which says what a cache drops first."""
        super().restore(only_fakes=only_fakes)
        if self._is_ordered and not only_fakes:
            now = self.now()
            if now.keys() == self.before.keys() and not are_same([*now], [*self.before]):
                for key in self.before:
                    value = now[key]
                    self.remove(key)
                    self.put(key, value)


class Names(Contents):
    """What is read and written by functions: slots, class attributes, the content of a closure."""

    def __init__(
        self,
        name: str,
        unit: int,
        now: Callable[[], dict[str, Any]],
        put: Callable[[str, Any], None],
        remove: Callable[[str], None],
    ) -> None:
        self._now, self._put, self._remove = now, put, remove
        super().__init__(name, unit)

    def now(self) -> dict[str, Any]:
        """Return the values by their names."""
        return self._now()

    def put(self, key: str, value: Any) -> None:
        """Set a value."""
        self._put(key, value)

    def remove(self, key: str) -> None:
        """Delete a value."""
        self._remove(key)


class Elements(Contents):
    """The elements of a list or a deque."""

    before: list[Any]

    def __init__(self, values: Any, unit: int) -> None:
        self._values, self._kind = values, class_of_elements(values)
        super().__init__("a deque" if self._kind is deque else "a list", unit)

    def now(self) -> list[Any]:
        """Return the elements."""
        return list(self._kind.__iter__(self._values))

    def changes(self) -> list[Change]:
        """Return the elements that are others than those at their places."""
        now = self.now()
        if are_same(now, self.before):
            return []
        pairs = enumerate(zip_longest(self.before, now, fillvalue=MISSING))
        return [(place, old, new) for place, (old, new) in pairs if old is not new]

    def restore(self, *, only_fakes: bool = False) -> None:
        """Restore all elements at once."""
        changes = self.changes()
        if any(has_fake(new) for *_, new in changes) if only_fakes else changes:
            self._kind.clear(self._values)
            self._kind.extend(self._values, self.before)


class Members(Contents):
    """The elements of a set."""

    before: list[Any]

    def __init__(self, members: set[Any], unit: int) -> None:
        self._members = members
        super().__init__("a set", unit)

    def now(self) -> list[Any]:
        """Return the elements."""
        return list(set.__iter__(self._members))

    def changes(self) -> list[Change]:
        """Return the elements that were added and removed."""
        now = self.now()
        if are_same(now, self.before):
            return []
        present, known = set(map(id, now)), set(map(id, self.before))
        added: list[Change] = [(None, MISSING, one) for one in now if id(one) not in known]
        return added + [(None, one, MISSING) for one in self.before if id(one) not in present]

    def restore(self, *, only_fakes: bool = False) -> None:
        """Restore all elements."""
        for _, old, new in self.changes():
            if only_fakes and not has_fake(new):
                continue
            if new is not MISSING:
                set.discard(self._members, new)
            if old is not MISSING and not _is_dead(old):
                set.add(self._members, old)


class RecordedObjects:
    """The contents of objects, and of all that they lead to.

    Attributes:
        contents: those of each object and container.
        generators: generators of random numbers, with their states.
        seen: the objects by their identities, which keeps them alive: no other gets the identity of one.
        has_drawn: whether a generator had drawn, or was seeded, when they were restored.
    """

    def __init__(self, seen: dict[int, Any] | None = None) -> None:
        """Start empty; the objects of ``seen`` are left out."""
        self.contents: list[Contents] = []
        self.generators: list[tuple[Any, Any]] = []
        self.seen = dict(seen or {})
        self.has_drawn = False
        self._started_alone = is_alone()
        self._arrays: list[tuple[Any, Any]] = []
        # Dicts of names: there are many, which stay empty.
        self._empty: list[tuple[dict[str, Any], str | types.FunctionType, int]] = []

    @functools.cached_property
    def was_alone(self) -> bool:
        """Whether no other thread has run code of the user's since the beginning, whose changes would be undone."""
        return self._started_alone and is_alone()

    def follow(self, values: Iterable[Any], unit: int = 0) -> None:
        """Record values, and what they lead to, the nearest first.

        Args:
            values: the values.
            unit: the unit to which containers among them belong; 0: each is one of its own.
        """
        queue = deque((one, unit) for one in values if type(one) not in PLAIN)
        while queue:
            value, owner = queue.popleft()
            if id(value) in self.seen or self.is_full(owner):
                continue
            self.seen[id(value)] = value
            try:
                parts, owner = self.add(value, owner or id(value))
            except Exception:
                log.debug("a %s cannot be recorded before the export", type(value).__name__, exc_info=True)
                continue
            self.count(value, owner)
            queue += [(one, owner) for one in parts if type(one) not in PLAIN]

    def add(self, value: Any, unit: int) -> tuple[Iterable[Any], int]:
        """Record a value, and return what it leads to, with the unit of the containers among that."""
        kind = type(value)
        if issubclass(kind, tuple):
            return elements_of(value), unit
        if kind in _OWN_CLASSES:
            return self._add_container(value, unit), unit
        if issubclass(kind, (dict, list, deque, set)):
            unit = self.unit_of(value, unit)
            return [*self._add_container(value, unit), *self.add_object(value, unit)], unit
        if (state := generator_state(value)) is not None:
            self.generators.append((value, state))
            return (), unit
        if _is_array(value):
            if len(self._arrays) < _MOST_ARRAYS:
                self._arrays.append((value, copy.copy(value)))
            return (), unit
        if (inner := inner_parts(value)) is not None:
            return inner, unit
        if defining_module(value).startswith("trtcache.runtime."):  # a background build may change a compiled module
            return (), unit
        return self.add_other(value, self.unit_of(value, unit))

    def unit_of(self, value: Any, _: int) -> int:
        """Return the unit of an object, which belongs to one of a given unit."""
        return id(value)

    def add_other(self, value: Any, unit: int) -> tuple[Iterable[Any], int]:
        """Record an object that is none of Python's containers, and return what it leads to, with its unit."""
        return self.add_object(value, unit), unit

    def _add_container(self, value: Any, unit: int) -> list[Any]:
        """Record a container, and return its values."""
        if is_kind(value, dict):
            self.contents.append(Items(value, f"a {type(value).__name__}", unit, is_ordered=True))
            return list(self.contents[-1].before.values())
        if is_kind(value, set):
            self.contents.append(Members(value, unit))
            return []
        self.contents.append(Elements(value, unit))
        return list(self.contents[-1].before)

    def add_object(self, value: Any, unit: int) -> list[Any]:
        """Record the attributes and slots of an object, and return their values."""
        name, attributes, found = f"a {type(value).__name__}", attributes_of(value), list[Any]()
        if attributes is not None:
            self.add_names(attributes, name, unit)
            found += attributes.values()
        if members := slot_members(type(value)):

            def put(name: str, one: Any) -> None:
                members[name].__set__(value, one)

            def remove(name: str) -> None:
                members[name].__delete__(value)

            self.contents.append(Names(name, unit, functools.partial(slots_of, value), put, remove))
            found += self.contents[-1].before.values()
        return found

    def count(self, value: Any, unit: int) -> None:
        """Count a value of a unit."""

    def is_full(self, _: int) -> bool:
        """Return whether no more objects of a unit are recorded."""
        return False

    def add_names(self, names: dict[str, Any], name: str | types.FunctionType, unit: int) -> None:
        """Record the dict of names of an object or a module, in words, or of a function."""
        self.seen[id(names)] = names
        if names:
            self.contents.append(Items(names, _in_words(name), unit))
        else:
            self._empty.append((names, name, unit))

    def find_changed(self) -> list[tuple[Contents, list[Change]]]:
        """Return the contents that differ from what was recorded, with what differs."""
        self.add_filled()
        found = []
        for contents in self.contents:
            try:
                changes = contents.changes()
            except Exception:
                log.warning("%s could not be compared after the export", contents.name, exc_info=True)
                continue
            if changes:
                found.append((contents, changes))
        return found

    def add_filled(self) -> None:
        """Record that dicts of names that have some now were empty."""
        for names, name, unit in self._empty:
            if names:
                self.contents.append(Items(names, _in_words(name), unit))
                self.contents[-1].before = {}
        self._empty = [one for one in self._empty if not one[0]]

    def restore_contents(self, contents: Iterable[Contents], *, only_fakes: bool = False) -> None:
        """Restore contents; one that cannot be leaves the others as they should be."""
        for one in contents:
            try:
                one.restore(only_fakes=only_fakes)
            except Exception:
                log.warning("%s could not be restored after the export", one.name, exc_info=True)

    def restore_values(self) -> None:
        """Restore arrays and generators, unless other threads run."""
        self.has_drawn = have_drawn(self.generators)
        if self.was_alone:
            restore_generators(self.generators)
            for numbers, copied in self._arrays:
                _restore_array(numbers, copied)


def _in_words(owner: str | types.FunctionType) -> str:
    return owner if isinstance(owner, str) else f"the function {owner.__name__}"


def units_with_fakes(changed: Iterable[tuple[Contents, list[Change]]]) -> set[int]:
    """Return the units in which a change has brought fake tensors."""
    return {contents.unit for contents, changes in changed if any(has_fake(new) for *_, new in changes)}


def changed_numbers(changed: Iterable[tuple[Contents, list[Change]]]) -> Iterator[str]:
    """Yield the numbers that have other values now, in words."""
    for contents, changes in changed:
        for key, old, new in changes:
            if _is_number(old) and _is_number(new) and new != old and repr(new) != repr(old):  # NaN differs from NaN
                yield f"{key} of {contents.name} from {old} to {new}"


def _is_number(value: Any) -> bool:
    numpy: Any = sys.modules.get("numpy")
    return type(value) in {int, float, complex} or (numpy is not None and is_kind(value, numpy.number))


def lost_tensors(contents: Contents, change: Change, most_nested: int = 3) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of an old value, also in its containers, that the new one does not have, with its name."""
    key, old, new = change
    kept = {id(one) for one in _tensors_in(new, most_nested)}
    yield from ((f"{key} of {contents.name}", one) for one in _tensors_in(old, most_nested) if id(one) not in kept)


def _tensors_in(value: object, most_nested: int) -> Iterator[torch.Tensor]:
    if is_kind(value, torch.Tensor):
        yield value  # type: ignore[misc]  # it is one
    elif most_nested and is_kind(value, list, tuple, dict, deque):
        for one in elements_of(value):
            yield from _tensors_in(one, most_nested - 1)


def has_fake(value: Any) -> bool:
    """Return whether a value is a fake tensor, or has one somewhere."""
    if type(value) in PLAIN:
        return False
    queue, seen = deque([value]), dict[int, Any]()
    while queue and len(seen) < _MOST_SEARCHED:
        value = queue.popleft()
        if is_kind(value, FakeTensor, FunctionalTensor):
            return True
        is_searched = type(value) not in PLAIN and not is_kind(value, type, types.ModuleType, torch.Tensor)
        if is_searched and id(value) not in seen:
            seen[id(value)] = value
            queue += parts_of(value)
    return False


def parts_of(value: Any) -> list[Any]:
    """Return what a value has: elements, attributes, or the contents of a closure."""
    if is_kind(value, *CONTAINERS):
        parts = elements_of(value)
        return parts if type(value) in _OWN_CLASSES else [*parts, *_attributes_and_slots(value)]
    if is_kind(value, types.FunctionType):
        cells = value.__closure__ or () if is_followed(value.__module__) else ()
        return [part for cell in cells for part in cell_contents(cell).values()]
    if (inner := inner_parts(value)) is not None:
        return inner
    module = defining_module(value)
    is_searched = is_followed(module) or module.partition(".")[0] in _SEARCHED
    return _attributes_and_slots(value) if is_searched else []


def _attributes_and_slots(value: Any) -> list[Any]:
    return [*(attributes_of(value) or {}).values(), *slots_of(value).values()]


def inner_parts(value: Any) -> list[Any] | None:
    """Return what a method, a property, or another object of Python's own has; None for other values."""
    kind = type(value)
    if issubclass(kind, types.MethodType):
        return [value.__func__, value.__self__]
    if issubclass(kind, (classmethod, staticmethod)):
        return [value.__func__]
    if issubclass(kind, property):
        return [value.fget, value.fset]
    if issubclass(kind, functools.partial):
        return [getattr(functools.partial, name).__get__(value) for name in ("func", "args", "keywords")]
    if issubclass(kind, types.MappingProxyType):
        return gc.get_referents(value)
    if issubclass(kind, weakref.WeakKeyDictionary):
        return [vars(value)["data"]]
    return [value.__dict__] if issubclass(kind, threading.local) else None


def cell_contents(cell: Any) -> dict[str, Any]:
    """Return the content of a cell by a name, nothing of an empty one."""
    try:
        return {"content": cell.cell_contents}
    except ValueError:
        return {}


def _is_dead(value: Any) -> bool:
    """Return whether a value is a weak reference to an object that is freed."""
    return is_kind(value, weakref.ref) and weakref.ref.__call__(value) is None


def _is_array(value: Any) -> bool:
    """Return whether a value is a small array of numbers in the process's own memory: Python's or NumPy's."""
    if is_kind(value, bytearray, array):
        return len(value) * getattr(value, "itemsize", 1) <= _LARGEST_ARRAY
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray or value.dtype.hasobject:
        return False
    owner = value
    while type(owner.base) is numpy.ndarray:
        owner = owner.base
    return bool(owner.flags.owndata) and bool(value.flags.writeable) and value.nbytes <= _LARGEST_ARRAY


def _restore_array(values: Any, before: Any) -> None:
    """Write the numbers that an array had before, if it has others now."""
    is_ndarray = hasattr(values, "shape")
    if is_ndarray and values.shape != before.shape:
        return
    now, then = (one.tobytes() if hasattr(one, "tobytes") else one for one in (values, before))
    if now != then:
        with suppress(ValueError, BufferError):  # it is read-only now, or another object uses its memory
            values[... if is_ndarray else slice(None)] = before
