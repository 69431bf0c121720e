"""Dataclasses of settings from what callers give: one of them, or a mapping of its fields' names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from trtcache.errors import SettingsError, did_you_mean

T = TypeVar("T")


def dataclass_from(kind: type[T], given: object, where: str) -> T:
    """Return ``given`` if it is of a kind, or one of this kind with the fields that a mapping names.

    Args:
        kind: a dataclass.
        given: what a caller gave.
        where: what the caller calls it (``settings.threads``).

    Raises:
        SettingsError: it is neither, or a name is no field (with the nearest one), or a value is impossible.
    """
    if isinstance(given, kind):
        return given
    if not isinstance(given, Mapping):
        raise SettingsError(where, f"expected {kind.__name__} or a mapping of its fields, got {given!r}")
    refuse_unknown(given, field_names(kind), where)
    return kind(**given)


def refuse_unknown(given: Mapping[Any, object], known: list[str], where: str) -> None:
    """Refuse a mapping with a name that is not known.

    Raises:
        SettingsError: there is one; the message has the nearest one that is known.
    """
    for name in given:
        if name not in known:
            raise SettingsError(f"{where}[{name!r}]", did_you_mean(str(name), known))


def field_names(kind: type) -> list[str]:
    """Return the names of a dataclass's fields."""
    return [one.name for one in fields(kind)]
