"""Files of weights: what is read, that it is not copied, and what is refused in words."""

from __future__ import annotations

import json
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save, save_file

from trtcache.errors import WeightsFileError
from trtcache.frontends.weight_files import DTYPES, LENGTH_BYTES, read_weights

STATE = {
    "a": torch.arange(12.0).reshape(3, 4),
    "b.c": torch.arange(5),
    "none": torch.empty(0, 3),
    "one": torch.tensor(2.5),
}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Say whether two state_dicts are equal."""
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and torch.equal(one[name], other[name]) for name in one
    )


class Linear(torch.nn.Module):
    """A program's module, with a constant that is no weight."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(4, 4)
        self.register_buffer("offset", torch.arange(4.0), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply it."""
        return self.lin(x) + self.offset


def test_safetensors_are_mapped(tmp_path: Path) -> None:
    """Names, dtypes, shapes and values are preserved, and weights are views of the mapped file."""
    save_file(STATE, tmp_path / "w.safetensors", metadata={"format": "pt"})
    found = read_weights(tmp_path / "w.safetensors")
    assert same(found, STATE)
    assert str(tmp_path / "w.safetensors") in Path("/proc/self/maps").read_text()


def test_every_dtype_is_read(tmp_path: Path) -> None:
    """Each dtype of the format is read with its exact bytes."""
    bits = torch.arange(64, dtype=torch.uint8)
    state = {name: (bits % 2 if dtype == torch.bool else bits).clone().view(dtype) for name, dtype in DTYPES.items()}
    save_file(state, tmp_path / "w.safetensors")
    found = read_weights(tmp_path / "w.safetensors")
    assert {name: one.dtype for name, one in found.items()} == dict(DTYPES)
    assert all(torch.equal(found[name].view(torch.uint8), state[name].view(torch.uint8)) for name in state)


def test_files_are_read_by_their_index(tmp_path: Path) -> None:
    """An index names the file of each weight, which has to be in the same folder."""
    save_file({"a": STATE["a"]}, tmp_path / "w-1.safetensors")
    save_file({"b.c": STATE["b.c"]}, tmp_path / "w-2.safetensors")
    index = tmp_path / "w.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "w-1.safetensors", "b.c": "w-2.safetensors"}}))
    assert same(read_weights(index), {"a": STATE["a"], "b.c": STATE["b.c"]})
    index.write_text(json.dumps({"weight_map": {"a": "../w-1.safetensors"}}))
    with pytest.raises(WeightsFileError, match=r"names files that are not beside it: \.\./w-1"):
        read_weights(index)


@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_a_state_dict_is_read_with_weights_only(tmp_path: Path, kind: Any) -> None:
    """A state_dict that torch.save wrote is mapped; pickles of anything else are refused."""
    torch.save(kind(STATE), tmp_path / "w.pth")
    assert same(read_weights(tmp_path / "w.pth"), STATE)
    torch.save({"epoch": 3, "state_dict": STATE}, tmp_path / "w.pth")
    with pytest.raises(WeightsFileError, match=r"other things than weights \(epoch, state_dict\); save the state_dict"):
        read_weights(tmp_path / "w.pth")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "w.pth")
    with pytest.raises(WeightsFileError, match=r"weights_only=True\) cannot read it"):
        read_weights(tmp_path / "w.pth")


def test_the_weights_of_a_program_are_read(tmp_path: Path) -> None:
    """Weights and constants of a .pt2 file are read by the model's names."""
    model = Linear()
    torch.export.save(torch.export.export(model, (torch.ones(2, 4),), strict=False), tmp_path / "w.pt2")
    found = read_weights(tmp_path / "w.pt2")
    assert same({name: found[name] for name in model.state_dict()}, model.state_dict())


class Bomb:
    """What runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("it was unpickled",))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it has 0 bytes, too few for a file of weights; give a .safetensors file"),
        (b"short", "it has 5 bytes"),
        (b"these are no weights", "not a .safetensors file, or it is cut off"),
        (b"\xff" * 64, "not a .safetensors file, or it is cut off"),
        (b"GGUF\x03" + bytes(32), "it is a GGUF file; give"),
        (b"\x89HDF\r\n" + bytes(32), "it is an HDF5 file"),
        (pickle.dumps(Bomb()), "a pickle, which can run any code"),
        (pickle.dumps(Bomb(), protocol=2), "a pickle of torch before 1.6"),
        (b"PK\x03\x04" + bytes(40), "damaged or cut off"),
        (save(STATE)[:-1], "its tensors need .* it is cut off"),
        (save(STATE) + b"x", "its tensors need .* it is too long"),
        (save(STATE)[:20], "cut off"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    """The error names the file, its format and the supported ones; no pickle is loaded."""
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)
    with pytest.raises(WeightsFileError, match=message) as raised:
        read_weights(path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": [3, 5]}, "has 48 bytes, which its shape"),
        ({"shape": [-3, -4]}, "does not follow"),
        ({"shape": [3.0, 4]}, "does not follow"),
        ({"dtype": "F4"}, "dtype F4, which is not supported"),
        ({"data_offsets": [8, 56]}, "does not follow"),
        ({"data_offsets": [0]}, "ValueError"),
        ({"data_offsets": None}, "TypeError|does not follow"),
    ],
)
def test_an_inconsistent_header_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    """Shapes, dtypes and offsets are compared with the file's size."""
    header = json.dumps({"a": {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]} | change}).encode()
    (tmp_path / "w").write_bytes(len(header).to_bytes(LENGTH_BYTES, "little") + header + bytes(48))
    with pytest.raises(WeightsFileError, match=message):
        read_weights(tmp_path / "w")


def test_a_duplicate_name_is_refused(tmp_path: Path) -> None:
    """JSON itself silently takes the last one."""
    one = '"a": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}'
    header = f"{{{one}, {one}}}".encode()
    (tmp_path / "w").write_bytes(len(header).to_bytes(LENGTH_BYTES, "little") + header)
    with pytest.raises(WeightsFileError, match="two tensors have one name"):
        read_weights(tmp_path / "w")


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    """A missing file and a directory raise WeightsFileError too."""
    with pytest.raises(WeightsFileError, match="No such file"):
        read_weights(tmp_path / "w.safetensors")
    with pytest.raises(WeightsFileError, match="Is a directory"):
        read_weights(tmp_path)


def test_unaligned_weights_are_copied(tmp_path: Path) -> None:
    """A file whose header has an odd length is read as well."""
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    header += b" " * (1 - len(header) % 2)
    values = torch.tensor([1.5, -2.0])
    (tmp_path / "w").write_bytes(len(header).to_bytes(LENGTH_BYTES, "little") + header + values.numpy().tobytes())
    assert torch.equal(read_weights(tmp_path / "w")["a"], values)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, len(save(STATE)) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_is_an_error_or_a_value(tmp_path: Path, place: int, bit: int) -> None:
    """With any bit flipped, the file is refused with WeightsFileError, or read with the shapes in its header."""
    content = bytearray(save(STATE))
    content[place] ^= 1 << bit
    (tmp_path / "w").write_bytes(content)
    try:
        found = read_weights(tmp_path / "w")
    except WeightsFileError:
        return
    assert sum(one.nbytes for one in found.values()) == sum(one.nbytes for one in STATE.values())


def test_a_dtype_that_is_not_supported_is_called_so(tmp_path: Path) -> None:
    """The file is intact."""
    header = json.dumps({"a": {"dtype": "F8_E8M0", "shape": [2], "data_offsets": [0, 2]}}).encode()
    path = tmp_path / "scales.safetensors"
    path.write_bytes(len(header).to_bytes(LENGTH_BYTES, "little") + header + bytes(2))
    with pytest.raises(WeightsFileError, match="dtype F8_E8M0, which is not supported"):
        read_weights(path)
