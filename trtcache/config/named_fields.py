"""Convert mappings of field names to settings dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from trtcache.errors import SettingsError, did_you_mean

T = TypeVar("T")


def dataclass_from(kind: type[T], given: object, where: str) -> T:
    """Return ``given`` if it is an instance of ``kind``, or build one from a mapping of field names.

    Args:
        kind: a dataclass.
        given: the caller's value.
        where: the caller's name for it (``settings.threads``).

    Raises:
        SettingsError: it is neither, a name is not a field (with the nearest one), or a value is invalid.
    """
    if isinstance(given, kind):
        return given
    if not isinstance(given, Mapping):
        raise SettingsError(where, f"expected {kind.__name__} or a mapping of its fields, got {given!r}")
    refuse_unknown(given, field_names(kind), where)
    return kind(**given)


def refuse_unknown(given: Mapping[Any, object], known: list[str], where: str) -> None:
    """Raise for a mapping with an unknown name.

    Raises:
        SettingsError: a name is unknown; the message suggests the nearest known one.
    """
    for name in given:
        if name not in known:
            raise SettingsError(f"{where}[{name!r}]", did_you_mean(str(name), known))


def field_names(kind: type) -> list[str]:
    """Return the field names of a dataclass."""
    return [field.name for field in fields(kind)]
