"""What the subjects share: clocks, child processes, and samples with their medians.

Samples are named lists of floats. A name ends in its unit: ``_s``, ``_bytes``, or ``_count``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

T = TypeVar("T")
Samples = dict[str, list[float]]


def timed(action: Callable[[], T]) -> tuple[T, float]:
    """Return what an action returns, and its seconds."""
    began_s = time.perf_counter()
    result = action()
    return result, time.perf_counter() - began_s


def import_compile() -> None:
    """Import what the first call of ``trtcache.compile`` would import: as there, with the garbage collector paused."""
    from trtcache.config import paused_collector

    with paused_collector():
        import_module("trtcache.api")


def per_call_s(action: Callable[[], object], *, calls: int, batches: int = 15) -> list[float]:
    """Return the seconds of one call, once for each batch of calls."""
    action()
    samples = []
    for _ in range(batches):
        began_s = time.perf_counter()
        for _ in range(calls):
            action()
        samples.append((time.perf_counter() - began_s) / calls)
    return samples


def child(module: str, *args: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a module in a new process and return the JSON object on its last line.

    Raises:
        CalledProcessError: it failed; what it wrote to standard error has been shown.
    """
    command = [sys.executable, "-W", "ignore", "-m", module, *args]
    done = subprocess.run(command, env=clean_environment(environment), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        done.check_returncode()
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def process_s(command: Sequence[str], environment: Mapping[str, str] | None = None) -> float:
    """Return the seconds of a whole process, its output thrown away.

    Raises:
        CalledProcessError: it failed.
    """
    nowhere, whole = subprocess.DEVNULL, clean_environment(environment)
    return timed(lambda: subprocess.run(command, env=whole, stdout=nowhere, stderr=nowhere, check=True))[1]


def clean_environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this environment without the caller's cache settings, with some changes.

    Threads wait passively: those that spin lose whole time slices to whatever else runs, and a call of 20 ms took up to
    2 s on 2 cores that others used. Bytecode is cached, as on a user's machine: without it each process compiles our
    modules again, 0.3 s for a hit.
    """
    own = ("TRTCACHE_", "TORCHINDUCTOR_", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    return {"OMP_WAIT_POLICY": "passive"} | kept | dict(changes or {})


def gathered(figures: Iterable[Mapping[str, float | list[float]]]) -> Samples:
    """Return the samples of figures that several processes reported, one or several of each."""
    samples: Samples = {}
    for one in figures:
        for name, value in one.items():
            samples.setdefault(name, []).extend(value if isinstance(value, list) else [value])
    return samples


def summarised(samples: Samples) -> dict[str, dict[str, object]]:
    """Return each sample's median, least, most and values."""
    return {
        name: {"median": statistics.median(values), "least": min(values), "most": max(values), "values": values}
        for name, values in samples.items()
    }
