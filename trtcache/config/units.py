"""Values as given by users: sizes and durations (``100MB``, ``7d``), and mappings of the fields of a dataclass."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, TypeVar

from trtcache.errors import SettingsError, did_you_mean

_SIZES = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", start=1):
    _SIZES |= {_letter: 1000**_power, f"{_letter}B": 1000**_power, f"{_letter}IB": 1024**_power}
_DURATIONS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")

_LARGEST = 1e30  # in any unit, it is still finite

T = TypeVar("T")


def parse_size(text: str | int, name: str = "size") -> int:
    """Return bytes for ``"100MB"`` (10^6), ``"2GiB"`` (2^30) or a plain number.

    Raises:
        SettingsError: the text is not a size, or is too large.
    """
    number, unit = _split(str(text), name, "a size such as 500MB, 20GB or 2GiB")
    factor = _SIZES.get(unit.upper())
    if factor is None:
        raise SettingsError(
            name, f"{text!r} has the unknown unit {unit!r}; use B, KB, MB, GB, TB, KiB, MiB, GiB or TiB"
        )
    return int(number * factor)


def parse_duration(text: str, name: str = "duration") -> float:
    """Return seconds for ``"90s"``, ``"15m"``, ``"36h"``, ``"7d"`` or ``"2w"``.

    A bare number is rejected: 30 for an age could mean days or seconds.

    Raises:
        SettingsError: the text is not a duration, or has no unit.
    """
    number, unit = _split(text, name, "a duration such as 36h, 7d or 2w")
    if not unit:
        raise SettingsError(name, f"{text!r} has no unit; use s, m, h, d or w, as in 7d")
    factor = _DURATIONS.get(unit.lower())
    if factor is None:
        raise SettingsError(name, f"{text!r} has the unknown unit {unit!r}; use s, m, h, d or w")
    return number * factor


def parse_since(text: str, *, now_ns: int, name: str = "since") -> int:
    """Return the time, in ns since 1970, that a text gives.

    The text is a duration before now (``7d``, ``12h``), or an ISO date or time, in UTC if it has no zone.

    Raises:
        SettingsError: the text is neither, or the time is in the future.
    """
    try:
        start = datetime.fromisoformat(text.strip())
        since_ns = int((start if start.tzinfo else start.replace(tzinfo=UTC)).timestamp()) * 10**9
    except ValueError:
        try:
            since_ns = now_ns - int(parse_duration(text, name) * 1e9)
        except SettingsError as error:
            raise SettingsError(name, f"{text!r} is not a duration such as 7d or a day such as 2026-11-01") from error
    if since_ns > now_ns:
        raise SettingsError(name, f"{text!r} is in the future")
    return max(0, since_ns)


def _split(text: str, name: str, example: str) -> tuple[float, str]:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise SettingsError(name, f"{text!r} is not {example}")
    number = float(match[1])
    if number > _LARGEST:
        raise SettingsError(name, f"{text!r:.40} is too large")
    return number, match[2]


def format_count(count: int, noun: str) -> str:
    """Format a number of things: ``1 operator``, ``1,200 operators``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_size(size_bytes: float) -> str:
    """Format a size in decimal units with three significant digits: ``2.04 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size_bytes) < 999.5:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.3g} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.3g} TB"


def format_duration(duration_s: float) -> str:
    """Format a duration in a suitable unit: ``8 ms``, ``12.9 s``, ``4 min``, ``3.2 h``, ``12 d``."""
    for limit, scale, unit, digits in (
        (1, 1e-3, "ms", ".0f"),
        (100, 1, "s", ".1f"),
        (6000, 60, "min", ".0f"),
        (172800, 3600, "h", ".1f"),
    ):
        if duration_s < limit:
            return f"{duration_s / scale:{digits}} {unit}"
    return f"{duration_s / 86400:.0f} d"


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
