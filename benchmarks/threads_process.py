"""One process of ``benchmarks.threads``: prints its figures as JSON."""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

import trtcache
from benchmarks.timing import timed

WIDTH, DEPTH, ROWS = 1024, 12, 64
CALLS = 160
CHECKED_CALLS, CALLERS = 10_000, 8


def main() -> None:
    """Measure throughput, or memory, or compare answers."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    figures = {"throughput": throughput, "answers": answers}[sys.argv[1]]()
    print(json.dumps(figures))


def throughput() -> dict[str, float]:
    """Return calls in a second of one and two threads, by torch's loader and by runners, and the memory of runners."""
    model, x = _model(WIDTH, DEPTH), torch.randn(ROWS, WIDTH)
    module = trtcache.compile(model, (x,))
    module(x)
    with ThreadPoolExecutor(2, initializer=torch.set_num_threads, initargs=(1,)) as threads:
        list(threads.map(module, [x] * 8))
        loader_s = [timed(lambda: list(threads.map(module, [x] * CALLS)))[1] for _ in range(2)]
    before = _own_bytes()
    with module.runners(1, intra=1) as one, module.runners(2, intra=1) as two:
        list(one.map([x] * 8)), list(two.map([x] * 8))
        added = _own_bytes() - before
        one_s, two_s, used_s = [], [], 0.0
        for _ in range(3):
            one_s.append(timed(lambda: list(one.map([x] * CALLS)))[1])
            used_s -= time.process_time()
            two_s.append(timed(lambda: list(two.map([x] * CALLS)))[1])
            used_s += time.process_time()
    weights = sum(tensor.nbytes for tensor in model.state_dict().values())
    return {
        "one_runner_per_s_count": CALLS / min(one_s),
        "two_runners_per_s_count": CALLS / min(two_s),
        "two_threads_by_the_loader_per_s_count": CALLS / min(loader_s),
        "cores_used_ratio": used_s / sum(two_s),
        "weights_bytes": weights,
        "added_bytes": added,
    }


def answers() -> dict[str, float]:
    """Return how many of many calls from many threads differ from the module's own answers."""
    module = trtcache.compile(_model(64, 2), (torch.randn(4, 64),))
    inputs = [torch.randn(4, 64) for _ in range(CHECKED_CALLS // CALLERS)]
    alone = [module(x) for x in inputs]

    with module.runners(2, intra=1) as runners, ThreadPoolExecutor(CALLERS) as callers:

        def wrong(_: int) -> int:
            futures = [runners.submit(x) for x in inputs]
            return sum(not torch.equal(one.result(), other) for one, other in zip(futures, alone, strict=True))

        return {"calls_count": CHECKED_CALLS, "wrong_count": sum(callers.map(wrong, range(CALLERS)))}


def _model(width: int, depth: int) -> nn.Module:
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(*layers).eval()


def _own_bytes() -> int:
    """Return the memory of this process that is no file's."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:  # noqa: PTH123  # a file of the kernel
        (line,) = (line for line in file if line.startswith("Anonymous:"))
    return int(line.split()[1]) << 10


if __name__ == "__main__":
    main()
