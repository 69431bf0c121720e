"""A file appears complete or not at all, and in the place of nothing but a file."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from trtcache.config.paths import atomic_write

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_appears_when_all_went_well(tmp_path: Path) -> None:
    """What fails half-way leaves the file of before, and nothing beside it."""
    path = tmp_path / "file"
    with atomic_write(path) as temporary:
        temporary.write_text("first")
        assert not path.exists()
    with pytest.raises(UnicodeError), atomic_write(path) as temporary:
        temporary.write_text("second \udc00", encoding="utf-8")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("file", "first")]


def test_a_full_disk_is_reported_with_the_file_and_a_remedy(tmp_path: Path) -> None:
    """The error of a write to an open file has neither; other errors are unchanged."""
    said = pytest.raises(OSError, match=r"No space left on device; free space in .*/file'")
    with said as caught, atomic_write(tmp_path / "file"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match=r"^\[Errno 5\] failing$"), atomic_write(tmp_path / "file"):
        raise OSError(errno.EIO, "failing")


def test_no_file_takes_the_place_of_a_pipe_or_a_folder(tmp_path: Path) -> None:
    """A superuser who writes to /dev/null would put a file in its place, and to a link to it in the link's."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "folder").mkdir()
    for name, said in (("pipe", "pipe or socket"), ("link", "pipe or socket"), ("folder", "use a file in it")):
        with pytest.raises(OSError, match=said), atomic_write(tmp_path / name):
            raise AssertionError(name)
    assert (tmp_path / "pipe").is_fifo()
    assert {one.name for one in tmp_path.iterdir()} == {"pipe", "link", "folder"}
