"""The checks of ``trtcache doctor`` and the self-test of AOTInductor.

``doctor`` builds a tiny package in a child process, because a broken installation crashes here: with two libstdc++ in
one process every package crashed at load inside ``std::regex`` (seen on a machine with an H200, torch 2.11).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtcache.backends.fitness import Check, SelfTest

_TOLERANCE = 1e-6


def largest_difference(device: str) -> float:
    """Return the maximum difference between the output of a tiny package and eager's."""
    import torch

    from trtcache.backends.aot_inductor.build import known_options
    from trtcache.backends.aot_inductor.compilation import header_options

    class Tiny(torch.nn.Module):
        """One parameter and two operations: enough to need a compiler, a loader and a run."""

        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.full((4,), 0.5))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return (value * self.scale + 1).relu()

    model = Tiny().to(device)
    value = torch.linspace(-4, 4, 8, device=device).reshape(2, 4)
    program = torch.export.export(model, (value,))
    known = set(known_options())
    options: dict[str, Any] = {name: wanted for name, wanted in header_options().items() if name in known}
    with tempfile.TemporaryDirectory() as directory:
        path = torch._inductor.aoti_compile_and_package(
            program, package_path=str(Path(directory) / "tiny.pt2"), inductor_configs=options
        )
        answer = torch._inductor.aoti_load_package(path)(value)
    return float((answer - model(value)).abs().max())


def check_tiny_package() -> Check:
    """Build, load and run a tiny package."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    off = largest_difference(device)
    found = f"built, loaded and run on {device}; largest difference from eager {off:.1g}"
    return Check("tiny package", "ok" if off <= _TOLERANCE else "bad", found)


_ASK_S = 10.0


def compiler() -> Check:
    """Find the C++ compiler that AOTInductor would use."""
    named = os.environ.get("CXX")
    for candidate in [named] if named else ["g++", "clang++", "c++"]:
        if path := shutil.which(candidate):
            return Check("c++ compiler", "ok", f"{_version_line(path)} at {path}")
    advice = "install g++: AOTInductor builds need a C++ compiler; hits do not"
    return Check("c++ compiler", "missing", f"{named or 'g++'} not found", advice)


def _version_line(path: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603  # a found compiler
            [path, "--version"], capture_output=True, text=True, timeout=_ASK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.partition("\n")[0].strip() if done.returncode == 0 else ""


def diagnose(*, quick: bool) -> Iterator[Check]:
    """Yield whether there is a compiler, and unless ``quick`` whether packages can be built, loaded and run."""
    found = compiler()
    yield found
    name = "backend aot_inductor"
    if found.status != "ok":
        yield Check(name, "missing", "can load and refit, cannot build", "install a C++ compiler")
        return
    yield Check(name, "ok", "can build, load, refit")
    if not quick:
        yield check_tiny_package()


@dataclass(frozen=True)
class PackageSelfTest(SelfTest):
    """The self-test of packages."""

    def facts(self) -> Mapping[str, str]:
        """Return the C++ compiler."""
        return {"C++ compiler": compiler().found.partition(" at ")[0]}
