"""``trtcache doctor PATH``: test a directory's file system, and report what a store there can guarantee."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from trtcache.backends.fitness import Check
from trtcache.config.units import format_size
from trtcache.errors import NotAStoreError
from trtcache.store.files import TEMPORARY
from trtcache.store.root import filesystem_type, is_immutable, is_local
from trtcache_cli.measurements import LONGEST_RELEASE_S, Measured, measure
from trtcache_cli.peer import LONGEST_S

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
        local = is_local(real)
        file_system = Check("file system", "ok", f"{filesystem_type(real)}, {_where(real)}")
        space = _space(real)
    except OSError as error:
        raise NotAStoreError(str(path), f"it cannot be measured: {error.strerror}") from error
    yield file_system
    yield space
    if not os.access(real, os.W_OK | os.X_OK, effective_ids=True):
        yield Check("writing", "note", "not by this user: hits are served, nothing is stored")
        return
    try:
        scratch = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=real))
        try:
            measured = measure(scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        advice = "free space or correct the error, and try again"
        yield Check("measuring", "bad", f"failed: {error.strerror}", advice)
        return
    yield from measurement_checks(measured)
    yield from guarantees(measured, local=local, path=real)


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


def measurement_checks(measured: Measured) -> list[Check]:
    """Return a check for each measurement."""
    tries = measured.refusal or f"{measured.excluded} of {measured.rounds} attempts to take a held lock were refused"
    reads = f"{measured.replaced} replacements, {measured.reads} reads by another process"
    late = "an entry may be built twice" if measured.seen_s is None or measured.seen_s > _MAX_DELAY_S else ""
    shown = f"not in {LONGEST_S:.0f} s" if measured.seen_s is None else f"after {measured.seen_s:.3f} s"
    off = abs(measured.ahead_s) > _MAX_CLOCK_OFFSET_S
    clock = f"{measured.ahead_s:+.2f} s from this machine's"
    mixed = f"{measured.torn} failed or saw a mix" if measured.torn else "no read saw a mix"
    modes = Check("modes", "ok", "kept as set")
    if not measured.modes:
        modes = Check("modes", "bad", "not kept", "other users may get access")
    return [
        Check("locks between processes", "ok" if measured.excluded == measured.rounds else "bad", tries),
        _release(measured),
        Check("replacing a file", "bad" if measured.torn else "ok", f"{reads}, {mixed}"),
        Check("a new file is seen", "note" if late else "ok", shown, late),
        Check("clock of its files", "note" if off else "ok", clock, "ages and last uses are wrong" if off else ""),
        Check("durable write", "ok", f"{measured.sync_s:.3f} s for a small file and its name"),
        Check("hard links", "ok" if measured.links else "missing", "yes" if measured.links else "no"),
        modes,
    ]


def _release(measured: Measured) -> Check:
    name = "lock of a killed process"
    if measured.refusal:
        return Check(name, "note", "not tested: there are no locks")
    if measured.freed_s is None:
        return Check(name, "bad", f"still held after {LONGEST_RELEASE_S:.0f} s")
    return Check(name, "ok", f"free after {measured.freed_s:.3f} s")


def guarantees(measured: Measured, *, local: bool, path: Path) -> list[Check]:
    """Return the guarantees of a store in this directory."""
    advice = _LOCAL_STORE.format(path=path)
    if measured.excluded < measured.rounds:
        building = Check("shared building", "bad", "no: two processes can hold one lock, so nothing is stored", advice)
    elif not measured.locks:
        building = Check("shared building", "bad", "no: others wait for the lock of a killed process", advice)
    elif local:
        building = Check("shared building", "ok", "yes: one process builds, the others on this machine wait")
    else:
        text = "yes on this machine; between machines if they share the server's locks: run this command on both"
        building = Check("shared building", "ok", text)
    whole = (
        Check("entries", "ok", "complete or absent")
        if not measured.torn
        else Check("entries", "bad", "may be unreadable, or a mix of two", advice)
    )
    index = "in the store" if local else "private, for each user and host"
    engines = "mapped in a private store" if local else "read into memory, never mapped"
    grouped = measured.links and measured.modes
    shared = Check(
        "init --shared", "ok" if grouped else "missing", "yes" if grouped else "no: it needs hard links and modes"
    )
    return [building, whole, Check("index", "ok", index), Check("engines", "ok", engines), shared]
