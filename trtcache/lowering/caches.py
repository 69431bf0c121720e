"""Caches outside of a model that its code fills: a global dict, ``functools.lru_cache``, a class attribute, a closure.

An export fills them with fake tensors, with which the model's later results would be fake, or wrong.
"""

from __future__ import annotations

import copyreg
import functools
import gc
import sys
import threading
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.nn.utils import parametrize

from trtcache.lowering.model_state import MISSING, are_same, is_alone, is_followed, is_users, lost_tensors, read_slot

if TYPE_CHECKING:
    from trtcache.lowering.model_state import Changes

_DICTS = frozenset({dict, OrderedDict, defaultdict})
_CONTAINERS = _DICTS | {list, deque, set}
_PLAIN = frozenset({type(None), bool, int, float, str, bytes, type, types.ModuleType, types.BuiltinFunctionType})
_PLAIN_OBJECTS = frozenset({"argparse", "collections", "types"})
"""Modules of the standard library whose objects hold attributes of the user's."""
_NOT_FOLLOWED = (type, types.ModuleType, torch.nn.Module, torch.Tensor)
_MOST_NESTED = 3
_Place = tuple[str, dict[Any, Any], "Callable[[], Any]", "Callable[[Any, Any], None]", "Callable[[Any], None]"]
"""An owner in words, its items before the export, and what returns them now, sets one, and deletes one."""


@contextmanager
def preserve_caches(model: torch.nn.Module, changes: Changes) -> Iterator[Caches]:
    """Take fake tensors that the block leaves outside of a model away again.

    Looks at the classes of the model's modules, the files that define them, the user's files that these import, and the
    functions that they use: class attributes, global names, containers and plain objects in these, closures, defaults
    and ``lru_cache``. If there are fake tensors, or the block has changed the model itself, which is restored as well,
    everything is restored: a name that says for which size a table was made belongs to that table. Otherwise all stays
    as it is, unless the block sets ``restores_all``.
    """
    caches = Caches(model, changes)
    try:
        yield caches
    finally:
        caches.restore()


class Caches:
    """The names, containers and cached functions around a model.

    Attributes:
        restores_all: whether everything is restored in any case. If there are other threads that can run the user's
            code, whose changes would be lost, only the files, classes and objects that have fake tensors are restored.
        replaced: tensors in whose place the block left fake ones, with the name of each.
    """

    def __init__(self, model: torch.nn.Module, changes: Changes) -> None:
        self.restores_all = False
        self._model, self._changes = model, changes
        self._modules = frozenset(sys.modules)
        self.replaced: list[tuple[str, torch.Tensor]] = []
        self._places: list[_Place] = []
        self._lists: list[tuple[Any, list[Any]]] = []  # and deques
        self._sets: list[tuple[set[Any], set[Any]]] = []
        self._cached: list[tuple[Any, int]] = []  # with the number of their misses
        self._seen: dict[int, Any] = {}  # keeps the objects alive, so that no other gets one's address
        modules = [one for one in model.modules() if isinstance(one, torch.nn.Module)]
        classes = {one for module in modules for one in type(module).__mro__ if is_followed(one.__module__)}
        files = self._files = {str(one.__module__) for one in classes}
        self._follow([*classes, *(value for module in modules for value in vars(module).values() if callable(value))])
        files |= {str(one.__module__) for one in self._seen.values() if isinstance(one, types.FunctionType)}
        for name in filter(is_followed, files):
            self._add_file(name, files)
        self._add_dict(parametrize._cache)  # of ``torch.nn.utils.parametrize.cached``

    def _add_file(self, name: str, files: set[str]) -> None:
        """Add the names of a file, of the user's files that it imports, and of those whose functions it imports."""
        names = vars(sys.modules[name]) if name in sys.modules else {}
        self._add_dict(names, f"the module {name}")
        values = list(names.values())
        self._follow(list(values))
        for value in values:
            if isinstance(value, types.ModuleType) and id(vars(value)) not in self._seen and is_users(value):
                self._add_file(value.__name__, files)
            is_cache = isinstance(value, functools._lru_cache_wrapper)
            function = getattr(value, "__wrapped__", value) if is_cache else value
            if not isinstance(function, types.FunctionType) or function.__module__ in files:
                continue
            if is_followed(function.__module__) and id(function.__globals__) not in self._seen:
                self._add_dict(function.__globals__, f"the module {function.__module__}")
                self._follow(list(function.__globals__.values()))

    def _add_class(self, kind: type) -> None:
        """Add a class of the model's files, or of the user's."""
        name = kind.__module__
        if id(kind) in self._seen or not isinstance(name, str):
            return
        if not is_followed(name) or not (name in self._files or is_users(sys.modules.get(name))):
            return
        self._seen[id(kind)] = kind

        def put(name: str, value: object) -> None:
            setattr(kind, name, value)

        def remove(name: str) -> None:
            delattr(kind, name)

        self._places.append((f"the class {kind.__name__}", dict(vars(kind)), lambda: dict(vars(kind)), put, remove))
        self._follow(list(vars(kind).values()))

    def _add_dict(self, items: dict[Any, Any], owner: str = "a dict") -> None:
        if id(items) not in self._seen:
            self._seen[id(items)] = items
            self._places.append((owner, dict(items), lambda: items, items.__setitem__, items.__delitem__))

    def _follow(self, waiting: list[Any]) -> None:
        """Add containers, plain objects, closures and caches that values lead to."""
        while waiting:
            value = waiting.pop()
            kind = type(value)
            if isinstance(value, type):
                self._add_class(value)
            elif kind in _PLAIN or id(value) in self._seen or isinstance(value, _NOT_FOLLOWED):
                continue
            elif kind in _DICTS:
                self._add_dict(value)
                waiting += value.values()
            elif kind in {list, deque}:
                self._seen[id(value)] = value
                self._lists.append((value, list(value)))
                waiting += value
            elif kind is set:
                self._seen[id(value)] = value
                self._sets.append((value, set(value)))
            elif isinstance(value, (types.FunctionType, functools._lru_cache_wrapper)):
                self._seen[id(value)] = value
                waiting += self._add_function(value)
            elif (inner := _inner(value)) is not None:
                waiting.append(inner)
            elif is_followed(kind.__module__) or kind.__module__ in _PLAIN_OBJECTS:
                self._seen[id(value)] = value
                waiting += self._add_object(value)

    def _add_object(self, value: Any) -> list[Any]:
        """Add the attributes of an object, and return the containers among them."""
        owner = f"a {type(value).__name__}"
        try:
            attributes = value.__dict__
        except Exception:  # noqa: BLE001  # code of the class
            attributes = None
        found: list[Any] = []
        if type(attributes) is dict:
            self._add_dict(attributes, owner)
            found += attributes.values()
        names = copyreg._slotnames(type(value))  # type: ignore[attr-defined]  # what pickle uses
        if not names:
            return [one for one in found if type(one) in _CONTAINERS]

        def slots() -> dict[str, Any]:
            found = {name: read_slot(value, name) for name in names}
            return {name: one for name, one in found.items() if one is not MISSING}

        set_slot, delete_slot = partial(object.__setattr__, value), partial(object.__delattr__, value)
        self._places.append((owner, slots(), slots, set_slot, delete_slot))
        return [one for one in (*found, *slots().values()) if type(one) in _CONTAINERS]

    def _add_function(self, function: Any) -> list[Any]:
        """Add the cells of a function, or a cache, and return what they lead to."""
        if isinstance(function, functools._lru_cache_wrapper):
            self._cached.append((function, function.cache_info().misses))
        elif is_followed(function.__module__):
            found = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
            for cell in function.__closure__ or ():
                found += self._add_cell(cell)
            self._add_dict(function.__dict__, f"the function {function.__name__}")
            return [*found, *function.__dict__.values()]
        return []

    def _add_cell(self, cell: Any) -> list[Any]:
        def items() -> dict[str, Any]:
            try:
                return {"content": cell.cell_contents}
            except ValueError:  # empty
                return {}

        def put(_: str, value: object) -> None:
            cell.cell_contents = value

        def remove(_: str) -> None:
            del cell.cell_contents

        self._places.append(("a closure", items(), items, put, remove))
        return [*items().values()]

    def restore(self) -> None:
        """Restore what has fake tensors now and had none, or everything."""
        self._changes.collect(self._model)
        places = [(place, _has_new_fakes(place[1], place[2]())) for place in self._places]
        lists = [
            (values, elements, any(map(_has_fake, values)) and not any(map(_has_fake, elements)))
            for values, elements in self._lists
        ]
        filled = [function for function, misses in self._cached if function.cache_info().misses != misses]
        with_fakes = [function for function in filled if any(map(_has_fake, _results(function)))]
        has_fakes = bool(with_fakes) or any(one[-1] for one in (*places, *lists))
        restores_all = (self.restores_all or has_fakes or self._changes.has_changes) and is_alone()
        for place, has_fake in places:
            if has_fake or restores_all:
                self.replaced += _restore_place(*place, self._modules)
        for values, elements, has_fake in lists:
            if has_fake or (restores_all and not are_same(values, elements)):
                self.replaced += lost_tensors("an element of a list", elements, list(values))
                values.clear()
                values.extend(elements)
        for members, before in self._sets if restores_all else ():
            members &= before
            members |= before
        for function in filled if restores_all else with_fakes:
            function.cache_clear()


def _inner(value: Any) -> Any:
    """Return the function of a method, or the dict behind a container; None for other values."""
    if isinstance(value, (classmethod, staticmethod, types.MethodType)):
        return value.__func__
    if isinstance(value, weakref.WeakKeyDictionary):
        return vars(value)["data"]
    return value.__dict__ if isinstance(value, threading.local) else None


def _restore_place(
    owner: str,
    before: dict[Any, Any],
    now: Callable[[], Any],
    put: Callable[[Any, Any], None],
    remove: Callable[[Any], None],
    modules: frozenset[str],
) -> list[tuple[str, torch.Tensor]]:
    """Restore the items of an owner, and return the tensors that others replaced.

    What an import has added stays, as that is not done again: modules, and what those define that are not among
    ``modules``, which were imported before.
    """
    items, replaced = now(), list[tuple[str, torch.Tensor]]()
    for name, value in list(items.items()):
        old = before.get(name, MISSING)
        if old is MISSING:
            source = getattr(value, "__module__", None)
            is_imported = isinstance(value, types.ModuleType) or (isinstance(source, str) and source not in modules)
            with suppress(LookupError, AttributeError):  # another thread has removed it
                if not is_imported:
                    remove(name)
        elif old is not value:
            put(name, old)
            replaced += lost_tensors(f"{name} of {owner}", old, value)
    for name in [one for one in before if one not in items]:
        if not (isinstance(name, weakref.ref) and name() is None):
            put(name, before[name])
    return replaced


def _has_new_fakes(before: dict[Any, Any], items: dict[Any, Any]) -> bool:
    changed = [value for name, value in list(items.items()) if before.get(name, MISSING) is not value]
    return any(map(_has_fake, changed))


def _has_fake(value: Any, depth: int = 0) -> bool:
    if type(value) in _PLAIN:
        return False
    if isinstance(value, (FakeTensor, FunctionalTensor)):
        return True
    if depth == _MOST_NESTED or isinstance(value, _NOT_FOLLOWED):
        return False
    items: Iterable[Any] = ()
    if isinstance(value, dict):
        items = value.values()
    elif isinstance(value, (list, tuple)):
        items = value
    elif is_followed(type(value).__module__):
        items = getattr(value, "__dict__", {}).values()
    return any(_has_fake(one, depth + 1) for one in list(items))


def _results(function: Any) -> list[Any]:
    """Return what an ``lru_cache`` has, beside its keys: in a dict, or side by side if its size is limited."""
    found = gc.get_referents(function)
    return [*found, *(value for one in found if type(one) is dict for value in one.values())]
