"""``trtcache warm`` of 1,000 cells: a plan, alone and with a remote, and the overhead of a cell that hits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import torch

from benchmarks.remote import s3_server
from benchmarks.report import Promise, median, promised, seconds, span, table
from benchmarks.timing import Samples, child, clean_environment, process_s
from tests.remote.conftest import BUCKET, put_object
from tests.remote.farm.faults import ProxyProcess
from trtcache.digests import CacheKey
from trtcache.store.catalog import rebuild
from trtcache.store.disk import DiskStore

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.effort import Effort
    from benchmarks.report import Figures

PROGRAMS, FILES, TARGETS, ENTRIES = 50, 500, ("x86-64-v2", "x86-64-v3"), 10_000
CELLS = FILES * len(TARGETS)
NAMES = 2500

_ENTRY_POINT = "[trtcache.backends]\ninstant = benchmarks.warm_backend:Instant\n"


def measure(folder: Path, effort: Effort) -> Samples:
    """Return the seconds of plans and of processes, and the requests of a plan."""
    environment = {"TRTCACHE_DIR": str(folder / "cache"), **_install_backend(folder)}
    matrix, distinct = _write_matrices(folder)
    samples: Samples = {"fill_s": [child("benchmarks.warm_process", str(distinct), environment=environment)["took_s"]]}
    _fill(folder / "cache")
    trtcache = [sys.executable, "-W", "ignore", "-m", "trtcache_cli"]
    plan = [*trtcache, "warm", str(matrix), "--plan", "--json"]
    build = [*trtcache, "build", "--backend", "instant", "--target", TARGETS[0], str(folder / "model-0.pt2")]
    commands = {
        "plan_s": plan,
        "torch_s": [sys.executable, "-W", "ignore", "-c", "import torch"],
        "build_s": build,
        "cell_s": [*trtcache, "warm", str(matrix), "--cell", "0"],
    }
    for _ in effort.turns():
        for name, command in commands.items():
            samples.setdefault(name, []).append(process_s(command, environment))
    samples["hits_count"] = [_hits(plan, environment)]
    with s3_server() as port:
        names = sorted((folder / "cache").rglob("*.trtc"))[:NAMES]
        for path in names:
            put_object(port, f"/{BUCKET}/plan/entries/v1/{path.stem[:2]}/{path.name}", b"a name is enough")
        proxy = ProxyProcess(port)
        try:
            url = f"s3://{BUCKET}/plan?endpoint=http://127.0.0.1:{proxy.port}"
            keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "TRTCACHE_REMOTE": url}
            for _ in range(effort.rounds):
                samples.setdefault("remote_s", []).append(process_s(plan, environment | keys))
                samples.setdefault("requests_count", []).append(len(proxy.set("")))
        finally:
            proxy.close()
    return samples | {"names_count": [len(names)]}


def _install_backend(folder: Path) -> dict[str, str]:
    """Install the backend as another distribution would; return the environment with which a process finds it."""
    info = folder / "site" / "instant-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: instant\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(_ENTRY_POINT)
    return {"PYTHONPATH": os.pathsep.join([str(folder / "site"), *filter(None, sys.path)])}


def _write_matrices(folder: Path) -> tuple[Path, Path]:
    """Write a matrix of all files, and one of the distinct programs among them."""
    paths = []
    names = [f"model-{number}.pt2" for number in range(FILES)]
    for number, name in enumerate(names):
        if number < PROGRAMS:
            program = torch.export.export(torch.nn.Linear(4, number + 1), (torch.randn(2, 4),))
            torch.export.save(program, folder / name)
        else:
            shutil.copy(folder / names[number % PROGRAMS], folder / name)
    for chosen in (names, names[:PROGRAMS]):
        paths.append(folder / f"matrix-{len(chosen)}.toml")
        lists = f"file = {json.dumps(chosen)}\ntarget = {json.dumps(TARGETS)}\n"
        paths[-1].write_text(f'[defaults]\nbackend = "instant"\n[[cells]]\n{lists}')
    return paths[0], paths[1]


def _fill(root: Path) -> None:
    """Add other entries, up to 10,000."""
    store = DiskStore.open(root)
    for number in range(ENTRIES - 2 * PROGRAMS * len(TARGETS)):
        key = CacheKey.of("benchmark", {"number": number})
        store.put(key, {"artifact": b"0"}, kind="benchmark", name="other", build_s=1.0, provenance={})
    rebuild(store)


def _hits(plan: list[str], environment: dict[str, str]) -> int:
    done = subprocess.run(plan, env=clean_environment(environment), capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout)["hit"])


def section(figures: Figures) -> str:
    """Return what the page says of it."""
    requests, names = median(figures, "requests_count"), median(figures, "names_count")
    alone_s, remote_s = median(figures, "plan_s"), median(figures, "remote_s")
    overhead_s = median(figures, "cell_s") - median(figures, "torch_s")
    plans = [
        (f"`trtcache warm --plan`, {median(figures, 'hits_count'):.0f} hits", span(figures["plan_s"])),
        (f"with a remote of {names:,.0f} entries: {requests:.0f} requests", span(figures["remote_s"])),
        ("`python -c 'import torch'`", span(figures["torch_s"])),
        ("`trtcache build`, a hit", span(figures["build_s"])),
        ("`trtcache warm --cell 0`, the same hit", span(figures["cell_s"])),
    ]
    promises = (
        Promise("a plan of 1,000 cells", seconds(alone_s), "under 3 s", alone_s < 3),
        Promise("with a remote", seconds(remote_s), "under 3 s", remote_s < 3),
        Promise("requests", f"{requests:.0f}", "one for 1,000 names", requests <= -(-names // 1000)),
        Promise("a cell that hits, beyond torch's import", seconds(overhead_s), "at most 0.6 s", overhead_s <= 0.6),
    )
    text = f"""## `trtcache warm` of {CELLS:,} cells

{FILES} files with {PROGRAMS} distinct programs, for {len(TARGETS)} targets, and a store of {ENTRIES:,} entries. The
engines are those of a backend that builds in milliseconds.
"""
    return "\n".join([text, table(("", "whole process"), plans), promised(*promises)])
