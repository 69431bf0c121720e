"""Stub libraries that let torchvision and torchaudio from PyPI load beside torch for CPU.

Their extensions are linked with ``libc10_cuda.so`` and ``libtorch_cuda.so``, which torch for CPU does not have. The
stubs define the functions that would be missing; none is called for tensors on a CPU. ``libcudart.so.13`` is the copy
that torchvision brings.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

_LIBRARIES = ("libc10_cuda.so", "libtorch_cuda.so")
_EXTENSIONS = ("torchvision/*.so", "torchaudio/lib/*.so")


def build_stubs(libraries: Path) -> Path:
    """Compile the stubs for the extensions in a folder of libraries, and return their folder, beside that one."""
    folder = libraries.parent / "stubs"
    folder.mkdir(exist_ok=True)
    extensions = [file for pattern in _EXTENSIONS for file in sorted(libraries.glob(pattern))]
    needed = set[str]().union(*(_symbols(file, "--undefined-only") for file in extensions))
    torch_files = sorted((Path(torch.__file__).parent / "lib").glob("*.so"))
    known = set[str]().union(*(_symbols(file, "--defined-only") for file in torch_files))
    missing = sorted(name for name in needed - known if "cuda" in name and "@" not in name)
    source = folder / "stubs.c"
    # 8 bytes of zeros serve for the one variable among them, a pointer, as well as for functions.
    source.write_text("".join(f"long {name}(void) {{ return 0; }}\n" for name in missing))
    for name in _LIBRARIES:
        content = source if name == _LIBRARIES[0] else Path("/dev/null")
        command = ["gcc", "-shared", "-fPIC", "-w", "-x", "c", str(content), f"-Wl,-soname,{name}"]
        subprocess.run([*command, "-o", str(folder / name)], check=True)
    runtime = next(iter(libraries.glob("torchvision.libs/libcudart.*.so.*")), None)
    link = folder / "libcudart.so.13"
    if runtime is not None and not link.exists():
        link.symlink_to(runtime.resolve())
    return folder


def _symbols(file: Path, kind: str) -> set[str]:
    listing = subprocess.run(["nm", "-D", kind, str(file)], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1] for line in listing.splitlines() if line}


if __name__ == "__main__":
    build_stubs(Path(sys.argv[1]))
