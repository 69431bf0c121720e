"""Locations of external data, found in the bytes of a file: whatever they are, protobuf reads no other ones."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from onnx import TensorProto

from tests.frontends.onnx.graphs import model, saved, small
from trtcache.errors import OnnxFileError
from trtcache.frontends.onnx.file import OnnxFile

if TYPE_CHECKING:
    from pathlib import Path


def field(number: int, content: bytes) -> bytes:
    """Return a field of a message in serialized form."""
    return bytes([number << 3 | 2, len(content)]) + content


LOCATION, FIRST, LAST = field(1, b"location"), field(2, b"a.bin"), field(2, b"b.bin")
ENTRIES = {
    "usual": field(13, LOCATION + LAST),
    "two names": field(13, LOCATION + FIRST + LAST),
    "a name before": field(13, LAST + LOCATION),
    "a name before, and a field that looks like one": field(13, LAST + LOCATION) + FIRST,
    "the begin of an entry before": field(13, field(2, b"j\x11") + LOCATION + FIRST + LAST),
    "the begin of an entry at the end of a name before": field(13, LAST + field(3, b"j\x11") + LOCATION) + FIRST,
    "a field after": field(13, LOCATION + LAST + field(3, b"")),
    "two keys": field(13, field(1, b"no") + LOCATION + LAST),
    "a longer number": field(13, b"\x0a\x88\x00location" + LAST),
    "a group": b"\x0b\x0c" + field(13, LOCATION + LAST),
    "two entries": field(13, LOCATION + FIRST) + field(13, LOCATION + LAST),
    "a name with the word": field(13, LOCATION + field(2, b"location.bin")) + field(13, LOCATION + LAST),
}
"""Form of an entry -> the end of a tensor in serialized form, which protobuf reads as external data in ``b.bin``."""


@pytest.mark.parametrize("form", ENTRIES)
def test_the_scan_finds_what_protobuf_reads(tmp_path: Path, form: str) -> None:
    """It finds the file of each form of an entry, if only by parsing the model."""
    tensor = TensorProto(name="k", data_type=1, dims=[2, 4], data_location=TensorProto.EXTERNAL)
    initializer = field(5, tensor.SerializeToString() + ENTRIES[form])
    graph = model("g (float[2, 4] x) => (float[2, 4] y) { y = Add(x, k) }").SerializeToString()
    content = graph + field(7, initializer)
    (tmp_path / "model.onnx").write_bytes(content)
    file = OnnxFile(tmp_path / "model.onnx")
    assert "b.bin" in file.locations
    assert set(file.scan_locations()) >= set(file.locations)


def test_the_scan_of_changed_bytes_finds_what_protobuf_reads(tmp_path: Path) -> None:
    """Whatever byte is changed and whatever is copied elsewhere, no location is left out."""
    whole = saved(tmp_path / "whole.onnx", small(), external=True).read_bytes()
    draw, parsed, path = random.Random(0), 0, tmp_path / "changed.onnx"
    for _ in range(1000):
        content, start = bytearray(whole), draw.randrange(len(whole))
        if draw.random() < 0.5:
            content[start] = draw.choice((content[start] ^ 1 << draw.randrange(8), draw.randrange(256)))
        else:
            at = draw.randrange(len(whole))
            content[at : at + draw.randrange(40)] = content[start : start + draw.randrange(40)]
        path.write_bytes(content)
        try:
            file = OnnxFile(path)
            locations = set(file.locations)
        except OnnxFileError:
            continue
        parsed += bool(locations)
        assert set(file.scan_locations()) >= locations
    assert parsed > 50
