"""Probes of ``trtcache doctor``. They import nothing heavy: torch is only tested in a child process."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from trtcache.errors import SettingsError, TrtcacheError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trtcache.config.signing_keys import Trust

Status: TypeAlias = Literal["ok", "missing", "bad"]

DISTRIBUTIONS = {
    "torch": ("torch",),
    "tensorrt": ("tensorrt", "tensorrt-cu13", "tensorrt-cu12"),
    "tensorrt_rtx": ("tensorrt-rtx", "tensorrt-rtx-cu13", "tensorrt-rtx-cu12"),
    "torch_tensorrt": ("torch-tensorrt",),
    "triton": ("triton",),
    "onnx": ("onnx",),
    "onnxscript": ("onnxscript",),
}
"""Package -> its possible distribution names."""

_ASK_S = 10.0
_TRY_S = 300.0
_NO_FAST_PATH = "each compile exports and lowers; trtcache.compile works, but no hit is fast"
_TWO_LIBSTDCXX = "two libstdc++ in one process do this; try: export LD_PRELOAD=$(g++ -print-file-name=libstdc++.so.6)"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. ``missing`` is informational, ``bad`` has to be fixed and makes ``doctor`` exit with 1."""

    name: str
    status: Status
    found: str
    advice: str = ""


def interpreter() -> Check:
    """Check the running Python."""
    return Check("python", "ok", f"{platform.python_version()} at {sys.executable}")


def distributions() -> list[Check]:
    """Check which packages are installed."""
    return [_distribution(name, candidates) for name, candidates in DISTRIBUTIONS.items()]


def _distribution(name: str, candidates: Sequence[str]) -> Check:
    version = distribution_version(candidates)
    return Check(name, "missing", "not installed") if version is None else Check(name, "ok", version)


def distribution_version(candidates: Sequence[str]) -> str | None:
    """Return the version of the first of these distributions that is installed."""
    for candidate in candidates:
        try:
            return metadata.version(candidate)
        except metadata.PackageNotFoundError:
            continue
    return None


def compiler() -> Check:
    """Find the C++ compiler that AOTInductor would use."""
    named = os.environ.get("CXX")
    for candidate in [named] if named else ["g++", "clang++", "c++"]:
        path = shutil.which(candidate)
        if path is not None:
            return Check("c++ compiler", "ok", f"{_first_line([path, '--version'])} at {path}")
    advice = "install g++: AOTInductor builds need a C++ compiler; hits do not"
    return Check("c++ compiler", "missing", f"{named or 'g++'} not found", advice)


def gpu() -> Check:
    """Query the NVIDIA driver for a GPU."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return Check("gpu", "missing", "no NVIDIA driver found")
    found = _first_line([tool, "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"])
    return Check("gpu", "ok" if found else "missing", found or "nvidia-smi found none")


def _first_line(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_S, check=False)  # noqa: S603  # a found tool
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.partition("\n")[0].strip() if done.returncode == 0 else ""


def backends(*, has_gpu: bool, has_compiler: bool) -> list[Check]:
    """Check what each backend can do on this machine."""
    torch, tensorrt, rtx = (distribution_version(DISTRIBUTIONS[name]) for name in ("torch", "tensorrt", "tensorrt_rtx"))
    return [
        _aot_inductor(has_torch=torch is not None, has_compiler=has_compiler),
        _tensorrt("tensorrt", tensorrt, "build; running and refit are experimental" if has_gpu else ""),
        _tensorrt(
            "tensorrt_rtx",
            rtx,
            "build; running and refit on an RTX GPU are experimental"
            if has_gpu
            else "build for a named compute capability",
        ),
    ]


def _aot_inductor(*, has_torch: bool, has_compiler: bool) -> Check:
    name = "backend aot_inductor"
    if not has_torch:
        return Check(name, "missing", "can do nothing", "pip install 'trtcache[torch]'")
    if not has_compiler:
        return Check(name, "missing", "can load and refit, cannot build", "install a C++ compiler")
    return Check(name, "ok", "can build, load, refit")


def _tensorrt(kind: str, version: str | None, abilities: str) -> Check:
    name = f"backend {kind}"
    if version is None:
        return Check(name, "missing", "can do nothing", f"pip install 'trtcache[{kind.replace('_', '-')}]'")
    if not abilities:
        return Check(name, "missing", "can do nothing", "it needs an NVIDIA GPU")
    return Check(name, "ok", f"can {abilities}")


def store(root: Path, *, readonly: bool) -> list[Check]:
    """Check that the cache directory is usable, its permissions and its file system. Creates nothing."""
    if not root.exists():
        return [Check("cache directory", "ok", f"{root}, created by the first build")]
    return [_check_opens(root, readonly=readonly), _permissions(root), _filesystem(root)]


def _check_opens(root: Path, *, readonly: bool) -> Check:
    from trtcache.store.disk import DiskStore

    name = "cache directory"
    try:
        opened = DiskStore.open(root, readonly=True)
    except TrtcacheError as error:
        return Check(name, "bad", str(error))
    if readonly or not os.access(opened.root, os.W_OK):
        return Check(name, "ok", f"{root}, read-only: hits are served, nothing is stored")
    return Check(name, "ok", str(root))


def _permissions(root: Path) -> Check:
    found = root.stat()
    text = f"mode {stat.S_IMODE(found.st_mode):04o}, owner {found.st_uid}"
    if found.st_mode & stat.S_ISGID and found.st_mode & 0o020:
        return Check("permissions", "ok", f"{text}, group {found.st_gid}: shared; trusted keys: trtcache trust ls")
    if found.st_mode & 0o077:
        return Check(
            "permissions", "missing", f"{text}: not private", f"large engines are copied, not mapped; chmod 700 {root}"
        )
    return Check("permissions", "ok", f"{text}: private")


def _filesystem(root: Path) -> Check:
    from trtcache.store.root import filesystem_type, is_local

    found = filesystem_type(root)
    if not is_local(root):
        advice = f"not a local file system: engines are copied, never mapped; try: trtcache doctor {root}"
        return Check("file system", "missing", found, advice)
    return Check("file system", "ok", found)


def layer(root: Path) -> Check:
    """Check that a lower layer can be read."""
    from trtcache.store.disk import DiskStore

    if not root.is_dir():
        return Check("layer below", "missing", f"{root} does not exist", "mount it, or remove it from TRTCACHE_PATH")
    try:
        DiskStore.open(root, readonly=True)
    except TrtcacheError as error:
        return Check("layer below", "bad", str(error))
    return Check("layer below", "ok", str(root))


def signatures(root: Path, trust: Trust) -> list[Check]:
    """Check the trusted keys of a store that requires signatures, or that should require them."""
    from trtcache.store.disk import DiskStore

    name = "signatures"
    try:
        opened = DiskStore.open(root, readonly=True, trust=trust)
    except SettingsError as error:
        return [Check(name, "bad", str(error))]
    except TrtcacheError:
        return []  # reported for the cache directory
    if not opened.admission.required:
        if not opened.shared:
            return []
        advice = "unset TRTCACHE_SIGNATURES, and trust keys: trtcache trust add NAME:HEX"
        return [Check(name, "missing", "off: every user who can write there can make you run their code", advice)]
    if not trust.keys:
        advice = "trtcache trust add NAME:HEX, or trtcache trust keygen NAME"
        return [Check(name, "missing", "required, and no key is trusted: every entry is a miss", advice)]
    return [Check(name, "ok", f"required, of {', '.join(key.name for key in trust.keys)}")]


def temporary_directory() -> Check:
    """Check that programs in the temporary directory can run; packages are unpacked and loaded there."""
    directory = Path(tempfile.gettempdir())
    with tempfile.TemporaryDirectory(dir=directory) as inside:
        program = Path(inside) / "try"
        program.write_text("#!/bin/sh\nexit 0\n")
        program.chmod(0o700)
        try:
            subprocess.run([program], check=True, timeout=_ASK_S)  # noqa: S603  # written above
        except (OSError, subprocess.SubprocessError):
            advice = "AOTInductor loads its library from there: set TMPDIR to a directory without noexec"
            return Check("temporary directory", "bad", f"{directory} does not let programs run", advice)
    return Check("temporary directory", "ok", f"{directory}, programs run there")


def _run_child(command: Sequence[str], timeout_s: float) -> tuple[str, tuple[str, str] | None]:
    """Run a child process, which may crash; return the last line it printed, and if it failed why, with advice."""
    try:
        done = subprocess.run(  # noqa: S603  # this Python, this package
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return "", (f"not done after {timeout_s:.0f} s", "check the load of the machine and its disk")
    if done.returncode < 0:
        died, advice = death(done.returncode)
        return "", (f"the child {died}", advice)
    last = (done.stderr if done.returncode else done.stdout).strip().rpartition("\n")[2]
    return last, ((last or f"exit code {done.returncode}", "") if done.returncode else None)


def tiny_package(command: Sequence[str] | None = None, *, timeout_s: float = _TRY_S) -> Check:
    """Build and run a tiny AOTInductor package in a child process."""
    last, failure = _run_child(command or [sys.executable, "-m", "trtcache_cli.tiny_package"], timeout_s)
    return Check("tiny package", "bad", *failure) if failure else Check("tiny package", "ok", last or "exit code 0")


def fast_paths(command: Sequence[str] | None = None, *, direct: str = "off", timeout_s: float = _TRY_S) -> list[Check]:
    """Try key aliases and direct mode in a child process: a compile of an unchanged model skips lowering by them.

    Args:
        command: the command to run instead, for tests.
        direct: the configured mode.
        timeout_s: seconds after which the child is killed.
    """
    names = {
        "key aliases": "an unchanged program is not lowered again",
        "direct mode": "nor is an unchanged module exported",
    }
    default = [sys.executable, "-W", "ignore", "-m", "trtcache_cli.fast_paths"]
    last, failure = _run_child(command or default, timeout_s)
    if failure:
        return [Check(name, "bad", failure[0], failure[1] or _NO_FAST_PATH) for name in names]
    try:
        reasons = {name: str(json.loads(last)[name]) for name in names}
    except (ValueError, LookupError) as error:
        reasons = dict.fromkeys(names, f"the child did not answer: {error}")
    checks = []
    for name, effect in names.items():
        found = f"{effect}{'' if name != 'direct mode' or direct == 'on' else f' (TRTCACHE_DIRECT={direct})'}"
        why = reasons[name]
        checks.append(Check(name, "bad", why, _NO_FAST_PATH) if why else Check(name, "ok", found))
    return checks


def death(code: int) -> tuple[str, str]:
    """Return the signal that killed a process with this negative exit code, and advice."""
    died = signal.Signals(-code).name
    return f"was killed by {died}", _TWO_LIBSTDCXX if died in {"SIGSEGV", "SIGABRT"} else ""
