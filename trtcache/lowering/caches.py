"""Caches outside of a model that its code fills: a global dict, ``functools.lru_cache``, a class attribute, a closure.

An export fills them with fake tensors, with which the model's later results would be fake, or wrong.
"""

from __future__ import annotations

import enum
import functools
import gc
import logging
import sys
import types
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils import parametrize

from trtcache.lowering.model_state import is_plain
from trtcache.lowering.python_objects import CONTAINERS, are_same, defining_module, is_kind
from trtcache.lowering.recorded_objects import (
    Change,
    Contents,
    Names,
    RecordedObjects,
    cell_contents,
    changed_numbers,
    has_fake,
    lost_tensors,
    units_with_fakes,
)
from trtcache.lowering.threads import is_followed, is_users, names_of

if TYPE_CHECKING:
    from trtcache.lowering.model_state import Changes

_PLAIN_OBJECTS = frozenset({"argparse", "collections", "types"})
"""Modules of the standard library whose objects hold attributes of the user's."""
_LARGEST_TENSOR, _MOST_TENSORS = 1 << 16, 64
"""How large a tensor is, in bytes, that is copied and restored, and how many are."""
_MOST_OBJECTS, _MOST_OF_LIBRARY = 10_000, 1_000
"""How many objects around a model are recorded, and of one object of a library: a program can have any number."""

log = logging.getLogger("trtcache.lowering")


@contextmanager
def preserve_caches(model: torch.nn.Module, changes: Changes) -> Iterator[Caches]:
    """Take fake tensors that the block leaves outside of a model away again.

    Looks at the classes of the model's modules, the files that define them, the user's files that these import, and the
    functions that they use: class attributes, global names, closures, defaults and ``lru_cache``, and what is in these:
    containers, modules, and objects, those of the user's classes with all that they lead to. If there are fake tensors,
    or the block has changed the model itself, which is restored as well, everything is restored, but for objects of
    libraries without fake tensors: a name that says for which size a table was made belongs to that table. Otherwise
    all stays as it is, unless the block sets ``restores_all``. Small tensors are restored if they were written to,
    which torch does before it refuses that, and generators of random numbers.
    """
    caches = Caches(model, changes)
    try:
        yield caches
    finally:
        caches.restore()


class Caches(RecordedObjects):
    """The names, containers and cached functions around a model.

    Attributes:
        restores_all: whether everything is restored in any case. Only the files, classes and objects that have fake
            tensors are if other threads can run the user's code, or if the block has imported files of the user's:
            their changes would be lost.
        replaced: tensors in whose place the block left others, with the name of each.
        numbers: the numbers that the block changed, in words, unless other threads run, which may have changed them.
    """

    def __init__(self, model: torch.nn.Module, changes: Changes) -> None:
        modules = [one for one in model.modules() if isinstance(one, torch.nn.Module)]
        super().__init__({id(one): one for one in modules})  # ``preserve_state`` restores those
        self.restores_all = False
        self._left, self._of_libraries = _MOST_OBJECTS, Counter[int]()
        self.replaced: list[tuple[str, torch.Tensor]] = []
        self.numbers: list[str] = []
        self._model, self._changes = model, changes
        self._imported = frozenset(sys.modules)
        self._libraries = set[int]()  # units of objects of libraries
        self._namespaces = set[int]()  # units: of files and classes
        self._tensors: list[tuple[torch.Tensor, int, torch.Tensor]] = []  # with their versions and copies
        self._cached: list[tuple[Any, list[Any], dict[Any, Any]]] = []  # with what they have, and the results
        self._names: list[Any] = []  # values of global names
        classes = {one for module in modules for one in type(module).__mro__ if is_followed(one.__module__)}
        functions = [one for one in changes.seen if is_kind(one, types.FunctionType, functools._lru_cache_wrapper)]
        files = self._files = {str(one.__module__) for one in classes}
        defining = {str(kind.__module__) for kind in {id(kind): kind for kind in map(type, changes.seen)}.values()}
        files |= {name for name in filter(is_followed, defining) if is_users(sys.modules.get(name))}
        self.follow([*classes, *functions])
        files |= {str(one.__module__) for one in self.seen.values() if is_kind(one, types.FunctionType)}
        self._add_files(filter(is_followed, files))
        self.follow([*self._names, parametrize._cache])  # of ``torch.nn.utils.parametrize.cached``

    def _add_files(self, files: Iterable[str]) -> None:
        """Add the names of files, and of the user's files that they have something of, and that these have, and so on.

        Of libraries, only the files of functions, and the modules of the file's own package are added.
        """
        waiting = [*files]
        while waiting:
            name = waiting.pop()
            names = names_of(sys.modules.get(name))
            if id(names) in self.seen:
                continue
            self._add_names_of_file(names, name)
            for other, of_library in _files_of(list(names.values()), name.partition(".")[0]).items():
                if is_followed(other) and is_users(sys.modules.get(other)):
                    waiting.append(other)
                elif is_followed(other) and of_library is not None:
                    self._add_names_of_file(of_library, other)

    def _add_names_of_file(self, names: dict[str, Any], file: str) -> None:
        if id(names) not in self.seen:
            self.add_names(names, f"the module {file}", id(names))
            self._namespaces.add(id(names))
            self._names += names.values()

    def add(self, value: Any, unit: int) -> tuple[Iterable[Any], int]:
        """Record a value, and return what it leads to, with the unit of the containers among that."""
        kind = type(value)
        if issubclass(kind, type):
            return self._add_class(value), id(value)
        if kind is types.FunctionType:
            return self._add_function(value), id(value)
        if issubclass(kind, functools._lru_cache_wrapper):
            self._cached.append((value, _values(value), dict(_results(value) or {})))
            return (), id(value)
        if issubclass(kind, torch.Tensor):
            self._add_tensor(value)
        return ((), unit) if issubclass(kind, (torch.Tensor, types.ModuleType)) else super().add(value, unit)

    def count(self, value: Any, unit: int) -> None:
        """Count a value of a unit, unless it is code."""
        if issubclass(type(value), (types.FunctionType, type, types.ModuleType)):
            return
        if unit in self._libraries:
            self._of_libraries[unit] += 1
        self._left -= 1

    def is_full(self, unit: int) -> bool:
        """Return whether no more objects of a unit are recorded."""
        return self._left <= 0 or self._of_libraries.get(unit, 0) >= _MOST_OF_LIBRARY

    def unit_of(self, value: Any, unit: int) -> int:
        """Return the unit of an object: that to which it belongs, unless this is a file, a class or a library's."""
        if not is_followed(defining_module(value)) or self._is_users(value):
            return id(value) if unit in self._namespaces or unit in self._libraries else unit
        unit = unit if unit in self._libraries else id(value)
        self._libraries.add(unit)
        return unit

    def add_other(self, value: Any, unit: int) -> tuple[Iterable[Any], int]:
        """Record an object that is none of Python's containers, and return what it leads to, with its unit."""
        module = defining_module(value)
        if is_kind(value, torch.nn.Module) or module in _PLAIN_OBJECTS or self._is_users(value):
            return super().add_other(value, unit)
        if not is_followed(module):
            return (), unit
        package = module.partition(".")[0]
        found, _ = super().add_other(value, unit)
        own = [one for one in found if is_kind(one, *CONTAINERS) or defining_module(one).partition(".")[0] == package]
        return own, unit

    def _is_users(self, value: Any) -> bool:
        """Return whether a value is of a class of the model's files, or of the user's."""
        module = defining_module(value)
        return module in self._files or is_users(sys.modules.get(module))

    def _add_class(self, kind: type) -> list[Any]:
        """Add a class of the model's files, or of the user's."""
        name = kind.__module__
        if not is_followed(name) or is_kind(kind, enum.EnumMeta):
            return []
        if not (name in self._files or is_users(sys.modules.get(name))):
            return []
        put, remove = partial(type.__setattr__, kind), partial(type.__delattr__, kind)
        self.contents.append(Names(f"the class {kind.__name__}", id(kind), lambda: dict(vars(kind)), put, remove))
        self._namespaces.add(id(kind))
        return [*vars(kind).values()]

    def _add_tensor(self, value: torch.Tensor) -> None:
        """Add a small tensor."""
        is_own = type(value) is torch.Tensor and is_plain(value) and value.device.type == "cpu"
        is_small = is_own and not value.is_inference() and value.nbytes <= _LARGEST_TENSOR
        is_small = is_small and value.untyped_storage().nbytes() >= value.nbytes  # its memory was not freed
        if is_small and len(self._tensors) < _MOST_TENSORS:
            self._tensors.append((value, value._version, value.detach().clone()))

    def _add_function(self, function: Any) -> list[Any]:
        """Add the cells of a function, and return what they lead to."""
        if not is_followed(function.__module__):
            return []
        names = function.__dict__
        self.add_names(names, function, id(function))
        found = [*(function.__defaults__ or ()), *names.values()]
        found += (function.__kwdefaults__ or {}).values()
        for cell in function.__closure__ or ():
            found += self._add_cell(cell, id(function))
        return found

    def _add_cell(self, cell: types.CellType, unit: int) -> Iterable[Any]:
        def put(_: str, value: object) -> None:
            cell.cell_contents = value

        def remove(_: str) -> None:
            del cell.cell_contents

        if id(cell) not in self.seen:
            self.seen[id(cell)] = cell
            self.contents.append(Names("a closure", unit, partial(cell_contents, cell), put, remove))
        return cell_contents(cell).values()

    def restore(self) -> None:
        """Restore what has fake tensors now and had none, or everything."""
        self._changes.collect()
        changed, has_imported = self.find_changed(), self._has_imported()
        self.replaced += [
            found for one, changes in changed for change in changes for found in lost_tensors(one, change)
        ]
        filled = [one for one in self._cached if not are_same(_values(one[0]), one[1])]
        with_fakes = [one for one in filled if any(map(has_fake, _values(one[0])))]
        units = units_with_fakes(changed)
        if self.was_alone:  # a number beside a new table, such as its size, belongs to the table
            self.numbers += changed_numbers(one for one in changed if one[0].unit not in units)
        has_fakes = bool(units or with_fakes)
        is_wanted = self.restores_all or has_fakes or self._changes.has_changes
        restores_all = is_wanted and self.was_alone and not has_imported
        if restores_all:
            self.restore_contents(one for one in self.contents if one.unit in units or one.unit not in self._libraries)
        elif has_fakes:
            self._warn_of_changes([one for one in changed if one[0].unit not in units])
            partly = self._namespaces if has_imported else set()
            self.restore_contents(one for one, _ in changed if one.unit in units - partly)
            self.restore_contents((one for one, _ in changed if one.unit in units & partly), only_fakes=True)
        for function, _, before in filled if restores_all else with_fakes:
            if (results := _results(function)) is not None:
                results.clear()
                results.update(before)
            elif any(map(has_fake, _values(function))):  # one with a limit has results of before among others
                function.cache_clear()
        self._restore_tensors()
        self.restore_values()

    def _has_imported(self) -> bool:
        """Return whether the block imported a file of the user's, or of a package of the model's: it is done once."""
        packages = {name.partition(".")[0] for name in filter(is_followed, self._files)}
        new = filter(is_followed, sys.modules.keys() - self._imported)
        return any(name.partition(".")[0] in packages or is_users(sys.modules.get(name)) for name in new)

    def _restore_tensors(self) -> None:
        """Restore small tensors: an export writes to them before it refuses a model that does."""
        for tensor, version, before in self._tensors if self.was_alone else ():
            if tensor._version != version and tensor.shape == before.shape:
                with torch.no_grad():
                    tensor.copy_(before)

    def _warn_of_changes(self, changed: Iterable[tuple[Contents, list[Change]]]) -> None:
        """Warn about names that are not restored, though a table beside them is: they may say what it was made for."""
        names = [
            f"{name} of {contents.name}"
            for contents, changes in changed
            for name, _, new in changes
            if isinstance(name, str) and not name.startswith("__") and not is_kind(new, types.ModuleType)
        ]
        if names:
            why = "it has changed during the export, and is not restored while other threads run"
            remedy = "compile before threads start, and import in advance what forward imports"
            log.warning("%s: %s: %s: %s", type(self._model).__name__, ", ".join(names[:3]), why, remedy)


def _files_of(values: Iterable[Any], package: str) -> dict[Any, dict[str, Any] | None]:
    """Return the files of modules, functions and classes by their names; names of those of libraries that are added."""
    files: dict[Any, dict[str, Any] | None] = {}
    for value in values:
        kind = type(value)
        if issubclass(kind, (types.FunctionType, functools._lru_cache_wrapper)):
            function: Any = getattr(value, "__wrapped__", value) if kind is functools._lru_cache_wrapper else value
            files[value.__module__] = getattr(function, "__globals__", None)
        elif issubclass(kind, types.ModuleType):
            names = names_of(value)
            name = names.get("__name__")
            files.setdefault(name, names if str(name).partition(".")[0] == package else None)
        elif issubclass(kind, type):
            files.setdefault(value.__module__, None)
    return files


def _results(function: Any) -> dict[Any, Any] | None:
    """Return the dict in which an ``lru_cache`` without a limit has its results; None if there is a limit."""
    if function.cache_info().maxsize is not None:
        return None
    attributes = function.__dict__
    tables = [one for one in gc.get_referents(function) if type(one) is dict and one is not attributes]
    return tables[0] if len(tables) == 1 else None


def _values(function: Any) -> list[Any]:
    """Return what an ``lru_cache`` has, beside its keys: in a dict, or side by side if its size is limited."""
    found = gc.get_referents(function)
    for one in [*found]:
        if type(one) is dict:
            found += one.values()
    return found
