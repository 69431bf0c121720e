"""Settings: what is taken, what is pinned, what is misspelt."""

from __future__ import annotations

import pytest

from trtcache.errors import SettingsError
from trtcache.settings import PINNED_INDUCTOR_OPTIONS, Settings, did_you_mean
from trtcache.values import CacheKey


def test_settings_come_from_a_mapping_settings_or_nothing() -> None:
    """A mapping of field names, Settings and None give settings."""
    made = Settings(inductor={"max_autotune": True})
    assert Settings.of({"inductor": {"max_autotune": True}}) == made
    assert Settings.of(made) is made
    assert Settings.of(None) == Settings()


@pytest.mark.parametrize("name", sorted(PINNED_INDUCTOR_OPTIONS))
def test_an_option_that_refit_relies_on_cannot_be_set(name: str) -> None:
    """Whatever its value, a pinned option is refused by name."""
    with pytest.raises(SettingsError, match="fixed by trtcache"):
        Settings(inductor={name: PINNED_INDUCTOR_OPTIONS[name]})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"inducter": {}}, "did you mean 'inductor'"),
        ({"inductor": ["max_autotune"]}, "expected a mapping"),
        ({"inductor": {"max_autotune": None}}, "no boolean, number or text"),
        ({"inductor": {"max_autotune": [1]}}, "no boolean, number or text"),
        ("fast", "expected Settings or a mapping, got str"),
    ],
)
def test_impossible_settings_are_one_clear_error(given: object, message: str) -> None:
    """The error names the setting and what is expected."""
    with pytest.raises(SettingsError, match=message):
        Settings.of(given)  # type: ignore[arg-type]


def test_every_field_is_in_the_key() -> None:
    """Two settings that differ give two keys, and the type of a value counts."""
    documents = [Settings(inductor=one).document() for one in ({}, {"a": 1}, {"a": True}, {"a": 1.0}, {"a": "1"})]
    assert len({CacheKey.of("test", document).digest for document in documents}) == len(documents)


def test_a_name_that_resembles_none_gets_the_list() -> None:
    """Without a near name the known ones are listed."""
    assert did_you_mean("xyzzy", ["b", "a"]) == "unknown; known: a, b"
