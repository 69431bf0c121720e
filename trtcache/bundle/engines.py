"""The engines of a program that is being loaded: from its graph, its constants, a file beside it, or a store."""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any

from trtcache.backends.members import ENGINE
from trtcache.bundle.archive import is_private
from trtcache.bundle.payload import SIDECAR
from trtcache.digests import CacheKey, hash_bytes
from trtcache.errors import (
    CorruptBlobError,
    FormatVersionError,
    MissingEngineError,
    ProgramNamesError,
    TamperedProgramError,
)
from trtcache.store.entry import Entry
from trtcache.store.reader import ArtifactFile

if TYPE_CHECKING:
    from pathlib import Path

    from trtcache.bundle.archive import ProgramArchive
    from trtcache.cache import Cache

_MODEL = "models/model.json"
_CONSTANTS = "data/constants/"
_PLACEHOLDER = "torch.ops.trtcache.execute_engine.default"


class CarriedEngines:
    """The engines of one program. What breaks a document's grammar is an error of Python's, which the caller has."""

    def __init__(self, archive: ProgramArchive, targets: Any, cache: Cache | None) -> None:
        """Keep where they are; nothing is read.

        Args:
            archive: the program's file.
            targets: what it says of its targets.
            cache: where those are that it only refers to; None for the one that the environment says.
        """
        self._archive, self._targets, self._cache = archive, targets, cache
        self._path = str(archive.path)
        self._texts: list[str] | None = None

    def entry(self, said: Any) -> Entry:
        """Return a stored engine with all that is beside it."""
        if said["way"] == "file":
            return self._beside(str(said["file"]), CacheKey.of_document(said["key"]))
        key = CacheKey.of_document(said["key"])
        if said["way"] == "store":
            return self._referred(key)
        contents: dict[str, Any] = {name: self._archive.read(member) for name, member in said["members"].items()}
        contents[ENGINE] = self._embedded(said)
        return Entry(
            key=key,
            kind=str(said["kind"]),
            name=None if said["name"] is None else str(said["name"]),
            build_s=float(said["build_s"]),
            created_ns=int(said["created_ns"]),
            provenance={str(name): str(text) for name, text in said["provenance"].items()},
            outcome="hit",
            reason=None,
            path=None,
            load_s=0.0,
            contents=contents,
        )

    def _embedded(self, said: Any) -> bytes | memoryview:
        """Return an engine that is in the file, compared with its digest."""
        content: bytes | memoryview
        if said["way"] == "text":
            content = self._text(int(said["node"]), self._place_of(said))
        elif said["way"] == "constant":
            whole = self._archive.read(f"{_CONSTANTS}tensor_trtcache_engine_{int(said['part'])}")
            begin, size = int(said["offset"]), int(said["size_bytes"])
            content = whole[begin : begin + size]
        else:
            raise ValueError(f"an engine that travels as {said['way']!r:.20}")
        if f"b3:{hash_bytes(content).hex()}" != said["digest"]:
            raise TamperedProgramError(self._path, f"the engine of part {said['part']} is not the one of its digest")
        return content

    def _place_of(self, said: Any) -> int:
        """Return which of the targets an engine is of: in the graph they are in that order."""
        for place, target in enumerate(self._targets):
            if any(one is said for one in target["engines"]):
                return place
        raise ValueError("an engine of no target")

    def _text(self, node: int, place: int) -> bytes:
        """Return an engine that is text in the graph."""
        if self._texts is None:
            model = json.loads(bytes(self._archive.read(_MODEL)).decode())
            nodes = [one for one in model["graph_module"]["graph"]["nodes"] if one["target"] == _PLACEHOLDER]
            self._texts = [_argument(one, "engine") for one in nodes]
        try:
            return base64.b64decode(self._texts[node].split(",")[place], validate=True)
        except binascii.Error as error:
            raise ValueError(f"an engine that is no text: {error}") from error

    def _beside(self, name: str, key: CacheKey) -> Entry:
        """Return the entry in a file beside the program.

        Raises:
            ProgramNamesError: its name would be a path.
            MissingEngineError: it is not there, or cannot be used.
            TamperedProgramError: it is another.
        """
        if not SIDECAR.fullmatch(name):
            raise ProgramNamesError(self._path, f"a file beside it is called {name!r:.80}, which none is")
        said, beside = self._archive.header.beside.get(name), _place_beside(self._archive.path, name)
        try:
            file = ArtifactFile(beside, shared=True)  # whose it is does not matter: its digest is in the header
            contents: Any = file.load(mapped=is_private(file.stat))
        except FileNotFoundError as error:
            why = f"its engines are in {name}, which has to lie beside it"
            raise MissingEngineError(self._path, f"{why}; copy that file as well") from error
        except (CorruptBlobError, FormatVersionError, OSError) as error:
            raise MissingEngineError(self._path, f"the file of its engines cannot be used: {error}") from error
        header, digest = file.header, f"b3:{file.prelude.digest.hex()}"
        if said is None or (header.file_bytes, digest) != (said.size_bytes, said.digest) or header.key != key:
            raise TamperedProgramError(self._path, f"{name} is not the file that was written with it")
        found = Entry(
            key, header.kind, header.name, header.build_s, header.created_ns, header.provenance,
            "hit", None, beside, 0.0, contents,
        )  # fmt: skip
        file.close()
        return found

    def _referred(self, key: CacheKey) -> Entry:
        """Return the entry of a key from a store.

        Raises:
            MissingEngineError: there is none.
        """
        from trtcache.cache import Cache

        store = self._cache if self._cache is not None else Cache()
        found = store.peek(key)
        if found is None:
            why = f"it refers to engine {key.digest[:16]}, which is not in {store.config.root}"
            remedy = "name the cache that has it (cache=, TRTCACHE_DIR), or export with engines='embed'"
            raise MissingEngineError(self._path, f"{why}; {remedy}")
        return found


def _place_beside(path: Path, name: str) -> Path:
    """Return where a file beside a program is: beside its name, or beside what that name is a link to."""
    beside = path.with_name(name)
    return (beside if beside.exists() else path.resolve().with_name(name)).resolve()


def _argument(node: Any, name: str) -> str:
    for one in node["inputs"]:
        if one["name"] == name:
            return str(one["arg"]["as_string"])
    raise ValueError(f"a call of an engine without {name}")
