"""Calls, files, frames and modules of a hit: ``python -m benchmarks.hit_shape`` prints them as JSON.

Run it in a process of its own. Python's profiler counts the calls of functions of this package; a *warm* hit is the
second one in the process, so that nothing is imported any more. The engine is the interpreter of ``trtcache.testing``,
which builds in milliseconds: the look-up, the checks and the report are those of every engine.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

OWN = str(Path(__file__).parents[1] / "trtcache")


class Profile:
    """What a call runs of this package: calls, files, and the deepest stack of its functions."""

    def __init__(self) -> None:
        """Count nothing yet."""
        self.calls = 0
        self.files: set[str] = set()
        self.deepest: list[str] = []

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(OWN):
            return
        self.calls += 1
        self.files.add(frame.f_code.co_filename)
        above: FrameType | None = frame
        below: CodeType | None = None
        stack: list[str] = []
        while above is not None:
            code = above.f_code
            if code.co_filename.startswith(OWN) and code is not below:  # recursion counts as one frame
                stack.append(f"{Path(code.co_filename).relative_to(OWN)}:{code.co_qualname}")
            above, below = above.f_back, code
        if len(stack) > len(self.deepest):
            self.deepest = stack[::-1]

    def run(self, action: Callable[[], Any]) -> Any:
        """Run a function with a trace function, and return its result; direct mode is off under a profiler."""
        sys.settrace(self._note)
        try:
            return action()
        finally:
            sys.settrace(None)

    def to_json(self) -> dict[str, Any]:
        """Return the counts."""
        return {"calls": self.calls, "files": len(self.files), "frames": len(self.deepest), "deepest": self.deepest}


def measure_cache(folder: str) -> dict[str, Any]:
    """Measure a warm hit of ``Cache.get_or_build``; torch is not imported."""
    from trtcache import Cache

    def get() -> Any:
        return cache.get_or_build({"source": "a"}, lambda: b"artifact", kind="object")

    cache, profile = Cache(folder), Profile()
    get()
    get()
    assert profile.run(get).outcome == "hit"
    return profile.to_json()


def measure_compile(folder: str) -> dict[str, Any]:
    """Measure warm hits of ``trtcache.compile``: of a module in direct mode, of one that is exported, and of a file."""
    import torch

    import trtcache
    from trtcache.testing.interpreter import Interpreter

    model, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval(), torch.ones(2, 8)
    path = Path(folder) / "model.pt2"
    torch.export.save(torch.export.export(model, (x,)), path)
    ways: dict[str, Callable[[], Any]] = {
        "direct": lambda: trtcache.compile(model, (x,), direct="on", **options),
        "exported": lambda: trtcache.compile(model, (x,), direct="off", **options),
        "file": lambda: trtcache.compile(path, **options),
    }
    _install_interpreter(Path(folder))
    found: dict[str, Any] = {}
    for way, compile_again in ways.items():
        options: dict[str, Any] = {"backend": Interpreter.name, "cache": Path(folder) / way}
        read = _count_entries()
        for _ in range(3):
            compile_again()
        profile = Profile()
        read.clear()
        module = profile.run(compile_again)
        assert module.report.partitions[0].outcome == "hit", module.report
        assert way != "direct" or module.report.direct == "hit", module.report.direct
        found[way] = {**profile.to_json(), "entries": len(read)}
    return found


def _install_interpreter(folder: Path) -> None:
    """Make the interpreter a backend as another distribution would: by an entry point."""
    info = folder / "interpreter-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: interpreter\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[trtcache.backends]\ninterpreter = trtcache.testing.interpreter:Interpreter\n"
    )
    sys.path.append(str(folder))


def _count_entries() -> list[str]:
    """Return a list to which each entry that any store reads from now on is added."""
    from trtcache.store.reader import ArtifactFile

    read: list[str] = []
    load = ArtifactFile.load

    def load_and_note(self: ArtifactFile, *, mapped: bool) -> Any:
        read.append(self.path.name)
        return load(self, mapped=mapped)

    ArtifactFile.load = load_and_note  # type: ignore[method-assign]  # in this process only
    return read


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as root:
        hits = {"get_or_build": measure_cache(f"{root}/objects")}
        hits |= measure_compile(root)
    print(json.dumps(hits))
