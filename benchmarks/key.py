"""How long the passes and the key take for each node of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trtcache
from benchmarks.timing import Samples, per_call_s
from trtcache.keys.graph import graph_records
from trtcache_cli.demo_embedder import load_embedder, tokenize

if TYPE_CHECKING:
    from pathlib import Path


def measure(_folder: Path, rounds: int) -> Samples:
    """Return the seconds of lowering and of the graph's digest, whole and for each node."""
    model, inputs = load_embedder(), tokenize()
    programs = [trtcache.lower(model, inputs) for _ in range(rounds)]
    nodes = len(programs[0].order)
    lowered = [program.seconds["lower"] for program in programs]
    hashed = per_call_s(lambda: graph_records(programs[0]), calls=1)
    return {
        "nodes_count": [float(nodes)],
        "lower_s": lowered,
        "lower_node_s": [value / nodes for value in lowered],
        "graph_s": hashed,
        "graph_node_s": [value / nodes for value in hashed],
    }
