"""What a release consists of: the source archive, and the wheel that is built from it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from trtcache_cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
_BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


def _build(what: str, source: Path, folder: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-c", _BUILD, what, str(folder)], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source archive of the files that git has or would add."""
    folder = tmp_path_factory.mktemp("sdist")
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(listed, cwd=ROOT, capture_output=True, check=False)
    if found.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, found.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "tree" / name).write_bytes((ROOT / name).read_bytes())
    with tarfile.open(_build("build_sdist", folder / "tree", folder)) as archive:
        archive.extractall(folder, filter="data")
    return next(path for path in folder.iterdir() if path.is_dir() and path.name != "tree")


def test_the_source_archive_has_all_files_of_the_repository(source: Path) -> None:
    """Tests with their data, documents, examples and benchmarks, but for git's and CI's own files."""
    tree = source.parent / "tree"
    expected = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()}
    expected = {name for name in expected if not name.startswith((".", "build/")) and ".egg-info/" not in name}
    packed = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    assert {"tests/conftest.py", "tests/cli/conftest.py", "docs/cli.md", "docs/conf.py"} <= packed
    assert expected - packed == set()


def test_the_wheel_has_the_manual_pages_and_the_marker_of_types(source: Path) -> None:
    """And the packages, but no tests."""
    with zipfile.ZipFile(_build("build_wheel", source, source.parent)) as wheel:
        names = set(wheel.namelist())
    data = {name.partition(".data/data/")[2] for name in names}
    assert {f"share/man/man1/trtcache-{name}.1" for name in COMMANDS} | {"share/man/man1/trtcache.1"} <= data
    assert {"trtcache/py.typed", "trtcache_cli/templates/report.html"} <= names
    assert {name.split("/")[0] for name in names if ".d" not in name.split("/")[0]} == {
        "trtcache",
        "trtcache_cli",
        "trtcache_migrations",
    }


def test_the_build_requires_what_the_commands_import() -> None:
    """They are imported for the manual pages."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert pyproject["build-system"]["requires"][1:] == pyproject["project"]["dependencies"]


def test_an_editable_install_is_typed_for_other_projects(source: Path, tmp_path: Path) -> None:
    """Mypy finds the package by paths, and its marker; import hooks are not run by it."""
    pytest.importorskip("mypy")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    (folder,) = tmp_path.glob("venv/lib/python*/site-packages")
    with zipfile.ZipFile(_build("build_editable", source, source.parent)) as wheel:
        for name in wheel.namelist():
            if name.endswith(".pth"):
                (folder / name).write_bytes(wheel.read(name))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "program.py").write_text("import trtcache\nreveal_type(trtcache.Cache)\n")
    python = tmp_path / "venv" / "bin" / "python"
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), "program.py"]
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    done = subprocess.run(command, cwd=tmp_path / "other", capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "-> trtcache.cache.Cache" in done.stdout
    find = (
        "from importlib.util import find_spec as find; print(*(find(name).origin for name in sys.argv[1:]), sep='\\n')"
    )
    names = ["trtcache", "trtcache_cli", "trtcache_migrations"]
    command = [str(python), "-c", f"import sys; {find}", *names]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environ)
    assert [Path(line).parent.name for line in found.stdout.splitlines()] == names, found.stderr
    assert all(Path(line).is_relative_to(source) for line in found.stdout.splitlines())
