"""The bytes that were verified are the bytes that run: private copies, new paths, and nothing left behind."""

from __future__ import annotations

import fcntl
import gc
import io
import os
import tempfile
import time
import zipfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import trtcache
from tests.models import Affine
from trtcache.backends.aot_inductor import loader
from trtcache.backends.aot_inductor.build import without_paths
from trtcache.backends.aot_inductor.loader import (
    PREFIX,
    TORCH_PREFIX,
    UNCLAIMED_S,
    MappedLibrary,
    Package,
    _memory_file,
    claim,
    engine_libraries,
    reclaim,
    scratch,
    unpacked_folder,
)
from trtcache.cache import Cache
from trtcache.errors import IncompatibleEngineError

if TYPE_CHECKING:
    from collections.abc import Iterator


CPU = torch.device("cpu")


X = torch.randn(3, 4)


def _lib(inode: int) -> MappedLibrary:
    return f"08:01 {inode}", f"/srv/{inode}/data/aotinductor/m/a.so"


@pytest.fixture(scope="module")
def package(engines: Path) -> bytes:
    """The bytes of a small package, which is built once for the session."""
    key = trtcache.compile(Affine(), (X,), cache=engines).report.partitions[0].key
    entry = Cache(engines).get(key)
    assert entry is not None
    return bytes(entry.read("engine"))


@pytest.fixture
def own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory of the test's own, for Python and for torch."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield tmp_path
    tempfile.tempdir = None


@pytest.mark.slow
def test_a_load_leaves_nothing_in_the_temporary_directory(package: bytes, own_tmp: Path, engines: Path) -> None:
    """The folder that torch unpacks to is gone while its library runs, so a kill later leaves nothing either."""
    before = engine_libraries()
    opened = Package(package, CPU).open()
    assert list(own_tmp.iterdir()) == []
    assert len(engine_libraries().keys() - before.keys()) == 1
    module = trtcache.compile(Affine(2.0), (X,), cache=engines)
    assert list(own_tmp.iterdir()) == []
    torch.testing.assert_close(module(X), Affine(2.0)(X))
    assert set(opened.get_constant_fqns()) == {"w0", "w1", "w2"}


@pytest.mark.slow
def test_every_load_is_a_library_of_its_own(package: bytes) -> None:
    """The same package twice is two libraries, at paths that this process had not used before."""
    packages = [Package(package, CPU).open() for _ in range(3)]
    paths = [path for _, path in engine_libraries()]
    assert len(set(paths)) == len(paths) >= len(packages)


@pytest.mark.slow
def test_on_a_gpu_the_folder_is_claimed_while_its_loader_lives(package: bytes, own_tmp: Path) -> None:
    """Kernels are read from it later: nobody reclaims it, and it goes with the loader; the device is only said."""
    (own_tmp / "engine.pt2").write_bytes(package)
    before = engine_libraries()
    opened = loader.open_loader(str(own_tmp / "engine.pt2"), CPU)
    added = {path for _, path in engine_libraries().keys() - before.keys()}
    loader._tidy(opened, added, torch.device("cuda"))
    assert reclaim(own_tmp, now_s=time.time() + 2 * UNCLAIMED_S) == 0
    (folder,) = own_tmp.glob(f"{TORCH_PREFIX}*")
    del opened
    gc.collect()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("maps", "attempts"),
    [
        pytest.param([{_lib(7): False}] * 3, 3, id="removed"),
        pytest.param([{_lib(7): True, _lib(8): True}] * 3, 3, id="others of before"),
        pytest.param([{_lib(7): True, _lib(8): True}, {_lib(7): True, _lib(8): True, _lib(9): True}], 2, id="a second"),
        pytest.param([{_lib(7): True}], 1, id="the only one"),
        pytest.param([{}], 1, id="the kernel does not tell"),
    ],
)
def test_only_a_library_that_appears_is_a_load(
    maps: list[dict[MappedLibrary, bool]], attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the dynamic linker maps nothing new, it gave the engine that had this path before: that is no load."""
    calls: list[str] = []
    monkeypatch.setattr(loader, "open_loader", lambda path, _device: calls.append(path))
    monkeypatch.setattr(loader, "_SEEN", set())
    monkeypatch.setattr(loader, "engine_libraries", lambda: maps[len(calls) - 1])
    refused: AbstractContextManager[object] = nullcontext()
    if attempts == loader._ATTEMPTS:
        refused = pytest.raises(IncompatibleEngineError, match="a library that was loaded before")
    with refused:
        Package(b"", CPU).open()
    assert len(calls) == attempts


def test_a_package_in_memory_is_sealed() -> None:
    """Between the check and the use nobody can write to it, not even through its descriptor."""
    with _memory_file(b"verified") as path:
        fd = int(path.rpartition("/")[2])
        assert fcntl.fcntl(fd, fcntl.F_GET_SEALS) == loader._SEALS
        for change in (lambda: os.pwrite(fd, b"x", 0), lambda: os.ftruncate(fd, 0), lambda: os.ftruncate(fd, 99)):
            with pytest.raises(PermissionError):
                change()
        assert Path(path).read_bytes() == b"verified"


@pytest.mark.slow
def test_a_package_says_nothing_of_who_built_it(package: bytes) -> None:
    """Neither its library nor what lies beside it has a folder, the host or the user of the builder in it."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        names = archive.namelist()
        content = b"".join(archive.read(name) for name in names)
        assert not any(archive.read(name) for name in names if name.endswith((".cpp", ".cu", ".h")))
    telling = [cache_dir(), str(Path(torch.__file__).parents[1]), tempfile.gettempdir() + "/", f"{Path.home()}/"]
    assert [one for one in [*telling, os.uname().nodename + ":"] if one.encode() in content] == []
    assert b"/torch/include/" in content  # what such a path ends with: it is here that paths would be


def test_only_names_of_folders_are_taken_out(tmp_path: Path) -> None:
    """Every other byte of a library stays in its place, and other files stay as they are."""
    made = tmp_path / "inductor" / "c4" / "library.so"
    made.parent.mkdir(parents=True)
    site = str(Path(torch.__file__).parents[1])
    made.write_bytes(b"\0%b/torch/include/a.h\0%b/x.cpp\0" % (site.encode(), bytes(made.parents[0])))
    copy = Path(without_paths(str(made), tmp_path))
    content = copy.read_bytes()
    assert (len(content), copy.name) == (made.stat().st_size, made.name)
    assert content.endswith(b"_/c4/x.cpp\0")
    assert b"_/torch/include/a.h\0" in content
    assert str(tmp_path).encode() not in content
    assert without_paths("kernel.json", tmp_path) == "kernel.json"


def test_folders_of_killed_processes_are_reclaimed(tmp_path: Path) -> None:
    """One that a process holds stays; one whose process ended goes, and so do old ones that nobody claimed."""
    now_s = time.time()
    folders = {name: tmp_path / f"{TORCH_PREFIX}{name}" for name in ("held", "left", "young", "old", "gpu", "open")}
    folders["other"] = tmp_path / "somebody-elses"
    for folder in folders.values():
        folder.mkdir(mode=0o700)
        (folder / "library.so").touch()
        os.utime(folder, (now_s - 2 * UNCLAIMED_S,) * 2)
    held = claim(folders["held"])
    os.close(claim(folders["left"]))
    os.utime(folders["young"])
    (folders["gpu"] / "kernel.cubin").touch()
    os.utime(folders["gpu"], (now_s - 2 * UNCLAIMED_S,) * 2)
    folders["open"].chmod(0o755)
    (tmp_path / f"{PREFIX}link").symlink_to(folders["other"])
    assert reclaim(tmp_path, now_s=now_s) == 2
    assert {name for name, folder in folders.items() if not folder.exists()} == {"left", "old"}
    os.close(held)
    assert reclaim(tmp_path, now_s=now_s) == 1
    assert reclaim(tmp_path / "absent") == 0


def test_a_folder_that_is_killed_in_is_reclaimed(own_tmp: Path) -> None:
    """While it is used it stays, though another process looks for what was left."""
    child = os.fork()
    if child == 0:
        with scratch():
            os._exit(reclaim(own_tmp))  # as a kill does it: nothing is cleaned up
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(list(own_tmp.iterdir())) == 1
    assert reclaim(own_tmp) == 1


def test_the_folder_of_a_library_is_found() -> None:
    """Only below the temporary directory."""
    library = "/srv/aotinductor_x/engine/data/aotinductor/model/a.so"
    assert unpacked_folder(library, Path("/srv")) == Path("/srv/aotinductor_x")
    assert unpacked_folder(library, Path("/opt")) is None
    assert unpacked_folder("/srv/a.so", Path("/srv")) is None
