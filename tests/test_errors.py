"""Errors: fields first, one message each, the same after a pickle, an exit code on the class."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from trtcache import errors

EXAMPLES: dict[type, Any] = {str: "text", "str": "text", "int": 3, "float": 2.5, "tuple[str, ...]": ("one", "two")}


def every_error(base: type[errors.TrtcacheError] = errors.TrtcacheError) -> list[type[errors.TrtcacheError]]:
    """Return all error classes."""
    return [base, *(error for child in base.__subclasses__() for error in every_error(child))]


def example(cls: type[errors.TrtcacheError]) -> errors.TrtcacheError:
    """Return an error with a value in every field."""
    kinds = {name: kind for base in cls.__mro__ for name, kind in vars(base).get("__annotations__", {}).items()}
    return cls(**{name: EXAMPLES[kinds[name]] for name in cls.fields})


@pytest.mark.parametrize("cls", every_error(), ids=lambda cls: cls.__name__)
def test_an_error_survives_pickling(cls: type[errors.TrtcacheError]) -> None:
    """Fields and message are the same in the process that gets it."""
    error = example(cls)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own bytes
    assert type(again) is cls
    assert (again.__dict__, str(again)) == (error.__dict__, str(error))


@pytest.mark.parametrize("cls", every_error(), ids=lambda cls: cls.__name__)
def test_every_error_has_a_message_and_an_exit_code(cls: type[errors.TrtcacheError]) -> None:
    """The message has every field's value in it, and the command line exits with 1 to 7."""
    error = example(cls)
    if cls.fields:
        assert str(error)
        assert "text" in str(error) or "one" in str(error) or "3" in str(error)
    assert 1 <= cls.exit_code <= 7


def test_long_lists_are_cut() -> None:
    """A message about weights or keys lists a few and the number of the others."""
    assert "w5, and 3 more" in str(errors.RefitError(missing=tuple(f"w{index}" for index in range(9))))
    matches = tuple("ab" + str(index) * 62 for index in range(6))
    assert "6 entries have keys that start with 'ab' (ab00000000, " in str(errors.AmbiguousKeyError("ab", matches))


def test_fields_are_given_as_to_a_dataclass() -> None:
    """By position or by name, with defaults; what is missing, unknown or given twice is refused."""
    error = errors.UnsupportedOperatorError("engine", why="no kernel", operator="aten.add")
    assert vars(error) == {"kind": "engine", "why": "no kernel", "node": "", "operator": "aten.add", "where": ""}
    assert repr(errors.SettingsError("a", "b")) == "SettingsError(name='a', why='b')"
    for args, kwargs in ((("a",), {}), (("a", "b", "c"), {}), (("a", "b"), {"name": "c"}), (("a", "b"), {"other": 1})):
        with pytest.raises(TypeError):
            errors.SettingsError(*args, **kwargs)
