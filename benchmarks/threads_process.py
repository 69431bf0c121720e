"""One process of ``benchmarks.threads``: prints its figures as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

import trtcache
from benchmarks.timing import timed

WIDTH, DEPTH, ROWS = 1024, 12, 64
CALLS, TURNS = 160, 3
CHECKED_CALLS, CALLERS = 10_000, 8


def main() -> None:
    """Measure throughput, or memory, or compare answers, or call when told to."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if sys.argv[1] == "when_told":
        when_told()
    else:
        ways = {"build": build, "throughput": throughput, "memory": memory, "answers": answers}
        print(json.dumps(ways[sys.argv[1]]()))


def build() -> dict[str, float]:
    """Build the module whose throughput is measured by other processes."""
    trtcache.compile(_model(WIDTH, DEPTH), (torch.randn(ROWS, WIDTH),))
    return {}


def throughput() -> dict[str, float]:
    """Return calls in a second of one and two threads, by torch's loader and by runners, and of two processes."""
    x = torch.randn(ROWS, WIDTH)
    module = trtcache.compile(_model(WIDTH, DEPTH), (x,))
    module(x)
    with ThreadPoolExecutor(2, initializer=torch.set_num_threads, initargs=(1,)) as threads:
        list(threads.map(module, [x] * 8))
        loader_s = [timed(lambda: list(threads.map(module, [x] * CALLS)))[1] for _ in range(2)]
    with module.runners(1, intra=1) as one, module.runners(2, intra=1) as two, Others() as others:
        list(one.map([x] * 8)), list(two.map([x] * 8))
        one_s, two_s, others_s, used_s = [], [], [], 0.0
        for _ in range(TURNS):
            one_s.append(timed(lambda: list(one.map([x] * CALLS)))[1])
            used_s -= time.process_time()
            two_s.append(timed(lambda: list(two.map([x] * CALLS)))[1])
            used_s += time.process_time()
            others_s.append(others.call())
    return {
        "one_runner_per_s_count": CALLS / min(one_s),
        "two_runners_per_s_count": CALLS / min(two_s),
        "two_threads_by_the_loader_per_s_count": CALLS / min(loader_s),
        "two_processes_per_s_count": CALLS / min(others_s),
        "cores_used_ratio": used_s / sum(two_s),
    }


def memory() -> dict[str, float]:
    """Return what two runners add to the memory of a process: buffers of MKL's, as large as a layer, and no weights."""
    model, x = _model(2 * WIDTH, DEPTH), torch.randn(ROWS, 2 * WIDTH)
    module = trtcache.compile(model, (x,))
    module(x)
    before = _own_bytes()
    with module.runners(2, intra=1) as two:
        list(two.map([x] * 8))
        added = _own_bytes() - before
    return {"weights_bytes": sum(one.nbytes for one in model.state_dict().values()), "added_bytes": added}


class Others:
    """Two processes that make half of the calls each, at once: what the machine gives two threads at the most."""

    def __enter__(self) -> Others:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.threads_process", "when_told"]
        pipe = subprocess.PIPE
        self._processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
        self.call()
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._processes:
            one.communicate()

    def call(self) -> float:
        """Return the seconds until both have made their calls."""
        began_s = time.perf_counter()
        for one in self._processes:
            print(CALLS // 2, file=one.stdin, flush=True)
        for one in self._processes:
            assert one.stdout is not None  # it is a pipe
            one.stdout.readline()
        return time.perf_counter() - began_s


def when_told() -> None:
    """Make as many calls as each line says, and answer with a line."""
    x = torch.randn(ROWS, WIDTH)
    module = trtcache.compile(_model(WIDTH, DEPTH), (x,))
    for line in sys.stdin:
        for _ in range(int(line)):
            module(x)
        print(line, end="", flush=True)


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
