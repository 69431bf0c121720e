"""Marks in the metadata of packages, which are read when one is loaded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

FROZEN_MARK = "trtcache.frozen"
"""The name in the metadata of a package that has its weights in it."""

PACKED_MARK = "trtcache.packed"
"""The name in the metadata of a package that takes packed weights; the value has the arguments of packing, as JSON."""

Packing = dict[str, list[Any]]
"""Arguments of ``mkldnn._reorder_convolution_weight`` after the weight, by the engine's name of the weight."""


def read_mark(metadata: Mapping[str, str]) -> Packing:
    """Return how a package's weights are packed, from its metadata."""
    packing: Packing = json.loads(metadata.get(PACKED_MARK, "{}"))
    return packing
