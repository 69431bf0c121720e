"""``trtcache init``: private and shared stores from the shell."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Result


def test_init_makes_a_private_store(run: Callable[..., Result], root: Path, tmp_path: Path) -> None:
    """In the default cache directory, or at the given path; twice is not an error."""
    assert run("init").out == f"{root}\n"
    assert run("init", "--json", tmp_path / "other").json == {"root": str(tmp_path / "other"), "shared": False}
    assert run("init").code == 0
    assert root.stat().st_mode & 0o7777 == 0o700


def test_init_makes_a_shared_store(run: Callable[..., Result], tmp_path: Path) -> None:
    """It is setgid, and a message explains trust."""
    done = run("init", "--shared", "--group", os.getgid(), tmp_path / "shared")
    assert (done.code, done.out) == (0, f"{tmp_path / 'shared'}\n")
    assert "trtcache trust" in done.err
    assert (tmp_path / "shared").stat().st_mode & 0o7777 == 0o2770


def test_init_says_what_is_missing(run: Callable[..., Result], root: Path) -> None:
    """Sharing needs a group and a group sharing; a group that is not there is an impossible setting."""
    for line in (["--shared"], ["--group", "root"]):
        assert (run("init", *line).code, root.exists()) == (2, False)
    assert run("init", "--shared", "--group", "no-such-group").code == 2


@pytest.mark.parametrize("group", ["4294967295", "99999999999999999999", "-1", "\u0663", ""])
def test_an_invalid_group_id_is_refused(run: Callable[..., Result], tmp_path: Path, group: str) -> None:
    """The ID that means "unchanged", too large ones and other digits: nothing is created."""
    assert (run("init", "--shared", "--group", group, tmp_path / "new").code, list(tmp_path.iterdir())) == (2, [])
