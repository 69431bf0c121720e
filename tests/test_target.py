"""Targets: levels hold one another, this machine is one, and what it lacks is refused."""

from __future__ import annotations

import platform

import pytest

from trtcache import target as module
from trtcache.errors import SettingsError
from trtcache.target import Target, host_flags, host_platform, resolve_target

X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="levels are x86-64's")


def test_this_machine_is_the_default() -> None:
    """None and ``native`` are one target, with this machine's own instruction sets."""
    native = resolve_target(None, device="cpu")
    assert native == resolve_target("native", device="cpu")
    assert native.platform == host_platform()
    assert set(native.instruction_sets) <= host_flags()
    assert native.lacks(host_flags()) == ()


@X86
def test_each_level_needs_what_those_below_it_need() -> None:
    """The instruction sets of the levels grow, in the order of their names."""
    needed = [set(resolve_target(level, device="cpu").instruction_sets) for level in ("x86-64", "x86-64-v2")]
    assert needed[0] == set() < needed[1]
    assert needed[1] < module._level_flags("x86-64-v3") < module._level_flags("x86-64-v4")


@X86
def test_a_level_beyond_this_machine_is_refused_with_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without AVX cannot build for v3: the build proves the engine by loading it."""
    monkeypatch.setattr(module, "host_flags", lambda: frozenset({"sse4_1"}))
    with pytest.raises(SettingsError, match=r"processor lacks .*avx2"):
        resolve_target("x86-64-v3", device="cpu")


@pytest.mark.parametrize("name", ["x86-64-v5", "haswell", "sm_90"])
def test_an_unknown_target_lists_the_known_ones(name: str) -> None:
    """An unknown level is an error that lists the levels."""
    with pytest.raises(SettingsError, match=r"known: native, x86-64"):
        resolve_target(name, device="cpu")


def test_a_target_tells_what_it_lacks() -> None:
    """The missing instruction sets are listed in order."""
    target = Target("linux-x86_64", "cpu", "native", ("avx2", "fma"))
    assert target.lacks({"fma"}) == ("avx2",)
    assert target.lacks({"avx2", "fma", "more"}) == ()


@X86
def test_native_needs_the_instruction_sets_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without /proc/cpuinfo two processors would share a key."""
    monkeypatch.setattr(module, "host_flags", frozenset)
    with pytest.raises(SettingsError, match="cannot be read from /proc/cpuinfo"):
        resolve_target(None, device="cpu")
    assert resolve_target("x86-64", device="cpu").instruction_sets == ()


def test_every_field_is_in_the_document() -> None:
    """Two targets that differ in any field have different documents."""
    base = ("linux-x86_64", "cpu", "native", ("avx2",), None)
    documents = [Target(*base).document()]  # type: ignore[arg-type]
    for place, other in enumerate(("linux-aarch64", "cuda", "x86-64-v3", ("avx",), "9.0")):
        documents.append(Target(*base[:place], other, *base[place + 1 :]).document())  # type: ignore[arg-type]
    assert len({str(document) for document in documents}) == 6


def test_a_machine_that_tells_no_flags_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without /proc/cpuinfo, the target has no instruction sets."""
    host_flags.cache_clear()
    monkeypatch.setattr(module.Path, "open", _missing)
    found = host_flags()
    host_flags.cache_clear()
    assert found == frozenset()


def _missing(*args: object, **kwargs: object) -> object:
    raise FileNotFoundError("/proc/cpuinfo")
