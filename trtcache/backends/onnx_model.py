"""ONNX models for builders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from trtcache.digests import Json


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """An ONNX model for a builder, exported or read from a file.

    Attributes:
        content: the serialized ``ModelProto``, without the data of the initializers in ``weights``.
        weights: the tensors of these initializers, contiguous, on the CPU; the builder reads their memory.
        inputs: names of the model's inputs.
        outputs: names of its outputs.
        places: the line of the user's model for each node, by name, if known.
    """

    content: bytes
    weights: Mapping[str, torch.Tensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    places: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Range:
    """The shapes of one input that an engine supports: ``minimum`` (min), ``optimal`` (opt) and ``maximum`` (max)."""

    name: str
    minimum: tuple[int, ...]
    optimal: tuple[int, ...]
    maximum: tuple[int, ...]

    def document(self) -> dict[str, Json]:
        """Return the range as stored beside the engine."""
        return {"name": self.name, "min": list(self.minimum), "opt": list(self.optimal), "max": list(self.maximum)}
