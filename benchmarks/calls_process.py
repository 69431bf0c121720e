"""A process of ``benchmarks.calls``: calls one model in several ways that take turns.

``python -m benchmarks.calls_process NAME FOLDER DEVICE``; the folder has the model's ``weights``.
"""

from __future__ import annotations

import copy
import json
import statistics
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import trtcache
from benchmarks.start_models import SUBJECTS, Inputs, images
from benchmarks.timing import timed
from trtcache.runtime.verify import compare

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[..., torch.Tensor]

_BATCHES, _CALLS = 10, 20
"""A figure has a value for each batch of calls: the median of its calls."""

_WARM_UP = 5
_SETTINGS: dict[str, dict[str, Any]] = {
    "refittable": {},
    "packed": {"weights": "packed"},
    "frozen": {"weights": "frozen"},
    "autotuned": {"weights": "frozen", "inductor": {"max_autotune": True}},
    "bfloat16": {"autocast": "bf16"},
}
_ON_CPU = {"packed", "frozen", "autotuned"}

MODELS = {**SUBJECTS, "resnet8": replace(SUBJECTS["resnet"], inputs=partial(images, 8))}


def main(name: str, folder: Path, device: torch.device) -> None:
    """Print the figures as JSON."""
    model = MODELS[name].load(folder / "weights").to(device)
    inputs = tuple(tensor.to(device) for tensor in MODELS[name].inputs())
    figures: dict[str, float | list[float]] = {}
    with torch.no_grad():
        ways: dict[str, tuple[Call, Inputs]] = {"eager": (model, inputs)}
        ways["torch_compile"] = torch.compile(model), inputs
        for way, settings in _SETTINGS.items():
            if device.type == "cuda" and way in _ON_CPU:
                continue
            module = trtcache.compile(model, inputs, cache=folder / "cache", settings=settings)
            tolerance = 0.05 if way == "bfloat16" else None
            off_by = compare(model, module, inputs, {}, tolerance=tolerance, dtypes=[torch.float32], device=device)
            figures[f"{way}.off_by_count"] = off_by
            ways[way] = module, inputs
        if inputs[0].dim() == 4:
            ways["channels_last"] = _channels_last(model, inputs, folder)
        for _ in range(_WARM_UP):
            for call, given in ways.values():
                call(*given)
        figures |= {f"{way}.call_s": medians_s for way, medians_s in _measure(ways, device).items()}
        for way in ways.keys() & {"refittable", "packed"}:
            figures[f"{way}.refit_differs_count"] = _refit_differences(ways[way][0], model, inputs)
    print(json.dumps(figures))


def _channels_last(model: torch.nn.Module, inputs: Inputs, folder: Path) -> tuple[Call, Inputs]:
    """Compile a copy of the model whose weights are stored with the channels last, for such inputs."""
    other: Any = copy.deepcopy(model)
    given = tuple(tensor.contiguous(memory_format=torch.channels_last) for tensor in inputs)
    return trtcache.compile(other.to(memory_format=torch.channels_last), given, cache=folder / "cache"), given


def _measure(ways: dict[str, tuple[Call, Inputs]], device: torch.device) -> dict[str, list[float]]:
    """Return the median seconds of each batch of calls of each way; the order of the ways turns with each call."""
    found: dict[str, list[float]] = {way: [] for way in ways}
    names = list(ways)
    for _ in range(_BATCHES):
        calls: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(_CALLS):
            first = turn % len(names)
            for way in (*names[first:], *names[:first]):
                calls[way].append(timed(partial(_run, *ways[way], device))[1])
        for way, times in calls.items():
            found[way].append(statistics.median(times))
    return found


def _run(call: Call, inputs: Inputs, device: torch.device) -> None:
    call(*inputs)
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _refit_differences(module: Any, model: torch.nn.Module, inputs: Inputs) -> float:
    """Return how many elements of the output differ after a refit with other weights, and another with the first."""
    state = model.state_dict()
    before = module(*inputs).clone()
    module.refit({name: tensor * 1.5 if tensor.is_floating_point() else tensor for name, tensor in state.items()})
    between = module(*inputs).clone()
    module.refit(state)
    after = module(*inputs)
    if torch.equal(before, between):
        sys.exit("other weights gave the same output")
    return float((before != after).sum())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), torch.device(sys.argv[3]))
