"""``trtcache sync``: between directories, with what arrives and what does not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import torch

from tests.models import Affine
from tests.store.sources import files_of, fill
from trtcache.store.disk import DiskStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Result


@pytest.fixture
def source(tmp_path: Path) -> DiskStore:
    """Three entries in another directory."""
    return fill(tmp_path / "source", 3)


def test_what_is_missing_is_copied_and_printed(run: Callable[..., Result], source: DiskStore, root: Path) -> None:
    """A line for each entry; a second time there is none."""
    done = run("sync", source.root, root)
    assert done.code == 0
    assert sorted(row[:4] for row in done.rows) == sorted(
        [record["key"], "copied", "test", record["name"]] for record in run("ls", "--json").json["entries"]
    )
    assert "3 entries of" in done.err
    assert files_of(root) == files_of(source.root)
    again = run("sync", source.root, root)
    assert (again.code, again.out) == (0, "")
    assert "0 entries of 0 B copied, 3 already present" in again.err


def test_a_look_makes_no_store(run: Callable[..., Result], source: DiskStore, root: Path) -> None:
    """--dry-run prints the same and copies nothing."""
    done = run("sync", "--dry-run", "--json", source.root, root)
    assert not root.exists()
    assert done.json["dry_run"]
    assert len(done.json["copied"]) == 3
    assert "3 entries of" in run("sync", "--dry-run", source.root, root).err


def test_json_tells_all(run: Callable[..., Result], source: DiskStore, root: Path) -> None:
    """What was copied, was there, was refused and pinned."""
    first, second, _ = sorted(stored.digest for stored in source.scan())
    source.pin(first)
    source.path(second).write_bytes(b"no entry")
    done = run("sync", "--pins", "--json", source.root, root)
    assert done.code == 4
    assert done.json == {
        "dry_run": False,
        "destination": str(root),
        "copied": done.json["copied"],
        "copied_bytes": sum(one["file_bytes"] for one in done.json["copied"]),
        "there": 0,
        "refused": [
            {
                "key": second,
                "source": str(source.root),
                "reason": "corrupt:magic",
                "why": "it does not start with the signature of an artifact file",
            }
        ],
        "pinned": [first],
        "freed_bytes": 0,
    }
    assert [one["pinned"] for one in done.json["copied"]] == [True, False]
    assert DiskStore.open(root).pins() == {first}
    plain = run("sync", source.root, root)
    assert (plain.code, plain.rows[0][:2]) == (4, [second, "corrupt:magic"])
    assert "1 refused" in plain.err


def test_limits_are_told_and_kept(
    run: Callable[..., Result], source: DiskStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where more arrives than may stay, before it does."""
    monkeypatch.setenv("TRTCACHE_MAX_SIZE", "5kB")
    done = run("sync", source.root, root)
    assert "TRTCACHE_MAX_SIZE allows 5 kB" in done.err
    assert run("sync", "--filter", "name~1", source.root, root).code == 0


def test_the_destination_may_be_the_cache_that_is_named(
    run: Callable[..., Result], source: DiskStore, tmp_path: Path
) -> None:
    """Then all directories are sources."""
    target = DiskStore.open(tmp_path / "named").root
    assert run("sync", "--cache-dir", target, source.root).code == 0
    assert files_of(target) == files_of(source.root)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["{source}"], 2, "at least two directories"),
        (["{source}", "{source}"], 2, "both a source and the destination"),
        (["{source}/missing", "{root}"], 3, "the directory does not exist"),
        (["{source}/entries", "{root}"], 3, "it has no trtcache-store.json"),
        (["{source}", "{source}/entries"], 3, "is not a trtcache store"),
        (["--filter", "colour=red", "{source}", "{root}"], 2, "there is no field 'colour'"),
    ],
    ids=["one", "same", "missing", "no store", "occupied", "filter"],
)
def test_invalid_arguments_are_reported(
    words: list[str], code: int, said: str, run: Callable[..., Result], source: DiskStore, root: Path
) -> None:
    """With the common exit codes, and nothing is copied."""
    done = run("sync", *(word.format(source=source.root, root=root) for word in words))
    assert done.code == code
    assert said in done.err
    assert not (root / "entries").exists()


def test_a_store_that_may_not_be_written_is_left_alone(
    run: Callable[..., Result], source: DiskStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By TRTCACHE_READONLY; a look is allowed."""
    monkeypatch.setenv("TRTCACHE_READONLY", "1")
    assert run("sync", source.root, root).code == 3
    assert run("sync", "--dry-run", source.root, root).code == 0


def test_a_person_sees_a_bar_and_a_table(terminal: Callable[..., Result], source: DiskStore, root: Path) -> None:
    """The first entries are left out where there are many."""
    done = terminal("sync", fill(source.root.with_name("many"), 45).root, root)
    assert done.code == 0
    assert "copying" in done.out
    assert "... and 5 more above" in done.out
    assert "45 entries of" in done.out


def test_pins_and_pruned_bytes_are_printed(
    run: Callable[..., Result], source: DiskStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the last line."""
    for stored in source.scan():
        source.pin(stored.digest)
    old = fill(root, 5)
    monkeypatch.setenv("TRTCACHE_MAX_ENTRIES", "3")
    for stored in source.scan():
        old.remove(stored.digest)
    assert "3 to pin" in run("sync", "--pins", "--dry-run", source.root, root).err
    done = run("sync", "--pins", source.root, root)
    assert "3 pinned, 16.4 kB pruned" in done.err


def test_a_directory_that_others_may_write_to_is_no_source(
    run: Callable[..., Result], source: DiskStore, root: Path
) -> None:
    """Its entries could be from any user."""
    os.chmod(source.root, 0o777)  # noqa: S103, PTH101  # that is the test
    assert "is not safe to load engines from" in run("sync", source.root, root).err


def test_what_was_built_there_is_a_hit_here(
    run: Callable[..., Result], root: Path, tmp_path: Path, interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its alias too, which came along, without lowering and without a build."""
    model = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(Affine(), (torch.ones(3, 4),)), model)
    build = ("build", model, "--backend", interpreter, "--json")
    monkeypatch.setenv("TRTCACHE_DIR", str(tmp_path / "theirs"))
    key = run(*build).json["key"]
    assert run("sync", tmp_path / "theirs", root).code == 0
    monkeypatch.setenv("TRTCACHE_DIR", str(root))
    monkeypatch.setenv("TRTCACHE_FORBID_BUILD", "1")
    done = run(*build).json
    assert (done["outcome"], done["route"], done["key"]) == ("hit", "alias", key)
