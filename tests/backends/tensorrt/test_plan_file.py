"""The file of a plan: what cannot be written in full is an error, though TensorRT calls it a success."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import trtcache
from tests.backends.tensorrt.plans import Small, compiled, ids, lowered
from trtcache.backends.registry import build_artifact
from trtcache.backends.tensorrt.backend import TensorRTRtx
from trtcache.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from trtcache.backends.protocol import Artifact


def built(folder: Path) -> Artifact:
    """Build a small plan in a folder."""
    backend = TensorRTRtx()
    program = lowered(Small(), (ids(),))
    return build_artifact(backend, program, trtcache.Settings(), backend.target("sm_89", program.device), folder)


def test_a_full_disk_fails_the_build_with_a_remedy(tmp_path: Path) -> None:
    """A device that is always full stands for the file."""
    (tmp_path / "engine.plan").symlink_to("/dev/full")
    with pytest.raises(BuildError, match=r"No space left on device; free space in .* TMPDIR .*engine\.plan"):
        built(tmp_path)


def test_a_limit_of_the_file_size_fails_the_build(tmp_path: Path) -> None:
    """The first part of the plan is written, and the system refuses the rest."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, before[1]))
    try:
        with pytest.raises(BuildError, match="File too large"):
            built(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert built(tmp_path).engine.stat().st_size > 1 << 14


class Faulty:
    """A file whose writes are another function."""

    def __init__(self, file: Any, write: Callable[[Any, bytes], int]) -> None:
        self._file, self._write, self.name = file, write, file.name

    def __enter__(self) -> Faulty:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def write(self, data: bytes) -> int:
        return self._write(self._file, data)


def short(file: Any, data: bytes) -> int:
    """Write half of it, and say so."""
    return int(file.write(data[: len(data) // 2]))


def lost(file: Any, data: bytes) -> int:
    """Write half of it, and say that it is all."""
    file.write(data[: len(data) // 2])
    return len(data)


def interrupted(file: Any, data: bytes) -> int:
    """Raise what a handler of a signal raises."""
    raise SystemExit(7)


@pytest.mark.parametrize(
    ("write", "error", "words"),
    [
        (short, BuildError, r"OSError.*only \d+ of \d+ bytes were written.*engine\.plan"),
        (lost, BuildError, r"engine\.plan has \d+ bytes, and \d+ were written"),
        (interrupted, SystemExit, "7"),
    ],
)
def test_a_plan_that_is_not_written_in_full_is_not_stored(
    write: Callable[[Any, bytes], int],
    error: type[BaseException],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing of it is in the cache, and the next build is one of its own."""
    real = Path.open

    def opened(path: Path, mode: str = "r", *args: Any, **more: Any) -> Any:
        file = real(path, mode, *args, **more)
        return Faulty(file, write) if (path.name, mode) == ("engine.plan", "wb") else file

    model = Small()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", opened)
        with pytest.raises(error, match=words):
            compiled(model, (ids(),), tmp_path)
    assert not list(tmp_path.glob("entries/*/*"))
    assert compiled(model, (ids(),), tmp_path).report.partitions[0].outcome == "built"
