"""``trtcache show``: show one entry with its header, members and key document."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trtcache.config.units import format_duration, format_size
from trtcache_cli.keys import KeyType
from trtcache_cli.output import print_json, print_pairs
from trtcache_cli.session import Session, examples, session_options

if TYPE_CHECKING:
    from trtcache.store.format import EntryHeader

_LINE = 100


@click.command(epilog=examples("trtcache show 3fa9", "trtcache show --json 3fa9 | jq .document"))
@click.argument("key", type=KeyType())
@session_options
def show(session: Session, key: str) -> None:
    """Show one entry. KEY is any unambiguous prefix of its key."""
    store, digest = session.layers().resolve(key)
    header = store.header(digest)
    path, pinned, verdict = store.path(digest), digest in store.pins(), store.verdict(digest)
    if session.as_json:
        signed = {"signer": verdict.signer, "untrusted": verdict.reason}
        from trtcache.target import label_of

        place = {
            "used_ns": store.stat(digest).used_ns,
            "target": label_of(header.key.document),
            "layer": str(store.root),
        }
        print_json({**_document(header, path, pinned=pinned), **place, **signed})
    else:
        print_pairs(_pairs(header, path, pinned=pinned, signer=str(verdict)))


def _document(header: EntryHeader, path: Path, *, pinned: bool) -> dict[str, object]:
    return {
        "key": header.key.digest,
        "kind": header.kind,
        "name": header.name,
        "path": str(path),
        "pinned": pinned,
        "created_ns": header.created_ns,
        "build_s": header.build_s,
        "file_bytes": header.file_bytes,
        "size_bytes": header.size_bytes,
        "provenance": dict(header.provenance),
        "members": [asdict(member) for member in header.members],
        "guards": _guards(header),
        "document": header.key.document,
    }


def _pairs(header: EntryHeader, path: Path, *, pinned: bool, signer: str) -> list[tuple[str, str]]:
    created = datetime.fromtimestamp(header.created_ns / 1e9, UTC).isoformat(sep=" ", timespec="seconds")
    pairs = [
        ("key", header.key.digest),
        ("kind", header.kind),
        ("name", header.name or "-"),
        ("file", str(path)),
        ("size", f"{format_size(header.file_bytes)} on disk, {format_size(header.size_bytes)} of content"),
        ("built", f"{created}, in {format_duration(header.build_s)}"),
        ("pinned", "yes" if pinned else "no"),
        ("signed by", signer),
    ]
    pairs += [(f"by {name}", text) for name, text in sorted(header.provenance.items())]
    pairs += [
        (f"member {member.name}", f"{format_size(member.size_bytes)}, {member.codec}, {member.digest}")
        for member in header.members
    ]
    pairs += [("guard", guard) for guard in _guards(header)]
    parts = header.key.document.get("parts")
    if isinstance(parts, dict):
        pairs += [(f"part {name}", _short(json.dumps(value))) for name, value in parts.items()]
    return pairs


def _guards(header: EntryHeader) -> list[str]:
    """Return the guards of the exported program: conditions on the sizes of its inputs."""
    parts: Any = header.key.document.get("parts")
    if not isinstance(parts, dict) or not parts.get("guards"):
        return []
    from trtcache.lowering.interface import describe, symbol_names  # needed for few entries

    try:
        inputs = [(one["leaf"], one["shape"], bool(one.get("number"))) for one in parts["inputs"]]
        names = symbol_names(inputs, lambda leaf: f"input{leaf}")
        return [describe(guard, names) for guard in parts["guards"]]
    except (LookupError, TypeError, AttributeError, ValueError):  # the key of another build, which has such a part
        return []


def _short(text: str) -> str:
    return text if len(text) <= _LINE else f"{text[:_LINE]}... ({len(text):,} characters; --json has all)"
