"""Copy an entry from one store into another: the same bytes, so with the signatures that they have."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from trtcache.errors import CorruptBlobError
from trtcache.store.files import TemporaryFile
from trtcache.store.reader import ArtifactFile

if TYPE_CHECKING:
    from pathlib import Path

    from trtcache.digests import CacheKey
    from trtcache.store.disk import DiskStore


def copy_up(key: CacheKey, source: DiskStore, target: DiskStore) -> Path:
    """Copy the entry of ``key`` and return where it is now; one that is there already stays as it is.

    The copy is checked before it gets its name: every byte, its key, and by what ``target`` asks of signatures. It is
    there as a whole or not at all, and survives a power cut.

    Raises:
        OSError: it cannot be read or written.
        CorruptBlobError: it is damaged, or another's entry by now.
        FormatVersionError: it is of a later format.
        UntrustedEntryError: its signatures do not count where it comes from or where it goes.
        ReadOnlyError: ``target`` cannot be written.
    """
    path = target.path(key.digest)
    if path.exists():
        return path
    original = source.path(key.digest)
    file = ArtifactFile(original, shared=source.shared, admit=source.admission.admit(str(original)))
    try:
        if file.header.key != key:
            raise CorruptBlobError(str(original), "key", "it is the entry of another key")
        with target.place(key.digest) as place:
            copy_file(file, place, target)
    finally:
        file.close()
    return path


def copy_file(file: ArtifactFile, place: Path, target: DiskStore) -> None:
    """Publish an open file's bytes at ``place`` of another store once all of them were checked there.

    Constant memory: what members decompress to is checked when they are used. There is no row in the index yet.

    Raises:
        OSError: it cannot be read or written.
        CorruptBlobError: it is damaged.
        UntrustedEntryError: its signatures do not count in ``target``.
    """
    with TemporaryFile(place.parent) as temporary:
        file.copy_to(temporary.fd)
        os.fsync(temporary.fd)
        admit = target.admission.admit(str(temporary.path))
        copied = ArtifactFile(temporary.path, shared=target.shared, admit=admit)
        try:
            if copied.header != file.header:
                raise CorruptBlobError(str(temporary.path), "header", "it does not read back as it was written")
            copied.verify_stored()
        finally:
            copied.close()
        temporary.commit(place)
