"""Programs that are kept beside their engines, and what is built from them."""

from __future__ import annotations

import errno
import json
import sys
import textwrap
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
import torch

import trtcache
from tests.models import Affine, Shared, Tied
from trtcache import Cache
from trtcache.compiler import build as building
from trtcache.compiler import program_file as kept
from trtcache.compiler.program_file import read_flags, use_flags
from trtcache.errors import CanonicalizationError, SettingsError
from trtcache.frontends.source import CompileOptions
from trtcache.store.catalog import load_records
from trtcache.store.contract import Entry
from trtcache.store.disk import DiskStore
from trtcache.testing.interpreter import Interpreter
from trtcache_cli.main import main

if TYPE_CHECKING:
    from tests.conftest import RunPython

X = torch.ones(2, 4)


def programs(root: Path) -> list[str]:
    """Return the digests of the kept programs in a store."""
    return [record.digest for record in load_records(DiskStore.open(root)) if record.kind == kept.KIND]


def command(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, Any]:
    """Run a command with --json; return its exit code and what it printed."""
    with pytest.raises(SystemExit) as left:
        main([*map(str, args), "--json"])
    return int(left.value.code or 0), json.loads(capsys.readouterr().out)


def test_a_kept_program_is_built_for_another_toolchain(
    tmp_path: Path, interpreter: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After an upgrade ``rebuild`` builds once, the model then hits, and the program is kept with the new engine."""
    root = tmp_path / "cache"
    trtcache.compile(Affine(), (X,), backend=interpreter, cache=root, keep_program=True)
    (first,) = programs(root)
    DiskStore.open(root).pin(first)
    monkeypatch.setattr(Interpreter, "toolchain", lambda *_: {"interpreter": "2"})
    code, found = command(capsys, "rebuild", "--cache-dir", root)
    assert (code, [one["outcome"] for one in found["programs"]]) == (0, ["built"])
    monkeypatch.setenv("TRTCACHE_FORBID_BUILD", "1")
    module = trtcache.compile(Affine(3.0), (X,), backend=interpreter, cache=root)
    assert module.report.partitions[0].outcome == "hit"
    assert torch.equal(module(X)[0], Affine(3.0)(X)[0])
    (second,) = programs(root)
    assert first != second
    assert set(DiskStore.open(root).pins()) == {second}
    code, found = command(capsys, "rebuild", "--cache-dir", root)
    assert (code, [one["outcome"] for one in found["programs"]]) == (0, ["hit"])


def test_a_kept_program_is_built_with_its_flags_of_torch(
    tmp_path: Path, interpreter: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``rebuild`` runs in a process without them; its engine is the one that the program asks for, and none other."""
    root, flags = tmp_path / "cache", lambda *_: {"precision": torch.get_float32_matmul_precision()}
    monkeypatch.setattr(Interpreter, "ambient", flags)
    torch.set_float32_matmul_precision("high")
    try:
        first = trtcache.compile(Affine(), (X,), backend=interpreter, cache=root, keep_program=True)
    finally:
        torch.set_float32_matmul_precision("highest")
    kept_programs = programs(root)
    code, found = command(capsys, "rebuild", "--cache-dir", root)
    assert (code, [one["outcome"] for one in found["programs"]]) == (0, ["hit"])
    assert found["programs"][0]["engines"] == [first.report.partitions[0].key.digest]
    assert (programs(root), torch.get_float32_matmul_precision()) == (kept_programs, "highest")


def test_flags_of_torch_are_restored() -> None:
    """Also the options of Inductor that were at their defaults; a flag that this torch lacks is an error."""
    from torch._inductor import config

    before, fusion = read_flags(), config.epilogue_fusion
    with use_flags({**before, "default dtype": "float64", "inductor": {"epilogue_fusion": not fusion}}):
        assert (torch.get_default_dtype(), config.epilogue_fusion) == (torch.float64, not fusion)
    assert (read_flags(), config.epilogue_fusion) == (before, fusion)
    for flags in ({"inductor": {"no_such_option": 1}}, {"default dtype": "float65"}):
        with pytest.raises(ValueError, match="flag of torch"), use_flags({"default dtype": "float64", **flags}):
            pass
        assert read_flags() == before
    with (
        config.patch(max_autotune=not config.max_autotune),
        pytest.raises(ValueError, match="max_autotune is changed in this process"),
        use_flags({**before, "inductor": {}}),
    ):
        pass


_KEEP = """
    import sys
    sys.path.append({site!r})
    from dataclasses import dataclass
    import torch
    import trtcache
    @dataclass
    class Pair:
        first: torch.Tensor
        second: torch.Tensor
    torch.export.register_dataclass(Pair)
    class Swap(torch.nn.Module):
        def forward(self, pair):
            return Pair(pair.second * 2, pair.first + 1)
    pair = Pair(torch.ones(2), torch.ones(3))
    module = trtcache.compile(Swap(), (pair,), backend="portable", cache={root!r}, keep_program=True)
    print(module.report.partitions[0].outcome, type(module(pair)).__name__)
"""


def test_a_kept_program_needs_no_classes(
    tmp_path: Path, interpreter: str, capsys: pytest.CaptureFixture[str], run_python: RunPython
) -> None:
    """``rebuild`` has not registered the classes of its arguments and results, and builds under the model's key."""
    assert interpreter
    root = tmp_path / "cache"
    site = next(path for path in sys.path if (Path(path) / "interpreter-1.0.dist-info").exists())
    code = textwrap.dedent(_KEEP).format(site=site, root=str(root))
    assert run_python(code).stdout.split() == ["built", "Pair"]
    (program,) = programs(root)
    for record in load_records(DiskStore.open(root)):
        if record.digest != program:
            Cache(root).delete(DiskStore.open(root).header(record.digest).key)
    code_of_rebuild, found = command(capsys, "rebuild", "--cache-dir", root)
    assert (code_of_rebuild, [one["outcome"] for one in found["programs"]]) == (0, ["built"])
    assert programs(root) == [program]
    assert run_python(code).stdout.split() == ["hit", "Pair"]


def test_a_kept_program_has_no_weights_and_no_inputs() -> None:
    """Every weight is zero, with its sharing; constants, graph and the original program are unchanged."""
    for model, x in ((Tied(), torch.tensor([1, 2])), (Shared(), X), (Affine(), X)):
        program = torch.export.export(model, (x,), strict=False)
        blank = kept.without_weights(program)
        assert not any(tensor.any() for tensor in blank.state_dict.values())
        assert any(tensor.any() for tensor in program.state_dict.values())
        assert blank.example_inputs is None
        assert trtcache.key(blank).digest == trtcache.key(program).digest


def test_a_program_is_kept_once(tmp_path: Path, interpreter: str) -> None:
    """A hit keeps it if it is not stored, and a second one does not write it again."""
    root = tmp_path / "cache"
    trtcache.compile(Affine(), (X,), backend=interpreter, cache=root)
    assert programs(root) == []
    for _ in range(2):
        trtcache.compile(Affine(), (X,), backend=interpreter, cache=root, keep_program=True)
        (digest,) = programs(root)
    entry = Cache(root).peek(DiskStore.open(root).header(digest).key)
    assert entry is not None
    assert kept.KeptOptions.read(bytes(entry.read("asked.json"))) == kept.KeptOptions(interpreter, {}, None)


@pytest.mark.parametrize("error", [AssertionError("no"), CanonicalizationError("a structure", "no")])
def test_a_program_that_cannot_be_kept_is_compiled(
    tmp_path: Path,
    interpreter: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    """The failure is only a warning."""

    def fail(program: object) -> None:
        raise error

    monkeypatch.setattr(kept, "without_classes", fail)
    module = trtcache.compile(Affine(), (X,), backend=interpreter, cache=tmp_path / "cache", keep_program=True)
    assert [one.outcome for one in module.report.partitions] == ["built"]
    assert "is not kept: it cannot be saved" in caplog.text


def test_settings_of_any_mapping_are_kept() -> None:
    """Settings take a read-only mapping as well as a dict."""
    options = CompileOptions.of(None, {"inductor": MappingProxyType({"cpp.vec_isa_ok": True})}, None)
    assert kept.KeptOptions.read(kept.KeptOptions.of(options).write()).settings == {
        "inductor": {"cpp.vec_isa_ok": True}
    }


def test_a_failing_program_does_not_stop_others(
    tmp_path: Path, interpreter: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of two programs has a setting that does not exist: the other is built, and the exit code is 1."""
    root, write = tmp_path / "cache", kept.KeptOptions.write
    trtcache.compile(Affine(), (X,), backend=interpreter, cache=root, keep_program=True, name="good")
    old = kept.KeptOptions(interpreter, {"gone": 1}, None)
    monkeypatch.setattr(kept.KeptOptions, "write", lambda _: write(old))
    trtcache.compile(Shared(), (X,), backend=interpreter, cache=root, keep_program=True, name="bad")
    code, found = command(capsys, "rebuild", "--cache-dir", root)
    assert code == 1
    assert {one["name"]: one["outcome"] for one in found["programs"]} == {"good": "hit", "bad": "failed"}
    assert "settings['gone']: unknown" in next(one["why"] for one in found["programs"] if one["name"] == "bad")
    code, found = command(capsys, "rebuild", "--dry-run", "--filter", "name=good", "--cache-dir", root)
    assert (code, [one["outcome"] for one in found["programs"]]) == (0, ["kept"])


def test_an_error_of_the_system_does_not_stop_others(
    tmp_path: Path, interpreter: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as a temporary directory that is full when the first of two programs is written there."""
    root, write, failures = tmp_path / "cache", Entry.write, ["No space left on device"]
    for name, model in (("one", Affine()), ("two", Shared())):
        trtcache.compile(model, (X,), backend=interpreter, cache=root, keep_program=True, name=name)

    def fail_once(entry: Entry, member: str, path: Path) -> None:
        if failures:
            raise OSError(errno.ENOSPC, failures.pop())
        write(entry, member, path)

    monkeypatch.setattr(Entry, "write", fail_once)
    code, found = command(capsys, "rebuild", "--cache-dir", root)
    assert (code, sorted(one["outcome"] for one in found["programs"])) == (1, ["failed", "hit"])
    assert "No space left on device" in next(one["why"] for one in found["programs"] if one["outcome"] == "failed")


def test_a_damaged_program_is_reported(tmp_path: Path, interpreter: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As damaged; and a filter that selects nothing is not taken for an empty cache."""
    root = tmp_path / "cache"
    trtcache.compile(Affine(), (X,), backend=interpreter, cache=root, keep_program=True)
    (digest,) = programs(root)
    (path,) = root.rglob(f"*{digest[2:]}*.trtc")
    content = bytearray(path.read_bytes())
    content[-40] ^= 1
    path.write_bytes(content)
    code, found = command(capsys, "rebuild", "--cache-dir", root)
    assert code == 1
    assert "cannot be used: corrupt:" in found["programs"][0]["why"]
    with pytest.raises(SystemExit):
        main(["rebuild", "--filter", "name=other", "--cache-dir", str(root)])
    assert "no kept program matches the filter" in capsys.readouterr().err


def test_nothing_is_rebuilt_without_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engines would be lost."""
    monkeypatch.setenv("TRTCACHE_DISABLE", "1")
    trtcache.Cache(tmp_path / "cache")
    with pytest.raises(SystemExit) as left:
        main(["rebuild"])
    assert left.value.code == 2


def test_an_onnx_file_is_not_kept(tmp_path: Path) -> None:
    """The file itself is the program."""
    (tmp_path / "model.onnx").write_bytes(b"not parsed")
    with pytest.raises(SettingsError, match="is not a torch program: keep the file itself"):
        building.build(tmp_path / "model.onnx", cache=tmp_path / "cache", keep_program=True)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_zeros_in_place_of_weights_take_no_memory() -> None:
    """Not when they are read either, as a program is saved with them; they can be written to."""
    weight = torch.empty(1 << 26)  # 256 MiB, which are not touched
    before_kb = _memory_kb()
    zeros = kept.zeros_with_layouts(kept.layouts_of({"weight": weight, "first": weight[:4]}))
    assert zeros["weight"].sum() == 0
    assert _memory_kb() - before_kb < 1 << 17
    zeros["first"][0] = 1.0
    assert zeros["weight"][0] == 1


def _memory_kb() -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:")))
