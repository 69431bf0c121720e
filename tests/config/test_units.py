"""Sizes and durations as typed by users."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtcache.config.units import format_duration, format_size, parse_duration, parse_size
from trtcache.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        (1234, 1234),
        ("100MB", 100_000_000),
        ("100 mb", 100_000_000),
        ("1.5GiB", 3 << 29),
        ("2k", 2000),
        ("2KiB", 2048),
        ("1T", 10**12),
        (" 7 B ", 7),
    ],
)
def test_sizes_are_read(text: str | int, size_bytes: int) -> None:
    """Units are decimal unless they have an i, in any case, with or without a blank."""
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "MB", "-1", "1e9", "1,5GB", "ten", "1 000", "nan", "5 GB extra"])
def test_what_is_no_size_is_refused(text: str) -> None:
    """The message names the setting and shows examples."""
    with pytest.raises(SettingsError, match=r"max_size: .* is not a size such as 500MB"):
        parse_size(text, "max_size")


@pytest.mark.parametrize("parse", [parse_size, parse_duration])
def test_a_number_without_bounds_is_refused(parse: Callable[[str], float]) -> None:
    """It would be infinite."""
    with pytest.raises(SettingsError, match=r"'9999.* is too large"):
        parse("9" * 400 + "m")


def test_an_unknown_unit_lists_the_known() -> None:
    """A wrong unit of size or time is answered with the right ones."""
    with pytest.raises(SettingsError, match="unknown unit 'parsec'; use B, KB"):
        parse_size("3parsec")
    with pytest.raises(SettingsError, match="unknown unit 'y'; use s, m, h, d or w"):
        parse_duration("3y")


@pytest.mark.parametrize(
    ("text", "duration_s"),
    [("90s", 90), ("1.5s", 1.5), ("15m", 900), ("36h", 129_600), ("7d", 604_800), ("2 W", 1_209_600)],
)
def test_durations_are_read(text: str, duration_s: float) -> None:
    """In seconds, whatever the unit; units may be in capitals and stand apart."""
    assert parse_duration(text) == duration_s


def test_a_duration_needs_a_unit() -> None:
    """Days and seconds are not to be mistaken where entries are removed, and the message names the units."""
    with pytest.raises(SettingsError, match="older_than: '30' has no unit; use s, m, h, d or w, as in 7d"):
        parse_duration("30", "older_than")


@pytest.mark.parametrize("text", ["", "d", "-3d", "soon"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """The message names the setting and shows examples."""
    with pytest.raises(SettingsError, match=r"older_than: .* is not a duration such as 36h"):
        parse_duration(text, "older_than")


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (2_041_344, "2.04 MB"),
        (999_400, "999 kB"),
        (999_600, "1 MB"),
        (20e9, "20 GB"),
        (3e15, "3e+03 TB"),
    ],
)
def test_sizes_are_shown(size_bytes: float, text: str) -> None:
    """Three significant digits and a decimal unit."""
    assert format_size(size_bytes) == text


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [(0.008, "8 ms"), (12.94, "12.9 s"), (240, "4 min"), (11_520, "3.2 h"), (1_036_800, "12 d")],
)
def test_durations_are_shown(duration_s: float, text: str) -> None:
    """The unit suits the duration."""
    assert format_duration(duration_s) == text


@given(st.integers(min_value=0, max_value=10**15))
def test_a_shown_size_can_be_read(size_bytes: int) -> None:
    """What is shown is a size again, within its three digits."""
    shown = format_size(size_bytes)
    if "e+" not in shown:
        assert abs(parse_size(shown) - size_bytes) <= max(1, size_bytes * 0.006)
