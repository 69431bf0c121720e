"""How long the passes and the key take for each node of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trtcache
from benchmarks.report import median, seconds, span, table
from benchmarks.timing import Samples, per_call_s
from trtcache.keys.graph_digest import graph_records
from trtcache_cli.demo_embedder import load_embedder, tokenize

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.effort import Effort
    from benchmarks.report import Figures


def measure(_folder: Path, effort: Effort) -> Samples:
    """Return the seconds of lowering and of the graph's digest, whole and for each node."""
    model, inputs = load_embedder(), tokenize()
    programs = [trtcache.lower(model, inputs) for _ in range(effort.rounds)]
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


def section(figures: Figures) -> str:
    """Return what the page says of it."""
    rows = [
        ("passes and slots", span(figures["lower_s"]), seconds(median(figures, "lower_node_s"))),
        ("digest of the graph", span(figures["graph_s"]), seconds(median(figures, "graph_node_s"))),
    ]
    title = f"## Lowering and key\n\nMiniLM, {median(figures, 'nodes_count'):.0f} nodes after the passes.\n"
    return "\n".join([title, table(("part", "time", "for each node"), rows)])
