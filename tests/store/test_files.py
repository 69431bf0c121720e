"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from trtcache.store import files
from trtcache.store.files import TemporaryFile, delete, publish_bytes, sweep


def test_a_temporary_file_is_closed_once(tmp_path: Path) -> None:
    """If a commit fails after its close, the descriptor, which may have been reused, is not closed again."""
    (tmp_path / "taken").mkdir()
    temporary = TemporaryFile(tmp_path)
    number = temporary.fd
    temporary.close()
    other = os.open("/dev/null", os.O_RDONLY)
    assert other == number
    with pytest.raises(IsADirectoryError), temporary:
        temporary.commit(tmp_path / "taken")
    os.fstat(other)
    os.close(other)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_file_whose_close_fails_gets_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system may report a full disk only on close: the old file stays."""
    publish_bytes(tmp_path / "marker", b"old")
    close = os.close

    def full(fd: int) -> None:
        regular = Path(f"/proc/self/fd/{fd}").is_file()
        close(fd)
        if regular:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "close", full)
    with pytest.raises(OSError, match="quota"):
        publish_bytes(tmp_path / "marker", b"new")
    assert (tmp_path / "marker").read_bytes() == b"old"


def test_a_small_file_replaces_another_in_one_step(tmp_path: Path) -> None:
    """The published file has mode 0600, and there is no other file."""
    for data in (b"one", b"two"):
        publish_bytes(tmp_path / "marker", data)
        assert (tmp_path / "marker").read_bytes() == data
    assert (tmp_path / "marker").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["marker"]


def test_a_block_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """An error between making a temporary file and naming it deletes the file and closes it once."""
    with pytest.raises(ZeroDivisionError), TemporaryFile(tmp_path):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_deleting_frees_bytes(tmp_path: Path) -> None:
    """Deleting tells the bytes, of a link its own and not its target's, and takes a directory as well."""
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "kept").write_bytes(b"x" * 1000)
    (tmp_path / "directory" / "below").mkdir(parents=True)
    assert delete(tmp_path / "file") == 5
    assert delete(tmp_path / "link") < 1000
    assert delete(tmp_path / "directory") > 0
    assert delete(tmp_path / "absent") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_sweep_takes_what_is_old_and_named(tmp_path: Path) -> None:
    """Age and prefix decide; a directory that is not there is empty."""
    for name, time_ns in ((".tmp-old", 5), (".tmp-new", 10**18), ("entry", 5)):
        (tmp_path / name).write_bytes(b"123")
        os.utime(tmp_path / name, ns=(time_ns, time_ns))
    assert sweep(tmp_path, ".tmp-", 1000) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == [".tmp-new", "entry"]
    assert sweep(tmp_path / "absent", "", 1000) == 0


def test_a_small_file_that_does_not_read_back_gets_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a lost write the old file stays; a reported short write is continued."""
    pwrite = os.pwrite
    publish_bytes(tmp_path / "marker", b"old")
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, memoryview(data)[:2], offset))
    publish_bytes(tmp_path / "marker", b"newer")
    assert (tmp_path / "marker").read_bytes() == b"newer"
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, data[:2], offset) and len(data))
    with pytest.raises(OSError, match="does not read back"):
        publish_bytes(tmp_path / "marker", b"newest")
    assert (tmp_path / "marker").read_bytes() == b"newer"
    assert [path.name for path in tmp_path.iterdir()] == ["marker"]


def test_a_rename_whose_reply_was_lost_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS repeats the request and finds no source: the identity of the file under the new name decides."""
    rename = Path.rename

    def lost(self: Path, target: Path) -> None:
        rename(self, target)
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(Path, "rename", lost)
    publish_bytes(tmp_path / "marker", b"new")
    assert (tmp_path / "marker").read_bytes() == b"new"
    monkeypatch.setattr(Path, "rename", lambda self, target: self.unlink() or rename(self, target))
    with pytest.raises(FileNotFoundError):
        publish_bytes(tmp_path / "marker", b"newer")
    assert (tmp_path / "marker").read_bytes() == b"new"


def test_a_file_that_cannot_be_deleted_does_not_end_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are deleted."""
    for number in range(4):
        (tmp_path / f".tmp-{number}").touch()
    real_delete = files.delete

    def delete_others(path: Path) -> int:
        if path.name == ".tmp-2":
            raise PermissionError(1, "Operation not permitted")
        return real_delete(path)

    monkeypatch.setattr(files, "delete", delete_others)
    sweep(tmp_path, ".tmp-", time.time_ns())
    assert [path.name for path in tmp_path.iterdir()] == [".tmp-2"]
