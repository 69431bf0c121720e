"""One step of the demo in a separate process: ``python -m trtcache_cli.demo_step build|hit|refit DEVICE``.

Uses the cache in ``TRTCACHE_DIR`` and prints a ``StepResult`` as one line of JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

import trtcache.lowering.stages  # noqa: F401  # imported before the clock runs, as torch is
from trtcache import api
from trtcache.errors import TrtcacheError
from trtcache_cli import demo_embedder
from trtcache_cli.demo_result import StepResult

if TYPE_CHECKING:
    from trtcache.runtime import CompiledModule
    from trtcache_cli.demo_embedder import SentenceEmbedder

_LATER_CALLS = 31

Inputs = tuple[torch.Tensor, torch.Tensor]


def compile_step(step: str, device: str) -> StepResult:
    """Compile the embedder: a build in an empty cache, else a hit."""
    model, inputs = _model_and_inputs(device)
    compiled, compile_s = _time_call(lambda: api.compile(model, inputs, name=demo_embedder.NAME, on_miss="build"))
    output, first_s = _time_call(lambda: compiled(*inputs).cpu())
    report = compiled.report
    built = [one for one in report.partitions if one.outcome == "built"]
    later_s, eager_s = (
        (0.0, 0.0) if built else _time_later(lambda: compiled(*inputs).cpu(), lambda: model(*inputs).cpu())
    )
    return StepResult(
        step=step,
        outcome="built" if built else "hit",
        compile_s=compile_s,
        export_s=report.export_s + report.decompose_s,
        build_s=sum(one.build_s for one in built),
        first_s=first_s,
        largest_difference=_difference(output, model(*inputs)),
        change=0.0,
        pairs=demo_embedder.nearest_pairs(output),
        later_s=later_s,
        eager_s=eager_s,
    )


def refit_step(step: str, device: str) -> StepResult:
    """Refit a compiled embedder with another one's weights."""
    model, inputs = _model_and_inputs(device)
    other = demo_embedder.changed_embedder(model)
    compiled: CompiledModule = api.compile(model, inputs, name=demo_embedder.NAME, on_miss="build")
    before = compiled(*inputs)
    _, refit_s = _time_call(lambda: compiled.refit(other))
    output, first_s = _time_call(lambda: compiled(*inputs).cpu())
    return StepResult(
        step=step,
        outcome="refitted",
        compile_s=refit_s,
        export_s=0.0,
        build_s=0.0,
        first_s=first_s,
        largest_difference=_difference(output, other(*inputs)),
        change=_difference(output, before),
        pairs=demo_embedder.nearest_pairs(output),
    )


STEPS: dict[str, Callable[[str, str], StepResult]] = {"build": compile_step, "hit": compile_step, "refit": refit_step}


def _time_call(action: Callable[[], Any]) -> tuple[Any, float]:
    """Call ``action`` and return its result with the elapsed seconds."""
    began_s = time.perf_counter()
    result = action()
    return result, time.perf_counter() - began_s


def _time_later(*actions: Callable[[], Any]) -> tuple[float, ...]:
    """Return the median seconds of each action. They take turns: other work on the machine slows all of them alike."""
    for action in actions:
        action()
    rounds = [[_time_call(action)[1] for action in actions] for _ in range(_LATER_CALLS)]
    return tuple(statistics.median(seconds) for seconds in zip(*rounds, strict=True))


def main(step: str, device: str) -> int:
    """Run a step, print its result, and return an exit code."""
    try:
        with torch.no_grad():
            result = STEPS[step](step, device)
    except TrtcacheError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(json.dumps(asdict(result)) + "\n")
    return 0


def _model_and_inputs(device: str) -> tuple[SentenceEmbedder, Inputs]:
    return demo_embedder.load_embedder(device), demo_embedder.tokenize(device=device)


def _difference(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.cpu() - other.cpu()).abs().max())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
