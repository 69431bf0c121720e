"""Compile every architecture by ``torch.compile``, in one process that builds and one that may not; print a table.

``python -m tests.integrations.dynamo.evidence > docs/evidence/torch_compile.md``, about 10 minutes on 2 cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

import torch

from tests.integrations.dynamo.models import ARCHITECTURES, model_and_calls
from trtcache.integrations import torch_compile

_HEAD = f"""# torch.compile: eleven architectures

`torch.compile(model, backend="trtcache")` on a CPU with torch {torch.__version__}, by AOTInductor. Each model is
called with a batch of 2, its first dimension marked as dynamic, and with a batch of 5. The first process builds; in the
second one builds are forbidden. "Off by" is the largest difference from eager torch over both calls and both processes.
Written by `python -m tests.integrations.dynamo.evidence`.

| model | graphs | built | built for the batch of 5 | hits in the second process | off by |
|---|---|---|---|---|---|
"""


def measured(name: str) -> dict[str, Any]:
    """Compile one architecture and return what happened."""
    model, calls = model_and_calls(name)
    torch._dynamo.reset()
    torch_compile.clear_reports()
    compiled = torch.compile(model, backend="trtcache")
    off, engines = [], []
    with torch.inference_mode():
        for args in calls:
            for one in args:
                torch._dynamo.maybe_mark_dynamic(one, 0)
            off.append((compiled(*args) - model(*args)).abs().max().item())
            engines.append([one.partitions[0].outcome for report in torch_compile.reports() for one in report.engines])
    eager = [why for report in torch_compile.reports() for why in report.eager]
    return {"graphs": len(torch_compile.reports()), "engines": engines, "off": max(off), "eager": eager}


def _answers(names: list[str], **environ: str) -> list[dict[str, Any]]:
    code = [sys.executable, "-W", "ignore", "-m", "tests.integrations.dynamo.evidence", *names]
    done = subprocess.run(code, env={**os.environ, **environ}, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def table(names: list[str]) -> str:
    """Return the rows of the table."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        first = _answers(names, TRTCACHE_DIR=f"{folder}/cache")
        second = _answers(names, TRTCACHE_DIR=f"{folder}/cache", TRTCACHE_FORBID_BUILD="1")
    for name, one, two in zip(names, first, second, strict=True):
        assert not one["eager"], one
        assert not two["eager"], two
        before, after = one["engines"]
        hits, off = two["engines"][1].count("hit"), max(one["off"], two["off"])
        cells = [name, one["graphs"], before.count("built"), after.count("built") - before.count("built"), hits]
        rows.append(f"| {' | '.join(map(str, cells))} | {off:.1e} |\n")
    return "".join(rows)


if __name__ == "__main__":
    if sys.argv[1:]:
        for name in sys.argv[1:]:
            sys.stdout.write(json.dumps(measured(name)) + "\n")
    else:
        sys.stdout.write(_HEAD + table(list(ARCHITECTURES)))
