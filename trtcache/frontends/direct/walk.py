"""Descriptions of Python objects as JSON, in one traversal with one memo table, as in pickle.

A repeated object is written as a back-reference, so that identity counts everywhere: in attributes, globals, dictionary
keys, tensors. State is read below Python's attribute protocol: instance dictionaries and slots through the descriptors
of their types, checked against ``gc.get_referents`` for hidden state. Definitions of torch, NumPy and Python are
written by name if they are found under that name, and everything else in full. An object of a C type that is not in the
table below has no description.
"""

from __future__ import annotations

import _abc  # type: ignore[import-not-found]  # CPython's implementation of abc
import builtins
import collections
import contextvars
import datetime
import decimal
import functools
import gc
import logging
import operator
import os
import pathlib
import re
import struct
import sys
import threading
import types
import warnings
import weakref
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from trtcache.digests import hash_bytes
from trtcache.frontends.direct.code import (
    CODE_OF,
    LOOK_UPS,
    SET_METHODS,
    SET_OPERATORS,
    UNSEEN,
    VIEWS,
    codes_in,
    content,
    is_ordered,
    within,
)
from trtcache.frontends.direct.ownership import (
    MODEL,
    OURS,
    file_is_build,
    file_owner,
    is_build_module,
    is_impure,
    is_in_its_module,
    is_installed,
    is_of_user,
    is_own,
    lookup,
    module_owner,
    module_with,
)
from trtcache.lowering.interface import Content

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from trtcache.digests import Json

    Writer = Callable[["Walk", Any], Json]

PLAIN = frozenset({bool, int, str, type(None)})
_NUMBERS_AND_TEXT = PLAIN | {float}
_NUMBERS = PLAIN - {str}
CONTAINERS = frozenset({dict, list, set})
TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
ALL = "*"  # any name, for code that can compose names at run time
NAMESPACES = (torch._ops._OpNamespace, torch._ops._Ops)
TORCH_OPERATORS = frozenset({"aten", "prims", "prim", "higher_order"})
STATE_OF_LOGGERS = frozenset({"level", "disabled", "handlers", "parent", "propagate", "manager", "root"})
"""Names, in code or in its strings, that can lead to the state of a logger, which is compared then."""
OF_LOGGERS = frozenset(("isEnabledFor", "getEffectiveLevel", "hasHandlers", "get_verbosity", "getLevelName"))
"""Functions that read the state of a logger."""

_LIMIT = 100_000  # objects in one walk
_MANY = 100  # attributes
HEAP = 1 << 9  # Py_TPFLAGSHEAPTYPE: a static C type has no attributes that can be set
_COLLECTIONS = 3 << 5  # Py_TPFLAGS_SEQUENCE and Py_TPFLAGS_MAPPING, which ABC registration sets and match reads
_NOTHING = object()
_FX = torch.fx._symbolic_trace.__file__
_DYNAMO = tuple(f"{os.path.dirname(torch.__file__)}{os.sep}{name}" for name in ("_dynamo", "_compile.py"))  # noqa: PTH120

_builtins_of = operator.attrgetter("__builtins__")  # FunctionType.__builtins__, which mypy knows or not
_DERIVED = frozenset({"__dict__", "__weakref__", "__slotnames__", "__annotations__", "__firstlineno__"})
"""Class attributes that Python derives, and annotations; code that reads annotations is refused."""

_PYDANTIC = frozenset(
    (
        *("__pydantic_core_schema__", "__pydantic_validator__", "__pydantic_serializer__", "__signature__"),
        *("__pydantic_setattr_handlers__", "__pydantic_parent_namespace__", "__pydantic_fields_complete__"),
    )
)
"""Class attributes that pydantic derives from the fields of a class, which are described."""

SETS = frozenset(
    (
        *("_non_persistent_buffers_set", "_no_split_modules", "_skip_keys_device_placement", "_keep_in_fp32_modules"),
        *("_keep_in_fp32_modules_strict", "_keys_to_ignore_on_load_missing", "_keys_to_ignore_on_load_unexpected"),
        *("_keys_to_ignore_on_save", "all_tied_weights_keys", "__abstractmethods__", "__pydantic_fields_set__"),
        *("__required_keys__", "__optional_keys__", "__readonly_keys__", "__mutable_keys__"),
        *("__class_vars__", "_compilable_calls", "_tp_plan_keys", "_ep_plan_keys", "__protocol_attrs__"),
    )
)
"""Sets of strings that torch, Python, transformers and pydantic own. They are compared without order."""

EXEMPT = {
    "diffusers": frozenset(("_use_default_values", "_name_or_path", "_diffusers_version")),
    "configuration": frozenset(("_name_or_path", "_commit_hash", "transformers_version", "name_or_path")),
    "model": frozenset(("name_or_path", "generation_config", "warnings_issued", "_original_object_hash")),
}
"""Irrelevant attributes of exact configuration and model classes: origins of checkpoints, generation options."""

WATCHED = frozenset().union(*EXEMPT.values())
_HOOKS = frozenset(name for name, value in vars(torch.nn.Module()).items() if isinstance(value, (dict, set)))
_WEIGHT_LISTS = frozenset({"_flat_weights", "_flat_weight_refs"})
_APART = frozenset({"_modules", "_parameters", "_buffers", "training"})
_STATE_HOOKS = frozenset(("_state_dict_hooks", "_state_dict_pre_hooks"))
_WITH_VALUES = {
    name: getattr(torch.nn.Module, name)
    for name in (
        *("state_dict", "_save_to_state_dict", "get_extra_state", "named_parameters", "parameters", "named_buffers"),
        *("buffers", "_named_members"),
    )
}
"""torch's own methods that torch.export calls with the weights, whose values a description leaves out."""
_ADDRESSES = frozenset({"_torchdynamo_wrapper_id"})  # torch._dynamo notes the id of a wrapper: another in each process
_BASES = (dict, list, tuple, set, frozenset, str, int, float, bytes, collections.OrderedDict)
_class_dict = type.__dict__["__dict__"].__get__
_class_mro = type.__dict__["__mro__"].__get__
_class_qualname = type.__dict__["__qualname__"].__get__
_class_module = type.__dict__["__module__"].__get__
_BUILTINS = (types.BuiltinFunctionType, type(re.compile("").match))  # Include/methodobject.h: PyCMethod_Type
_C_DESCRIPTORS = frozenset(
    (types.MethodDescriptorType, types.ClassMethodDescriptorType, WrapperDescriptorType, GetSetDescriptorType)
) | {MemberDescriptorType, *_BUILTINS}


class UnstableError(Exception):
    """An object has no stable description.

    Attributes:
        path: the steps to it, the last first.
        what: the object, in words.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.path: list[str] = []
        self.what = what

    def below(self, step: object) -> UnstableError:
        """Add a step towards the root, and return the error."""
        self.path.append(str(step))
        return self

    def __str__(self) -> str:
        return f"{'.'.join(reversed(self.path)) or 'it'} has no stable value ({self.what})"


class Walk:
    """One traversal of objects, with the table of the objects visited so far.

    Attributes:
        state: weights and buffers of the model, by name.
        spaces: modules that were visited as objects, by name: code can read any attribute of them.
        classes: classes that were described in full.
        texts: all strings that were visited.
        codes: code objects that were described, by identity.
        caches: ``functools.lru_cache`` wrappers that were visited, in order.
        unstable: attributes of installed classes that have no stable value, by name.
        has_exempt: whether an irrelevant attribute was left out.
        has_unordered: whether a set of several strings was described without its order.
        loggers: loggers that were visited, by name.
        has_look_up: whether ``getattr`` or a similar function was visited as an object, so that names can be composed.
        has_set: whether a set was visited, of which code can create others.
        has_mutable_set: whether one was visited that code can change.
        has_view: whether a dictionary's method ``keys`` or ``items`` was visited as an object.
        has_set_operator: whether a function that creates sets of such views was visited as an object.
        has_output: whether ``print`` or ``warnings.warn`` was visited as an object.
        is_tolerant: whether an object without a description is written by its type alone.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        """Record the paths of a model's modules and weights."""
        self._memo: dict[int, int] = {}
        self._unpatched: set[type] = set()  # classes of builds without methods of others
        self._owners = _Owners()
        self._registries: dict[type, list[Json]] = {}
        self._loaded = len(sys.modules)
        self._alive: list[object] = []  # the identity of a freed object could be reused
        self._weights: dict[int, str] = {}
        self._modules: dict[int, str] = {}
        self._memories: dict[int, str] = {}
        self.is_tolerant = False
        self.has_exempt = False
        self.has_unordered = False
        self.has_look_up = False
        self.has_output = False
        self.has_set = False
        self.has_mutable_set = False
        self.has_view = False
        self.has_set_operator = False
        self.loggers: dict[str, logging.Logger] = {}
        self.state: dict[str, torch.Tensor] = {}
        self.spaces: dict[str, ModuleType] = {}
        self.classes: dict[type, None] = {}
        self.texts: set[str] = set()
        self.codes: dict[int, types.CodeType] = {}
        self.caches: list[Any] = []
        self.unstable: dict[str, UnstableError] = {}
        self._place(model, "", set())
        for name, tensor in self.state.items():
            if tensor.layout == torch.strided:
                self._memories.setdefault(tensor.untyped_storage()._cdata, name)

    def _place(self, module: torch.nn.Module, path: str, above: set[int]) -> None:
        if id(module) in above:
            raise UnstableError("a module inside itself").below(path)
        self._modules.setdefault(id(module), path)
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                full = f"{path}.{name}" if path else name
                self.state[full] = tensor
                self._weights.setdefault(id(tensor), full)
        above.add(id(module))
        for name, inner in module._modules.items():
            if inner is not None:
                self._place(inner, f"{path}.{name}" if path else name, above)
        above.discard(id(module))

    def apart(self) -> _Apart:
        """Describe objects in a ``with`` block independently of others, and forget them afterwards, as a copy does."""
        return _Apart(self)

    def fork(self) -> Walk:
        """Return an independent copy of this walk."""
        other = object.__new__(Walk)
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if isinstance(value, (dict, list, set)) else value)
        other._unpatched = set()  # modules may have been imported since
        other._owners = _Owners()
        if len(sys.modules) != self._loaded:  # they register classes
            other._registries, other._loaded = {}, len(sys.modules)
        return other

    # Any object.

    def value(self, value: Any) -> Json:
        """Describe an object.

        Raises:
            UnstableError: it, or something in it, has no description.
        """
        kind = type(value)
        if kind in PLAIN:
            if kind is str:
                self.texts.add(value)
            plain: Json = value
            return plain
        if (number := self._memo.get(id(value))) is not None:
            return ["same", number]
        writer = WRITERS.get(kind) or _find_writer(kind)
        before = self._mark() if self.is_tolerant else ()
        if kind not in _WITHOUT_IDENTITY:
            self._memo[id(value)] = len(self._alive)
            self._alive.append(value)
            if len(self._alive) > _LIMIT:
                raise UnstableError(f"more than {_LIMIT} objects")
        try:
            return writer(self, value)
        except UnstableError as error:
            if not self.is_tolerant:
                raise
            self._undo(before)
            self.unstable.setdefault(ALL, error)
            return ["opaque", kind.__module__, kind.__qualname__]
        except RecursionError:
            raise UnstableError("nested too deeply") from None

    def _mark(self) -> tuple[int, ...]:
        return len(self._alive), len(self.codes), len(self.spaces), len(self.classes), len(self.caches)

    def _undo(self, before: tuple[int, ...]) -> None:
        """Remove the objects visited in an object whose description failed: only described objects are referenced."""
        for value in self._alive[before[0] :]:
            del self._memo[id(value)]
        del self._alive[before[0] :], self.caches[before[4] :]
        for met, size in zip((self.codes, self.spaces, self.classes), before[1:4], strict=True):
            while len(met) > size:  # type: ignore[arg-type]  # three dictionaries
                met.popitem()  # type: ignore[attr-defined]

    def pairs(self, items: Iterable[tuple[Any, Any]], owner: type | None = None) -> Json:
        """Describe keys and values in order; with an owner, those of an instance's dictionary."""
        written: list[Json] = []
        skipped: frozenset[str] = frozenset() if owner is None else _exempt(owner)
        for key, value in items:
            if key.__class__ is str and key in skipped:
                self.has_exempt = True
                continue
            try:
                if type(key) is str:
                    self.texts.add(key)
                    said: Json = key
                else:
                    said = self.value(key)
                if owner is not None and type(value) in _SETS and _owns(owner, key):
                    written.append([said, self._strings_of(value)])
                else:
                    written.append([said, value if type(value) in _NUMBERS else self.value(value)])
            except UnstableError as error:
                raise error.below(key) from None
        return written

    def _strings_of(self, value: Collection[Any]) -> Json:
        self.has_unordered |= len(value) > 1
        return [*sorted(map(str, value))]

    def items(self, values: Iterable[Any]) -> list[Json]:
        """Describe the items of a sequence."""
        written: list[Json] = []
        for place, value in enumerate(values):
            try:
                written.append(self.value(value))
            except UnstableError as error:
                raise error.below(place) from None
        return written

    # Classes and functions.

    def a_class(self, cls: type) -> Json:  # noqa: C901  # a build's classes and others
        """Describe a class: one of a build by its name and by later changes, any other in full."""
        space, qualname = _class_dict(cls), _class_qualname(cls)
        module, is_static = str(_class_module(cls)), not cls.__flags__ & HEAP
        if cls in _LOOK_UPS:
            self.has_look_up = True
        if cls in _SETS:
            raise UnstableError(f"{qualname}, which can create one whose order differs in each process")
        if is_build_module(module) and (lookup(module, qualname) is cls or (is_static and cls in _STATIC)):
            written: list[Json] = ["class", module, qualname]
            if is_static:
                return written
            bases = [base for base in _class_mro(cls)[1:-1] if base.__flags__ & HEAP]
            more: list[Json] = [self._registry(cls)] if "_abc_impl" in space else []
            return [*written, scan(space, self, qualname), *more, self.items(bases)]
        if _is_c_type(cls):
            raise UnstableError(f"{module}.{qualname}, a type of a C extension")
        self.classes.setdefault(cls)
        is_pydantic = any(lookup("pydantic.main", "BaseModel") is base for base in _class_mro(cls))
        attributes: dict[str, Json] = {}
        for name, value in list(space.items()):
            if name in _DERIVED or (is_pydantic and name in _PYDANTIC):
                continue
            before = self._mark()
            try:
                if name == "_abc_impl":
                    attributes[name] = self._registry(cls)
                elif name == "__doc__":
                    attributes[name] = _text_digest(value) if type(value) is str else self.value(value)
                elif type(value) in _SETS and _owns(cls, name):
                    attributes[name] = self._strings_of(value)
                elif name[:2] == "__" and type(value) in _SLOTS:  # an enum has its type's __format__
                    attributes[name] = _name_of_slot(self, value)
                else:
                    attributes[name] = self.value(value)
            except UnstableError as error:
                error.below(f"{qualname}.{name}")
                if name[:2] == "__" or not is_installed(module):
                    raise error from None
                self._undo(before)
                self.unstable.setdefault(name, error)  # counts if code that ran looks up the name
                attributes[name] = ["unstable", type(value).__qualname__]
        node = pytree.SUPPORTED_NODES.get(cls)
        nested = node and [self.value(one) for one in (node.flatten_fn, node.unflatten_fn, node.flatten_with_keys_fn)]
        names: list[Json] = [module, qualname, str(type.__dict__["__name__"].__get__(cls))]
        names += [cls.__flags__ & _COLLECTIONS, self._annotations(cls, space.get("__annotations__"))]
        bases = [base for base in _class_mro(cls)[1:] if base not in _SETS]
        return ["class", *names, self.value(type(cls)), self.items(bases), attributes, nested]

    def _registry(self, cls: type) -> list[Json]:
        """Describe the classes registered with an abstract base class, and with those derived from it.

        Classes of installed libraries do not count for a build's: libraries register theirs when they are imported.
        """
        if (known := self._registries.get(cls)) is not None:
            return known
        _abc._reset_caches(cls)  # isinstance keeps what a __subclasshook__ has returned, and would not call it again
        written = [*self._entries_of(cls)]
        has_names_only = all(type(entry) is str for entry in written)
        derived: list[type] = type.__subclasses__(cls)  # of abc.ABC a thousand
        below, dump, hook = type.__subclasses__, _abc._get_dump, "__subclasshook__"
        derived = [kind for kind in derived if dump(kind)[0] or below(kind) or hook in _class_dict(kind)]
        for kind in sorted(derived, key=_full_name):
            module = str(_class_module(kind))
            if hook in _class_dict(kind) and is_own(module):
                has_names_only = False
                written.append(self.value(kind))
            elif more := self._registry(kind):
                has_names_only &= kind in self._registries
                written.append([_full_name(kind), *more])
        if has_names_only:  # the number of an object that was visited before holds only here
            self._registries[cls] = written
        return written

    def _entries_of(self, cls: type) -> Iterator[Json]:
        registered = [entry for reference in _abc._get_dump(cls)[0] if (entry := reference()) is not None]
        is_build = is_build_module(_class_module(cls))
        for kind in sorted(registered, key=_full_name):
            module = _class_module(kind)
            has_file = hasattr(sys.modules.get(module), "__file__")  # Cython shares types in a module without one
            if is_own(module) and not (_is_c_type(kind) and not has_file and is_build):
                yield self.value(kind)
            elif not is_build or (is_build_module(module) and not _full_name(kind).startswith(_REGISTERED_LATE)):
                yield _full_name(kind)

    def function(self, function: FunctionType) -> Json:
        """Describe a function: its code, closure, defaults and attributes."""
        function = _unwrap_fx(function)
        _refuse_other_builtins(function)
        code, space = function.__code__, function.__globals__
        if file_is_build(code.co_filename):
            inner = unwrap(function)
            name, qualname = str(inner.__globals__.get("__name__")), inner.__code__.co_qualname
            if lookup(name, qualname) in (function, inner) and is_build_module(name) and is_in_its_module(inner):
                refuse_unseen_state(inner)
                return ["function", name, qualname, *_shallow(inner, self)]
        self.codes |= codes_in(code)
        home = module_with(space)
        notes = self._annotations(function, function.__annotations__)
        written: list[Json] = ["function", str(space.get("__name__")), function.__qualname__, {"code": content(code)}]
        written += [notes, function.__name__, self.value(function.__module__)]
        doc = function.__doc__
        if type(doc) is not str or not code.co_consts or doc != code.co_consts[0]:
            written.append(["doc", _text_digest(doc) if doc is None or type(doc) is str else self.value(doc)])
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                written.append(self.value(cell))
            except UnstableError as error:
                raise error.below(f"{function.__qualname__}.{name}") from None
        if function.__defaults__ or function.__kwdefaults__:
            written.append(self.items(function.__defaults__ or ()))
            written.append(self.pairs((function.__kwdefaults__ or {}).items()))
        if own := {name: one for name, one in vars(function).items() if name not in _ADDRESSES}:
            written.append({"set": self.pairs(own.items())})
        if home is None and not file_is_build(code.co_filename):
            names = dict.fromkeys(name for one in within(code) for name in one.co_names)
            written.append(self.pairs([(one, space[one]) for one in names if one in space and one != "__builtins__"]))
        return written

    def _annotations(self, owner: Any, annotations: Any) -> Json:
        """Describe the annotations in the user's own files, which code can read under a composed name."""
        if not annotations or is_installed(owner.__module__):
            return None
        is_tolerant, self.is_tolerant = self.is_tolerant, True
        try:
            return self.value(annotations)
        finally:
            self.is_tolerant = is_tolerant

    # Instances.

    def instance(self, value: Any) -> Json:
        """Describe an instance of a Python class: its class, dictionary, slots and items.

        Raises:
            UnstableError: it has other state.
        """
        cls = type(value)
        form = layout(cls)  # type: ignore[arg-type]  # classes are hashed by identity
        if form is None:
            raise UnstableError(f"type {cls.__module__}.{cls.__qualname__}")
        base, read_dict, slots = form
        written: list[Json] = ["object", self.value(cls)]
        held: list[object] = [cls]
        if base is not None:
            contents, said = _contents(self, value, base, cls)
            held += contents
            written.append(said)
        space: dict[str, Any] = {} if read_dict is None else read_dict(value)
        held.append(space)
        state = list(space.items())
        for descriptor in slots:
            found = _read(descriptor, value)
            if found is not _NOTHING:
                state.append((descriptor.__name__, found))
                held.append(found)
        known = set(map(id, held))
        if any(id(one) not in known for one in gc.get_referents(value)):
            raise UnstableError(f"type {cls.__module__}.{cls.__qualname__} with hidden state")
        written.append(self.pairs(state, cls))
        return written

    # Tensors.

    def tensor(self, value: torch.Tensor) -> Json:
        """Describe a tensor by its content, and a weight of the model by its name as well."""
        if torch._C._len_torch_dispatch_stack():  # an export is tracing: read the tensor, do not trace that
            with _disable_current_modes():
                return self.tensor(value)
        if value.layout != torch.strided or value.device.type == "meta" or type(value) not in TENSORS:
            raise UnstableError("a tensor without values or strides")
        name = self._weights.get(id(value))
        if name is not None:  # anywhere but in its own attribute, torch.export treats it as a constant
            return ["weight", name, Content.of(value).digest]
        storage = value.untyped_storage()
        whose: list[Json] = [self.memory(storage._cdata)]
        if storage.nbytes() != value.nbytes and value.device.type == "cpu":  # memory around a view can be read as well
            whose.append(Content.of(torch.empty(0, dtype=torch.uint8).set_(storage)).digest)
        return ["tensor", *whose, *like(value), Content.of(value).digest, self.pairs(vars(value).items())]

    def number(self, value: object) -> int:
        """Return the number of an object in the table of visited objects, adding it if it is new."""
        if (number := self._memo.get(id(value))) is None:
            number = self._memo[id(value)] = len(self._alive)
            self._alive.append(value)
        return number

    def input(self, value: Any) -> Json:
        """Describe an argument: a tensor without its values, with its identity among weights and other arguments."""
        if type(value) not in TENSORS or value.layout != torch.strided or value.device.type == "meta":
            return self.value(value)
        number = self.number(value)
        own = {name: one for name, one in vars(value).items() if name != "_specialize_on" or any(one.values())}
        marks = self.pairs(own.items()) if own else None  # torch.export leaves an empty _specialize_on
        whose = self.memory(value.untyped_storage()._cdata)
        return ["input", *like(value), whose, marks, self._weights.get(id(value)), number]

    def memory(self, address: int) -> str:
        """Return the name of a tensor's or array's memory: that of a weight in it, or a number."""
        return self._memories.setdefault(address, f"memory {len(self._memories)}")

    # The model.

    def model(self, model: torch.nn.Module) -> Json:
        """Describe a model with all its modules, each at its first path."""
        written: dict[str, Json] = {}
        self._module(model, "", written)
        return written

    def _module(self, module: torch.nn.Module, path: str, written: dict[str, Json]) -> None:
        if (first := self._modules[id(module)]) != path:
            written[path] = {"same": first}
            return
        try:
            written[path] = self._attributes(module)
        except UnstableError as error:
            raise error.below(path) from None if path else error
        for name, inner in module._modules.items():
            if inner is not None:
                self._module(inner, f"{path}.{name}" if path else name, written)

    def _attributes(self, module: torch.nn.Module) -> Json:  # noqa: C901  # one case for each kind of attribute
        kind = type(module)
        form = layout(kind)  # type: ignore[arg-type]  # classes are hashed by identity
        base, read_dict, slots = form or (object, None, ())
        if base is not None or read_dict is None:
            raise UnstableError(f"type {kind.__qualname__}, which is more than a module")
        methods = {name: getattr(kind, name) for name in _WITH_VALUES}
        if changed := [name for name, one in methods.items() if one is not _WITH_VALUES[name] and is_of_user(one)]:
            raise UnstableError(f"{kind.__qualname__}.{changed[0]}, which torch.export calls with the weights")
        space = read_dict(module)
        held = [(one.__name__, found) for one in slots if (found := _read(one, module)) is not _NOTHING]
        if slots:
            if hidden := {one.__name__ for one in slots} & (_APART | _HOOKS | space.keys()):
                raise UnstableError(f"type {kind.__qualname__}, in which a slot hides {min(hidden)}")
            if len(dict(held)) < len(held):
                raise UnstableError(f"type {kind.__qualname__} with two slots of one name")
        known = {id(kind), id(space), *(id(found) for _, found in held)}
        if any(id(one) not in known for one in gc.get_referents(module)):
            raise UnstableError(f"type {kind.__qualname__} with hidden state")
        written: dict[str, Json] = {
            "class": self.value(kind),
            "training": self.value(module.training),
            "modules": [name if one is not None else [name] for name, one in module._modules.items()],
        }
        skipped = _exempt(kind)  # type: ignore[arg-type]  # classes are hashed by identity
        for name, value in (*space.items(), *held):
            if name in _APART or (name in _HOOKS and not value and not getattr(value, "__dict__", None)):
                continue
            if name in skipped:
                self.has_exempt = True
                continue
            if name in _WITH_VALUES or (name in _STATE_HOOKS and any(map(is_of_user, value.values()))):
                raise UnstableError("code that torch.export calls with the weights").below(name)
            try:
                if name in _WEIGHT_LISTS and (names := self._weight_names(value)) is not None:
                    written[f".{name}"] = names
                elif type(value) in _SETS and _owns(kind, name):
                    written[f".{name}"] = self._strings_of(value)
                elif type(value) in _NUMBERS:
                    written[f".{name}"] = value
                else:
                    written[f".{name}"] = self.value(_rank(space, value) if name in _HOOKS else value)
            except UnstableError as error:
                raise error.below(name) from None
        for name, tensor in module._parameters.items():
            written[f"weight {name}"] = None if tensor is None else self._weight(name, tensor)
        for name, tensor in module._buffers.items():  # type: ignore[assignment]  # a buffer is no Parameter
            is_saved = name not in module._non_persistent_buffers_set
            described = None if tensor is None else [self._weight(name, tensor), is_saved]
            if described is not None and tensor is not None and not is_saved:
                if tensor.device.type == "meta":
                    raise UnstableError("a tensor without values").below(name)
                described.append(Content.of(tensor).digest)
            written[f"buffer {name}"] = described
        return written

    def _weight_names(self, value: Any) -> Json:
        """Describe the list in which torch's recurrent layers keep their weights a second time."""
        tensors = [item() if type(item) is weakref.ref else item for item in value]
        names: list[Json] = [None if tensor is None else self._weights.get(id(tensor)) for tensor in tensors]
        return None if None in names else names

    def _weight(self, name: str, tensor: torch.Tensor) -> Json:
        """Describe a weight without its values, so that a retrained model has the same description."""
        if type(tensor) not in TENSORS or tensor.layout != torch.strided:
            raise UnstableError(f"type {type(tensor).__qualname__}").below(name)
        storage = tensor.untyped_storage()
        where = self._memories.setdefault(-tensor.data_ptr() - 1, name)
        marks = self.pairs(vars(tensor).items()) if vars(tensor) else None
        return [*like(tensor), self.memory(storage._cdata), where, storage.nbytes(), marks, self._weights[id(tensor)]]


_FLAGS = (
    "is_tolerant",
    "has_unordered",
    "has_exempt",
    "has_look_up",
    "has_output",
    "has_set",
    "has_mutable_set",
    "has_view",
    "has_set_operator",
)


class _Apart:
    """A ``with`` block in which a walk describes objects that it forgets afterwards."""

    __slots__ = ("before", "flags", "memories", "tables", "walk")

    def __init__(self, walk: Walk) -> None:
        self.walk = walk

    def __enter__(self) -> None:
        walk = self.walk
        self.before, self.memories = walk._mark(), len(walk._memories)
        self.flags = {name: getattr(walk, name) for name in _FLAGS}
        self.tables = (walk.texts, walk.loggers, walk.unstable)
        walk.texts, walk.loggers, walk.unstable = set(), walk.loggers.copy(), walk.unstable.copy()

    def __exit__(self, *_: object) -> None:
        walk = self.walk
        if walk._mark() != self.before:
            walk._undo(self.before)
        while len(walk._memories) > self.memories:
            walk._memories.popitem()
        vars(walk).update(self.flags)
        walk.texts, walk.loggers, walk.unstable = self.tables


# Changes to torch, NumPy and Python by other code.


def _unwrap_fx(function: FunctionType) -> FunctionType:
    """Return the function inside torch.fx.wrap's wrapper, installed while torch traces."""
    if function.__code__.co_filename == _FX and type(vars(function).get("__wrapped__")) is FunctionType:
        wrapped: FunctionType = vars(function)["__wrapped__"]
        return wrapped
    return function


def _refuse_other_builtins(function: FunctionType) -> None:
    own = _builtins_of(function)
    if own and own is not vars(builtins):  # the constructor of a named tuple has none
        raise UnstableError("a function with builtins of its own")


def unwrap(function: FunctionType) -> FunctionType:
    """Return the function inside torch._dynamo's wrappers, which its import installs on some functions of torch."""
    inner = function.__dict__.get("__wrapped__")
    if type(inner) is FunctionType and function.__code__.co_filename.startswith(_DYNAMO):
        return unwrap(inner)
    return function


def _shallow(function: FunctionType, walk: Walk) -> list[Json]:
    """Describe the defaults of a build's function, and attributes that were set on it."""
    code, doc, space = function.__code__, function.__doc__, function.__dict__
    written: list[Json] = [code.co_firstlineno]
    if (values := function.__defaults__) is not None:
        written += map(_default, values)
    if function.__kwdefaults__:
        written += map(_default, function.__kwdefaults__.values())
    if doc is not None and not (code.co_consts and doc is code.co_consts[0]):
        written.append(_text_digest(doc) if type(doc) is str else walk.value(doc))
    if function.__closure__ is not None:
        written += _cells(function, walk)
    if space:
        own = {name: one for name, one in space.items() if name[:2] != "__" and type(one) in _SETTABLE}
        if own := {name: one for name, one in own.items() if not name.startswith("_torch")}:
            written.append(walk.pairs(own.items()))
        if type(inner := space.get("__wrapped__")) is FunctionType:
            written += _shallow(inner, walk)
    return written


def _cells(function: FunctionType, walk: Walk) -> Iterator[Json]:
    """Yield the functions in the closure of a build's function, which other code can replace.

    Those of trtcache are left out: a recording in another thread wraps calls of modules.
    """
    is_ours = function.__code__.co_filename.startswith(OURS)
    for cell in () if is_ours else function.__closure__ or ():
        value: Any = next(iter(gc.get_referents(cell)), None)  # an empty cell raises an exception when it is read
        if type(value) is FunctionType:
            is_own = file_owner(value.__code__.co_filename) == MODEL
            yield walk.value(value) if is_own else [value.__code__.co_qualname, *_other_globals(value)]
        elif type(value) in _BUILTINS or type(value) in _C_DESCRIPTORS:
            yield value.__qualname__


def _default(value: Any) -> Json:
    kind = type(value)
    if kind is tuple:  # a list is state: logging.shutdown has that of all handlers
        return [*map(_default, value)]
    return repr(value) if kind in _SHOWN else kind.__qualname__


_SHOWN = frozenset({bool, int, float, str, type(None), torch.dtype, torch.device})
_SETTABLE = PLAIN | {float, list, dict, tuple, set, torch.Tensor, FunctionType}


class _Owners(dict[str, str]):
    """Owners of builds' modules: one has thousands of attributes from a hundred modules."""

    def __missing__(self, name: str) -> str:
        owner = module_owner(name)
        if owner != MODEL:  # that of a module which is not loaded
            self[name] = owner
        return owner


def scan(  # noqa: C901  # one case for each kind
    space: Mapping[str, Any], walk: Walk, owner: str = "", *, is_read: bool = False
) -> list[Json]:
    """Describe attributes of a build's module or class that other code has added or replaced.

    Args:
        space: its attributes.
        walk: describes values that are not the build's own.
        owner: the name of the class, whose functions under their own names are left out.
        is_read: whether code that ran reads these attributes, so that private ones count.
    """
    written: list[Json] = []
    owners = walk._owners
    pairs = list(space.items())  # another thread may import more of torch meanwhile
    if len(pairs) > _MANY:  # the module torch has 1,000 functions in C, under their own names
        homes = {value.__module__ for _, value in pairs if type(value) is types.BuiltinFunctionType}
        homes = {home for home in homes if home in _BUILTIN or owners[str(home)] != MODEL}
        pairs = [
            pair
            for pair in pairs
            if type(pair[1]) is not types.BuiltinFunctionType
            or pair[1].__name__ != pair[0]
            or pair[1].__module__ not in homes
        ]
    for name, value in pairs:
        kind = type(value)
        if kind is FunctionType or kind in _WRAPPED or kind is functools._lru_cache_wrapper:
            parts = (value,) if kind is FunctionType else filter(None, _functions(value))
            written += [[name, said] for part in parts if (said := _function(part, walk, name, owner)) is not None]
        elif kind in _C_DESCRIPTORS:
            if getattr(value, "__module__", None) not in _BUILTIN and owners[str(_home(value))] == MODEL:
                written.append([name, walk.value(value)])
            elif value.__name__ != name:
                written.append([name, value.__qualname__])
        elif kind in PLAIN or kind is float or kind is re.Pattern:
            if name == "__doc__" and owner:
                written.append([name, _text_digest(value)])
            elif name[:1] != "_" or ((owner or is_read) and name[:2] != "__"):
                written.append([name, walk.value(value)])
        elif issubclass(kind, type):
            if owners[value.__module__] == MODEL:
                written.append([name, walk.value(value)])
            else:
                if value.__flags__ & HEAP and lookup(value.__module__, value.__qualname__) is not value:
                    written.append([name, [_full_name(value), "not in its module", *sorted(vars(value))]])
                elif value.__name__ != name:
                    written.append([name, _full_name(value)])
                if is_read and "_abc_impl" in _class_dict(value):
                    written.append([name, walk._registry(value)])
                if not owner and value not in walk._unpatched:
                    if patched := list(patches(value, walk)):
                        written.append([name, patched])
                    else:
                        walk._unpatched.add(value)
        elif kind in {tuple, list, dict}:
            if owner and (name[:2] != "__" or all(type(one) in PLAIN for one in value)) and name not in _DERIVED:
                written.append([name, walk.value(value)])
            elif is_read:  # others are added to a table while torch and Python run
                written += [[name, walk.value(one)] for one in _own_among(value.values() if kind is dict else value)]
        elif issubclass(kind, ModuleType):
            if not _is_loaded(value):
                raise UnstableError(f"another module {value.__name__} than the one that is loaded").below(name)
            if owners[value.__name__] == MODEL:
                written.append([name, walk.value(value)])
            elif value.__name__.rpartition(".")[2] != name:
                written.append([name, value.__name__])
        elif kind in _PARTIALS or owners[kind.__module__] == MODEL:
            written.append([name, walk.value(value)])
        elif name[:1] != "_" or is_read:
            written.append([name, kind.__module__, kind.__qualname__])
            if is_read and type(own := getattr(value, "__dict__", None)) is dict:
                more = {key: one for key, one in own.items() if type(one) in PLAIN or _is_own(one)}
                written.append(walk.pairs(more.items()))
    return written


def _function(part: Any, walk: Walk, name: str, owner: str) -> Json:
    """Describe a function in a build's module or class; None if it is the build's own, under its name in its class."""
    if type(part) is not FunctionType or file_owner(part.__code__.co_filename) == MODEL:
        return walk.value(part)
    part = unwrap(part)
    qualname = part.__code__.co_qualname
    if owner and qualname == f"{owner}.{name}" and not part.__defaults__ and not vars(part):
        return [*_cells(part, walk), *_other_globals(part)] or None
    return [qualname, *_shallow(part, walk), *_other_globals(part)]


def _other_globals(function: FunctionType) -> list[Json]:
    """Return a mark if a function of a build looks names up elsewhere than in its module."""
    return [] if is_in_its_module(function) else ["other globals"]


def patches(cls: type, walk: Walk) -> Iterator[Json]:
    """Yield the methods of a build's class that files outside of the build define."""
    space = vars(cls).copy()
    if CODE.isdisjoint(map(type, space.values())):  # most classes in C
        return
    code = [pair for pair in space.items() if type(pair[1]) in CODE]
    files = set(map(_FILE_OF, [value for _, value in code if type(value) is FunctionType]))
    if all(file_owner(file) != MODEL for file in files):
        code = [pair for pair in code if type(pair[1]) is not FunctionType]
    for name, value in code:
        for part in _functions(value):
            if type(part) is FunctionType and file_owner(part.__code__.co_filename) == MODEL:
                yield [name, walk.value(part)]


def _is_own(value: Any) -> bool:
    """Return whether a value is a function or a class that no build defines."""
    if type(value) is FunctionType:
        return file_owner(value.__code__.co_filename) == MODEL
    return _is_code(type(value)) and not is_build_module(value.__module__)


def _is_loaded(module: ModuleType) -> bool:
    """Return whether a module is the one of its name, or of the name that it was imported by.

    ``_collections_abc`` calls itself ``collections.abc``; torch puts some modules inside of others, as ``m``.
    """
    known = sys.modules.get(module.__name__, module)
    spec = vars(module).get("__spec__")
    return module in {known, vars(known).get("m"), sys.modules.get(getattr(spec, "name", ""))}


def _is_code(kind: type) -> bool:
    """Return whether objects of a type are functions or classes."""
    return kind is FunctionType or issubclass(kind, type)


def _own_among(values: Collection[Any]) -> list[Any]:
    """Return the functions and classes among values that no build defines."""
    kinds = {kind for kind in set(map(type, values)) if _is_code(kind)}
    if FunctionType in kinds:  # tables of decompositions have thousands, of a few files
        functions = [one for one in values if type(one) is FunctionType]
        if all(file_owner(file) != MODEL for file in set(map(_FILE_OF, functions))):
            kinds.discard(FunctionType)
    return [one for one in values if type(one) in kinds and _is_own(one)] if kinds else []


_FILE_OF = operator.attrgetter("__code__.co_filename")
_BUILTIN = frozenset({None, "builtins"})
_PARTIALS = frozenset({functools.partial, functools.partialmethod})
_WRAPPED = frozenset({staticmethod, classmethod, property})
CODE = _WRAPPED | {FunctionType}


def _home(value: Any) -> object:
    owner = getattr(value, "__objclass__", None)
    return owner.__module__ if owner is not None else getattr(value, "__module__", None)


def _functions(value: Any) -> tuple[Any, ...]:
    if type(value) is property:
        return (value.fget, value.fset, value.fdel)
    if type(value) is functools._lru_cache_wrapper:
        return (value.__wrapped__,)
    return (value.__func__,) if type(value) in _WRAPPED else (value,)


def _text_digest(text: str | None) -> str | None:
    return None if text is None else hash_bytes(text.encode(errors="backslashreplace")).hex()[:32]


_REGISTERED_LATE = ("sqlite3.", "numpy.random.")
"""Modules that register their classes with Python's when they are imported, as torch's first export does."""


def _full_name(cls: type) -> str:
    return f"{_class_module(cls)}.{_class_qualname(cls)}"


def _is_c_type(cls: type) -> bool:
    """Return whether a class is defined in C."""
    return not cls.__flags__ & HEAP or any(
        type(one) in _C_DESCRIPTORS and _is_from_c(one, cls) for one in _class_dict(cls).values()
    )


def _is_from_c(descriptor: Any, cls: type) -> bool:
    """Return whether a descriptor is defined in C; ``__slots__`` creates descriptors for Python classes too."""
    if type(descriptor) is MemberDescriptorType or descriptor.__name__ in _DERIVED:
        return False
    return getattr(descriptor, "__objclass__", None) is cls


# Attributes of exact classes that are left out or compared without order.


def _owns(cls: type, name: str) -> bool:
    """Return whether torch, Python, pydantic or an exact class of transformers owns a set of strings."""
    if name not in SETS:
        return False
    is_any = name[:2] == "__" or name == "_non_persistent_buffers_set"
    return is_any or (
        cls.__module__.partition(".")[0] == "transformers" and lookup(cls.__module__, cls.__qualname__) is cls
    )


@functools.lru_cache(maxsize=4096)
def _exempt(cls: type) -> frozenset[str]:
    """Return the irrelevant attributes of exact classes of transformers and diffusers."""
    if lookup(cls.__module__, cls.__qualname__) is not cls:
        return frozenset()
    if cls.__module__ == "diffusers.configuration_utils":
        return EXEMPT["diffusers"]
    if cls.__module__.partition(".")[0] != "transformers":
        return frozenset()
    names = {base.__name__ for base in _class_mro(cls) if base.__module__.startswith("transformers.")}
    if names & {"PreTrainedConfig", "PretrainedConfig"}:
        return EXEMPT["configuration"]
    return EXEMPT["model"] if "PreTrainedModel" in names else frozenset()


def _rank(space: Mapping[str, Any], hooks: Any) -> Any:
    """Return hooks renumbered within their module: torch numbers the hooks of all modules in a process."""
    if not isinstance(hooks, dict):
        return hooks
    numbers = sorted({one for name in _HOOKS for one in space.get(name) or () if type(one) is int})
    ranked = type(hooks)() if type(hooks) in {dict, collections.OrderedDict} else {}
    ranked.update({numbers.index(key) if type(key) is int else key: one for key, one in hooks.items()})
    getattr(ranked, "__dict__", {}).update(getattr(hooks, "__dict__", {}))
    return ranked


def like(value: torch.Tensor) -> list[Json]:
    """Describe a tensor without its values and its memory."""
    flags: Json = [type(value).__name__, value.requires_grad, value.is_conj(), value.is_neg()]
    sizes: list[Json] = [list(value.shape), list(value.stride()), int(value.storage_offset())]
    return [str(value.dtype), str(value.device), *sizes, flags]


# Layouts of instances.

Layout = tuple["type | None", "Callable[[Any], dict[str, Any]] | None", tuple[Any, ...]]


@functools.lru_cache(maxsize=4096)
def layout(cls: type) -> Layout | None:
    """Return the built-in base, the dictionary's reader and the slots of a class's instances; None for a C type."""
    base, read_dict, slots = None, None, []
    for parent in _class_mro(cls)[:-1]:
        space = _class_dict(parent)
        if (descriptor := space.get("__dict__")) is not None:
            if type(descriptor) is not GetSetDescriptorType:
                return None  # Python code overrides the dictionary
            read_dict = read_dict or descriptor.__get__
        if parent in _BASES:
            base = base or parent
        elif not parent.__flags__ & HEAP or any(
            type(value) is WrapperDescriptorType and value.__objclass__ is parent for value in space.values()
        ):
            return None
        else:
            slots += [value for value in space.values() if type(value) is MemberDescriptorType]
    return base, read_dict, tuple(slots)


def _read(descriptor: Any, value: Any) -> Any:
    try:
        return descriptor.__get__(value)
    except AttributeError:
        return _NOTHING


def _contents(walk: Walk, value: Any, base: Any, cls: type) -> tuple[list[Any], Json]:
    """Return the items of an instance of a built-in's subclass, and their description."""
    if issubclass(base, dict):
        ordered: Any = collections.OrderedDict if issubclass(base, collections.OrderedDict) else dict
        pairs = list(ordered.items(value))  # move_to_end is in none of dict's
        return [one for pair in pairs for one in pair], walk.pairs(pairs, cls)
    if issubclass(base, (list, tuple)):
        values = list(base.__iter__(value))
        return values, walk.items(values)
    if issubclass(base, (set, frozenset)):
        values = list(base.__iter__(value))
        return values, _set(walk, base(values))
    readers: dict[Any, Any] = {int: int.__int__, str: str.__str__, float: float.__float__, bytes: bytes.__bytes__}
    return [], walk.value(readers[base](value))


# Writers of exact types.


def _set(self: Walk, value: Any) -> Json:
    if is_ordered(value):
        self.has_set = True
        self.has_mutable_set |= type(value) is set
        return ["set", type(value).__name__, *self.items(value)]
    raise UnstableError("a set of strings or objects, whose order differs in each process")


def _dict(self: Walk, value: Any) -> Json:
    if value is sys.modules:
        raise UnstableError("all modules")
    more = [self.value(value.default_factory)] if type(value) is collections.defaultdict else []
    if own := getattr(value, "__dict__", None):  # of an OrderedDict, such as state_dict()
        more.append(self.pairs(own.items()))
    if any(
        type(type(key).__hash__) is FunctionType and value.get(key, _NOTHING) is not one for key, one in value.items()
    ):
        raise UnstableError("a dictionary whose keys had other hashes")
    return [type(value).__name__, *more, self.pairs(list(value.items()))]


OUTPUTS = (print, warnings.warn, warnings.warn_explicit)
_BY_IDENTITY = (operator.is_, operator.is_not)
_LOOK_UPS = (getattr, hasattr, setattr, vars, operator.attrgetter, operator.methodcaller, super)


def _builtin(self: Walk, value: Any) -> Json:
    owner, module = value.__self__, getattr(value, "__module__", None)
    if value in _LOOK_UPS or value.__name__ in LOOK_UPS:
        self.has_look_up = True
    if type(owner) is functools._lru_cache_wrapper:
        raise UnstableError(f"{value.__name__} of a function's cache")
    if type(owner) in _NUMBERS_AND_TEXT and owner is not None:
        raise UnstableError(f"a method of {owner!r}, which is equal to itself alone")
    if value in _BY_IDENTITY or (type(owner) in _SETS and value.__name__ not in SET_METHODS):
        raise UnstableError(f"{value.__qualname__}, which compares by identity or creates a set")
    _refuse_unseen(value)
    if value in OUTPUTS:
        self.has_output = True
    if is_impure(value):
        raise UnstableError(f"{value.__qualname__}, a function that depends on the process or the machine")
    _note_set_operators(self, value)
    if module is not None and not is_build_module(module):
        raise UnstableError(f"{module}.{value.__qualname__}, a function of a C extension")
    is_method = type(value) is types.MethodWrapperType  # such as a module's __getattribute__
    if not is_method and (isinstance(owner, ModuleType) or owner is None or type(owner).__name__ == "PyCapsule"):
        return ["builtin", str(module), value.__qualname__]
    return ["builtin", str(module), value.__qualname__, self.value(owner)]


def _note_set_operators(self: Walk, value: Any) -> None:
    """Note functions that code could call to create a set: of views of dictionaries, and those that return a view."""
    name = value.__name__
    if name in VIEWS:
        self.has_view = True
    if name in SET_OPERATORS or name in {"iand", "ior", "ixor", "isub", "difference", "intersection"}:
        self.has_set_operator = True


def _refuse_unseen(value: Any) -> None:
    """Refuse a function of torch or Python that returns what is not described, such as ``torch.Tensor.is_pinned``."""
    if value.__name__ in SETS or (value.__name__ in UNSEEN and value.__name__[:2] != "__"):
        raise UnstableError(f"{value.__qualname__}, which reads what is not compared")


def _slot(self: Walk, value: Any) -> Json:
    if value.__name__ in _OF_OBJECTS:
        raise UnstableError(f"{value.__qualname__}, which depends on an object's identity")
    _refuse_unseen(value)
    _note_set_operators(self, value)
    return _name_of_slot(self, value)


_OF_OBJECTS = frozenset(("__hash__", "__eq__", "__ne__", "__repr__", "__str__", "__format__", "__mod__", "__rmod__"))
_OF_OBJECTS |= {"format", "format_map"}
"""Methods of objects, texts and numbers that show an address or a hash, or compare by identity."""


def _name_of_slot(self: Walk, value: Any) -> Json:
    """Describe a method of a type in C by its name; as a class's attribute it is called by its protocol only."""
    return ["slot", self.value(value.__objclass__), value.__name__]


_NOT_BY_NAME = UNSEEN | CODE_OF | WATCHED | SETS | STATE_OF_LOGGERS
"""Names that are not compared, or only where they are in code: an object must not look them up."""


def _getter(self: Walk, value: operator.attrgetter[Any]) -> Json:
    names = value.__reduce__()[1]
    if unseen := {part for name in names for part in str(name).split(".")} & _NOT_BY_NAME:
        raise UnstableError(f"attrgetter of {min(unseen)}")
    return ["attrgetter", *self.items(names)]


def _referents(self: Walk, value: Any) -> Json:
    """Describe an object of a C type by the objects that it reports to the garbage collector, in order."""
    written: list[Json] = [type(value).__name__]
    for found in gc.get_referents(value):
        if type(found) is str and type(value) is property:  # its documentation, mostly that of its function
            written.append(_text_digest(found))
        elif type(found) is dict and type(value) is not types.MappingProxyType:
            own = [pair for pair in found.items() if pair[0] not in _DERIVED]
            written += [_text_digest(text) for name, text in own if name == "__doc__" and type(text) is str]
            written.append(self.pairs([pair for pair in own if pair[0] != "__doc__" or type(pair[1]) is not str]))
        else:
            written.append(self.value(found))
    return written


_COPIED = frozenset(
    {"__wrapped__", "__doc__", "__module__", "__name__", "__qualname__", "__annotations__", "cache_parameters"}
)


def _cached_function(self: Walk, value: Any) -> Json:
    inner = getattr(value, "__wrapped__", None)
    if inner is None:
        raise UnstableError("a function with a cache whose __wrapped__ was deleted")
    if type(inner) is FunctionType and file_is_build(inner.__code__.co_filename):
        refuse_unseen_state(value)
    else:
        self.caches.append(value)
    own = {name: one for name, one in vars(value).items() if name not in _COPIED}
    return ["cached", self.value(inner), value.cache_info().maxsize, self.pairs(own.items())]


def cache_items(value: Any) -> list[tuple[Any, Any]]:
    """Return keys and results in the cache of a ``functools.lru_cache`` function, from ``gc.get_referents``.

    See lru_cache_tp_traverse in CPython's Modules/_functoolsmodule.c: keys and results alternate, each pair with the
    type of its link, followed by the dictionary; without a limit, the dictionary has the results.

    Raises:
        UnstableError: the cache cannot be read.
    """
    inside, info = gc.get_referents(value), value.cache_info()
    if info.maxsize is None:
        caches = [one for one in inside[:2] if type(one) is dict and len(one) == info.currsize]
        if caches:
            return list(caches[0].items())
    rest = inside[1 : 1 + 3 * info.currsize]
    if info.maxsize is not None and all(getattr(one, "__name__", "") == "_lru_list_elem" for one in rest[2::3]):
        return list(zip(rest[0::3], rest[1::3], strict=True))
    raise UnstableError("a cache that cannot be read")


def refuse_unseen_state(value: Any) -> None:
    """Refuse a build's function that reads a logger, or a container that it, or a function in it, has returned before.

    Raises:
        UnstableError: it does; other code can change what ``functools.lru_cache`` has.
    """
    if value.__module__ == "logging" and value.__name__ in OF_LOGGERS:
        raise UnstableError(f"{value.__qualname__}, which reads a logger's state")
    _refuse_unseen(value)
    while type(inner := getattr(value, "__wrapped__", None)) is FunctionType and type(value) is FunctionType:
        value = inner
    kept = [value]
    if type(value) is FunctionType:
        space = value.__globals__
        kept = [space[name] for name in value.__code__.co_names if name in space]
    for function in kept:
        is_cached = type(function) is functools._lru_cache_wrapper
        if is_cached and any(_has_container(result) for _, result in cache_items(function)):
            raise UnstableError(f"{function.__qualname__}, which keeps a list, a set or a dictionary that it returned")


def _has_container(value: Any) -> bool:
    return type(value) in CONTAINERS or (type(value) is tuple and any(map(_has_container, value)))


def _module_object(self: Walk, value: ModuleType) -> Json:
    name = vars(value).get("__name__")
    if sys.modules.get(str(name)) is not value:
        raise UnstableError(f"module {name}, which cannot be found by its name")
    self.spaces[str(name)] = value
    return ["module", str(name)]


_OF_LOGGER = frozenset({*vars(logging.Logger("any")), "manager"})


def _logger(self: Walk, value: logging.Logger) -> Json:
    self.loggers[value.name] = value
    own = [pair for pair in vars(value).items() if pair[0] not in _OF_LOGGER]
    return ["logger", value.name, self.items(value.filters), self.value(type(value)), self.pairs(own)]


def _context(self: Walk, value: contextvars.ContextVar[Any]) -> Json:
    try:
        return ["context", value.name, self.value(value.get())]
    except LookupError:
        return ["context", value.name]


def _namespace(self: Walk, value: Any) -> Json:
    self.texts.add(str(value.__name__))  # code can look up operators in it
    space = {name: one for name, one in vars(value).items() if type(one) is not torch._ops.OpOverloadPacket}
    own = [pair for pair in space.items() if type(pair[1]) in _NUMBERS_AND_TEXT or _is_own(pair[1])]
    return ["torch", str(value.__name__), self.pairs([pair for pair in own if pair[0][:2] != "__"])]


def replaced_operators(names: set[str]) -> list[tuple[str, Any]]:
    """Return torch's operators that have another one's place, name or kernel, or attributes that torch does not set.

    Args:
        names: names that code looks up; operators under other names do not count, unless ``ALL`` is among them.
    """
    found: list[tuple[str, Any]] = []
    for label in sorted(TORCH_OPERATORS):
        space = vars(getattr(torch.ops, label))
        overloads = names if label in names else ()
        for name in sorted(space if ALL in names else names & space.keys()):
            one = space[name]
            is_packet = type(one) is torch._ops.OpOverloadPacket
            if is_packet and (one._qualified_op_name != f"{label}::{name}" or _changes(one, overloads)):
                found.append((f"{label}.{name}", one))
    return found


def _operator(self: Walk, value: Any) -> Json:
    if str(value).partition(".")[0] not in TORCH_OPERATORS:
        raise UnstableError(f"{value}, an operator that is not torch's own")
    return ["torch", type(value).__name__, str(value), self.pairs(_changes(value))]


_OF_OPERATOR = frozenset({*vars(torch.ops.aten.relu), *vars(torch.ops.aten.relu.default)}) - {"default", "out"}
_OF_OPERATOR |= {
    name
    for kind in torch._ops.OpOverload.__mro__
    for name, one in vars(kind).items()
    if isinstance(one, functools.cached_property)
}
_OF_PRIM = frozenset(
    {"__doc__", "schema", "prim_impl", "prim_meta_impl", "impl_aten", "return_type"}
)  # set by torch._prims


def _changes(value: Any, overloads: Collection[str] | None = None) -> list[tuple[str, Any]]:
    """Return the attributes of an operator or an overload that torch does not set, and a name that is not its own.

    Kernels are compared of all its overloads, or of those under some names.
    """
    space = vars(value)
    full = space.get("_overloadpacket", value)._qualified_op_name
    is_packet = "_overloadname" not in space
    name = full.rpartition("::")[2]
    own = name if is_packet else f"{name}.{space['_overloadname']}"
    changed = [] if space["__name__"] == own else [("__name__", space["__name__"])]
    overload = torch._ops.OpOverload
    is_called = not is_packet and (overloads is None or space["_overloadname"] in overloads)
    if is_called and str(space["_schema"]) not in (said := _refusal(space["_op"])):
        changed.append(("_op", said))
    for key, one in [pair for pair in space.items() if pair[0] not in _OF_OPERATOR or type(pair[1]) is overload]:
        if type(one) is overload:
            if one._overloadpacket is not value or one._overloadname != key or _changes(one, overloads):
                changed.append((key, one))
        elif not (key in _OF_PRIM and full.startswith("prims::")):
            changed.append((key, one))
    return changed


def _refusal(kernel: Any) -> str:
    """Return torch's message for a call of an overload without its arguments, which has the overload's schema in it."""
    try:
        kernel(**{"": None})  # no overload has an argument without a name
    except (RuntimeError, TypeError) as error:  # torch's, or one of a function in Python
        return str(error)
    return ""


def _submodule(self: Walk, value: torch.nn.Module) -> Json:
    path = self._modules.get(id(value))
    if path is None:
        raise UnstableError(f"a {type(value).__name__} that is not a submodule")
    return ["submodule", path]


def _weak(self: Walk, value: Any) -> Json:
    if value.__callback__ is not None:
        raise UnstableError("a weak reference with a callback")
    return ["weak", self.value(value())]


def _environment(self: Walk, value: Any) -> Json:
    if value is not os.environ:
        raise UnstableError("an environment of its own")
    # The variables that are read are recorded.
    return ["environment", self.pairs([pair for pair in vars(value).items() if pair[0] != "_data"])]


def _array(self: Walk, value: Any) -> Json:
    _refuse_dates(value.dtype)
    if value.dtype.hasobject or value.dtype.metadata is not None or value.dtype.fields is not None:
        raise UnstableError("an array of objects or of fields")
    root = value
    while type(root.base) is type(value):
        root = root.base
    if root.base is not None and type(root.base) not in {bytes, torch.Tensor}:
        raise UnstableError("an array in the memory of another object")
    flags = [value.flags.writeable, value.flags.aligned, root.base is None, value.base is None]
    described: list[Json] = [list(value.shape), list(value.strides), *flags, self.memory(id(root))]
    if root is not value or root.base is not None:  # memory around a view can be read as well
        described += [hash_bytes(root.tobytes()).hex(), self.value(root.base)]
    return ["array", value.dtype.str, value.dtype.char, *described, hash_bytes(value.tobytes()).hex()]


def _refuse_dates(dtype: Any) -> None:
    if dtype.kind == "M":
        raise UnstableError("a date of NumPy, whose type can read the clock")


def _dtype(_: Walk, value: Any) -> Json:
    _refuse_dates(value)
    if value.metadata is not None or value.hasobject or value.fields is not None:
        raise UnstableError("a dtype with fields or metadata")
    return ["dtype", repr(value), value.str, value.char]


def _number_of_numpy(_: Walk, value: Any) -> Json:
    _refuse_dates(value.dtype)
    return ["number", str(value.dtype), value.dtype.char, value.tobytes().hex()]


def _ufunc(_: Walk, value: Any) -> Json:
    name = str(value.__name__)
    if lookup("numpy", name) is not value:
        raise UnstableError("a ufunc that is not NumPy's own")
    return ["ufunc", name]


def _refuse(_: Walk, value: Any) -> Json:
    kind = type(value)
    raise UnstableError(f"type {kind.__module__}.{kind.__qualname__}")


def _show(_: Walk, value: Any) -> Json:
    return [type(value).__name__, repr(value)]


def _typing(self: Walk, value: Any) -> Json:
    if type(value) in {types.GenericAlias, types.UnionType}:
        return ["typing", repr(value), self.items(value.__args__)]
    name = str(getattr(value, "_name", None))
    if lookup("typing", name) is value:
        return ["typing", name]
    if not hasattr(value, "__dict__"):
        return self.instance(value)
    return ["typing", type(value).__name__, self.pairs([pair for pair in vars(value).items() if pair[0] != "__doc__"])]


def _number(self: Walk, value: float) -> Json:
    if value == value:
        return {"float": value.hex()}
    return ["nan", struct.pack("<d", value).hex(), self.number(value)]  # `in` compares NaN by identity


def _complex(self: Walk, value: complex) -> Json:
    return ["complex", struct.pack("<dd", value.real, value.imag).hex(), None if value == value else self.number(value)]


def _decimal(self: Walk, value: decimal.Decimal) -> Json:
    return ["Decimal", str(value), self.number(value) if value.is_nan() else None]


_SHOWN_TYPES = (range, type(Ellipsis), type(NotImplemented), datetime.date, datetime.datetime)
_SHOWN_TYPES += (datetime.time, datetime.timedelta, datetime.timezone, type(sys.version_info), type(sys.flags))  # type: ignore[assignment]
_TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme, torch.finfo, torch.iinfo)
_SLOTS = (types.MethodDescriptorType, WrapperDescriptorType, GetSetDescriptorType, MemberDescriptorType)
_SETS = frozenset({set, frozenset})
_STATIC = frozenset(
    (*(one for one in vars(types).values() if isinstance(one, type)), functools._lru_cache_wrapper, re.Pattern)
)

WRITERS: dict[type, Writer] = {
    float: _number,
    complex: _complex,
    decimal.Decimal: _decimal,
    bytes: lambda _, value: ["bytes", hash_bytes(value).hex()],
    list: lambda self, value: ["list", *self.items(value)],
    tuple: lambda self, value: ["tuple", *self.items(value)],
    torch.Size: lambda self, value: ["size", *self.items(tuple(value))],
    slice: lambda self, value: ["slice", *self.items((value.start, value.stop, value.step))],
    collections.deque: lambda self, value: ["deque", value.maxlen, *self.items(value)],
    **dict.fromkeys((dict, collections.OrderedDict, collections.defaultdict), _dict),
    **dict.fromkeys((set, frozenset), _set),
    object: lambda *_: ["object"],
    type: Walk.a_class,
    FunctionType: Walk.function,
    **dict.fromkeys((*_BUILTINS, types.MethodWrapperType), _builtin),
    types.CodeType: lambda _, value: [  # two are equal only if they have the same line numbers
        *("code", content(value), value.co_firstlineno, hash_bytes(value.co_linetable).hex()[:32]),
    ],
    operator.itemgetter: lambda self, value: ["itemgetter", *self.items(value.__reduce__()[1])],
    operator.attrgetter: _getter,
    types.SimpleNamespace: lambda self, value: ["namespace", self.pairs(vars(value).items())],
    functools._lru_cache_wrapper: _cached_function,
    type(collections.namedtuple("_", "a").a): lambda _, value: ["item", *map(str, value.__reduce__()[1])],  # type: ignore[attr-defined]
    **dict.fromkeys(
        (*_WRAPPED, functools.partial, types.MethodType, types.CellType, types.MappingProxyType), _referents
    ),
    **dict.fromkeys(
        (*_SLOTS, types.ClassMethodDescriptorType),
        _slot,
    ),
    ModuleType: _module_object,
    os._Environ: _environment,
    logging.Logger: _logger,
    contextvars.ContextVar: _context,
    weakref.ref: _weak,
    re.Pattern: lambda self, value: ["pattern", self.value(value.pattern), value.flags],
    **dict.fromkeys(TENSORS, Walk.tensor),
    **dict.fromkeys(_SHOWN_TYPES, _show),
    **dict.fromkeys((types.GenericAlias, types.UnionType), _typing),
    **dict.fromkeys(_TORCH, lambda _, value: ["torch", type(value).__name__, str(value)]),
    **dict.fromkeys(NAMESPACES, _namespace),
    **dict.fromkeys((torch._ops.OpOverload, torch._ops.OpOverloadPacket), _operator),
    **dict.fromkeys(
        (type(threading.Lock()), type(threading.RLock())), lambda _, value: ["lock", repr(value).partition(" ")[0]]
    ),
    type(pathlib.Path()): lambda _, value: ["path", str(value)],
}
"""Writers of the descriptions of exact types; those of other types are found by their bases."""

_WITHOUT_IDENTITY = {
    float,
    complex,
    decimal.Decimal,
    bytes,
    tuple,
    torch.Size,
    slice,
    frozenset,
    *_SHOWN_TYPES,
    *_TORCH,
}
_WITHOUT_IDENTITY |= {types.GenericAlias, types.UnionType, *_BUILTINS, *_SLOTS, types.MethodType, ModuleType}


def _find_writer(kind: type) -> Writer:
    """Return the writer for a type that is not in the table, and add it."""
    bases: dict[type, Writer] = {
        torch.nn.Module: _submodule,
        type: Walk.a_class,
        ModuleType: _module_object,
        logging.Logger: _logger,
    }
    bases |= dict.fromkeys(_WRAPPED, _referents)
    writer: Writer | None = next((write for base, write in bases.items() if issubclass(kind, base)), None)
    module = str(_class_module(kind))
    if writer is None and module == "typing" and layout(kind) is not None:
        writer = _typing  # typing caches some of its objects, so identity differs between processes
        _WITHOUT_IDENTITY.add(kind)
    if writer is None and module.partition(".")[0] == "numpy":
        writer = _numpy_writer(kind)
    if writer is None and (module, kind.__name__) == ("pydantic_core._pydantic_core", "PydanticUndefinedType"):
        writer = _show  # the only object of its type
    if writer is None:
        writer = Walk.instance if layout(kind) is not None else _refuse
    WRITERS[kind] = writer
    return writer


def _numpy_writer(kind: type) -> Writer | None:
    names = [one.__name__ for one in kind.__mro__]
    if kind.__name__ == "ndarray":
        return _array
    if "dtype" in names:
        return _dtype
    if kind.__name__ == "ufunc":
        return _ufunc
    if kind.__name__ == "_ArrayFunctionDispatcher":  # numpy.prod and most functions of NumPy
        return lambda self, value: [
            *("dispatched", self.value(value._implementation)),
            self.pairs([pair for pair in vars(value).items() if pair[0] not in _COPIED]),
        ]
    if "generic" in names:
        return _number_of_numpy
    return None  # such as numpy.memmap and numpy.matrix
