"""Builds plans of many models, and writes what came out: ``make plans``.

Models of full size are built for three capabilities, each alone and all in one plan; the small ones for one. A second
process then asks for each, with building forbidden. The document is ``docs/evidence/tensorrt.md``.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trtcache
from tests.backends.tensorrt.plans import RTX, constants_of, lowered, network_of
from tests.backends.tensorrt.zoo import FULL, SMALL, made
from tests.keys.architectures import MODELS, called
from tests.models import retrained
from trtcache.backends.onnx_export import to_onnx
from trtcache.digests import hash_bytes
from trtcache.weights.slots import fit

if TYPE_CHECKING:
    import torch

DOCUMENT = Path(__file__).parents[3] / "docs" / "evidence" / "tensorrt.md"
_CONSTANTS = "constants"
TARGETS = ("sm_89", "sm_86", "sm_120", "sm_86,sm_89,sm_120")

_HEAD = """# Plans that were built

Made by `make plans`: {versions}, on {machine}, without a GPU. Plans were built and
stored, and found again by a second process that may not build; **none was run**. One plan holds the whole of
each program: nothing is left in torch. *Refittable* is how many of the engine's weights the parsed network takes as
refittable by name; the rest is named with a reason. *Constants* is how many of the weights that the recipes give for
two sets of the model's weights are in the networks made of them, byte for byte.

| model | parameters | targets | seconds | plan | refittable | constants | second process |
|---|---|---|---|---|---|---|---|
"""


def main() -> None:
    """Build everything and write the document; or, with a name, build that model and print its figures."""
    if len(sys.argv) > 1:
        name, target = sys.argv[1:3]
        figures = _constants(name) if target == _CONSTANTS else _figures(name, target)
        print(json.dumps(figures))  # noqa: T201  # for the process that asked
        return
    rows = [_row(name, TARGETS) for name in FULL] + [_row(name, TARGETS[:1]) for name in (*SMALL, *MODELS)]
    names = ("tensorrt-rtx", "torch", "onnx", "onnxscript", "transformers")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    DOCUMENT.write_text(_HEAD.format(versions=versions, machine=machine) + "".join(rows))


def _row(name: str, targets: tuple[str, ...]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        built = [_child(name, target, folder) for target in targets]
        again = [_child(name, target, folder, TRTCACHE_FORBID_BUILD="1") for target in targets]
        same = _child(name, _CONSTANTS, folder)
    first = built[0]
    if error := first.get("error", same.get("error")):
        return f"| {name} | | {targets[0]} | | | {error} | | |\n"
    seconds = ", ".join(f"{one['seconds']:.1f}" for one in built)
    sizes = ", ".join(f"{one['plan_bytes'] / 1e6:.1f} MB" for one in built)
    shown = ", ".join(target.replace(",", "+") for target in targets)
    hits = f"{sum(one.get('outcome') == 'hit' for one in again)} of {len(again)} hit"
    frozen = "".join(f"; {reason}" for reason in first["frozen"].values())
    refittable = f"{first['refittable']} of {first['weights']}{frozen}"
    row = [name, f"{first['parameters'] / 1e6:.2f} M", shown, seconds, sizes, refittable, same["constants"], hits]
    sys.stderr.write(f"{row}\n")
    return f"| {' | '.join(row)} |\n"


def _child(name: str, target: str, folder: str, **environ: str) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.backends.tensorrt.evidence", name, target]
    variables = {**os.environ, "TRTCACHE_DIR": f"{folder}/cache", **environ}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1]}
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _made(name: str) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    return called(name) if name in MODELS else made(name)


def _constants(name: str) -> dict[str, Any]:
    """Return how many of the weights that recipes give are in the network, for the model's weights and for others."""
    model, args = _made(name)
    counts = []
    for one in (model, retrained(model)):
        program = lowered(one, args)
        weights = fit(program.interface.weights, program.state, known=frozenset(program.state), device=program.device)
        inside = {hash_bytes(content) for content in constants_of(network_of(to_onnx(program, RTX, weights=weights)))}
        found = sum(hash_bytes(weight.contiguous().numpy().tobytes()) in inside for weight in weights.values())
        counts.append(f"{found} of {len(weights)}")
    return {"constants": ", ".join(counts)}


def _figures(name: str, target: str) -> dict[str, Any]:
    model, args = _made(name)
    start = time.perf_counter()
    module = trtcache.compile(model, args, backend="tensorrt_rtx", target=target)
    seconds = time.perf_counter() - start
    (partition,) = module.report.partitions
    assert partition.key is not None
    entry = trtcache.Cache().get(partition.key)
    assert entry is not None
    facts = json.loads(bytes(entry.read("plan.json")))
    return {
        "outcome": partition.outcome,
        "seconds": seconds,
        "plan_bytes": len(entry.read("engine")),
        "parameters": sum(one.numel() for one in model.parameters()),
        "refittable": len(facts["weights"]["refittable"]),
        "weights": partition.weights,
        "frozen": facts["weights"]["frozen"],
    }


if __name__ == "__main__":
    main()
