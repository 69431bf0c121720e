"""``trtcache refit``: weights for programs in files and for entries."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import save_file

import trtcache
from tests.comparing import difference
from trtcache.digests import CacheKey
from trtcache.frontends.pt2 import Pt2Source
from trtcache.store.catalog import load_records
from trtcache.store.disk import DiskStore
from trtcache.testing.refit import RefitModel, image

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trtcache.store.record import Record

    from .conftest import Result

Run = "Callable[..., Result]"


@pytest.fixture(scope="module")
def exported() -> torch.export.ExportedProgram:
    """The network of seed 0."""
    return torch.export.export(RefitModel(0), (image("cpu"),), strict=False)


@pytest.fixture
def file(tmp_path: Path, exported: torch.export.ExportedProgram) -> Path:
    """A file with it."""
    torch.export.save(exported, tmp_path / "network.pt2")
    return tmp_path / "network.pt2"


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    """Write the weights of a network into a file; None takes one out, and tied ones are there once."""

    def write(seed: int, **changes: Any) -> Path:
        state = {name: one for name, one in RefitModel(seed).state_dict().items() if name != "out.weight"}
        state |= {name.replace("__", "."): one for name, one in changes.items()}
        save_file({name: one for name, one in state.items() if one is not None}, tmp_path / "w.safetensors")
        return tmp_path / "w.safetensors"

    return write


def test_a_program_gets_other_weights_and_keeps_its_engine(
    run: Callable[..., Result],
    file: Path,
    save: Callable[..., Path],
    interpreter: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is written is the same program with those weights: torch reads it, and it is a hit of the first one's."""
    trtcache.compile(file, backend=interpreter)
    output = tmp_path / "other.pt2"
    done = run("refit", file, "--weights", save(1), "-o", output, "--json").json
    assert (done["file"], done["key"], done["kind"], done["output"]) == (str(file), None, None, str(output))
    assert done["weights"] == 10
    assert sorted(done["changed"])[:3] == ["conv.bias", "conv.weight", "fc.bias"]
    assert len(done["changed"]) == 7  # of a BatchNorm that was not trained only the statistics
    monkeypatch.setenv("TRTCACHE_FORBID_BUILD", "1")
    module = trtcache.compile(output, backend=interpreter)
    with torch.no_grad():
        expected = RefitModel(1)(image("cpu"))
        assert difference(expected, module(image("cpu"))) is None
        assert difference(expected, torch.export.load(output).module()(image("cpu"))) is None
    again = run("refit", output, "--weights", save(1))
    assert again.rows == [["file", str(output)], ["weights", "10, all of which fit; 0 changed"]]


def test_weights_in_the_file_that_is_written_lie_as_torch_lays_them(
    run: Callable[..., Result], file: Path, save: Callable[..., Path], tmp_path: Path
) -> None:
    """Each begins at a multiple of 64 bytes, so that it is mapped and not copied; a file may be written over itself."""
    assert run("refit", file, "-w", save(1), "-o", file).code == 0
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
    with Pt2Source(file) as opened:
        tensors = opened.weights(opened.names)
        content = memoryview(file.read_bytes())
        for name, one in tensors.items():
            values = one.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if one.numel() > 4 else b""
            assert bytes(content).find(values) % 64 == 0, name
    assert [path.name for path in tmp_path.glob(".*")] == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fc__bias": None}, "missing: fc.bias"),
        ({"fc__bia": torch.ones(8)}, "unexpected: fc.bia"),
        ({"fc__bias": torch.ones(9)}, "fc.bias (shape (9,), the engine has (8,))"),
        ({"fc__bias": torch.ones(8).half()}, "fc.bias (dtype float16, the engine has float32)"),
        ({"out__weight": torch.ones(8, 8)}, "tied to"),
    ],
    ids=["missing", "extra", "misshapen", "dtype", "tied"],
)
def test_weights_that_do_not_fit_write_nothing(
    run: Callable[..., Result],
    file: Path,
    save: Callable[..., Path],
    tmp_path: Path,
    changes: dict[str, Any],
    message: str,
) -> None:
    """They are named, and the exit code is 1."""
    done = run("refit", file, "-w", save(1, **changes), "-o", tmp_path / "out.pt2")
    assert done.code == 1
    assert message in done.err
    assert not (tmp_path / "out.pt2").exists()


def test_onnx_files_are_sent_elsewhere(run: Callable[..., Result], tmp_path: Path) -> None:
    """The words say what does it: a build of the other file, or a refit of the compiled module."""
    done = run("refit", "a.onnx", "--weights", tmp_path / "b.onnx")
    words = " ".join(done.err.split())
    assert (done.code, f"trtcache build {tmp_path / 'b.onnx'}" in words, "module.refit(" in words) == (2, True, True)


def test_weights_are_checked_for_an_entry(
    run: Callable[..., Result], file: Path, save: Callable[..., Path], tmp_path: Path, interpreter: str
) -> None:
    """By the names of the program that led to it; its engine contains no weights, so nothing can be written."""
    key = run("build", file, "--backend", interpreter, "--json").json["key"]
    done = run("refit", key[:12], "-w", save(1), "--json").json
    assert (done["key"], done["kind"], done["weights"], done["changed"]) == (key, interpreter, 9, None)
    assert ["weights", "9, all of which fit"] in run("refit", key, "-w", save(1)).rows
    wrong = run("refit", key, "-w", save(1, fc__bias=torch.ones(9)))
    assert (wrong.code, "fc.bias (shape (9,), the engine has (8,))" in wrong.err) == (1, True)
    written = run("refit", key, "-w", save(1), "-o", tmp_path / "out")
    assert written.code == 6
    assert "contains no weights: nothing can be written; give the program's .pt2 file" in written.err


def test_an_entry_that_no_file_led_to_has_no_names(
    run: Callable[..., Result], save: Callable[..., Path], interpreter: str
) -> None:
    """The error names the alternative."""
    module = trtcache.compile(RefitModel(0), (image("cpu"),), backend=interpreter)
    key = module.report.partitions[0].key
    assert key is not None
    done = run("refit", key.digest, "-w", save(1))
    assert done.code == 6
    assert "no key alias leads to it, and it has no names for its weights" in done.err
    assert "aliases of programs in memory do not count: they cannot be read without the program" in done.err
    assert any(row[1] == "alias" for row in run("ls", "--all").rows)


def test_names_of_weights_are_read_from_the_cache(
    run: Callable[..., Result], save: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that is turned off has none, and the help promises a refitted file only with -o."""
    monkeypatch.setenv("TRTCACHE_DISABLE", "1")
    done = run("refit", "abcdef", "-w", save(1))
    words = "TRTCACHE_DISABLE: the names of weights are read from the cache, which this variable turns off: unset it"
    assert (done.code, words in done.err) == (2, True)
    assert "with -o, write the refitted one" in " ".join(run("refit", "--help").out.split())


def _built(run: Callable[..., Result], file: Path, interpreter: str, folder: Path) -> tuple[str, DiskStore, Record]:
    """Build a program; return the key of its engine, the store, and the record of its alias."""
    key = run("build", file, "--backend", interpreter, "--json").json["key"]
    store = DiskStore.open(folder / "cache")
    return key, store, next(record for record in load_records(store) if record.kind == "alias")


def test_the_names_are_found_where_builds_would_not_look(
    run: Callable[..., Result],
    file: Path,
    save: Callable[..., Path],
    interpreter: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beside another alias that is damaged, in another layer than the engine, and while every compile is a build."""
    key, upper, alias = _built(run, file, interpreter, tmp_path)
    unrelated = CacheKey.of("alias", {"file": "other"})
    upper.put(unrelated, {"alias": b"{}"}, kind="alias")
    load_records(upper)
    upper.path(unrelated.digest).write_bytes(b"damaged")
    monkeypatch.setenv("TRTCACHE_RECACHE", "1")
    assert run("refit", key, "-w", save(1)).code == 0
    lower = DiskStore.open(tmp_path / "lower")
    entry = lower.root / upper.path(key).relative_to(upper.root)
    entry.parent.mkdir(parents=True, exist_ok=True)
    upper.path(key).rename(entry)
    assert upper.contains(alias.digest)
    monkeypatch.delenv("TRTCACHE_DIR")
    monkeypatch.setenv("TRTCACHE_PATH", f"{upper.root}:{lower.root}")
    assert run("refit", key, "-w", save(1)).code == 0


def test_no_remote_is_asked_for_names(
    run: Callable[..., Result],
    file: Path,
    save: Callable[..., Path],
    interpreter: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor for an alias whose content is damaged: the command only checks."""
    key, store, alias = _built(run, file, interpreter, tmp_path)
    path = store.path(alias.digest)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    monkeypatch.setenv("TRTCACHE_REMOTE", "s3://engines/p?endpoint=http://127.0.0.1:1")
    done = run("refit", key, "-w", save(1))
    assert (done.code, "no key alias leads to it" in done.err) == (6, True)
    assert [event.event for event in store.events.read() if event.event.startswith("remote")] == []


def test_the_file_of_weights_is_not_written_over(
    run: Callable[..., Result], file: Path, save: Callable[..., Path]
) -> None:
    """A program may be."""
    weights = save(1)
    before = weights.read_bytes()
    done = run("refit", file, "-w", weights, "-o", weights)
    assert (done.code, "it is the file of weights; choose another file" in done.err) == (2, True)
    assert weights.read_bytes() == before


def test_a_directory_is_no_program(
    run: Callable[..., Result], save: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One with the name of a key does not hide the key."""
    weights = save(1)
    (tmp_path / "abcdef").mkdir()
    monkeypatch.chdir(tmp_path)
    done = run("refit", "abcdef", "-w", weights)
    assert (done.code, "no entry has a key" in done.err) == (5, True)


@pytest.mark.slow
def test_a_plan_with_its_weights_in_it_takes_no_others(
    run: Callable[..., Result], file: Path, save: Callable[..., Path]
) -> None:
    """The error advises another build."""
    pytest.importorskip("tensorrt_rtx")
    key = run("build", file, "--backend", "tensorrt_rtx", "--target", "sm_89", "--json").json["key"]
    done = run("refit", key, "-w", save(1))
    assert done.code == 1
    assert "are in the engine; build the program with the new weights instead" in done.err


def test_unreadable_files_are_reported(
    run: Callable[..., Result], file: Path, save: Callable[..., Path], tmp_path: Path
) -> None:
    """A damaged program, a damaged file of weights and a missing directory give an error without a traceback."""
    (tmp_path / "damaged.safetensors").write_bytes(b"nothing of the kind")
    with zipfile.ZipFile(file) as whole, zipfile.ZipFile(tmp_path / "less.pt2", "w") as less:
        for name in whole.namelist():
            less.writestr(name, b"[]" if name.endswith("model_weights_config.json") else whole.read(name))
    for args, code, message in (
        ((file, "-w", tmp_path / "damaged.safetensors"), 1, "cannot read weights"),
        ((file, "-w", tmp_path / "gone"), 1, "No such file"),
        ((tmp_path / "less.pt2", "-w", save(1)), 1, "its weights are in an unknown format"),
        ((tmp_path / "damaged.safetensors", "-w", save(1)), 1, "it is no exported program"),
        ((file, "-w", save(1), "-o", tmp_path / "no" / "out"), 2, "there is no directory"),
        (("abcdef", "-w", save(1)), 5, "no entry has a key"),
        ((file,), 2, "Missing option"),
    ):
        done = run("refit", *args)
        assert (done.code, message in done.err) == (code, True), done.err
