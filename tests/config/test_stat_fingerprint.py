"""An unchanged file is not hashed; every change is detected."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
import torch

import trtcache
from tests.comparing import difference
from tests.models import Affine
from trtcache.config import paths as file_state
from trtcache.config.paths import StatFingerprint
from trtcache.errors import ExportError
from trtcache.frontends.pt2 import Pt2Source
from trtcache.frontends.weight_files import Hashing
from trtcache.keys import alias_key as alias
from trtcache.store.disk import DiskStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = torch.randn(3, 4)
WRITTEN = StatFingerprint(device=1, inode=2, size_bytes=3, written_ns=10_000_000_000, changed_ns=10_000_000_000)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Save a program in a file that counts as written long ago."""
    monkeypatch.setattr(file_state, "SETTLED_NS", -1 << 60)
    path = tmp_path / "affine.pt2"
    torch.export.save(torch.export.export(Affine(), (X,)), path)
    return path


@pytest.fixture
def compiled(interpreter: str, path: Path, tmp_path: Path) -> Callable[[], trtcache.CompiledModule]:
    """Compile the file once, and return what compiles it again."""

    def compile_() -> trtcache.CompiledModule:
        return trtcache.compile(path, backend=interpreter, cache=tmp_path / "cache")

    compile_()
    return compile_


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the files that are hashed as a whole."""
    begun: list[int] = []
    begin = Hashing.begin

    def counted(self: Any) -> None:
        begun.append(1)
        begin(self)

    monkeypatch.setattr(Hashing, "begin", counted)
    return begun


def test_an_unchanged_file_is_not_hashed(compiled: Callable[[], trtcache.CompiledModule], hashed: list[int]) -> None:
    """The key alias recognizes it by its stat fingerprint."""
    module = compiled()
    assert (module.report.route, hashed) == ("alias", [])
    assert difference(Affine()(X), module(X)) is None


def test_a_file_that_was_touched_is_hashed_and_found_whole(
    compiled: Callable[[], trtcache.CompiledModule], path: Path, hashed: list[int]
) -> None:
    """Another time of writing is reason enough to look, and nothing is wrong."""
    os.utime(path)
    assert compiled().report.route == "alias"
    assert hashed


def test_a_weight_that_was_damaged_under_the_times_of_before_is_found(
    compiled: Callable[[], trtcache.CompiledModule], path: Path
) -> None:
    """The time of a change cannot be set back, so the checksums are looked at."""
    before, content = path.stat(), path.read_bytes()
    start = content.index(torch.ones(4, 4).numpy().tobytes())
    with path.open("r+b") as writer:
        writer.seek(start)
        writer.write(bytes([content[start] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ExportError, match="it is damaged"):
        compiled()


@pytest.mark.parametrize("seen", [[1, 2, 3], ["a"] * 5, 7])
def test_an_invalid_fingerprint_is_rejected(
    compiled: Callable[[], trtcache.CompiledModule], tmp_path: Path, seen: Any
) -> None:
    """An alias with an invalid fingerprint is rejected and rewritten."""
    store = DiskStore.open(tmp_path / "cache")
    (digest,) = (one.digest for one in store.scan() if store.header(one.digest).kind == alias.KIND)
    key = store.header(digest).key
    document = json.loads(bytes(store.get(key).read("alias.json")))  # type: ignore[union-attr]  # it is there
    store.put(key, {"alias.json": json.dumps({**document, "seen": seen}).encode()}, kind=alias.KIND)
    assert [compiled().report.route for _ in range(2)] == ["lowered", "alias"]


@pytest.mark.parametrize(
    ("read_ns", "settled"), [(10_000_000_001, False), (12_000_000_000, False), (12_000_000_001, True)]
)
def test_a_state_tells_of_writes_only_where_the_last_is_long_ago(read_ns: int, settled: bool) -> None:
    """A write that follows within the clock's coarsest step may leave the time of the one before."""
    assert WRITTEN.is_settled(read_ns) is settled


def test_a_file_that_was_just_written_is_hashed_again_before_it_counts_as_known(tmp_path: Path) -> None:
    """Where it was opened too early, it is the digest of later that its state goes with; earlier there is none."""
    path = tmp_path / "affine.pt2"
    torch.export.save(torch.export.export(Affine(), (X,)), path)
    changed_ns = path.stat().st_ctime_ns
    times = iter([changed_ns, changed_ns + 1, changed_ns, changed_ns + 3_000_000_000])
    for expected in (False, True):
        with Pt2Source(path, clock_ns=lambda: next(times)) as file:
            assert (file.stat_fingerprint() is not None) is expected
