"""Memos of ONNX files: from a file that has not changed to its key, without parsing it.

There are two. The first leads from the file's own bytes to the names of the files with its external data; the second
from the bytes of all of them, and what was asked, to the key. Both are entries of kind ``memo``.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trtcache.digests import CacheKey, canonical, json_bytes
from trtcache.errors import CanonicalizationError, OnnxFileError
from trtcache.frontends.onnx.request import names_in
from trtcache.keys.alias import KIND, MEMBER, code_digest

if TYPE_CHECKING:
    from trtcache.cache import Cache
    from trtcache.frontends.onnx.asked import Asked
    from trtcache.frontends.onnx.file import OnnxFile
    from trtcache.frontends.onnx.request import OnnxRequest
    from trtcache.store.entry import Entry

log = logging.getLogger(__name__)

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class OnnxMemo:
    """What reading a file gave.

    Attributes:
        key: the plan's, with its document.
        names: the file's names for the weight of each slot.
        read_s: seconds that reading took.
    """

    key: CacheKey
    names: tuple[str, ...]
    read_s: float


class Memos:
    """The memos of one file and one request. Trouble with them is never the caller's: then the file is read."""

    def __init__(self, file: OnnxFile, asked: Asked, cache: Cache) -> None:
        """Look for memos in a cache."""
        self._file, self._asked, self._cache = file, asked, cache
        self._kept: Entry | None = None

    def find(self) -> OnnxMemo | None:
        """Return the memo of the file, or None if it has to be read.

        Raises:
            OnnxFileError: a file of its external data is not there, or is forbidden.
        """
        locations = self._locations()
        if locations is None:
            return None
        kept = self._cache.peek(self._key(locations), counted=False)
        if kept is None:
            return None
        try:
            memo = _read(kept)
            self._check(memo)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            self._reject(kept, f"it cannot be followed: {error}")
            return None
        self._kept = kept
        return memo

    def keep(self, request: OnnxRequest) -> None:
        """Note what reading the file gave, for the next time. A memo that says something else is refused."""
        key = request.key
        if not isinstance(key, CacheKey):
            return
        names = [slot.names[0] for slot in request.graph.slots]
        data = json_bytes({"key": key.document, "names": names})
        if self._kept is not None:
            if bytes(self._kept.read(MEMBER)) == data:
                return
            self._reject(self._kept, "it disagrees with the file")
        took_s = request.read_s + request.key_s
        try:
            locations = self._file.locations
            kept = self._key(locations)
        except (OnnxFileError, CanonicalizationError, OSError) as error:
            log.info("%s gets no memo: %s", self._file.path, error)
            return
        if self._locations() != locations:
            beside = json_bytes({"locations": locations})
            self._cache.keep(self._first(), {MEMBER: beside}, build_s=request.read_s, name=request.name)
        self._cache.keep(kept, {MEMBER: data}, build_s=took_s, name=request.name)

    def _locations(self) -> list[str] | None:
        kept = self._cache.peek(self._first(), counted=False)
        if kept is None:
            return None
        try:
            written = json.loads(bytes(kept.read(MEMBER)))["locations"]
            return [str(one) for one in written]
        except (ValueError, LookupError, TypeError) as error:
            self._reject(kept, f"it cannot be followed: {error}")
            return None

    def _first(self) -> CacheKey:
        parts = {"format": _FORMAT, "of": "onnx external data", "file": self._file.digest, "code": code_digest()}
        return CacheKey.of(KIND, parts)

    def _key(self, locations: list[str]) -> CacheKey:
        """Return the key of the second memo: all that the way from the file to its key depends on.

        Raises:
            OnnxFileError: a file of external data is not there, or is forbidden.
        """
        parts = {
            "format": _FORMAT,
            "of": "onnx",
            "file": self._file.digest,
            "external": dict(self._file.external.digests(locations)),
            "backend": self._asked.backend.name,
            "code": code_digest(),
            "sizes": self._asked.sizes(),
            **self._asked.parts(),
        }
        return CacheKey.of(KIND, parts)

    def _check(self, memo: OnnxMemo) -> None:
        """Compare what a memo leads to with what was asked for.

        Raises:
            ValueError: they differ.
        """
        parts: Any = memo.key.document["parts"]
        wrong = [name for name, value in self._asked.parts().items() if parts[name] != canonical(value)]
        if wrong or memo.key.kind != self._asked.backend.name:
            raise ValueError(f"it leads to another {', '.join(wrong) or 'backend'}")
        names_in(memo.key)

    def _reject(self, kept: Entry, why: str) -> None:
        log.warning("the memo of %s is not used: %s", self._file.path, why)
        self._cache.reject(kept, KIND)


def _read(kept: Entry) -> OnnxMemo:
    written = json.loads(bytes(kept.read(MEMBER)))
    return OnnxMemo(CacheKey.of_document(written["key"]), tuple(map(str, written["names"])), kept.build_s)
