"""Small files that would become large in memory: frames, headers and their signatures, from whoever can write there."""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from attacks.stage import MAIN, Stage, Succeeded, file_of, key_of
from trtcache.config.signing_keys import Trust
from trtcache.digests import hash_bytes
from trtcache.store.compression import compressor
from trtcache.store.contract import Miss
from trtcache.store.disk import DiskStore

MOST_GROWTH_BYTES = 96 << 20
_BOMB_BYTES = 256 << 20


def attack(folder: Path) -> str:
    """Offer each bomb to a reader who asks for signatures and to one who does not, in a child that is watched."""
    stage = Stage.set(folder)
    stage.main()
    names = []
    for name, raw in _bombs():
        stage.plant(1, raw)
        for required in (True, False):
            growth_bytes = _growth_of(stage, required=required)
            if growth_bytes > MOST_GROWTH_BYTES:
                raise Succeeded(f"{name} of {len(raw)} bytes took {growth_bytes >> 20} MiB")
            stage.plant(1, raw)
        names.append(name)
    return f"{len(names)} bombs ({', '.join(names)}), each a miss in less than {MOST_GROWTH_BYTES >> 20} MiB"


def _bombs() -> Iterator[tuple[str, bytes]]:
    frame = compressor(_BOMB_BYTES)
    large = frame.compress(bytes(_BOMB_BYTES)) + frame.flush()
    yield "a frame of more than its header says", _entry(large, 4096)
    yield "a frame of 10,000 times its size", _entry(large, _BOMB_BYTES)
    yield "deep JSON", file_of(b"[" * (16 << 20))
    yield "wide JSON", file_of(b"[" + b"[]," * (5 << 20) + b"[]]")
    yield "a member twice a thousand times", file_of(_header([{}] * 1000))
    line = MAIN.public.raw.hex().encode() + b":" + b"0" * 128 + b"\n"
    yield "as many signatures as fit", file_of(_header([]), (line * 337)[: 64 << 10])


def _header(members: list[dict[str, object]]) -> bytes:
    key = {"digest": f"b3:{key_of(1).digest}", "document": key_of(1).document}
    document = {"build_s": 1.0, "created_ns": 1, "key": key, "kind": "test", "members": members, "name": None}
    return json.dumps({**document, "provenance": {}}, sort_keys=True).encode()


def _entry(frame: bytes, size_bytes: int) -> bytes:
    stored = {"stored_bytes": len(frame), "stored_digest": f"b3:{hash_bytes(frame).hex()}", "offset": 4096}
    plain = {"size_bytes": size_bytes, "digest": f"b3:{hash_bytes(bytes(size_bytes)).hex()}"}
    return file_of(_header([{"name": "artifact", "codec": "zstd", **stored, **plain}]), b"", frame)


def _growth_of(stage: Stage, *, required: bool) -> int:
    """Return by how much a process grows that asks for the entry, which has to be a miss."""
    child = os.fork()
    if child == 0:
        code = 255
        try:
            store = DiskStore.open(stage.root, trust=Trust(required, (MAIN.public,)))
            before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            found = store.get(key_of(1))
            growth_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) >> 10
            code = min(254, growth_mib) if isinstance(found, Miss) else 255
        finally:
            sys.stderr.flush()
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not 0 <= code < 255:
        raise Succeeded(f"the reader ended with {code}")
    return code << 20
