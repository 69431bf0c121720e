"""Copy an entry from one store to another, byte for byte and with its signatures."""

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
    """Copy the entry of ``key`` to ``target`` and return its path there; an existing one is kept.

    The copy is verified before it is renamed into place: every byte, the key, and the signatures that ``target``
    requires. It is atomic and survives a power cut.

    Raises:
        OSError: the entry cannot be read or written.
        CorruptBlobError: it is damaged, or has been replaced by the entry of another key.
        FormatVersionError: it has a newer format.
        UntrustedEntryError: its signatures are not trusted in the source or in the target.
        ReadOnlyError: ``target`` is not writable.
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
    """Copy an open artifact file to ``place`` in another store, and verify the copy before it is renamed there.

    Runs in constant memory: the decompressed content is verified when a member is used. The caller adds the index row.

    Raises:
        OSError: the file cannot be read or written.
        CorruptBlobError: it is damaged.
        UntrustedEntryError: its signatures are not trusted in ``target``.
    """
    with TemporaryFile(place.parent) as temporary:
        file.copy_to(temporary.fd)
        os.fsync(temporary.fd)
        admit = target.admission.admit(str(temporary.path))
        copied = ArtifactFile(temporary.path, shared=target.shared, admit=admit)
        try:
            if copied.header != file.header:
                raise CorruptBlobError(str(temporary.path), "header", "it does not read back as written")
            copied.verify_stored()
        finally:
            copied.close()
        temporary.commit(place)
