"""``trtcache build``: engines of exported programs, into the cache and into a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
import torch

import trtcache
from tests.models import Affine
from trtcache.store.disk import DiskStore
from trtcache_cli.backend_name import BackendName
from trtcache_cli.setting_option import parse_settings
from trtcache_cli.subjects import program_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Result

X = torch.randn(3, 4)


def test_an_engine_is_built_once_and_then_found(
    run: Callable[..., Result], file: Path, root: Path, interpreter: str
) -> None:
    """The first command builds, the second finds it by the file's alias, and compile finds it too."""
    first = run("build", file, "--backend", interpreter)
    assert (first.code, first.err) == (0, "building affine.pt2, unless it is cached\n")
    assert ["outcome", "built (absent), lowered"] in first.rows
    second = run("build", file, "--backend", interpreter, "--json").json
    assert (second["outcome"], second["route"], second["reason"], second["output"]) == ("hit", "alias", "", None)
    assert second["name"] == "affine"
    assert dict(map(tuple, first.rows))["key"] == second["key"]
    assert second["path"] == str(DiskStore.open(root).path(second["key"]))
    assert trtcache.compile(Affine(), (X,), backend=interpreter).report.partitions[0].outcome == "hit"


def test_the_engine_is_written_to_a_file(
    run: Callable[..., Result], file: Path, tmp_path: Path, interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also without a cache, and on a hit; the name is the caller's."""
    output = tmp_path / "engine"
    for disabled in ("1", "0", "0"):
        monkeypatch.setenv("TRTCACHE_DISABLE", disabled)
        done = run("build", file, "--backend", interpreter, "-o", output, "--name", "mine", "--json")
        assert (done.json["name"], done.json["output"]) == ("mine", str(output))
        assert output.read_text().startswith("graph ")
        output.unlink()


@pytest.mark.slow
def test_the_default_engine_is_a_package_without_weights(
    run: Callable[..., Result], file: Path, tmp_path: Path
) -> None:
    """It is AOTInductor's output, for the requested level; torch 2.11 builds for this processor only."""
    output, level = tmp_path / "engine.pt2", "x86-64-v2" if torch.__version__ >= "2.13" else "native"
    done = run("build", file, "-o", output, "--target", level, "--json")
    assert done.json["backend"] == "aot_inductor"
    assert level in done.json["target"]
    with zipfile.ZipFile(output) as package:
        assert any(name.endswith(".so") for name in package.namelist())


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("--backend", "aot_inducter"), 2, "did you mean 'aot_inductor'"),
        (("--target", "x86-64-v33"), 2, "did you mean 'x86-64-v3'"),
        (("--setting", "inducter.max_autotune=true"), 2, "did you mean 'inductor'"),
        (("--setting", "inductor.max_autotun=true"), 2, "did you mean 'max_autotune'"),
        (("--setting", "max_autotune"), 2, "is not NAME=VALUE"),
        (("--setting", 'torch_executed_modules=["lin"]'), 2, "'lin': unknown; known: "),
        (("--outptu", "x"), 2, "Did you mean '--output'"),
        (("--output", "/nowhere/at/all"), 2, "there is no directory /nowhere/at"),
    ],
)
def test_a_misspelt_option_value_names_the_nearest(
    run: Callable[..., Result], file: Path, args: tuple[str, ...], code: int, message: str
) -> None:
    """One line, the documented exit code, and the nearest name."""
    done = run("build", file, *args)
    assert done.code == code
    assert message in done.err.splitlines()[-1]


def test_a_misspelt_command_names_the_nearest(run: Callable[..., Result]) -> None:
    """The nearest command is named."""
    done = run("biuld", "model.pt2")
    assert done.code == 2
    assert "command 'biuld': unknown; did you mean 'build'?" in done.err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.pt2", None, "the file does not exist"),
        ("cut.pt2", b"PK\x03\x04", "damaged or cut off"),
        ("model.onnx", b"", "model.onnx: it cannot be read: it is empty"),
        ("model.onnx", b"PK\x03\x04", "it is a zip archive, such as torch.save"),
    ],
)
def test_other_files_exit_with_1(
    run: Callable[..., Result], tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    """Files that hold no program are one clear line."""
    if content is not None:
        (tmp_path / name).write_bytes(content)
    done = run("build", tmp_path / name)
    assert (done.code, done.out) == (1, "")
    assert message in done.err


def test_the_program_is_not_written_over(run: Callable[..., Result], file: Path, tmp_path: Path) -> None:
    """An output that is the program itself, under whatever name, is refused: the engine has no weights."""
    content, link = file.read_bytes(), tmp_path / "link.pt2"
    link.symlink_to(file)
    done = run("build", file, "-o", link)
    assert done.code == 2
    assert "it is the program" in done.err
    assert file.read_bytes() == content


def test_a_forbidden_build_exits_with_7(
    run: Callable[..., Result], file: Path, interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With TRTCACHE_FORBID_BUILD the command only reports whether the engine is cached."""
    monkeypatch.setenv("TRTCACHE_FORBID_BUILD", "1")
    assert run("build", file, "--backend", interpreter).code == 7


def test_at_a_terminal_progress_is_shown_and_gone(terminal: Callable[..., Result], file: Path) -> None:
    """A spinner with the file's name while it lasts; the error at the end is whole."""
    done = terminal("build", file, "--target", "x86-64-v33")
    assert done.code == 2
    assert "did you mean 'x86-64-v3'" in done.out


@pytest.mark.parametrize(
    ("lines", "settings"),
    [
        ((), {}),
        (("inductor.max_autotune=true",), {"inductor": {"max_autotune": True}}),
        (("inductor.cpp.simdlen=256", "inductor.x=a=b"), {"inductor": {"cpp.simdlen": 256, "x": "a=b"}}),
        (("operator_versions.mylib=1.20",), {"operator_versions": {"mylib": "1.20"}}),
        (('torch_executed_modules=["a", "b"]',), {"torch_executed_modules": ["a", "b"]}),
        (("tensorrt.optimization_level=5",), {"tensorrt": {"optimization_level": 5}}),
    ],
)
def test_settings_are_read_from_lines(lines: tuple[str, ...], settings: dict[str, Any]) -> None:
    """Values are JSON where they look like it, and versions are texts."""
    assert parse_settings(lines) == settings


TWICE = [("a=1", "a=2"), ("a=1", "a.b=2"), ("a.b=1", "a.b=2"), ('a={"b": 1}', "a.c=2"), ("a.b=1", "a={}")]


@pytest.mark.parametrize("lines", [("a",), ("=1",), ("a.=1",), *TWICE])
def test_settings_that_say_two_things_are_refused(lines: tuple[str, ...]) -> None:
    """A line without a value, and a name that is given twice."""
    with pytest.raises(click.BadParameter):
        parse_settings(lines)


def test_flags_of_python_are_not_taken_for_strings() -> None:
    """``"False"`` is true in Python."""
    with pytest.raises(click.BadParameter, match="write false, as in JSON"):
        parse_settings(["inductor.max_autotune=False"])
    assert parse_settings(["operator_versions.a=None"]) == {"operator_versions": {"a": "None"}}
    assert parse_settings(['operator_versions={"a": "2"}']) == {"operator_versions": {"a": "2"}}


def test_shells_complete_backends() -> None:
    """From those that are installed."""
    found = [one.value for one in BackendName().shell_complete(None, None, "a")]  # type: ignore[arg-type]  # not looked at
    assert found == ["auto", "aot_inductor"]


def test_a_function_is_named_by_the_part_after_the_colon(
    run: Callable[..., Result], tmp_path: Path, interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one of a module in a package; ``warm`` finds the durations of its builds by the same name."""
    names = {"zoo:small": "small", "zoo.bert:small": "small", "folder.v2/affine.v1.pt2": "affine.v1"}
    assert {text: program_name(Path(text)) for text in names} == names
    (tmp_path / "build_zoo").mkdir()
    model = "import torch\nfrom tests.models import Affine\ndef small():\n    return Affine(), (torch.ones(3, 4),)\n"
    (tmp_path / "build_zoo" / "bert.py").write_text(model)
    monkeypatch.chdir(tmp_path)
    assert run("build", "build_zoo.bert:small", "--backend", interpreter, "--json").json["name"] == "small"
    output = ("-o", tmp_path / "out.pt2", "--backend", interpreter, "--json")
    assert run("export", "build_zoo.bert:small", *output).json["name"] == "small"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_leaves_no_temporary_files(number: signal.Signals, code: int, root: Path, tmp_path: Path) -> None:
    """As Ctrl-C does: CI systems and ``timeout`` send these."""
    slow, folder = tmp_path / "slow_zoo.py", tmp_path / "temporary"
    folder.mkdir()
    slow.write_text("import tempfile, time\nwith tempfile.TemporaryDirectory():\n    time.sleep(60)\n")
    command = [sys.executable, "-m", "trtcache_cli", "build", "slow_zoo:model"]
    # The tests themselves may run under nohup, whose processes ignore this signal, and those that they start.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    environ = {**os.environ, "TMPDIR": str(folder), "TRTCACHE_DIR": str(root)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environ)
    signal.signal(signal.SIGHUP, before)
    while not any(folder.iterdir()):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, list(folder.iterdir()), "Traceback" in err) == (code, [], False)
    assert "trtcache: interrupted" in err
