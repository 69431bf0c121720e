"""Operators of ONNX: schemas, validation of models, and classification of initializers as weights or constants.

TensorRT-RTX's parser (1.7) takes the first of two attributes, functions or opsets of one name where other readers take
the last, and reads an attribute by its name without checking its type. A file with such ambiguities would have the key
of one model and the plan of another, so it is refused.

The values of weights are not in the key of a refittable plan, so the build must not depend on them. TensorRT's parser
reads some initializers (the scales of a Resize, the bounds of a Clip), folds some into others (BatchNorm, LSTM) and
computes sizes with some. So an initializer is a weight only if all its uses are known to pass it to TensorRT whole, and
no size depends on it. All others are constants, which enter the key by content: that costs hits, but is never wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from trtcache.config.frozen import frozen_dataclass


@frozen_dataclass
class Schema:
    """The schema of one version of an operator.

    Attributes:
        operands: the names of its inputs.
        variadic: whether the last one is any number of inputs.
        attributes: the default of each attribute by name, an ``AttributeProto`` or None.
        types: the ``AttributeProto.AttributeType`` of each attribute.
    """

    operands: tuple[str, ...]
    variadic: bool
    attributes: Mapping[str, Any]
    types: Mapping[str, int]


class Schemas:
    """Cached look-up of operator schemas."""

    def __init__(self) -> None:
        """Create an empty cache."""
        self._known: dict[tuple[str, str, int], Schema | None] = {}

    def find(self, domain: str, operator: str, version: int) -> Schema | None:
        """Return the schema of an operator in a version of its domain, or None if ONNX does not define it."""
        from onnx import AttributeProto, defs

        key = (domain, operator, version)
        if key in self._known:
            return self._known[key]
        self._known[key] = None
        try:
            schema = defs.get_schema(operator, version, domain)
        except defs.SchemaError:
            return None
        defaults = {
            name: attribute.default_value if attribute.default_value.type != AttributeProto.UNDEFINED else None
            for name, attribute in schema.attributes.items()
        }
        variadic = bool(schema.inputs) and schema.inputs[-1].option == defs.OpSchema.FormalParameterOption.Variadic
        attributes: Any = schema.attributes  # an attribute type is not an integer in every release of onnx
        types = {name: int(getattr(one.type, "value", one.type)) for name, one in attributes.items()}
        self._known[key] = Schema(tuple(one.name for one in schema.inputs), variadic, defaults, types)
        return self._known[key]


def domain_of(written: str) -> str:
    """Return the canonical name of a domain; ONNX's own has two names."""
    return "" if written == "ai.onnx" else written


def graphs_in(node: Any) -> list[Any]:
    """Return the graphs among a node's attributes."""
    return [graph for one in node.attribute for graph in (*([one.g] if one.HasField("g") else []), *one.graphs)]


_NAMES: Mapping[str, tuple[str, ...]] = {
    "AttributeProto": ("name", "ref_attr_name", "tensors", "t", "sparse_tensors", "sparse_tensor", "graphs", "g"),
    "Dimension": ("dim_param",),
    "FunctionProto": (*("name", "domain", "input", "output", "attribute", "opset_import", "attribute_proto", "node"),),
    "GraphProto": ("input", "output", "initializer", "sparse_initializer", "node"),
    "ModelProto": ("opset_import", "functions", "graph"),
    "NodeProto": ("name", "op_type", "domain", "input", "output", "attribute"),
    "OperatorSetIdProto": ("domain",),
    "SparseTensorProto": ("values", "indices"),
    "StringStringEntryProto": ("key", "value"),
    "Tensor": ("shape",),
    "TensorProto": ("name", "external_data"),
    "TensorShapeProto": ("dim",),
    "TypeProto": ("tensor_type",),
    "ValueInfoProto": ("name", "type"),
}
"""Message of ONNX -> its fields with names that this package reads, and with messages that have some."""


def iter_names(message: Any) -> Iterator[object]:
    """Yield every name in a model that this package reads; protobuf returns invalid UTF-8 as bytes."""
    for field in _NAMES[message.DESCRIPTOR.name]:
        value = getattr(message, field)
        if isinstance(value, (str, bytes)):
            yield value
        elif not hasattr(value, "DESCRIPTOR"):  # repeated
            for one in value:
                yield from (one,) if isinstance(one, (str, bytes)) else iter_names(one)
        elif message.HasField(field):
            yield from iter_names(value)


_ATTRIBUTE_FIELDS = (
    *("f", "i", "s", "t", "g", "floats", "ints", "strings", "tensors", "graphs"),
    *("sparse_tensor", "sparse_tensors", "tp", "type_protos"),
)
FIELDS = {code: (name, len(name) > 1 and name.endswith("s")) for code, name in enumerate(_ATTRIBUTE_FIELDS, 1)}
"""``AttributeProto.AttributeType`` -> the field that has the value, and whether it is repeated."""

_TYPES = {field: code for code, (field, _) in FIELDS.items()}


def find_faults(model: Any) -> Iterator[str]:
    """Yield the ambiguities of a model, which other readers may resolve differently.

    Attributes without a type, which files of old versions have, get theirs.
    """
    functions = [(domain_of(one.domain), one.name, getattr(one, "overload", "")) for one in model.functions]
    yield from _twice(functions, "it has two functions {!r}")
    schemas = Schemas()
    domains = [domain_of(one.domain) for one in model.opset_import]
    yield from _twice(domains, "it has two versions of domain {!r}")
    yield from _Nodes(schemas, model.opset_import, functions, inside=False).faults_of_graph(model.graph)
    if not model.graph.output:
        yield "its graph has no outputs"
    for function in model.functions:
        nodes = _Nodes(schemas, function.opset_import, functions, inside=True)
        yield from nodes.faults_of_function(function)


class _Nodes:
    """Validator of the nodes of a graph or function, and of the graphs inside them."""

    def __init__(
        self, schemas: Schemas, opsets: Iterable[Any], functions: Sequence[tuple[str, str, str]], *, inside: bool
    ) -> None:
        self._schemas = schemas
        self._versions = {domain_of(one.domain): one.version for one in opsets}
        self._functions = frozenset(functions)
        self._inside = inside

    def faults_of_graph(self, graph: Any) -> Iterator[str]:
        sparse = [one.values.name for one in graph.sparse_initializer]
        held = [*(one.name for one in graph.initializer), *sparse]
        inputs = [one.name for one in graph.input]
        yield from _twice(held, "two of its initializers have one name: {!r}")
        yield from _twice(inputs, "it has two inputs {!r}")
        yield from self._faults(graph.node, {*held, *inputs})
        tensors = (*graph.initializer, *(one.values for one in graph.sparse_initializer))
        yield from (text for one in tensors for text in _faults_of_tensor(one))

    def faults_of_function(self, function: Any) -> Iterator[str]:
        domains = [domain_of(one.domain) for one in function.opset_import]
        yield from _twice(domains, "a function in it has two versions of domain {!r}")
        yield from _twice(list(function.input), "a function in it has two inputs {!r}")
        names = [*function.attribute, *(one.name for one in function.attribute_proto)]
        yield from _twice(names, "a function in it has two attributes {!r}")
        for attribute in function.attribute_proto:
            yield from self._faults_of_attribute(attribute, 0, f"function {function.name!r}")
        yield from self._faults(function.node, set(function.input))

    def _faults(self, nodes: Iterable[Any], taken: set[str]) -> Iterator[str]:
        made: set[str] = set()
        for node in nodes:
            for name in node.output:
                if name and name in taken:
                    yield f"its node {node.name!r} produces {name!r}, which is an input or an initializer"
                if name and name in made:
                    yield f"two of its nodes produce {name!r}"
                made.add(name)
            yield from _twice([one.name for one in node.attribute], "a node of it has two attributes {!r}")
            where = f"node {(node.name or node.op_type)!r}"
            operator = (domain_of(node.domain), node.op_type, getattr(node, "overload", ""))
            version = None if operator in self._functions else self._versions.get(operator[0])
            schema = self._schemas.find(operator[0], operator[1], version) if version else None
            for attribute in node.attribute:
                wanted = schema.types.get(attribute.name, 0) if schema else 0
                yield from self._faults_of_attribute(attribute, wanted, where)
            for graph in graphs_in(node):
                both = {one.name for one in graph.input} & {one.name for one in graph.initializer}
                for name in sorted(both):
                    yield f"a graph in its {where} has an input and an initializer {name!r}"
                yield from self.faults_of_graph(graph)

    def _faults_of_attribute(self, attribute: Any, wanted: int, where: str) -> Iterator[str]:
        """Set a missing type, and yield the faults of an attribute; ``wanted`` is its operator's type, 0 if unknown."""
        what = f"attribute {attribute.name!r} of its {where}"
        filled = [_TYPES[field.name] for field, _ in attribute.ListFields() if field.name in _TYPES]
        if not attribute.type:
            attribute.type = wanted or (filled[0] if len(filled) == 1 else 0)
        if attribute.type not in FIELDS:
            yield f"{what} is of an unknown type ({attribute.type})"
        if wanted and attribute.type != wanted:
            yield f"{what} is of type {attribute.type}, and the operator's is {wanted}"
        if any(code != attribute.type for code in filled):
            yield f"{what} has a value of another type than it declares"
        if attribute.ref_attr_name and not self._inside:
            yield f"{what} refers to an attribute of a function, but is not in a function"
        if attribute.ref_attr_name and filled:
            yield f"{what} refers to an attribute of the function, and has a value too"
        sparse = [
            *([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else ()),
            *attribute.sparse_tensors,
        ]
        tensors = [*([attribute.t] if attribute.HasField("t") else ()), *attribute.tensors]
        for tensor in (*tensors, *(half for both in sparse for half in (both.values, both.indices))):
            yield from _faults_of_tensor(tensor)


def _faults_of_tensor(tensor: Any) -> Iterator[str]:
    if any(size < 0 for size in tensor.dims):
        yield f"tensor {tensor.name!r} has a negative size: {list(tensor.dims)}"


def _twice(names: Sequence[object], text: str) -> Iterator[str]:
    seen: set[object] = set()
    for name in names:
        if name in seen:
            yield text.format(name)
        seen.add(name)


_MOST_NODES = 1_000_000
_MOST_CALLS = 50

_Name: TypeAlias = tuple[str, str, str]


def _name_of(function: Any, name: str) -> _Name:
    return domain_of(function.domain), name, getattr(function, "overload", "")


class FunctionError(Exception):
    """The local functions of a model cannot be inlined, or readers interpret them differently."""


def inline_functions(model: Any) -> Any:
    """Return a model with all calls of its local functions inlined; itself if it has none.

    TensorRT-RTX's parser (1.7) binds arguments and attributes of functions by name alone, and takes one function for
    all of its name. It and ONNX Runtime read a function's body by the versions of operators that the model declares,
    and not by the function's own. So functions must declare those of the model.

    Raises:
        FunctionError: a function calls itself, a call has more operands than the function, there would be too many
            nodes, or two versions of a domain are declared.
    """
    if not model.functions:
        return model
    from onnx import inliner

    functions = {_name_of(one, one.name): one for one in model.functions}
    called = _Calls(functions).of(model.graph.node)
    versions = {domain_of(one.domain): one.version for one in model.opset_import}
    for name in called:
        for one in functions[name].opset_import:
            domain = domain_of(one.domain)
            if domain not in versions:
                model.opset_import.add(domain=domain, version=one.version)
            if versions.setdefault(domain, one.version) != one.version:
                both = (
                    f"version {one.version} of domain {domain!r}, and the model or another function {versions[domain]}"
                )
                raise FunctionError(
                    f"its function {name[1]!r} has {both}, of which readers use different ones; inline it"
                )
    for at in reversed(range(len(model.functions))):
        if _name_of(model.functions[at], model.functions[at].name) not in called:
            del model.functions[at]
    try:
        inlined = inliner.inline_local_functions(model)
    except Exception as error:  # onnx has classes of its own for faults of models, also another in each release
        raise FunctionError(f"its functions cannot be inlined: {error}") from error
    left = _Calls(functions).of(inlined.graph.node)
    if left:
        raise FunctionError(f"its function {min(left)[1]!r} cannot be inlined")
    del inlined.functions[:]
    return inlined


class _Calls:
    """The local functions that nodes call, directly or through others, and how many nodes there are once inlined.

    Calls get the default values of attributes that they leave out, which ``onnx.inliner`` ignores.
    """

    def __init__(self, functions: Mapping[_Name, Any]) -> None:
        self._functions = functions
        self._counts: dict[_Name, int] = {}
        self._open: list[_Name] = []

    def of(self, nodes: Iterable[Any]) -> Collection[_Name]:
        self._count(nodes)
        return self._counts

    def _count(self, nodes: Iterable[Any]) -> int:
        count = 0
        for node in nodes:
            count += 1 + sum(self._count(graph.node) for graph in graphs_in(node))
            name = _name_of(node, node.op_type)
            if name in self._functions:
                count += self._count_function(node, name)
            if count > _MOST_NODES:
                raise FunctionError(f"its functions make more than {_MOST_NODES} nodes when they are inlined")
        return count

    def _count_function(self, node: Any, name: _Name) -> int:
        function = self._functions[name]
        if len(node.input) > len(function.input) or len(node.output) > len(function.output):
            raise FunctionError(f"a call of its function {name[1]!r} has more inputs or outputs than the function")
        if name in self._open:
            raise FunctionError(f"its function {name[1]!r} calls itself")
        if len(self._open) >= _MOST_CALLS:
            raise FunctionError(f"its functions call each other more than {_MOST_CALLS} deep; inline them")
        given = {one.name for one in node.attribute}
        node.attribute.extend(one for one in function.attribute_proto if one.name not in given)
        defaults = {one.name for one in function.attribute_proto}
        kept = {one.name for one in self._functions[self._open[-1]].attribute_proto} if self._open else set()
        if any(one.name in defaults and one.ref_attr_name and one.ref_attr_name not in kept for one in node.attribute):
            raise FunctionError(f"a call of its function {name[1]!r} may leave out an attribute or not; inline it")
        if name not in self._counts:
            self._open.append(name)
            self._counts[name] = self._count(function.node)
            self._open.pop()
        return self._counts[name]


_WEIGHT_TYPES = frozenset({1, 10, 16})
"""float32, float16 and bfloat16: the dtypes of weights that TensorRT can refit."""

_WHOLE_OPERANDS: Mapping[str, frozenset[int]] = {
    "Add": frozenset({0, 1}),
    "Conv": frozenset({1, 2}),
    "ConvTranspose": frozenset({1, 2}),
    "Div": frozenset({0, 1}),
    "Gather": frozenset({0}),
    "Gemm": frozenset({0, 1, 2}),
    "GroupNormalization": frozenset({1, 2}),
    "InstanceNormalization": frozenset({1, 2}),
    "LayerNormalization": frozenset({1, 2}),
    "MatMul": frozenset({0, 1}),
    "Mul": frozenset({0, 1}),
    "PRelu": frozenset({1}),
    "RMSNormalization": frozenset({1}),
    "Sub": frozenset({0, 1}),
}
"""Operator of ONNX -> inputs on whose values only the result's values depend."""

_ANY_RANK = frozenset({"Conv", "ConvTranspose", "Gemm", "PRelu"})
"""Operators whose scalar operands are weights too; in others a scalar is part of a formula."""

_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

_SIZES: Mapping[str, frozenset[int] | None] = {
    "AffineGrid": frozenset({1}),
    "BatchNormalization": frozenset({1, 2, 3, 4}),
    "CenterCropPad": frozenset({1}),
    "Clip": frozenset({1, 2}),
    "Col2Im": frozenset({1, 2}),
    "ConstantOfShape": frozenset({0}),
    "CumSum": frozenset({1}),
    "DFT": frozenset({1, 2}),
    "DequantizeLinear": frozenset({1, 2}),
    "Dropout": frozenset({1, 2}),
    "Expand": frozenset({1}),
    "If": frozenset({0}),
    "Loop": frozenset({0, 1}),
    "MaxUnpool": frozenset({2}),
    "NonMaxSuppression": None,
    "NonZero": None,
    "OneHot": frozenset({1, 2}),
    "Pad": frozenset({1, 2, 3}),
    "QuantizeLinear": frozenset({1, 2}),
    "Range": None,
    "Reshape": frozenset({1}),
    "Resize": frozenset({1, 2, 3}),
    "STFT": frozenset({1, 3}),
    "Slice": frozenset({1, 2, 3, 4}),
    "Split": frozenset({1}),
    "SplitToSequence": frozenset({1}),
    "Squeeze": frozenset({1}),
    "Tile": frozenset({1}),
    "TopK": frozenset({1}),
    "Trilu": frozenset({1}),
    "Unsqueeze": frozenset({1}),
    "Upsample": frozenset({1}),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), frozenset({0})),
    **dict.fromkeys(("Compress", "Unique"), None),
    **dict.fromkeys([f"Reduce{name}" for name in _REDUCTIONS], frozenset({1})),
}
"""Operator of ONNX -> inputs on whose values sizes, control flow or the build depend; None for all inputs."""

_SIZE_ONLY = frozenset({"Shape", "Size"})
"""Operators that depend on sizes only."""


def weights_among(
    initializers: Mapping[str, Any],
    nodes: Iterable[Any],
    results: Collection[str],
    *,
    opaque: Callable[[Any], bool],
) -> frozenset[str]:
    """Return the names of the initializers that are weights.

    Args:
        initializers: the graph's initializers by name.
        nodes: the nodes that the graph's outputs need.
        results: the names of the graph's outputs.
        opaque: returns whether a node may compute sizes from any of its inputs.
    """
    nodes = list(nodes)
    uses: dict[str, list[tuple[Any, int]]] = {name: [] for name in initializers}
    for node in nodes:
        for place, name in enumerate(node.input):
            if name in uses:
                uses[name].append((node, place))
    sizes = _Sizes(opaque)
    sizes.add(nodes)
    excluded = {*results, *sizes.inner, *sizes.sources()}
    return frozenset(
        name
        for name, tensor in initializers.items()
        if name not in excluded
        and tensor.data_type in _WEIGHT_TYPES
        and math.prod(tensor.dims)
        and uses[name]
        and all(_takes_whole(node, place, len(tensor.dims)) for node, place in uses[name])
    )


def _takes_whole(node: Any, place: int, rank: int) -> bool:
    if domain_of(node.domain) or place not in _WHOLE_OPERANDS.get(node.op_type, ()):
        return False
    return rank > 0 or node.op_type in _ANY_RANK


class _Sizes:
    """The tensors that sizes depend on, in a graph and those inside it."""

    def __init__(self, opaque: Callable[[Any], bool]) -> None:
        self._opaque = opaque
        self._made_from: dict[str, list[str]] = {}
        self._deciding: list[str] = []
        self.inner: set[str] = set()

    def add(self, nodes: Iterable[Any], *, inside: bool = False) -> None:
        """Add nodes; ``inside`` a graph of another node, also record the names of their inputs."""
        for node in nodes:
            given = [name for name in node.input if name]
            self.inner |= set(given) if inside else set()
            for graph in graphs_in(node):
                handed_on = [value.name for value in graph.output]  # a loop gives them to its next iteration
                for value in graph.input:
                    self._made_from.setdefault(value.name, []).extend([*given, *handed_on])
                self.inner |= {value.name for value in graph.output}
                self.add(graph.node, inside=True)
                given = [*given, *(value.name for value in graph.output)]
            places = None if self._opaque(node) else _SIZES.get(node.op_type, frozenset())
            self._deciding += [
                name for place, name in enumerate(node.input) if name and (places is None or place in places)
            ]
            for name in node.output:
                self._made_from.setdefault(name, []).extend([] if node.op_type in _SIZE_ONLY else given)

    def sources(self) -> set[str]:
        """Return the names of all tensors on whose values a size or control flow depends."""
        names: set[str] = set()
        pending = self._deciding
        while pending:
            name = pending.pop()
            if name not in names:
                names.add(name)
                pending += self._made_from.get(name, ())
        return names
