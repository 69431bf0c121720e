"""Opening a directory: created, recognized, or rejected with a remedy."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from trtcache.digests import CacheKey
from trtcache.errors import FormatVersionError, NotAStoreError, UnsafeStoreError
from trtcache.store.disk import DiskStore
from trtcache.store.root import MARKER, TAG, filesystem_type


def mode(path: Path) -> int:
    """Return the permission bits of a path."""
    return path.stat().st_mode & 0o777


def test_a_missing_root_is_made_for_this_user_alone(tmp_path: Path) -> None:
    """The directory and those above it have mode 0700, the files 0600, whatever the umask."""
    old = os.umask(0)
    try:
        store = DiskStore.open(tmp_path / "a" / "b")
    finally:
        os.umask(old)
    assert [mode(path) for path in (store.root.parent, store.root)] == [0o700, 0o700]
    assert {path.name: mode(path) for path in store.root.iterdir()} == {MARKER: 0o600, TAG: 0o600}
    assert (store.root / TAG).read_bytes().startswith(b"Signature: 8a477f597d28d172789f06886806bc55")
    assert store.writable


@pytest.mark.parametrize("names", [[], [".tmp-0123"], [TAG], [".tmp-0123", TAG], ["lost+found"]])
def test_an_empty_directory_becomes_a_store(tmp_path: Path, names: list[str]) -> None:
    """Empty is also what a crash while making a store leaves."""
    for name in names:
        (tmp_path / name).write_bytes(b"")
    DiskStore.open(tmp_path)
    assert (tmp_path / MARKER).read_bytes() == b'{"format": 1}\n'
    DiskStore.open(tmp_path)


def test_a_foreign_directory_is_refused_untouched(tmp_path: Path) -> None:
    """A directory with other content is not modified, and the message names the content."""
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(NotAStoreError, match=r"contains 'thesis.tex'; use an empty directory"):
        DiskStore.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("readonly", [False, True])
def test_a_dangling_link_is_not_a_root(tmp_path: Path, readonly: bool) -> None:
    """This is an error that names the link's target, and not an empty read-only store."""
    (tmp_path / "cache").symlink_to(tmp_path / "gone")
    with pytest.raises(NotAStoreError, match=r"a link to .*gone, which does not exist"):
        DiskStore.open(tmp_path / "cache", readonly=readonly)


def test_a_file_is_not_a_root(tmp_path: Path) -> None:
    """A file in place of the directory is rejected."""
    (tmp_path / "cache").write_text("")
    with pytest.raises(NotAStoreError, match="not a directory"):
        DiskStore.open(tmp_path / "cache")
    with pytest.raises(NotAStoreError, match="cannot be created or read"):
        DiskStore.open(tmp_path / "cache" / "below")
    with pytest.raises(NotAStoreError, match="cannot be created or read"):
        DiskStore.open(tmp_path / "cache" / "below", readonly=True)


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    """A store of a later format is left to the version that knows it."""
    (tmp_path / MARKER).write_text('{"format": 2}')
    with pytest.raises(FormatVersionError, match="format 2"):
        DiskStore.open(tmp_path)


@pytest.mark.parametrize("text", ["", "{}", "[]", "nonsense", '{"format": "1"}', '{"format": 0}', '{"format": true}'])
def test_a_damaged_marker_is_named(tmp_path: Path, text: str) -> None:
    """A damaged marker is rejected with the remedy."""
    (tmp_path / MARKER).write_text(text)
    with pytest.raises(NotAStoreError, match="is damaged; remove that file"):
        DiskStore.open(tmp_path)
    (tmp_path / MARKER).unlink()
    DiskStore.open(tmp_path)


def test_a_marker_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """A link in the marker's place is not followed."""
    (tmp_path / "cache").mkdir(mode=0o700)
    (tmp_path / "cache" / MARKER).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotAStoreError):
        DiskStore.open(tmp_path / "cache")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("bits", [0o770, 0o707, 0o777, 0o720])
def test_a_root_that_others_can_write_is_refused(tmp_path: Path, bits: int) -> None:
    """Engines are code: a store that others may write to is refused, with the command that helps."""
    DiskStore.open(tmp_path)
    tmp_path.chmod(bits)
    with pytest.raises(UnsafeStoreError, match=f"run: chmod go-w {tmp_path}"):
        DiskStore.open(tmp_path)
    tmp_path.chmod(0o755)
    assert not DiskStore.open(tmp_path).private


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a directory away")
def test_a_root_of_another_user_is_refused(tmp_path: Path) -> None:
    """A directory of another user is rejected, even though root could write to it."""
    DiskStore.open(tmp_path / "cache")
    os.chown(tmp_path / "cache", 12345, -1)
    with pytest.raises(UnsafeStoreError, match="belongs to user 12345"):
        DiskStore.open(tmp_path / "cache")


def test_a_missing_root_is_not_made_for_reading(tmp_path: Path) -> None:
    """Read-only, a missing directory is an empty store and stays missing."""
    store = DiskStore.open(tmp_path / "cache", readonly=True)
    assert (store.writable, store.private, list(store.scan()), store.pins()) == (False, False, [], frozenset())
    assert not (tmp_path / "cache").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_a_root_that_cannot_be_made_is_named() -> None:
    """Without permission to make the directory there is one clear error."""
    child = os.fork()
    if child == 0:
        os.setresuid(65534, 65534, 65534)
        try:
            DiskStore.open("/nonexistent/trtcache-test")
        except NotAStoreError as error:
            os._exit(0 if "Permission denied" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_many_may_make_a_store_at_once(tmp_path: Path) -> None:
    """Threads that open a missing root together all get a store."""
    for attempt in range(20):
        root = tmp_path / str(attempt)
        barrier = threading.Barrier(6)
        failures: list[Exception] = []

        def make(root: Path = root, barrier: threading.Barrier = barrier, failed: list[Exception] = failures) -> None:
            barrier.wait()
            try:
                store = DiskStore.open(root)
                (store.root / "entries").mkdir(exist_ok=True)
            except Exception as error:  # noqa: BLE001  # shown below
                failed.append(error)

        threads = [threading.Thread(target=make) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert not list(root.glob(".tmp-*"))
        shutil.rmtree(root)


def test_the_file_system_is_known() -> None:
    """The type comes from the kernel's table of mounts, the deepest mount that holds the path."""
    assert filesystem_type(Path("/proc/self")) == "proc"
    assert filesystem_type(Path("/")) != "unknown"


def test_a_private_store_that_lost_its_marker_is_one_again(tmp_path: Path) -> None:
    """A directory that has only what a store has gets the marker again; one with another file is refused."""
    root = tmp_path / "cache"
    store, key = DiskStore.open(root), CacheKey.of("test", {"n": 1})
    store.put(key, {"a": b"x"}, kind="test")
    (root / MARKER).unlink()
    (root / "thesis.tex").touch()
    with pytest.raises(NotAStoreError, match="use an empty directory"):
        DiskStore.open(root)
    (root / "thesis.tex").unlink()
    assert DiskStore.open(root).contains(key.digest)
    assert (root / MARKER).is_file()
    root.chmod(0o2700)
    (root / MARKER).unlink()
    with pytest.raises(NotAStoreError, match="use an empty directory"):
        DiskStore.open(root)


def test_a_sweep_keeps_the_marker_young(tmp_path: Path) -> None:
    """Otherwise it is the first file that a purge of old files deletes."""
    store = DiskStore.open(tmp_path / "cache")
    os.utime(store.root / MARKER, (1, 1))
    store.sweep()
    assert (store.root / MARKER).stat().st_mtime > 1e9
