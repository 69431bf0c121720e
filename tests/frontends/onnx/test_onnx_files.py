"""ONNX files: files of other kinds, damaged files, and invalid external data."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tests.frontends.onnx.graphs import BRANCHES, FUNCTION, canonical, model, saved, small
from trtcache.errors import OnnxFileError
from trtcache.frontends.onnx import file as file_module
from trtcache.frontends.onnx.file import OnnxFile
from trtcache.frontends.onnx.weights import make_parser_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import torch


def pointed(path: Path, **external: str) -> Path:
    """Write a model whose weight ``w`` is said to be where these entries say."""
    made = small()
    (weight,) = (one for one in made.graph.initializer if one.name == "w")
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for name, value in external.items():
        weight.external_data.add(key=name, value=value)
    path.write_bytes(made.SerializeToString())
    return path


def weight(path: Path) -> torch.Tensor:
    """Return the weight ``w`` of a file."""
    file = OnnxFile(path)
    return file.tensor(file.initializers["w"])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "the file does not exist"),
        (b"", "it is empty"),
        (b"PK\x03\x04 and more", "a zip archive"),
        (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
        (b"<!DOCTYPE html>", "a web page"),
        (b"ORTM", "ONNX Runtime's own format"),
        (b"\xff\xff\xff\xff\xff", "not an ONNX file, or is damaged"),
        (b"\x08\x08", "it has no graph"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes | None, why: str) -> None:
    """The error names the file and its format."""
    path = tmp_path / "model.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OnnxFileError, match=why) as caught:
        _ = OnnxFile(path).model
    assert str(path) in str(caught.value)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    """Wherever it is cut, it is not read as a smaller graph."""
    path = saved(tmp_path / "model.onnx", small())
    content = path.read_bytes()
    for length in range(1, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises(OnnxFileError):
            canonical(path)


def test_a_file_with_any_byte_changed_is_read_or_refused(tmp_path: Path) -> None:
    """With any byte changed, the result is a graph or OnnxFileError, also for names that are not valid UTF-8."""
    draw, refused = random.Random(0), 0
    for text in (None, BRANCHES, FUNCTION):
        whole = saved(tmp_path / "whole.onnx", small() if text is None else model(text)).read_bytes()
        for _ in range(300):
            content = bytearray(whole)
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
            (tmp_path / "flipped.onnx").write_bytes(content)
            try:
                file = OnnxFile(tmp_path / "flipped.onnx")
                make_parser_model(file, canonical(file.path).slots)
            except OnnxFileError:
                refused += 1
    assert refused > 300


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    """In any message of the model: protobuf returns it as bytes."""
    whole = saved(tmp_path / "whole.onnx", small()).read_bytes()
    for name in (b"\x0a\x01w", b"MatMul"):
        at = whole.index(name) + len(name) - 1
        (tmp_path / "a.onnx").write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
        with pytest.raises(OnnxFileError, match="a name in it is not valid UTF-8"):
            canonical(tmp_path / "a.onnx")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    """The error has the system's message."""
    with pytest.raises(OnnxFileError, match="Is a directory"):
        OnnxFile(tmp_path)


def test_a_file_over_protobufs_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error advises external data."""
    monkeypatch.setattr(file_module, "_MOST_BYTES", 10)
    with pytest.raises(OnnxFileError, match=r"larger than 2 GB.*save_as_external_data=True"):
        _ = OnnxFile(saved(tmp_path / "model.onnx", small())).model


@pytest.mark.parametrize(
    "location", ["../weights", "sub/../../weights", "/etc/hostname", "", "..\\weights", "a/\0b", "sub/.."]
)
def test_external_data_stays_in_the_folder_of_the_model(tmp_path: Path, location: str) -> None:
    """A path that may lead out of it is refused before anything is opened."""
    (tmp_path / "weights").write_bytes(bytes(100))
    (tmp_path / "model").mkdir()
    with pytest.raises(OnnxFileError, match=r"must be in the model's own folder"):
        weight(pointed(tmp_path / "model" / "model.onnx", location=location))


def test_links_in_external_data_are_refused(tmp_path: Path) -> None:
    """A link to a file, and a folder that is a link, are refused with advice."""
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "weights").write_bytes(bytes(100))
    (tmp_path / "weights").symlink_to(tmp_path / "there" / "weights")
    (tmp_path / "folder").symlink_to(tmp_path / "there")
    for location in ("weights", "folder/weights"):
        with pytest.raises(OnnxFileError, match=r"is a link and may lead anywhere; .*cp -L"):
            weight(pointed(tmp_path / "model.onnx", location=location))
    assert weight(pointed(tmp_path / "model.onnx", location="there/weights")).shape == (4, 3)


def test_external_data_has_to_be_a_regular_file(tmp_path: Path) -> None:
    """A pipe, a folder and a missing file are errors, and opening a pipe does not block."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for location, why in (
        ("pipe", "is not a regular file"),
        ("folder", "is not a regular file"),
        ("gone", "belongs beside the model"),
    ):
        with pytest.raises(OnnxFileError, match=why):
            weight(pointed(tmp_path / "model.onnx", location=location))


@pytest.mark.parametrize(
    ("external", "why"),
    [
        ({"offset": "60"}, "60 to 108 of weights, which has 100: the file is cut off"),
        ({"length": "44"}, "has 44 bytes of external data, and its shape needs 48"),
        ({"offset": "-4"}, "offset '-4', which is not a number"),
        ({"length": "many"}, "length 'many', which is not a number"),
        ({"offset": "9" * 30}, "the file is cut off"),
    ],
)
def test_offsets_of_external_data_are_checked(tmp_path: Path, external: dict[str, str], why: str) -> None:
    """Bytes outside of the file are not read, and invalid numbers are refused."""
    (tmp_path / "weights").write_bytes(bytes(100))
    with pytest.raises(OnnxFileError, match=why):
        weight(pointed(tmp_path / "model.onnx", location="weights", **external))


def test_external_data_is_mapped(tmp_path: Path) -> None:
    """Tensors at any offset have the file's values, and aligned ones are views of it."""
    values = np.arange(12, dtype="f4")
    for offset in (0, 4, 3):
        (tmp_path / "weights").write_bytes(bytes(offset) + values.tobytes())
        found = weight(pointed(tmp_path / "model.onnx", location="weights", offset=str(offset), length="48"))
        np.testing.assert_array_equal(found.numpy(), values.reshape(4, 3))


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda one: setattr(one, "raw_data", one.raw_data[:-1]), "has 47 bytes, and its shape .* needs 48"),
        (lambda one: setattr(one, "data_type", 99), "dtype 99 of ONNX, which this trtcache does not know"),
        (lambda one: setattr(one.segment, "begin", 1), "stored in segments"),
        (lambda one: one.ClearField("raw_data"), "cannot be read"),
    ],
)
def test_an_incomplete_tensor_is_refused(tmp_path: Path, spoil: Callable[[Any], None], why: str) -> None:
    """Neither the key nor the weights are made from missing data."""
    made = small()
    spoil(next(one for one in made.graph.initializer if one.name == "w"))
    (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(OnnxFileError, match=why):
        weight(tmp_path / "model.onnx")


def test_two_initializers_of_one_name_are_refused(tmp_path: Path) -> None:
    """Readers would differ in which one they use."""
    made = small()
    made.graph.initializer.append(made.graph.initializer[0])
    with pytest.raises(OnnxFileError, match="have one name"):
        canonical(saved(tmp_path / "model.onnx", made))


def test_a_file_that_is_written_to_while_it_is_read_is_refused(tmp_path: Path) -> None:
    """Replacing it by renaming is allowed, since the old file stays mapped."""
    path = saved(tmp_path / "model.onnx", small(), external=True)
    for name in ("model.onnx", "model.onnx.data"):
        file = OnnxFile(path)
        file.external.digests(file.locations)
        (tmp_path / "copy").write_bytes((tmp_path / name).read_bytes())
        (tmp_path / "copy").rename(tmp_path / name)
        file.check_unchanged()
        file = OnnxFile(path)
        file.external.digests(file.locations)
        with (tmp_path / name).open("ab") as written:
            written.write(b"more")
        with pytest.raises(OnnxFileError, match="was written to while it was read"):
            file.check_unchanged()
        saved(path, small(), external=True)


@pytest.mark.parametrize("external", [False, True])
def test_the_parsers_model_has_weights_by_slot_and_large_tensors_by_reference(tmp_path: Path, external: bool) -> None:
    """The converted model computes the same, with names that do not depend on the file."""
    made = model(
        "g (float[2, 300] x) => (float[2, 300] y) { a = Mul(x, k)\n w0 = Add(a, w1)\n y = Mul(w0, c) }",
        {
            "k": np.random.default_rng(0).normal(size=300).astype("f4"),
            "w1": np.arange(300, dtype="f4"),
            "c": np.array(2, "f4"),
        },
    )
    path = saved(tmp_path / "model.onnx", made, external=external)
    file = OnnxFile(path)
    converted = make_parser_model(file, canonical(path).slots)
    assert set(converted.weights) == {"w0", "w1", *({"c"} if external else set())}
    again = onnx.ModelProto.FromString(converted.content)
    assert len(converted.content) < 700
    for tensor in again.graph.initializer:
        if tensor.name in converted.weights:
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = converted.weights[tensor.name].numpy().tobytes()
    onnx.checker.check_model(again)
    x = np.random.default_rng(1).normal(size=(2, 300)).astype("f4")
    answers = [onnx.reference.ReferenceEvaluator(one).run(None, {"x": x})[0] for one in (made, again)]
    np.testing.assert_array_equal(*answers)


def test_an_input_with_the_name_of_a_plans_weight_is_refused(tmp_path: Path) -> None:
    """Plans name their weights w0, w1, ...: the input has to be renamed."""
    made = model("g (float[2] w0) => (float[2] y) <float[2] k = {1, 2}> { y = Mul(w0, k) }")
    path = saved(tmp_path / "model.onnx", made)
    with pytest.raises(OnnxFileError, match="named 'w0', a plan's name for a weight; rename it"):
        make_parser_model(OnnxFile(path), canonical(path).slots)


def test_external_data_of_inner_tensors_is_embedded(tmp_path: Path) -> None:
    """The parser takes only initializers by reference; the graph's digest is that without external data."""
    text = """g (float[2] x, bool c) => (float[2] y)
    { k = Constant <value: tensor = float[2] {1, 2}> ()
      a = Mul(x, k)
      y = If (c) <then_branch = t () => (float[2] p) <float[2] h = {3, 4}> { p = Mul(a, h) },
                  else_branch = e () => (float[2] q) { q = Neg(a) }> }"""
    path = saved(tmp_path / "whole.onnx", model(text))
    made, spread = model(text), tmp_path / "spread.onnx"
    tensors = {"data": made.graph.node[0].attribute[0].t, "more": made.graph.node[2].attribute[0].g.initializer[0]}
    for location, tensor in tensors.items():
        (tmp_path / location).write_bytes(onnx.numpy_helper.to_array(tensor).tobytes())
        tensor.ClearField("float_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)
    spread.write_bytes(made.SerializeToString())
    assert OnnxFile(spread).locations == ["data", "more"]
    assert canonical(spread).digest == canonical(path).digest
    converted = onnx.ModelProto.FromString(make_parser_model(OnnxFile(spread), ()).content)
    onnx.checker.check_model(converted)
    assert list(converted.graph.node[2].attribute[0].g.initializer[0].raw_data) == [0, 0, 64, 64, 0, 0, 128, 64]


def test_weights_in_lists_and_weights_without_elements_are_read(tmp_path: Path) -> None:
    """Numbers need not be raw bytes, and a tensor can be empty, also with external data."""
    listed = model("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }")
    assert weight(saved(tmp_path / "listed.onnx", listed)).tolist() == [1, 2]
    empty = model("g (float[2, 0] x) => (float[2, 0] y) { y = Mul(x, w) }", {"w": np.ones((2, 0), "f4")})
    assert weight(saved(tmp_path / "empty.onnx", empty)).shape == (2, 0)
    (tmp_path / "nothing").write_bytes(b"")
    tensor = empty.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="nothing")
    (tmp_path / "empty.onnx").write_bytes(empty.SerializeToString())
    assert weight(tmp_path / "empty.onnx").shape == (2, 0)
