"""One process of ``benchmarks.partition``: compiles four encoders that meet in an operator that stays in torch."""

from __future__ import annotations

import json
import sys
import time

import torch

import trtcache

TOWERS = 4


class Towers(torch.nn.Module):
    """Encoders of other widths, each with an input of its own."""

    def __init__(self) -> None:
        """Make them."""
        super().__init__()
        torch.manual_seed(0)
        self.towers = torch.nn.ModuleList(
            torch.nn.TransformerEncoder(
                torch.nn.TransformerEncoderLayer(32 * (number + 1), 4, 64, batch_first=True),
                3,
                enable_nested_tensor=False,
            )
            for number in range(TOWERS)
        )

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Return the encoders' outputs in one tensor."""
        return torch.cat([tower(one).mean(1) for tower, one in zip(self.towers, inputs, strict=True)], -1)


def main() -> None:
    """Print how long the parts took to build, and nothing else."""
    way, processes = sys.argv[1], int(sys.argv[2])
    model = Towers().eval()
    inputs = tuple(torch.randn(2, 16, 32 * (number + 1)) for number in range(TOWERS))
    settings = {"torch_executed_ops": ["aten.cat"], "build_processes": processes}
    start = time.perf_counter()
    module = trtcache.compile(model, inputs, settings=settings)
    report = module.report
    took_s = time.perf_counter() - start - report.export_s - report.decompose_s - report.lower_s
    with torch.no_grad():
        torch.testing.assert_close(module(*inputs), model(*inputs), rtol=1e-4, atol=1e-5)
    built = sum(one.outcome == "built" for one in report.partitions)
    if built != TOWERS:
        sys.exit(f"{built} parts were built, not {TOWERS}")
    print(json.dumps({f"{way}_s": took_s}))


if __name__ == "__main__":
    main()
