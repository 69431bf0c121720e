"""Keeps Inductor from making attention kernels of products and a softmax, where it can take one program for another.

Its patterns of attention do not compare how a permutation orders dimensions: the debug print of
torch/_inductor/pattern_matcher.py shows ``permute(key, *)``, in what is traced for the shapes at hand too. So
``nn.MultiheadAttention``, whose transposes lowering makes one, got a kernel for another order: off by 0.3 with as many
heads as words, and else a build that failed (torch 2.13). Attention that a model asks for by its own operator is not
concerned: that operator is kept whole.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trtcache.lowering.tracing_lock import ALONE

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def without_attention_patterns() -> Iterator[None]:
    """Leave those patterns out of what Inductor applies meanwhile, in every thread."""
    from torch._inductor.fx_passes import joint_graph

    patterns: Any = joint_graph.patterns
    original = patterns.apply

    def apply(graph: Any) -> int:
        every = dict(patterns.patterns)
        patterns.patterns.update({key: [one for one in every[key] if not _is_attention(one)] for key in every})
        try:
            count: int = original(graph)
        finally:
            patterns.patterns.update(every)
        return count

    with ALONE:
        patterns.apply = apply
        try:
            yield
        finally:
            del patterns.apply


def _is_attention(entry: Any) -> bool:
    cells = getattr(entry.extra_check, "__closure__", None) or ()
    home = "torch._inductor.fx_passes.fuse_attention"
    return any(getattr(cell.cell_contents, "__module__", None) == home for cell in cells)
