"""ONNX models for builders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trtcache.config.frozen import frozen_dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from trtcache.digests import Json


@frozen_dataclass
class OnnxModel:
    """An ONNX model for a builder, exported or read from a file.

    Attributes:
        content: the serialized ``ModelProto``, without the data of the initializers in ``weights``.
        weights: the tensors of these initializers, contiguous, on the CPU; the builder reads their memory. Of a file
            these are all large ones, also those that are no weights of the engine.
        inputs: names of the model's inputs.
        outputs: names of its outputs.
        places: the line of the user's model for each node, by name, if known.
    """

    content: bytes
    weights: Mapping[str, torch.Tensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    places: Mapping[str, str]

    def serialize(self, as_inputs: Collection[str]) -> bytes:
        """Return the model in one piece, with some initializers as inputs after its own, and the data of all others."""
        import onnx

        model = onnx.load_model_from_string(self.content)
        graph = model.graph
        declared = {value.name for value in graph.input}
        initializers = [*graph.initializer]
        del graph.initializer[:]
        for tensor in initializers:
            if tensor.name not in as_inputs:
                if tensor.name in self.weights:
                    tensor.ClearField("external_data")
                    tensor.ClearField("data_location")
                    # A view as bytes, since NumPy has no bfloat16.
                    tensor.raw_data = self.weights[tensor.name].reshape(-1).view(torch.uint8).numpy().tobytes()
                graph.initializer.append(tensor)
            elif tensor.name not in declared:
                graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        return bytes(model.SerializeToString())


@frozen_dataclass
class Range:
    """The shapes of one input that an engine supports: ``minimum`` (min), ``optimal`` (opt) and ``maximum`` (max)."""

    name: str
    minimum: tuple[int, ...]
    optimal: tuple[int, ...]
    maximum: tuple[int, ...]

    def document(self) -> dict[str, Json]:
        """Return the range as stored beside the engine."""
        return {"name": self.name, "min": list(self.minimum), "opt": list(self.optimal), "max": list(self.maximum)}
