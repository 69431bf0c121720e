"""One process of the refit's benchmark: ``python -m benchmarks.refit_process WAY MODEL FOLDER`` prints its figures."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.memory import watched
from benchmarks.timing import timed

if TYPE_CHECKING:
    import torch

    from trtcache import Cache

Figures = dict[str, float]

_STORED_BYTES = 3_000_000_000
_CHUNK_BYTES = 1 << 24


def _model(name: str, seed: int) -> tuple[torch.nn.Module, torch.Tensor]:
    """Return 420 to 450 MB of weights: as they are, or made by recipes of convolutions and their BatchNorms."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    if name == "linear":
        layers = [nn.Sequential(nn.Linear(2048, 2048, bias=False), nn.ReLU()) for _ in range(25)]
        return nn.Sequential(*layers).eval(), torch.ones(2, 2048)
    blocks = [
        nn.Sequential(nn.Conv2d(1024, 1024, 3, padding=1, bias=False), nn.BatchNorm2d(1024), nn.ReLU())
        for _ in range(12)
    ]
    return nn.Sequential(*blocks).eval(), torch.ones(1, 1024, 2, 2)


def build_process(name: str, folder: Path) -> Figures:
    """Build the engine, and write another model's weights into a file."""
    from safetensors.torch import save_file

    import trtcache

    model, x = _model(name, 0)
    trtcache.compile(model, (x,))
    save_file(_model(name, 1)[0].state_dict(), folder / f"{name}.safetensors")
    return {}


def refit_process(name: str, folder: Path, *, is_file: bool) -> Figures:
    """Refit a compiled model three times, and measure the last: what is set up once is no part of it."""
    import torch

    import trtcache

    with torch.no_grad():
        (model, x), (other, _) = _model(name, 0), _model(name, 1)
        compiled = trtcache.compile(model, (x,))
        weights = folder / f"{name}.safetensors" if is_file else other
        compiled.refit(weights)
        compiled.refit(model)
        with watched() as memory:
            report, refit_s = timed(lambda: compiled.refit(weights))
        if not torch.allclose(compiled(x), other(x), rtol=1e-3, atol=1e-5):
            raise SystemExit("the output is not the other model's")
    sizes = [one.nbytes for one in model.parameters()]
    return {
        "refit_s": refit_s,
        "extra_bytes": memory.extra_bytes,
        "largest_bytes": max(sizes),
        "weights_bytes": sum(sizes),
        "changed_count": len(report.changed),
    }


def put_process(folder: Path) -> Figures:
    """Store a file of random bytes."""
    source = folder / "plan"
    with Path("/dev/urandom").open("rb") as random, source.open("wb") as file:
        for _ in range(0, _STORED_BYTES, _CHUNK_BYTES):
            file.write(random.read(_CHUNK_BYTES))
    cache = _cache()
    with watched() as memory:
        _, seconds_s = timed(lambda: cache.get_or_build({"what": "a plan"}, lambda: source, kind="benchmark"))
    source.unlink()
    return {"extra_bytes": memory.peak_bytes - memory.before_bytes, "seconds_s": seconds_s}


def get_process(folder: Path) -> Figures:
    """Take it out, verified, and write it to a file as ``trtcache build -o`` does."""
    cache = _cache()
    with watched() as memory:
        entry, seconds_s = timed(lambda: cache.get(cache.key({"what": "a plan"}, kind="benchmark")))
        if entry is None:
            raise SystemExit("it is not there")
        (name,) = entry.contents
        entry.write(name, folder / "out")
    size_bytes = (folder / "out").stat().st_size
    (folder / "out").unlink()
    return {
        "extra_bytes": memory.peak_bytes - memory.before_bytes,
        "seconds_s": seconds_s,
        "size_bytes": size_bytes,
    }


def _cache() -> Cache:
    """Return the cache after it was used once: imports and SQLite are no part of what is measured."""
    from trtcache import Cache

    cache = Cache()
    cache.get_or_build({"what": "nothing"}, lambda: b"", kind="benchmark")
    return cache


def main(way: str, model: str, folder: str) -> None:
    """Run one way and print its figures."""
    root = Path(folder)
    if way == "build":
        figures = build_process(model, root)
    elif way in {"put", "get"}:
        figures = put_process(root) if way == "put" else get_process(root)
    else:
        figures = refit_process(model, root, is_file=way == "file")
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
