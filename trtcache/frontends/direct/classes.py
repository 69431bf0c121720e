"""Classes: how their instances keep state, which are defined in C, which of their attributes do not count."""

from __future__ import annotations

import _abc  # type: ignore[import-not-found]  # CPython's implementation of abc
import abc
import collections
import functools
import gc
import re
import sys
import types
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

import torch

from trtcache.digests import hash_bytes
from trtcache.frontends.direct.errors import UnstableError
from trtcache.frontends.direct.ownership import file_is_versioned, is_installed, lookup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType


PLAIN = frozenset({bool, int, str, type(None)})
NUMBERS_AND_TEXT = PLAIN | {float}
NUMBERS = PLAIN - {str}
CONTAINERS = frozenset({dict, list, set})
TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
HEAP = 1 << 9  # Py_TPFLAGSHEAPTYPE: a static C type has no attributes that can be set
IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: neither has a heap type in C
NOTHING = object()  # in place of a value, where None could be one
DERIVED = frozenset(
    (
        *("__dict__", "__weakref__", "__slotnames__", "__firstlineno__", "__static_attributes__"),
        *("__annotations__", "__annotations_cache__", "__annotate__", "__annotate_func__"),
        "__conditional_annotations__",
    )
)
"""Class attributes that Python derives, and annotations; code that reads annotations is refused."""

OF_PYDANTIC = frozenset(
    (
        *("__pydantic_core_schema__", "__pydantic_validator__", "__pydantic_serializer__", "__signature__"),
        *("__pydantic_setattr_handlers__", "__pydantic_parent_namespace__", "__pydantic_fields_complete__"),
    )
)
"""Class attributes that pydantic derives from the fields of a class, which are described."""

UNORDERED_SETS = frozenset(
    (
        *("_non_persistent_buffers_set", "_no_split_modules", "_skip_keys_device_placement", "_keep_in_fp32_modules"),
        *("_keep_in_fp32_modules_strict", "_keys_to_ignore_on_load_missing", "_keys_to_ignore_on_load_unexpected"),
        *("_keys_to_ignore_on_save", "all_tied_weights_keys", "__abstractmethods__", "__pydantic_fields_set__"),
        *("__required_keys__", "__optional_keys__", "__readonly_keys__", "__mutable_keys__"),
        *("__class_vars__", "_compilable_calls", "_tp_plan_keys", "_ep_plan_keys", "__protocol_attrs__"),
    )
)
"""Sets of strings that torch, Python, transformers and pydantic own. They are compared without order."""

_EXEMPT = {
    "diffusers": frozenset(("_use_default_values", "_name_or_path", "_diffusers_version")),
    "configuration": frozenset(("_name_or_path", "_commit_hash", "transformers_version", "name_or_path")),
    "model": frozenset(("name_or_path", "generation_config", "warnings_issued", "_original_object_hash")),
}
"""Irrelevant attributes of exact configuration and model classes: origins of checkpoints, generation options."""

EXEMPT_NAMES = frozenset().union(*_EXEMPT.values())
_BASES = (dict, list, tuple, set, frozenset, str, int, float, bytes, collections.OrderedDict)
class_dict = type.__dict__["__dict__"].__get__
class_mro = type.__dict__["__mro__"].__get__
class_bases = type.__dict__["__bases__"].__get__
class_qualname = type.__dict__["__qualname__"].__get__
_class_annotations = type.__dict__["__annotations__"].__get__  # noqa: RUF063  # without those of bases
class_module = type.__dict__["__module__"].__get__
C_FUNCTIONS = (types.BuiltinFunctionType, type(re.compile("").match))  # Include/methodobject.h: PyCMethod_Type
C_DESCRIPTORS = frozenset(
    (types.MethodDescriptorType, types.ClassMethodDescriptorType, WrapperDescriptorType, GetSetDescriptorType)
) | {MemberDescriptorType, *C_FUNCTIONS}
WRAPPERS = frozenset({staticmethod, classmethod, property})
FUNCTION_TYPES = WRAPPERS | {FunctionType}

DESCRIPTORS = (types.MethodDescriptorType, WrapperDescriptorType, GetSetDescriptorType, MemberDescriptorType)
SET_TYPES = frozenset({set, frozenset})
STATIC_TYPES = frozenset(
    (*(one for one in vars(types).values() if isinstance(one, type)), functools._lru_cache_wrapper, re.Pattern)
)


def text_digest(text: str | None) -> str | None:
    """Return a digest of documentation, which is compared but not stored."""
    return None if text is None else hash_bytes(text.encode(errors="backslashreplace")).hex()[:32]


def full_name(cls: type) -> str:
    """Return the name of a class with that of its module."""
    return f"{class_module(cls)}.{class_qualname(cls)}"


def is_c_type(cls: type) -> bool:
    """Return whether a class is defined in C."""
    return not cls.__flags__ & HEAP or any(
        type(one) in C_DESCRIPTORS and _is_from_c(one, cls) for one in class_dict(cls).values()
    )


def _is_from_c(descriptor: Any, cls: type) -> bool:
    """Return whether a descriptor is defined in C; ``__slots__`` creates descriptors for Python classes too."""
    if type(descriptor) is MemberDescriptorType or descriptor.__name__ in DERIVED:
        return False
    return getattr(descriptor, "__objclass__", None) is cls


# Attributes of exact classes that are left out or compared without order.


def is_unordered_set(cls: type, name: str) -> bool:
    """Return whether torch, Python, pydantic or an exact class of transformers owns a set of strings."""
    if name not in UNORDERED_SETS:
        return False
    is_any = name[:2] == "__" or name == "_non_persistent_buffers_set"
    return is_any or (
        cls.__module__.partition(".")[0] == "transformers" and lookup(cls.__module__, cls.__qualname__) is cls
    )


@functools.lru_cache(maxsize=4096)
def exempt_attributes(cls: type) -> frozenset[str]:
    """Return the irrelevant attributes of exact classes of transformers and diffusers."""
    if lookup(cls.__module__, cls.__qualname__) is not cls:
        return frozenset()
    if cls.__module__ == "diffusers.configuration_utils":
        return _EXEMPT["diffusers"]
    if cls.__module__.partition(".")[0] != "transformers":
        return frozenset()
    names = {base.__name__ for base in class_mro(cls) if base.__module__.startswith("transformers.")}
    if names & {"PreTrainedConfig", "PretrainedConfig"}:
        return _EXEMPT["configuration"]
    return _EXEMPT["model"] if "PreTrainedModel" in names else frozenset()


# Abstract base classes. They keep what isinstance and issubclass have found, and do not look again.


def registered_classes(cls: type) -> list[type]:
    """Return the classes that are registered with an abstract base class.

    A type in C that is derived from one can have the table of its base, which nothing asks for it.
    """
    if not issubclass(type(cls), abc.ABCMeta):
        return []
    return [kind for reference in _abc._get_dump(cls)[0] if (kind := reference()) is not None]


def changed_answers(cls: type) -> Iterator[tuple[bool, type]]:
    """Yield the answers that an abstract base class keeps, and would not give if it were asked again.

    Those that another ``__subclasshook__`` than torch's or Python's could have given count, too: it is not called.

    Yields:
        Whether the class is a subclass, and the class.
    """
    if not issubclass(type(cls), abc.ABCMeta):  # as above
        return
    _, subclasses, others, version = _abc._get_dump(cls)
    if version != abc.get_cache_token():
        others = ()  # forgotten when the class is asked next
    for answer, references in ((True, subclasses), (False, others)):
        for kind in filter(None, (reference() for reference in references)):
            if _is_subclass(kind, cls) is not answer:
                yield answer, kind


def _is_subclass(kind: type, cls: type) -> bool | None:
    """Return what ``issubclass`` would return without kept answers; None if code of others decides.

    See ``_abc__abc_subclasscheck_impl`` of CPython.
    """
    if method_of(type(cls), "__subclasscheck__") is None:
        return None
    if not issubclass(type(cls), abc.ABCMeta):
        return cls in class_mro(kind)
    if (hook := method_of(cls, "__subclasshook__")) is None:
        return None
    try:
        found = hook.__get__(None, cls)(kind)
    except TypeError:  # a protocol that issubclass does not accept, unless another class asks
        found = NotImplemented
    if found is not NotImplemented:
        return bool(found)
    if cls in class_mro(kind):
        return True
    answers = [_is_subclass(kind, one) for one in (*registered_classes(cls), *type.__subclasses__(cls))]
    return True if True in answers else None if None in answers else False


def method_of(cls: type, name: str) -> Any:
    """Return a method of a class as it is defined; None if it is not torch's or Python's."""
    method = next(space[name] for base in class_mro(cls) if name in (space := class_dict(base)))
    function = getattr(method, "__func__", method)
    is_own = type(function) is FunctionType and not file_is_versioned(function.__code__.co_filename)
    return None if is_own or type(function) not in {FunctionType, *C_DESCRIPTORS} else method


class WatchedRepr:
    """The ``__repr__`` that a recording gives to a class without one, to notice that code formats its instances.

    Their text has their address, another in each process. Under the name of the attribute a class still has
    ``object.__repr__``.
    """

    def __init__(self, note: Callable[[type, FrameType], None]) -> None:
        """Have a function called with the class of a formatted object, and the frame of the code that formats it."""
        self._note = note

    def __get__(self, value: object, owner: type | None = None) -> Callable[[], str]:
        """Return the method of an object."""
        return object.__repr__ if value is None else types.MethodType(self._show, value)  # type: ignore[return-value]  # of an instance

    def _show(self, value: object) -> str:
        self._note(type(value), sys._getframe(1))
        return object.__repr__(value)


# Layouts of instances.

Layout = tuple["type | None", "Callable[[Any], dict[str, Any]] | None", tuple[Any, ...]]


@functools.lru_cache(maxsize=4096)
def layout(cls: type) -> Layout | None:
    """Return the built-in base, the dictionary's reader and the slots of a class's instances; None for a C type."""
    base, read_dict, slots = None, None, []
    for parent in class_mro(cls)[:-1]:
        space = class_dict(parent)
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


def plain_vars(value: object) -> dict[str, Any]:
    """Return the dictionary of an object's attributes.

    Raises:
        UnstableError: it is of a class derived from ``dict``, which can answer a look-up with other values than it has.
    """
    space: dict[str, Any] = vars(value)
    refuse_other_dict(type(value), space)
    return space


def refuse_other_dict(cls: type, space: object) -> None:
    """Refuse a dictionary of attributes that can answer a look-up with other values than it has.

    Raises:
        UnstableError: it is of a class derived from ``dict``.
    """
    if type(space) is not dict:
        raise UnstableError(f"a {cls.__qualname__} whose __dict__ is a {type(space).__qualname__}")


def instance_dict(value: object) -> dict[str, Any]:
    """Return the dictionary of an instance of a Python class; empty for any other object.

    Unlike ``value.__dict__``, this gives no object of a C type a dictionary that it did not have.
    """
    form = layout(type(value))  # type: ignore[arg-type]  # classes are hashed by identity
    return {} if form is None or form[1] is None else form[1](value)


def has_hidden_state(value: object, space: dict[str, Any], held: Iterable[object]) -> bool:
    """Return whether an instance refers to anything else than its dictionary and what it is known to hold.

    Since Python 3.13 most instances keep the values of their attributes themselves, besides a dictionary of them.
    """
    known = set(map(id, held))
    known.add(id(space))
    if sys.version_info >= (3, 13):
        known.update(map(id, space.values()))
    return any(id(one) not in known for one in gc.get_referents(value))


def annotations_of(owner: FunctionType | type) -> dict[str, Any]:
    """Return the annotations of a function or a class in the user's own files, not those of its bases.

    Python 3.14 evaluates them when they are read. If that fails, as names in them are not defined, this returns texts.
    """
    if is_installed(owner.__module__):
        return {}
    if sys.version_info < (3, 14) and isinstance(owner, type):
        found: dict[str, Any] = class_dict(owner).get("__annotations__", {})
        return found
    try:
        return owner.__annotations__ if isinstance(owner, FunctionType) else _class_annotations(owner)
    except Exception:  # noqa: BLE001  # they are code of the user's
        library = sys.modules["annotationlib"]
        texts: dict[str, Any] = library.get_annotations(owner, format=library.Format.STRING)
    return texts


def read_slot(descriptor: Any, value: Any) -> Any:
    """Return the value of a slot, and ``NOTHING`` for one without a value."""
    try:
        return descriptor.__get__(value)
    except AttributeError:
        return NOTHING
