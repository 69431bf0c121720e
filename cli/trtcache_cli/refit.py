"""``trtcache refit``: check weights against a program or an entry, and write the refitted result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trtcache.errors import SettingsError, StoreError
from trtcache.store.contract import Miss
from trtcache_cli.keys import KeyType
from trtcache_cli.output import print_json, print_pairs
from trtcache_cli.output_file import check_output, refuse_input
from trtcache_cli.session import Session, examples, require_entry, session_options

if TYPE_CHECKING:
    from trtcache.keys.key import KeyAlias
    from trtcache.store.layers import Layers

_MAX_NAMES = 6


@click.command(
    epilog=examples(
        "trtcache refit model.pt2 --weights tuned.safetensors",
        "trtcache refit model.pt2 --weights tuned.safetensors -o tuned.pt2",
        "trtcache refit 3fa9 --weights tuned.safetensors",
    )
)
@click.argument("subject", type=KeyType(), metavar="KEY_OR_FILE")
@click.option(
    "-w",
    "--weights",
    type=click.Path(path_type=Path),
    required=True,
    help="A .safetensors file, the .json index of several, a .pt2 program, or a state_dict written by torch.save.",
)
@click.option(
    "-o",
    "--output",
    metavar="OUTPUT",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the refitted program or plan here.",
)
@session_options
def refit(session: Session, subject: str, weights: Path, output: Path | None) -> None:
    """Check that weights fit a program or an entry; with -o, write the refitted one. Nothing is exported or built.

    FILE: an exported program (.pt2); OUTPUT is the same program with the new weights, and uses the same cached engine.
    KEY: an entry. The names of its weights are known if a .pt2 file was compiled to it. An aot_inductor engine
    contains no weights, so nothing is written: they are only checked. OUTPUT is for a refittable plan, and needs the
    plan's GPU.
    """
    if output is not None:
        check_output(output)
        # OUTPUT may replace the program, but not the file of weights.
        refuse_input(output, weights, "the file of weights")
    path = Path(subject)
    if onnx := next((file for file in (weights, path) if file.suffix == ".onnx"), None):
        how = f'trtcache build {onnx}, or module.refit("{weights}") of the module returned by trtcache.compile'
        raise click.UsageError(f"{onnx} is an ONNX file, which this command does not support: use {how}")
    is_program = path.suffix == ".pt2" or path.is_file()
    document = _refit_file(path, weights, output) if is_program else _refit_entry(session, subject, weights, output)
    document["output"] = str(output) if output else None
    if session.as_json:
        print_json(document)
    else:
        print_pairs(_pairs(document))


def _refit_file(path: Path, weights: Path, output: Path | None) -> dict[str, Any]:
    from trtcache.compiler.refit import refit_program  # imports torch

    done = refit_program(path, weights, output)
    return {"file": str(path), "key": None, "kind": None, "weights": done.weights, "changed": list(done.changed)}


def _refit_entry(session: Session, subject: str, weights: Path, output: Path | None) -> dict[str, Any]:
    from trtcache.compiler.refit import check_entry, refit_artifact
    from trtcache.config.paths import atomic_write

    if session.config().disable:
        why = "the names of weights are read from the cache, which this variable turns off: unset it"
        raise SettingsError("TRTCACHE_DISABLE", why)
    layers = session.layers()
    store, digest = layers.resolve(subject)
    key = store.header(digest).key
    entry = require_entry(layers, key)
    executable, given = check_entry(entry, list(_aliases(layers, key.digest)), weights)
    if output is not None:
        artifact = refit_artifact(entry, executable, given)
        with atomic_write(output) as temporary:
            temporary.write_bytes(artifact)
    return {
        "file": None,
        "key": key.digest,
        "kind": entry.kind,
        "weights": len(executable.interface.slots),
        "changed": None,
    }


def _aliases(layers: Layers, digest: str) -> Iterator[KeyAlias]:
    """Yield the key aliases of ``.pt2`` files whose engine is the entry, from all layers.

    An alias is not always in the layer of its engine. Aliases that cannot be read are skipped, such as those of
    programs in memory, which do not have the pytree specs of the arguments.
    """
    from trtcache.keys.alias_key import KIND, MEMBER
    from trtcache.keys.key import KeyAlias
    from trtcache.store.catalog import load_records

    for store in layers.disks:
        for record in load_records(store):
            if record.kind != KIND:
                continue
            try:
                entry = store.get(store.header(record.digest).key)
                alias = None if isinstance(entry, Miss) else KeyAlias.read(bytes(entry.read(MEMBER)))
            except (OSError, StoreError, ValueError, KeyError):
                continue
            if alias is not None and alias.key.digest == digest:
                yield alias


def _pairs(document: dict[str, Any]) -> list[tuple[str, str]]:
    changed, count = document["changed"], document["weights"]
    pairs = [("file", document["file"])] if document["file"] else [("key", document["key"])]
    if document["kind"]:
        pairs.append(("engine", document["kind"]))
    if changed is None:
        pairs.append(("weights", f"{count}, all of which fit"))
    else:
        more = len(changed) - _MAX_NAMES
        shown = ", ".join(changed[:_MAX_NAMES]) + (f", and {more} more" if more > 0 else "")
        pairs.append(
            ("weights", f"{count}, all of which fit; {len(changed)} changed" + (f": {shown}" if shown else ""))
        )
    return [*pairs, *([("output", document["output"])] if document["output"] else [])]
