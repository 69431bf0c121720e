"""The base class of settings that belong to one backend."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

from trtcache.config.units import dataclass_from
from trtcache.errors import SettingsError, TrtcacheError


@dataclass(frozen=True, slots=True)
class BackendSettings:
    """Settings of a backend. Derive a frozen dataclass whose fields have defaults, and set ``section``.

    Values are checked against the annotations of the fields, as far as these are numbers, strings, booleans, tuples,
    ``None``, ``Literal`` or a union of them; ``__post_init__`` may check more, and raise ValueError or SettingsError.

    Attributes:
        section: the name of these settings in ``Settings``: the name of the backend.
    """

    section: ClassVar[str]

    @classmethod
    def of(cls, given: object) -> Self:
        """Return ``given`` if it is an instance, or make one from a mapping of field names.

        Raises:
            SettingsError: a name is not a field (the message suggests the nearest), or a value is invalid.
        """
        where = f"settings.{cls.section}"
        try:
            if isinstance(given, Mapping):
                given = cls._check_values(given)
            return dataclass_from(cls, given, where)
        except TrtcacheError:
            raise
        except Exception as error:  # another distribution's code
            raise SettingsError(where, str(error)) from error

    @classmethod
    def _check_values(cls, given: Mapping[str, object]) -> dict[str, object]:
        """Return the values, with lists as tuples; raise SettingsError for one of another type than its field."""
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        hints = get_type_hints(cls)
        for name in values.keys() & hints.keys():
            if not _fits(values[name], hints[name]):
                hint = hints[name]
                expected = hint.__name__ if type(hint) is type else str(hint).replace("typing.", "")
                raise SettingsError(label(cls, name), f"expected {expected}, got {values[name]!r}")
        return values

    @property
    def explicit(self) -> dict[str, Any]:
        """The fields that differ from their defaults: in type or value, since ``True`` is equal to 1."""
        default, changed = type(self)(), {}
        for field in fields(self):
            value, usual = getattr(self, field.name), getattr(default, field.name)
            if type(value) is not type(usual) or value != usual:
                changed[field.name] = value
        return changed

    def document(self) -> dict[str, object]:
        """Return the part of the key document for these settings: those that differ from their defaults.

        The defaults are in the key through ``Backend.versions``.
        """
        return self.explicit

    @classmethod
    def describe(cls) -> dict[str, object]:
        """Return each field with its default, for ``trtcache backends``."""
        default = cls()
        return {field.name: getattr(default, field.name) for field in fields(cls)}

    @classmethod
    def defaults(cls) -> dict[str, object]:
        """Return the default of each field that has one other than None or an empty collection."""
        default = cls()
        values = {field.name: getattr(default, field.name) for field in fields(cls)}
        return {name: value for name, value in values.items() if value not in (None, (), {})}


def label(kind: type[BackendSettings], name: str) -> str:
    """Return the name of a field in messages."""
    return f"settings.{kind.section}[{name!r}]"


def _fits(value: object, hint: Any) -> bool:
    """Return whether a value has an annotated type; annotations other than those documented are not checked."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, alternative) for alternative in get_args(hint))
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in get_args(hint))
    kind = origin or hint
    if kind is float:
        return type(value) in (int, float)
    if kind in (bool, int, str, tuple, type(None)):
        return type(value) is kind
    return True
