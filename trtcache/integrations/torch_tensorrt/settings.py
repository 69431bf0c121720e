"""torch_tensorrt's settings in the key: all except those that no engine depends on."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Set
from typing import Any

import torch

from trtcache.errors import CanonicalizationError

LEFT_OUT: Mapping[str, str] = {
    "autocast_calibration_dataloader": "used while the graph is lowered; what it leads to is in the graph",
    "cache_built_engines": "says whether another cache is used",
    "cpu_memory_budget": "decides where the graph is cut, which the partition shows",
    "device": "described by what it is, in the target; its number is not in an engine",
    "dryrun": "nothing is built",
    "enable_resource_partitioning": "decides where the graph is cut, which the partition shows",
    "lazy_engine_init": "says when an engine is loaded",
    "min_block_size": "decides where the graph is cut, which the partition shows",
    "offload_module_to_cpu": "says where the weights wait meanwhile",
    "pass_through_build_failures": "says what happens to errors",
    "require_full_compilation": "decides where the graph is cut, which the partition shows",
    "reuse_cached_engines": "says whether another cache is used",
    "runtime_cache_path": "a path; used when the engine runs",
    "timing_cache_path": "a path; what is in it makes builds faster",
    "torch_executed_ops": "decides where the graph is cut, which the partition shows",
    "use_fast_partitioner": "decides where the graph is cut, which the partition shows",
    "use_python_runtime": "says what runs the engine",
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


def document(settings: object) -> dict[str, Any]:
    """Return the settings part of the key document: all settings, known or not, except those left out.

    Raises:
        CanonicalizationError: a setting has no stable form.
    """
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
        return set(map(_hashable, items)) if isinstance(value, Set) else items
    return _qualified_name(value, where)


def _qualified_name(value: Any, where: str) -> str:
    if isinstance(value, (torch.dtype, torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(value)
    names = (getattr(value, "__module__", None), getattr(value, "__qualname__", None))
    if callable(value) and all(names) and "<" not in str(names[1]):
        return ".".join(map(str, names))
    raise CanonicalizationError(where, f"a {type(value).__name__} has no stable form")


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def inputs_document(inputs: Collection[object]) -> list[dict[str, Any]]:
    """Return each input's spec: all attributes of an ``Input`` except its example tensor.

    Raises:
        CanonicalizationError: something in it has no stable form.
    """
    return [
        {
            name: plain(value, f"inputs[{number}].{name}")
            for name, value in sorted(vars(one).items())
            if name != "torch_tensor"
        }
        for number, one in enumerate(inputs)
    ]
