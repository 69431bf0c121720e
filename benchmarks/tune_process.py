"""One process of ``benchmarks.tune``: prints its figures as JSON."""

from __future__ import annotations

import json
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import torch

import trtcache
from benchmarks.timing import timed
from trtcache.runtime import tuning
from trtcache_cli.demo_embedder import load_embedder, tokenize

if TYPE_CHECKING:
    from trtcache.runtime import CompiledModule

Inputs = tuple[torch.Tensor, ...]

TURNS, CALLS = 6, 30
SENTENCES = ("a sentence of some words that are looked up in a table",) * 8
WAYS = ((1, 1), (2, 1), (1, 2))
"""Intra-op threads and runners."""


def main() -> None:
    """Build, or measure both ways."""
    inputs = tokenize(SENTENCES)
    module = trtcache.compile(load_embedder(), inputs)
    module(*inputs)
    print(json.dumps(measured(module, inputs) if sys.argv[1] == "measure" else {}))


def measured(module: CompiledModule, inputs: Inputs) -> dict[str, float]:
    """Return medians and throughputs of both ways; ``tune`` and the hand take turns with each pair of numbers."""
    cells = {way: tuning.Cell(*way) for way in WAYS}
    by_hand: dict[tuple[int, int], list[tuple[list[float], float]]] = {way: [] for way in WAYS}
    effort = tuning.Effort(calls=CALLS * tuning.ROUNDS).of_a_turn()
    module.runners(2, intra=1).close()
    for turn in range(TURNS):
        for way in WAYS:
            for tuned in (turn % 2 == 0, turn % 2 == 1):  # who is second finds threads that run already
                if tuned:
                    tuning.measure_turn(module, inputs, {}, cells[way], effort)
                else:
                    by_hand[way].append(hand(module, inputs, way))
    figures: dict[str, float] = {}
    for (threads, runners), cell in cells.items():
        latencies_s = [one for found, _ in by_hand[threads, runners] for one in found]
        elapsed_s = sum(took_s for _, took_s in by_hand[threads, runners])
        name = f"threads_{threads}_runners_{runners}"
        figures |= {
            f"{name}.tune_median_s": cell.median_s,
            f"{name}.hand_median_s": statistics.median(latencies_s),
            f"{name}.tune_per_s_count": cell.calls_per_s,
            f"{name}.hand_per_s_count": len(latencies_s) / elapsed_s,
        }
    return figures


def hand(module: CompiledModule, inputs: Inputs, way: tuple[int, int]) -> tuple[list[float], float]:
    """Return seconds of each call, and of all of them."""
    return plain_calls(module, inputs, way[0]) if way[1] == 1 else side_by_side(module, inputs, way)


def plain_calls(module: CompiledModule, inputs: Inputs, threads: int) -> tuple[list[float], float]:
    """Return seconds of calls one after the other, and of all of them."""
    torch.set_num_threads(threads)
    module(*inputs)
    return timed(lambda: [timed(lambda: module(*inputs))[1] for _ in range(CALLS)])


def side_by_side(module: CompiledModule, inputs: Inputs, way: tuple[int, int]) -> tuple[list[float], float]:
    """Return seconds of calls from threads of this script, without runners, and of all of them."""
    threads, callers = way

    def calls(_: int) -> list[float]:
        return [timed(lambda: module(*inputs))[1] for _ in range(CALLS // callers)]

    with ThreadPoolExecutor(callers, initializer=torch.set_num_threads, initargs=(threads,)) as pool:
        list(pool.map(lambda _: module(*inputs), range(callers)))
        found, took_s = timed(lambda: list(pool.map(calls, range(callers))))
    return [one for latencies_s in found for one in latencies_s], took_s


if __name__ == "__main__":
    main()
