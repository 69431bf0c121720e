"""One process of ``benchmarks.partition``: four encoders that meet in an operator that stays in torch, built or run."""

from __future__ import annotations

import json
import sys
import time

import torch

import trtcache
from benchmarks.timing import timed

TOWERS = 4
BUILT, RUN = (2, 16), (16, 64)
"""Sizes of the inputs."""
CALLS, TURNS = 20, 5


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
    """Print how long the parts took to build, or to run one after the other and side by side, and nothing else."""
    print(json.dumps(run() if sys.argv[1] == "run" else built(sys.argv[1], int(sys.argv[2]))))


def built(way: str, processes: int) -> dict[str, float]:
    """Return the seconds of a build by so many processes."""
    model, inputs = _model(BUILT)
    start = time.perf_counter()
    module = _compiled(model, inputs, processes)
    report = module.report
    took_s = time.perf_counter() - start - report.export_s - report.decompose_s - report.lower_s
    with torch.no_grad():
        torch.testing.assert_close(module(*inputs), model(*inputs), rtol=1e-4, atol=1e-5)
    count = sum(one.outcome == "built" for one in report.partitions)
    if count != TOWERS:
        sys.exit(f"{count} parts were built, not {TOWERS}")
    return {f"{way}_s": took_s}


def run() -> dict[str, float]:
    """Return the seconds of a call with its parts one after the other and two at once, each with one thread."""
    model, inputs = _model(RUN)
    module = _compiled(model, inputs, 2)
    found_s: dict[int, list[float]] = {1: [], 2: []}
    answers = {}
    for turn in range(TURNS + 1):
        for inter, turns_s in found_s.items():
            with trtcache.threads(intra=1, inter=inter):
                answers[inter] = module(*inputs)
                seconds = timed(lambda: [module(*inputs) for _ in range(CALLS)])[1]
            turns_s += [seconds / CALLS] if turn else []
    if not torch.equal(answers[1], answers[2]):
        sys.exit("the answers differ")
    return {"run_one_s": min(found_s[1]), "run_two_s": min(found_s[2])}


def _model(size: tuple[int, int]) -> tuple[Towers, tuple[torch.Tensor, ...]]:
    return Towers().eval(), tuple(torch.randn(*size, 32 * (number + 1)) for number in range(TOWERS))


def _compiled(model: Towers, inputs: tuple[torch.Tensor, ...], processes: int) -> trtcache.CompiledModule:
    settings = {"torch_executed_ops": ["aten.cat"], "build_processes": processes}
    return trtcache.compile(model, inputs, settings=settings)


if __name__ == "__main__":
    main()
