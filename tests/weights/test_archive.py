"""Archives of weights: damage is detected, and written weights are correct."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from trtcache.compiler.refit import refit_program
from trtcache.errors import ExportError, RefitError, WeightsFileError
from trtcache.frontends.weight_files import read_weights
from trtcache.weights.files import damage

if TYPE_CHECKING:
    from pathlib import Path


class Shared(nn.Module):
    """A buffer that is part of another, and one with a single row for all."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("base", torch.arange(8.0))
        self.register_buffer("view", self.base[2:6])
        self.register_buffer("row", torch.randn(1, 4).expand(3, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Use all of them."""
        return x + self.view + self.base[:4] + self.row


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the program."""
    path = tmp_path_factory.mktemp("archives") / "shared.pt2"
    torch.export.save(torch.export.export(Shared(), (torch.ones(3, 4),), strict=False), path)
    return path


def flipped(source: Path, ending: str, path: Path) -> Path:
    """Write a file with one bit of a member's bytes flipped."""
    content = bytearray(source.read_bytes())
    with zipfile.ZipFile(source) as archive:
        at = next(info.header_offset for info in archive.infolist() if info.filename.endswith(ending))
    at += 30 + sum(int.from_bytes(content[at + place : at + place + 2], "little") for place in (26, 28))
    content[at + 3] ^= 0x40
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("kind", ["pt2", "pth"])
def test_a_damaged_weight_is_an_error(kind: str, program: Path, tmp_path: Path) -> None:
    """One flipped bit of a weight is seen by the archive's checksum, in a program and in a state_dict."""
    torch.save(Shared().state_dict(), tmp_path / "w.pth")
    source, ending = (program, "weights/weight_0") if kind == "pt2" else (tmp_path / "w.pth", "data/0")
    assert read_weights(source)
    damaged = flipped(source, ending, tmp_path / f"damaged.{kind}")
    with pytest.raises(WeightsFileError, match=r"it is damaged .*checksum"):
        read_weights(damaged)
    with pytest.raises(WeightsFileError, match=r"it is damaged .*checksum"):
        refit_program(program, damaged, tmp_path / "out.pt2")
    assert not (tmp_path / "out.pt2").exists()


def test_a_damaged_program_takes_no_weights(program: Path, tmp_path: Path) -> None:
    """Otherwise it would be written again with checksums that match the damage."""
    damaged = flipped(program, "weights/weight_0", tmp_path / "damaged.pt2")
    with pytest.raises(ExportError, match=r"it is damaged .*checksum"):
        refit_program(damaged, program, tmp_path / "out.pt2")


def test_a_file_without_checksums_is_read(tmp_path: Path) -> None:
    """Torch can omit all of them, which is not damage."""
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"a": torch.ones(3)}, tmp_path / "w.pth")
    finally:
        torch.serialization.set_crc32_options(before)
    assert torch.equal(read_weights(tmp_path / "w.pth")["a"], torch.ones(3))


def test_a_truncated_archive_is_reported(program: Path, tmp_path: Path) -> None:
    """A truncated archive does not raise BadZipFile."""
    (tmp_path / "cut.pth").write_bytes(program.read_bytes()[:2000])
    assert damage(tmp_path / "cut.pth").startswith("it is damaged or cut off")


@pytest.mark.parametrize(
    "change",
    [{"view": torch.zeros(4)}, {"base": torch.zeros(8)}, {"row": torch.arange(12.0).view(3, 4)}],
    ids=["view", "base", "row"],
)
def test_shared_memory_with_two_values_is_refused(change: dict[str, Any], program: Path, tmp_path: Path) -> None:
    """Nothing is written where weights share memory and disagree on what is to be there."""
    torch.save({**Shared().state_dict(), **change}, tmp_path / "w.pth")
    with pytest.raises(RefitError, match="of which elements share memory in the program"):
        refit_program(program, tmp_path / "w.pth", tmp_path / "out.pt2")
    assert not (tmp_path / "out.pt2").exists()


def test_shared_memory_with_one_value_is_written(program: Path, tmp_path: Path) -> None:
    """A view and an expanded buffer get the requested values."""
    state = {name: one * 2 for name, one in Shared().state_dict().items()}
    torch.save(state, tmp_path / "w.pth")
    refit_program(program, tmp_path / "w.pth", tmp_path / "out.pt2")
    written = torch.export.load(tmp_path / "out.pt2").state_dict
    assert all(torch.equal(written[name], one) for name, one in state.items())
