"""A process of ``benchmarks.background``: compiles one model in the background, and calls it until its engine is there.

``python -m benchmarks.background_process NAME FOLDER``; the folder has the model's ``weights``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
from torch._subclasses.fake_tensor import FakeTensor

import trtcache
from benchmarks.start_models import SUBJECTS
from trtcache.runtime.verify import compare

_ALONE = 200


def main(name: str, folder: Path) -> None:
    """Print the figures as JSON."""
    model, inputs = SUBJECTS[name].load(folder / "weights"), SUBJECTS[name].inputs()
    with torch.no_grad():
        model(*inputs)
        alone = [_call_s(model, inputs) for _ in range(_ALONE)]
        ended = _times_of_ends(torch.export, "export")
        began_s = time.perf_counter()
        module = trtcache.compile(model, inputs, cache=folder / "cache", on_miss="background")
        returned_s = time.perf_counter()
        export_s = module.report.export_s
        wrong, errors = 0, 0
        eager: list[float] = []
        calls: list[float] = []
        while not module.wait(0) and module.report.route == "exported":
            if "being built" not in module.report.background:
                sys.exit(module.report.background)
            eager.append(_call_s(model, inputs))
            call_s = time.perf_counter()
            try:
                output = module(*inputs)
            except Exception as error:  # noqa: BLE001  # whatever it is, it is counted
                errors += 1
                sys.stderr.write(f"{error!r}\n")
            else:
                calls.append(time.perf_counter() - call_s)
                wrong += isinstance(output, FakeTensor)
        ready_s = time.perf_counter() - began_s
        after = [_call_s(module, inputs) for _ in range(_ALONE)]
        off_by = compare(model, module, inputs, {}, tolerance=None, dtypes=[torch.float32], device=torch.device("cpu"))
    figures = {
        "export_s": export_s,
        "before_export_s": max(0.0, ended[-1] - began_s - export_s),
        "after_export_s": returned_s - ended[-1],
        "ready_s": ready_s,
        "calls_count": float(len(calls)),
        "fake_count": float(wrong),
        "errors_count": float(errors),
        "off_by_count": off_by,
        **_figures("alone", alone),
        **_figures("eager", eager),
        **_figures("call", calls),
        **_figures("after", after),
    }
    print(json.dumps(figures))


def _times_of_ends(module: object, name: str) -> list[float]:
    """Replace a function by one that notes when it returns; return the notes."""
    function = getattr(module, name)
    ended: list[float] = []

    def timed(*args: object, **kwargs: object) -> object:
        try:
            return function(*args, **kwargs)
        finally:
            ended.append(time.perf_counter())

    setattr(module, name, timed)
    return ended


def _call_s(call: object, inputs: tuple[torch.Tensor, ...]) -> float:
    began_s = time.perf_counter()
    call(*inputs)  # type: ignore[operator]  # a module
    return time.perf_counter() - began_s


def _figures(name: str, calls: list[float]) -> dict[str, float]:
    ordered = sorted(calls)
    return {
        f"{name}_median_s": ordered[len(ordered) // 2],
        f"{name}_p99_s": ordered[int(0.99 * (len(ordered) - 1))],
        f"{name}_most_s": ordered[-1],
    }


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
