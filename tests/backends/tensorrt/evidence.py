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
from typing import Any

import trtcache
from tests.backends.tensorrt.zoo import FULL, SMALL, made
from tests.keys.architectures import MODELS, called

DOCUMENT = Path(__file__).parents[3] / "docs" / "evidence" / "tensorrt.md"
TARGETS = ("sm_89", "sm_86", "sm_120", "sm_86,sm_89,sm_120")

_HEAD = """# Plans that were built

Made by `make plans`: {versions}, on {machine}, without a GPU. Plans were built and
stored, and found again by a second process that may not build; **none was run**. One plan holds the whole of
each program: nothing is left in torch. *Refittable* is how many of the engine's weights the parsed network takes as
refittable by name; the rest is named with a reason.

| model | parameters | targets | seconds | plan | refittable | second process |
|---|---|---|---|---|---|---|
"""


def main() -> None:
    """Build everything and write the document; or, with a name, build that model and print its figures."""
    if len(sys.argv) > 1:
        print(json.dumps(_figures(*sys.argv[1:3])))  # noqa: T201  # for the process that asked
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
    first = built[0]
    if "error" in first:
        return f"| {name} | | {targets[0]} | | | {first['error']} | |\n"
    seconds = ", ".join(f"{one['seconds']:.1f}" for one in built)
    sizes = ", ".join(f"{one['plan_bytes'] / 1e6:.1f} MB" for one in built)
    shown = ", ".join(target.replace(",", "+") for target in targets)
    hits = f"{sum(one.get('outcome') == 'hit' for one in again)} of {len(again)} hit"
    frozen = "".join(f"; {reason}" for reason in first["frozen"].values())
    refittable = f"{first['refittable']} of {first['weights']}{frozen}"
    row = [name, f"{first['parameters'] / 1e6:.2f} M", shown, seconds, sizes, refittable, hits]
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


def _figures(name: str, target: str) -> dict[str, Any]:
    model, args = called(name) if name in MODELS else made(name)
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
