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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trtcache.backends.fitness import Check, check_distribution, distribution_version
from trtcache.config import backend_settings
from trtcache.errors import SettingsError, TrtcacheError

if TYPE_CHECKING:
    from trtcache.config.environment import Config
    from trtcache.config.signing_keys import Trust
    from trtcache.store.disk import DiskStore

DISTRIBUTIONS = {
    "torch": ("torch",),
    "torch_tensorrt": ("torch-tensorrt",),
    "triton": ("triton",),
    "onnx": ("onnx",),
    "onnxscript": ("onnxscript",),
}
"""Package -> its possible distribution names."""

_QUERY_TIMEOUT_S = 10.0
_CHILD_TIMEOUT_S = 300.0
_BACKENDS = (sys.executable, "-W", "ignore", "-m", "trtcache_cli.backend_checks")
_FAST_PATHS = (sys.executable, "-W", "ignore", "-m", "trtcache_cli.fast_paths")
_NO_FAST_PATH = "each compile exports and lowers; trtcache.compile works, but no hit is fast"
_TWO_LIBSTDCXX = "two libstdc++ in one process do this; try: export LD_PRELOAD=$(g++ -print-file-name=libstdc++.so.6)"


def check_interpreter() -> Check:
    """Check the running Python."""
    return Check("python", "ok", f"{platform.python_version()} at {sys.executable}")


def check_distributions() -> list[Check]:
    """Check which packages are installed."""
    return [check_distribution(name, candidates) for name, candidates in DISTRIBUTIONS.items()]


def check_gpu() -> Check:
    """Query the NVIDIA driver for a GPU."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return Check("gpu", "missing", "nvidia-smi was not found: there is no NVIDIA driver, or it is not on PATH")
    found = _first_line([tool, "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"])
    return Check("gpu", "ok" if found else "missing", found or "nvidia-smi reports no GPU")


def driver_version() -> str:
    """Return the version of the NVIDIA driver as ``nvidia-smi`` has it, or an empty string."""
    tool = shutil.which("nvidia-smi")
    return _first_line([tool, "--query-gpu=driver_version", "--format=csv,noheader"]) if tool else ""


def _first_line(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_QUERY_TIMEOUT_S, check=False)  # noqa: S603  # a found tool
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.partition("\n")[0].strip() if done.returncode == 0 else ""


def check_backends(
    *, quick: bool, command: Sequence[str] = _BACKENDS, timeout_s: float = _CHILD_TIMEOUT_S
) -> Iterator[Check]:
    """Yield the checks of every registered backend, which run in a child process.

    A backend that crashes it has failed, and the others are checked in another child.

    Args:
        quick: skip slow checks.
        command: the command to run, with the names as further arguments.
        timeout_s: seconds after which a child is killed.
    """
    left = [*backend_settings.backend_table()]
    if distribution_version(DISTRIBUTIONS["torch"]) is None:
        advice = "pip install 'trtcache[torch]'"
        yield from (Check(f"backend {name}", "missing", "torch is not installed", advice) for name in left)
        return
    while left:
        lines, failure = _run_child([*command, *(["--quick"] if quick else []), *left], timeout_s)
        for line in lines:
            if line.startswith('{"check"'):
                yield Check(**json.loads(line)["check"])
            elif line.startswith('{"end"'):
                left.remove(json.loads(line)["end"])
        if left:
            yield Check(f"backend {left.pop(0)}", "bad", *(failure or ("the process that checks it ended early", "")))


def check_use_of_the_cache(config: Config) -> list[Check]:
    """Report a setting that makes compiles build although there is an entry."""
    name, advice = "use of the cache", "unset it; trtcache config shows where it is set"
    if config.disable:
        return [Check(name, "missing", "none: everything is built and nothing stored: TRTCACHE_DISABLE=1", advice)]
    if config.recache:
        return [Check(name, "missing", "no hits: everything is built and replaced: TRTCACHE_RECACHE=1", advice)]
    return []


def check_store(root: Path, *, readonly: bool) -> list[Check]:
    """Check that the cache directory is usable, its permissions and its file system. Creates nothing."""
    try:
        if not root.exists():
            return [_check_can_be_made(root, readonly=readonly)]
        return [_check_opens(root, readonly=readonly), _permissions(root), _filesystem(root)]
    except OSError as error:
        return [_unreadable("cache directory", root, error)]


def _check_can_be_made(root: Path, *, readonly: bool) -> Check:
    name = "cache directory"
    if readonly:
        return Check(name, "missing", f"{root} does not exist, and is not created: TRTCACHE_READONLY=1")
    if root.is_symlink():
        return Check(name, "bad", f"{root} is a link to {root.readlink()}, which does not exist")
    parent = next(parent for parent in root.parents if parent.exists())
    if parent.is_dir() and os.access(parent, os.W_OK | os.X_OK, effective_ids=True):
        return Check(name, "ok", f"{root}, created by the first build")
    why = "this user cannot write to it" if parent.is_dir() else "it is not a directory"
    return Check(name, "bad", f"{root} cannot be created in {parent}: {why}", "set TRTCACHE_DIR to another directory")


def _unreadable(name: str, root: Path, error: OSError) -> Check:
    return Check(name, "bad", f"{root} cannot be read: {error.strerror}")


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
    if found.st_mode & 0o002:
        return Check("permissions", "bad", f"{text}: every user can write to it", f"chmod o-w {root}")
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


def check_layer(root: Path, trust: Trust) -> Check:
    """Check that a lower layer can be read, and that its entries can be trusted."""
    from trtcache.store.disk import DiskStore

    name = "lower layer"
    try:
        if not root.is_dir():
            return Check(name, "missing", f"{root} does not exist", "mount it, or remove it from TRTCACHE_PATH")
        opened = DiskStore.open(root, readonly=True, trust=trust)
    except OSError as error:
        return _unreadable(name, root, error)
    except TrtcacheError as error:
        return Check(name, "bad", str(error))
    signed = _check_signatures(opened, trust)
    if signed is None or signed.status == "ok":
        return Check(name, "ok", str(root))
    return Check(name, signed.status, f"{root}: signatures {signed.found}", signed.advice)


def check_signatures(root: Path, trust: Trust) -> list[Check]:
    """Check the trusted keys of a store that requires signatures, or that should require them."""
    from trtcache.store.disk import DiskStore

    name = "signatures"
    try:
        opened = DiskStore.open(root, readonly=True, trust=trust)
    except SettingsError as error:
        return [Check(name, "bad", str(error))]
    except TrtcacheError:
        return []  # reported for the cache directory
    check = _check_signatures(opened, trust)
    return [] if check is None else [check]


def _check_signatures(opened: DiskStore, trust: Trust) -> Check | None:
    name = "signatures"
    if not opened.admission.required:
        if not opened.shared:
            return None
        advice = "unset TRTCACHE_SIGNATURES, and trust keys: trtcache trust add NAME:HEX"
        return Check(name, "missing", "off: every user who can write there can make you run their code", advice)
    if not trust.keys:
        advice = "trtcache trust add NAME:HEX, or trtcache trust keygen NAME"
        return Check(name, "missing", "required, and no key is trusted: every entry is a miss", advice)
    return Check(name, "ok", f"required, of {', '.join(key.name for key in trust.keys)}")


def check_temporary_directory() -> Check:
    """Check that programs in the temporary directory can run; packages are unpacked and loaded there."""
    name = "temporary directory"
    try:
        directory = Path(tempfile.gettempdir())
        with tempfile.TemporaryDirectory(dir=directory) as inside:
            program = Path(inside) / "try"
            program.write_text("#!/bin/sh\nexit 0\n")
            program.chmod(0o700)
            try:
                subprocess.run([program], check=True, timeout=_QUERY_TIMEOUT_S)  # noqa: S603  # written above
            except (OSError, subprocess.SubprocessError):
                advice = "AOTInductor loads its library from there: set TMPDIR to a directory without noexec"
                return Check(name, "bad", f"{directory} does not let programs run", advice)
    except OSError as error:  # the directory is full, or there is none that can be written to
        return Check(name, "bad", f"no file can be written: {error.strerror}", "free space, or set TMPDIR")
    return Check(name, "ok", f"{directory}, programs run there")


def _run_child(command: Sequence[str], timeout_s: float) -> tuple[list[str], tuple[str, str] | None]:
    """Run a child process, which may crash; return the lines it printed, and if it failed why, with advice.

    It has the ``sys.path`` of this process, so that it finds the same backends.
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(  # noqa: S603  # this Python, this package
            command, capture_output=True, text=True, timeout=timeout_s, check=False, env=env
        )
    except subprocess.TimeoutExpired as error:
        out = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else error.stdout or ""
        return out.splitlines(), (f"not done after {timeout_s:.0f} s", "check the load of the machine and its disk")
    lines = done.stdout.splitlines()
    if done.returncode < 0:
        died, advice = describe_death(done.returncode)
        return lines, (f"the child {died}", advice)
    last = done.stderr.strip().rpartition("\n")[2]
    return lines, ((last or f"exit code {done.returncode}", "") if done.returncode else None)


def check_fast_paths(command: Sequence[str] = _FAST_PATHS, *, direct: str = "off") -> list[Check]:
    """Try in a child process whether an unchanged model is lowered or exported again: key aliases and direct mode.

    Args:
        command: the command to run.
        direct: the configured mode.
    """
    names = {
        "key aliases": "an unchanged program is not lowered again",
        "direct mode": "nor is an unchanged module exported",
    }
    lines, failure = _run_child(command, _CHILD_TIMEOUT_S)
    if failure:
        return [Check(name, "bad", failure[0], failure[1] or _NO_FAST_PATH) for name in names]
    try:
        reasons = {name: str(json.loads(lines[-1])[name]) for name in names}
    except (ValueError, LookupError) as error:
        reasons = dict.fromkeys(names, f"the child did not answer: {error}")
    checks = []
    for name, effect in names.items():
        found = f"{effect}{'' if name != 'direct mode' or direct == 'on' else f' (TRTCACHE_DIRECT={direct})'}"
        why = reasons[name]
        checks.append(Check(name, "bad", why, _NO_FAST_PATH) if why else Check(name, "ok", found))
    return checks


def describe_death(code: int) -> tuple[str, str]:
    """Return ``was killed by SIGSEGV`` or the like for a negative exit code, and advice, which may be empty."""
    died = signal.Signals(-code).name
    return f"was killed by {died}", _TWO_LIBSTDCXX if died in {"SIGSEGV", "SIGABRT"} else ""
