"""What machine this is, so that figures can be compared."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path


def describe() -> dict[str, str]:
    """Return the processor, its cores, the system, the GPUs, and the versions that matter."""
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "transformers": metadata.version("transformers"),
        "trtcache": metadata.version("trtcache"),
        **_gpus(),
    }


def load() -> str:
    """Return how busy the machine has been for a minute."""
    return f"{os.getloadavg()[0]:.1f}"


def _gpus() -> dict[str, str]:
    """Return the GPUs that NVIDIA's driver knows, if any."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"GPU": f"{len(found)} x {found[0]}"} if found else {}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
