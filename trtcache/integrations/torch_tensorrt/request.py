"""The cache request for a partition: its key, with all settings that an engine depends on, and its name."""

from __future__ import annotations

import enum
import sys
from collections.abc import Collection, Mapping, Sequence, Set
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import CacheKey, Json
from trtcache.errors import CanonicalizationError
from trtcache.integrations.torch_tensorrt.partition import (
    converters_document,
    converters_of,
    declared_operators,
    describe,
)
from trtcache.keys.graph_digest import graph_document, graph_records
from trtcache.target import host_platform

if TYPE_CHECKING:
    from torch import fx

    from trtcache.integrations.torch_tensorrt.installation import TorchTensorrt
    from trtcache.weights.fingerprints import Fingerprints

LEFT_OUT: Mapping[str, str] = {
    "autocast_calibration_dataloader": "used while the graph is lowered; what it leads to is in the graph",
    "device": "described by what it is, in the target; its number is not in an engine",
    "dryrun": "nothing is built",
    "lazy_engine_init": "says when an engine is loaded",
    "offload_module_to_cpu": "says where the weights wait meanwhile",
    "pass_through_build_failures": "says what happens to errors",
    "runtime_cache_path": "a path; used when the engine runs",
    "timing_cache_path": "a path; what is in it makes builds faster",
    "use_python_runtime": "says what runs the engine",
    **dict.fromkeys(("cache_built_engines", "reuse_cached_engines"), "says whether another cache is used"),
    **dict.fromkeys(
        (
            *("cpu_memory_budget", "enable_resource_partitioning", "min_block_size"),
            *("require_full_compilation", "torch_executed_ops", "use_fast_partitioner"),
        ),
        "decides where the graph is cut, which the partition shows",
    ),
}
"""Settings that cannot affect an engine, and why."""

KNOWN = frozenset(LEFT_OUT) | {
    *("assume_dynamic_shape_support", "attn_bias_is_causal", "autocast_excluded_nodes", "autocast_excluded_ops"),
    *("autocast_low_precision_type", "autocast_max_depth_of_reduction", "autocast_max_output_threshold"),
    *("decompose_attention", "disable_tf32", "disabled_constant_fold_exclusions", "dla_global_dram_size"),
    *("dla_local_dram_size", "dla_sram_size", "dynamic_shapes_kernel_specialization_strategy"),
    *("dynamically_allocate_resources", "enable_autocast", "enable_cross_compile_for_windows"),
    *("enable_experimental_decompositions", "enable_weight_streaming", "enabled_precisions", "engine_capability"),
    *("fallback_data_dependent_ops", "hardware_compatible", "immutable_weights", "l2_limit_for_tiling"),
    *("max_aux_streams", "num_avg_timing_iters", "optimization_level", "refit_identical_engine_weights"),
    *("sparse_weights", "strip_engine_weights", "tiling_optimization_level", "truncate_double"),
    *("use_complex_decomposition", "use_distributed_mode_trace", "use_explicit_typing", "use_fp32_acc"),
    *("version_compatible", "workspace_size"),
}
"""The fields of ``CompilationSettings`` from 2.8 to 2.14."""


def settings_document(settings: object) -> dict[str, Any]:
    """Return the settings part of the key document: all settings, known or not, except those left out."""
    values = sorted(vars(settings).items())
    return {name: plain(value, f"settings.{name}") for name, value in values if name not in LEFT_OUT}


def unknown_settings(settings: object) -> list[str]:
    """Return the settings that no version from 2.8 to 2.14 has."""
    return sorted(set(vars(settings)) - KNOWN)


def plain(value: Any, where: str) -> Any:
    """Return a setting's value in key document types: dtypes and operators become their names.

    Raises:
        CanonicalizationError: it has no stable form.
    """
    if value is None or isinstance(value, (bool, int, float, str, bytes, enum.Enum)):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(one, where) for name, one in value.items()}
    if isinstance(value, (Set, list, tuple)):
        items = [plain(one, where) for one in value]
        return {tuple(one) if isinstance(one, list) else one for one in items} if isinstance(value, Set) else items
    if isinstance(value, (torch.dtype, torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(value)
    names = (getattr(value, "__module__", None), getattr(value, "__qualname__", None))
    if callable(value) and all(names) and "<" not in str(names[1]):
        return ".".join(map(str, names))
    raise CanonicalizationError(where, f"a {type(value).__name__} has no stable form")


def inputs_document(inputs: Collection[object]) -> list[dict[str, Any]]:
    """Return each input's spec: all attributes of an ``Input`` except its example tensor."""
    return [
        {
            name: plain(value, f"inputs[{number}].{name}")
            for name, value in sorted(vars(one).items())
            if name != "torch_tensor"
        }
        for number, one in enumerate(inputs)
    ]


KIND = "torch_tensorrt"


@frozen_dataclass
class Conversion:
    """The arguments of one conversion by torch_tensorrt.

    ``bindings`` are names of the engine's inputs and outputs that a caller of 2.14 may pass.
    """

    module: fx.GraphModule
    inputs: Sequence[Any]
    settings: Any
    bindings: tuple[Any, Any] = (None, None)


@frozen_dataclass
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
    # The names that are visible outside of the engine.
    named = [node.name for node in module.graph.nodes if is_refittable or node.op == "placeholder"]
    bindings = (None if given is None else list(given) for given in conversion.bindings)
    parts = {
        "graph": digest,
        "inputs": inputs_document(conversion.inputs),
        "names": dict(zip(("nodes", "inputs", "outputs"), (named, *bindings), strict=True)),
        "weights": "refittable" if is_refittable else "frozen",
        "converters": converters_document(converters),
        "operator_versions": dict(operator_versions),
        "settings": settings_document(settings),
        "target": target_document(settings),
        "toolchain": toolchain_document(library.package, library.tensorrt),
    }
    return ConversionRequest(CacheKey.of(KIND, parts), graph_document(program, records), is_refittable)


def entry_name(partition: str) -> str:
    """Return an entry's name: the program that built it, and torch_tensorrt's name for the partition."""
    return f"{Path(sys.argv[0]).stem} {partition}".strip() if sys.argv else partition


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
