"""Descriptions of Python objects as JSON, in one traversal with one memo table, as in pickle.

A repeated object is written as a back-reference, so that identity counts everywhere: in attributes, globals, dictionary
keys, tensors. State is read below Python's attribute protocol: instance dictionaries and slots through the descriptors
of their types, checked against ``gc.get_referents`` for hidden state. Definitions of torch, NumPy and Python are
written by name if they are found under that name, and everything else in full. An object of a C type that is not in the
table of :mod:`trtcache.frontends.direct.writers` has no description.
"""

from __future__ import annotations

import collections
import sys
import weakref
from abc import ABCMeta
from contextlib import contextmanager
from types import FunctionType, NoneType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from trtcache.frontends.direct.classes import (
    DERIVED,
    DESCRIPTORS,
    HEAP,
    NOTHING,
    NUMBERS,
    OF_PYDANTIC,
    PLAIN,
    SET_TYPES,
    STATIC_TYPES,
    TENSORS,
    WatchedRepr,
    annotations_of,
    changed_answers,
    class_bases,
    class_dict,
    class_module,
    class_mro,
    class_qualname,
    exempt_attributes,
    full_name,
    has_hidden_state,
    instance_dict,
    is_c_type,
    is_unordered_set,
    layout,
    method_of,
    plain_vars,
    read_slot,
    refuse_other_dict,
    registered_classes,
    text_digest,
)
from trtcache.frontends.direct.code import ALL, code_digest, codes_in, within
from trtcache.frontends.direct.errors import UnstableError
from trtcache.frontends.direct.ownership import (
    file_is_versioned,
    is_in_its_module,
    is_installed,
    is_user_code,
    is_user_module,
    is_versioned_module,
    lookup,
    module_with,
)
from trtcache.frontends.direct.patches import (
    REGISTERED_LATE,
    Owners,
    describe_changes,
    function_changes,
    refuse_other_builtins,
    refuse_unseen_state,
    unwrap,
    unwrap_fx,
    value_of_builtins,
)
from trtcache.frontends.direct.writers import (
    LOOK_UP_TYPES,
    WITHOUT_IDENTITY,
    WRITERS,
    base_items,
    describe_descriptor,
    find_writer,
)
from trtcache.lowering.interface import Content

if TYPE_CHECKING:
    import logging
    import types
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from types import ModuleType

    from trtcache.digests import Json

_MAX_OBJECTS = 100_000  # objects in one walk
_COLLECTIONS = 3 << 5  # Py_TPFLAGS_SEQUENCE and Py_TPFLAGS_MAPPING, which ABC registration sets and match reads
_HOOKS = frozenset(name for name, value in vars(torch.nn.Module()).items() if isinstance(value, (dict, set)))
_WEIGHT_LISTS = frozenset({"_flat_weights", "_flat_weight_refs"})
_DESCRIBED_SEPARATELY = frozenset({"_modules", "_parameters", "_buffers", "training"})
_STATE_DICT_HOOKS = frozenset(("_state_dict_hooks", "_state_dict_pre_hooks"))
_WITH_VALUES = {
    name: getattr(torch.nn.Module, name)
    for name in (
        *("state_dict", "_save_to_state_dict", "get_extra_state", "named_parameters", "parameters", "named_buffers"),
        *("buffers", "_named_members"),
    )
}
"""torch's own methods that torch.export calls with the weights, whose values a description leaves out."""
# torch._dynamo notes the id of a wrapper, which is another in each process.
_ADDRESS_ATTRIBUTES = frozenset({"_torchdynamo_wrapper_id"})


class Walk:
    """One traversal of objects, with the table of the objects visited so far.

    Attributes:
        state: weights and buffers of the model, by name.
        visited_modules: modules that were visited as objects, by name: code can read any attribute of them.
        classes: classes that were described in full.
        texts: all strings that were visited.
        codes: code objects that were described, by identity.
        caches: ``functools.lru_cache`` wrappers that were visited, in order.
        arguments: numbers of the arguments, by identity.
        module_paths: paths of the model's modules, by identity.
        owners: owners of versioned modules, by name.
        unpatched: versioned classes that other code has not changed.
        unstable: attributes of installed classes that cannot be described, by name.
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
        forgotten: how many objects were described in vain, or by themselves.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        """Record the paths of a model's modules and weights."""
        self._root = model
        self._memo: dict[int, int] = {}
        self.unpatched: set[type] = set()
        self.owners = Owners()
        self._registries: dict[type, list[Json]] = {}
        self._loaded = len(sys.modules)
        self._alive: list[object] = []  # the identity of a freed object could be reused
        self.forgotten = 0
        self._weights: dict[int, str] = {}
        self.arguments: dict[int, int] = {}
        self.module_paths: dict[int, str] = {}
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
        self.visited_modules: dict[str, ModuleType] = {}
        self.classes: dict[type, None] = {}
        self.texts: set[str] = set()
        self.codes: dict[int, types.CodeType] = {}
        self.caches: list[Any] = []
        self.unstable: dict[str, UnstableError] = {}
        self._index_modules(model, "", set())
        for name, tensor in self.state.items():
            if tensor.layout == torch.strided:
                self._memories.setdefault(tensor.untyped_storage()._cdata, name)

    def _index_modules(self, module: torch.nn.Module, path: str, above: set[int]) -> None:
        if id(module) in above:
            raise UnstableError("a module inside itself").below(path)
        self.module_paths.setdefault(id(module), path)
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                full = f"{path}.{name}" if path else name
                self.state[full] = tensor
                self._weights.setdefault(id(tensor), full)
        above.add(id(module))
        for name, inner in module._modules.items():
            if inner is not None:
                self._index_modules(inner, f"{path}.{name}" if path else name, above)
        above.discard(id(module))

    def isolate(self) -> _Isolated:
        """Describe objects in a ``with`` block independently of others, and forget them afterwards, as a copy does."""
        return _Isolated(self)

    @contextmanager
    def tolerant(self, *, is_tolerant: bool = True) -> Iterator[None]:
        """Write objects that have no description by their types in a ``with`` block."""
        before, self.is_tolerant = self.is_tolerant, is_tolerant
        try:
            yield
        finally:
            self.is_tolerant = before

    def fork(self) -> Walk:
        """Return an independent copy of this walk."""
        other = object.__new__(Walk)
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if isinstance(value, (dict, list, set)) else value)
        other.unpatched = set()  # modules may have been imported since
        other.owners = Owners()
        if len(sys.modules) != self._loaded:  # they register classes
            other._registries, other._loaded = {}, len(sys.modules)
        return other

    def all_visited(self) -> list[object]:
        """Return the objects that were visited, and the model's modules."""
        return [*self._alive, *self._root.modules()]

    def attributes(self, name: str) -> Iterator[Any]:
        """Yield the values under the name of an attribute in all objects and classes that were visited."""
        spaces = [*map(class_dict, self.classes), *map(instance_dict, self.all_visited())]
        for module in self._root.modules():
            spaces += [module._modules, module._parameters, module._buffers]
        for space in spaces:
            if name in space:
                yield space[name]

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
        writer = WRITERS.get(kind) or find_writer(
            kind,  # type: ignore[arg-type]  # classes are hashed by identity
            Walk.instance,
        )
        before = self._mark() if self.is_tolerant else ()
        if kind not in WITHOUT_IDENTITY:
            self._memo[id(value)] = len(self._alive)
            self._alive.append(value)
            if len(self._alive) > _MAX_OBJECTS:
                raise UnstableError(f"more than {_MAX_OBJECTS} objects")
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
        return len(self._alive), len(self.codes), len(self.visited_modules), len(self.classes), len(self.caches)

    def _undo(self, before: tuple[int, ...]) -> None:
        """Remove the objects visited in an object whose description failed: only described objects are referenced."""
        self.forgotten += len(self._alive) - before[0]
        for value in self._alive[before[0] :]:
            del self._memo[id(value)]
        del self._alive[before[0] :], self.caches[before[4] :]
        for met, size in zip((self.codes, self.visited_modules, self.classes), before[1:4], strict=True):
            while len(met) > size:  # type: ignore[arg-type]  # three dictionaries
                met.popitem()  # type: ignore[attr-defined]

    def pairs(self, items: Iterable[tuple[Any, Any]], owner: type | None = None) -> Json:
        """Describe keys and values in order; with an owner, those of an instance's dictionary."""
        written: list[Json] = []
        skipped: frozenset[str] = frozenset() if owner is None else exempt_attributes(owner)
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
                if owner is not None and type(value) in SET_TYPES and is_unordered_set(owner, key):
                    written.append([said, self._strings_of(value)])
                else:
                    written.append([said, value if type(value) in NUMBERS else self.value(value)])
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

    def describe_class(self, cls: type) -> Json:  # noqa: C901  # versioned classes and others
        """Describe a class: a versioned one by its name and by later changes, any other in full."""
        space, qualname = class_dict(cls), class_qualname(cls)
        module, is_static = class_module(cls), not cls.__flags__ & HEAP
        if type(module) is not str:  # such as a property for instances
            module = type(module).__name__
        if cls in LOOK_UP_TYPES:
            self.has_look_up = True
        if cls in SET_TYPES:
            raise UnstableError(f"{qualname}, which can create one whose order differs in each process")
        if is_versioned_module(module) and (lookup(module, qualname) is cls or (is_static and cls in STATIC_TYPES)):
            written: list[Json] = ["class", module, qualname]
            if is_static:
                return written
            bases = [base for base in class_mro(cls)[1:-1] if base.__flags__ & HEAP]
            more: list[Json] = [self.registry(cls)] if "_abc_impl" in space else []
            return [*written, describe_changes(space, self, qualname), *more, self.items(bases)]
        if is_c_type(cls):
            raise UnstableError(f"{module}.{qualname}, a type of a C extension")
        self.classes.setdefault(cls)
        is_pydantic = any(lookup("pydantic.main", "BaseModel") is base for base in class_mro(cls))
        attributes: dict[str, Json] = {}
        for name, value in list(space.items()):
            if name in DERIVED or (is_pydantic and name in OF_PYDANTIC) or type(value) is WatchedRepr:
                continue
            before = self._mark()
            try:
                if name == "_abc_impl":
                    attributes[name] = self.registry(cls)
                elif name == "__doc__":
                    attributes[name] = text_digest(value) if type(value) is str else self.value(value)
                elif type(value) in SET_TYPES and is_unordered_set(cls, name):
                    attributes[name] = self._strings_of(value)
                elif (name[:2] == "__" or name == "_value_repr_") and type(value) in DESCRIPTORS:  # of an enum
                    attributes[name] = describe_descriptor(self, value)
                else:
                    attributes[name] = self.value(value)
            except UnstableError as error:
                error.below(f"{qualname}.{name}")
                if name[:2] == "__" or not is_installed(module):
                    raise error from None
                self._undo(before)
                error.is_of_function = type(value) is FunctionType
                # It counts if code that ran looks up the name, or puts together names.
                if name not in self.unstable or self.unstable[name].is_of_function:
                    self.unstable[name] = error
                attributes[name] = ["unstable", type(value).__qualname__]
        node = pytree.SUPPORTED_NODES.get(cls)
        nested = node and [self.value(one) for one in (node.flatten_fn, node.unflatten_fn, node.flatten_with_keys_fn)]
        names: list[Json] = [module, qualname, str(type.__dict__["__name__"].__get__(cls))]
        names += [cls.__flags__ & _COLLECTIONS, self._annotations(cls)]
        above = [
            self.items(base for base in bases if base not in SET_TYPES)
            for bases in (class_mro(cls)[1:], class_bases(cls))
        ]
        return ["class", *names, self.value(type(cls)), *above, attributes, nested]

    def registry(self, cls: type) -> list[Json]:
        """Describe the classes registered with an abstract base class, and with those derived from it.

        Classes of installed libraries do not count for versioned ones: they register theirs when they are imported.
        """
        if (known := self._registries.get(cls)) is not None:
            return known
        written = [*self._entries_of(cls)]
        has_names_only = all(type(entry) is str for entry in written)
        derived: list[type] = type.__subclasses__(cls)  # of abc.ABC a thousand
        below, hook = type.__subclasses__, "__subclasshook__"
        derived = [
            kind
            for kind in derived
            if registered_classes(kind) or below(kind) or hook in class_dict(kind) or type(kind) is not ABCMeta
        ]
        for kind in sorted(derived, key=full_name):
            module = str(class_module(kind))
            decides = hook in class_dict(kind) or method_of(type(kind), "__subclasscheck__") is None
            if decides and is_user_module(module):
                has_names_only = False
                written.append(self.value(kind))
            elif more := self.registry(kind):
                has_names_only &= kind in self._registries
                written.append([full_name(kind), *more])
        if has_names_only:  # the number of an object that was visited before holds only here
            self._registries[cls] = written
        return written

    def _entries_of(self, cls: type) -> Iterator[Json]:
        is_versioned = is_versioned_module(class_module(cls))
        for kind in sorted(registered_classes(cls), key=full_name):
            module = class_module(kind)
            has_file = hasattr(sys.modules.get(module), "__file__")  # Cython shares types in a module without one
            if is_user_module(module) and not (is_c_type(kind) and not has_file and is_versioned):
                yield self.value(kind)
            elif not is_versioned or (is_versioned_module(module) and not full_name(kind).startswith(REGISTERED_LATE)):
                yield full_name(kind)
        for answer, kind in sorted(changed_answers(cls), key=lambda one: full_name(one[1])):
            yield [answer, self.value(kind) if is_user_module(class_module(kind)) else full_name(kind)]

    def function(self, function: FunctionType) -> Json:
        """Describe a function: its code, closure, defaults and attributes."""
        function = unwrap_fx(function)
        refuse_other_builtins(function)
        code, space = function.__code__, function.__globals__
        if file_is_versioned(code.co_filename):
            inner = unwrap(function)
            name, qualname = str(inner.__globals__.get("__name__")), inner.__code__.co_qualname
            if lookup(name, qualname) in (function, inner) and is_versioned_module(name) and is_in_its_module(inner):
                refuse_unseen_state(inner)
                if inner.__name__ == "__hash__":
                    raise UnstableError(f"{qualname}, which depends on the process")
                return ["function", name, qualname, *function_changes(inner, self)]
        self.codes |= codes_in(code)
        home = module_with(space)
        notes = self._annotations(function)
        written: list[Json] = [
            "function",
            str(space.get("__name__")),
            function.__qualname__,
            {"code": code_digest(code)},
        ]
        written += [notes, function.__name__, self.value(function.__module__)]
        doc = function.__doc__
        if type(doc) is not str or not code.co_consts or doc != code.co_consts[0]:
            written.append(["doc", text_digest(doc) if doc is None or type(doc) is str else self.value(doc)])
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                written.append(self.value(cell))
            except UnstableError as error:
                raise error.below(f"{function.__qualname__}.{name}") from None
        if function.__defaults__ or function.__kwdefaults__:
            written.append(self.items(function.__defaults__ or ()))
            written.append(self.pairs((function.__kwdefaults__ or {}).items()))
        if own := {name: one for name, one in plain_vars(function).items() if name not in _ADDRESS_ATTRIBUTES}:
            written.append({"set": self.pairs(own.items())})
        if home is None:
            names = dict.fromkeys(name for one in within(code) for name in one.co_names)
            written.append(self.pairs([(one, space[one]) for one in names if one in space and one != "__builtins__"]))
            written += [[one, *value_of_builtins(one, self)] for one in names if one not in space]
        return written

    def _annotations(self, owner: FunctionType | type) -> Json:
        """Describe the annotations in the user's own files, which code can read under a composed name."""
        if not (annotations := annotations_of(owner)):
            return None
        with self.tolerant():
            return self.value(annotations)

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
            contents, said = base_items(self, value, base, cls)
            held += contents
            written.append(said)
        space: dict[str, Any] = {} if read_dict is None else read_dict(value)
        refuse_other_dict(cls, space)
        state = list(space.items())
        for descriptor in slots:
            found = read_slot(descriptor, value)
            if found is not NOTHING:
                state.append((descriptor.__name__, found))
                held.append(found)
        if has_hidden_state(value, space, held):
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
        if (argument := self.arguments.get(id(value))) is not None:  # code that reads it here reads a constant
            whose.append(["argument", argument])
        return ["tensor", *whose, *tensor_metadata(value), Content.of(value).digest, self.pairs(vars(value).items())]

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
        number = self.arguments[id(value)]
        own = {name: one for name, one in vars(value).items() if name != "_specialize_on" or any(one.values())}
        marks = self.pairs(own.items()) if own else None  # torch.export leaves an empty _specialize_on
        whose = self.memory(value.untyped_storage()._cdata)
        return ["input", *tensor_metadata(value), whose, marks, self._weights.get(id(value)), number]

    def memory(self, address: int) -> str:
        """Return the name of a tensor's or array's memory: that of a weight in it, or a number."""
        return self._memories.setdefault(address, f"memory {len(self._memories)}")

    # The model.

    def model(self, model: torch.nn.Module) -> Json:
        """Describe a model with all its modules, each at its first path."""
        written: dict[str, Json] = {}
        try:
            self._module(model, "", written)
        except UnstableError as error:
            error.path[-1:] = [f"attribute {name}" for name in error.path[-1:]]
            raise
        return written

    def _module(self, module: torch.nn.Module, path: str, written: dict[str, Json]) -> None:
        if (first := self.module_paths[id(module)]) != path:
            written[path] = {"same": first}
            return
        try:
            written[path] = self._attributes(module)
        except UnstableError as error:
            raise (error.below(path) if path else error) from None
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
        if changed := [name for name, one in methods.items() if one is not _WITH_VALUES[name] and is_user_code(one)]:
            raise UnstableError(f"{kind.__qualname__}.{changed[0]}, which torch.export calls with the weights")
        space = read_dict(module)
        _refuse_other_containers(module, space)
        held = [(one.__name__, found) for one in slots if (found := read_slot(one, module)) is not NOTHING]
        if slots:
            if hidden := {one.__name__ for one in slots} & (_DESCRIBED_SEPARATELY | _HOOKS | space.keys()):
                raise UnstableError(f"type {kind.__qualname__}, in which a slot hides {min(hidden)}")
            if len(dict(held)) < len(held):
                raise UnstableError(f"type {kind.__qualname__} with two slots of one name")
        if has_hidden_state(module, space, [kind, *(found for _, found in held)]):
            raise UnstableError(f"type {kind.__qualname__} with hidden state")
        written: dict[str, Json] = {
            "class": self.value(kind),
            "training": self.value(space["training"]) if "training" in space else ["not set"],
            "modules": [name if one is not None else [name] for name, one in module._modules.items()],
        }
        skipped = exempt_attributes(kind)  # type: ignore[arg-type]  # classes are hashed by identity
        for name, value in (*space.items(), *held):
            if name in _DESCRIBED_SEPARATELY or (name in _HOOKS and not value and not getattr(value, "__dict__", None)):
                continue
            if name in skipped:
                self.has_exempt = True
                continue
            if name in _WITH_VALUES or (name in _STATE_DICT_HOOKS and any(map(is_user_code, value.values()))):
                raise UnstableError("code that torch.export calls with the weights").below(name)
            try:
                has_weights = name in _WEIGHT_LISTS and type(value) is list and isinstance(module, torch.nn.RNNBase)
                if has_weights and (names := self._weight_names(value)) is not None:
                    written[f".{name}"] = names
                elif type(value) in SET_TYPES and is_unordered_set(kind, name):
                    written[f".{name}"] = self._strings_of(value)
                elif type(value) in NUMBERS:
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
        # Negative: addresses of data, apart from those of storages, which are not negative.
        where = self._memories.setdefault(-tensor.data_ptr() - 1, name)
        marks = self.pairs(vars(tensor).items()) if vars(tensor) else None
        return [
            *tensor_metadata(tensor),
            self.memory(storage._cdata),
            where,
            storage.nbytes(),
            marks,
            self._weights[id(tensor)],
        ]


WRITERS[type] = Walk.describe_class
WRITERS[FunctionType] = Walk.function
WRITERS.update(dict.fromkeys(TENSORS, Walk.tensor))


_FLAGS = (
    "has_unordered",
    "has_exempt",
    "has_look_up",
    "has_output",
    "has_set",
    "has_mutable_set",
    "has_view",
    "has_set_operator",
)


class _Isolated:
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


def _rank(space: Mapping[str, Any], hooks: Any) -> Any:
    """Return hooks renumbered within their module: torch numbers the hooks of all modules in a process."""
    if not isinstance(hooks, dict):
        return hooks
    numbers = sorted({one for name in _HOOKS for one in space.get(name) or () if type(one) is int})
    ranked = type(hooks)() if type(hooks) in {dict, collections.OrderedDict} else {}
    ranked.update({numbers.index(key) if type(key) is int else key: one for key, one in hooks.items()})
    getattr(ranked, "__dict__", {}).update(getattr(hooks, "__dict__", {}))
    return ranked


def _refuse_other_containers(module: torch.nn.Module, space: Any) -> None:
    """Refuse a module whose containers return other values than they have, or have names that are paths.

    Raises:
        UnstableError: one is neither a ``dict`` nor an ``OrderedDict``, or not the module's attribute of its name, or
            two paths of modules could be the same.
    """
    refuse_other_dict(type(module), space)
    for name in ("_modules", "_parameters", "_buffers", *_HOOKS):
        value = space.get(name)
        is_plain = type(value) in {dict, collections.OrderedDict} or (name in _HOOKS and type(value) in {set, NoneType})
        if not is_plain or (value is not None and getattr(module, name) is not value):
            raise UnstableError(f"a {type(value).__qualname__} instead of a dictionary").below(name)
    for name in (*module._modules, *module._parameters, *module._buffers):
        if type(name) is not str or not name or "." in name:
            raise UnstableError("a name that is empty or has a dot").below(name)


def tensor_metadata(value: torch.Tensor) -> list[Json]:
    """Describe a tensor without its values and its memory.

    Raises:
        UnstableError: its attributes are not in a ``dict``, or its dimensions have names.
    """
    plain_vars(value)
    if hasattr(value, "has_names") and value.has_names():  # torch 2.13 has no names
        raise UnstableError("a tensor whose dimensions have names")
    flags: Json = [type(value).__name__, value.requires_grad, value.is_conj(), value.is_neg(), value.is_inference()]
    sizes: list[Json] = [list(value.shape), list(value.stride()), int(value.storage_offset())]
    return [str(value.dtype), str(value.device), *sizes, flags]
