"""Kinds of entries: engines, and companions that help to find or build engines."""

from __future__ import annotations

COMPANIONS = frozenset({"direct", "direct-why", "memo", "runtime_cache", "timing_cache"})
"""Key aliases, manifests and miss reasons of direct mode, and TensorRT's timing and runtime caches."""


def is_companion(kind: str) -> bool:
    """Return whether entries of this kind accompany engines; kinds of custom builders count as engines."""
    return kind in COMPANIONS
