"""Build a shared library with nvcc, or g++ where there is none, once for all processes that share the cache."""

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

import trtcache

SOURCE = Path(__file__).with_name("scale.cpp")
NVCC = ["nvcc", "-x", "cu", "-O3", "-shared", "-Xcompiler", "-fPIC"]
GCC = ["g++", "-O3", "-shared", "-fPIC"]


def library() -> trtcache.Entry:
    command = NVCC if shutil.which("nvcc") else GCC
    version = subprocess.run([command[0], "--version"], check=True, capture_output=True, text=True).stdout
    # Everything that the result depends on. A header that the source includes would have to be here as well.
    parts = {"source": trtcache.digest(SOURCE), "command": command, "compiler": version}

    def build() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder, "scale.so")
            subprocess.run([*command, str(SOURCE), "-o", str(output)], check=True)
            return output.read_bytes()

    return trtcache.Cache().get_or_build(parts, build, kind="shared_library", name="scale")


if __name__ == "__main__":
    entry = library()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "scale.so")
        entry.write("artifact", path)
        scale = ctypes.CDLL(str(path)).scale
        scale.restype, scale.argtypes = ctypes.c_float, [ctypes.c_float]
        print(entry.outcome, scale(3.0))
