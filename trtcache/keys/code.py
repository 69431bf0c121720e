"""The digests of the code that key aliases depend on: this package's, and that of other distributions' backends."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trtcache.digests import Digest, file_bytes, hash_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

_OTHER = frozenset({"bundle", "integrations", "runtime", "store"})
"""Packages that no cache key depends on. All others are digested, so that a new one cannot be forgotten."""


@functools.cache
def code_digest() -> Digest:
    """Return the digest of this package's code without ``_OTHER``: after a change to it no older alias is used."""
    root = str(Path(__file__).parents[1])
    return _digest_of((path.removeprefix(root), path) for path in sorted(_code_files(root, _OTHER)))


@functools.cache
def backend_code(backend_class: type) -> Mapping[str, Digest]:
    """Return the digest of the packages of another distribution's backend: they decide which nodes are in its engines.

    Raises:
        ValueError: a package has no files, so that a change to it cannot be noticed.
    """
    files: list[tuple[str, str]] = []
    for parent in backend_class.__mro__[:-1]:
        # The outermost package with a file: what is above it is shared by several distributions.
        names = parent.__module__.split(".")
        prefixes = (".".join(names[:count]) for count in range(1, len(names) + 1))
        module = next(
            (sys.modules[name] for name in prefixes if getattr(sys.modules.get(name), "__file__", None)), None
        )
        if module is None or module.__file__ is None:
            raise ValueError(f"backend {backend_class.__name__} is defined in {parent.__module__}, which has no file")
        if module.__name__ in ("trtcache", "abc"):
            continue
        root = Path(module.__file__)
        paths = sorted(_code_files(str(root.parent))) if hasattr(module, "__path__") else [str(root)]
        files += [(os.path.relpath(path, root.parent), path) for path in paths]
    return {"backend_code": _digest_of(files)} if files else {}


def _digest_of(files: Iterable[tuple[str, str]]) -> Digest:
    """Return the digest of files with these names, in this order."""
    parts: list[bytes] = []
    for name, path in files:
        encoded, content = name.encode(), file_bytes(path)
        parts += (b"%d:%b%d:" % (len(encoded), encoded, len(content)), content)
    framed = b"".join(parts)
    return Digest(hash_bytes(framed).hex(), len(framed))


def _code_files(folder: str, left_out: Collection[str] = ()) -> Iterator[str]:
    with os.scandir(folder) as found:
        for entry in found:
            if entry.is_dir():
                if entry.name not in left_out and entry.name != "__pycache__":
                    yield from _code_files(entry.path)
            elif entry.name.endswith(".py"):
                yield entry.path
