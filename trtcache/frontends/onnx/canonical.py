"""The canonical form of an ONNX graph: records in the format of ``trtcache.keys.graph_digest``, and one digest.

A node's digest covers its operator, its attributes with the defaults of its schema, and its operands' digests in
order. Inputs enter by position, weights by slot number with dtype and shape, constants by content. The graph is
traversed from its outputs. So the digest does not depend on names of nodes, tensors and initializers, on the order of
unrelated nodes, on dead nodes and unused initializers, or on documentation and metadata.

A graph inside a node (a branch, a loop's body) enters by a digest of its own, in which tensors from outside are
numbered by first use; the node has them as operands. Local functions are inlined before.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import Digest, Json, hash_bytes
from trtcache.frontends.onnx.file import TYPES, OnnxFile, digest_of_texts
from trtcache.frontends.onnx.schemas import (
    FIELDS,
    Schemas,
    domain_of,
    graphs_in,
    weights_among,
)
from trtcache.keys.stored_graph import SELECTION
from trtcache.weights.slots import Slot, contiguous

if TYPE_CHECKING:
    from trtcache.frontends.onnx.interface import Port

FORMAT = 2
"""Version of the canonical form. Changing it changes the key of every ONNX file."""


@frozen_dataclass
class CanonicalGraph:
    """A graph in canonical form.

    Attributes:
        digest: the digest of its outputs.
        records: a record for each tensor, in canonical order; the last is the output.
        slots: its weights, with the file's names for them, in the order of first use.
        operators: the names of the arguments of each operator.
        opsets: the versions of the domains whose operators it uses.
        foreign: the operators that neither ONNX nor the file defines.
    """

    digest: Digest
    records: Sequence[Json]
    slots: tuple[Slot, ...]
    operators: Mapping[str, Json]
    opsets: Mapping[str, int]
    foreign: tuple[str, ...]

    def document(self) -> dict[str, Json]:
        """Return the member ``graph.json`` of an artifact."""
        return {"format": 1, "operators": dict(self.operators), "sizes": [], "nodes": list(self.records)}


def canonical_graph(file: OnnxFile, inputs: Sequence[Port]) -> CanonicalGraph:
    """Return the canonical form of a file's graph."""
    graph = file.model.graph
    known = Operators(file)
    results = [value.name for value in graph.output]
    needed = [graph.node[at] for at in needed_nodes(graph)]
    weights = weights_among(file.initializers, needed, results, opaque=known.opaque)
    ports = {port.name: (place, port) for place, port in enumerate(inputs)}
    slots: list[Slot] = []

    def leaf(name: str) -> list[Json]:
        tensor = file.initializers.get(name)
        if tensor is None:
            if name not in ports:
                raise file.error(f"its graph uses {name!r}, which nothing produces")
            place, port = ports[name]
            # The device of the first backends for files, whatever the backend: the key has the backend and its target.
            return ["input", [place], [port.dtype, list(port.declared), "cuda"], None]
        if name in weights:  # numbered in the order of their records
            shape = tuple(tensor.dims)
            slots.append(Slot(len(slots), TYPES[tensor.data_type].name, shape, contiguous(shape), "cpu", (name,)))
            return ["weight", [{"slot": slots[-1].index}], slots[-1].document()]
        digest, dtype, sizes = file.document(tensor)
        return ["constant", [digest], [dtype, sizes, "cpu"]]

    walk = GraphWalk(known, graph, leaf)
    digests = [walk.digest(name) for name in results]
    whole = digest_of(["output", len(results)], digests)
    uses: dict[int, int] = {}
    returned: list[Json] = [
        ["result", None, {"$use": uses.setdefault(walk.places[name], len(uses))}] for name in results
    ]
    return CanonicalGraph(
        digest=Digest(whole.hex(), sum(map(len, digests))),
        records=[*walk.records, ["output", returned, list(uses)]],
        slots=tuple(slots),
        operators=walk.operators,
        opsets={domain or "ai.onnx": version for domain, version in sorted(known.used.items())},
        foreign=tuple(sorted(known.foreign)),
    )


def needed_nodes(graph: Any) -> list[int]:
    """Return the indices of the nodes that a graph's outputs need, in the file's order."""
    producers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    needed: set[int] = set()
    pending = [producers[value.name] for value in graph.output if value.name in producers]
    while pending:
        index = pending.pop()
        if index not in needed:
            needed.add(index)
            pending += [producers[name] for name in _used_names(graph.node[index]) if name in producers]
    return sorted(needed)


def _used_names(node: Any) -> list[str]:
    """Return the names of the tensors that a node and the graphs inside it use."""
    inside = graphs_in(node)
    names = [name for graph in inside for inner in graph.node for name in _used_names(inner)]
    return [*node.input, *names, *(value.name for graph in inside for value in graph.output)]


encoded = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode

_GRAPHS = frozenset({5, 10})

_RANDOM = frozenset(
    (
        *("Bernoulli", "Dropout", "Multinomial"),
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    )
)


def digest_of(head: Json, digests: Iterable[bytes] = ()) -> bytes:
    """Return the digest of a record and of the digests of its operands."""
    text = encoded(head)
    return hash_bytes(b"".join([f"{len(text)}:{text}".encode(), *digests]))


@frozen_dataclass
class Body:
    """A graph inside a node: its digest, and the names of tensors from outside, in the order of first use."""

    digest: str
    outer: tuple[str, ...]


class Operators:
    """The operators of a model.

    Attributes:
        file: the model's file.
        used: the versions of the domains whose operators were recorded.
        foreign: the recorded operators that neither ONNX nor the model defines, ``domain::Operator``.
    """

    def __init__(self, file: OnnxFile) -> None:
        """Create the operators of a file."""
        self.used: dict[str, int] = {}
        self.foreign: set[str] = set()
        self.file = file
        self._versions = {domain_of(one.domain): one.version for one in file.model.opset_import}
        self._schemas = Schemas()

    def name(self, node: Any) -> str:
        """Return the name of a node's operator in records."""
        domain = domain_of(node.domain)
        if "." in node.op_type:
            return encoded([domain, node.op_type])
        return f"{domain}.{node.op_type}" if domain else str(node.op_type)

    def is_random(self, node: Any) -> bool:
        """Return whether a node's results may differ from call to call; those of unknown operators may."""
        inner = any(self.is_random(one) for graph in graphs_in(node) for one in graph.node)
        return inner or node.op_type in _RANDOM or self._schema(node) is None

    def opaque(self, node: Any) -> bool:
        """Return whether a node may compute sizes from any of its inputs."""
        return self._schema(node) is None

    def _schema(self, node: Any) -> Any:
        domain = domain_of(node.domain)
        version = self._versions.get(domain)
        return self._schemas.find(domain, node.op_type, version) if version else None

    def record(
        self, node: Any, use: Callable[[str], Json], bodies: Mapping[str, Sequence[Body]]
    ) -> tuple[list[Json], list[str]]:
        """Return ``[operator, arguments, None]`` of a node, and the names of the arguments.

        Args:
            node: a ``NodeProto``.
            use: returns the reference to the tensor of a name.
            bodies: the graphs inside it, by attribute.
        """
        given = {one.name: self._attribute(one, use, bodies.get(one.name, ())) for one in node.attribute}
        operands: list[Json] = [use(name) if name else None for name in node.input]
        present = [int(bool(name)) for name in node.output]
        shown: list[Json] = [] if present == [1] else [list(present)]
        domain, schema = domain_of(node.domain), self._schema(node)
        if domain in self._versions:
            self.used[domain] = self._versions[domain]
        if schema is None:
            self.foreign.add(f"{domain or 'ai.onnx'}::{node.op_type}")
            given |= {one.name: {"empty": one.type} for one in node.attribute if given[one.name] == []}
            return [self.name(node), [operands, dict(given), *shown], None], ["", "attributes"]
        for name, default in schema.attributes.items():
            if name not in given:
                given[name] = None if default is None else self._attribute(default, use, ())
        # One operand for each in the schema; the last is a list if it is variadic.
        count, names = len(schema.operands), sorted(schema.attributes)
        # Attributes that the schema does not have: a parser may read them all the same.
        unknown = {name: given[name] for name in given if name not in schema.attributes}
        others: list[Json] = [unknown] if unknown else []
        if schema.variadic:
            operands = [*operands[: count - 1], operands[count - 1 :]]
        else:
            operands += [None] * (count - len(operands))
        arguments = [*operands, *(given[name] for name in names), *others, *shown]
        labels = [*schema.operands, *names, *(["other attributes"] if others else []), "outputs"]
        return [self.name(node), arguments, None], labels

    def _attribute(self, attribute: Any, use: Callable[[str], Json], bodies: Sequence[Body]) -> Json:
        """Return an attribute's value."""
        if attribute.ref_attr_name:
            return {"attribute": attribute.ref_attr_name}
        if attribute.type in _GRAPHS:
            return [[{"graph": body.digest}, *map(use, body.outer)] for body in bodies]
        if attribute.type not in FIELDS:
            raise self.file.error(f"attribute {attribute.name!r} is of a kind ({attribute.type}) that is not known")
        field, several = FIELDS[attribute.type]
        value = getattr(attribute, field)
        return [self._value(field, one) for one in value] if several else self._value(field, value)

    def _value(self, field: str, value: Any) -> Json:
        match field:
            case "f" | "floats":
                return {"$float": float(value).hex()}
            case "i" | "ints":
                return int(value)
            case "s" | "strings":
                try:
                    return str(value.decode())
                except UnicodeDecodeError:
                    return {"$bytes": value.hex()}
            case "t" | "tensors":
                return {"tensor": self.file.document(value)}
            case "sparse_tensor" | "sparse_tensors":
                return {"sparse": self.sparse(value)}
        return {"type": type_of(value)}

    def constant(self, node: Any) -> list[Json] | None:
        """Return the record of a ``Constant`` node, whatever attribute has its value; None for other nodes."""
        if node.op_type != "Constant" or domain_of(node.domain) or len(node.attribute) != 1:
            return None
        (given,) = node.attribute
        if given.ref_attr_name:
            return None
        match given.name:
            case "value":
                digest, *kind = self.file.document(given.t)
                return ["constant", [digest], [*kind, "cpu"]]
            case "sparse_value":
                return self.sparse_constant(given.sparse_tensor)
            case "value_float" | "value_floats":
                return _numbers("float32", "f", [given.f] if given.type == 1 else given.floats, given.type == 1)
            case "value_int" | "value_ints":
                return _numbers("int64", "q", [given.i] if given.type == 2 else given.ints, given.type == 2)
        texts = [given.s] if given.type == 3 else list(given.strings)
        return ["constant", [str(digest_of_texts(texts))], ["string", [] if given.type == 3 else [len(texts)], "cpu"]]

    def sparse_constant(self, tensor: Any) -> list[Json]:
        """Return the record of a sparse constant."""
        return ["constant", [{"sparse": self.sparse(tensor)}], ["sparse", list(tensor.dims), "cpu"]]

    def sparse(self, tensor: Any) -> list[Json]:
        """Return a sparse tensor: its shape, values and indices."""
        return [list(tensor.dims), self.file.document(tensor.values), self.file.document(tensor.indices)]

    def body(self, graph: Any) -> Body:
        """Return the digest of a graph inside a node."""
        places = {one.name: place for place, one in enumerate(graph.input)}
        constants = {one.name: one for one in graph.initializer}
        outer: dict[str, int] = {}

        def leaf(name: str) -> list[Json]:
            if name in constants:
                digest, *kind = self.file.document(constants[name])
                return ["constant", [digest], kind]
            if name in places:
                return ["inner input", [places[name]]]
            return ["outer", [outer.setdefault(name, len(outer))]]

        walk = GraphWalk(self, graph, leaf)
        digests = [walk.digest(one.name) for one in graph.output]
        kinds = [[type_of(one.type, sizes=False) for one in values] for values in (graph.input, graph.output)]
        return Body(digest_of(["graph", *kinds], digests).hex(), tuple(outer))


def type_of(proto: Any, *, sizes: bool = True) -> Json:
    """Return a ``TypeProto`` with its sizes, or their number, and without names of sizes and documentation."""
    kind = proto.WhichOneof("value")
    if kind in {"sequence_type", "optional_type"}:
        return [kind, type_of(getattr(proto, kind).elem_type, sizes=sizes)]
    if kind == "map_type":
        return [kind, proto.map_type.key_type, type_of(proto.map_type.value_type, sizes=sizes)]
    if kind is None:
        return None
    if kind == "opaque_type":
        return [kind, proto.opaque_type.SerializeToString().hex()]
    tensor = getattr(proto, kind)
    shape: list[Json] = [one.dim_value if one.HasField("dim_value") else None for one in tensor.shape.dim]
    return [kind, tensor.elem_type, (shape if sizes else len(shape)) if tensor.HasField("shape") else None]


def _numbers(dtype: str, code: str, values: Sequence[float], scalar: bool) -> list[Json]:
    content = struct.pack(f"<{len(values)}{code}", *values)
    return ["constant", [str(Digest.of(content))], [dtype, [] if scalar else [len(values)], "cpu"]]


class GraphWalk:
    """Records and digests of the tensors of a graph.

    A record is ``[operator, arguments, result, uses]``: in the arguments a tensor is ``{"$use": k}``, the k-th operand
    of the node, and ``uses`` has the operands' indices in the list of records.

    Attributes:
        records: the records in canonical order.
        operators: the names of the arguments of each recorded operator.
        places: the index of each recorded tensor's record, by name.
    """

    def __init__(self, known: Operators, graph: Any, leaf: Callable[[str], list[Json]]) -> None:
        """Prepare the traversal of a graph.

        Args:
            known: the model's operators.
            graph: the ``GraphProto``.
            leaf: returns the record of a tensor that is neither a node's nor a sparse initializer, without ``uses``;
                called once for each name.
        """
        self.records: list[Json] = []
        self.operators: dict[str, Json] = {}
        self.places: dict[str, int] = {}
        self._known, self._leaf = known, leaf
        self._sparse = {one.values.name: one for one in graph.sparse_initializer}
        self._nodes = list(graph.node)
        self._makers = {
            name: (at, place) for at, node in enumerate(self._nodes) for place, name in enumerate(node.output) if name
        }
        random = [at for at, node in enumerate(self._nodes) if known.is_random(node)]
        self._random = {at: number for number, at in enumerate(random)}
        self._bodies: dict[int, dict[str, list[Body]]] = {}
        self._made: dict[int, tuple[bytes, int]] = {}
        self._digests: dict[str, bytes] = {}

    def digest(self, wanted: str) -> bytes:
        """Record a tensor after the tensors that it depends on, and return its digest.

        Raises:
            OnnxFileError: the graph has a cycle, or something in it cannot be read.
        """
        stack, entered = [wanted], set()
        while stack:
            name = stack[-1]
            producer = None if name in self._digests else self._makers.get(name)
            missing = [needed for needed in self._needs(producer[0]) if needed not in self._digests] if producer else []
            if missing and producer:
                if producer[0] in entered:
                    raise self._known.file.error(f"its node {self._nodes[producer[0]].name!r} depends on itself")
                entered.add(producer[0])
                stack += reversed(missing)
                continue
            stack.pop()
            if name in self._digests:
                continue
            if producer is not None:
                self._add_output(name, *producer)
            elif (sparse := self._sparse.get(name)) is not None:
                self._add_leaf(name, self._known.sparse_constant(sparse))
            else:
                self._add_leaf(name, self._leaf(name))
        return self._digests[wanted]

    def _needs(self, at: int) -> list[str]:
        """Return the names of the tensors that a node and the graphs inside it use."""
        if at not in self._bodies:
            self._bodies[at] = {
                field.name: [self._known.body(graph) for graph in ([field.g] if field.HasField("g") else field.graphs)]
                for field in self._nodes[at].attribute
                if field.type in _GRAPHS
            }
        given = [name for name in self._nodes[at].input if name]
        outer = [name for _, bodies in sorted(self._bodies[at].items()) for body in bodies for name in body.outer]
        return [*given, *outer]

    def _add_leaf(self, name: str, head: list[Json]) -> None:
        self._digests[name] = digest_of(head)
        self.places[name] = len(self.records)
        self.records.append([*head, []])

    def _add_output(self, name: str, at: int, place: int) -> None:
        """Record a node, and the selection of one of its outputs if it has several."""
        node = self._nodes[at]
        constant = self._known.constant(node)
        if constant is not None:
            self._add_leaf(name, constant)
            return
        if at not in self._made:
            uses: dict[bytes, str] = {}  # by digest, so that equal operands are one

            def use(operand: str) -> Json:
                uses.setdefault(self._digests[operand], operand)
                return {"$use": list(uses).index(self._digests[operand])}

            head, names = self._known.record(node, use, self._bodies[at])
            self.operators[self._known.name(node)] = list(names)
            if at in self._random:
                head.append(self._random[at])
            self._made[at] = digest_of(head, uses), len(self.records)
            self.records.append([*head, [self.places[operand] for operand in uses.values()]])
        digest, where = self._made[at]
        if [one for one in node.output if one] != [name] or place:
            selection: list[Json] = [SELECTION, [{"$use": 0}, place], None]
            self.records.append([*selection, [where]])
            digest, where = digest_of(selection, [digest]), len(self.records) - 1
        self._digests[name], self.places[name] = digest, where
