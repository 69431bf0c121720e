"""Names that would be paths, or that a terminal would obey: of entries, members, files in the store, and hosts."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

from attacks.stage import Stage, Succeeded, engine_of, file_of, key_of
from trtcache.digests import hash_bytes
from trtcache.errors import TrtcacheError
from trtcache.store.catalog import counters, load_records
from trtcache.store.contract import Miss
from trtcache.store.disk import DiskStore
from trtcache.store.format import contents_of
from trtcache_cli.main import main

NAMES = ("../../escaped", "/escaped", "a\x1b[2J\x07", "..", ".", "a/b", "\0", "-rf", "a\nb", "\u202e", "x" * 100_000)


def attack(folder: Path) -> str:
    """Offer each name wherever a name is taken, use every command that shows one, and look for files outside."""
    inside = folder / "inside"
    inside.mkdir(mode=0o755)
    stage = Stage.set(inside)
    store = stage.main()
    before = _files(folder)
    for name in NAMES:
        _as_a_member(stage, name)
        store.put(key_of(2), {"artifact": engine_of(2)}, kind="test", name=name, provenance={"host": name})
        store.quarantine(key_of(2).digest, name)
        store.put(key_of(2), {"artifact": engine_of(2)}, kind="test", name=name, provenance={name: name})
        _look(store)
    for name in ("..trtc", "x.trtc", f"{'0' * 63}g.trtc", "-rf"):
        (stage.root / "entries" / "00").mkdir(exist_ok=True)
        (stage.root / "entries" / "00" / name).write_bytes(b"")
        (stage.root / "pins" / name).write_bytes(b"")
        (stage.root / "events" / f"{name}.jsonl").write_text('{"t": Infinity, "event": {}}\n[[[\n' + "[" * 9999 + "\n")
    _look(store)
    outside = {path for path in _files(folder) - before if stage.root not in path.parents}
    if outside - {inside / "main.secret"}:
        raise Succeeded(f"files outside the store: {outside}")
    return f"{len(NAMES)} names in six places: no file outside the store, and nothing for a terminal to obey"


def _as_a_member(stage: Stage, name: str) -> None:
    try:
        contents_of({name: b""}, "test")
    except TrtcacheError:
        pass
    else:
        raise Succeeded(f"a member may be called {name!r}")
    digest = f"b3:{hash_bytes(b'').hex()}"
    member = {"name": name, "codec": "stored", "offset": 4096, "size_bytes": 0, "stored_bytes": 0}
    key = {"digest": f"b3:{key_of(1).digest}", "document": key_of(1).document}
    document = {"build_s": 1.0, "created_ns": 1, "key": key, "kind": "test", "name": None, "provenance": {}}
    header = {**document, "members": [{**member, "digest": digest, "stored_digest": digest}]}
    raw = file_of(json.dumps(header).ljust(4096 - 64).encode()) if len(name) < 1000 else b""
    stage.plant(1, raw)
    if not isinstance(DiskStore.open(stage.root).get(key_of(1)), Miss):
        raise Succeeded(f"an entry with a member called {name!r} was served")


def _look(store: DiskStore) -> None:
    load_records(store)
    counters(store)
    for command in ("ls", "stats", f"show {key_of(2).digest}", "verify", "prune --dry-run --max-size 1"):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), contextlib.suppress(SystemExit):
            main([*command.split(), "--cache-dir", str(store.root)])
        if set(printed.getvalue()) & set("\x1b\x07\u202e"):
            raise Succeeded(f"trtcache {command} printed what a terminal obeys")


def _files(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))
