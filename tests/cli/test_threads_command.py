"""``trtcache threads``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trtcache.config.threads import cores

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from .conftest import Result

NAMES = ["intra", "inter", "cores", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "backend"]


def test_threads_prints_what_is_in_force(
    run: Callable[..., Result], terminal: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As lines, as a table and as JSON: torch's own number, the cores, and the variables."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = run("threads", "--json").json
    assert list(found) == NAMES
    assert found["intra"]["value"] == torch.get_num_threads()
    assert found["cores"]["value"] == cores()
    assert found["OMP_NUM_THREADS"] == {"value": "1", "origin": "environment"}
    assert [row[0] for row in run("threads").rows] == NAMES
    assert "intra-op threads of one call" in terminal("threads").out
