"""``trtcache why``: explain how an entry differs from its nearest, or whether and why a program misses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trtcache.errors import CanonicalizationError
from trtcache.keys.explain import Nearest, nearest_of, stored_graph
from trtcache_cli.backend_name import backend_option
from trtcache_cli.differences import print_differences
from trtcache_cli.keys import SHORT_DIGITS, KeyType
from trtcache_cli.output import note, print_json, printable
from trtcache_cli.session import Session, examples, session_options
from trtcache_cli.shapes import shape_option
from trtcache_cli.subjects import is_program, program_name, require_file

if TYPE_CHECKING:
    from trtcache.store.layers import Layers


_EXAMPLES = (
    "trtcache why 3fa9",
    "trtcache why model.pt2",
    "trtcache why models:classifier --target x86-64-v3",
    "trtcache why --json model.pt2",
    "trtcache why --direct Net",
)


@click.command(epilog=examples(*_EXAMPLES))
@click.argument("subject", type=KeyType(), metavar="KEY_OR_FILE")
@backend_option(help="For a FILE: the backend.")
@click.option("--target", help="For a FILE: the target, such as x86-64-v3.")
@click.option("--direct", is_flag=True, help="For a NAME: why direct mode missed the last time.")
@shape_option
@session_options
def why(
    session: Session, subject: str, backend: str, target: str | None, direct: bool, shapes: tuple[str, ...]
) -> None:
    """Explain why there is no entry for a program, or why a program has a second entry.

    KEY: how the entry differs from the nearest other one of the same name. FILE: an exported program (.pt2), an ONNX
    file (.onnx), a TorchScript file or MODULE:FUNCTION: whether it would hit, and if not, how it differs from the
    nearest entry; nothing is built. NAME, with --direct: a model's name, by default its class.
    """
    if direct:
        _explain_direct(session, subject)
        return
    layers = session.layers()
    if is_program(subject):
        document = _of_file(layers, Path(subject), backend, target, shapes)
    else:
        document = _of_entry(layers, subject)
    found = document.pop("found")
    if session.as_json:
        print_json({**document, **_as_json(found)})
        return
    note(_headline(document, found))
    if found is not None:
        print_differences(found.differences)


def _explain_direct(session: Session, name: str) -> None:
    from trtcache.frontends.direct.manifest import load_reason  # imports torch

    reason = load_reason(session.layers(), name)
    if session.as_json:
        print_json({"name": name, "direct": reason})
    elif reason is None:
        note(f"{printable(name)}: direct mode has no recorded miss for a model of this name")
    else:
        note(f"{printable(name)}: {printable(reason)}")


def _of_entry(layers: Layers, key: str) -> dict[str, Any]:
    store, digest = layers.resolve(key)
    header = store.header(digest)
    graph = stored_graph(store, header)
    given = {"name": header.name, "graph": graph, "without": digest, "same_name": True}
    found = nearest_of(layers.disks, header.key.document, **given)
    return {"key": digest, "outcome": "entry", "reason": "", "found": found}


def _of_file(layers: Layers, path: Path, backend: str, target: str | None, shapes: tuple[str, ...]) -> dict[str, Any]:
    require_file(path)
    from trtcache.compiler import build  # imports torch
    from trtcache_cli.programs import open_program

    name = program_name(path)
    try:
        program, inputs = open_program(path, shapes)
        key, graph = build.key_and_graph(program, backend=backend, target=target, inputs=inputs, name=name)
    except CanonicalizationError as error:
        return {"key": None, "outcome": "uncacheable", "reason": str(error), "found": None}
    why = layers.why_missed(key.digest)
    if not why:
        return {"key": key.digest, "outcome": "hit", "reason": "", "found": None}
    if why != "absent":  # there is an entry, so that none is nearer
        return {"key": key.digest, "outcome": "miss", "reason": why, "found": None}
    found = nearest_of(layers.disks, key.document, name=name, graph=graph)
    return {"key": key.digest, "outcome": "miss", "reason": "", "found": found}


def _as_json(found: Nearest | None) -> dict[str, Any]:
    if found is None:
        return {"nearest": None, "differences": []}
    return {
        "nearest": found.header.key.digest,
        "differences": [difference.as_json() for difference in found.differences],
    }


def _headline(document: dict[str, Any], found: Nearest | None) -> str:
    outcome, key = document["outcome"], (document["key"] or "")[:SHORT_DIGITS]
    if outcome == "hit":
        return f"hit: {key} is cached"
    if outcome == "uncacheable":
        return f"uncacheable: {document['reason']}"
    if outcome == "miss" and document["reason"]:
        return f"miss: the entry {key} cannot be used: {document['reason']}"
    if found is None:
        other = "other entry of its name" if outcome == "entry" else "similar entry"
        return f"{outcome} {key}: there is no {other}"
    name = printable(found.header.name or found.header.kind)
    return f"{outcome} {key}: nearest is {found.header.key.digest[:SHORT_DIGITS]} ({name})"
