"""Records: what a header and a directory entry say together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtcache.store.record import Record

if TYPE_CHECKING:
    from trtcache.digests import CacheKey
    from trtcache.store.disk import DiskStore


def test_a_record_is_made_of_header_and_file(store: DiskStore, key: CacheKey) -> None:
    """Sizes on disk and times of use come from the file, everything else from its header."""
    store.put(key, {"a": b"x" * 1000, "b": b"y"}, kind="test", name="tiny", build_s=2.5)
    stored = store.stat(key.digest)
    record = Record.of(store.header(key.digest), stored, pinned=True)
    assert (record.digest, record.kind, record.name) == (key.digest, "test", "tiny")
    assert (record.file_bytes, record.used_ns, record.inode) == (stored.file_bytes, stored.used_ns, stored.inode)
    assert (record.size_bytes, record.members, record.build_s, record.pinned) == (1001, 2, 2.5, True)


def test_the_json_form_has_the_documented_fields(store: DiskStore, key: CacheKey) -> None:
    """Scripts rely on these names; the inode is internal."""
    store.put(key, {"a": b"x"}, kind="test")
    record = Record.of(store.header(key.digest), store.stat(key.digest), pinned=False)
    assert list(record.as_json()) == [
        "key",
        "kind",
        "name",
        "file_bytes",
        "size_bytes",
        "created_ns",
        "used_ns",
        "build_s",
        "members",
        "pinned",
        "target",
    ]
