"""One process of direct mode's benchmark: ``python -m benchmarks.direct_process WAY [LAYERS WIDTH]`` prints JSON."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, TypeVar

import torch
from transformers import BertConfig, BertModel

from benchmarks import timing
from trtcache.config import paused_collector
from trtcache.digests import CacheKey, Digest, hash_bytes
from trtcache.frontends.direct import manifest as manifests
from trtcache.frontends.direct.executed_code import ExecutedCode
from trtcache.frontends.direct.manifest import Manifest
from trtcache.frontends.direct.mode import direct_key_parts
from trtcache.frontends.direct.program_trace import perform_same_operations, trace_program
from trtcache.frontends.direct.replay import replay
from trtcache.frontends.direct.trace import record, weights_of
from trtcache.lowering import export_lock
from trtcache_cli.demo_embedder import load_embedder, tokenize

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.export import ExportedProgram

    from trtcache.frontends.direct.trace import Recording

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


def store(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> timing.Samples:
    """Return what an export takes, and what comes after it: a trace that is compared, and a manifest of it."""
    from trtcache.lowering.capture import export

    _trace(model, inputs, export(model, inputs, {}, None))  # imports what exports and records
    taken: timing.Samples = {"export_s": [], "collect_s": [], "record_s": [], "write_s": []}
    for _ in range(5):
        program, export_s = timed(lambda: export(model, inputs, {}, None))
        with ExecutedCode().collect():
            _, collected_s = timed(lambda: export(model, inputs, {}, None))
        found, record_s = timed(lambda program=program: _trace(model, inputs, program))  # type: ignore[misc]
        _, write_s = timed(lambda program=program, found=found: _write(program, found))  # type: ignore[misc]
        for name, one_s in zip(taken, (export_s, collected_s - export_s, record_s, write_s), strict=True):
            taken[name].append(one_s)
    return taken


def look(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> timing.Samples:
    """Return what a direct key takes, what reading its manifest takes, and what a replay of its trace takes."""
    from trtcache.lowering.capture import export

    program = export(model, inputs, {}, None)
    stored = _write(program, _trace(model, inputs, program))
    kept = manifests.read(stored)

    def replay_once() -> str:
        with export_lock(imports_dynamo=False):
            return replay(model, inputs, {}, kept).difference

    assert not replay_once(), replay_once()
    ways: dict[str, Callable[[], object]] = {
        "key_s": lambda: _key(model, inputs),
        "read_s": lambda: manifests.read(stored),
        "replay_s": replay_once,
    }
    taken = {name: [timed(way)[1] for _ in range(15)] for name, way in ways.items()}
    modules, size_bytes = len(list(model.modules())), sum(one.nbytes for one in model.parameters())
    counts = {"modules_count": [float(modules)], "weights_bytes": [float(size_bytes)]}
    return taken | {"operations_count": [float(len(kept[0].trace))]} | counts


def _key(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> str:
    parts = direct_key_parts(model, weights_of(model), inputs, {})
    digests = {name: hash_bytes(json.dumps(part).encode()).hex() for name, part in parts.items()}
    return CacheKey.of("direct", digests).digest


def _trace(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], program: ExportedProgram) -> Recording:
    """Record the trace of a model, and check that its program performs the same operations."""
    with export_lock():
        found = record(model, inputs, {})
        performed = trace_program(program, found.mode, found.inputs, found.results)
        assert perform_same_operations(found.trace, performed)
    return found


def _write(program: ExportedProgram, found: Recording) -> bytes:
    """Return the manifest of a recording as it is stored; the program's digest is made anyway, for its key alias."""
    manifest = Manifest.of(found.trace, found.code.by_digest, program, Digest("0" * 64, 0), 0.0)
    return manifests.write([manifest], {})[manifests.MEMBER]


WAYS: dict[str, Callable[..., timing.Samples]] = {
    "record": lambda: store(load_embedder(), tokenize()),
    "look": lambda: look(load_embedder(), tokenize()),
    "bert": lambda layers, width: look(*bert(layers, width)),
}


def main(way: str, *arguments: str) -> None:
    """Run one way and print its figures."""
    with torch.no_grad():
        print(json.dumps(WAYS[way](*arguments)))


if __name__ == "__main__":
    main(*sys.argv[1:])
