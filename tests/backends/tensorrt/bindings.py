"""Which names the Python bindings of each TensorRT have, as data: ``bindings.json``.

The wheels of the bindings hold one extension module that needs TensorRT's own libraries, gigabytes of them. Only their
names are wanted: so the libraries are stood in for by empty ones, and the module is imported and asked.

    pip download --no-deps tensorrt_cu12_bindings==10.15.1.29   # and so on
    python -m tests.backends.tensorrt.bindings WHEEL...          # writes bindings.json
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

DATA = Path(__file__).with_suffix(".json")

_ASK = """
import importlib, json, os, sys
sys.setdlopenflags(os.RTLD_LAZY)
sys.path.insert(0, sys.argv[1])
module = importlib.import_module(sys.argv[2])
found = {"": [name for name in dir(module) if not name.startswith("_")]}
for name in found[""]:
    one = getattr(module, name)
    if isinstance(one, type):
        found[name] = [attribute for attribute in dir(one) if not attribute.startswith("_")]
print(json.dumps(found))
"""


def names_of(wheel: Path, folder: Path) -> dict[str, list[str]]:
    """Return the names of a wheel's module, those of its classes by the class's name, and its own by the empty one."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    (library,) = folder.glob("tensorrt*_bindings/tensorrt*.so")
    _stand_in(library, folder)
    done = subprocess.run(
        [sys.executable, "-c", _ASK, str(library.parent), library.stem],
        env={"LD_LIBRARY_PATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def _stand_in(library: Path, folder: Path) -> None:
    """Make a library of each name that the module asks for and nobody has; their functions all return nothing."""
    wanted = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    libraries = [name for name in re.findall(r"\[(lib[^\]]+)\]", wanted) if re.match("libnv|libtensorrt", name)]
    listed = subprocess.run(
        ["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True
    ).stdout
    symbols = [line.split()[-1] for line in listed.splitlines()]
    ours = [one for one in symbols if "@" not in one and re.match(r"(_ZN?K?\d*\w*nv|create|get|init)", one)]
    source = folder / "stand_in.c"
    source.write_text("".join(f"void *{name}(void) {{ return 0; }}\n" for name in ours))
    for name in libraries:
        command = ["cc", "-w", "-shared", "-fPIC", "-o", folder / name, source, f"-Wl,-soname,{name}"]
        subprocess.run(command, check=True)


def compared(found: dict[str, dict[str, list[str]]]) -> dict[str, Any]:
    """Return the names that all versions have, by class, and each of the others with the versions that have it."""
    everywhere: dict[str, list[str]] = {}
    some: dict[str, list[str]] = {}
    for owner in sorted({one for names in found.values() for one in names if not _is_left_out(one)}):
        for name in sorted({one for names in found.values() for one in names.get(owner, ())}):
            having = [version for version, names in found.items() if name in names.get(owner, ())]
            if len(having) == len(found):
                everywhere.setdefault(owner, []).append(name)
            else:
                some[f"{owner}.{name}".lstrip(".")] = having
    return {"versions": list(found), "everywhere": everywhere, "some": some}


def _is_left_out(owner: str) -> bool:
    """Say whether a class is for writing networks and plugins by hand, which this package does not."""
    return owner.endswith("Layer") or "Plugin" in owner or "plugin" in owner


def main() -> None:
    """Write the names of the wheels that are given."""
    found = {}
    for wheel in map(Path, sys.argv[1:]):
        distribution, version = wheel.name.split("-")[:2]
        flavour = "tensorrt_rtx" if "rtx" in distribution else "tensorrt"
        with tempfile.TemporaryDirectory() as folder:
            found[f"{flavour} {version}"] = names_of(wheel, Path(folder))
    DATA.write_text(json.dumps(compared(found), separators=(",", ":"), indent=None) + "\n")


if __name__ == "__main__":
    main()
