"""One process of direct mode's benchmark: ``python -m benchmarks.direct_process WAY [LAYERS WIDTH]`` prints JSON."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, TypeVar

import torch
from transformers import BertConfig, BertModel

from benchmarks import timing
from trtcache.config import paused_collector
from trtcache.frontends.direct.globals import Globals, digest_of
from trtcache.frontends.direct.manifest import check, make_manifest
from trtcache.frontends.direct.mode import Examples, describe
from trtcache.frontends.direct.recording import record_export
from trtcache_cli.demo_embedder import load_embedder, tokenize

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.export import ExportedProgram

    from trtcache.frontends.direct.manifest import Manifest
    from trtcache.frontends.direct.recording import Recording

T = TypeVar("T")

Call = tuple[torch.nn.Module, tuple[torch.Tensor, ...]]


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Call a function as ``compile`` does, with the garbage collector paused; return its result and the seconds."""
    with paused_collector():
        return timing.timed(call)


def bert(layers: str, width: str) -> Call:
    """Return a BERT of random weights."""
    config = BertConfig(
        hidden_size=int(width), num_hidden_layers=int(layers), num_attention_heads=4, intermediate_size=4 * int(width)
    )
    model: torch.nn.Module = BertModel(config, add_pooling_layer=False)
    return model.eval(), (torch.ones(1, 16, dtype=torch.int64),)


def record(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> timing.Samples:
    """Export in turn with and without a recording, and return what each takes, and what a manifest takes after it."""
    from trtcache.lowering.capture import export

    export(model, inputs, {}, None)  # imports what exports
    plain, with_recording, written = [], [], []
    for _ in range(5):
        plain.append(timed(lambda: export(model, inputs, {}, None))[1])
        _, recorded_s, write_s = _manifest(model, inputs)
        with_recording.append(recorded_s)
        written.append(write_s)
    return {"export_s": plain, "recorded_s": with_recording, "write_s": written}


def look(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> timing.Samples:
    """Return what a direct key takes, and a check."""
    manifest, _, _ = _manifest(model, inputs)
    keys = [timed(lambda: _key(model, inputs))[1] for _ in range(15)]
    walk, _ = describe(model, (inputs, {}, None))
    checks = [timed(lambda: check(manifest, walk))[1] for _ in range(15)]
    modules, size_bytes = len(list(model.modules())), sum(one.nbytes for one in model.parameters())
    counts = {"modules_count": [float(modules)], "weights_bytes": [float(size_bytes)]}
    return {"key_s": keys, "check_s": checks} | counts


def _key(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    digest_of(describe(model, (inputs, {}, None))[1])


def _manifest(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[Manifest, float, float]:
    """Return a manifest, and the seconds of the export that was recorded and of what came after it."""
    from trtcache.keys.program_digest import exported_digest
    from trtcache.lowering.capture import export

    call: Examples = (inputs, {}, None)
    walk, _ = describe(model, call)

    def record_once() -> tuple[ExportedProgram, Recording]:
        with record_export(Globals(walk.fork())) as seen:
            return export(model, inputs, {}, None), seen

    (program, seen), recorded_s = timed(record_once)

    def write() -> Manifest:
        manifest = make_manifest(program, exported_digest(program), recorded_s, seen, "")
        again, _ = describe(model, call)  # what an export changes is found by a second look
        check(manifest, again)
        return manifest

    manifest, write_s = timed(write)
    return manifest, recorded_s, write_s


WAYS: dict[str, Callable[..., timing.Samples]] = {
    "record": lambda: record(load_embedder(), tokenize()),
    "look": lambda: look(load_embedder(), tokenize()),
    "bert": lambda layers, width: look(*bert(layers, width)),
}


def main(way: str, *arguments: str) -> None:
    """Run one way and print its figures."""
    with torch.no_grad():
        print(json.dumps(WAYS[way](*arguments)))


if __name__ == "__main__":
    main(*sys.argv[1:])
