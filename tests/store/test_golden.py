"""Stores of every past format are read for ever."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from trtcache.digests import CacheKey, Digest
from trtcache.store.catalog import load_records
from trtcache.store.contract import Entry
from trtcache.store.disk import DiskStore

DATA = Path(__file__).parents[1] / "data"
sys.path.insert(0, str(DATA))
import make_golden  # noqa: E402  # found through the line above

DIGEST = "82580b4e2d6c32c77326e44914f70cfa7d4b96abe7a946b9588963756544bda0"


@pytest.fixture
def golden(tmp_path: Path) -> DiskStore:
    """A copy of the store of format 1, with the modes that a checkout does not keep."""
    root = tmp_path / "golden"
    shutil.copytree(DATA / "golden-1", root)
    for path in [root, *root.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)
    return DiskStore.open(root)


def test_a_store_of_format_1_is_read(golden: DiskStore) -> None:
    """The entry of the golden store is a hit for the same parts, whole and with all that is known about it."""
    key = CacheKey.of("golden", make_golden.PARTS)
    entry = golden.get(key)
    assert isinstance(entry, Entry)
    assert key.digest == DIGEST
    assert {name: entry.read(name) for name in entry.members} == make_golden.CONTENTS
    assert (entry.kind, entry.name, entry.build_s) == ("golden", "gold", 12.5)
    assert (entry.created_ns, entry.provenance["host"]) == (make_golden.CREATED_NS, "golden")
    assert golden.check(DIGEST).members[0].codec == "zstd"


def test_a_store_of_format_1_is_listed(golden: DiskStore) -> None:
    """Its index, which is not checked in, is rebuilt from the entries, including the pin."""
    (record,) = load_records(golden)
    assert (record.digest, record.pinned, record.members) == (DIGEST, True, 3)


def test_the_format_has_not_changed(golden: DiskStore, tmp_path: Path) -> None:
    """Written again, the golden store has the same header and the same uncompressed members."""
    make_golden.make(tmp_path / "again")
    again = DiskStore.open(tmp_path / "again").header(DIGEST)
    kept = golden.header(DIGEST)
    assert (again.key, again.provenance, again.created_ns) == (kept.key, kept.provenance, kept.created_ns)
    assert [(m.name, m.codec, m.offset, m.digest) for m in again.members] == [
        (m.name, m.codec, m.offset, m.digest) for m in kept.members
    ]


def test_the_document_describes_a_reader(golden: DiskStore) -> None:
    """An independent reader written from ``docs/format.md`` reads the golden entry."""
    import json  # what follows is meant to stand alone
    import struct

    from blake3 import blake3

    from trtcache.store.compression import zstd

    raw = golden.path(DIGEST).read_bytes()
    magic, version, header_bytes, signatures_bytes, zero, length = struct.unpack("<8sIIIIQ", raw[:32])
    assert (magic, version, zero, length) == (b"\x89TRTC\r\n\x1a", 1, 0, len(raw))
    front = raw[64 : 64 + header_bytes + signatures_bytes]
    assert blake3(raw[:32] + front).digest() == raw[32:64]
    header = json.loads(front[:header_bytes])
    assert header["key"]["digest"] == f"b3:{DIGEST}"
    members = {}
    for member in header["members"]:
        assert member["offset"] % 4096 == 0
        stored = raw[member["offset"] :][: member["stored_bytes"]]
        assert f"b3:{blake3(stored).hexdigest()}" == member["stored_digest"]
        plain = zstd.decompress(stored) if member["codec"] == "zstd" else stored
        assert str(Digest.of(plain)) == member["digest"]
        members[member["name"]] = plain
    assert members == make_golden.CONTENTS
