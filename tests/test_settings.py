"""Settings: accepted, pinned and misspelt values."""

from __future__ import annotations

import pytest

from trtcache.config.backend_settings import PINNED_INDUCTOR_OPTIONS
from trtcache.digests import CacheKey
from trtcache.errors import SettingsError, did_you_mean
from trtcache.settings import Settings

NAMES = ("torch_executed_modules", "torch_executed_ops", "autocast_exclude")


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
        ({"inductor": {"max_autotune": None}}, "is not a boolean, number or string"),
        ({"inductor": {"max_autotune": [1]}}, "is not a boolean, number or string"),
        ("fast", "expected Settings or a mapping of its fields, got 'fast'"),
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


def test_fields_that_came_later_leave_older_keys_as_they_are() -> None:
    """What they say enters the key, and nothing does where they say nothing."""
    assert set(Settings().document()) == {"inductor", "operator_versions"}
    given = Settings.of({"autocast": "fp16", "autocast_exclude": ["aten.mm"], "tensorrt": {"workspace": "1GB"}})
    document = given.document()
    assert document["autocast"] == "fp16"
    assert document["autocast_exclude"] == ["aten.mm"]
    assert document["tensorrt"] == {"workspace": 10**9}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"optimisation_level": 3}, "did you mean 'optimization_level'"),
        ({"optimization_level": 6}, "6 is not from 0 to 5"),
        ({"optimization_level": True}, "expected a number from 0 to 5, got True"),
        ({"refit": 1}, "expected True or False, got 1"),
        ({"tiling": "some"}, "'some' is not one of none, fast, moderate, full"),
        ({"profiling_verbosity": "DETAILED"}, "not one of layer_names_only, none, detailed"),
        ({"workspace": "much"}, "is not a size"),
        ({"workspace": 0}, "0 is not from 1 byte to less than"),
        ({"workspace": 1 << 63}, "is not from 1 byte to less than"),
        ({"strip": True, "refit": False}, "has to be refitted"),
        (3, "expected TensorRTSettings or a mapping of its fields, got 3"),
    ],
)
def test_impossible_settings_of_tensorrt_are_one_clear_error(given: object, message: str) -> None:
    """The error names the setting and what it can be."""
    with pytest.raises(SettingsError, match=message):
        Settings.of({"tensorrt": given})


@pytest.mark.parametrize("name", NAMES)
def test_names_may_come_from_an_iterator(name: str) -> None:
    """It is read once; what is no collection of names is one clear error."""
    assert getattr(Settings.of({name: iter(["a", "b"])}), name) == ("a", "b")
    for wrong in (3, None, "a", [1]):
        with pytest.raises(SettingsError, match=f"settings.{name}: expected names of (modules|operators), got"):
            Settings.of({name: wrong})
