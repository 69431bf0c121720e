"""Write ``docs/evidence/export.md``: ``python -m tests.bundle.evidence``, or ``make programs``; about 8 minutes."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import trtcache
from tests.backends.tensorrt.zoo import FULL
from tests.bundle import fresh

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.keys.architectures import Call

DOCUMENT = Path(__file__).parents[2] / "docs" / "evidence" / "export.md"

_INTRODUCTION = """\
# Programs in a fresh virtual environment

Written by `make programs` with torch {torch} and `aot_inductor` on a CPU. Each model is compiled, exported with its
engines in the file, and loaded by a new process of a virtual environment that has torch and trtcache and none of
{missing}. Its answers are compared with the compiled module's bit for bit, then it is refitted from a safetensors file
of other weights and compared with the compiled module that was refitted likewise.

"""


MODELS: dict[str, tuple[Callable[[], Call], dict[str, Any]]] = {
    "MiniLM-L6-v2": (FULL["MiniLM-L6-v2"], {}),
    "ResNet-18": (FULL["ResNet-18"], {}),
    "ViT-base": (FULL["ViT-base"], {}),
    "MiniLM-L6-v2, its fourth layer in torch": (
        FULL["MiniLM-L6-v2"],
        {"torch_executed_modules": ["bert.encoder.layer.3"]},
    ),
}


def _other(model: torch.nn.Module) -> torch.nn.Module:
    """Give every weight of a model slightly other values, in place, and return it."""
    with torch.no_grad():
        for tensor in {one.data_ptr(): one for one in model.state_dict().values()}.values():
            if tensor.is_floating_point():
                tensor.mul_(1 + 0.05 * torch.rand_like(tensor))
    return model


def row(name: str, python: Path, folder: Path) -> str:
    """Return the row of a model."""
    sys.stderr.write(f"{name}\n")
    make, settings = MODELS[name]
    torch.manual_seed(0)
    model, args = make()
    model = model.eval()
    module = trtcache.compile(model, args, backend="aot_inductor", settings=settings, cache=folder / "cache")
    start = time.perf_counter()
    written = trtcache.export(module, folder / "program.pt2")
    export_s = time.perf_counter() - start
    expected = module(*args)
    assert all(bool(one.isfinite().all()) for one in torch.utils._pytree.tree_leaves(expected))
    expected = torch.utils._pytree.tree_map(lambda one: one.clone() if isinstance(one, torch.Tensor) else one, expected)
    other = _other(model)
    module.refit(other)
    fresh.write(folder, args, expected, other, module(*args))
    said = fresh.read(python, folder)
    engines, mb = len(module.report.partitions), written.size_bytes / 1e6
    same = "equal" if said["equal"] else "**differs**"
    refitted = "equal" if said["refitted"] else "**differs**"
    return f"| {name} | {engines} | {mb:.0f} MB | {export_s:.1f} s | {said['load_s']:.2f} s | {same} | {refitted} |"


def main() -> None:
    """Measure all models and write the page."""
    with tempfile.TemporaryDirectory(prefix="trtcache-programs-") as place:
        folder = Path(place)
        python = fresh.environment(folder / "environment")
        rows = [row(name, python, folder) for name in MODELS]
    heads = ("model", "engines", "file", "export", "load", "answers", "refitted")
    table = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}", *rows]
    missing = ", ".join(f"`{name}`" for name in fresh.MISSING)
    DOCUMENT.write_text(_INTRODUCTION.format(torch=torch.__version__, missing=missing) + "\n".join(table) + "\n")


if __name__ == "__main__":
    main()
