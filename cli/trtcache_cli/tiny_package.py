"""Build, load and run one tiny AOTInductor package: ``python -m trtcache_cli.tiny_package``.

``doctor`` runs this in a child process, because a broken installation crashes here: with two libstdc++ in one process
every package crashed at load inside ``std::regex`` (seen on a machine with an H200, torch 2.11).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch


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
    with tempfile.TemporaryDirectory() as directory:
        path = torch._inductor.aoti_compile_and_package(program, package_path=str(Path(directory) / "tiny.pt2"))
        answer = torch._inductor.aoti_load_package(path)(value)
    return float((answer - model(value)).abs().max())


def main() -> int:
    """Print a summary; return 1 if the output is wrong."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    difference = largest_difference(device)
    sys.stdout.write(f"built, loaded and run on {device}; largest difference from eager {difference:.1g}\n")
    return int(difference > 1e-6)


if __name__ == "__main__":
    sys.exit(main())
