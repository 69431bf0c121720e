"""Files of exported programs: what is read of them, what is refused, and what is promised when they change."""

from __future__ import annotations

import json
import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import trtcache
from tests.models import Affine
from trtcache.errors import ExportError, SettingsError
from trtcache.frontends.pt2 import Pt2Source, _state
from trtcache.lowering.interface import Content
from trtcache.weights.files import TORCH_DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

X = torch.randn(3, 4)


# torch 2.11 writes neither uint32 nor uint64.
_NOT_WRITTEN = {"uint32", "uint64"} if torch.__version__ < "2.13" else set()
_DTYPES = {number: getattr(torch, name) for number, name in TORCH_DTYPES.items() if name not in _NOT_WRITTEN}


class Kinds(nn.Module):
    """Weights of every dtype, shared, sliced, transposed and empty ones, and constants."""

    def __init__(self) -> None:
        super().__init__()
        for number, dtype in enumerate(_DTYPES.values()):
            content = torch.arange(24, dtype=torch.uint8).repeat(16)[: 6 * dtype.itemsize].view(dtype)
            self.register_buffer(f"w{number}", content)
        self.whole = nn.Parameter(torch.randn(6, 4))
        self.tied = self.whole
        self.register_buffer("part", self.whole.detach()[2:4, 1:3])
        self.register_buffer("turned", torch.randn(4, 6).t())
        self.register_buffer("number", torch.tensor(7))
        self.register_buffer("nothing", torch.zeros(0, 3))
        self.register_buffer("table", torch.arange(5), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return something made of what can be added."""
        return x @ self.whole.t() + self.number + self.part.sum() + self.table.sum() + self.turned.sum()


class Shifted(Affine):
    """An ``Affine`` with a table that is no weight."""

    def __init__(self, shift: float) -> None:
        super().__init__()
        self.register_buffer("table", torch.full((4,), shift), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Return the product, shifted."""
        return super().forward(x)[0] + self.table


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a small model."""
    path = tmp_path_factory.mktemp("files") / "affine.pt2"
    torch.export.save(torch.export.export(Affine(), (X,)), path)
    return path


def _members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _written(path: Path, members: Mapping[str, bytes], how: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_weights_are_those_that_torch_reads(tmp_path: Path) -> None:
    """Every dtype and layout has the same bytes, strides and sharing as in the program that torch loads."""
    path = tmp_path / "kinds.pt2"
    torch.export.save(torch.export.export(Kinds(), (X,)), path)
    with Pt2Source(path) as opened:
        program = opened.program()
        theirs = {**program.constants, **program.state_dict}
        ours = opened.weights(list(theirs))
    for name, tensor in theirs.items():
        found = ours[name]
        assert (found.dtype, found.shape, found.stride()) == (tensor.dtype, tensor.shape, tensor.stride()), name
        assert Content.of(found.detach()) == Content.of(tensor.detach()), name
    assert len({ours[name].untyped_storage().data_ptr() for name in ("whole", "tied", "part")}) == 1
    assert ours["part"].storage_offset() == 9


def test_dtypes_have_torchs_numbers() -> None:
    """The table agrees with torch's own schema."""
    from torch._export.serde.schema import ScalarType
    from torch._export.serde.serialize import _TORCH_TO_SERIALIZE_DTYPE

    theirs = {number: dtype for dtype, number in _TORCH_TO_SERIALIZE_DTYPE.items() if number in TORCH_DTYPES}
    assert theirs == _DTYPES
    assert set(_DTYPES) <= {int(one) for one in ScalarType}


def test_weights_outlive_the_file(file: Path) -> None:
    """They stay valid after the file is closed and another is renamed over it."""
    path = file.with_name("gone.pt2")
    path.write_bytes(file.read_bytes())
    with Pt2Source(path) as opened:
        found = opened.weights(["a"])["a"]
    before = found.clone()
    path.with_suffix(".new").write_bytes(b"x" * path.stat().st_size)
    path.with_suffix(".new").rename(path)
    assert torch.equal(found, before)
    found[0] = 5  # private to this process
    assert b"x" * 100 in path.read_bytes()


@pytest.mark.parametrize("how", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_repacked_archive_is_read(file: Path, tmp_path: Path, how: int) -> None:
    """Compressed or unaligned members are copied."""
    path = _written(tmp_path / "again.pt2", {"odd.txt": b"x", **_members(file)} if how else _members(file), how)
    if how == zipfile.ZIP_DEFLATED:
        path = _written(path, _members(file), how)
    with Pt2Source(path) as opened, Pt2Source(file) as first:
        assert torch.equal(opened.weights(["b"])["b"], first.weights(["b"])["b"])
        assert opened.content_digest != first.content_digest
        assert (opened.digest == first.digest) == (how == zipfile.ZIP_STORED)
    assert trtcache.key(path).digest == trtcache.key(file).digest


def _renamed(members: dict[str, bytes], change: Callable[[str], str]) -> dict[str, bytes]:
    return {change(name): content for name, content in members.items()}


FOREIGN: dict[str, tuple[Callable[[dict[str, bytes]], dict[str, bytes]], str]] = {
    "newer": (
        lambda m: {**m, "affine/archive_version": b"7"},
        "archive version 7, and version 0 is known; it was saved",
    ),
    "torchscript": (lambda _: {"m/constants.pkl": b"", "m/data.pkl": b""}, "it is a TorchScript file"),
    "checkpoint": (lambda _: {"m/data.pkl": b"", "m/version": b"3"}, "torch.save wrote it"),
    "package": (lambda _: {"m/archive_format": b"pt2", "m/data/aotinductor/model/x.so": b""}, "a compiled package"),
    "other zip": (lambda _: {"a.txt": b"hello"}, "not an exported program; save it again"),
    "empty zip": (lambda _: {}, "damaged or cut off"),
    "no graph": (lambda m: {n: c for n, c in m.items() if "models/" not in n}, "not an exported program"),
    "other format": (lambda m: {**m, "affine/archive_format": b"pt9"}, "not an exported program"),
    "bad graph": (lambda m: {**m, "affine/models/model.json": b"{}"}, "torch.export.load cannot read it"),
    "no weights": (lambda m: {n: c for n, c in m.items() if "weights" not in n}, "torch.export.load cannot read it"),
}


@pytest.mark.parametrize("name", sorted(FOREIGN))
def test_other_archives_are_refused(file: Path, tmp_path: Path, name: str) -> None:
    """The error names the format of newer and foreign archives, and has advice."""
    change, message = FOREIGN[name]
    path = _written(tmp_path / "other.pt2", change(_members(file)))
    with pytest.raises(ExportError, match=message):
        trtcache.lower(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is empty"),
        (b"import torch\n" * 40, "it is no exported program"),
        (b"PK\x03\x04" + b"\0" * 400, "it is damaged or cut off; save it again with torch.export.save"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    """Files that are not archives are refused too."""
    path = tmp_path / "other.pt2"
    path.write_bytes(content)
    with pytest.raises(ExportError, match=message):
        trtcache.compile(path)


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    """So is the file of another backend."""
    with pytest.raises(ExportError, match=r"resnet50: the file does not exist; give a torch.nn.Module, .* .pt2 file"):
        trtcache.compile("resnet50")
    with pytest.raises(ExportError, match="Is a directory"):
        trtcache.key(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"not parsed")
    with pytest.raises(ExportError, match="an ONNX file, which compile, key and build read"):
        trtcache.lower(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"args": (X,)}, "args"),
        ({"args": X}, "args"),
        ({"kwargs": {"x": X}}, "kwargs"),
        ({"args": (X,), "dynamic_shapes": ({0: 8},)}, "args, dynamic_shapes"),
    ],
)
def test_example_inputs_for_a_program_are_refused(file: Path, given: dict[str, Any], names: str) -> None:
    """A file or program was exported for inputs of its own: others would be ignored."""
    program = torch.export.load(file)
    for ask in (trtcache.compile, trtcache.key, trtcache.lower):
        for model in (file, program):
            with pytest.raises(SettingsError, match=f"^{names}: .*; leave this out, or give the torch.nn.Module"):
                ask(model, **given)


def test_every_truncation_is_refused(file: Path, tmp_path: Path) -> None:
    """A file truncated at any length is refused when it is opened or loaded."""
    content, path = file.read_bytes(), tmp_path / "cut.pt2"
    for length in [*range(1, len(content), 997), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(ExportError, match=r"damaged or cut off|no exported program"):
            Pt2Source(path)


def test_a_flipped_bit_is_refused_or_changes_nothing(file: Path, tmp_path: Path) -> None:
    """The error names the damaged member; damage between members does not change the program."""
    content, path, refused = file.read_bytes(), tmp_path / "damaged.pt2", 0
    with Pt2Source(file) as opened:
        expected = {name: Content.of(one) for name, one in opened.weights(["a", "b", "c"]).items()}
    for place in range(5, len(content), 211):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            with Pt2Source(path) as opened:
                for name in opened._members:
                    opened._check_sum(name)
                found = {name: Content.of(one) for name, one in opened.weights(["a", "b", "c"]).items()}
        except (ExportError, ValueError):
            refused += 1
        else:
            assert found == expected, place
    assert refused > 20


def test_a_derived_dimension_names_what_works(tmp_path: Path) -> None:
    """Torch cannot decompose such a program from a file; the model itself can be lowered."""
    q, x = torch.export.Dim("q", min=2, max=20), torch.randn(8, 4)
    shapes = ({0: 4 * q},)
    torch.export.save(torch.export.export(nn.Linear(4, 4), (x,), dynamic_shapes=shapes), tmp_path / "derived.pt2")
    with pytest.raises(ExportError, match=r"compile the model itself, with dynamic_shapes$"):
        trtcache.lower(tmp_path / "derived.pt2")
    trtcache.lower(nn.Linear(4, 4), (x,), dynamic_shapes=shapes)


@pytest.mark.parametrize("route", ["lowered", "alias"])
def test_a_damaged_weight_is_named_and_never_run(interpreter: str, file: Path, tmp_path: Path, route: str) -> None:
    """Torch would load it, and a key alias of the undamaged file does not bypass the checksum."""
    if route == "alias":
        trtcache.compile(file, backend=interpreter, cache=tmp_path / "cache")
    content, path = bytearray(file.read_bytes()), tmp_path / "damaged.pt2"
    with Pt2Source(file) as opened:
        start = opened._content("data/weights/weight_0")
        offset = bytes(opened._bytes).index(bytes(start))
    content[offset] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        ExportError, match=r"\(its member data/weights/weight_0 does not have its checksum\); save it again"
    ):
        trtcache.compile(path, backend=interpreter, cache=tmp_path / "cache")


def _config(members: dict[str, bytes], **changes: Any) -> dict[str, bytes]:
    name = "affine/data/weights/model_weights_config.json"
    document = json.loads(members[name])
    for payload in document["config"].values():
        meta = payload["tensor_meta"]
        meta |= {key: value for key, value in changes.items() if key in meta}
        payload |= {key: value for key, value in changes.items() if key in payload}
    return {**members, name: json.dumps(document).encode()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"use_pickle": True}, "pickled"),
        ({"layout": 1}, "not a dense tensor"),
        ({"dtype": 99}, "KeyError"),
        ({"path_name": "weight_99"}, "no member"),
        ({"sizes": [{"as_expr": "s0"}]}, "KeyError"),
        ({"sizes": [{"as_int": 10**9}], "strides": [{"as_int": 1}]}, "larger than its bytes"),
        ({"device": {"type": "toaster", "index": None}}, "RuntimeError"),
        ({"tensor_meta": None}, "TypeError"),
    ],
)
def test_weights_in_another_format_are_left_to_torch(
    file: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    """The reader does not guess unknown formats; the program is loaded by torch."""
    path = _written(tmp_path / "other.pt2", _config(_members(file), **changes))
    with Pt2Source(path) as opened, pytest.raises(ValueError, match=message):
        opened.weights(["a"])


def test_another_byte_order_is_left_to_torch(file: Path, tmp_path: Path) -> None:
    """Bytes are not swapped here."""
    path = _written(tmp_path / "other.pt2", {**_members(file), "affine/byteorder": b"big"})
    with Pt2Source(path) as opened, pytest.raises(ValueError, match="byte order"):
        opened.weights(["a"])


def test_weights_on_several_devices_are_left_to_torch(file: Path, tmp_path: Path) -> None:
    """The device of a file is that of its weights, if they agree."""
    one = _config(_members(file), device={"type": "cuda", "index": 1})
    with Pt2Source(_written(tmp_path / "one.pt2", one)) as opened:
        assert opened.device == torch.device("cuda", 1)
    name = "affine/data/weights/model_weights_config.json"
    document = json.loads(one[name])
    document["config"]["a"]["tensor_meta"]["device"]["index"] = 0
    path = _written(tmp_path / "two.pt2", {**one, name: json.dumps(document).encode()})
    with Pt2Source(path) as opened, pytest.raises(ValueError, match="cuda:0, cuda:1"):
        _ = opened.device


def test_a_file_that_is_written_to_while_it_is_read_is_an_error(file: Path, tmp_path: Path) -> None:
    """It is detected by the mtime, and on the slow path by the digest; a mixture of both is never used."""
    path = tmp_path / "changing.pt2"
    path.write_bytes(file.read_bytes())
    with Pt2Source(path) as opened:
        opened.check_digest()
        os.utime(path)
        with pytest.raises(ExportError, match="write a new file and rename it over this one"):
            opened.check_unchanged()
    with Pt2Source(path) as opened:
        assert opened.content_digest.size_bytes == path.stat().st_size
        with path.open("r+b") as writer:
            writer.seek(-3, os.SEEK_END)
            writer.write(b"abc")
        before = opened._before
        opened._before = _state(opened._file.fileno())
        assert before is not None
        with pytest.raises(ExportError, match="written to while it was read"):
            opened.check_digest()


def test_renaming_over_a_file_does_not_affect_readers(file: Path, tmp_path: Path) -> None:
    """Open files stay valid; changes of mode and links are not writes either."""
    path, new = tmp_path / "model.pt2", tmp_path / "new.pt2"
    for one in (path, new):
        one.write_bytes(file.read_bytes())
    with Pt2Source(path) as opened:
        path.chmod(0o600)
        (tmp_path / "link.pt2").hardlink_to(path)
        new.rename(path)
        opened.check_digest()


def test_threads_compile_files_concurrently(interpreter: str, tmp_path: Path) -> None:
    """Torch itself loads, exports and decomposes in one thread at a time."""
    paths = [tmp_path / f"{number}.pt2" for number in range(4)]
    for number, path in enumerate(paths):
        torch.export.save(torch.export.export(Shifted(float(number)), (X,)), path)
    with ThreadPoolExecutor(4) as pool:
        found = list(
            pool.map(lambda path: trtcache.compile(path, backend=interpreter, cache=tmp_path / "cache"), paths)
        )
    for number, module in enumerate(found):
        assert torch.allclose(module(X), Shifted(float(number))(X))


@pytest.mark.parametrize("content", [b"[]", b"{}", b'{"config": 3}', b'{"config": {"a": {}}}', b"[" * 100_000])
def test_a_configuration_in_another_format_is_refused(
    interpreter: str, file: Path, tmp_path: Path, content: bytes
) -> None:
    """Torch tries to read the file, and the error has its reason."""
    name = "affine/data/weights/model_weights_config.json"
    path = _written(tmp_path / "other.pt2", {**_members(file), name: content})
    with pytest.raises(ExportError, match=r"torch.export.load cannot read it"):
        trtcache.compile(path, backend=interpreter, cache=tmp_path / "cache")


def test_two_members_of_one_name_are_refused(file: Path, tmp_path: Path) -> None:
    """Readers differ in which of them they use."""
    path = tmp_path / "twice.pt2"
    path.write_bytes(file.read_bytes())
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(archive.infolist()[0].filename, b"other")
    with pytest.raises(ExportError, match="two of its members have one name"):
        Pt2Source(path)


def test_a_retrained_file_uses_the_alias(interpreter: str, file: Path, tmp_path: Path) -> None:
    """With new weights under the same path, results are theirs, and nothing is lowered."""
    path, cache = tmp_path / "model.pt2", tmp_path / "cache"
    routes = []
    for scale in (1.0, 2.0, 1.0):
        torch.export.save(torch.export.export(Affine(scale), (X,)), path)
        module = trtcache.compile(path, backend=interpreter, cache=cache)
        assert torch.allclose(module(X)[0], Affine(scale)(X)[0])
        routes.append((module.report.route, module.report.partitions[0].outcome))
        del module
    assert routes == [("lowered", "built"), ("alias", "hit"), ("alias", "hit")]


def test_a_file_has_no_alias_if_a_kernel_of_torch_was_replaced(file: Path) -> None:
    """The kernel can change what the file is lowered to, also if the program reaches its operator only by another."""
    with Pt2Source(file) as source:
        assert source.fingerprint()
        library = torch.library.Library("aten", "IMPL")
        library.impl("hardswish", lambda x: x * 1000, "CPU", allow_override=True)
        with pytest.raises(ValueError, match=r"^aten\.hardswish\.CPU has a kernel in Python that is not torch's own"):
            source.fingerprint()
        library._destroy()
        assert source.fingerprint()


def test_another_program_in_a_file_has_another_digest(tmp_path: Path) -> None:
    """Constants and graph change the program's digest, weights do not; all change the file's digest."""
    digests = {}
    for name, model in {"a": Affine(), "b": Affine(2.0), "c": Shifted(3.0), "d": Shifted(4.0)}.items():
        path = tmp_path / f"{name}.pt2"
        torch.export.save(torch.export.export(model, (X,)), path)
        with Pt2Source(path) as opened:
            digests[name] = (opened.digest, opened.content_digest)
    assert digests["a"][0] == digests["b"][0]
    assert len({program for program, _ in digests.values()}) == 3
    assert len({whole for _, whole in digests.values()}) == 4
