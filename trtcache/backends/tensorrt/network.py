"""From ONNX to a network: the parser, with weights by reference, and what it says when it cannot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trtcache.errors import BuildError, UnsupportedOperatorError

if TYPE_CHECKING:
    from trtcache.backends.tensorrt.flavour import Flavour
    from trtcache.backends.tensorrt.log import Errors
    from trtcache.backends.tensorrt.onnx import OnnxModel


@dataclass(frozen=True, slots=True)
class Network:
    """A parsed network, and what must live as long as it: TensorRT keeps pointers into all of them."""

    builder: Any
    definition: Any
    parser: Any
    model: OnnxModel


def parse(trt: Any, flavour: Flavour, logger: Any, model: OnnxModel, errors: Errors) -> Network:
    """Return the strongly typed network of an ONNX model.

    Raises:
        UnsupportedOperatorError: the parser does not know an operator; it names the line of the user's model.
        BuildError: the model cannot be read.
    """
    builder = trt.Builder(logger)
    # Strongly typed: precision is in the graph, and so in the key.
    definition = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(definition, logger)
    if not parser.load_model_proto(model.content):
        raise _failure(flavour, parser, model, errors)
    for name, tensor in model.weights.items():
        if not parser.load_initializer(name, tensor.data_ptr(), tensor.nbytes):
            raise BuildError(flavour.name, f"the parser refuses the weight {name}: {errors.text}")
    if not parser.parse_model_proto():
        raise _failure(flavour, parser, model, errors)
    return Network(builder, definition, parser, model)


def _failure(flavour: Flavour, parser: Any, model: OnnxModel, errors: Errors) -> BuildError:
    found = [parser.get_error(place) for place in range(parser.num_errors)]
    refused = next((refused for refused in found if refused.node_name()), None)
    if refused is None:
        why = "; ".join(refused.desc() for refused in found) or errors.text
        return BuildError(flavour.name, f"the ONNX parser cannot read the program: {why}")
    node = refused.node_name()
    return UnsupportedOperatorError(
        flavour.name, refused.desc(), node=node, operator=refused.node_operator(), where=model.places.get(node, "")
    )
