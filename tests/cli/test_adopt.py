"""``trtcache adopt``: what is printed of another tool's cache, and what is brought in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integrations.foreign_caches.layouts import NAMES, onnxruntime_cache, rtx_plan, torch_tensorrt_cache
from trtcache.digests import Digest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Result


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("options", [[], ["--dry-run"]], ids=["adopted", "listed"])
def test_an_engine_that_is_refused_ends_with_4(options: list[str], run: Callable[..., Result], tmp_path: Path) -> None:
    """As sync does; a cache whose engines are all sound ends with 0."""
    folder = tmp_path / "theirs"
    folder.mkdir(0o700)
    (folder / "a_sm89.engine").write_bytes(rtx_plan("8.9"))
    (folder / "a_sm89.engine").chmod(0o600)
    assert run("adopt", "onnxruntime", folder, *options).code == 0
    (folder / "b_sm89.engine").write_bytes(b"none")
    assert run("adopt", "onnxruntime", folder, *options).code == 4


@pytest.mark.usefixtures("store")
def test_engines_are_adopted_and_listed(run: Callable[..., Result], tmp_path: Path) -> None:
    """A line for each thing; a second time they are there."""
    cache = onnxruntime_cache(tmp_path / "theirs")
    done = run("adopt", "onnxruntime", cache)
    assert done.code == 4  # one is damaged, and one refers to another directory
    states = [row[5] for row in done.rows]
    assert (len(states), states.count("adopted")) == (12, 4)
    assert "4 of 12 files are engines that can be adopted: 4 adopted, 0 already present" in done.err
    listed = run("ls", "--json", "--filter", "kind=adopted").json
    assert listed["total"] == 4
    assert "0 adopted, 4 already present" in run("adopt", "onnxruntime", cache).err
    shown = run("show", listed["entries"][0]["key"], "--json").json
    assert shown["provenance"]["adopted_from"] == "onnxruntime"
    assert run("verify").code == 0


def test_a_look_brings_nothing_in(run: Callable[..., Result], tmp_path: Path, root: Path) -> None:
    """--dry-run makes no store, and --json has what headers say."""
    done = run("adopt", "torch-tensorrt", torch_tensorrt_cache(tmp_path / "theirs"), "--dry-run", "--json")
    assert not root.exists()
    plan = rtx_plan("8.9")
    first = next(one for one in done.json["finds"] if one["file"].startswith(NAMES[0]))
    assert first == {
        "file": f"{NAMES[0]}/blob.bin",
        "what": "engine",
        "file_bytes": first["file_bytes"],
        "size_bytes": len(plan),
        "library": "TensorRT-RTX",
        "version": "1.7.1.116",
        "capabilities": ["8.9"],
        "told_by": "header",
        "digest": str(Digest.of(plan)),
        "state": "sound",
        "why": first["why"],
        "key": first["key"],
    }
    assert not (tmp_path / "trap").exists()


def test_pins_and_limits_are_those_of_any_entry(
    run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is known of what their builds took, so they go first, unless they are pinned."""
    monkeypatch.setenv("TRTCACHE_MAX_ENTRIES", "2")
    cache = onnxruntime_cache(tmp_path / "theirs")
    run("adopt", "onnxruntime", cache)
    assert run("ls", "--json").json["total"] <= 2
    run("adopt", "onnxruntime", cache, "--pin")
    assert [one["pinned"] for one in run("ls", "--json").json["entries"]] == [True] * 4


def test_a_person_sees_a_table(terminal: Callable[..., Result], tmp_path: Path) -> None:
    """Long names are cut in their middle."""
    done = terminal("adopt", "torch-tensorrt", torch_tensorrt_cache(tmp_path / "theirs"), "--dry-run")
    assert "FILE" in done.out
    assert "a" * 16 + "..." in done.out
    assert "sm_89" in done.out
    assert "2 of 6 files" in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [(["tvm", "."], "is not one of"), (["onnxruntime", "missing"], "does not exist")],
    ids=["tool", "directory"],
)
def test_what_cannot_be_meant_is_wrong_usage(words: list[str], said: str, run: Callable[..., Result]) -> None:
    """A tool that is not known, and a directory that is not there."""
    done = run("adopt", *words)
    assert done.code == 2
    assert said in done.err
