"""Damaged and hostile programs are typed errors: bounded memory, no other file, nothing half loaded."""

from __future__ import annotations

import json
import random
import resource
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

import trtcache
from tests.bundle.archives import header_of, resealed, rewritten
from tests.effort import tries
from trtcache.bundle.archive import HEADER, PROGRAM
from trtcache.digests import hash_bytes
from trtcache.errors import (
    ProgramFileError,
    ProgramNamesError,
    ProgramSizesError,
    TrtcacheError,
    TruncatedProgramError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MOST_BYTES = 64 << 20
ODD = (0, 1, 2, 0x7F, 0x80, 0xFF, 0xFFFF, 0xFFFFFFFF)
NAMES = ("../../escaped", "/escaped", "..", "a/../../b", "trtcache/../x", "", "con\x00", "x" * 4096)


def _flip(data: bytearray, draw: random.Random) -> None:
    for _ in range(draw.choice((1, 1, 1, 4, 64))):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def _cut(data: bytearray, draw: random.Random) -> None:
    del data[draw.randrange(len(data)) :]


def _number(data: bytearray, draw: random.Random) -> None:
    """Put an odd number where a length could be, most often in the directory at the end."""
    at = (
        draw.randrange(max(0, len(data) - 4096), len(data) - 8)
        if draw.random() < 0.7
        else draw.randrange(len(data) - 8)
    )
    data[at : at + 4] = draw.choice(ODD).to_bytes(8, "little")[:4]


def _move(data: bytearray, draw: random.Random) -> None:
    begin, size = draw.randrange(len(data)), draw.randrange(1, 256)
    piece = data[begin : begin + size]
    at = draw.randrange(len(data))
    data[at : at + draw.choice((0, len(piece)))] = piece


def _more(data: bytearray, draw: random.Random) -> None:
    at = draw.choice((0, len(data), draw.randrange(len(data))))
    data[at:at] = draw.randbytes(draw.randrange(1, 64))


BYTES: tuple[Callable[[bytearray, random.Random], None], ...] = (_flip, _cut, _number, _move, _more)


def _document(document: Any, draw: random.Random) -> Any:
    """Change one value somewhere in a JSON document."""
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        for key in keys:
            places.append((value, key))
            walk(value[key])

    walk(document)
    if places:
        owner, key = draw.choice(places)
        odd = [
            None,
            -1,
            0,
            1 << 62,
            1e308,
            "",
            "x",
            *NAMES[:3],
            [],
            {},
            [[]],
            {"a": 1},
            True,
            owner[key],
            [owner[key]] * 3,
        ]
        owner[key] = draw.choice(odd)
    return document


def _rewritten(members: dict[str, bytes], draw: random.Random) -> dict[str, bytes]:
    """Change a document, and the header with it, so that all digests fit."""
    name = draw.choice([PROGRAM, PROGRAM, HEADER, "data/weights/model_weights_config.json", "models/model.json"])
    content = json.dumps(_document(json.loads(members[name]), draw)).encode()
    changed = {**members, name: content}
    if name != HEADER:
        header = json.loads(members[HEADER])
        header["members"][name] = [len(content), f"b3:{hash_bytes(content).hex()}"]
        changed[HEADER] = json.dumps(header).encode()
    return changed


def _load(path: Path) -> None:
    """Load a file; any answer but an error of ours is a failure."""
    try:
        trtcache.load(path, trust="local-file")
    except TrtcacheError as error:
        str(error)


def _watched(count: int, make: Callable[[random.Random], bytes], path: Path, beside: Path) -> None:
    """Load many files, and see that they cost little and touch nothing."""
    before = sorted(beside.rglob("*"))
    for seed in range(count):
        path.write_bytes(make(random.Random(seed)))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        _load(path)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) << 10
        assert grown < MOST_BYTES, seed
    assert sorted(beside.rglob("*")) == before


def test_damaged_bytes_are_typed_errors(program: Path, tmp_path: Path) -> None:
    """Flipped bits, cuts, odd lengths, moved and added bytes: it loads as it was, or a typed error says why not."""
    whole = program.read_bytes()

    def damaged(draw: random.Random) -> bytes:
        data = bytearray(whole)
        for _ in range(draw.choice((1, 1, 2, 3))):
            if len(data) > 64:
                draw.choice(BYTES)(data, draw)
        return bytes(data)

    _load(program)
    (tmp_path / "damaged.pt2").touch()
    _watched(tries(100, 25_000), damaged, tmp_path / "damaged.pt2", tmp_path)


def test_hostile_documents_are_typed_errors(program: Path, tmp_path: Path) -> None:
    """Documents with other values and fitting digests: what a hostile writer could sign, or a user vouch for."""
    with zipfile.ZipFile(program) as archive:
        members = {info.filename.partition("/")[2]: archive.read(info) for info in archive.infolist()}

    def hostile(draw: random.Random) -> bytes:
        path = tmp_path / "made.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in _rewritten(members, draw).items():
                archive.writestr(f"program/{name}", content)
        return path.read_bytes()

    _load(program)
    (tmp_path / "made.zip").touch()
    (tmp_path / "hostile.pt2").touch()
    _watched(tries(100, 25_000), hostile, tmp_path / "hostile.pt2", tmp_path)


def test_what_is_cut_off_is_told_as_such(program: Path, tmp_path: Path) -> None:
    """Wherever it is cut, from the first byte of its directory on."""
    whole = program.read_bytes()
    for size in (len(whole) - 1, len(whole) // 2, 100):
        (tmp_path / "cut.pt2").write_bytes(whole[:size])
        with pytest.raises(TruncatedProgramError):
            trtcache.load(tmp_path / "cut.pt2", trust="local-file")


@pytest.mark.parametrize("place", range(len(NAMES)))
def test_names_that_would_be_paths_are_refused(program: Path, tmp_path: Path, place: int) -> None:
    """Of members of the archive, and nothing appears anywhere."""
    path = tmp_path / "named.pt2"
    with zipfile.ZipFile(program) as source, zipfile.ZipFile(path, "w") as target:
        for info in source.infolist():
            target.writestr(info.filename, source.read(info))
        target.writestr(f"program/{NAMES[place]}", b"content")
    with pytest.raises(ProgramFileError):
        trtcache.load(path, trust="local-file")
    assert not (tmp_path.parent / "escaped").exists()


def test_a_file_beside_it_cannot_be_named_as_a_path(program: Path) -> None:
    """A hostile program cannot have another file opened, wherever that is."""
    with zipfile.ZipFile(program) as archive:
        said = json.loads(archive.read(f"program/{PROGRAM}"))
    said["targets"][0]["engines"][0] |= {"way": "file", "file": "../secret.trtc"}
    resealed(program, PROGRAM, json.dumps(said).encode())
    with pytest.raises(ProgramNamesError, match=r"'\.\./secret\.trtc'"):
        trtcache.load(program, trust="local-file")


def test_sizes_that_are_lies_cost_nothing(program: Path, tmp_path: Path) -> None:
    """A member that says to be larger than the file is one, and so is a header that says other sizes."""
    whole = bytearray(program.read_bytes())
    at = whole.index(b"PK\x01\x02") + 20
    whole[at : at + 8] = (0xFFFFFFF0).to_bytes(4, "little") * 2
    (tmp_path / "large.pt2").write_bytes(whole)
    with pytest.raises(ProgramSizesError):
        trtcache.load(tmp_path / "large.pt2", trust="local-file")
    header = header_of(program)
    header["members"]["models/model.json"][0] += 1
    rewritten(program, {HEADER: json.dumps(header).encode()})
    with pytest.raises(ProgramSizesError, match="another size"):
        trtcache.load(program, trust="local-file")
