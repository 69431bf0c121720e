"""The breaker: when it opens, for how long, who tries again, and that its file can hold anything."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from trtcache.remote.connection import FIRST_S, IN_A_ROW, LONGEST_S, Breaker

if TYPE_CHECKING:
    from pathlib import Path


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The breaker's file, in a folder that is not there yet."""
    return tmp_path / "remotes" / "remote-1.json"


def test_it_opens_at_once_or_after_three_failures(path: Path) -> None:
    """A success between them starts the count anew."""
    clock = Clock()
    assert Breaker(path, clock).note_failure("down", at_once=True) == FIRST_S
    assert not Breaker(path, clock).admits()
    path.unlink()
    breaker = Breaker(path, clock)
    for _ in range(IN_A_ROW - 1):
        assert breaker.note_failure("503", at_once=False) == 0
    breaker.note_success()
    assert not path.exists()
    assert [Breaker(path, clock).note_failure("503", at_once=False) for _ in range(IN_A_ROW)] == [0, 0, FIRST_S]


def test_one_request_tries_again_when_the_time_is_over(path: Path) -> None:
    """Other processes wait for its answer; a failure doubles the time, a success closes it for all."""
    clock = Clock()
    first, second = Breaker(path, clock), Breaker(path, clock)
    first.note_failure("down", at_once=True)
    waits = []
    for _ in range(6):
        clock.now_s += LONGEST_S + 1
        assert not first.is_open()  # to ask does not use up the request
        assert (first.admits(), second.admits()) == (True, False)
        waits.append(first.note_failure("down", at_once=True))
    assert waits == [60, 120, 240, 480, 600, 600]
    clock.now_s += LONGEST_S + 1
    assert first.admits()
    first.note_success()
    assert second.admits()
    assert not path.exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        "{" * 3000,
        '{"until_s": "soon"}',
        '{"until_s": 1e300, "wait_s": 1, "failures": 0, "why": ""}',
    ],
)
def test_a_damaged_file_counts_as_none(path: Path, text: str) -> None:
    """So does one from the future: a clock that was set back must not switch a remote off for years."""
    path.parent.mkdir()
    path.write_text(text)
    assert Breaker(path, Clock()).admits()


def test_it_works_without_its_file(tmp_path: Path) -> None:
    """In memory, as for a user without a home."""
    (tmp_path / "file").write_text("")
    breaker = Breaker(tmp_path / "file" / "remote-1.json", clock := Clock())
    breaker.note_failure("down", at_once=True)
    assert not breaker.admits()
    clock.now_s += FIRST_S + 1
    assert breaker.admits()


def test_the_file_is_for_this_user_alone(path: Path) -> None:
    """And says why."""
    Breaker(path, Clock()).note_failure("down", at_once=True)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert json.loads(path.read_text())["why"] == "down"
