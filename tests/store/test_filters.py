"""Filters: the meaning of each condition, and the messages for invalid ones."""

from __future__ import annotations

import pytest

from trtcache.errors import SettingsError
from trtcache.store.record import FIELDS, Record, parse_filters

DAY_NS = 86400 * 10**9
NOW_NS = 100 * DAY_NS
RECORD = Record(
    digest="ab" * 32,
    kind="aot_inductor",
    name="BERT base",
    file_bytes=100_000_000,
    size_bytes=200_000_000,
    created_ns=NOW_NS - 10 * DAY_NS,
    used_ns=NOW_NS - 2 * DAY_NS,
    build_s=42.0,
    members=3,
    pinned=True,
    target="cuda sm_89, linux-x86_64 plan",
)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("target~sm_89", True),
        ("target!~SM_89", False),
        ("size>99MB", True),
        ("size>100MB", False),
        ("size>=100MB", True),
        ("size<=1GiB", True),
        ("size < 100MB", False),
        ("size=100MB", True),
        ("size!=100MB", False),
        ("kind=aot_inductor", True),
        ("kind!=aot_inductor", False),
        ("kind=aot", False),
        ("kind~aot", True),
        ("name~bert", True),
        ("name~BASE", True),
        ("name!~bert", False),
        ("name~b.rt", False),
        ("name=BERT base", True),
        ("key~abab", True),
        ("key=ABAB", True),
        ("key=b3:abab", True),
        ("key!=b3:abab", False),
        ("key=bab", False),
        ("key!=bab", True),
        ("age>7d", True),
        ("age>10d", False),
        ("unused>36h", True),
        ("unused<1d", False),
        ("pinned=yes", True),
        ("pinned=no", False),
        ("pinned!=no", True),
        ("build>=42s", True),
        ("build>1m", False),
        ("members=3", True),
        ("members>3", False),
        ("size>1MB,name~bert", True),
        ("size>1MB,name~resnet", False),
    ],
)
def test_a_condition_holds_or_not(text: str, holds: bool) -> None:
    """Each field is compared in its own unit, and commas mean and."""
    assert parse_filters([text], now_ns=NOW_NS)(RECORD) is holds


def test_several_filters_must_all_hold() -> None:
    """A repeated option narrows, and no filter lets everything through."""
    assert parse_filters(["size>1MB", "pinned=yes"], now_ns=NOW_NS)(RECORD)
    assert not parse_filters(["size>1MB", "pinned=no"], now_ns=NOW_NS)(RECORD)
    assert parse_filters([], now_ns=NOW_NS)(RECORD)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not a condition"),
        ("key=", "expected a key, or the beginning of one"),
        ("key!=b3:", "expected a key, or the beginning of one"),
        ("size", "is not a condition"),
        ("size>1MB,", "is not a condition"),
        ("siez>1MB", "did you mean 'size'"),
        ("colour=red", "fields: age, build"),
        ("size~1MB", "does not support '~'"),
        ("name>bert", "does not support '>'"),
        ("pinned>yes", "does not support '>'"),
        ("pinned=maybe", "is not yes or no"),
        ("members=two", "not a whole number"),
        ("size>1parsec", "unknown unit"),
        ("age>soon", "not a duration"),
    ],
)
def test_a_wrong_condition_is_a_clear_error(text: str, says: str) -> None:
    """The message names the fields, operators or units that are known."""
    with pytest.raises(SettingsError, match=says):
        parse_filters([text], now_ns=NOW_NS)


def test_an_entry_without_a_name_has_an_empty_one() -> None:
    """Filters by name apply to every entry."""
    unnamed = Record("ab" * 32, "test", None, 1, 1, 0, 0, 0.0, 1)
    assert parse_filters(["name="], now_ns=NOW_NS)(unnamed)
    assert not parse_filters(["name~bert"], now_ns=NOW_NS)(unnamed)


def test_every_field_can_be_read_from_a_record() -> None:
    """No field is a name without a value."""
    assert all(field.read(RECORD, NOW_NS) is not None for field in FIELDS.values())
