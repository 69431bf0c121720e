"""Entry files of every kind of damage and malice, brought from elsewhere: errors of ours, and nothing outside."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

import pytest

from tests.effort import tries
from tests.store.mutations import mutations
from tests.store.sources import HOSTILE, files_of, fill, forged, reheaded
from tests.store.test_damage import no_longer_than, told
from trtcache.digests import CacheKey
from trtcache.store.contract import Entry, Miss
from trtcache.store.disk import DiskStore
from trtcache.store.sync import plan_sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import RunPython

KEY = CacheKey.of("test", {"n": 0})


@pytest.fixture(autouse=True)
def _no_words() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def bring(root: Path, count: int) -> tuple[int, int]:
    """Sync and open ``count`` damaged or forged files, one at a time; return how many were refused and arrived."""
    source, target = fill(root / "source", 1), DiskStore.open(root / "target")
    path, chance = source.path(KEY.digest), random.Random(7)
    whole, refused, arrived = path.read_bytes(), 0, 0
    around = sorted(root.iterdir())
    for number, (what, data) in enumerate(mutations(whole, count, seed=3)):
        what, data = forged(whole, chance) if number % 2 else (what, data)
        path.write_bytes(data)
        with no_longer_than(60):
            done = plan_sync([source], target).execute()
            found = DiskStore.open(source.root, readonly=True).get(KEY)
        refused += len(done.refused)
        arrived += len(done.arrived)
        assert len(done.arrived) + len(done.refused) == 1, what
        if done.arrived:  # it is an entry of this key, and says something else of itself
            assert isinstance(target.get(KEY), (Entry, Miss)), what
            target.remove(KEY.digest)
        else:
            assert isinstance(found, Miss) or found.key == KEY, what  # its document says true for 1
        assert files_of(target.root) == {}, what
        assert sorted(root.iterdir()) == around, what
    return refused, arrived


@pytest.mark.torture
@pytest.mark.no_cover
def test_no_file_of_an_entry_is_trusted(run_python: RunPython, capsys: pytest.CaptureFixture[str]) -> None:
    """Mutated, cut, of wrong lengths, with hostile names: what arrives is an entry, and 64 MB are enough for it all."""
    code = f"""
        import logging, resource
        from tests.store import test_transfer_damage as damage
        from tests.store.sources import in_memory
        logging.disable()
        with in_memory() as root:
            damage.bring(root, 20)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with in_memory() as root:
            refused, arrived = damage.bring(root, {tries(400, 25_000)})
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 64 << 10, grown
        print(f"{{refused}} damaged and forged files were refused, {{arrived}} lied about nothing that is used; "
              f"{{grown >> 10}} MB more memory")
    """
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    told(capsys, done.stdout.strip())


def test_files_with_hostile_names_are_ignored(tmp_path: Path) -> None:
    """They have no effect; only names of 64 digits in the right directory are read."""
    source, target = fill(tmp_path / "source", 1), DiskStore.open(tmp_path / "target")
    path = source.path(KEY.digest)
    whole = path.read_bytes()
    names = [f"{KEY.digest}.trtc\n", f"{KEY.digest.upper()}.trtc", "..trtc", "\udcff.trtc", "%2e%2e%2f.trtc", ".tmp-x"]
    for name in [*names, *(one for one in HOSTILE if one and "/" not in one and len(one) < 200 and one != "..")]:
        (path.parent / name).write_bytes(whole)
    (source.root / "entries" / "..trtc").write_bytes(whole)
    (source.root / "entries" / "zz").mkdir()
    (source.root / "entries" / "zz" / path.name).write_bytes(whole)
    done = plan_sync([source], target).execute()
    assert [record.digest for record in done.arrived] == [KEY.digest]
    assert list(files_of(target.root)) == [f"entries/{KEY.digest[:2]}/{KEY.digest}.trtc"]


@pytest.mark.parametrize("document", [{"parts": 1.5}, {"kind": []}, {"a": [[[[1e9]]]]}], ids=["float", "list", "deep"])
def test_a_key_document_that_has_no_digest_is_damage(document: dict[str, object], tmp_path: Path) -> None:
    """For a transfer, a hit, and a look at the whole store alike."""
    import json

    from trtcache.errors import CorruptBlobError
    from trtcache.store.format import PRELUDE_BYTES

    source, target = fill(tmp_path / "source", 1), DiskStore.open(tmp_path / "target")
    path = source.path(KEY.digest)
    raw = path.read_bytes()
    header = json.loads(raw[PRELUDE_BYTES:4096].rstrip(b"\0"))
    header["key"]["document"] = document
    path.write_bytes(reheaded(raw, header))
    assert [one.reason for one in plan_sync([source], target).refused] == ["corrupt:key"]
    with pytest.raises(CorruptBlobError, match="key document"):
        source.check(KEY.digest)
    assert source.get(KEY) == Miss("corrupt:key")
