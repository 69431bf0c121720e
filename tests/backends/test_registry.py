"""Backends by name: ours, those of other distributions, and names that nobody has."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from trtcache.backends import registry
from trtcache.backends.aot_inductor.backend import AotInductor
from trtcache.config import backend_settings
from trtcache.errors import BackendUnavailableError
from trtcache.testing.interpreter import Interpreter


def point(name: str, value: str) -> EntryPoint:
    """Return an entry point of the group ``trtcache.backends``."""
    return EntryPoint(name, value, "trtcache.backends")


def test_another_distributions_backend_is_found_by_its_entry_point(interpreter: str) -> None:
    """A backend that an installed distribution offers is as good as ours."""
    assert isinstance(registry.find(interpreter, "cpu"), Interpreter)
    assert backend_settings.backend_table()[interpreter] == "trtcache.testing.interpreter:Interpreter"


def test_auto_takes_ours_whatever_is_installed(interpreter: str) -> None:
    """``auto`` chooses among our own backends; others are asked for by name."""
    assert isinstance(registry.find("auto", "cpu"), AotInductor)


def test_two_owners_of_one_name_are_both_named() -> None:
    """A name that two distributions offer is an error, whoever is asked for."""
    with pytest.raises(BackendUnavailableError, match=r"aot_inductor.*both trtcache and other:Backend; remove one"):
        backend_settings._merge({"aot_inductor": "a:b"}, [point("aot_inductor", "other:Backend")])
    with pytest.raises(BackendUnavailableError, match="both x:Y and z:Y"):
        backend_settings._merge({}, [point("mine", "x:Y"), point("mine", "z:Y")])


def test_a_backend_that_cannot_run_here_says_why_and_none_takes_its_place() -> None:
    """A device that no backend has, and a backend that cannot be imported, are errors with their reasons."""
    with pytest.raises(BackendUnavailableError, match="runs on CPU and CUDA, not on mps"):
        registry.find("aot_inductor", "mps")
    with pytest.raises(BackendUnavailableError, match=r"'auto'.*not on mps"):
        registry.find("auto", "mps")


def test_a_backend_whose_module_is_missing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a broken distribution offers is told by the import's own words."""
    monkeypatch.setattr(backend_settings, "backend_table", lambda: {"broken": "no_such_module:Backend"})
    with pytest.raises(BackendUnavailableError, match="cannot be imported: No module named 'no_such_module'"):
        registry.find("broken", "cpu")
