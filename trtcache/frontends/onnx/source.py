"""ONNX files as sources, and their requests."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.utils import _pytree as pytree

from trtcache.backends import registry
from trtcache.backends.protocol import CONSTANTS, ENGINE, GRAPH, INTERFACE, WEIGHT_MAP, interface_document
from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import CacheKey, json_bytes
from trtcache.errors import CanonicalizationError, ExportError, OnnxFileError, SettingsError
from trtcache.frontends.onnx.canonical import FORMAT, CanonicalGraph, canonical_graph
from trtcache.frontends.onnx.file import OnnxFile
from trtcache.frontends.onnx.interface import OnnxInterface, ShapeProfile, is_input, read_ports, resolve_sizes
from trtcache.frontends.onnx.weights import KnownGraph, OnnxWeights, make_parser_model
from trtcache.frontends.request import Request
from trtcache.frontends.source import CompileOptions, Source, Specs
from trtcache.keys.stored_graph import StoredGraph
from trtcache.settings import Settings
from trtcache.weights.slots import weight_map

if TYPE_CHECKING:
    from trtcache.backends.protocol import Artifact, Backend
    from trtcache.keys.key import KeyAlias
    from trtcache.lowering import LoweredProgram
    from trtcache.lowering.interface import Interface
    from trtcache.store.contract import Entry
    from trtcache.store.format import Built


_EXPORTER_PACKAGES = frozenset({"torch", "onnx", "onnxscript", "onnx_ir", "numpy", "ml_dtypes"})
"""Parts of the toolchain that export programs of torch to ONNX."""

_NOT_FOR_ONNX = {
    "autocast": "precision is in the file: convert the model, or export it in that precision",
    "autocast_exclude": "precision is in the file: convert the model, or export it in that precision",
    "torch_executed_modules": "a file has no modules, and all of it is one plan",
    "torch_executed_ops": "all of a file is one plan",
    "min_block_size": "all of a file is one plan",
    "on_build_failure": "torch does not run ONNX",
}
_DEFAULTS = Settings()
_NO_TENSORS = (2).to_bytes(8, "little") + b"{}"
"""A safetensors file without tensors."""


class OnnxSource(Source):
    """An ONNX file, with example inputs for its dynamic sizes.

    A hit goes from the fingerprint, which covers all bytes of the file and of its external data, through the key alias
    to the plan; names of inputs and outputs come from the plan's key. The file is parsed only for the weights of a
    refittable plan.

    A retrained file has another fingerprint, so it is parsed. Its key is the same, and its plan a hit, unless the
    weights are embedded in the plan. ``request`` takes the place of lowering: it parses the file, makes the key,
    and returns an ``OnnxRequest``. On a miss, ``Cache.get_or_build_key`` then calls its ``build``, which calls
    ``Backend.build_onnx``. There is nothing to export, so no second look-up and no manifest of direct mode. The
    program is always one engine, and no part of it runs in torch.
    """

    fingerprint_name: ClassVar[str] = "onnx"
    is_torch: ClassVar[bool] = False

    def __init__(
        self,
        path: Path,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        dynamic_shapes: object,
        name: str | None,
    ) -> None:
        """Open, map and hash a file; it is not parsed yet.

        Args:
            path: the file.
            args: an ``Input``, ``ShapeProfile``, tensor, array or None for each input, in the file's order.
            kwargs: the same by name.
            dynamic_shapes: None.
            name: its name in reports; by default the file's.

        Raises:
            SettingsError: ``dynamic_shapes`` were passed.
        """
        if dynamic_shapes is not None:
            how = "args=(trtcache.Input(min_shape=..., opt_shape=..., max_shape=...),)"
            raise SettingsError(
                "dynamic_shapes", f"an ONNX file declares its dynamic sizes; give their ranges with {how}"
            )
        self.file, self.name = OnnxFile(path), name or path.stem
        self._args, self._kwargs = tuple(args), dict(kwargs or {})
        self._device_type = "cuda"

    @property
    def label(self) -> str:
        """The file's path."""
        return str(self.file.path)

    @property
    def device(self) -> torch.device:
        """The device of inputs and outputs: of the backend that ``find_backend`` returned; without a GPU the CPU."""
        if self._device_type != "cuda":
            return torch.device(self._device_type)
        return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")

    def find_backend(self, options: CompileOptions) -> Backend:
        """Return the backend that parses the file.

        Raises:
            BackendUnavailableError: the backend does not read ONNX, is unknown, or cannot build here.
            SettingsError: a setting does not apply to files.
        """
        backend, self._device_type = registry.find_for_onnx(options.backend)
        for setting, why in _NOT_FOR_ONNX.items():
            value = getattr(options.settings, setting)
            if value and value != getattr(_DEFAULTS, setting):
                raise SettingsError(f"settings.{setting}", why)
        registry.check_settings(backend, options.settings)
        return backend

    def toolchain(self, backend: Backend) -> Mapping[str, Any]:
        """Return the versions that the build depends on, without those of exporters from torch."""
        return {
            name: value for name, value in backend.versions(self._device_type).items() if name not in _EXPORTER_PACKAGES
        }

    def fingerprint(self) -> Mapping[str, object]:
        """Return the digests of the file and of its external data, and the sizes of the arguments."""
        external = self.file.external
        try:
            locations = self.file.scan_locations()
            digests = external.digests(locations)
        except OnnxFileError:
            digests = external.digests(self.file.locations)  # the scan failed; the parser's error names the tensor
        given = {"args": list(map(_describe, self._args)), "kwargs": {k: _describe(v) for k, v in self._kwargs.items()}}
        return {self.fingerprint_name: self.file.digest, "external": digests, "sizes": given}

    def input_names(self, key: CacheKey) -> tuple[str, ...]:
        """Return the file's names for its inputs."""
        return port_names(key)[0]

    def specs_of(self, key: CacheKey) -> Specs:
        """Return the pytree specs: inputs by position, and a tuple of outputs."""
        return specs_for(*port_names(key))

    def interface_on_device(self, interface: Interface) -> Interface:
        """Return an interface with its inputs and outputs on this machine's device, which may be the CPU for builds."""
        inputs = tuple(replace(tensor, device=self.device.type) for tensor in interface.inputs)
        outputs = tuple(replace(tensor, device=self.device.type) for tensor in interface.outputs)
        return replace(interface, inputs=inputs, outputs=outputs)

    def weights(self, names: Collection[str]) -> FileWeights:
        """Return weights by the file's names for them; the file is parsed when the first one is read."""
        return FileWeights(self.file, names)

    def engine_weights(
        self, interface: Interface, alias: KeyAlias, state: Mapping[str, torch.Tensor]
    ) -> Mapping[str, torch.Tensor]:
        """Return the plan's weights by its names for them; empty for a plan with embedded weights."""
        del interface
        parts = alias.key.parts
        embedded = isinstance(parts, dict) and "frozen" in parts
        return {} if embedded else {f"w{at}": state[names[0]] for at, names in enumerate(alias.names)}

    def weight_file(self, key: CacheKey, interface: Interface, entry: Entry) -> OnnxWeights:
        """Return the reader of weights for refits from another ONNX file."""
        parts = key.parts
        content = bytes(entry.read(GRAPH))
        digest, opsets = parts["graph"]["$digest"], parts["opsets"]
        known = KnownGraph(digest, opsets, interface.slots, lambda: StoredGraph.of(json.loads(content)))
        return OnnxWeights(self.file, known)

    def check_content(self, expected: object) -> None:
        """Check that the file was not written to since it was opened."""
        del expected
        self.release()

    def release(self) -> None:
        """Drop the parsed model; the file stays mapped for its weights."""
        self.file.check_unchanged()
        self.file.release()

    def request(self, options: CompileOptions) -> OnnxRequest:
        """Parse the file and make its key."""
        backend = self.find_backend(options)
        target = backend.target(options.target, self.device)
        start = time.perf_counter()
        inputs, outputs = read_ports(self.file)
        ports = OnnxInterface(inputs, outputs, resolve_sizes(inputs, self._args, self._kwargs, backend.name))
        graph = canonical_graph(self.file, inputs)
        interface = ports.interface(graph.slots, self._device_type)
        read_s = time.perf_counter() - start
        option_parts = self.option_parts(backend, options.settings, target)
        key = _make_key(self.file, backend, options.settings, ports, graph, interface, option_parts)
        key_s = time.perf_counter() - start - read_s
        in_spec, out_spec = specs_for(*ports.names)
        program = OnnxProgram(
            self.name,
            self.interface_on_device(interface),
            self.device,
            FileWeights(self.file, [slot.names[0] for slot in graph.slots]),
            in_spec,
            out_spec,
            {"export": 0.0, "decompose": 0.0, "lower": read_s},
        )
        return OnnxRequest(
            program=program,
            backend=backend,
            settings=options.settings,
            target=target,
            key=key,
            key_s=key_s,
            input_names=ports.names[0],
            _file=self.file,
            _ports=ports,
            _graph=graph,
            _interface=interface,
        )

    def lower(self, options: CompileOptions, *, trace: bool = False) -> LoweredProgram:
        """Raise ExportError: TensorRT's parser reads the file, and nothing is lowered."""
        del options, trace
        why = "it is an ONNX file, which compile, key and build read and whose graph is not lowered"
        raise ExportError(self.label, f"{why}; give a .pt2 file that torch.export.save wrote")

    def program(self) -> torch.export.ExportedProgram:
        """Raise ExportError: torch does not run ONNX."""
        raise ExportError(self.label, "it is an ONNX file, which torch neither runs nor exports")


@frozen_dataclass
class OnnxProgram:
    """The counterpart of ``LoweredProgram`` for an ONNX file, with the attributes that compiled modules use."""

    name: str
    interface: Interface
    device: torch.device
    state: Mapping[str, torch.Tensor]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec
    seconds: Mapping[str, float]
    constants: Mapping[str, torch.Tensor] = field(default_factory=dict)
    constant_contents: Mapping[str, Any] = field(default_factory=dict)
    example_sizes: Mapping[int, int] = field(default_factory=dict)
    live: frozenset[str] = frozenset()


@frozen_dataclass(kw_only=True)
class OnnxRequest(Request):
    """The request for the plan of an ONNX file."""

    program: OnnxProgram
    backend: Backend
    _file: OnnxFile
    _ports: OnnxInterface
    _graph: CanonicalGraph
    _interface: Interface

    route: ClassVar[str] = "read"
    is_torch: ClassVar[bool] = False

    @property
    def partitions(self) -> dict[int, OnnxRequest]:
        """The request itself: a file is one plan."""
        return {0: self}

    def build(self, folder: Path) -> Artifact:
        """Build the plan. This changes the parsed model, which is parsed again if it is needed again."""
        model = make_parser_model(self._file, self._graph.slots)
        artifact = self.backend.build_onnx(
            model, self._interface, self._ports.ranges(), self.settings, self.target, folder
        )
        self._file.check_unchanged()
        return artifact

    def members(self, artifact: Artifact) -> Built:
        """Return the members of the plan's entry."""
        return {
            ENGINE: artifact.engine,
            CONSTANTS: _NO_TENSORS,
            WEIGHT_MAP: json_bytes(weight_map(self._interface.weights)),
            INTERFACE: json_bytes(interface_document(self._interface, {})),
            GRAPH: json_bytes(self._graph.document()),
            **artifact.members,
        }

    def graph(self) -> StoredGraph:
        """Return the canonical graph in the form that entries store."""
        return StoredGraph.of(self._graph.document())

    def engine_weights(self) -> Mapping[str, torch.Tensor]:
        """Return the plan's weights by its names for them; empty for a plan with embedded weights."""
        if not self.backend.takes_weights(self.settings):
            return {}
        return {f"w{slot.index}": self.program.state[slot.names[0]] for slot in self._graph.slots}

    def weight_file(self) -> OnnxWeights:
        """Return the reader of weights for refits from another ONNX file."""
        document, graph = self._graph.document, self._graph
        known = KnownGraph(str(graph.digest), graph.opsets, self._interface.slots, lambda: StoredGraph.of(document()))
        return OnnxWeights(self._file, known)


class FileWeights(Mapping[str, "torch.Tensor"]):
    """Weights of an ONNX file by name. Each is read when it is used; the first access parses the file."""

    def __init__(self, file: OnnxFile, names: Collection[str]) -> None:
        """Create a mapping of some names to weights in a file."""
        self._file, self._names = file, tuple(names)

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._file.tensor(self._file.initializers[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def specs_for(inputs: Sequence[str], outputs: Sequence[str]) -> Specs:
    """Return the pytree specs of a file's arguments and outputs: inputs by position, and a tuple of outputs."""
    arguments = pytree.tree_structure((tuple(range(len(inputs))), {}))
    return arguments, pytree.tree_structure(tuple(range(len(outputs))))


def port_names(key: CacheKey) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of inputs and outputs in the key of an ONNX file's plan.

    Raises:
        ValueError: the key is of another kind of program.
    """
    parts = key.parts
    try:
        return tuple(parts["names"]["inputs"]), tuple(parts["names"]["outputs"])
    except (LookupError, TypeError) as error:
        raise ValueError("its key is not that of an ONNX file") from error


def _describe(given: Any) -> object:
    """Return the description of an input's argument in an alias's key."""
    if is_input(given):
        return [str(given.dtype), *map(list, given.bounds())]
    if isinstance(given, ShapeProfile):
        return ["", list(given.minimum), list(given.optimal), list(given.maximum)]
    if hasattr(given, "shape") and hasattr(given, "dtype"):
        return [str(given.dtype), [int(size) for size in given.shape]]
    return None if given is None else repr(type(given))


def _make_key(
    file: OnnxFile,
    backend: Backend,
    settings: Settings,
    ports: OnnxInterface,
    graph: CanonicalGraph,
    interface: Interface,
    option_parts: Mapping[str, object],
) -> CacheKey | CanonicalizationError:
    """Return the key of a plan, or the reason that it has none.

    The names of inputs and outputs are part of it, since the plan has them. So are the declared sizes of outputs, which
    are stored, which the parser cannot infer for all outputs, and which a builder may believe.
    """
    declared = set(settings.operator_versions)
    if unknown := [name for name in graph.foreign if not {name, name.partition("::")[0]} & declared]:
        return CanonicalizationError(
            f"operator {unknown[0]}",
            f"neither ONNX nor the file defines it; declare its version: "
            f"settings={{'operator_versions': {{{unknown[0]!r}: '1'}}}}",
        )
    inputs, outputs = ports.names
    parts = {
        "onnx": FORMAT,
        "graph": graph.digest,
        "opsets": dict(graph.opsets),
        "names": {"inputs": list(inputs), "outputs": list(outputs)},
        "inputs": [tensor.document() for tensor in interface.inputs],
        "declared": [list(port.declared) for port in ports.inputs],
        "outputs": [[port.dtype, list(port.declared) if port.ranked else None] for port in ports.outputs],
        "values": [],
        "layouts": [result.layout for result in interface.results],
        "sizes": list(interface.ranges),
        "usual": [list(sizes.optimal) for sizes in ports.sizes],
        **option_parts,
    }
    try:
        if graph.slots and not backend.takes_weights(settings):  # the weights are embedded in the plan
            digest = file.tensor_digest
            parts["frozen"] = [[slot.index, digest(file.initializers[slot.names[0]])] for slot in graph.slots]
        return CacheKey.of(backend.name, parts)
    except CanonicalizationError as error:
        return error
