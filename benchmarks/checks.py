"""What the checks of a call cost, and what a call of a tiny model costs as a module and as less than one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

import trtcache
from benchmarks.report import Promise, median, promised, seconds, span, table
from benchmarks.timing import Samples, per_call_s
from trtcache.backends.protocol import ENGINE
from trtcache.runtime.inputs import InputCheck

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.effort import Effort
    from benchmarks.report import Figures

INPUTS = 8
_BATCHES, _CALLS = 15, 2000


class Sum(torch.nn.Module):
    """Takes many tensors and adds them."""

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Return the sum."""
        return torch.stack(tensors).sum(0)


class Twice(torch.nn.Module):
    """Takes almost no time."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the double."""
        return 2 * x


class Guarded(Sum):
    """Branches on sizes, so that its program has four guards."""

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Return the sum, or its double."""
        first, last = tensors[0].shape, tensors[-1].shape
        if first[0] * first[1] > 4096 or first[1] % 4 or first[0] == last[1] or first[0] + last[1] > 60:
            return 2 * super().forward(*tensors)
        return super().forward(*tensors)


def measure(folder: Path, _effort: Effort) -> Samples:
    """Return the seconds of one check, and of one call."""
    tensors = [torch.ones(4, 16) for _ in range(INPUTS)]
    batch = torch.export.Dim("batch", max=64)
    fixed, dynamic = _check(Sum(), tensors, None), _check(Sum(), tensors, (tuple({0: batch} for _ in tensors),))
    varying = tuple({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO} for _ in tensors)
    guarded = _check(Guarded(), tensors, (varying,))
    wide = [torch.ones(4, 32)[:, ::2] for _ in tensors]
    return {
        "fixed_s": per_call_s(lambda: fixed(tensors), calls=2000),
        "dynamic_s": per_call_s(lambda: dynamic(tensors), calls=500),
        "guarded_s": per_call_s(lambda: guarded(tensors), calls=500),
        "copied_s": per_call_s(lambda: fixed(wide), calls=500),
        **_calls(folder),
    }


def _calls(folder: Path) -> Samples:
    """Return the seconds of a call of a tiny model, in batches that take turns in this process."""
    model, x = Twice(), torch.ones(4, 16)
    cache = trtcache.Cache(folder / "cache")
    module = trtcache.compile(model, x, cache=cache)
    (key,) = [part.key for part in module.report.partitions]
    entry = cache.get(key) if key else None
    if entry is None:
        raise SystemExit("the cache has no entry for the model")
    entry.write(ENGINE, folder / "engine.pt2")
    loader = torch._C._aoti.AOTIModelPackageLoader(str(folder / "engine.pt2"), "model", False, 1, -1)
    path = module._module_call  # what ``CompiledModule.__call__`` calls
    ways: dict[str, Callable[[], object]] = {
        "module_s": lambda: module(x),
        "path_s": lambda: path((x,), {}),
        "loader_s": lambda: loader.run([x]),
        "eager_s": lambda: model(x),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_BATCHES):
        for name, way in ways.items():
            found[name] += per_call_s(way, calls=_CALLS, batches=1)
    pairs = zip(found["module_s"], found["path_s"], strict=True)
    return {**found, "module_ratio": [one / other for one, other in pairs]}


_CALLS_TEXT = """\
A compiled module is a `torch.nn.Module`. This is what that costs in each call: medians of 15 batches of 2,000 calls, in
one process, where the ways take turns.
"""


def _check(model: torch.nn.Module, tensors: list[torch.Tensor], dynamic_shapes: object) -> InputCheck:
    program = trtcache.lower(model, tuple(tensors), dynamic_shapes=dynamic_shapes)
    return InputCheck(program.interface, program.device, str)


def section(figures: Figures) -> str:
    """Return what the page says of it."""
    fixed_s, guarded_s = median(figures, "fixed_s"), median(figures, "guarded_s")
    rows = [
        ("fixed sizes", span(figures["fixed_s"])),
        ("a dynamic size", span(figures["dynamic_s"])),
        ("two dynamic sizes, four guards", span(figures["guarded_s"])),
        ("fixed sizes in another layout, all copied", span(figures["copied_s"])),
    ]
    ratio = median(figures, "module_ratio")
    promises = (
        Promise("checks of a call with 8 inputs", seconds(fixed_s), "at most 20 us", fixed_s <= 20e-6),
        Promise("with dynamic sizes and four guards", seconds(guarded_s), "at most 20 us", guarded_s <= 20e-6),
        Promise("a call of the module, of one without it", f"{ratio:.2f}x", "at most 1.1x", ratio <= 1.1),
    )
    calls = [
        ("the compiled module", span(figures["module_s"])),
        ("without `torch.nn.Module`", span(figures["path_s"])),
        ("torch's package loader, without checks", span(figures["loader_s"])),
        ("the model in eager torch", span(figures["eager_s"])),
    ]
    return "\n".join(
        [
            "## The checks of a call\n",
            table(("8 tensors", "time of a call"), rows),
            _CALLS_TEXT,
            table(("a model that doubles 64 numbers", "time of a call"), calls),
            promised(*promises),
        ]
    )
