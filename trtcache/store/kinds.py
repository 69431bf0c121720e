"""Which kinds of entries are engines, and which only lead to one or help to build one."""

from __future__ import annotations

COMPANIONS = frozenset({"direct", "direct-why", "memo", "runtime_cache", "timing_cache"})
"""Memos, manifests and reasons of direct mode, and the caches of TensorRT's builders: nobody asked to keep them."""


def is_companion(kind: str) -> bool:
    """Say whether entries of this kind are kept beside engines; kinds of anybody's own builder are engines."""
    return kind in COMPANIONS
