"""The artifact file: what is written is read, and no byte of it can change unseen."""

from __future__ import annotations

import json
import mmap
import os
import resource
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trtcache.digests import CacheKey, hash_bytes
from trtcache.errors import BuildError, CorruptBlobError, FormatVersionError, HeaderSizeError
from trtcache.store import compression, reader, writer
from trtcache.store import format as artifact
from trtcache.store.compression import zstd
from trtcache.store.format import Draft, EntryHeader, contents_of, is_compression_worthwhile
from trtcache.store.reader import ArtifactFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CONTENTS = {"stored": b"\x00\x01 short", "text": b"the same words again and again " * 40}


def write(path: Path, contents: Mapping[str, Any] = CONTENTS, **changes: Any) -> EntryHeader:
    """Write an artifact file and return its header."""
    fields = {
        "key": CacheKey.of("test", {"n": 1}),
        "kind": "test",
        "name": "a name",
        "created_ns": 5,
        "build_s": 1.5,
        "provenance": {"by": "a test"},
        "contents": contents,
    }
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        return writer.write_entry_file(fd, Draft(**(fields | changes)))
    finally:
        os.close(fd)


def load(path: Path, *, mapped: bool = False) -> dict[str, Any]:
    """Open a file and return its verified members."""
    file = ArtifactFile(path)
    try:
        return file.load(mapped=mapped)
    finally:
        file.close()


def reason_of(path: Path) -> str:
    """Return why a file is refused; fail if it is not."""
    with pytest.raises(CorruptBlobError) as caught:
        load(path)
    return caught.value.reason


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a small artifact file with a stored and a compressed member."""
    write(tmp_path / "a")
    return tmp_path / "a"


def test_header_and_members_come_back(tmp_path: Path) -> None:
    """What was written is read, to the last field."""
    header = write(tmp_path / "a")
    file = ArtifactFile(tmp_path / "a")
    assert file.header == header
    assert [member.codec for member in header.members] == ["stored", "zstd"]
    assert header.size_bytes == sum(map(len, CONTENTS.values()))
    assert file.load(mapped=False) == CONTENTS
    file.verify()


NAMES = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,63}", fullmatch=True)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    contents=st.dictionaries(NAMES, st.binary(max_size=9000), min_size=1, max_size=5),
    name=st.none() | st.text(),
    provenance=st.dictionaries(st.text(), st.text(), max_size=3),
)
def test_any_content_round_trips(
    tmp_path: Path, contents: dict[str, bytes], name: str | None, provenance: dict[str, str]
) -> None:
    """Members of any bytes and metadata of any text round-trip."""
    header = write(tmp_path / "a", contents, name=name, provenance=provenance)
    assert load(tmp_path / "a") == contents
    assert (header.name, header.provenance) == (name, provenance)


def test_every_bit_of_every_byte_is_covered(path: Path) -> None:
    """A change of any bit, or of all bits, of any byte of the file is found."""
    whole = path.read_bytes()
    fd = os.open(path, os.O_RDWR)
    unseen = []
    for offset, byte in enumerate(whole):
        for pattern in (1, 2, 4, 8, 16, 32, 64, 128, 255):
            os.pwrite(fd, bytes([byte ^ pattern]), offset)
            try:
                load(path)
            except CorruptBlobError:
                continue
            unseen.append((offset, pattern))
        os.pwrite(fd, bytes([byte]), offset)
    os.close(fd)
    assert unseen == []
    assert load(path) == CONTENTS


def test_every_truncation_is_found(path: Path) -> None:
    """A file cut at any length is refused."""
    whole = path.read_bytes()
    for size in range(len(whole) - 1, -1, -7):
        os.truncate(path, size)
        assert reason_of(path) in {"size", "magic"}


@pytest.mark.parametrize("junk", [b"\x00", b"x" * 5000])
def test_appended_bytes_are_found(path: Path, junk: bytes) -> None:
    """Bytes after the end, zeros too, make the file wrong."""
    with path.open("ab") as file:
        file.write(junk)
    assert reason_of(path) == "size"


def test_exchanged_blocks_are_found(path: Path) -> None:
    """Two pages of one file in each other's place are found."""
    whole = path.read_bytes()
    second, third = whole[4096:8192], whole[8192:]
    path.write_bytes(whole[:4096] + third.ljust(4096, b"\0") + second[: len(third)])
    assert reason_of(path) in {"padding", "member"}


def forge(path: Path, change: Callable[[dict[str, Any]], object], **numbers: int) -> None:
    """Change the header of a file and update its digest, as an attacker would."""
    whole = path.read_bytes()
    prelude = artifact.parse_prelude(whole[:64], len(whole), str(path))
    document = json.loads(whole[64 : 64 + prelude.header_bytes])
    changed = change(document)
    body = json.dumps(document if changed is None else changed).encode().ljust(prelude.header_bytes)
    first = artifact._PRELUDE.pack(
        artifact.MAGIC,
        numbers.get("version", 1),
        numbers.get("header_bytes", len(body)),
        numbers.get("signatures_bytes", 0),
        numbers.get("reserved", 0),
        len(whole),
    )
    path.write_bytes(first + hash_bytes(first + body) + body + whole[64 + len(body) :])


BREAKS: dict[str, Callable[[dict[str, Any]], object]] = {
    "not a mapping": lambda document: [document],
    "no key": lambda document: document.pop("key") and None,
    "key is text": lambda document: document.update(key="b3:00"),
    "no members": lambda document: document["members"].clear(),
    "members is a mapping": lambda document: document.update(members={}),
    "a member is null": lambda document: document["members"].__setitem__(0, None),
    "an unknown field": lambda document: document["members"][0].update(more=1),
    "a field less": lambda document: document["members"][0].pop("digest") and None,
    "a negative size": lambda document: document["members"][0].update(size_bytes=-1),
    "a size of 10^30": lambda document: document["members"][0].update(size_bytes=10**30),
    "a true size": lambda document: document["members"][0].update(size_bytes=True),
    "a bad digest": lambda document: document["members"][0].update(digest="b3:zz"),
    "a digest that is a number": lambda document: document["members"][0].update(digest=3),
    "a path for a name": lambda document: document["members"][0].update(name="../x"),
    "the same name twice": lambda document: document["members"][1].update(name="stored"),
    "another offset": lambda document: document["members"][1].update(offset=4096),
    "an unknown codec": lambda document: document["members"][1].update(codec="lzma"),
    "stored in other bytes": lambda document: document["members"][0].update(size_bytes=3),
    "a ratio beyond the bound": lambda document: document["members"][1].update(size_bytes=1 << 40),
    "a number for the kind": lambda document: document.update(kind=1),
    "provenance is a list": lambda document: document.update(provenance=[]),
    "a time that is text": lambda document: document.update(created_ns="5"),
    "a time before 1970": lambda document: document.update(created_ns=-1),
    "a time of 64 bits": lambda document: document.update(created_ns=1 << 63),
    "a build of no number": lambda document: document.update(build_s=float("nan")),
    "a build without end": lambda document: document.update(build_s=float("inf")),
    "a build of 10^400 s": lambda document: document.update(build_s=10**400),
    "a build that ended before it began": lambda document: document.update(build_s=-1.0),
    "half a character in the name": lambda document: document.update(name="\ud800"),
    "half a character in the kind": lambda document: document.update(kind="\udfff"),
    "half a character in the provenance": lambda document: document.update(provenance={"\ud800": ""}),
    "half a character in the key": lambda document: document["key"]["document"].update(kind="\udbff"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_header_with_a_right_digest_must_keep_the_grammar(path: Path, name: str) -> None:
    """A forged header that breaks the grammar is refused before any member is read."""
    forge(path, BREAKS[name])
    assert reason_of(path) == "header"


def test_a_deeply_nested_header_is_refused(tmp_path: Path) -> None:
    """JSON that is nested beyond Python's stack is damage, not a crash."""
    write(tmp_path / "a", provenance={"room": "x" * 400_000})
    forge(tmp_path / "a", lambda document: None)
    whole = (tmp_path / "a").read_bytes()
    size = artifact.parse_prelude(whole[:64], len(whole), "a").header_bytes
    body = (b"[" * 100_000).ljust(size)
    (tmp_path / "a").write_bytes(whole[:32] + hash_bytes(whole[:32] + body) + body + whole[64 + size :])
    assert reason_of(tmp_path / "a") == "header"


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ({"reserved": 1}, "header"),
        ({"header_bytes": artifact.MAX_HEADER_BYTES + 1}, "header"),
        ({"signatures_bytes": artifact.MAX_SIGNATURES_BYTES + 1}, "header"),
        ({"signatures_bytes": artifact.MAX_SIGNATURES_BYTES}, "size"),
    ],
)
def test_lengths_out_of_bounds_are_refused(path: Path, numbers: dict[str, int], reason: str) -> None:
    """Lengths are compared with the format's bounds and with the file before anything is read."""
    forge(path, lambda document: None, **numbers)
    assert reason_of(path) == reason


def test_a_later_format_is_distinguished_from_damage(path: Path) -> None:
    """An intact file of a later format is FormatVersionError; with a wrong digest it is damage."""
    forge(path, lambda document: None, version=2)
    with pytest.raises(FormatVersionError, match="format 2, but this trtcache reads format 1"):
        ArtifactFile(path)
    with path.open("r+b") as file:
        file.seek(8)
        file.write(b"\x03")
    assert reason_of(path) == "header"


def replace_member(path: Path, frame: bytes, size_bytes: int) -> None:
    """Put ``frame`` where the compressed member was and make every digest and size around it fit."""

    def change(document: dict[str, Any]) -> None:
        digest = "b3:" + hash_bytes(frame).hex()
        document["members"][1].update(stored_bytes=len(frame), stored_digest=digest, size_bytes=size_bytes)

    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + frame)
    raw = bytearray(path.read_bytes())
    raw[24:32] = len(raw).to_bytes(8, "little")
    path.write_bytes(raw)
    forge(path, change)


ZEROS = 256 << 20


@pytest.mark.parametrize(
    ("frame", "size_bytes"),
    [
        pytest.param(zstd.compress(bytes(ZEROS)), 1240, id="declares 256 MiB"),
        pytest.param(zstd.compress(bytes(1240)) * 2, 1240, id="two frames"),
        pytest.param(zstd.compress(bytes(1240)) + b"junk", 1240, id="junk after the frame"),
        pytest.param(zstd.compress(bytes(1241)), 1240, id="one byte more"),
        pytest.param(
            zstd.compress(bytes(1240), options={zstd.CompressionParameter.content_size_flag: 0}), 1240, id="no size"
        ),
        pytest.param(
            zstd.compress(
                os.urandom(1 << 15) + bytes((64 << 20) - (1 << 15)),
                options={
                    zstd.CompressionParameter.window_log: 27,
                    zstd.CompressionParameter.enable_long_distance_matching: 1,
                },
            ),
            64 << 20,
            id="a window of 64 MiB",
        ),
        pytest.param(b"no frame at all", 1240, id="no frame"),
    ],
)
def test_a_bomb_is_refused_before_it_is_decompressed(path: Path, frame: bytes, size_bytes: int) -> None:
    """A frame that does not match its header is rejected, whatever its digests, in less memory than it would need."""
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    replace_member(path, frame, size_bytes)
    assert reason_of(path) in {"member", "header"}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 64 << 10


def test_lack_of_memory_is_not_damage(tmp_path: Path) -> None:
    """Running out of memory during decompression is a miss that leaves the entry in place."""
    code = """
        import resource, sys
        from pathlib import Path
        from trtcache import digests as values
        from trtcache.store.contract import Miss
        from trtcache.store.disk import DiskStore
        from trtcache.digests import CacheKey
        values._THREADS = 1  # where there is no memory for a thread, Rust ends the process
        store, key = DiskStore.open(sys.argv[1]), CacheKey.of("test", {})
        content = b"".join(b"%d, " % number for number in range(2_500_000))  # more than 16 MB: a window of 8 MiB
        store.put(key, {"artifact": content}, kind="test")
        size_bytes = len(content)
        del content
        used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        said = set()
        for more_bytes in range(0, size_bytes + (24 << 20), 1 << 20):
            resource.setrlimit(resource.RLIMIT_AS, (used_bytes + more_bytes, resource.RLIM_INFINITY))
            found = store.get(key)
            said.add(found.reason if isinstance(found, Miss) else found.outcome)
            del found
        print(*sorted(said), len(list(store.scan())), (store.root / "quarantine").exists())
    """
    command = [sys.executable, "-c", textwrap.dedent(code), tmp_path / "cache"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "hit unreadable 1 False\n"
    with pytest.raises(MemoryError, match="Allocation error"):
        _without_memory()


def _without_memory() -> None:
    """Have zstd fail as it does where memory ends: by an error that it has for damage as well."""
    with pytest.MonkeyPatch.context() as patched:
        error = zstd.ZstdError("Unable to decompress Zstandard data: Allocation error : not enough memory")
        patched.setattr(compression, "_fill", lambda *_: (_ for _ in ()).throw(error))
        compression.decompress(zstd.compress(b"content"), 7)


@pytest.mark.parametrize("written", [0, 1 << 20])
def test_an_entry_that_is_nearly_all_a_hole_is_not_read_to_its_end(tmp_path: Path, written: int) -> None:
    """A sparse file of 1 TB is cheap: verify and a copy reject it, even if its header has the right size."""
    size_bytes = 1 << 40
    path = tmp_path / "a"
    header = write(path, {"stored": b"short"})
    member = replace(header.members[0], size_bytes=size_bytes, stored_bytes=size_bytes)
    forged = replace(header, members=(member,), file_bytes=member.end)
    path.write_bytes(
        artifact.encode_prelude_and_header(forged, len(artifact.encode_header(forged))).ljust(member.offset, b"\0")
    )
    with path.open("r+b") as file:
        file.seek(member.offset)
        file.write(os.urandom(written))
        file.truncate(member.end)
    opened = ArtifactFile(path)
    for way in (opened.verify, lambda: opened.copy_to(-1)):
        with pytest.raises(CorruptBlobError, match=r"only \d+ of its \d+ bytes were ever written") as caught:
            way()
        assert caught.value.reason == "size"


def test_a_large_entry_with_a_hole_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a copy by rsync --sparse leaves out is read as the zeros that it is."""
    monkeypatch.setattr(reader, "SPARSE_FROM_BYTES", 1 << 20)
    content = os.urandom(8 << 20) + bytes(1 << 18)
    member = write(tmp_path / "a", {"stored": content}).members[0]
    assert member.codec == "stored"
    with (tmp_path / "a").open("r+b") as file:
        file.truncate(member.offset + (8 << 20))
        file.truncate(member.end)
    ArtifactFile(tmp_path / "a").verify()


def test_the_uncompressed_digest_is_checked(path: Path) -> None:
    """A frame that decompresses to the right size of other bytes is refused."""
    replace_member(path, zstd.compress(bytes(len(CONTENTS["text"]))), len(CONTENTS["text"]))
    assert reason_of(path) == "member"
    with pytest.raises(CorruptBlobError):
        ArtifactFile(path).verify()


def test_signatures_are_covered_and_otherwise_ignored(path: Path) -> None:
    """Bytes in the block of signatures are part of what the digest covers."""
    whole = path.read_bytes()
    size = artifact.parse_prelude(whole[:64], len(whole), "a").header_bytes
    first = artifact._PRELUDE.pack(artifact.MAGIC, 1, size, 9, 0, len(whole))
    front = whole[64 : 64 + size] + b"signature"
    path.write_bytes(first + hash_bytes(first + front) + front + whole[64 + size + 9 :])
    assert load(path) == CONTENTS
    with path.open("r+b") as file:
        file.seek(64 + size)
        file.write(b"S")
    assert reason_of(path) == "header"


@pytest.mark.parametrize(
    ("content", "codec"),
    [
        (b"", "stored"),
        (os.urandom(3 << 20), "stored"),
        (os.urandom(1 << 20) + bytes(1 << 20), "zstd"),
        (bytes(8 << 20), "stored"),
        (b"ab" * 600, "zstd"),
    ],
    ids=["empty", "random", "half random", "beyond the ratio", "text"],
)
def test_members_are_compressed_where_that_pays(tmp_path: Path, content: bytes, codec: str) -> None:
    """Compression is used from 5 % on, and not beyond the ratio that a reader accepts; bytes and files alike."""
    (tmp_path / "file").write_bytes(content)
    for source in (content, bytearray(content), memoryview(content), tmp_path / "file"):
        header = write(tmp_path / "a", {"artifact": source})
        assert header.members[0].codec == codec
        assert load(tmp_path / "a")["artifact"] == content
        assert header.file_bytes == (tmp_path / "a").stat().st_size


def test_a_sample_that_misleads_costs_nothing(tmp_path: Path) -> None:
    """A member whose sample compresses but which does not is stored uncompressed, with nothing left of the attempt."""
    step = (32 << 20) // 16
    content = b"".join(bytes(64 << 10) + os.urandom(step - (64 << 10)) for _ in range(16))
    header = write(tmp_path / "a", {"artifact": content, "next": b"x"})
    assert header.members[0].codec == "stored"
    assert load(tmp_path / "a") == {"artifact": content, "next": b"x"}


def test_large_stored_members_are_mapped_on_request(tmp_path: Path) -> None:
    """A mapped member has no copy in memory; unmapped it is private bytes; both outlive the file's name."""
    content = os.urandom(2 << 20)
    write(tmp_path / "a", {"small": b"s", "artifact": content})
    mapped, copied = load(tmp_path / "a", mapped=True), load(tmp_path / "a")
    assert isinstance(mapped["artifact"].obj, mmap.mmap)
    assert not isinstance(copied["artifact"].obj, mmap.mmap)
    (tmp_path / "a").unlink()
    assert mapped["artifact"] == copied["artifact"] == content
    assert mapped["artifact"].readonly
    assert copied["artifact"].readonly


def test_a_large_file_is_written_in_little_memory(tmp_path: Path) -> None:
    """Writing and verifying a large file member holds a few chunks, not the member."""
    code = textwrap.dedent(
        """
        import os, resource, sys
        from pathlib import Path
        from trtcache import CacheKey
        from trtcache.store.disk import DiskStore
        source = Path(sys.argv[1]) / "source"
        with source.open("wb") as file:
            for _ in range(300):
                file.write(os.urandom(1 << 20))
        store = DiskStore.open(Path(sys.argv[1]) / "cache")
        key = CacheKey.of("test", {})
        store.put(key, {"small": b"1"}, kind="test")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        store.put(key, {"artifact": source}, kind="test")
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        """
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 64 << 10


@pytest.mark.parametrize(
    ("built", "why"),
    [
        ("text", "of type str"),
        (None, "of type NoneType"),
        ({}, "0 members"),
        ({"Bad Name": b""}, "named 'Bad Name'"),
        ({1: b""}, "named 1"),
        ({"a": 3}, "of type int"),
        (Path("/nonexistent/engine"), "which does not exist"),
        (Path("/"), "which is not a file"),
        ({str(index): b"" for index in range(1025)}, "1025 members"),
    ],
)
def test_what_a_build_returns_is_checked(built: object, why: str) -> None:
    """An invalid return value of a build function gives a clear message."""
    with pytest.raises(BuildError, match=why):
        contents_of(built, "test")


def test_views_of_other_shapes_are_taken_as_bytes() -> None:
    """A memoryview of any element type or stride is its bytes."""
    view = memoryview(bytes(range(16)))
    assert contents_of(view.cast("I"), "test")["artifact"] == bytes(range(16))
    assert contents_of(view[::2], "test")["artifact"] == bytes(range(0, 16, 2))


def test_a_read_only_view_of_what_others_write_to_is_copied() -> None:
    """The entry of the builder is the stored one."""
    buffer = bytearray(b"before")
    taken = contents_of(memoryview(buffer).toreadonly(), "test")["artifact"]
    buffer[:] = b"later!"
    assert taken == b"before"
    array = np.zeros(6, np.uint8)
    view = array.view()
    view.flags.writeable = False
    taken = contents_of(memoryview(view), "test")["artifact"]
    array[:] = 7
    assert taken == bytes(6)


def test_a_read_only_mapping_of_a_file_is_copied(tmp_path: Path) -> None:
    """The file may be written to later."""
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    taken = contents_of(memoryview(mapped), "test")["artifact"]
    path.write_bytes(b"later!")
    assert taken == b"before"


def test_a_file_that_shrinks_while_it_is_stored_is_an_error_of_the_build(tmp_path: Path) -> None:
    """A builder's file that changes under the writer is BuildError, not a wrong entry."""
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3 << 20))
    with writer._open_content(source, "test") as opened:
        os.truncate(source, 1 << 20)
        with pytest.raises(BuildError, match="changed while it was stored"):
            list(opened.chunks())


def test_a_file_that_vanishes_is_an_error_of_the_build(tmp_path: Path) -> None:
    """A builder's file that is deleted before it is stored is a BuildError with its path."""
    with pytest.raises(BuildError, match=r"gone cannot be read: No such file"):
        write(tmp_path / "a", {"artifact": tmp_path / "gone"})


def test_a_header_beyond_the_bound_is_refused(tmp_path: Path) -> None:
    """A key document that no reader would accept is refused when it is written."""
    key = CacheKey.of("test", {"text": "x" * artifact.MAX_HEADER_BYTES})
    with pytest.raises(HeaderSizeError, match="the format allows 16777216"):
        write(tmp_path / "a", key=key)


def test_other_than_regular_files_are_refused(tmp_path: Path, path: Path) -> None:
    """A link, a FIFO, a directory or a socket in the place of a file is refused without waiting."""
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    for name in ("link", "fifo", "directory"):
        assert reason_of(tmp_path / name) == "file"


@pytest.mark.parametrize(("size_bytes", "stays"), [(63 << 20, False), (64 << 20, True)])
def test_a_large_member_is_compressed_for_a_large_gain_only(size_bytes: int, stays: bool) -> None:
    """From 64 MiB on 8 % are not worth a copy in memory at every hit; 30 % are."""
    assert is_compression_worthwhile(size_bytes, size_bytes * 92 // 100) is not stays
    assert is_compression_worthwhile(size_bytes, size_bytes * 70 // 100)


def test_a_file_that_others_can_write_is_refused(path: Path) -> None:
    """Mode 0666 means that another user may have written it."""
    path.chmod(0o666)
    assert reason_of(path) == "file"


def test_a_refused_file_leaves_no_descriptor_open(path: Path) -> None:
    """However often a file is refused, no descriptor stays behind."""
    os.truncate(path, 100)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # names alone are wanted
    for _ in range(20):
        reason_of(path)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208  # as above


def test_read_ends_at_a_file_cut_meanwhile(tmp_path: Path) -> None:
    """A file that is cut after its header was read is damage, not an endless loop."""
    write(tmp_path / "a")
    file = ArtifactFile(tmp_path / "a")
    os.truncate(tmp_path / "a", 5000)
    with pytest.raises(CorruptBlobError, match="it ends after 5000 bytes"):
        file.load(mapped=False)
    assert reader.MAP_FROM_BYTES == 1 << 20
