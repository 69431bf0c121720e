"""Caches outside of a model that its code fills: a global dict, ``functools.lru_cache``, a class attribute, a closure.

An export fills them with fake tensors, with which the model's later results would be fake, or wrong.
"""

from __future__ import annotations

import functools
import gc
import logging
import sys
import threading
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.nn.utils import parametrize

from trtcache.lowering.model_state import (
    MISSING,
    are_same,
    changed_numbers,
    generator_state,
    have_drawn,
    is_alone,
    is_followed,
    is_plain,
    is_users,
    items_of,
    lost_tensors,
    restore_generators,
    slots_of,
)

if TYPE_CHECKING:
    from trtcache.lowering.model_state import Changes

_CONTAINERS = (dict, list, tuple, deque, set)
_PLAIN = frozenset({type(None), bool, int, float, str, bytes, type, types.ModuleType, types.BuiltinFunctionType})
_PLAIN_OBJECTS = frozenset({"argparse", "collections", "types"})
"""Modules of the standard library whose objects hold attributes of the user's."""
_LARGEST_TENSOR, _MOST_TENSORS = 1 << 16, 64
"""How large a tensor is, in bytes, that is copied and restored, and how many are."""
_MOST_OBJECTS = 10_000
"""How many objects around a model are looked at: a program can have any number of them in its globals."""

log = logging.getLogger("trtcache.lowering")

_Place = tuple[str, dict[Any, Any], "Callable[[], Any]", "Callable[[Any, Any], None]", "Callable[[Any], None]"]
"""An owner in words, its items before the export, and what returns them now, sets one, and deletes one."""


@contextmanager
def preserve_caches(model: torch.nn.Module, changes: Changes) -> Iterator[Caches]:
    """Take fake tensors that the block leaves outside of a model away again.

    Looks at the classes of the model's modules, the files that define them, the user's files that these import, and the
    functions that they use: class attributes, global names, closures, defaults and ``lru_cache``, and what is in these:
    containers, modules, and objects, those of the user's classes with all that they lead to. If there are fake tensors,
    or the block has changed the model itself, which is restored as well, everything is restored: a name that says for
    which size a table was made belongs to that table. Otherwise all stays as it is, unless the block sets
    ``restores_all``. Small tensors are restored if they were written to, which torch does before it refuses that, and
    generators of random numbers.
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
        numbers: the numbers that the block changed, in words, unless other threads run, which may have changed them.
        has_drawn: whether the block has drawn from a generator, or seeded it.
    """

    def __init__(self, model: torch.nn.Module, changes: Changes) -> None:
        self.restores_all = self.has_drawn = False
        self._model, self._changes = model, changes
        self._modules = frozenset(sys.modules)
        self.replaced: list[tuple[str, torch.Tensor]] = []
        self.numbers: list[str] = []
        self._places: list[_Place] = []
        self._lists: list[tuple[Any, list[Any]]] = []  # and deques
        self._sets: list[tuple[set[Any], set[Any]]] = []
        self._tensors: list[tuple[torch.Tensor, int, torch.Tensor]] = []  # with their versions and copies
        self._generators: list[tuple[Any, Any]] = []  # with their states
        self._cached: list[tuple[Any, int]] = []  # with the number of their misses
        self._objects = 0
        self._seen: dict[int, Any] = {}  # keeps the objects alive, so that no other gets one's address
        modules = [one for one in model.modules() if isinstance(one, torch.nn.Module)]
        self._seen.update((id(one), one) for one in modules)  # ``preserve_state`` restores those
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
            kind: Any = OrderedDict if _is(items, OrderedDict) else dict  # not the methods of a subclass
            set_item, delete_item = partial(kind.__setitem__, items), partial(kind.__delitem__, items)
            now = partial(items_of, items) if type(items) is not dict else lambda: items
            self._places.append((owner, items_of(items), now, set_item, delete_item))

    def _follow(self, waiting: Iterable[Any]) -> None:
        """Add what values lead to, the nearest first."""
        queue = deque(waiting)
        while queue:
            value = queue.popleft()
            if _is(value, type):
                self._add_class(value)
            elif type(value) not in _PLAIN and id(value) not in self._seen:
                queue += self._add_value(value)

    def _add_value(self, value: Any) -> Iterable[Any]:
        """Add a container, a function, a module or an object, and return what it leads to."""
        kind = type(value)
        if _is(value, dict):
            self._add_dict(value)
            return [*dict.values(value)]
        if _is(value, torch.Tensor):
            self._add_tensor(value)
            return ()
        self._seen[id(value)] = value
        if _is(value, types.FunctionType, functools._lru_cache_wrapper):
            return self._add_function(value)
        if _is(value, list, deque):
            self._lists.append((value, _elements(value)))
            return self._lists[-1][1]
        if _is(value, set):
            self._sets.append((value, set(set.__iter__(value))))
            return ()
        is_ours = str(kind.__module__).startswith("trtcache.")  # a compiled module: a background build may change it
        if is_ours or self._add_generator(value):
            return ()
        if (inner := _inner(value)) is not None:
            return inner
        is_users_own = kind.__module__ in self._files or is_users(sys.modules.get(kind.__module__))
        if _is(value, torch.nn.Module) or is_users_own or kind.__module__ in _PLAIN_OBJECTS:
            return self._add_object(value)
        if is_followed(kind.__module__):
            return [one for one in self._add_object(value) if _is(one, *_CONTAINERS)]
        return ()

    def _add_tensor(self, value: torch.Tensor) -> None:
        """Add a small tensor."""
        is_own = type(value) is torch.Tensor and is_plain(value) and value.device.type == "cpu"
        is_small = is_own and not value.is_inference() and value.nbytes <= _LARGEST_TENSOR
        is_small = is_small and value.untyped_storage().nbytes() >= value.nbytes  # its memory was not freed
        if is_small and len(self._tensors) < _MOST_TENSORS:
            self._seen[id(value)] = value
            self._tensors.append((value, value._version, value.detach().clone()))

    def _add_generator(self, value: Any) -> bool:
        """Add a value if it is a generator of random numbers, and return whether it is."""
        state = generator_state(value)
        if state is not None:
            self._generators.append((value, state))
        return state is not None

    def _add_object(self, value: Any) -> list[Any]:
        """Add the attributes of an object, and return them, unless there are too many objects."""
        self._objects += 1
        if self._objects > _MOST_OBJECTS:
            return []
        owner, attributes = f"a {type(value).__name__}", _attributes(value)
        found: list[Any] = []
        if attributes is not None:
            self._add_dict(attributes, owner)
            found += attributes.values()
        if slots_of(value):
            set_slot, delete_slot = partial(object.__setattr__, value), partial(object.__delattr__, value)
            self._places.append((owner, _set_slots(value), partial(_set_slots, value), set_slot, delete_slot))
            found += _set_slots(value).values()
        return found

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
        def put(_: str, value: object) -> None:
            cell.cell_contents = value

        def remove(_: str) -> None:
            del cell.cell_contents

        self._places.append(("a closure", _contents(cell), partial(_contents, cell), put, remove))
        return [*_contents(cell).values()]

    def restore(self) -> None:
        """Restore what has fake tensors now and had none, or everything."""
        self._changes.collect(self._model)
        self.numbers += self._changed_numbers() if is_alone() else ()
        places = [(place, _has_new_fakes(place[1], place[2]())) for place in self._places]
        lists = [(values, before, _has_new_fake(_elements(values), before)) for values, before in self._lists]
        sets = [(members, before, _has_new_fake(members, before)) for members, before in self._sets]
        filled = [function for function, misses in self._cached if function.cache_info().misses != misses]
        with_fakes = [function for function in filled if any(map(_has_fake, _results(function)))]
        has_fakes = bool(with_fakes) or any(one[-1] for one in (*places, *lists, *sets))
        restores_all = (self.restores_all or has_fakes or self._changes.has_changes) and is_alone()
        if has_fakes and not restores_all:
            self._warn_of_changes([place for place, has_fake in places if not has_fake])
        for place, has_fake in places:
            if has_fake or restores_all:
                try:
                    self.replaced += _restore_place(*place, self._modules)
                except Exception:  # code of the user's: the others are restored all the same
                    log.warning("%s could not be restored after the export", place[0], exc_info=True)
        for values, elements, has_fake in lists:
            now = _elements(values)
            if has_fake or (restores_all and not are_same(now, elements)):
                self.replaced += lost_tensors("an element of a list", elements, now)
                _base(values).clear(values)
                _base(values).extend(values, [*elements, *self._find_imported(now, elements)])
        for members, before, has_fake in sets:
            if has_fake or restores_all:
                imported = self._find_imported(members, before)
                set.intersection_update(members, before)
                set.update(members, before, imported)
        for function in filled if restores_all else with_fakes:
            function.cache_clear()
        self._restore_tensors()
        self.has_drawn = have_drawn(self._generators)
        restore_generators(self._generators)

    def _changed_numbers(self) -> Iterator[str]:
        for owner, before, now, *_ in self._places:
            yield from changed_numbers(owner, before, now())
        for values, elements in self._lists:
            if not are_same(found := _elements(values), elements):
                yield from changed_numbers("a list", dict(enumerate(elements)), dict(enumerate(found)))

    def _find_imported(self, now: Iterable[Any], before: Collection[Any]) -> list[Any]:
        """Return the new elements that an import has added, which is not done again."""
        return [one for one in _new_elements(now, before) if _is_imported(one, self._modules)]

    def _restore_tensors(self) -> None:
        """Restore small tensors: an export writes to them before it refuses a model that does."""
        for tensor, version, before in self._tensors if is_alone() else ():
            if tensor._version != version and tensor.shape == before.shape:
                with torch.no_grad():
                    tensor.copy_(before)

    def _warn_of_changes(self, places: list[_Place]) -> None:
        """Warn about names that are not restored, though a table beside them is: they may say what it was made for."""
        changed = [
            f"{name} of {owner}"
            for owner, before, now, *_ in places
            for name, value in list(now().items())
            if isinstance(name, str) and not name.startswith("__")
            if before.get(name, MISSING) is not value and not isinstance(value, types.ModuleType)
        ]
        if changed:
            names = ", ".join(changed[:3])
            why = "the export has changed it, and it is not restored while other threads run; compile before they start"
            log.warning("%s: %s: %s", type(self._model).__name__, names, why)


def _is(value: Any, *kinds: type) -> bool:
    """Return whether a value is of one of these classes, whatever it says of itself, as a mock does."""
    return issubclass(type(value), kinds)


def _base(values: Any) -> Any:
    """Return the class whose methods read and write a list or a deque, not those of a subclass."""
    return deque if _is(values, deque) else list


def _elements(values: Any) -> list[Any]:
    return list(_base(values).__iter__(values))


def _attributes(value: Any) -> dict[str, Any] | None:
    """Return the ``__dict__`` of an object; None if it has none, or another thing under this name."""
    try:
        attributes = value.__dict__
    except Exception:  # noqa: BLE001  # code of the class
        return None
    return attributes if type(attributes) is dict else None


def _set_slots(value: Any) -> dict[str, Any]:
    """Return what an object has in those of its ``__slots__`` that are set."""
    return {name: one for name, one in slots_of(value).items() if one is not MISSING}


def _inner(value: Any) -> list[Any] | None:
    """Return what a tuple, a method, a property, or another object of Python's own has; None for other values."""
    if _is(value, tuple):
        return list(tuple.__iter__(value))
    if _is(value, types.MethodType):
        return [value.__func__, value.__self__]
    if _is(value, classmethod, staticmethod):
        return [value.__func__]
    if _is(value, property):
        return [value.fget, value.fset]
    if _is(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if _is(value, weakref.WeakKeyDictionary):
        return [vars(value)["data"]]
    return [value.__dict__] if _is(value, threading.local) else None


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
            with suppress(LookupError, AttributeError):  # another thread has removed it
                if not _is_imported(value, modules):
                    remove(name)
        elif old is not value:
            put(name, old)
            replaced += lost_tensors(f"{name} of {owner}", old, value)
    for name in [one for one in before if one not in items]:
        if not (isinstance(name, weakref.ref) and name() is None):
            put(name, before[name])
    return replaced


def _is_imported(value: Any, modules: frozenset[str]) -> bool:
    """Return whether a value is a module, or defined in one that was not among the imported ``modules``."""
    source = getattr(value, "__module__", None)
    return isinstance(value, types.ModuleType) or (isinstance(source, str) and source not in modules)


def _has_new_fakes(before: dict[Any, Any], items: dict[Any, Any]) -> bool:
    changed = [value for name, value in list(items.items()) if before.get(name, MISSING) is not value]
    return any(map(_has_fake, changed))


def _has_new_fake(elements: Collection[Any], before: Collection[Any]) -> bool:
    """Return whether one of the elements has a fake tensor and was not there before."""
    return any(map(_has_fake, _new_elements(elements, before)))


def _new_elements(elements: Iterable[Any], before: Collection[Any]) -> list[Any]:
    known = set(map(id, before))
    return [one for one in elements if id(one) not in known]


def _has_fake(value: Any) -> bool:
    """Return whether a value is a fake tensor, or has one somewhere."""
    if type(value) in _PLAIN:
        return False
    queue, seen = deque([value]), dict[int, Any]()
    while queue and len(seen) < _MOST_OBJECTS:
        value = queue.popleft()
        if _is(value, FakeTensor, FunctionalTensor):
            return True
        if type(value) not in _PLAIN and id(value) not in seen and not _is(value, type, torch.Tensor):
            seen[id(value)] = value
            queue += _parts(value)
    return False


def _parts(value: Any) -> list[Any]:
    """Return what a value has: elements, attributes, or the contents of a closure."""
    if _is(value, dict):
        return [*dict.values(value)]
    if _is(value, list, deque):
        return _elements(value)
    if _is(value, set):
        return list(set.__iter__(value))
    if _is(value, types.FunctionType):
        cells = value.__closure__ or () if is_followed(value.__module__) else ()
        return [part for cell in cells for part in _contents(cell).values()]
    if (inner := _inner(value)) is not None:
        return inner
    if _is(value, torch.nn.Module) or is_followed(type(value).__module__):
        return [*(_attributes(value) or {}).values(), *_set_slots(value).values()]
    return []


def _contents(cell: Any) -> dict[str, Any]:
    """Return the content of a cell by a name, nothing of an empty one."""
    try:
        return {"content": cell.cell_contents}
    except ValueError:
        return {}


def _results(function: Any) -> list[Any]:
    """Return what an ``lru_cache`` has, beside its keys: in a dict, or side by side if its size is limited."""
    found = gc.get_referents(function)
    return [*found, *(value for one in found if type(one) is dict for value in one.values())]
