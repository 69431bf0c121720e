"""Every name in an ONNX model that anything looks at: protobuf gives bytes for one that is no text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def names_in(model: Any) -> Iterator[object]:
    """Yield every name in a model that is looked at."""
    for one in model.opset_import:
        yield one.domain
    for function in model.functions:
        yield from (function.name, function.domain, *function.input, *function.output, *function.attribute)
        yield from (one.domain for one in function.opset_import)
        yield from (text for one in function.attribute_proto for text in _names_in_attribute(one))
        yield from (text for node in function.node for text in _names_in_node(node))
    yield from _names_in_graph(model.graph)


def _names_in_graph(graph: Any) -> Iterator[object]:
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield value.name
        yield from (size.dim_param for size in value.type.tensor_type.shape.dim)
    for tensor in graph.initializer:
        yield from _names_in_tensor(tensor)
    for sparse in graph.sparse_initializer:
        yield from (*_names_in_tensor(sparse.values), *_names_in_tensor(sparse.indices))
    for node in graph.node:
        yield from _names_in_node(node)


def _names_in_node(node: Any) -> Iterator[object]:
    yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
    for attribute in node.attribute:
        yield from _names_in_attribute(attribute)


def _names_in_attribute(attribute: Any) -> Iterator[object]:
    yield from (attribute.name, attribute.ref_attr_name)
    for tensor in (*attribute.tensors, *([attribute.t] if attribute.HasField("t") else ())):
        yield from _names_in_tensor(tensor)
    for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else ())):
        yield from _names_in_graph(graph)


def _names_in_tensor(tensor: Any) -> Iterator[object]:
    yield tensor.name
    for entry in tensor.external_data:
        yield from (entry.key, entry.value)
