"""``trtcache backends``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtcache.config import backend_settings
from trtcache.config.environment import installed_version

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from .conftest import Result


def test_every_registered_backend_is_listed(run: Callable[..., Result], interpreter: str) -> None:
    """With its package, devices, state and settings, as JSON and as lines."""
    done = run("backends", "--json")
    found = {one["name"]: one for one in done.json["backends"]}
    assert [*found] == [*backend_settings.backend_table()]
    assert list(found[interpreter]) == ["name", "package", "version", "state", "devices", "settings"]
    assert found[interpreter] == {
        "name": interpreter,
        "package": "interpreter",
        "version": "1.0",
        "state": "ready",
        "devices": {"cpu": None},
        "settings": {},
    }
    assert found["aot_inductor"]["version"] == installed_version()
    assert found["aot_inductor"]["devices"]["cpu"] is None
    assert found["aot_inductor"]["settings"] == {"inductor.NAME": "as in torch._inductor.config"}
    assert found["tensorrt"]["settings"]["tensorrt.refit"] is None
    rows = run("backends").rows
    assert [row[0] for row in rows] == [*found]
    assert all(row[4] == found[row[0]]["state"] for row in rows)


def test_a_terminal_gets_two_tables(terminal: Callable[..., Result], interpreter: str) -> None:
    """Backends, and settings with their defaults."""
    out = terminal("backends").out
    assert "DEVICES" in out
    assert "ready" in out
    assert out.count("tensorrt.refit") == 1


def test_a_backend_that_fails_is_listed_with_its_error(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 0: the list is complete."""
    table = {"gone": "trtcache_that_is_not_there:Gone", "aot_inductor": backend_settings.BUILT_IN["aot_inductor"]}
    monkeypatch.setattr(backend_settings, "backend_table", lambda: table)
    done = run("backends", "--json")
    gone, ours = done.json["backends"]
    assert (done.code, gone["devices"], ours["state"].startswith("ready")) == (0, {}, True)
    assert gone["state"].startswith("cannot be imported: No module named")
