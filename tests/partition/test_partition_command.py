"""``trtcache partition`` says where each node goes, in words, in JSON and as a picture."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
import torch
from click.testing import CliRunner

from tests.partition.parts import Attention, inputs
from trtcache.errors import SettingsError
from trtcache_cli.main import main
from trtcache_cli.partition import partition

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of TorchScript

SOFTMAX = ("--setting", 'torch_executed_ops=["aten.softmax"]')


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program in a file."""
    path = tmp_path_factory.mktemp("partition") / "attention.pt2"
    torch.export.save(torch.export.export(Attention(), inputs(3)), path)
    return path


def run(*args: object) -> str:
    """Return what the command prints."""
    done = CliRunner().invoke(partition, [*map(str, args)], obj=None, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_text_names_parts_operators_and_reasons(file: Path, interpreter: str) -> None:
    """A line for each part, and below it its operators."""
    lines = run(file, "--backend", interpreter, *SOFTMAX).splitlines()
    assert lines[0] == "attention: 2 engines, 1 in torch, for interpreter"
    assert [line.partition(":")[0] for line in lines if line.startswith("part")] == ["part 0", "part 1", "part 2"]
    assert "  1 x aten.softmax.int (torch_executed_ops has aten.softmax)" in lines
    assert any(line.endswith("from the inputs, part 1") for line in lines)
    every = run(file, "--backend", interpreter, "--nodes", *SOFTMAX)
    assert "  softmax: aten.softmax.int (torch_executed_ops has aten.softmax)" in every
    assert run(file, "--backend", interpreter).startswith("attention: one engine, for interpreter")


def test_json_has_every_node(file: Path, interpreter: str) -> None:
    """Each in one part; those in torch with the reason."""
    document = json.loads(run(file, "--backend", interpreter, "--json", *SOFTMAX))
    assert [part["kind"] for part in document["parts"]] == ["engine", "torch", "engine"]
    assert [part["key"] is None for part in document["parts"]] == [False, True, False]
    assert document["parts"][1]["nodes"] == {"softmax": "aten.softmax.int"}
    assert document["left"][0]["why"] == "torch_executed_ops has aten.softmax"


def test_the_picture_has_a_box_for_each_part(file: Path, interpreter: str, tmp_path: Path) -> None:
    """And arrows between them, from the inputs to the results."""
    picture = tmp_path / "parts.svg"
    run(file, "--backend", interpreter, "--svg", picture, *SOFTMAX)
    root = ElementTree.parse(picture).getroot()  # noqa: S314  # our own
    names = [one.tag.rpartition("}")[2] for one in root.iter()]
    assert names.count("rect") == 1 + 3 + 2  # the background, the parts, inputs and results
    texts = [one.text for one in root.iter() if one.text]
    assert any(text.startswith("0: engine") for text in texts)
    assert any(text.startswith("1: torch, 1 operator") for text in texts)


def test_a_torchscript_file_is_divided_for_the_sizes_that_are_said(
    file: Path, interpreter: str, tmp_path: Path
) -> None:
    """Without them an error says what to give; an exported program has its own."""
    path = tmp_path / "traced.pt"
    with torch.no_grad():
        torch.jit.save(torch.jit.trace(Attention(), inputs(3)), path)
    shapes = ("--shape", "x=3x5x8", "--shape", "mask=3x5")
    lines = run(path, "--backend", interpreter, *SOFTMAX, *shapes).splitlines()
    assert lines[0] == "traced: 2 engines, 1 in torch, for interpreter"
    with pytest.raises(SettingsError, match="say x=SIZES"):
        run(path, "--backend", interpreter)
    with pytest.raises(SettingsError, match="has sizes of its own"):
        run(file, "--backend", interpreter, *shapes)


def test_mistakes_are_usage_errors(
    file: Path, interpreter: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A setting with an unknown operator, and a picture in no directory."""
    for more, message in (
        (["--setting", 'torch_executed_ops=["aten.sofmax"]'], "did you mean 'aten.softmax'"),
        (["--svg", str(tmp_path / "none" / "a.svg")], "there is no directory"),
    ):
        with pytest.raises(SystemExit) as left:
            main(["partition", str(file), "--backend", interpreter, *more])
        assert left.value.code == 2
        assert message in capsys.readouterr().err
