"""torch_tensorrt's ``DiskEngineCache`` and trtcache side by side: ``make bench-torch-tensorrt``, without a GPU.

Both keep the same partition of torch_tensorrt's own lowering with a plan of the same random bytes, because neither can
refit without a GPU: what differs is the cache. Prints a table; nothing of torch_tensorrt's is changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch_tensorrt
from torch_tensorrt.dynamo import _compiler
from torch_tensorrt.dynamo._engine_cache import DiskEngineCache
from torch_tensorrt.dynamo._settings import CompilationSettings

from trtcache.cache import Cache
from trtcache.integrations.torch_tensorrt import EngineCache

if TYPE_CHECKING:
    from collections.abc import Callable

PLAN_BYTES = 100_000_000
ENTRIES, LIMIT_ENTRIES = 6, 3
_CHILD_BYTES = 1_000_000


class Layers(torch.nn.Module):
    """A partition of some size: 24 transformer layers of width 256."""

    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 24, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Encode."""
        out: torch.Tensor = self.encoder(x)
        return out


def partition() -> tuple[Any, Any, Any]:
    """Return a partition as torch_tensorrt hands it to its converter, with inputs and settings."""
    found: list[tuple[Any, Any, Any]] = []

    def convert(module: Any, inputs: Any, settings: Any, **_: Any) -> Any:
        found.append((module, inputs, settings))
        module.set_output_tensors_as_unowned = lambda _: None
        return module

    original, _compiler.convert_module = _compiler.convert_module, convert
    x = torch.randn(1, 16, 256)
    exported = torch.export.export(Layers().eval(), (x,))
    torch_tensorrt.dynamo.compile(exported, arg_inputs=[x], immutable_weights=False)
    _compiler.convert_module = original
    return max(found, key=lambda one: len(one[0].graph.nodes))


def caches(folder: Path, limit_bytes: int) -> dict[str, Callable[[], Any]]:
    """Return how each cache is opened in a folder with a limit."""
    return {
        "DiskEngineCache": lambda: DiskEngineCache(str(folder / "theirs"), limit_bytes),
        "trtcache": lambda: EngineCache(Cache(folder / "ours", max_size=limit_bytes)),
    }


def entry(inputs: Any, settings: Any, plan: bytes) -> tuple[Any, ...]:
    """Return what torch_tensorrt 2.14 inserts."""
    return plan, ["x"], ["output0"], inputs, settings, False, False, {}


def best(action: Callable[[], Any], rounds: int = 5) -> float:
    """Return the least seconds of some calls."""
    least = float("inf")
    for _ in range(rounds):
        began_s = time.perf_counter()
        action()
        least = min(least, time.perf_counter() - began_s)
    return least


def measure(folder: Path) -> dict[str, dict[str, str]]:
    """Return what each cache took, by what was measured."""
    module, inputs, settings = partition()
    plan = os.urandom(PLAN_BYTES // 2) + bytes(PLAN_BYTES // 2)
    table: dict[str, dict[str, str]] = {}
    for name, opened in caches(folder / "one", 10 * PLAN_BYTES).items():
        cache = opened()
        key = cache.get_hash(module, inputs, settings)
        began_s = time.perf_counter()
        cache.insert(key, entry(inputs, settings, plan))
        put_s = time.perf_counter() - began_s
        fresh = opened()
        fresh.get_hash(module, inputs, settings)
        key_s = best(partial(cache.get_hash, module, inputs, settings))
        get_s = best(partial(fresh.check, key))
        table[name] = {
            f"key of {len(module.graph.nodes)} nodes": f"{key_s * 1e3:.0f} ms",
            "put 100 MB": f"{put_s * 1e3:.0f} ms",
            "get 100 MB": f"{get_s * 1e3:.0f} ms",
        }
    sizes = {"DiskEngineCache": "theirs", "trtcache": "ours"}
    for name, below in sizes.items():
        total = sum(path.stat().st_size for path in (folder / "one" / below).rglob("*") if path.is_file())
        table[name]["on disk, half of it zeros"] = f"{total / 1e6:.0f} MB"
    for name in table:
        table[name][f"{ENTRIES} entries by two processes, room for all"] = _crowd(folder / "crowd", name, ENTRIES + 2)
        table[name][f"one more by a third, room for {LIMIT_ENTRIES}"] = _crowd(folder / "limit", name, LIMIT_ENTRIES)
    return table


def _crowd(folder: Path, name: str, room: int) -> str:
    """Fill a cache from two processes at once, then add one entry from a third; return how many there are."""
    shutil.rmtree(folder / name, ignore_errors=True)
    (folder / name).mkdir(parents=True)
    limit = str(room * _CHILD_BYTES + _CHILD_BYTES // 2)
    for numbers in (["0,1,2", "3,4,5"], ["6"]) if room < ENTRIES else (["0,1,2", "3,4,5"],):
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "benchmarks.torch_tensorrt_caches",
            name,
            str(folder / name),
            limit,
        ]
        children = [subprocess.Popen([*command, one], stderr=subprocess.PIPE, text=True) for one in numbers]
        faults = [child.communicate()[1] for child in children]
        if any(child.returncode for child in children):
            return faults[0].splitlines()[-1][:60]
    kept = [path for path in (folder / name).rglob("*") if path.name == "blob.bin" or path.suffix == ".trtc"]
    return f"{len(kept)} there"


def put(name: str, folder: Path, limit_bytes: int, numbers: list[int]) -> None:
    """Put small partitions of different widths into a cache."""
    cache = caches(folder, limit_bytes)[name]()
    for number in numbers:
        exported = torch.export.export(torch.nn.Linear(4, 4 + number), (torch.randn(2, 4),))
        inputs, settings = [torch_tensorrt.Input((2, 4))], CompilationSettings(immutable_weights=False)
        key = cache.get_hash(exported.module(check_guards=False), inputs, settings)
        key = key if name == "trtcache" else f"{key}{number}"  # its key is the same for all of these
        cache.insert(key, entry(inputs, settings, os.urandom(_CHILD_BYTES)))


def main() -> None:
    """Print the table, or be one of the processes that fill a cache."""
    if len(sys.argv) > 1:
        name, folder, limit, numbers = sys.argv[1:]
        put(name, Path(folder), int(limit), [int(one) for one in numbers.split(",")])
        return
    with tempfile.TemporaryDirectory(prefix="trtcache-bench-") as folder:
        table = measure(Path(folder))
    print(f"| torch_tensorrt {torch_tensorrt.__version__} | {' | '.join(table)} |\n|---|{'---|' * len(table)}")
    for row in next(iter(table.values())):
        print(f"| {row} | {' | '.join(columns[row] for columns in table.values())} |")


if __name__ == "__main__":
    main()
