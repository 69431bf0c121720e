"""Marks in the metadata of packages, which are read when one is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

FROZEN_MARK = "trtcache.frozen"
"""The name in the metadata of a package that has its weights in it."""

PACKED_MARK = "trtcache.packed_weights"
"""The name in the metadata of a package that takes packed weights; the value is their ``Packing`` as JSON."""

CONVOLUTION, LINEAR = "convolution", "linear"

Packing = dict[str, list[Any]]
"""How each packed weight is made, by its name in the package: what it is for, the engine's name of the weight, and

- for a convolution the arguments of ``mkldnn._reorder_convolution_weight``;
- for a linear layer the number of rows of its input, None if it is dynamic, and whether the weight is transposed.
"""


def read_mark(metadata: Mapping[str, str]) -> Packing:
    """Return how a package's weights are packed, from its metadata."""
    packing: Packing = json.loads(metadata.get(PACKED_MARK, "{}"))
    return packing


def is_transposed(kind: str, arguments: list[Any]) -> bool:
    """Return whether a packed weight is that of a linear layer whose inputs come first in the model's weight."""
    return kind == LINEAR and bool(arguments[1])
