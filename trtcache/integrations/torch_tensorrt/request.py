"""What is asked of the cache for one partition: its key, and what people are to be told of it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtcache.digests import CacheKey
from trtcache.integrations.torch_tensorrt import settings as settings_of
from trtcache.integrations.torch_tensorrt.converters import converters_document, converters_of, declared_operators
from trtcache.integrations.torch_tensorrt.partition import describe
from trtcache.integrations.torch_tensorrt.target import target_document
from trtcache.integrations.torch_tensorrt.toolchain import toolchain_document
from trtcache.keys.graph_digest import graph_document, graph_records

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import fx

    from trtcache.digests import Json
    from trtcache.integrations.torch_tensorrt.library import Library
    from trtcache.weights.fingerprints import Fingerprints

KIND = "torch_tensorrt"


@dataclass(frozen=True, slots=True)
class Conversion:
    """The arguments of one conversion of torch_tensorrt.

    ``bindings`` are the names that a caller of 2.14 may give the engine's inputs and outputs.
    """

    module: fx.GraphModule
    inputs: Sequence[Any]
    settings: Any
    bindings: tuple[Any, Any] = (None, None)


@dataclass(frozen=True, slots=True)
class Request:
    """A partition's key, and the graph that an entry keeps of it."""

    key: CacheKey
    graph: dict[str, Json]
    is_refittable: bool


def request_for(
    library: Library,
    conversion: Conversion,
    *,
    name: str,
    fingerprints: Fingerprints,
    operator_versions: Mapping[str, str],
) -> Request:
    """Return the request for a partition.

    An engine that can be refitted is described without its weights' values, but with the names of its nodes: what
    torch_tensorrt finds its weights by later. Where TensorRT uses values all the same (to find sparse weights, or to
    refit identical ones only), they are in the key too. An engine for Windows cannot be loaded here, so not refitted.

    Raises:
        CanonicalizationError: something has no stable description.
    """
    module, settings = conversion.module, conversion.settings
    registry = library.converters
    registry.set_compilation_settings(settings)  # as torch_tensorrt's interpreter does before it asks for converters
    crosses = getattr(settings, "enable_cross_compile_for_windows", False)
    is_refittable = not (settings.immutable_weights or crosses) and library.has_refit()
    reads_values = settings.sparse_weights or settings.refit_identical_engine_weights
    program = describe(module, fingerprints, name=name, refittable=is_refittable and not reads_values)
    converters = converters_of(module, registry)
    records, digest = graph_records(program, {*declared_operators(converters), *operator_versions})
    parts = {
        "graph": digest,
        "inputs": settings_of.inputs_document(conversion.inputs),
        "names": _names(conversion, every=is_refittable),
        "weights": "refittable" if is_refittable else "frozen",
        "converters": converters_document(converters),
        "operator_versions": dict(operator_versions),
        "settings": settings_of.document(settings),
        "target": target_document(settings),
        "toolchain": toolchain_document(library.package, library.tensorrt),
    }
    return Request(CacheKey.of(KIND, parts), graph_document(program, records), is_refittable)


def entry_name(partition: str) -> str:
    """Return what people see an entry as: the program that made it, and torch_tensorrt's name for the partition."""
    return f"{Path(sys.argv[0]).stem} {partition}".strip() if sys.argv else partition


def _names(conversion: Conversion, *, every: bool) -> dict[str, Any]:
    """Return the names that can be seen from outside the engine."""
    graph = conversion.module.graph
    named = [node.name for node in graph.nodes if every or node.op == "placeholder"]
    inputs, outputs = (None if given is None else list(given) for given in conversion.bindings)
    return {"nodes": named, "inputs": inputs, "outputs": outputs}
