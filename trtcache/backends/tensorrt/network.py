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
    definition = builder.create_network(_flags(trt))
    parser = trt.OnnxParser(definition, logger)
    if not parser.load_model_proto(model.content):
        raise _failure(flavour, parser, model, errors)
    for name, tensor in model.weights.items():
        if not parser.load_initializer(name, tensor.data_ptr(), tensor.nbytes):
            raise BuildError(flavour.name, f"the parser refuses the weight {name}: {errors.text}")
    if not parser.parse_model_proto():
        raise _failure(flavour, parser, model, errors)
    return Network(builder, definition, parser, model)


def _flags(trt: Any) -> int:
    """Return what makes a network strongly typed: precision is in the graph, and so in the key.

    TensorRT 11 has no other networks, and calls the flag obsolete.
    """
    flag = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    return 0 if flag is None else 1 << int(flag)


def _failure(flavour: Flavour, parser: Any, model: OnnxModel, errors: Errors) -> BuildError:
    found = [parser.get_error(place) for place in range(parser.num_errors)]
    named = next((one for one in found if one.node_name()), None)
    if named is None:
        why = "; ".join(one.desc() for one in found) or errors.text
        return BuildError(flavour.name, f"the ONNX parser cannot read the program: {why}")
    node = named.node_name()
    return UnsupportedOperatorError(
        flavour.name, named.desc(), node=node, operator=named.node_operator(), where=model.places.get(node, "")
    )
