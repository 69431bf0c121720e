"""What someone who may write to the bucket can put there: none of it is used, and little of it is read."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import pytest

from tests.remote.conftest import fetch, left_behind, put_object, report
from trtcache.digests import CacheKey, hash_bytes
from trtcache.remote import uploads
from trtcache.remote.connection import Download, connect
from trtcache.remote.tier import object_name
from trtcache.store.format import MAGIC, Draft
from trtcache.store.writer import write_entry_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.conftest import Result
    from tests.remote.conftest import Hosts

CONTENT = b"engine" * 400_000


def path_of(hosts: Hosts, n: int) -> str:
    """Return the path of an entry's object on the server."""
    prefix = hosts.url.removeprefix("s3:/").partition("?")[0]
    return f"{prefix}/{object_name(CacheKey.of('test', {'n': n}).digest)}"


def unsigned(folder: Path) -> bytes:
    """Return an entry of key 0 without a signature."""
    key, path = CacheKey.of("test", {"n": 0}), folder / "unsigned"
    with path.open("xb+") as file:
        write_entry_file(file.fileno(), Draft(key, "test", None, 0, 9.0, {}, {"artifact": CONTENT}))
    return path.read_bytes()


def prelude(version: int, header_bytes: int, signature_bytes: int, file_bytes: int) -> bytes:
    """Return a beginning with a right digest and these lengths."""
    first = struct.pack("<8sIIIIQ", MAGIC, version, header_bytes, signature_bytes, 0, file_bytes)
    return first + hash_bytes(first)


def flip(data: bytes, place: int) -> bytes:
    """Return bytes with one bit changed."""
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


CASES: dict[str, tuple[str, Callable[[bytes, bytes, bytes], bytes]]] = {
    "unsigned": ("untrusted:unsigned", lambda good, other, bare: bare),
    "the entry of another key": ("corrupt:key", lambda good, other, bare: other),
    "a changed header": ("corrupt:header", lambda good, other, bare: flip(good, 200)),
    "a changed member": ("corrupt:member", lambda good, other, bare: flip(good, len(good) - 50)),
    "cut": ("corrupt:size", lambda good, other, bare: good[:-1000]),
    "longer": ("corrupt:size", lambda good, other, bare: good + bytes(1000)),
    "10 GB declared": ("corrupt:size", lambda good, other, bare: prelude(1, 200, 0, 10 << 30) + bytes(5000)),
    "a header of 4 GB": ("corrupt:header", lambda good, other, bare: prelude(1, (4 << 30) - 1, 0, 1064) + bytes(1000)),
    "no header": ("untrusted:unsigned", lambda good, other, bare: prelude(1, 0, 0, 64)),
    "a newer format": ("format", lambda good, other, bare: prelude(9, 0, 0, 64)),
    "empty": ("corrupt:magic", lambda good, other, bare: b""),
    "a page": ("corrupt:magic", lambda good, other, bare: b"<html>" * 30_000),
    "another member below the same header": ("corrupt:member", lambda good, other, bare: good[:8192] + other[8192:]),
}


@pytest.mark.parametrize("case", CASES)
def test_nothing_planted_is_used(
    hosts: Hosts, moto: int, tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a miss with a reason, and the entry is built."""
    good, other = (hosts.publish(CONTENT + bytes([n]), n).path for n in (0, 1))
    assert good is not None
    assert other is not None
    reason, plant = CASES[case]
    put_object(moto, path_of(hosts, 0), plant(good.read_bytes(), other.read_bytes(), unsigned(tmp_path)))
    read: list[int] = []
    chunks = Download.chunks

    def counted(self: Download) -> Iterator[bytes]:
        for chunk in chunks(self):
            read.append(len(chunk))
            yield chunk

    monkeypatch.setattr(Download, "chunks", counted)
    victim = hosts.host("victim")
    built = fetch(victim, b"own build")
    assert (built.outcome, bytes(built.read())) == ("built", b"own build")
    assert victim.store is not None
    misses = [event.reason for event in victim.store.events.read() if event.event == "remote_miss"]
    assert [miss.partition(" ")[2] for miss in misses] == [reason]
    assert not left_behind(hosts.folder)
    report(f"{case}: {sum(read)} bytes read")
    if reason.startswith("untrusted"):
        assert sum(read) <= 128 << 10


def test_an_entry_by_an_unknown_key_is_not_used(hosts: Hosts, keys: dict[str, tuple[str, Path]]) -> None:
    """As with a shared directory: who signed it has to be trusted here."""
    public, secret = keys["stranger"]
    theirs = hosts.writer("theirs", TRTCACHE_TRUSTED_KEYS=public, TRTCACHE_SIGNING_KEY=str(secret))
    fetch(theirs, b"theirs")
    assert uploads.flush(5) == 0
    assert bytes(fetch(hosts.host("victim"), b"own build").read()) == b"own build"


def test_an_entry_that_does_not_count_closes_the_breaker(hosts: Hosts, keys: dict[str, tuple[str, Path]]) -> None:
    """The server has answered: else planted objects would keep a remote off that is well again."""
    public, secret = keys["stranger"]
    fetch(hosts.writer("theirs", TRTCACHE_TRUSTED_KEYS=public, TRTCACHE_SIGNING_KEY=str(secret)), b"theirs")
    assert uploads.flush(5) == 0
    hosts.publish(b"good", 1)
    cache = hosts.host("victim")
    url, settings = cache.config.remotes.urls[0], cache.config.remotes
    connect(url, settings).breaker.note_failure("down", at_once=True)
    assert fetch(cache, b"own build").outcome == "built"
    note = connect(url, settings).note("remote")
    note.write_text(json.dumps({**json.loads(note.read_text()), "until_s": 1.0}))  # its time is over
    assert fetch(cache, b"own build", 2).outcome == "built"
    connect(url, settings).breaker.note_failure("down", at_once=True)
    note.write_text(json.dumps({**json.loads(note.read_text()), "until_s": 1.0}))
    assert fetch(hosts.host("another"), b"own build").outcome == "built"
    assert fetch(cache, n=1).origin == "remote"


def test_who_is_trusted_no_more_counts_no_more_where_signatures_are_required(
    hosts: Hosts, keys: dict[str, tuple[str, Path]]
) -> None:
    """A private directory takes what is in it, unless signatures are required there too."""
    hosts.publish(b"theirs")
    assert fetch(hosts.host("server"), b"own build").origin == "remote"
    later = {"TRTCACHE_TRUSTED_KEYS": keys["stranger"][0], "TRTCACHE_SIGNING_KEY": ""}
    assert bytes(fetch(hosts.host("server", **later), b"own build").read()) == b"theirs"
    assert bytes(fetch(hosts.host("server", TRTCACHE_SIGNATURES="require", **later), b"own").read()) == b"own"


def test_an_archived_object_is_a_miss_of_its_key_alone(
    command: Callable[..., Result], hosts: Hosts, moto: int, tmp_path: Path
) -> None:
    """S3 answers 403 for one in Glacier, where who may write can put it; other keys hit, and a writer replaces it."""
    good = hosts.publish(b"first")
    hosts.publish(b"second", 1)
    assert good.path is not None
    put_object(moto, path_of(hosts, 0), good.path.read_bytes(), x_amz_storage_class="GLACIER")
    reader = hosts.host("reader")
    assert fetch(reader, b"own build").outcome == "built"
    assert fetch(reader, n=1).origin == "remote"
    assert reader.store is not None
    assert [event.reason for event in reader.store.events.read() if event.event == "remote_miss"] == [
        f"{hosts.name} archived"
    ]
    listed = command("ls", hosts.name, "--long", "--json").json
    assert (listed["total"], [bad["reason"] for bad in listed["unreadable"]]) == (1, ["archived"])
    synced = command("sync", hosts.name, tmp_path / "target", "--json")
    assert (synced.code, len(synced.json["copied"])) == (4, 1)
    assert [entry["reason"] for entry in synced.json["refused"]] == ["remote:archived"]
    fetch(hosts.writer("again"), b"own build")
    assert uploads.flush(60) == 0
    assert bytes(fetch(hosts.host("later")).read()) == b"own build"


def test_no_name_leads_out_of_the_bucket(hosts: Hosts) -> None:
    """Names are made from digests of keys only, whatever a key says."""
    cache = hosts.host("a")
    key = cache.key({"../../../etc/passwd": "../.."}, kind="test")
    assert set(object_name(key.digest)) <= set("entries/v1.trtc0123456789abcdef")
    assert cache.get(key) is None
