"""The cache request for a partition: its key and its name."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trtcache.digests import CacheKey
from trtcache.integrations.torch_tensorrt import settings as settings_of
from trtcache.integrations.torch_tensorrt.converters import converters_document, converters_of, declared_operators
from trtcache.integrations.torch_tensorrt.partition import describe
from trtcache.keys.graph_digest import graph_document, graph_records
from trtcache.target import host_platform

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    from torch import fx

    from trtcache.digests import Json
    from trtcache.integrations.torch_tensorrt.library import TorchTensorrt
    from trtcache.weights.fingerprints import Fingerprints

KIND = "torch_tensorrt"


@dataclass(frozen=True, slots=True)
class Conversion:
    """The arguments of one conversion by torch_tensorrt.

    ``bindings`` are names of the engine's inputs and outputs that a caller of 2.14 may pass.
    """

    module: fx.GraphModule
    inputs: Sequence[Any]
    settings: Any
    bindings: tuple[Any, Any] = (None, None)


@dataclass(frozen=True, slots=True)
class ConversionRequest:
    """A partition's key, and the graph that its entry stores."""

    key: CacheKey
    graph: dict[str, Json]
    is_refittable: bool


def request_for(
    library: TorchTensorrt,
    conversion: Conversion,
    *,
    name: str,
    fingerprints: Fingerprints,
    operator_versions: Mapping[str, str],
) -> ConversionRequest:
    """Return the request for a partition.

    A refittable engine is described without its weights' values, but with the names of its nodes, which torch_tensorrt
    uses to find its weights later. If TensorRT uses values anyway (to find sparse weights, or to refit identical ones
    only), they are in the key too. An engine for Windows cannot be loaded here, so it is not refitted.

    Raises:
        CanonicalizationError: something has no stable description.
    """
    module, settings = conversion.module, conversion.settings
    registry = library.converters
    registry.set_compilation_settings(settings)  # as torch_tensorrt's interpreter does before it looks up converters
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
    return ConversionRequest(CacheKey.of(KIND, parts), graph_document(program, records), is_refittable)


def entry_name(partition: str) -> str:
    """Return an entry's name: the program that built it, and torch_tensorrt's name for the partition."""
    return f"{Path(sys.argv[0]).stem} {partition}".strip() if sys.argv else partition


def _names(conversion: Conversion, *, every: bool) -> dict[str, Any]:
    """Return the names that are visible outside of the engine."""
    graph = conversion.module.graph
    named = [node.name for node in graph.nodes if every or node.op == "placeholder"]
    inputs, outputs = (None if given is None else list(given) for given in conversion.bindings)
    return {"nodes": named, "inputs": inputs, "outputs": outputs}


_ADAPTER = 1
"""Version of the adapter's entries. Increment it if a stored entry would behave differently."""


def toolchain_document(torch_tensorrt: ModuleType, tensorrt: ModuleType) -> dict[str, Any]:
    """Return the toolchain part of the key document."""
    features = torch_tensorrt.ENABLED_FEATURES
    return {
        "adapter": _ADAPTER,
        "torch_tensorrt": str(torch_tensorrt.__version__),
        "tensorrt": str(tensorrt.__version__),
        "torch": torch.__version__,
        "torch_git": torch.version.git_version,
        "cuda": torch.version.cuda,
        "features": {str(name): bool(value) for name, value in features._asdict().items()},
        "plugins": plugins(tensorrt),
    }


def plugins(tensorrt: ModuleType) -> list[list[str]]:
    """Return namespace, name and version of every registered plugin, including those of loaded libraries."""
    registry = tensorrt.get_plugin_registry()
    creators = getattr(registry, "all_creators", None) or getattr(registry, "plugin_creator_list", None) or ()
    return sorted([str(one.plugin_namespace), str(one.name), str(one.plugin_version)] for one in creators)


_WINDOWS = "win32-amd64"
_MEMORY_STEP = 4 << 30  # the usable part of 80 GB differs by a few hundred MB between drivers


def target_document(settings: Any) -> dict[str, Json]:
    """Return the target part of the key document.

    An L4 and an RTX 4090 have the same compute capability but need other kernels, so the product, the number of
    multiprocessors and the memory count too.
    """
    device = settings.device
    gpu = torch.cuda.get_device_properties(device.gpu_id)
    crosses = getattr(settings, "enable_cross_compile_for_windows", False)
    return {
        "platform": _WINDOWS if crosses else host_platform(),
        "product": str(gpu.name),
        "capability": f"{gpu.major}.{gpu.minor}",
        "multiprocessors": int(gpu.multi_processor_count),
        "memory_gib": memory_gib(int(gpu.total_memory)),
        "device_type": str(getattr(device.device_type, "name", device.device_type)),
        "dla_core": int(device.dla_core),
        "allow_gpu_fallback": bool(device.allow_gpu_fallback),
    }


def memory_gib(total_bytes: int) -> int:
    """Return a GPU's memory class: the reported size rounded up to 4 GiB (79.1 GiB is 80)."""
    return -(-total_bytes // _MEMORY_STEP) * (_MEMORY_STEP >> 30)
