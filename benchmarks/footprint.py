"""What trtcache costs a program that has nothing to compile yet: its import, and a base install without torch."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.report import Figures, Promise, median, span, table
from benchmarks.timing import Samples, child, gathered

if TYPE_CHECKING:
    from benchmarks.effort import Effort

_IMPORT_ROUNDS = 9
_PYTHON_ITSELF = ("pip", "setuptools", "_distutils_hack", "pkg_resources")


def measure(folder: Path, _effort: Effort) -> Samples:
    """Return the seconds of the imports, each in a new process, and the bytes of the install."""
    imports = gathered(child("benchmarks.footprint") for _ in range(_IMPORT_ROUNDS))
    return imports | {"install_bytes": [float(_install_bytes(folder / "base"))]}


def _install_bytes(environment: Path) -> int:
    """Return what ``pip install`` of the base puts into a new environment, with the .pyc files that it makes."""
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    pip: list[str | Path] = [environment / "bin" / "pip", "install", "-qq", "--disable-pip-version-check"]
    subprocess.run([*pip, _sources(environment / "sources")], check=True)
    (packages,) = (environment / "lib").glob("python*/site-packages")
    counted = [found for found in packages.iterdir() if not found.name.startswith(_PYTHON_ITSELF)]
    files = [file for found in counted for file in ([found] if found.is_file() else found.rglob("*")) if file.is_file()]
    return sum(file.stat().st_size for file in files)


def _sources(folder: Path) -> Path:
    """Copy what is built: setuptools leaves a ``build`` folder beside it."""
    project = Path(__file__).parents[1]
    for name in ("trtcache", "cli", "migrations"):
        shutil.copytree(project / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(project / name, folder / name)
    return folder


if __name__ == "__main__":
    import json
    import time

    began_s = time.perf_counter()
    import trtcache  # noqa: F401  # this is what is measured

    imported_s = time.perf_counter()
    from trtcache import Cache  # noqa: F401  # what a program with its own builder needs

    print(json.dumps({"import_s": imported_s - began_s, "import_cache_s": time.perf_counter() - began_s}))


def section(figures: Figures) -> str:
    """Return what the page says of it."""
    import_s, install_bytes = median(figures, "import_s"), median(figures, "install_bytes")
    rows = [
        Promise("`import trtcache`", span(figures["import_s"]), "under 50 ms", import_s < 0.050).row,
        ("`from trtcache import Cache`", span(figures["import_cache_s"]), "", ""),
        Promise("base install", f"{install_bytes / 1e6:.0f} MB", "under 60 MB", install_bytes < 60e6).row,
    ]
    return "\n".join(["## Footprint without torch\n", table(("what", "found", "promised", "kept"), rows)])
