"""Rebuilds of kept programs' engines for the versions that are installed now."""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from trtcache.compiler import build as building
from trtcache.compiler.kept_program import FLAGS, OPTIONS, PROGRAM, STRUCTURES, KeptOptions, key_of
from trtcache.compiler.program_file import read_program
from trtcache.compiler.torch_flags import use_flags
from trtcache.errors import SettingsError

if TYPE_CHECKING:
    from trtcache.cache import Cache
    from trtcache.runtime import Report
    from trtcache.store.entry import Entry


def rebuild(cache: Cache, entry: Entry) -> Report:
    """Build a kept program's engines for the installed versions unless they are stored, and store it under its new key.

    The old entry of the program is removed. The new one is pinned if the old one was.

    Raises:
        SettingsError: the entry is not a kept program, or has a setting, a target or a flag of torch that is unknown
            now.
        ExportError: torch cannot read the program any more.
        BackendUnavailableError: its backend cannot build here.
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``.
        BuildError: the build failed.
    """
    try:
        options = KeptOptions.read(bytes(entry.read(OPTIONS)))
    except (KeyError, ValueError) as error:
        raise SettingsError(f"entry {entry.key.digest[:16]}", f"it is not a kept program: {error}") from error
    with ExitStack() as stack:
        if FLAGS in entry.members:  # programs that were kept by older versions have none
            try:
                stack.enter_context(use_flags(json.loads(bytes(entry.read(FLAGS)))))
            except ValueError as error:
                raise SettingsError(f"entry {entry.key.digest[:16]}", str(error)) from error
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trtcache-program-"))) / PROGRAM
        entry.write(PROGRAM, path)
        has_classes = STRUCTURES in entry.members
        report = building.build(
            read_program(path, json.loads(bytes(entry.read(STRUCTURES)))) if has_classes else path,
            backend=options.backend,
            settings=options.settings,
            target=options.target,
            cache=cache,
            name=entry.name,
        )
    if any(partition.frozen for partition in report.partitions):
        why = "its engine cannot be built without values of weights, which a kept program does not have"
        raise SettingsError(f"entry {entry.key.digest[:16]}", why)
    key = key_of(report)
    if key is not None and key.digest != entry.key.digest:
        contents = {member: bytes(entry.read(member)) for member in entry.members}
        cache.keep(key, contents, build_s=entry.build_s, name=entry.name)
        store, old = cache.store, entry.key.digest
        if store is not None and store.contains(key.digest):
            if old in store.pins():
                store.pin(key.digest)
                store.unpin(old)
            cache.delete(entry.key)  # or the next rebuild would do this again
    return report
