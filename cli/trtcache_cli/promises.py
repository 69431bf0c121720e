"""``trtcache doctor PATH``: test a directory's file system, and report what a store there can guarantee."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from trtcache.backends.diagnosis import Check
from trtcache.config.units import format_size
from trtcache.errors import NotAStoreError
from trtcache.store.files import TEMPORARY
from trtcache.store.root import filesystem_type, is_immutable, is_local
from trtcache_cli.measurements import Measured, measure
from trtcache_cli.peer import LONGEST_S

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_DELAY_S = 1.0
_MAX_CLOCK_OFFSET_S = 2.0
_LOCAL_STORE = "layer a store on a local disk over it: TRTCACHE_PATH=LOCAL:{path}"


def examine_directory(path: Path) -> Iterator[Check]:
    """Yield the checks of a directory, and last the guarantees of a store there. All files created in it are removed.

    Raises:
        NotAStoreError: the directory does not exist, or cannot be read.
    """
    try:
        real = path.resolve(strict=True)
        local, kind = is_local(real), filesystem_type(real)
        yield Check("file system", "ok", f"{kind}, {_where(real)}")
        yield _space(real)
        if not os.access(real, os.W_OK | os.X_OK, effective_ids=True):
            yield Check("writing", "missing", "not by this user: hits are served, nothing is stored")
            return
        seen = _measure(real)
        if isinstance(seen, OSError):
            advice = "free space or correct the error, and try again"
            yield Check("measuring", "bad", f"failed: {seen.strerror}", advice)
            return
    except OSError as error:
        raise NotAStoreError(str(path), f"it cannot be measured: {error.strerror}") from error
    yield from findings(seen)
    yield from promises(seen, local=local, path=real)


def _measure(directory: Path) -> Measured | OSError:
    """Return the measurements, or the OSError that stopped them."""
    try:
        scratch = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=directory))
        try:
            return measure(scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        return error


def _where(path: Path) -> str:
    if is_immutable(path):
        return "a read-only file system"
    return "local" if is_local(path) else "not known to be local"


def _space(path: Path) -> Check:
    found = os.statvfs(path)
    free_bytes = found.f_bavail * found.f_frsize
    files = f", {found.f_favail:,} more files" if found.f_files else ""
    text = f"{format_size(free_bytes)} free{files}"
    if free_bytes == 0 or (found.f_files and found.f_favail == 0):
        return Check("space", "bad", text, "it is full: builds are used but not stored; try trtcache prune")
    return Check("space", "ok", text)


def findings(seen: Measured) -> list[Check]:
    """Return a check for each measurement."""
    tries = seen.refusal or f"{seen.excluded} of {seen.rounds} attempts excluded"
    reads = f"{seen.replaced} replacements, {seen.reads} reads by another process"
    late = "an entry may be built twice" if seen.seen_s is None or seen.seen_s > _MAX_DELAY_S else ""
    shown = f"not in {LONGEST_S:.0f} s" if seen.seen_s is None else f"after {seen.seen_s:.3f} s"
    off = abs(seen.ahead_s) > _MAX_CLOCK_OFFSET_S
    clock = f"{seen.ahead_s:+.2f} s from this machine's"
    modes = "kept as set" if seen.modes else "not kept"
    return [
        Check("locks between processes", "ok" if seen.excluded == seen.rounds else "bad", tries),
        _release(seen),
        Check("replacing a file", "bad" if seen.torn else "ok", f"{reads}, {seen.torn or 'none'} of them torn"),
        Check("a new file is seen", "missing" if late else "ok", shown, late),
        Check("clock of its files", "missing" if off else "ok", clock, "ages and last uses are wrong" if off else ""),
        Check("durable write", "ok", f"{seen.sync_s:.3f} s for a small file and its name"),
        Check("hard links", "ok" if seen.links else "missing", "yes" if seen.links else "no"),
        Check("modes", "ok" if seen.modes else "bad", modes, "" if seen.modes else "other users may get access"),
    ]


def _release(seen: Measured) -> Check:
    name = "lock of a killed process"
    if seen.refusal:
        return Check(name, "missing", "not tested: there are no locks")
    if seen.freed_s is None:
        return Check(name, "bad", "never free again")
    return Check(name, "ok", f"free after {seen.freed_s:.3f} s")


def promises(seen: Measured, *, local: bool, path: Path) -> list[Check]:
    """Return the guarantees of a store in this directory."""
    advice = _LOCAL_STORE.format(path=path)
    if seen.excluded < seen.rounds:
        building = Check("shared building", "bad", "no: its locks do not exclude, so nothing is stored", advice)
    elif not seen.locks:
        building = Check("shared building", "bad", "no: others wait for the lock of a killed process", advice)
    elif local:
        building = Check("shared building", "ok", "yes: one process builds, the others on this machine wait")
    else:
        text = "yes on this machine; between machines if they share the server's locks: run this command on both"
        building = Check("shared building", "ok", text)
    whole = (
        Check("entries", "ok", "complete or absent")
        if not seen.torn
        else Check("entries", "bad", "may be torn", advice)
    )
    index = "in the store" if local else "private, for each user and host"
    engines = "mapped in a private store" if local else "read into memory, never mapped"
    grouped = seen.links and seen.modes
    shared = Check(
        "init --shared", "ok" if grouped else "missing", "yes" if grouped else "no: it needs hard links and modes"
    )
    return [building, whole, Check("index", "ok", index), Check("engines", "ok", engines), shared]
