"""Values as given by users, the contention policy among them; edits of single settings in TOML, and percentiles."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias, TypeVar

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import SettingsError, did_you_mean

ON_BUSY: Final = ("wait", "build", "eager")

RANKS_WAIT_S: Final = 480.0
"""Default timeout of ranks: below the 600 s after which NCCL aborts a collective, so that a rank that has waited this
long can still join it.
"""


@frozen_dataclass
class ContentionPolicy:
    """What to do while another process builds the same entry.

    Attributes:
        policy: ``wait`` for it, ``build`` the same at once, or ``eager``: run without an engine this time.
        timeout_s: seconds to wait before that; after ``wait`` follows a build. None: ``wait`` waits for as long as the
            other process lives, but a rank for ``RANKS_WAIT_S``; the others do not wait.
        rank: which process of a distributed job this is, such as ``rank 1 of 4``; empty outside a job.
    """

    policy: str = "wait"
    timeout_s: float | None = None
    rank: str = ""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> ContentionPolicy:
        """Read ``TRTCACHE_ON_BUSY`` and ``TRTCACHE_BUSY_TIMEOUT``, and the rank set by ``torchrun``."""
        text = environ.get("TRTCACHE_BUSY_TIMEOUT", "").strip()
        policy = parse_word(environ.get("TRTCACHE_ON_BUSY", "").strip().lower() or "wait", ON_BUSY, "TRTCACHE_ON_BUSY")
        rank, world = environ.get("RANK", ""), environ.get("WORLD_SIZE", "")
        is_rank = rank.isdecimal() and world.isdecimal() and int(world) > 1
        timeout_s = parse_seconds(text, "TRTCACHE_BUSY_TIMEOUT") if text else None
        return cls(policy, timeout_s, f"rank {rank} of {world}" if is_rank else "")

    def override(self, on_busy: str | None, timeout_s: float | None) -> ContentionPolicy:
        """Return this policy with the given arguments in place of its own values; None keeps a value."""
        policy = self if on_busy is None else replace(self, policy=parse_word(on_busy, ON_BUSY, "on_busy"))
        return policy if timeout_s is None else replace(policy, timeout_s=parse_seconds(timeout_s, "busy_timeout_s"))

    @property
    def patience_s(self) -> float | None:
        """Seconds to wait; None to wait for as long as the other process lives."""
        if self.timeout_s is not None:
            return self.timeout_s
        if self.policy != "wait":
            return 0.0
        return RANKS_WAIT_S if self.rank else None


def parse_word(text: object, words: Sequence[str], name: str) -> str:
    """Parse a setting that is one of a few words.

    Raises:
        SettingsError: it is another one; the message names ``name`` and the nearest word.
    """
    if text in words:
        return str(text)
    raise SettingsError(name, f"{text!r}: {did_you_mean(str(text), list(words))}")


def parse_seconds(given: object, name: str) -> float:
    """Parse a number of seconds, 0 or more.

    Raises:
        SettingsError: it is not one; the message names ``name``.
    """
    try:
        seconds = float(given) if isinstance(given, (str, int, float)) else math.nan
    except ValueError:
        seconds = math.nan
    if 0 <= seconds < math.inf:
        return seconds
    raise SettingsError(name, f"{given!r} is not a number of seconds, 0 or more")


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the nearest rank: the smallest value that at least ``percent`` in a hundred of the values do not exceed.

    It is one of the values, and never between two of them. The median of two values is the smaller one.

    Args:
        values: the values, sorted, at least one.
        percent: from 0, the minimum, to 100, the maximum.
    """
    rank = (percent * len(values) + 99) // 100  # rounded up, in whole numbers: 0.95 * 20 is more than 19
    return values[max(0, rank - 1)]


Value: TypeAlias = "str | int | float | bool | list[str]"

_STRING = r"\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'"
_VALUE = rf"(\[(?:{_STRING}|[^\]\"'])*\]|{_STRING}|[A-Za-z0-9+.:_-]+)"


def format_toml(value: Value) -> str:
    """Return a value as TOML: a list with an item on each line."""
    if isinstance(value, list):
        items = "".join(f"\n  {json.dumps(item, ensure_ascii=False)}," for item in value)
        return f"[{items}\n]" if value else "[]"
    return json.dumps(value, ensure_ascii=False)  # strings, numbers and booleans are the same in JSON


def set_toml_line(text: str, name: str, value: Value) -> str:
    """Return the text with a setting changed, or added as the first line: after a table it would be part of it."""
    line = f"{name} = {format_toml(value)}"
    edited, count = _line(name, "").subn(lambda _: line, text, count=1)
    return edited if count else f"{line}\n{text}"


def remove_toml_line(text: str, name: str) -> str:
    """Return the text without a setting and the comment on its line."""
    return _line(name, r"[ \t]*(#[^\n]*?)?(\r?\n|\Z)").sub("", text, count=1)


def _line(name: str, end: str) -> re.Pattern[str]:
    return re.compile(rf"^{re.escape(name)}[ \t]*=[ \t]*{_VALUE}{end}", re.MULTILINE)


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
            raise SettingsError(name, f"{text!r} is not a duration such as 7d or a date such as 2026-11-01") from error
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


def format_count(count: int, noun: str, plural: str = "") -> str:
    """Format a number of things: ``1 operator``, ``1,200 operators``."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


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
