"""A tiny package, for ``trtcache doctor``.

``doctor`` builds it in a child process, because a broken installation crashes here: with two libstdc++ in one process
every package crashed at load inside ``std::regex`` (seen on a machine with an H200, torch 2.11).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from trtcache.backends.aot_inductor.build import known_options
from trtcache.backends.aot_inductor.compilation import header_options
from trtcache.backends.diagnosis import Check

_TOLERANCE = 1e-6


class Tiny(torch.nn.Module):
    """One parameter and two operations: enough to need a compiler, a loader and a run."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.full((4,), 0.5))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return ``relu(value * scale + 1)``."""
        return (value * self.scale + 1).relu()


def largest_difference(device: str) -> float:
    """Return the maximum difference between the package's output and eager's."""
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
    device = "cuda" if torch.cuda.is_available() else "cpu"
    off = largest_difference(device)
    found = f"built, loaded and run on {device}; largest difference from eager {off:.1g}"
    return Check("tiny package", "ok" if off <= _TOLERANCE else "bad", found)
